"""Work that may come to no end: bounded, or left to itself."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

Returned = TypeVar("Returned")

_left: set[asyncio.Future[Any]] = set()


async def within(work: Awaitable[Returned], timeout_s: float) -> Returned:
    """What the work returns, if it does so in time.

    Work that is late, or whose caller leaves, is cancelled and not waited for: to end a query on a server
    that does not answer takes the driver seconds.

    Raises:
        TimeoutError: it was late.
        ConnectionAbortedError: it ended itself by a cancellation that nobody asked for.
    """
    task = asyncio.ensure_future(work)
    in_time = False
    try:
        in_time = bool((await asyncio.wait({task}, timeout=max(timeout_s, 0)))[0])
    finally:
        if not in_time:
            leave(task)
    if not in_time:
        raise TimeoutError
    if task.cancelled():
        # As it is, it would pass for a cancellation of the whole request.
        raise ConnectionAbortedError
    return task.result()


def leave(task: asyncio.Future[Any]) -> None:
    """Cancel a task whose result nobody will look at, without waiting for its end."""
    task.cancel()
    # The event loop holds tasks weakly.
    _left.add(task)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Future[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # has been seen: it is too late to matter
