"""How much freed memory a long-lived process keeps. Only the GNU C library can be told; elsewhere these do nothing."""

import ctypes
from contextlib import suppress

# Parameters of mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 256 * 1024
_KEPT_BYTES = 1024 * 1024
_ARENAS = 2


def return_freed_memory() -> None:
    """Return large blocks to the system once they are freed, from now on.

    By default the library raises the size from which a block is mapped on its own to that of the largest block freed
    so far, up to 32 MiB, and gives every thread a heap of its own. A server that reads uploads of megabytes in
    several threads then keeps a hundred megabytes of holes between small blocks.
    """
    for parameter, value in ((_ARENA_MAX, _ARENAS), (_MMAP_THRESHOLD, _LARGE_BYTES), (_TRIM_THRESHOLD, _KEPT_BYTES)):
        _call("mallopt", parameter, value)


def trim() -> None:
    """Return the free pages of every heap now."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    with suppress(OSError, AttributeError):
        getattr(ctypes.CDLL(None), name)(*arguments)
