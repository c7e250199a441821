"""Limit how much freed memory a long-lived process keeps. Works with the GNU C library only; elsewhere does nothing."""

import ctypes
from contextlib import suppress

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


def trim() -> None:
    """Return the free pages of all heaps to the system now."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    with suppress(OSError, AttributeError):
        getattr(ctypes.CDLL(None), name)(*arguments)
