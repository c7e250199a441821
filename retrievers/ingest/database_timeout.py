"""Limit the time that ingestion waits for the database, so that a hung database raises `Unavailable`."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from retrievers.core.errors import Unavailable
from retrievers.core.timeouts import wait_within

_RETRY_S = 5.0
Returned = TypeVar("Returned")


async def with_database_timeout(work: Coroutine[Any, Any, Returned], patience_s: float) -> Returned:
    """Return the result of a coroutine that works on the database, and limit its time.

    Args:
        patience_s: time limit in seconds.
    Raises:
        Unavailable: the coroutine took longer.
    """
    try:
        return await wait_within(work, patience_s)
    except (TimeoutError, ConnectionAbortedError) as error:
        raise Unavailable("the database", f"no answer within {patience_s:g} s", retry_after_s=_RETRY_S) from error
