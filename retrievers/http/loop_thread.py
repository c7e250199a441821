"""An event loop in a thread of its own, for libraries that would block the caller's loop by long work of their own."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

Returned = TypeVar("Returned")


class LoopThread:
    """Runs coroutines in one thread, which is started on first use and ends with the process.

    Args:
        name: name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        # A forked process has no such thread and must start its own.
        os.register_at_fork(after_in_child=self._forget)

    async def run(self, make: Callable[[], Awaitable[Returned]]) -> Returned:
        """Return the result of `await make()`, all of which runs in the thread, with the caller's context variables.

        Cancelling this call cancels the awaitable, without waiting for its end. Errors are raised unchanged.
        """

        async def made() -> Returned:
            await asyncio.sleep(0)  # ends a call that was cancelled while the loop was busy, before it begins
            try:
                return await make()
            except (SystemExit, KeyboardInterrupt) as error:  # would end the thread, and callers would wait for ever
                raise RuntimeError(f"{type(error).__name__} in the thread {self._name}") from error

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(made(), self._started()))

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True).start()
            return self._loop

    def _forget(self) -> None:
        self._lock, self._loop = threading.Lock(), None
