"""Who owns what of the library, and who may use it when.

A model of the library has to outlive its sessions, transcribers and readers, and each of these is one
thread's at a time. Python promises neither: an interpreter that ends, or a collector that finds a
cycle, drops objects in any order, and any thread may hold any of them. So:

- A `ModelCore` is closed when that was asked for, or nobody refers to it any more, and nothing that
  was made of it is left.
- A `Handle` holds what one thread uses at a time. Using it twice at once raises StateError.

The collector may run finalizers in the midst of any line of this file, in the same thread. What
finalizers call therefore waits for no lock that its own thread may hold: `closing` can be taken twice.
"""
from __future__ import annotations

import threading
import weakref
from types import TracebackType
from typing import Any, Optional, Set, Tuple, Type

from ._library import NULL as _NULL
from ._library import Listener, ffi, lib, wrong_state


class ModelCore:
    """The library's model. `users` are tokens of those that need it: handles, and calls under way."""

    def __init__(self, pointer: Any, kept: Any, draft: Optional["ModelCore"] = None) -> None:
        self.pointer = pointer  # closes the model when it is released or collected
        self.kept = kept
        self.draft = draft  # the model that guesses for this one, which stays as long as this one
        self.stay: Optional[object] = None  # this one's token among the draft model's users
        self.end_stay: Optional["weakref.finalize[Any, Any]"] = None
        if draft is not None:
            self.stay = object()
            draft.enter(self.stay, "draft model")
            self.end_stay = weakref.finalize(self, draft.leave, self.stay)
            self.end_stay.atexit = False
        self.users: Set[object] = set()
        self.children: "weakref.WeakSet[Any]" = weakref.WeakSet()  # what close() closes first
        self.closed = False

    def enter(self, user: object, what: str = "model", stay: Optional[object] = None) -> Any:
        """A closed model is entered only beside the user `stay`, for whom it is still there. `what`
        names it in messages."""
        self.users.add(user)
        if self.closed and stay not in self.users:
            self.leave(user)
            raise wrong_state(f"the {what} is closed")
        return self.pointer

    def leave(self, user: object) -> None:
        self.users.discard(user)
        self.release_unused()

    def release_unused(self) -> None:
        if self.closed and not self.users:
            pointer, self.pointer = self.pointer, None
            if pointer is not None:
                ffi.release(pointer)
            if self.end_stay is not None:
                self.end_stay()

    def close(self) -> None:
        self.closed = True
        self.release_unused()


class Using:
    """`with Using(core) as pointer`: the model stays until the call has returned."""

    __slots__ = ("core",)

    def __init__(self, core: ModelCore) -> None:
        self.core = core

    def __enter__(self) -> Any:
        return self.core.enter(self)

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.core.leave(self)


class Handle:
    """A pointer of the library that one thread uses at a time.

    ``with handle as pointer:`` is a use; `what` names it in messages.
    """

    __slots__ = ("what", "pointer", "lock", "closing", "owner", "listener", "unfinished", "core",
                 "draft", "closer", "__weakref__")

    def __init__(self, what: str, core: ModelCore, closer: Any, listener: Listener,
                 draft: Optional[ModelCore] = None) -> None:
        self.what = what
        self.core = core
        self.draft = draft  # the model that guesses for it, which has to stay as well
        self.closer = closer
        self.listener = listener
        self.pointer: Any = None
        self.lock = threading.Lock()
        self.closing = threading.RLock()  # held by cancel, and while the pointer goes
        self.owner = 0  # the thread that uses it
        self.unfinished = False  # a generation was dropped while the handle was in use

    def begin(self) -> Any:
        if not self.lock.acquire(False):
            if self.owner == threading.get_ident():
                raise wrong_state(f"the {self.what} is in use: this was called from its callback")
            raise wrong_state(f"the {self.what} is in use by another thread")
        pointer = self.pointer
        if pointer is None:
            self.lock.release()
            raise wrong_state(f"the {self.what} is closed")
        self.owner = threading.get_ident()
        if self.unfinished:
            self.unfinished = False
            lib.reel_generation_finish(pointer, _NULL, _NULL)
        return pointer

    def end(self) -> None:
        self.owner = 0
        self.lock.release()

    def __enter__(self) -> Any:
        return self.begin()

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.end()

    def cancel(self) -> None:
        with self.closing:
            pointer = self.pointer
            if pointer is not None:
                lib.reel_session_cancel(pointer)

    def finish_dropped(self) -> None:
        """Ends the generation of an iterator that nobody refers to any more. Waits for nobody."""
        if self.lock.acquire(False):
            try:
                if self.pointer is not None:
                    lib.reel_generation_finish(self.pointer, _NULL, _NULL)
            finally:
                self.lock.release()
        else:
            self.unfinished = True

    def close(self, finalizer: "weakref.finalize[Any, Any]", cancel: bool) -> None:
        """Ends what another thread has running on it, and closes it."""
        if self.owner == threading.get_ident():
            raise wrong_state(f"the {self.what} cannot be closed from its own callback")
        nobody = 0
        while not self.lock.acquire(timeout=0.02):
            # Ctrl-C between two steps of the interpreter may have left the lock taken, and no owner.
            nobody = nobody + 1 if self.owner == 0 else 0
            if nobody > 100:
                break
            if cancel:
                self.cancel()
            else:
                self.listener.stopped = True
        try:
            with self.closing:
                finalizer()
        finally:
            self.lock.release()

    def release(self) -> None:
        """What a finalizer calls: nobody else has the handle, or its lock is held."""
        pointer, self.pointer = self.pointer, None
        if pointer is not None:
            self.closer(pointer)
        self.leave()

    def enter(self) -> Tuple[Any, Any]:
        """The models stay until `leave`: the pointers of its own, and of the draft model or NULL."""
        pointer = self.core.enter(self)
        if self.draft is None:
            return pointer, _NULL
        try:
            return pointer, self.draft.enter(self, "draft model", self.core.stay)
        except BaseException:
            self.core.leave(self)
            raise

    def leave(self) -> None:
        self.core.leave(self)
        if self.draft is not None:
            self.draft.leave(self)


def close_at_exit(handle: Handle) -> None:
    """The finalizer of a handle. At the interpreter's end a thread may still be in the library with
    it: then it is left to the end of the process."""
    if handle.owner:
        return
    handle.release()
