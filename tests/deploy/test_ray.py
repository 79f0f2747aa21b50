"""reel.ray_serve on a Ray of this machine: two replicas, then three, one of which is killed, beside the same servers without Ray."""
# packages: ray[serve] aiohttp cffi
import asyncio
import csv
import json
import os
import signal
import statistics
import subprocess
import time

os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0", RAY_enable_metrics_collection="0")

import aiohttp
import ray
from ray import serve

from fleet import HEADERS, KEY, PACED, ROOT, TOKEN_S, ask, chat, client_session, free_port, get, tokens_per_second, wait_for
from trials import client, equal, finish
import trials

SESSIONS = 16
TRANSPORT = "gRPC" if os.environ.get("RAY_SERVE_USE_GRPC_BY_DEFAULT") == "1" else "Ray's objects"
STREAMS = int(os.environ.get("REEL_RAY_STREAMS", 2000))
ONLY = os.environ.get("REEL_RAY_ONLY", "")  # trials whose name has this in it
client("ray")


def trial(what):
    what += f" ({TRANSPORT})"
    return trials.trial(what) if ONLY in what or what.startswith("two replicas answer") else lambda function: None


port = free_port()
url = f"http://127.0.0.1:{port}"
figures = []  # rows of bench/results/ray.csv


def figure(what, value, unit):
    figures.append([TRANSPORT, what, f"{value:.4g}", unit])


def settings(**more):
    return {"models": "demo", "program": os.path.abspath(PACED), "gpus": 0, "cpus": 0.1, "sessions": SESSIONS, "replicas": 2,
            "environment": {"PACED_TOKEN_MS": str(TOKEN_S * 1e3)}, "drain_s": 20,
            "options": ["--ctx", "2048", "--chat-template", "chatml", "--api-key", KEY], **more}


def deploy(**more):
    from reel.ray_serve import app
    serve.run(app(settings(**more)), name="reel")


def children():
    """The servers' process ids, of this Ray's replicas."""
    found = subprocess.run(["pgrep", "-f", "-x", f"{os.path.abspath(PACED)} serve demo --host 127.0.0.1 --port 0 .*"], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split() if is_ours(int(line))]


def is_ours(process):
    while process > 1 and process != os.getpid():
        try:
            process = parent_of(process)
        except OSError:
            return False
    return process == os.getpid()


def parent_of(process):
    with open(f"/proc/{process}/stat") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


def port_of(process):
    """Where a server listens."""
    said = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True).stdout
    (line,) = [line for line in said.splitlines() if f"pid={process}," in line]
    return int(line.split()[3].rsplit(":", 1)[1])


def busy_of(process):
    return sum(int(line.rsplit(" ", 1)[1]) for line in get(f"http://127.0.0.1:{port_of(process)}/metrics")[1].splitlines()
               if line.startswith("reel_sessions_busy{"))


def busy():
    return sum(busy_of(process) for process in children())


def descendants_cpu_s():
    """CPU time of all processes of this Ray and its servers."""
    parent, spent = {}, {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/stat") as f:
                parts = f.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parent[int(process)] = int(parts[1])
        spent[int(process)] = (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")
    total, mine = 0.0, {os.getpid()}
    for process in sorted(parent):  # a child's number is the larger one, but for a wrap
        if parent[process] in mine:
            mine.add(process)
            total += spent[process]
    return total


def running():
    status = serve.status().applications["reel"].deployments["Replica"]
    return status.replica_states.get("RUNNING", 0)


async def many(n, at_once, body, events=None, session_of=None):
    """n requests, so many at once; events: functions to be called when so many were answered."""
    answers, left, events = [], iter(range(n)), dict(events or {})
    async with client_session() as session:
        async def worker():
            for i in left:
                answers.append(await ask(session, url, body, {"X-Session-Id": session_of(i)} if session_of else {}))
                act = events.pop(len(answers), None)
                if act:
                    await asyncio.to_thread(act)
        await asyncio.gather(*(worker() for _ in range(at_once)))
    return answers


ray.init(address="local", num_cpus=2, object_store_memory=200_000_000, include_dashboard=False, log_to_driver=False, configure_logging=False)
serve.start(http_options={"host": "127.0.0.1", "port": port})
try:
    @trial("two replicas answer")
    def _():
        deploy()
        wait_for("two replicas", lambda: running() == 2, 60)
        equal(len(children()), 2)
        (answer,) = asyncio.run(many(1, 1, chat(5, stream=False)))
        assert answer.whole, answer.error
        code, said = get(url + "/v1/models")
        equal((code, json.loads(said)["data"][0]["id"]), (200, "demo"))
        equal(get(url + "/v1/models", {"Authorization": "Bearer wrong"})[0], 401)

    @trial("a stream's events come as they are made")
    def _():
        (answer,) = asyncio.run(many(1, 1, chat(200)))
        assert answer.whole, answer.error
        equal(len(answer.events), 200)
        assert answer.reads > 100, answer.reads
        return f"{answer.reads} pieces"

    @trial("errors are OpenAI's and Anthropic's, of the replica")
    def _():
        async def go():
            async with client_session() as session:
                async with session.post(url + "/v1/chat/completions", json={"messages": 1}, headers=HEADERS) as a:
                    return a.status, await a.json()
        code, said = asyncio.run(go())
        equal((code, said["error"]["type"]), (400, "invalid_request_error"))

    @trial("pages of the server's own name are let in, others are not")
    def _():
        async def go(origin):
            async with client_session() as session:
                async with session.get(url + "/v1/models", headers={**HEADERS, "Origin": origin}) as a:
                    return a.status
        equal([asyncio.run(go(origin)) for origin in (url, "http://elsewhere")], [200, 403])

    @trial("conversations stay with the replica that holds their beginning")
    def _():
        found = 0
        for i in range(8):
            for turn in range(4):
                messages = [{"role": "user", "content": f"conversation {i} " + "and so on " * 20}]
                for earlier in range(turn):
                    messages += [{"role": "assistant", "content": f"answer {earlier}"}, {"role": "user", "content": f"question {earlier}"}]
                body = dict(chat(2, stream=False), messages=messages)
                (answer,) = asyncio.run(many(1, 1, body))
                found += turn > 0 and answer.body["usage"]["prompt_tokens_details"]["cached_tokens"] > 60
        equal(found, 24)
        return "each of 24 further turns of eight conversations found its prompt's beginning"

    @trial("a client that leaves ends its request in the replica")
    def _():
        async def go():
            async with client_session() as session:
                tasks = [asyncio.create_task(ask(session, url, chat(1500, stream=i % 2 == 0))) for i in range(8)]
                await asyncio.to_thread(wait_for, "eight requests at work", lambda: busy() == 8, 10)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        asyncio.run(go())
        left = time.monotonic()
        wait_for("idle", lambda: busy() == 0, 5)
        return f"four streams and four whole answers of 15 s were over within {time.monotonic() - left:.2f} s"

    @trial(f"{STREAMS:,} streams; kill -9 of one server, of one replica's process, and a third replica comes")
    def _():
        log = []

        def busiest():
            wait_for("a server with three streams", lambda: max(busy_of(c) for c in children()) >= 3)
            return max(children(), key=busy_of)

        def kill_server():
            os.kill(busiest(), signal.SIGKILL)
            log.append("server")

        def kill_replica():
            os.kill(parent_of(busiest()), signal.SIGKILL)
            log.append("replica")

        def third():
            deploy(replicas=3)
            log.append("third")
        began = time.monotonic()
        answers = asyncio.run(many(STREAMS, 24, chat(60), {STREAMS // 5: kill_server, STREAMS * 9 // 20: kill_replica, STREAMS * 13 // 20: third}))
        took = time.monotonic() - began
        equal(log, ["server", "replica", "third"])
        equal(len(answers), STREAMS)
        whole = sum(a.whole for a in answers)
        broken = [a for a in answers if not a.whole]
        for a in broken:  # begun, and told in words
            assert a.status == 200 and a.events and "the replica that made this answer is gone" in a.error, (a.status, a.error, len(a.events))
        assert 2 <= len(broken) <= 2 * SESSIONS, len(broken)
        wait_for("three replicas", lambda: running() == 3 and len(children()) == 3, 60)
        figure(f"{STREAMS} streams of 60 tokens, 24 at once, two killed: requests a second", STREAMS / took, "1/s")
        figure("of these whole", whole, "")
        figure("of these ended in an error event", len(broken), "")
        return f"{whole} whole, {len(broken)} had begun and ended in an error event, none else; {took:.0f} s"

    @trial("a rolling update while streams run")
    def _():
        old = set(children())

        async def go():
            update = asyncio.create_task(asyncio.to_thread(deploy, replicas=2, options=settings()["options"] + ["--max-body", "1000000"]))
            answers = await many(300, 8, chat(20))
            await update
            return answers
        answers = asyncio.run(go())
        equal([(a.status, a.error) for a in answers if not a.whole], [])
        wait_for("new servers", lambda: len(children()) == 2 and not old & set(children()), 60)
        return "300 streams, all whole; every server is a new one"

    @trial("what Ray costs, beside direct calls")
    def _():
        targets = {"direct": f"http://127.0.0.1:{port_of(children()[0])}", "ray": url}

        async def firsts(to):
            async with client_session() as session:
                return [(await ask(session, to, chat(1))).first_ms for _ in range(100)]

        async def streams(to, n, tokens):
            async with client_session() as session:
                return await asyncio.gather(*(ask(session, to, chat(tokens)) for _ in range(n)))

        async def rate(to, n):
            async with client_session() as session:
                left = iter(range(n))

                async def worker():
                    for _ in left:
                        assert (await ask(session, to, chat(1, stream=False))).whole
                began = time.monotonic()
                await asyncio.gather(*(worker() for _ in range(8)))
                return n / (time.monotonic() - began)

        first = {name: statistics.median(asyncio.run(firsts(to))) for name, to in targets.items()}
        for name, to in targets.items():
            figure(f"{name}: first event, one at a time, median of 100", first[name], "ms")
        per_token = {}
        for name, to in targets.items():
            before = descendants_cpu_s()
            answers = asyncio.run(streams(to, 8, 300))
            spent = descendants_cpu_s() - before
            assert all(a.whole for a in answers), [a.error for a in answers]
            n = sum(len(a.events) for a in answers)
            per_token[name] = spent / n * 1e6
            figure(f"{name}: 8 streams, tokens a second", tokens_per_second(answers), "1/s")
            figure(f"{name}: CPU time of Ray and servers, a token", per_token[name], "us")
            gaps = [(b - a) * 1e3 for answer in answers for a, b in zip(answer.events, answer.events[1:])]
            figure(f"{name}: between tokens, p99", sorted(gaps)[int(len(gaps) * 0.99)], "ms")
        for name, to in targets.items():
            figure(f"{name}: requests a second, 8 at once, one token each", asyncio.run(rate(to, 200)), "1/s")
        return f"{first['ray'] - first['direct']:.1f} ms to the first event, {per_token['ray'] - per_token['direct']:.0f} us of CPU a token"

    @trial("autoscaling: from one replica to two under load, and back")
    def _():
        deploy(replicas=1, autoscaling={"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 4,
                                        "upscale_delay_s": 1, "downscale_delay_s": 3, "metrics_interval_s": 0.5, "look_back_period_s": 1})
        wait_for("one replica", lambda: running() == 1 and len(children()) == 1, 60)
        answers, took = [], []

        def second_works():
            """Both replicas answer requests. A server that was just started may not listen yet."""
            return running() == 2 and len(children()) == 2 and all(busy_of(child) for child in children())

        # The load lasts until the second replica has its share, as a busy machine takes long to start one.
        async def go():
            enough, began = asyncio.Event(), time.monotonic()
            async with client_session() as session:
                async def worker():
                    while not enough.is_set():
                        answers.append(await ask(session, url, chat(200)))
                load = [asyncio.create_task(worker()) for _ in range(14)]
                try:
                    await asyncio.to_thread(wait_for, "a second replica that answers", second_works, 120)
                    took.append(time.monotonic() - began)
                finally:
                    enough.set()
                    await asyncio.gather(*load)
        asyncio.run(go())
        equal([a.error for a in answers if not a.whole], [])
        equal(running(), 2)
        wait_for("one replica again", lambda: running() == 1 and len(children()) == 1, 60)
        return f"14 streams at once, {len(answers)} in all; the second replica answered after {took[0]:.0f} s"

    @trial("deploy/ray/serve.yaml is what Serve and app take")
    def _():
        import yaml
        from ray.serve.schema import ServeDeploySchema
        from reel.ray_serve import app
        with open(os.path.join(ROOT, "deploy", "ray", "serve.yaml"), encoding="utf-8") as f:
            config = ServeDeploySchema(**yaml.safe_load(f))
        os.environ["REEL_COMMAND"] = os.path.abspath(PACED)
        app(config.applications[0].args)
        app({"models": "demo", "options": "--ctx 2048 --insecure"})
        for wrong in ({"models": "demo", "gpu": 1}, {"models": "demo", "options": ["--port", "1"]}, {"models": "demo", "options": "--api-key-file f --port=1"},
                      {"models": "demo", "gpus": 2}, {"models": "demo"}, {"models": "demo", "options": "--ctx 2048"}, {}):
            try:
                app(wrong)
            except ValueError:
                continue
            raise AssertionError(f"{wrong} was taken")

    @trial("with --insecure whoever reaches Ray is let in")
    def _():
        deploy(replicas=1, options="--ctx 2048 --chat-template chatml --insecure")
        wait_for("a server without keys", lambda: get(url + "/v1/models", {"Host": "elsewhere"})[0] == 200, 60)

    @trial("all ends with Ray")
    def _():
        serve.delete("reel")
        wait_for("no servers", lambda: not children(), 30)
finally:
    serve.shutdown()
    ray.shutdown()
if os.environ.get("REEL_RAY_CSV") and figures:
    with open(os.environ["REEL_RAY_CSV"], "a", newline="") as f:
        csv.writer(f, lineterminator="\n").writerows(figures)
for row in figures:
    print("        ", *row)
finish()
