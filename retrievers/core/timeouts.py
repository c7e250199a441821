"""Wait for asynchronous work with a timeout, or cancel it without waiting for its end."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

Returned = TypeVar("Returned")

_left: set[asyncio.Future[Any]] = set()


async def wait_within(work: Awaitable[Returned], timeout_s: float) -> Returned:
    """Return the result of the work if it ends in time.

    If the work is late or the caller is cancelled, the work is cancelled, but its end is not awaited: a database driver
    takes seconds to cancel a query on a server that does not answer.

    Raises:
        TimeoutError: the work did not end in time.
        ConnectionAbortedError: the work ended with a cancellation that nobody requested.
    """
    task = asyncio.ensure_future(work)
    in_time = False
    try:
        in_time = bool((await asyncio.wait({task}, timeout=max(timeout_s, 0)))[0])
    finally:
        if not in_time:
            abandon_task(task)
    if not in_time:
        raise TimeoutError
    if task.cancelled():
        # A plain CancelledError would look like a cancellation of the whole request.
        raise ConnectionAbortedError
    return task.result()


async def run_in_own_task(work: Awaitable[Returned]) -> Returned:
    """Return the result of the work, which is cancelled at most once, and then awaited.

    The caller may be under several timeouts. A second cancellation would interrupt the closing of a connection, which
    the first one began, and the connection would stay open. It only ends the waiting here.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            abandon_task(task)
            await asyncio.wait({task})
        raise


def abandon_task(task: asyncio.Future[Any]) -> None:
    """Cancel a task whose result is no longer needed, without waiting for its end."""
    task.cancel()
    keep_task(task)


def keep_task(task: asyncio.Future[Any]) -> None:
    """Let a task run to its end although nobody waits for it; its error is ignored."""
    # The event loop holds tasks only by weak references: without this one, the task could be collected before it ends.
    _left.add(task)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Future[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # marks the exception as retrieved, so asyncio does not log it
