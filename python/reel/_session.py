"""Sessions: timelines of tokens."""
from __future__ import annotations

import weakref
from types import TracebackType
from typing import (TYPE_CHECKING, Any, Callable, Optional, Sequence, Type, Union, cast)

import numpy as np
import numpy.typing as npt

from ._generation import Generation, GenerationOptions, Request, speculation_kind
from ._handles import Handle, ModelCore, close_at_exit
from ._library import Listener, call, check, ffi, lib, on_progress, refuse, sized

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._model import ModelInfo

Ids = Union[Sequence[int], "npt.NDArray[Any]"]
Floats = "npt.NDArray[np.float32]"
Progress = Callable[[str, int, int], Optional[bool]]

_OUTPUTS = {
    None: lib.REEL_OUTPUT_NONE,
    "last_logits": lib.REEL_OUTPUT_LAST_LOGITS,
    "all_logits": lib.REEL_OUTPUT_ALL_LOGITS,
    "last_hidden": lib.REEL_OUTPUT_LAST_HIDDEN,
    "all_hidden": lib.REEL_OUTPUT_ALL_HIDDEN,
}


def id_array(ids: Ids, what: str = "ids") -> "npt.NDArray[np.int32]":
    """int32 [n] of any sequence of whole numbers; what does not fit is refused."""
    array = np.asarray(ids)
    if array.size == 0:
        array = array.astype(np.int32)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise refuse(f"{what}: a list of token ids is wanted, not {array.dtype} {list(array.shape)}")
    if array.size and (int(array.min()) < -(2**31) or int(array.max()) >= 2**31):
        raise refuse(f"{what}: an id is outside 32 bits")
    return np.ascontiguousarray(array, np.int32)


def ids_pointer(array: "npt.NDArray[np.int32]") -> Any:
    return ffi.from_buffer("int32_t[]", array)


def floats_pointer(array: "npt.NDArray[np.float32]") -> Any:
    return ffi.from_buffer("float[]", array.reshape(-1), require_writable=array.flags.writeable)


class Session:
    """One timeline of tokens with its KV cache; made by `Model.session`.

    One thread at a time: a call while another thread is in one raises `StateError`, except `cancel()`.
    Close it with ``with`` or `close()`; otherwise it goes when nobody refers to it any more.
    """

    def __init__(self, core: ModelCore, info: "ModelInfo", max_context: int = 0,
                 progress: Optional[Progress] = None, speculation: Optional[str] = None,
                 draft: Optional[ModelCore] = None) -> None:
        self._core = core
        #: What its model is.
        self.info = info
        listener = Listener()
        listener.progress = progress
        handle = Handle("session", core, lib.reel_session_close, listener, draft)
        options = sized("reel_session_options")
        options.max_context = max_context
        options.speculation = speculation_kind(speculation)
        # Also without a function of the caller's: in it the interpreter sees Ctrl-C.
        options.progress, options.progress_user = on_progress, listener.handle
        out = ffi.new("struct reel_session **")
        pointer, options.draft_model = handle.enter()
        try:
            call(lib.reel_session_open, out, pointer, options)
        except BaseException:
            handle.leave()
            raise
        handle.pointer = out[0]
        self._handle = handle
        self._finalizer = weakref.finalize(self, close_at_exit, handle)
        core.children.add(self)

    # ---- what it holds ----

    def __len__(self) -> int:
        """Tokens held."""
        with self._handle as pointer:
            return int(lib.reel_session_length(pointer))

    def __bool__(self) -> bool:
        return True

    @property
    def max_context(self) -> int:
        """Tokens it can hold."""
        with self._handle as pointer:
            return int(lib.reel_session_max_context(pointer))

    @property
    def ids(self) -> "npt.NDArray[np.int32]":
        """int32 [len(session)], a copy; -1 where a position was given as an embedding."""
        with self._handle as pointer:
            n = lib.reel_session_length(pointer)
            if n == 0:
                return np.empty(0, np.int32)
            held = ffi.buffer(lib.reel_session_ids(pointer), n * 4)
            return np.frombuffer(bytes(held), np.int32)

    @property
    def closed(self) -> bool:
        return self._handle.pointer is None

    # ---- evaluating ----

    def sync(self, ids: Ids) -> int:
        """Makes the session hold exactly these ids: keeps the longest common prefix, evaluates the rest.

        Returns how many positions needed no evaluation. After a failure the session holds a prefix.
        """
        array = id_array(ids)
        reused = ffi.new("int *")
        self._run(lib.reel_session_sync, ids_pointer(array), len(array), reused)
        return int(reused[0])

    def eval(self, ids: Optional[Ids] = None, output: Optional[str] = None, *,
             embeddings: "Optional[npt.ArrayLike]" = None) -> "Optional[npt.NDArray[np.float32]]":
        """Appends positions and evaluates them.

        Args:
            ids: [n] token ids, or None with `embeddings`.
            output: what to return, float32: ``"last_logits"`` [vocab], ``"all_logits"`` [n, vocab],
                ``"last_hidden"`` [hidden] or ``"all_hidden"`` [n, hidden] after the final norm; or None.
            embeddings: float32 [n, hidden] instead of ids.
        """
        if output not in _OUTPUTS:
            names = ", ".join(str(name) for name in _OUTPUTS if name)
            raise refuse(f"output: {output!r}; there are {names} and None")
        info = self.info
        request = sized("reel_eval")
        if (ids is None) == (embeddings is None):
            raise refuse("eval: ids or embeddings are wanted, one of them")
        if ids is not None:
            array = id_array(ids)
            given = request.ids = ids_pointer(array)
            n = len(array)
        else:
            vectors = np.ascontiguousarray(cast(Any, embeddings), np.float32)
            if vectors.ndim != 2 or vectors.shape[1] != info.hidden:
                raise refuse(f"embeddings: float32 [n, {info.hidden}] is wanted, not "
                             f"{list(vectors.shape)}")
            given = request.embeddings = floats_pointer(vectors)
            n = len(vectors)
        request.n = n
        request.output = _OUTPUTS[output]
        out: "Optional[npt.NDArray[np.float32]]" = None
        if output is not None:
            width = info.vocab if "logits" in output else info.hidden
            out = np.empty((n, width) if output.startswith("all") else (width,), np.float32)
            room = floats_pointer(out)
            request.out, request.out_floats = room, out.size
        self._run(lib.reel_session_eval, request)
        del given
        return out

    def truncate(self, n: int) -> None:
        """Keeps the first n tokens."""
        self._run(lib.reel_session_truncate, n)

    def copy_from(self, other: "Session") -> None:
        """Makes this session hold what `other`, of the same model, holds."""
        if other is self:
            return
        if not isinstance(other, Session) or other._core is not self._core:
            raise refuse("copy_from: both sessions have to be of one model")
        with other._handle as source:
            self._run(lib.reel_session_copy, source)

    def copy(self) -> "Session":
        """A new session that holds what this one holds."""
        made = Session(self._core, self.info, self.max_context)
        try:
            made.copy_from(self)
        except BaseException:
            made.close()
            raise
        return made

    def snapshot(self) -> bytes:
        """What it holds as bytes, for `restore` on a session of the same model."""
        err = ffi.new("struct reel_error *")
        with self._handle as pointer:
            n = int(lib.reel_session_snapshot_bytes(pointer))
            out = bytearray(n)
            check(lib.reel_session_snapshot(pointer, ffi.from_buffer(out), n, err), err)
        return bytes(out)

    def restore(self, snapshot: Union[bytes, bytearray, memoryview]) -> None:
        """Makes it hold what a snapshot held. On failure the session is empty."""
        data = ffi.from_buffer(snapshot)
        self._run(lib.reel_session_restore, data, len(data))

    # ---- generating ----

    def generate(self, **options: "Unpack[GenerationOptions]") -> Generation:
        """Continues the timeline, token by token, from the first ``next`` on.

        The options are those of `GenerationOptions`.
        """
        return Generation(Request(self._core, options), self._begin)

    def _begin(self, generation: Generation) -> "Session":
        generation._session = self
        generation.n_prompt = generation.n_reused = len(self)
        return self

    def cancel(self) -> None:
        """Ends what runs on it soon, from any thread: a generation stops with reason "cancelled", other
        calls raise `Cancelled`. Does nothing when nothing runs."""
        self._handle.cancel()

    # ---- closing ----

    def _run(self, function: Any, *args: Any) -> None:
        """A call that may take long and report progress."""
        err = ffi.new("struct reel_error *")
        handle = self._handle
        with handle as pointer:
            listener = handle.listener
            listener.caught, listener.stopped = None, False
            status = function(pointer, *args, err)
            listener.raise_caught()
            check(status, err)

    def close(self) -> None:
        """Closes it; what another thread has running on it is cancelled first."""
        self._handle.close(self._finalizer, cancel=True)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<reel.Session of {self.info.name}{', closed' if self.closed else ''}>"
