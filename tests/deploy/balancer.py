"""Trials that hold for any balancer in front of three replicas: trials_of(name, version, start, retries).

start(replicas, folder) starts the balancer and gives its process and address. `retries` says that it asks another replica
when one dies, or answers 503, before the first byte of an answer has gone out, and that it breaks off a stream whose replica
died; else the client sees a 503, and a stream that ends without [DONE].
"""
import asyncio
import base64
import json
import os
import random
import signal
import statistics
import time

import aiohttp

from fleet import HEADERS, KEY, TOKEN_S, Fleet, ask, ask_all, chat, client_session, get, temporary, tokens_per_second, wait_for
from trials import SPEECH, Skip, client, clip, equal, trial


def median_gap(answer):
    return statistics.median(b - a for a, b in zip(answer.events, answer.events[1:]))


async def dictate(url, index):
    """A clip over /v1/realtime in OpenAI's dialect: what was heard."""
    samples, words = clip(index)
    async with client_session() as session:
        async with session.ws_connect(url + "/v1/realtime?intent=transcription", headers=HEADERS) as socket:
            equal((await socket.receive_json())["type"], "session.created")
            await socket.send_json({"type": "session.update", "session": {"type": "transcription", "audio": {"input": {
                "format": {"type": "audio/pcm", "rate": 16000}, "turn_detection": None, "transcription": {"model": SPEECH}}}}})
            for at in range(0, len(samples), 3200):
                await socket.send_json({"type": "input_audio_buffer.append",
                                        "audio": base64.b64encode(samples[at:at + 3200]).decode()})
            await socket.send_json({"type": "input_audio_buffer.commit"})
            async for message in socket:
                event = json.loads(message.data)
                assert event["type"] != "error", event
                if event["type"].endswith("transcription.completed"):
                    return event["transcript"].strip(), words
    raise AssertionError("the socket closed before the transcript")


def trials_of(name, version, start, retries):
    client(name, version)
    fleet = Fleet(3)
    folder = temporary()
    balancer, url = start(fleet.replicas, folder)
    wait_for(url, lambda: get(url + "/health?ready")[0] == 200)
    try:
        run(fleet, url, retries)
    finally:
        balancer.terminate()
        balancer.wait()
        fleet.end()


def run(fleet, url, retries):
    replicas = fleet.replicas

    @trial("a stream's events come as they are made")
    def _():
        direct = asyncio.run(ask_all(replicas[0].url, [chat(200)]))[0]
        through = asyncio.run(ask_all(url, [chat(200)]))[0]
        assert through.whole and direct.whole, through.error
        equal(len(through.events), len(direct.events))
        assert abs(median_gap(through) - TOKEN_S) < TOKEN_S / 5, median_gap(through)
        assert through.reads > 100, f"200 events came in {through.reads} pieces"
        return f"{through.reads} pieces; {median_gap(through) * 1e3:.2f} ms between two (median)"

    @trial("the fewest connections: a long stream and two short answers in turn, 12 times")
    def _():
        async def go():
            async with client_session() as session:
                streams = []
                for _ in range(12):  # in turn, without looking, all long ones would go to one replica
                    streams.append(asyncio.create_task(ask(session, url, chat(300))))
                    await asyncio.sleep(0.02)
                    for _ in range(2):
                        assert (await ask(session, url, chat(1, stream=False))).whole
                busy = await asyncio.to_thread(fleet.busy)
                return busy, await asyncio.gather(*streams)
        busy, answers = asyncio.run(go())
        assert all(a.whole for a in answers), [a.error for a in answers if not a.whole]
        assert min(busy) >= 3 and sum(busy) == 12, busy
        return f"{busy} streams at once"

    @trial("requests with the same X-Session-Id stay together")
    def _():
        used, cached = set(), 0
        for i in range(12):
            before = fleet.answered()
            for turn in range(5):
                body = chat(2, stream=False, content=f"conversation {i}: " + "and so on " * 20 + "again " * turn)
                (answer,) = asyncio.run(ask_all(url, [body], [{"X-Session-Id": f"s-{i}"}]))
                assert answer.whole, answer.error or answer.body
                if turn:
                    cached += answer.body["usage"]["prompt_tokens_details"]["cached_tokens"] > 20
            wait_for("the last of five to be counted", lambda: sum(fleet.answered()) >= sum(before) + 5, 5)
            spread = [b - a for a, b in zip(before, fleet.answered())]
            equal(sorted(spread), [0, 0, 5])
            used.add(spread.index(5))
        equal(cached, 48)
        assert len(used) > 1, "all sessions went to one replica"
        return f"12 sessions on {len(used)} replicas; each of 48 further turns found its prompt's beginning"

    @trial("a client that leaves ends its request in the replica")
    def _():
        async def go():
            async with client_session() as session:
                tasks = [asyncio.create_task(ask(session, url, chat(1500))) for _ in range(6)]
                tasks += [asyncio.create_task(ask(session, url, chat(1500, stream=False))) for _ in range(6)]
                await asyncio.sleep(0.5)
                busy = sum(await asyncio.to_thread(fleet.busy))
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                return busy
        equal(asyncio.run(go()), 12)
        left = time.monotonic()
        wait_for("idle", lambda: sum(fleet.busy()) == 0, 3)
        return f"six streams and six whole answers of 15 s were over within {time.monotonic() - left:.2f} s"

    @trial("dictation over a WebSocket")
    def _():
        async def go():
            return await asyncio.gather(*(dictate(url, i) for i in range(3)))
        heard = asyncio.run(go())
        for text, words in heard:
            equal(text, words)
        return f"{len(heard)} sessions at once"

    @trial("bodies: 30 MB pass, 70 MB are refused")
    def _():
        ok, = asyncio.run(ask_all(url, [chat(2, stream=False, passed_over="x" * 30_000_000)]))
        assert ok.whole, ok.error or ok.body
        large, = asyncio.run(ask_all(url, [chat(2, stream=False, passed_over="x" * 70_000_000)]))
        assert large.status == 413 or "Reset" in large.error or "Broken pipe" in large.error or "write" in large.error, (large.status, large.error)
        # By the balancer: a replica that refuses it breaks a connection that is still written to, and may be taken for a failed one.
        equal([r.figure("reel_requests_total", 'code="413"') for r in replicas], [0, 0, 0])
        return f"{large.status or large.error}"

    @trial("a wrong key is the replica's to refuse, and /metrics is nobody's")
    def _():
        equal(get(url + "/v1/models", {"Authorization": "Bearer wrong"})[0], 401)
        equal(get(url + "/v1/models")[0], 200)
        equal(get(url + "/metrics")[0], 404)

    @trial("kill -9 of a replica costs the streams that it had begun")
    def _():
        fleet.wait_idle()

        async def later(session, delay, stream):
            await asyncio.sleep(delay)
            return await ask(session, url, chat(30, stream=stream))

        async def go():
            async with client_session() as session:
                streams = [asyncio.create_task(ask(session, url, chat(300))) for _ in range(30)]
                new = [asyncio.create_task(later(session, 0.03 * i, i % 2 == 0)) for i in range(100)]
                await asyncio.sleep(1)
                # Between these two nothing begins: the short requests that run now are counted by the clock.
                busy = await asyncio.to_thread(replicas[1].busy)
                replicas[1].kill()
                return busy, await asyncio.gather(*streams), await asyncio.gather(*new)
        busy, streams, new = asyncio.run(go())
        broken = [a for a in streams if not a.whole]
        # 10 long streams and at most the short ones that ran there.
        assert 8 <= len(broken) <= 12, len(broken)
        for a in broken:
            assert a.status == 200 and not a.done and (a.error or not retries), (a.status, a.error)
        failed = [a for a in new if not a.whole]
        assert all(a.events or (a.status == 503 and a.headers["Retry-After"]) for a in failed), [(a.status, a.error) for a in failed]
        begun = [a for a in failed if a.events]
        lost = len(failed) - len(begun)
        if retries:
            equal(lost, 0)
        assert len(begun) + len(broken) <= busy + 2, (len(begun), len(broken), busy)
        assert lost <= busy - len(broken) + 2, (lost, busy)
        return (f"{busy} requests ran there; {len(broken)} long and {len(begun)} short streams broke off, {sum(bool(a.error) for a in broken + begun)} "
                f"of them with an error; {100 - len(failed)} of 100 others were answered"
                + ("" if retries else f", {lost} were told 503"))

    @trial("a replica that comes back is used again")
    def _():
        replicas[1].end()
        replicas[1].start()
        replicas[1].wait_ready()
        began = time.monotonic()

        def used():
            (answer,) = asyncio.run(ask_all(url, [chat(1)]))
            assert answer.whole, answer.error
            return replicas[1].answered() > 0
        wait_for("used", used, 10)
        return f"{time.monotonic() - began:.1f} s after it was ready"

    @trial("SIGTERM: a replica's streams end whole, nothing new fails")
    def _():
        fleet.wait_idle()

        async def go():
            async with client_session() as session:
                streams = [asyncio.create_task(ask(session, url, chat(200))) for _ in range(30)]
                await asyncio.sleep(0.5)
                busy = await asyncio.to_thread(replicas[2].busy)
                replicas[2].kill(signal.SIGTERM)
                new = []
                for i in range(60):
                    new.append(asyncio.create_task(ask(session, url, chat(3, stream=i % 2 == 0))))
                    await asyncio.sleep(0.02)
                return busy, await asyncio.gather(*streams), await asyncio.gather(*new)
        try:
            busy, streams, new = asyncio.run(go())
            equal(replicas[2].process.wait(10), 0)
        finally:
            replicas[2].end()
            replicas[2].start()
            replicas[2].wait_ready()
        assert busy >= 8, busy
        equal(sum(a.whole for a in streams), 30)
        refused = [a for a in new if not a.whole]
        assert all(a.status == 503 and int(a.headers["Retry-After"]) >= 1 for a in refused), [(a.status, a.error) for a in refused]
        assert len(refused) <= (0 if retries else 6), len(refused)
        slowest = max(a.first_ms for a in new if a.events)
        assert slowest < 1000, slowest
        return (f"{busy} streams ended whole; of 60 requests meanwhile {len(refused)} were told 503, "
                f"the slowest other began after {slowest:.0f} ms")

    @trial("throughput of 30 streams beside the replicas' sum")
    def _():
        fleet.wait_idle()

        def spread(to):
            async def go():
                async with client_session() as session:
                    return await asyncio.gather(*(ask(session, to[i % len(to)], chat(500)) for i in range(30)))
            answers = asyncio.run(go())
            assert all(a.whole for a in answers), [a.error for a in answers if not a.whole]
            return tokens_per_second(answers), statistics.median(a.first_ms for a in answers)
        direct, direct_first = spread([r.url for r in replicas])
        through, first = spread([url])
        assert through > 0.9 * direct, (through, direct)
        return f"{through:.0f} tokens/s; {direct:.0f} direct ({100 * through / direct:.1f} %)"

    @trial("time to the first event, one request at a time")
    def _():
        def firsts(to):
            async def go():
                async with client_session() as session:
                    return [(await ask(session, to, chat(1))).first_ms for _ in range(100)]
            return statistics.median(asyncio.run(go()))
        direct, through = firsts(replicas[0].url), firsts(url)
        assert through < direct + 5, (through, direct)
        return f"{through:.2f} ms; {direct:.2f} ms direct (medians of 100)"

    @trial("all replicas gone: 503 with Retry-After, in OpenAI's form")
    def _():
        for replica in replicas:
            replica.end()
        for _ in range(3):
            (answer,) = asyncio.run(ask_all(url, [chat(3)]))
            equal(answer.status, 503)
            assert int(answer.headers["Retry-After"]) >= 1
            assert answer.body["error"]["message"]


def full(name, version, start):
    """Replicas of one session and one that waits: what is more is told to come again."""
    client(name, version)
    fleet = Fleet(2, sessions=1, queue=1, models=("demo",))
    balancer, url = start(fleet.replicas, temporary())
    wait_for(url, lambda: get(url + "/health?ready")[0] == 200)
    try:
        @trial("replicas that are full: 503 with Retry-After")
        def _():
            answers = asyncio.run(ask_all(url, [chat(100)] * 8))
            refused = [a for a in answers if a.status == 503]
            equal(sum(a.whole for a in answers) + len(refused), 8)
            assert refused and all(int(a.headers["Retry-After"]) >= 1 and a.body["error"]["message"] for a in refused)
            return f"{8 - len(refused)} of 8 were answered, {len(refused)} refused"
    finally:
        balancer.terminate()
        balancer.wait()
        fleet.end()
