"""What reel.ray_serve's gateway and router decide, without a cluster: replicas here say what they are told to."""
# packages: ray[serve] aiohttp cffi
import asyncio
import json

from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError
from starlette.requests import Request

from reel.ray_serve import Gateway, ReplicaGone, by_hash, prefix_key
from trials import client, equal, finish, trial

client("ray")
EVENTS = (200, [("Content-Type", "text/event-stream")])
JSON = (200, [("Content-Type", "application/json")])
FULL = (503, [("Content-Type", "application/json"), ("Retry-After", "1")])


class Stream:
    def __init__(self, said):
        self.said, self.cancelled = list(said), False

    def __aiter__(self):
        return self

    async def __anext__(self):
        if not self.said:
            raise StopAsyncIteration
        one = self.said.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    def cancel(self):
        self.cancelled = True


class Replicas:
    """Each request gets the next of these answers: lists of what comes, an exception where it breaks off."""

    def __init__(self, *answers):
        self.answers, self.asked, self.answer = list(answers), [], self

    def options(self, **_):
        return self

    def remote(self, method, path, headers, body, key, avoid):
        self.asked.append(avoid)
        self.stream = Stream(self.answers.pop(0))
        return self.stream


def ask(replicas, path="/v1/chat/completions", body=b"{}", method="POST", headers=()):
    """The code, the headers and the body that the gateway answers."""
    async def go():
        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}
        scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": list(headers), "scheme": "http",
                 "server": ("localhost", 80), "root_path": ""}
        response = await Gateway(replicas)(Request(scope, receive))
        if hasattr(response, "body_iterator"):
            return response.status_code, dict(response.raw_headers), b"".join([piece async for piece in response.body_iterator])
        return response.status_code, dict(response.raw_headers), response.body
    return asyncio.run(go())


@trial("what is lost before the first byte is asked of another replica")
def _():
    for lost in ([ReplicaGone("a", "it died")], [EVENTS, ReplicaGone("a", "it died")], [RayActorError()], [EVENTS, RayActorError()]):
        replicas = Replicas(lost, [EVENTS, b"data: 1\n\n", b"data: [DONE]\n\n"])
        code, headers, body = ask(replicas)
        equal((code, body), (200, b"data: 1\n\ndata: [DONE]\n\n"))
        equal(headers[b"content-type"], b"text/event-stream")
        equal(replicas.asked, [(), ("a",) if isinstance(lost[-1], ReplicaGone) else ()])


@trial("what had begun ends in an error event of its dialect")
def _():
    for lost in (ReplicaGone("a", "it died"), RayActorError()):
        code, _, body = ask(Replicas([EVENTS, b"data: 1", lost]))
        first, error = body.split(b"\n\ndata: ")
        equal((code, first), (200, b"data: 1"))
        assert "gone" in json.loads(error)["error"]["message"]
        _, _, body = ask(Replicas([EVENTS, b"data: 1", lost]), "/v1/messages")
        event, data = body.split(b"\n\n", 1)[1].strip().split(b"\n")
        equal(event, b"event: error")
        equal(json.loads(data[6:])["type"], "error")


@trial("a whole answer that breaks off is no whole answer")
def _():
    try:
        ask(Replicas([JSON, b"{", ReplicaGone("a", "it died")]))
    except ReplicaGone:
        return
    raise AssertionError("it was answered")


@trial("a 503 is tried elsewhere, and told with Retry-After where all say so")
def _():
    equal(ask(Replicas([FULL, b"{}"], [JSON, b"{}"]))[0], 200)
    code, headers, body = ask(Replicas(*[[FULL, b"{}"]] * 9))
    equal((code, headers[b"retry-after"]), (503, b"1"))
    assert json.loads(body)["error"]["message"]
    code, headers, _ = ask(Replicas([BackPressureError(num_queued_requests=3, max_queued_requests=2)]))
    equal((code, headers[b"retry-after"]), (503, b"1"))


@trial("a stream that ends, or whose client leaves, is cancelled")
def _():
    replicas = Replicas([EVENTS, b"data: 1\n\n"])
    ask(replicas)
    assert replicas.stream.cancelled


@trial("/metrics and WebSockets are nobody's")
def _():
    equal(ask(Replicas(), "/metrics", method="GET")[0], 404)
    equal(ask(Replicas(), "/v1/realtime", method="GET", headers=[(b"upgrade", b"websocket")])[0], 426)


@trial("turns of a conversation have one key, other conversations others")
def _():
    def key(headers=None, **body):
        return prefix_key(headers or {"content-type": "application/json"}, json.dumps(body).encode())
    system, first = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}
    later = [{"role": "assistant", "content": "Hi"}, {"role": "user", "content": "And?"}]
    equal(key(model="m", messages=[system, first]), key(model="m", messages=[system, first, *later]))
    others = {key(model="m", messages=[system, first]), key(model="n", messages=[system, first]), key(model="m", messages=[first]),
              key(model="m", messages=[system, later[1]]), key(model="m", prompt="Hello"), key(model="m", prompt=[1, 2]),
              key(model="m", system="s", messages=[first]), key({"x-session-id": "1"}, messages=[first])}
    equal(len(others), 8)
    equal(key({"x-session-id": "1"}, messages=[first]), key({"x-session-id": "1"}, prompt="x"))
    for nothing in (b"", b"no", b"[]", b"1", b'{"messages": 1}', b'{"messages": []}'):
        equal(prefix_key({"content-type": "application/json"}, nothing), "")


@trial("a replica that goes, or comes, moves its own keys alone")
def _():
    keys, ids = [f"k{i}" for i in range(3000)], ["a", "b", "c", "d"]
    before = {k: by_hash(k, ids)[0] for k in keys}
    after = {k: by_hash(k, ids[:3])[0] for k in keys}
    equal([k for k in keys if before[k] != after[k] and before[k] != "d"], [])
    shares = [sum(v == i for v in before.values()) for i in ids]
    assert min(shares) > 600, shares
    return f"3,000 keys on four replicas: {shares}"


finish()
