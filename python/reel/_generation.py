"""Tokens as they are made: iterators over them, and what a generation is asked for."""
from __future__ import annotations

import secrets
import threading
from threading import get_ident
from types import TracebackType
from typing import (TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, Iterator, List, Mapping,
                    NamedTuple, Optional, Sequence, Tuple, Type, TypedDict, Union)

from ._errors import Cancelled, error_of
from ._feed import Feed
from ._handles import Handle, ModelCore
from ._library import NULL, Keeper, check, ffi, lib, optional_text, refuse, sized, wrong_state

if TYPE_CHECKING:
    from ._session import Session

MAX_TOP_LOGPROBS = int(lib.REEL_MAX_TOP_LOGPROBS)


class TopLogprob(NamedTuple):
    """An id that could have been drawn, and the natural log of its probability."""

    id: int
    logprob: float


class Token(NamedTuple):
    """One token of an answer.

    Attributes:
        id: its number in the vocabulary.
        text: the characters that are now certain, in whole; what may yet begin a stop string is held
            back and comes with a later token. Control tokens have none.
        logprob: natural log of its probability in the model's own distribution, before bias, penalties
            and temperature; None unless `logprobs` or `top_logprobs` asked for it.
        top: the most likely ids, best first; as many as `top_logprobs` asked for.
    """

    id: int
    text: str
    logprob: Optional[float] = None
    top: Tuple[TopLogprob, ...] = ()


class Usage(NamedTuple):
    """What a request took, in tokens."""

    prompt_tokens: int
    cached_tokens: int  #: of the prompt, those that a session still held
    completion_tokens: int


class GenerationOptions(TypedDict, total=False):
    """The keywords of everything that generates. What is None or absent is as the model's makers
    recommend (generation_config.json), or greedy where they say nothing."""

    max_tokens: Optional[int]  #: at least 1; None: until the context is full
    temperature: Optional[float]  #: 0: always the most likely token
    top_k: Optional[int]  #: 0: off
    top_p: Optional[float]  #: 0 or 1: off
    min_p: Optional[float]  #: 0: off
    repetition_penalty: Optional[float]  #: 0 or 1: off; over all ids of the session
    presence_penalty: Optional[float]  #: over the ids of this answer
    frequency_penalty: Optional[float]  #: over the ids of this answer
    seed: Optional[int]  #: None: another one each time
    bias: Optional[Mapping[int, float]]  #: added to the logits of these ids; -inf forbids one
    stop: Union[str, Sequence[str], None]  #: at most 16 strings that end the answer
    stop_ids: Optional[Sequence[int]]  #: instead of the model's own
    ignore_stop_ids: bool
    logprobs: bool
    top_logprobs: int  #: 0 to 20; implies logprobs
    #: "auto" (None), "off", "ngram", "mtp" (the model's draft layer), "draft" (its draft model) or "eagle3" (its
    #: draft head): the same text
    speculation: Optional[str]
    most_drafts: int  #: guesses that a pass checks at most, 1 to 7; 0: as many as it takes


_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
             "frequency_penalty", "seed")
_KNOWN = frozenset(GenerationOptions.__annotations__)
_SPECULATION: Dict[str, int] = {
    "auto": lib.REEL_SPECULATION_AUTO,
    "off": lib.REEL_SPECULATION_OFF,
    "ngram": lib.REEL_SPECULATION_NGRAM,
    "mtp": lib.REEL_SPECULATION_MTP,
    "draft": lib.REEL_SPECULATION_DRAFT,
    "eagle3": lib.REEL_SPECULATION_EAGLE3,
}


def speculation_kind(kind: Optional[str]) -> int:
    """The number of a kind of speculation; None is "auto"."""
    kind = kind or "auto"
    if kind not in _SPECULATION:
        raise refuse(f"speculation: {kind!r}; there are {', '.join(_SPECULATION)}")
    return _SPECULATION[kind]


_REASONS: Dict[int, str] = {
    lib.REEL_STOP_NONE: "running",
    lib.REEL_STOP_ID: "stop_id",
    lib.REEL_STOP_STRING: "stop_string",
    lib.REEL_STOP_MAX_TOKENS: "max_tokens",
    lib.REEL_STOP_CONTEXT: "context",
    lib.REEL_STOP_CALLBACK: "callback",
    lib.REEL_STOP_CANCELLED: "cancelled",
    lib.REEL_STOP_MEMORY: "memory",
}
_FINISH = {"stop_id": "stop", "stop_string": "stop", "max_tokens": "length", "context": "length",
           "memory": "length", "cancelled": "cancelled", "callback": "cancelled"}


class Request:
    """The C struct of a generation's options, and what it points to."""

    def __init__(self, core: ModelCore, options: Mapping[str, Any]) -> None:
        unknown = sorted(set(options) - _KNOWN)
        if unknown:
            raise TypeError(f"{unknown[0]}: no such option; there are {', '.join(sorted(_KNOWN))}")
        keeper = Keeper()
        self.keeper = keeper
        self.c = sized("reel_generation")
        self.c.sampling = keeper.keep(self._sampling(core, options))
        max_tokens = options.get("max_tokens")
        if max_tokens is not None:
            if max_tokens < 1:
                raise refuse(f"max_tokens: {max_tokens}; at least 1 is wanted, or None for as many as "
                             "the context holds")
            self.c.max_tokens = max_tokens
        stop = options.get("stop")
        self.stops: List[str] = [stop] if isinstance(stop, str) else list(stop or [])
        if self.stops:
            self.c.stop_strings = keeper.texts(self.stops, "stop")
            self.c.n_stop_strings = len(self.stops)
        stop_ids = options.get("stop_ids")
        if stop_ids is not None:
            ids = [int(i) for i in stop_ids]
            if ids:
                self.c.stop_ids = keeper.keep(ffi.new("int32_t[]", ids))
                self.c.n_stop_ids = len(ids)
            else:
                self.c.ignore_stop_ids = True
        if options.get("ignore_stop_ids"):
            self.c.ignore_stop_ids = True
        self.c.logprobs = bool(options.get("logprobs"))
        self.c.n_top_logprobs = options.get("top_logprobs") or 0
        self.c.speculation = speculation_kind(options.get("speculation"))
        self.c.most_drafts = options.get("most_drafts") or 0
        self.logprobs = bool(self.c.logprobs) or self.c.n_top_logprobs > 0

    def _sampling(self, core: ModelCore, options: Mapping[str, Any]) -> Any:
        made = sized("reel_sampling")
        err = ffi.new("struct reel_error *")
        user = object()
        pointer = core.enter(user)
        try:
            check(lib.reel_model_default_sampling(pointer, made, err), err)
        finally:
            core.leave(user)
        made.seed = secrets.randbits(32)
        for name in _SAMPLING:
            value = options.get(name)
            if value is not None:
                setattr(made, name, value)
        bias = options.get("bias")
        if bias:
            made.bias = self.keeper.keep(ffi.new("struct reel_logit_bias[]", len(bias)))
            made.n_bias = len(bias)
            for i, (token, value) in enumerate(bias.items()):
                made.bias[i].id, made.bias[i].bias = token, value
        return made


class Generation:
    """An answer as an iterator of `Token`, also with ``async for``.

    Nothing is evaluated before the first token is asked for. An iterator that is dropped, or left by
    ``break``, ends its generation; so do `close()`, ``with``, KeyboardInterrupt and asyncio's
    cancellation. Afterwards the session holds exactly the tokens that were delivered.
    """

    def __init__(self, request: Request, begin: Callable[["Generation"], "Session"],
                 end: Optional[Callable[["Session"], None]] = None,
                 begin_async: Optional[Callable[["Generation"], Any]] = None) -> None:
        self._request = request
        self._begin = begin
        self._begin_async = begin_async
        self._ends = [] if end is None else [end]  # called once, by whoever takes it
        self._starting = threading.Lock()
        self._session: Optional["Session"] = None
        self._handle: Optional[Handle] = None
        self._running = False
        self._done = False
        self._err = ffi.new("struct reel_error *")
        self._out = ffi.new("const struct reel_token **")
        self._logprobs = request.logprobs
        self._cancelled = False
        #: Why it ended: "running", "stop_id", "stop_string", "max_tokens", "context", "memory" or
        #: "cancelled".
        self.reason: str = "running"
        #: The stop string that ended it, or None.
        self.stop_string: Optional[str] = None
        #: Tokens delivered, prompt's tokens, and how many of those needed no evaluation.
        self.n_tokens = 0
        self.n_prompt = 0
        self.n_reused = 0
        #: Passes over the weights for these tokens, guesses that they checked, and how many of those
        #: were right; known at the end.
        self.n_passes = 0
        self.n_drafted = 0
        self.n_accepted = 0
        #: Why the draft model guessed no more, or None; the text went on without it. Known at the end.
        self.draft_problem: Optional[str] = None
        #: Milliseconds: reading the prompt, from then to the first token, and of all tokens.
        self.prompt_ms = 0.0
        self.first_token_ms = 0.0
        self.total_ms = 0.0

    # ---- what is known of it ----

    @property
    def finish_reason(self) -> Optional[str]:
        """ "stop", "length" or "cancelled", as OpenAI's clients know them; None while it runs."""
        return _FINISH.get(self.reason)

    @property
    def usage(self) -> Usage:
        return Usage(self.n_prompt, self.n_reused, self.n_tokens)

    # ---- iterating ----

    def __iter__(self) -> "Generation":
        return self

    def __next__(self) -> Token:
        handle = self._handle
        if not self._running or handle is None:
            handle = self._start()
        if not handle.lock.acquire(False):
            raise wrong_state("the session is in use by another thread")
        try:
            handle.owner = get_ident()
            if not self._running:
                raise StopIteration
            pointer = handle.pointer
            if pointer is None:
                self._stopped("cancelled")
                raise wrong_state("the session was closed")
            if self._cancelled:
                self._finish(pointer)
                self.reason = "cancelled"
                raise StopIteration
            out = self._out
            if lib.reel_generation_next(pointer, out, self._err):
                self._fail()
            token = out[0]
            if not token:
                self._finish(pointer)
                raise StopIteration
            self.n_tokens += 1
            n = token.text_bytes
            text = ffi.unpack(token.text, n).decode("utf-8", "replace") if n else ""
            if not self._logprobs:
                return Token(token.id, text)
            top = token.top
            return Token(token.id, text, token.logprob,
                         tuple([TopLogprob(top[i].id, top[i].logprob) for i in range(token.n_top)]))
        except StopIteration:
            raise
        except BaseException:
            if self._running and handle.pointer is not None:
                self._finish(handle.pointer)
            raise
        finally:
            handle.owner = 0
            handle.lock.release()
            if self._done:
                self._give_back()

    def _start(self) -> Handle:
        if not self._starting.acquire(False):
            raise wrong_state("another thread is starting this generation")
        try:
            return self._handle if self._running and self._handle is not None else self._start_once()
        finally:
            self._starting.release()

    def _start_once(self) -> Handle:
        if self._done:
            raise StopIteration
        if self._cancelled:
            self._stopped("cancelled")
            self._give_back()
            raise StopIteration
        try:
            session = self._begin(self)  # sets _session, so that cancel() reaches it
        except BaseException as error:
            self._stopped("cancelled")
            self._give_back()
            if self._cancelled and isinstance(error, Cancelled):
                raise StopIteration from None
            raise
        handle: Handle = session._handle
        try:
            with handle as pointer:
                handle.listener.caught, handle.listener.stopped = None, False
                status = lib.reel_generation_start(pointer, self._request.c, self._err)
                handle.listener.raise_caught()
                check(status, self._err)
                self._handle, self._running = handle, True
        except BaseException:
            self._stopped("cancelled")
            self._give_back()
            raise
        return handle

    def _fail(self) -> None:
        status = self._err.status
        text = ffi.string(self._err.text).decode("utf-8", "replace")
        handle = self._handle
        if handle is not None and handle.pointer is not None:
            self._finish(handle.pointer)
            handle.listener.raise_caught()
        raise error_of(status, text)

    def _finish(self, pointer: Any) -> None:
        """Ends the library's generation; the handle's lock is held."""
        result = sized("reel_generation_result")
        lib.reel_generation_finish(pointer, result, self._err)
        self._stopped(_REASONS.get(result.reason, "unknown"))
        if self.reason == "running":
            self.reason = "cancelled"
        self.n_tokens = result.n_tokens
        if result.stop_string >= 0:
            self.stop_string = self._request.stops[result.stop_string]
        self.first_token_ms, self.total_ms = result.first_token_ms, result.total_ms
        self.n_passes = result.n_passes
        self.n_drafted, self.n_accepted = result.n_drafted, result.n_accepted
        self.draft_problem = optional_text(result.draft_problem)

    def _stopped(self, reason: str) -> None:
        self._running, self._done = False, True
        self.reason = reason

    def _give_back(self) -> None:
        session, self._session, self._handle = self._session, None, None
        if session is None:
            return
        try:
            end = self._ends.pop()
        except IndexError:
            return
        end(session)

    def cancel(self) -> None:
        """Ends it within a token; from any thread. The iterator then stops, with reason "cancelled"."""
        self._cancelled = True
        session = self._session
        if session is not None:
            session.cancel()

    def close(self) -> None:
        """Ends it now, and frees its session. Not while another thread takes a token: see cancel()."""
        handle = self._handle
        if handle is not None and self._running:
            with handle as pointer:
                if self._running:
                    self._finish(pointer)
        if not self._done:
            self._stopped("cancelled")
        self._give_back()

    def __enter__(self) -> "Generation":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_running", False) and self._handle is not None:
            self._running = False
            self._handle.finish_dropped()
        if getattr(self, "_session", None) is not None:
            self._give_back()

    # ---- all of it ----

    def text(self) -> str:
        """Waits for the rest, and returns its text."""
        return "".join([token.text for token in self])

    def ids(self) -> List[int]:
        """Waits for the rest, and returns its ids; a stop id is among them."""
        return [token.id for token in self]

    async def atext(self) -> str:
        """As `text`, for asyncio."""
        return "".join([token.text async for token in self])

    # ---- asyncio ----

    def __aiter__(self) -> AsyncIterator[Token]:
        return Feed(self, self._prepare)

    async def _prepare(self) -> None:
        """Waits for a session without holding a thread."""
        if self._begin_async is not None and self._session is None and not self._done:
            await self._begin_async(self)

