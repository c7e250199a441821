"""Limit how much freed memory a long-lived process keeps, and how long its garbage collections take.

The functions that act on the C library's heap have an effect with the GNU C library only.
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
"""Size of an input from which on free memory is to be returned to the system (`release_memory`) after it is handled."""
_KEPT_BYTES = 1024 * 1024
_ARENAS = 2


def configure_malloc() -> None:
    """From now on, return large blocks to the system when they are freed.

    The C library returns a freed block at once if the block has its own memory mapping. By default only blocks
    above a certain size have one, and this size grows to that of the largest block freed so far, up to 32 MiB. Every
    thread also has its own heap. So a server that reads uploads of megabytes in several threads would keep a hundred
    megabytes of unused memory.
    """
    for parameter, value in ((_ARENA_MAX, _ARENAS), (_MMAP_THRESHOLD, LARGE_BYTES), (_TRIM_THRESHOLD, _KEPT_BYTES)):
        _call("mallopt", parameter, value)


def freeze_objects() -> None:
    """Exclude all objects that exist now from garbage collection; they are kept until the process ends.

    A garbage collection then delays an answer by a few milliseconds instead of 50 ms.
    """
    gc.collect()
    gc.freeze()


def release_memory() -> None:
    """Return free memory to the system after a large input, including the memory of small objects.

    Python keeps small objects in blocks of 1 MiB and returns a block once no object in it is left. A JSON body with
    400,000 keys fills 60 blocks. Afterwards a few objects that are not collected yet, or that Python keeps for reuse,
    hold back most of the blocks. A full collection frees these objects.
    """
    gc.collect()
    trim_heap()


def trim_heap() -> None:
    """Return the free pages of all heaps of the C library to the system now."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    with suppress(OSError, AttributeError):
        _function(name)(*arguments)


@cache
def _function(name: str) -> Callable[..., Any]:
    """Return a function of the C library. Cached, because each look-up leaves a reference cycle behind."""
    function: Callable[..., Any] = getattr(ctypes.CDLL(None), name)
    return function
