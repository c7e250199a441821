"""Limit how much freed memory a long-lived process keeps, and how long its garbage collections take.

What concerns the heap of the C library works with the GNU one only; elsewhere it does nothing.
"""

import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

# Parameters of mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
LARGE_BYTES = 256 * 1024
"""Minimum size of an input after which free memory is returned to the system."""
_KEPT_BYTES = 1024 * 1024
_ARENAS = 2


def return_freed_memory() -> None:
    """From now on, return large blocks to the system when they are freed.

    By default the library raises the size from which a block gets its own mapping to the size of the largest block
    freed so far, up to 32 MiB, and gives every thread its own heap. A server that reads uploads of megabytes in several
    threads then keeps a hundred megabytes of holes between small blocks.
    """
    for parameter, value in ((_ARENA_MAX, _ARENAS), (_MMAP_THRESHOLD, LARGE_BYTES), (_TRIM_THRESHOLD, _KEPT_BYTES)):
        _call("mallopt", parameter, value)


def settle() -> None:
    """Exclude everything loaded so far from garbage collection: it is kept until the process ends.

    A collection then takes milliseconds, not 50 ms in the middle of some answer.
    """
    gc.collect()
    gc.freeze()


def give_back() -> None:
    """Return the free memory to the system after a large input: that of small objects, too.

    Python returns small objects' memory in pieces of 1 MiB, once nothing in the piece is used. A body with 400,000 keys
    fills 60 of them, and one object that is used no more but not collected yet, or the few that Python keeps for reuse,
    hold most of them. A full collection frees both.
    """
    gc.collect()
    trim()


def trim() -> None:
    """Return the free pages of all heaps of the C library to the system now."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    with suppress(OSError, AttributeError):
        _function(name)(*arguments)


@cache
def _function(name: str) -> Callable[..., Any]:
    """Return a function of the C library. Kept, because each look-up leaves a reference cycle behind."""
    function: Callable[..., Any] = getattr(ctypes.CDLL(None), name)
    return function
