"""The sessions that a model keeps for requests.

A request gets the free session that shares the longest prefix with its prompt, unless that would throw
away more than it keeps; then a new one, or the one that was not used for longest, into which a long
common prefix is copied. With all sessions in use requests wait, first come first served.

Sessions come back from finalizers, too, which may run in the midst of any line here. So everybody
puts what happened into `inbox` and calls `work`; whoever finds the lock taken leaves it to the one who
has it, as that one looks at the inbox again afterwards.
"""
from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, List, Optional, Tuple

import numpy as np
import numpy.typing as npt

from ._errors import ReelError
from ._library import wrong_state

if TYPE_CHECKING:
    from ._session import Session

_SHARED_LEAST = 64  # ids of a common prefix that are worth copying a session for


class _Waiter:
    def __init__(self, ids: "npt.NDArray[np.int32]", tell: Callable[[], None]) -> None:
        self.ids = ids
        self.tell = tell
        self.granted = False
        self.session: Optional["Session"] = None  # None when granted: open one
        self.source: Optional["Session"] = None  # to copy from, and then to give back
        self.error: Optional[ReelError] = None


class Pool:
    def __init__(self, open_session: Callable[[], "Session"], limit: int) -> None:
        self.open_session = open_session
        self.limit = limit
        self.n_open = 0
        self.idle: List["Session"] = []  # the one used last at the end
        self.waiting: Deque[_Waiter] = deque()
        self.inbox: Deque[Tuple[str, Any]] = deque()
        self.lock = threading.Lock()
        self.closed = False
        self.process = os.getpid()

    # ---- for requests ----

    def take(self, ids: "npt.NDArray[np.int32]") -> "Session":
        """A session for a prompt; waits for one."""
        while True:
            ready = threading.Event()
            waiter = self._ask(ids, ready.set)
            try:
                ready.wait()
            except BaseException:
                self._tell("abandoned", waiter)
                raise
            session = self._receive(waiter)
            if session is not None:
                return session

    async def take_async(self, ids: "npt.NDArray[np.int32]") -> "Session":
        """The same without holding a thread while it waits."""
        loop = asyncio.get_running_loop()
        while True:
            ready = loop.create_future()

            def tell(ready: "asyncio.Future[None]" = ready) -> None:
                try:
                    loop.call_soon_threadsafe(_set, ready)
                except RuntimeError:
                    pass  # the loop is closed

            waiter = self._ask(ids, tell)
            try:
                if not waiter.granted:
                    await ready
            except BaseException:
                self._tell("abandoned", waiter)
                raise
            if waiter.session is not None and waiter.source is None:
                return waiter.session
            opening = loop.run_in_executor(None, self._receive, waiter)
            try:
                session = await asyncio.shield(opening)
            except asyncio.CancelledError:
                opening.add_done_callback(self._give_back_opened)
                raise
            if session is not None:
                return session

    def _give_back_opened(self, opening: "asyncio.Future[Optional[Session]]") -> None:
        if not opening.cancelled() and opening.exception() is None:
            session = opening.result()
            if session is not None:
                self.give_back(session)

    def give_back(self, session: "Session") -> None:
        self._tell("returned", session)

    def _ask(self, ids: "npt.NDArray[np.int32]", tell: Callable[[], None]) -> _Waiter:
        if os.getpid() != self.process:
            raise wrong_state("after fork() the model is the parent's alone; open it again")
        if self.closed:
            raise wrong_state("the model is closed")
        waiter = _Waiter(ids, tell)
        self._tell("asked", waiter)
        return waiter

    def _receive(self, waiter: _Waiter) -> Optional["Session"]:
        """What was granted; None: there was no memory for one more, ask again."""
        if waiter.error is not None:
            raise waiter.error
        session, source = waiter.session, waiter.source
        try:
            if session is None:
                session = self.open_session()
        except MemoryError:
            self._tell("failed", True)
            if self.n_open < 1:
                raise
            return None
        except BaseException:
            self._tell("failed", False)
            raise
        finally:
            if session is None and source is not None:
                self._tell("returned", source)
        if source is not None:
            try:
                session.copy_from(source)
            except ReelError:
                pass  # it is evaluated instead
            finally:
                self._tell("returned", source)
        return session

    # ---- the work ----

    def _tell(self, what: str, of: Any) -> None:
        self.inbox.append((what, of))
        self.work()

    def work(self) -> None:
        while self.inbox:
            if not self.lock.acquire(False):
                return
            try:
                while self.inbox:
                    what, of = self.inbox.popleft()
                    getattr(self, f"_on_{what}")(of)
                self._serve()
            finally:
                self.lock.release()

    def _on_asked(self, waiter: _Waiter) -> None:
        if self.closed:
            self._refuse(waiter)
        else:
            self.waiting.append(waiter)

    def _on_returned(self, session: "Session") -> None:
        if session.closed or self.closed or self.n_open > self.limit:
            self.n_open -= 1
            if not session.closed:
                session.close()
        else:
            self.idle.append(session)

    def _on_failed(self, full: bool) -> None:
        """One more session could not be opened. Where memory was full there are to be no more than now."""
        self.n_open -= 1
        if full:
            self.limit = max(self.n_open, 1)

    def _on_abandoned(self, waiter: _Waiter) -> None:
        if not waiter.granted:
            self.waiting.remove(waiter)
            return
        if waiter.error is not None:
            return
        if waiter.session is None:
            self.n_open -= 1
        else:
            self._on_returned(waiter.session)
        if waiter.source is not None:
            self._on_returned(waiter.source)

    def _on_closed(self, _: None) -> None:
        for session in self.idle:
            session.close()
        self.n_open -= len(self.idle)
        self.idle.clear()
        while self.waiting:
            self._refuse(self.waiting.popleft())

    def _refuse(self, waiter: _Waiter) -> None:
        waiter.error = wrong_state("the model was closed")
        waiter.granted = True
        waiter.tell()

    def _serve(self) -> None:
        while self.waiting and self._choose(self.waiting[0]):
            waiter = self.waiting.popleft()
            waiter.granted = True
            waiter.tell()

    def _choose(self, waiter: _Waiter) -> bool:
        best, most, held = None, -1, 0
        for session in list(self.idle):
            if session.closed:
                self.idle.remove(session)
                self.n_open -= 1
                continue
            ids = session.ids
            common = common_prefix(ids, waiter.ids)
            if common > most:
                best, most, held = session, common, len(ids)
        if best is not None and most >= held - most:
            waiter.session = best
        elif self.n_open < self.limit:
            self.n_open += 1
            waiter.source = best if most >= _SHARED_LEAST else None
        elif self.idle:
            waiter.session = self.idle[0]
            if most >= _SHARED_LEAST and best is not waiter.session:
                waiter.source = best
        else:
            return False
        for taken in (waiter.session, waiter.source):
            if taken is not None:
                self.idle.remove(taken)
        return True

    def close(self) -> None:
        self.closed = True
        self._tell("closed", None)



def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def common_prefix(a: "npt.NDArray[np.int32]", b: "npt.NDArray[np.int32]") -> int:
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n
