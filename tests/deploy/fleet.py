"""Replicas of reel and clients of theirs, for trials of what stands in front of several servers.

The replicas are bench/paced_reel.c's program: whole servers whose text model makes a token every ten milliseconds and
computes nothing, beside the demo speech model as it is. Two cores are enough for many streams of many replicas.
"""
import asyncio
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

import aiohttp

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PACED = os.environ.get("REEL_PACED", os.path.join(ROOT, "build", "release", "bench", "paced_reel"))
KEY = "sk-fleet"
TOKEN_S = 0.01
HEADERS = {"Authorization": "Bearer " + KEY}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url, headers=HEADERS):
    """The code and the body; 0 where nobody answers."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def wait_for(what, condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what}: not within {seconds} s"
        time.sleep(0.02)


class Replica:
    def __init__(self, sessions=32, queue=64, models=("demo", "demo-speech"), prompt_ms=0):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.arguments = [PACED, "serve", *models, "--port", str(self.port), "--sessions", str(sessions), "--queue",
                          str(queue), "--ctx", "2048", "--log", "none", "--chat-template", "chatml", "--api-key", KEY]
        self.environment = dict(os.environ, PACED_TOKEN_MS=str(TOKEN_S * 1e3), PACED_PROMPT_MS=str(prompt_ms))
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.arguments, stderr=subprocess.DEVNULL, env=self.environment)

    def wait_ready(self):
        wait_for(self.url, lambda: get(self.url + "/health?ready")[0] == 200)

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait()

    def figure(self, name, label_has=""):
        """A figure of /metrics, summed over routes that answer text and codes; of those whose labels have this in them."""
        total = 0.0
        for line in get(self.url + "/metrics")[1].splitlines():
            label = line[len(name):].split(" ")[0]
            if line.startswith(name) and label[:1] in ("", "{") and "demo-speech" not in label and "/metrics" not in label and label_has in label:
                total += float(line.rsplit(" ", 1)[1])
        return total

    def busy(self):
        return int(self.figure("reel_sessions_busy"))

    def answered(self):
        """Requests for text that it has answered, and tokens that it made."""
        text = get(self.url + "/metrics")[1]
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in text.splitlines()
                   if line.startswith('reel_requests_total{route="/v1/c'))


class Fleet:
    def __init__(self, n, **options):
        self.replicas = [Replica(**options) for _ in range(n)]
        for replica in self.replicas:
            replica.start()
        for replica in self.replicas:
            replica.wait_ready()

    def end(self):
        for replica in self.replicas:
            replica.end()

    def busy(self):
        return [r.busy() for r in self.replicas]

    def answered(self):
        return [r.answered() for r in self.replicas]

    def wait_idle(self):
        live = [r for r in self.replicas if r.process.poll() is None]
        wait_for("idle replicas", lambda: all(r.busy() == 0 for r in live))


def chat(n_tokens, stream=True, content="Once upon a time there was", **more):
    return {"model": "demo", "messages": [{"role": "user", "content": content}], "max_tokens": n_tokens,
            "ignore_eos": True, "temperature": 0, "stream": stream, **more}


class Answer:
    """What came of one request: times are of time.monotonic()."""

    def __init__(self):
        self.began = time.monotonic()
        self.status = 0
        self.events = []   # when each event with text came
        self.done = False  # [DONE] came, or a whole answer
        self.error = ""    # an event with an error, or what the client's library said
        self.body = None
        self.headers = {}
        self.reads = 0     # pieces in which the answer came

    @property
    def first_ms(self):
        return (self.events[0] - self.began) * 1e3

    @property
    def whole(self):
        return self.status == 200 and self.done and not self.error


async def read_events(response, answer):
    rest = b""
    async for piece in response.content.iter_any():
        now = time.monotonic()
        answer.reads += 1
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data: [DONE]"):
                answer.done = True
            elif line.startswith(b'data: {"error"'):
                answer.error = line[6:].decode()
            elif line.startswith(b"data: ") and b'"content":"' in line:
                answer.events.append(now)


async def ask(client, url, body, headers={}):
    """One request. Errors of the connection are told in the answer."""
    answer = Answer()
    try:
        async with client.post(url + "/v1/chat/completions", json=body, headers={**HEADERS, **headers}) as response:
            answer.status, answer.headers = response.status, response.headers
            if response.content_type == "text/event-stream":
                await read_events(response, answer)
            else:
                answer.body = await response.json(content_type=None)
                answer.done = True
    except (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError, json.JSONDecodeError) as error:
        answer.error = f"{type(error).__name__}: {error}"
    return answer


def client_session():
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=120))


async def ask_all(url, bodies, headers=None):
    async with client_session() as client:
        return await asyncio.gather(*(ask(client, url, body, headers[i] if headers else {})
                                      for i, body in enumerate(bodies)))


def tokens_per_second(answers):
    """Of streams that ran together, from the first event of all to the last."""
    return sum(len(a.events) for a in answers) / (max(a.events[-1] for a in answers) - min(a.events[0] for a in answers))


def temporary():
    return tempfile.mkdtemp(prefix="reel-deploy-")
