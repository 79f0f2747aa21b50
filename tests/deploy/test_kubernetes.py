"""deploy/'s manifests where there is no cluster: by Kubernetes' schemas, by promtool, and what they say of reel by a server and a Prometheus."""
# packages: kubernetes-validate pyyaml aiohttp
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import urllib.parse

import kubernetes_validate
import yaml

from fleet import KEY, PACED, ROOT, Fleet, ask_all, chat, free_port, get, temporary, wait_for
from trials import Skip, client, equal, finish, trial

DEPLOY = os.path.join(ROOT, "deploy")
VERSIONS = ["1.27", "1.30", "1.37"]
OWN = {"v1", "apps/v1", "autoscaling/v2", "policy/v1", "networking.k8s.io/v1"}


def documents():
    for folder in ("kubernetes", "kserve", "gateway"):
        for name in sorted(os.listdir(os.path.join(DEPLOY, folder))):
            with open(os.path.join(DEPLOY, folder, name), encoding="utf-8") as f:
                for document in yaml.safe_load_all(f):
                    yield name, document


def of_kind(kind, name):
    (found,) = [d for f, d in documents() if d.get("kind") == kind and f == name]
    return found


client("kubernetes-validate")


@trial("manifests by Kubernetes' schemas, strictly")
def _():
    n, others = 0, set()
    for name, document in documents():
        if document.get("apiVersion") in OWN:
            for version in VERSIONS:
                kubernetes_validate.validate(document, version, strict=True)
            n += 1
        elif "kind" in document:
            others.add(document["kind"])
    assert n >= 11, n
    return f"{n} documents, versions {' '.join(VERSIONS)}; without a schema here: {', '.join(sorted(others))}"


@trial("the configuration and the probes of both Deployments, by a server")
def _():
    for name in ("reel-gpu.yaml", "reel-cpu.yaml"):
        text = of_kind("ConfigMap", name)["data"]["serve.conf"]
        pod = of_kind("Deployment", name)["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        folder, port = temporary(), free_port()
        # What a trial changes: the model, the device, and where files and the port are.
        for pattern, instead in ((r"model = (\w+)=.*", r"model = \1=demo"), ("device = gpu", "device = cpu"), ("host = .*", "host = 0.0.0.0"),
                                 ("port = .*", f"port = {port}"), ("/keys/keys", folder + "/keys")):
            text, n = re.subn(pattern, instead, text)
            assert n or "gpu" in pattern, pattern
        with open(folder + "/keys", "w") as f:
            f.write(KEY + "\n")
        with open(folder + "/serve.conf", "w") as f:
            f.write(text)
        words = [word.replace("/config/", folder + "/") for word in container["args"]]
        server = subprocess.Popen([PACED, *words], stderr=subprocess.PIPE, text=True)
        try:
            url = f"http://127.0.0.1:{port}"
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                path = container[probe]["httpGet"]["path"]
                wait_for(f"{probe} {path}", lambda: get(url + path, {})[0] == 200 or server.poll() is not None, 10)
                assert server.poll() is None, server.stderr.read()
            equal(get(url + "/v1/models", {})[0], 401)
            grace = pod["terminationGracePeriodSeconds"]
            drain = int(re.search(r"for up to (\d+) seconds", subprocess.run([PACED, "help", "serve"], capture_output=True, text=True).stdout.replace("\n", " "))[1])
            wait = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
            assert grace >= drain + wait + 5, (grace, drain, wait)

            server.send_signal(signal.SIGTERM)
            equal(server.wait(5), 0)
        finally:
            server.kill()
    return f"grace {grace} s >= preStop {wait} s + draining {drain} s"


@trial("names of metrics that autoscaler, adapter and picker ask for, by a server")
def _():
    fleet = Fleet(1)
    try:
        asyncio.run(ask_all(fleet.replicas[0].url, [chat(3)]))  # counters come with the first request
        text = get(fleet.replicas[0].url + "/metrics")[1]
    finally:
        fleet.end()
    have = set(re.findall(r"^(reel_\w+)", text, re.M))
    said = ""
    for folder in ("kubernetes/adapter-rules.yaml", "gateway/picker-config.yaml", "prometheus/reel-rules.yaml"):
        with open(os.path.join(DEPLOY, folder), encoding="utf-8") as f:
            said += f.read()
    asked = set(re.findall(r"\b(reel_[a-z_]+)\b", said)) - {"reel_sessions_busy_share"}
    equal(sorted(asked - have), [])
    return ", ".join(sorted(asked))


@trial("promtool: metrics of a server, rules, their tests, prometheus.yaml")
def _():
    if not shutil.which("promtool"):
        raise Skip("promtool is not installed")
    fleet = Fleet(1)
    try:
        asyncio.run(ask_all(fleet.replicas[0].url, [chat(3), chat(3, stream=False)]))
        text = get(fleet.replicas[0].url + "/metrics")[1]
    finally:
        fleet.end()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    equal((done.returncode, done.stderr + done.stdout), (0, ""))
    folder = os.path.join(DEPLOY, "prometheus")
    for words in (["check", "rules", "reel-rules.yaml"], ["test", "rules", "reel-rules.test.yaml"], ["check", "config", "--syntax-only", "prometheus.yaml"]):
        done = subprocess.run(["promtool", *words], cwd=folder, capture_output=True, text=True)
        equal((done.returncode, words), (0, words)) if done.returncode == 0 else equal(done.stdout + done.stderr, "")


@trial("the adapter's queries and the rules, by Prometheus beside two servers")
def _():
    prometheus = shutil.which("prometheus")
    if not prometheus:
        raise Skip("prometheus is not installed")
    fleet, folder, port = Fleet(2, sessions=4), temporary(), free_port()
    for name in ("reel-rules.yaml", "prometheus.yaml"):
        shutil.copy(os.path.join(DEPLOY, "prometheus", name), folder)
    with open(folder + "/prometheus.yaml", encoding="utf-8") as f:
        config = yaml.safe_load(f)
    config["global"] = {"scrape_interval": "500ms", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"] = [
        {"targets": [f"127.0.0.1:{r.port}"], "labels": {"namespace": "default", "pod": f"reel-{i}"}} for i, r in enumerate(fleet.replicas)]
    with open(folder + "/prometheus.yaml", "w") as f:
        yaml.safe_dump(config, f)
    with open(folder + "/reel.key", "w") as f:
        f.write(KEY)
    server = subprocess.Popen([prometheus, f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data",
                               f"--web.listen-address=127.0.0.1:{port}"], stderr=open(folder + "/log", "w"))

    def query(text):
        code, said = get(f"http://127.0.0.1:{port}/api/v1/query?query=" + urllib.parse.quote(text), {})
        return {r["metric"].get("pod", r["metric"].get("model", "")): float(r["value"][1]) for r in json.loads(said)["data"]["result"]} if code == 200 else {}
    try:
        wait_for("two targets", lambda: len(query("reel_sessions")) == 2, 20)

        async def load():
            task = asyncio.create_task(ask_all(fleet.replicas[0].url, [chat(600)] * 7))
            seen = {}
            for _ in range(40):
                await asyncio.sleep(0.25)
                for rule in of_adapter():
                    seen[rule["name"]["as"]] = await asyncio.to_thread(query, rule["text"])
                if seen["reel_requests_queued"].get("reel-0") == 3:
                    break
            for one in await task:
                assert one.whole, one.error
            return seen

        def of_adapter():
            with open(os.path.join(DEPLOY, "kubernetes", "adapter-rules.yaml"), encoding="utf-8") as f:
                for rule in yaml.safe_load(f)["rules"]["custom"]:
                    series = rule["seriesQuery"].split("{")[0]
                    rule["text"] = (rule["metricsQuery"].replace("<<.Series>>", series).replace("<<.LabelMatchers>>", 'namespace="default"')
                                    .replace("<<.GroupBy>>", "pod"))
                    yield rule
        seen = asyncio.run(load())
        equal(seen, {"reel_requests_queued": {"reel-0": 3, "reel-1": 0}, "reel_sessions_busy_share": {"reel-0": 1, "reel-1": 0}})
        wait_for("a recorded rule", lambda: query("reel:generated_tokens:rate").get("demo", 0) > 0, 10)
        names = {m["name"] for d in documents() if d[1].get("kind") == "HorizontalPodAutoscaler" for m in (x["pods"]["metric"] for x in d[1]["spec"]["metrics"])}
        equal(names, set(seen))
        return "four sessions busy, three wait: " + json.dumps(seen).replace('"', "")
    finally:
        server.terminate()
        server.wait()
        fleet.end()


finish()
