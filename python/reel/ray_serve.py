"""Ray Serve: one `reel serve` for each GPU, as many as a cluster has, behind one address.

    pip install "ray[serve]"
    serve run reel.ray_serve:app models=Qwen/Qwen3-0.6B replicas=4

or from Python

    from ray import serve
    from reel.ray_serve import app
    serve.run(app({"models": ["Qwen/Qwen3-0.6B"], "replicas": 4}))

Two deployments. A Replica holds a child process `reel serve` on a free port of loopback, on the GPU that Ray gave
it; the child dies with it, and it with the child. A Gateway takes requests from Ray's HTTP proxy, reads them, and
passes them to a replica: one that holds the prompt's beginning if it can (PrefixRouter). What a replica loses before
the first byte of its answer has gone out is asked of another one. What had begun ends in an error event.

Everything that `reel serve` answers passes, but for WebSockets (/v1/realtime) and /metrics, which tells about one process
alone. docs/DEPLOY.md says what was measured.
"""
from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import random
import re
import shlex
import shutil
import subprocess
import threading
import time
from typing import Any, AsyncIterator, Dict, List, Optional, Sequence, Tuple, Union

try:
    import aiohttp
    from pydantic import BaseModel, Field
    from ray import serve
    from ray.exceptions import RayActorError
    from ray.serve.config import RequestRouterConfig
    from ray.serve.exceptions import BackPressureError
    from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
except ImportError as missing:
    raise ImportError(f"reel.ray_serve needs Ray Serve ({missing}): pip install 'ray[serve]'") from missing

logger = logging.getLogger("ray.serve")

LISTENING = re.compile(rb"listening at http://127\.0\.0\.1:(\d+)")
# Of a connection, and not of what travels over it (RFC 9110, 7.6.1).
HOP = {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
       "upgrade", "content-length"}
KEY_CHARACTERS = 256         # of a prompt that is one text: how much of it says who belongs together
MOST_PARSED = 4 << 20        # bytes of a body that is read for a key
RETRY_S = 60                 # how long a request that nothing of has come back is asked again
BEGUN_MESSAGE = "the replica that made this answer is gone; what came before is not whole"


class Settings(BaseModel):
    """What `app` takes: arguments of `serve run`, or of an application's config file."""

    model_config = {"extra": "forbid"}

    models: Union[str, List[str]] = Field(description="[NAME=]MODEL of `reel serve`; one, a list, or with commas between")
    options: Union[str, List[str]] = Field([], description="more words for `reel serve`, a list or a line, such as --ctx 8192. Keys must be among them "
                               "(--api-key-file FILE, or --config FILE with that), or --insecure, which lets everybody in")
    program: Optional[str] = Field(None, description="the program reel; without it the package's, or that of PATH")
    environment: Dict[str, str] = Field({}, description="more environment variables for it")
    replicas: int = Field(1, ge=1, description="how many; with autoscaling where it begins")
    autoscaling: Optional[Dict[str, Any]] = Field(None, description="Ray's AutoscalingConfig: min_replicas, max_replicas, ...")
    gpus: int = Field(1, ge=0, le=1, description="GPUs of a replica: one, or none for the CPU")
    cpus: float = Field(1, ge=0, description="CPUs that Ray sets aside for a replica")
    sessions: int = Field(4, ge=1, le=256, description="conversations a replica holds, and requests that it works at")
    queue: int = Field(256, ge=0, description="requests that wait in a gateway for a replica; more are answered with 503")
    gateways: int = Field(1, ge=1, description="processes that pass requests on")
    start_s: float = Field(1800, gt=0, description="seconds until a replica's models must be loaded")
    drain_s: float = Field(75, gt=0, description="seconds that a replica's running requests have when it is to end")


# ---- a replica ----


class ReplicaGone(Exception):
    """A replica's child process has died or does not answer. args: the replica's id, what happened."""


class Child:
    """A process `reel serve` on a free port of loopback, which does not outlive this process."""

    def __init__(self, command: Sequence[str], environment: Dict[str, str], start_s: float):
        self.port = 0
        self.error = ""
        self.process: Optional[subprocess.Popen[bytes]] = None
        self._listens = threading.Event()
        self._last = b""
        # The system ends the child when the thread that made it ends, so that is one which lives as long as the process.
        threading.Thread(target=self._live, args=(list(command), environment), daemon=True, name="reel-child").start()
        if not self._listens.wait(min(60, start_s)) or not self.port:
            self.end(0)
            raise RuntimeError(f"{command[0]} does not listen: {self.why()}")

    def _live(self, command: List[str], environment: Dict[str, str]) -> None:
        tie = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        try:
            self.process = subprocess.Popen([*tie, *command], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                            env={**os.environ, **environment})
        except OSError as error:
            self.error = str(error)
            self._listens.set()
            return
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._last = line.strip() or self._last
            logger.info("%s", line.decode("utf-8", "replace").rstrip())
            found = LISTENING.search(line)
            if found:
                self.port = int(found[1])
                self._listens.set()
        code = self.process.wait()
        self.error = f"reel ended with status {code}: {self._last.decode('utf-8', 'replace')}"
        self._listens.set()

    def why(self) -> str:
        return self.error or self._last.decode("utf-8", "replace") or "it said nothing"

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def end(self, drain_s: float) -> None:
        """SIGTERM lets running requests end."""
        if self.process is None or not self.alive():
            return
        self.process.terminate()
        try:
            self.process.wait(drain_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Replica:
    """One `reel serve`."""

    # Ray awaits it.
    async def __init__(self, command: Sequence[str], environment: Dict[str, str],  # type: ignore[misc]
                       start_s: float, drain_s: float) -> None:
        self.id = serve.get_replica_context().replica_id.unique_id
        # The child compares the client's Host with a page's Origin and, where it has no keys, with this machine's names.
        self.dropped = {"host"} if "--insecure" in command else set()
        self.drain_s = drain_s
        self.child = await asyncio.to_thread(Child, command, environment, start_s)
        self.client = aiohttp.ClientSession(
            f"http://127.0.0.1:{self.child.port}", auto_decompress=False,
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5))
        until = time.monotonic() + start_s
        while not await self._ready():
            if not self.child.alive():
                raise RuntimeError(self.child.why())
            if time.monotonic() > until:
                self.child.end(0)
                raise RuntimeError(f"the models were not loaded within {start_s:g} s: {self.child.why()}")
            await asyncio.sleep(0.1)

    async def _ready(self) -> bool:
        try:
            async with self.client.get("/health?ready") as answer:
                return bool(answer.status == 200)
        except (aiohttp.ClientError, OSError):
            return False

    async def answer(self, method: str, path: str, headers: List[Tuple[str, str]], body: bytes, *,
                     key: str = "", avoid: Sequence[str] = ()) -> AsyncIterator[Any]:
        """First (the code, the headers), then the body's bytes as they come. key and avoid are the router's."""
        headers = [(n, v) for n, v in headers if n.lower() not in self.dropped]
        try:
            async with self.client.request(method, path, headers=headers, data=body, allow_redirects=False) as answer:
                yield answer.status, [(n, v) for n, v in answer.headers.items() if n.lower() not in HOP]
                async for piece in answer.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, OSError) as error:
            raise ReplicaGone(self.id, f"{type(error).__name__}: {error}") from None

    async def check_health(self) -> None:
        """Ray ends a replica that fails this, and starts another."""
        if not self.child.alive():
            raise RuntimeError(self.child.why())
        try:
            async with self.client.get("/health", timeout=aiohttp.ClientTimeout(total=5)) as answer:
                if answer.status != 200:
                    raise RuntimeError(f"/health answers {answer.status}")
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
            raise RuntimeError(f"/health does not answer: {type(error).__name__}: {error}") from None

    def __del__(self) -> None:
        child = getattr(self, "child", None)
        if child is not None:
            child.end(self.drain_s)


# ---- who gets a request ----


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def prefix_key(headers: Dict[str, str], body: bytes) -> str:
    """What requests have in common whose prompts begin alike: the client's X-Session-Id; or of a conversation all up to
    the first message of a user, which stays the same in all its turns; or the beginning of a prompt. "" where
    there is none of these."""
    session = headers.get("x-session-id")
    if session:
        return "s" + session
    if "json" not in headers.get("content-type", "json") or len(body) > MOST_PARSED:
        return ""
    try:
        said = json.loads(body)
        model = _text(said.get("model", ""))
        messages = said.get("messages", said.get("input"))
        if isinstance(messages, list) and messages and all(isinstance(m, dict) for m in messages):
            parts = [model, _text(said.get("system", said.get("instructions", "")))]
            for message in messages:
                parts.append(_text([message.get("role"), message.get("content")]))
                if message.get("role") == "user":
                    break
            return "m" + "\0".join(parts)
        prompt = said.get("prompt", messages)
        if isinstance(prompt, str):
            return "p" + model + "\0" + prompt[:KEY_CHARACTERS]
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
            return "i" + model + "\0" + _text(prompt[:KEY_CHARACTERS // 4])
    except (ValueError, AttributeError):
        pass  # the replica says what is wrong with it
    return ""


def by_hash(key: str, ids: Sequence[str]) -> List[str]:
    """Rendezvous hashing: the order in which a key wants these. One that comes or goes moves its own keys alone."""
    return sorted(ids, key=lambda i: hashlib.blake2b(f"{i}\0{key}".encode(), digest_size=8).digest())


class PrefixRouter(RequestRouter):
    """The replica that a request's key wants, unless it has far more to do than the others; then the next one that the key
    wants. Without a key, the one with the fewest requests. Replicas in `avoid` come last. Nothing is remembered, so
    all gateways agree without asking each other. (Ray's own prefix-aware router is a part of ray.llm, and keeps a
    tree of prompts in an actor that each request asks.)"""

    def initialize_state(self, slack: float = 1.25, extra: int = 2) -> None:
        """A replica has far more to do with more than `slack` times the mean and `extra` requests."""
        self.slack, self.extra = slack, extra

    async def choose_replicas(self, candidate_replicas: List[RunningReplica],
                              pending_request: Optional[PendingRequest] = None) -> List[List[RunningReplica]]:
        key, avoid = "", ()
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # all are looked at: a further look waits
            key, avoid = pending_request.kwargs.get("key", ""), pending_request.kwargs.get("avoid", ())
        good = [r for r in candidate_replicas if r.replica_id.unique_id not in avoid]
        bad = [r for r in candidate_replicas if r.replica_id.unique_id in avoid]
        if key and len(good) > 1:
            ranks = [[r] for r in self._by_key(key, good)]
        else:
            ranks = [random.sample(good, min(len(good), 8))] if good else []
        return ranks + ([bad] if bad else [])

    def _by_key(self, key: str, replicas: List[RunningReplica]) -> List[RunningReplica]:
        of_id = {r.replica_id.unique_id: r for r in replicas}
        wanted = [of_id[i] for i in by_hash(key, list(of_id))]
        load = {r.replica_id: self.replica_queue_len_cache.get(r.replica_id) or 0 for r in replicas}
        most = self.slack * sum(load.values()) / len(load) + self.extra
        return [r for r in wanted if load[r.replica_id] <= most] + [r for r in wanted if load[r.replica_id] > most]


# ---- the gateway ----


def _error(code: int, message: str, what: str = "server_error") -> Dict[str, Any]:
    return {"error": {"message": message, "type": what, "param": None, "code": code}}


def _error_event(path: str, message: str) -> bytes:
    if path.endswith("/messages"):
        said = {"type": "error", "error": {"type": "api_error", "message": message}}
        return b"\n\nevent: error\ndata: " + json.dumps(said).encode() + b"\n\n"
    return b"\n\ndata: " + json.dumps(_error(502, message)).encode() + b"\n\n"


def _refusal(message: str) -> Response:
    return JSONResponse(_error(503, message), 503, {"Retry-After": "1"})


class Gateway:
    """Passes requests on, and asks again what a replica lost before anything of its answer went out."""

    def __init__(self, replicas: Any):
        self.replicas = replicas.options(stream=True)

    async def __call__(self, request: Request) -> Response:
        path = request.url.path + ("?" + request.url.query if request.url.query else "")
        if request.url.path == "/metrics":
            return JSONResponse(_error(404, "each replica has figures of its own; Ray's are at its metrics port"), 404)
        if "upgrade" in request.headers:
            return JSONResponse(_error(426, "WebSockets do not pass Ray Serve", "invalid_request_error"), 426)
        body = await request.body()
        headers = [(n, v) for n, v in request.headers.items() if n not in HOP]
        key = prefix_key(dict(request.headers), body) if request.method == "POST" else ""
        avoid: List[str] = []
        until, wait_s = 0.0, 0.02
        while True:
            stream = self.replicas.answer.remote(request.method, path, headers, body, key=key, avoid=tuple(avoid))
            try:
                code, answered = await stream.__anext__()
                first = await self._piece(stream)
                if code != 503:
                    return self._pass_on(request.url.path, code, answered, first, stream)
                lost = "the replicas are full"
            except ReplicaGone as gone:
                avoid.append(gone.args[0])
                lost = "a replica is gone"
            except RayActorError:
                lost = "a replica is gone"
            except BackPressureError:
                return _refusal("too many requests wait for a replica")
            until = until or time.monotonic() + RETRY_S
            if lost == "the replicas are full" and wait_s > 0.1 or time.monotonic() > until:
                return _refusal(lost)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, 1)

    @staticmethod
    async def _piece(stream: Any) -> bytes:
        try:
            piece: bytes = await stream.__anext__()
        except StopAsyncIteration:
            return b""
        return piece

    def _pass_on(self, path: str, code: int, headers: List[Tuple[str, str]], first: bytes, stream: Any) -> Response:
        events = any(n.lower() == "content-type" and v.startswith("text/event-stream") for n, v in headers)

        async def rest() -> AsyncIterator[bytes]:
            try:
                yield first
                async for piece in stream:
                    yield piece
            except (ReplicaGone, RayActorError) as gone:
                logger.warning("an answer to %s broke off: %s", path, gone)
                if not events:
                    raise
                yield _error_event(path, BEGUN_MESSAGE)
            finally:
                stream.cancel()  # of a client that left; of an answer that is whole it is nothing

        response = StreamingResponse(rest(), code)
        response.raw_headers = [(n.lower().encode("latin-1"), v.encode("latin-1")) for n, v in headers]
        return response


# ---- both together ----


def _command(settings: Settings) -> List[str]:
    if settings.program:
        words = [settings.program]
    else:
        from ._names import command
        words = list(command())
    models = settings.models.split(",") if isinstance(settings.models, str) else settings.models
    if not models or not all(models):
        raise ValueError(f"models is {settings.models!r}; it must name at least one model")
    options = shlex.split(settings.options) if isinstance(settings.options, str) else settings.options
    given = {word.split("=")[0] for word in options}
    for word in ("--port", "-p", "--host", "--bind", "--listen", "--tls-cert", "--tls-key"):
        if word in given:
            raise ValueError(f"options has {word}: where a replica listens is Ray's to say")
    # A replica listens at loopback and so asks for no key by itself, but Ray's port is open to others.
    if not given & {"--api-key", "--api-key-file", "--config", "--insecure"}:
        raise ValueError("options has no keys: --api-key-file FILE names who may ask, --insecure lets everybody in who reaches Ray")
    device = [] if "--device" in given else ["--device", "gpu" if settings.gpus else "cpu"]
    return [*words, "serve", *models, "--host", "127.0.0.1", "--port", "0", "--log", "none", "--sessions", str(settings.sessions),
            *device, *options]


def app(settings: Settings) -> serve.Application:
    """The application, for `serve run reel.ray_serve:app NAME=VALUE...`, a config file, or serve.run."""
    if isinstance(settings, dict):
        settings = Settings(**settings)
    how: Dict[str, Any] = {"num_replicas": settings.replicas}
    if settings.autoscaling:
        how = {"autoscaling_config": {"initial_replicas": settings.replicas, "target_ongoing_requests": settings.sessions,
                                      **settings.autoscaling}}
    n_models = len(settings.models.split(",")) if isinstance(settings.models, str) else len(settings.models)
    replicas = serve.deployment(
        Replica, name="Replica", **how,
        max_ongoing_requests=settings.sessions * n_models,
        max_queued_requests=settings.queue,
        ray_actor_options={"num_gpus": settings.gpus, "num_cpus": settings.cpus},
        health_check_period_s=1, health_check_timeout_s=10,
        graceful_shutdown_wait_loop_s=0.2, graceful_shutdown_timeout_s=settings.drain_s,
        request_router_config=RequestRouterConfig(request_router_class=PrefixRouter))
    gateway = serve.deployment(
        Gateway, name="Gateway", num_replicas=settings.gateways,
        max_ongoing_requests=settings.queue + 4096, ray_actor_options={"num_cpus": 0},
        graceful_shutdown_wait_loop_s=0.2, graceful_shutdown_timeout_s=settings.drain_s)
    return gateway.bind(replicas.bind(_command(settings), settings.environment, settings.start_s, settings.drain_s))
