"""An iterator whose steps take long, for asyncio: a thread takes the steps, and tasks wait for them."""
from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from typing import Any, AsyncIterator, Awaitable, Callable, Deque, Generic, Optional, TypeVar

T = TypeVar("T")

_AHEAD = 64  # items that wait for a consumer before the thread stops making more
_PATIENCE = 32  # items taken without waiting before other tasks get a turn


class _Shared:
    """What the thread and the event loop's side share. The thread refers to this alone, so a consumer
    that is dropped is collected and can stop it.

    `items` and `sleeping` need no lock: whoever sleeps says so before it looks at the items again, and
    the thread adds an item before it looks who sleeps. The thread wakes the loop by an eventfd, which
    costs less than call_soon_threadsafe; its last ring is LAST, and nothing is written after it.
    """

    LAST = 1 << 32

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.items: Deque[Any] = deque()
        self.sleeping: Optional[asyncio.Future[None]] = None
        self.room = threading.Event()
        self.waiting_for_room = False
        self.stopped = False
        self.ended = False
        self.error: Optional[BaseException] = None
        self.done: asyncio.Future[None] = loop.create_future()
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(self.bell, self.ring)

    # ---- the thread's side ----

    def put(self, item: Any) -> bool:
        self.items.append(item)
        if self.sleeping is not None:
            os.eventfd_write(self.bell, 1)
        while len(self.items) >= _AHEAD and not self.stopped:
            self.room.clear()
            self.waiting_for_room = True
            if len(self.items) >= _AHEAD and not self.stopped:
                self.room.wait(1)
            self.waiting_for_room = False
            if self.loop.is_closed():
                self.stopped = True
        return not self.stopped

    def end(self, error: Optional[BaseException]) -> None:
        self.error = error
        self.ended = True
        os.eventfd_write(self.bell, self.LAST)

    # ---- the loop's side ----

    def ring(self) -> None:
        try:
            heard = os.eventfd_read(self.bell)
        except BlockingIOError:
            return
        sleeping, self.sleeping = self.sleeping, None
        if sleeping is not None and not sleeping.done():
            sleeping.set_result(None)
        if heard >= self.LAST:
            self.loop.remove_reader(self.bell)
            os.close(self.bell)
            self.bell = -1
            if not self.done.done():
                self.done.set_result(None)

    def stop(self) -> None:
        self.stopped = True
        self.room.set()

    def __del__(self) -> None:
        """Of a loop that was closed before the thread ended: nobody refers to the bell any more."""
        if getattr(self, "bell", -1) >= 0:
            os.close(self.bell)


def _take_steps(steps: Any, shared: _Shared) -> None:
    error: Optional[BaseException] = None
    try:
        for item in steps:
            if not shared.put(item):
                break
    except BaseException as caught:  # told to whoever awaits
        error = caught
    try:
        steps.close()
    except BaseException as caught:
        error = error or caught
    finally:
        shared.end(error)


class Feed(AsyncIterator[T], Generic[T]):
    """Steps of `steps`, an iterator with cancel() and close(), taken in a thread of their own."""

    def __init__(self, steps: Any, prepare: Optional[Callable[[], Awaitable[None]]] = None) -> None:
        self._steps = steps
        self._prepare = prepare
        self._shared: Optional[_Shared] = None
        self._taken = 0

    def __aiter__(self) -> "Feed[T]":
        return self

    async def _begin(self) -> _Shared:
        if self._prepare is not None:
            await self._prepare()
        shared = _Shared(asyncio.get_running_loop())
        self._shared = shared
        threading.Thread(target=_take_steps, args=(self._steps, shared), name="reel-generation",
                         daemon=True).start()
        return shared

    async def __anext__(self) -> T:
        shared = self._shared
        if shared is None:
            shared = await self._begin()
        items = shared.items
        while True:
            if items:
                item: T = items.popleft()
                if shared.waiting_for_room and len(items) < _AHEAD // 2:
                    shared.room.set()
                self._taken += 1
                if self._taken >= _PATIENCE:
                    self._taken = 0
                    await self._pause()
                return item
            if shared.ended and not items:
                if shared.error is not None:
                    error, shared.error = shared.error, None
                    raise error
                raise StopAsyncIteration
            future = shared.loop.create_future()
            shared.sleeping = future
            if items or shared.ended:
                shared.sleeping = None
                continue
            self._taken = 0
            try:
                await future
            except BaseException:
                self.stop()
                raise

    async def _pause(self) -> None:
        try:
            await asyncio.sleep(0)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the steps soon; waits for nothing."""
        shared = self._shared
        if shared is not None and not shared.ended:
            shared.stop()
            self._steps.cancel()

    async def aclose(self) -> None:
        """Ends the steps, and waits until their thread is done with them."""
        self.stop()
        if self._shared is None:
            self._steps.close()
        else:
            await asyncio.shield(self._shared.done)

    def __del__(self) -> None:
        shared = getattr(self, "_shared", None)
        if shared is not None and not shared.ended:
            shared.stop()
            self._steps.cancel()
