"""The file descriptors of this process."""

import os
import resource


def are_descriptors_scarce(reserve: int) -> bool:
    """Return whether at most `reserve` file descriptors are free, or at most a quarter of the limit if that is less."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return False
    try:
        lowest_free = os.open(os.devnull, os.O_RDONLY)  # the kernel returns the lowest free number
    except OSError:
        return True
    os.close(lowest_free)
    return lowest_free >= limit - min(reserve, limit // 4)
