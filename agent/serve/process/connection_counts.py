"""The number of connections of each of several processes, in shared memory."""

import math
import mmap

_WIDTH_BYTES = 4
_ABSENT = 0xFFFFFFFF


class ConnectionCounts:
    """Numbers of connections of the server processes, in memory that they share. Processes are numbered from 1.

    Args:
        descriptor: file descriptor of the shared file, the same in all processes.
        processes: number of processes.
    """

    def __init__(self, descriptor: int, processes: int) -> None:
        self._counts = memoryview(mmap.mmap(descriptor, processes * _WIDTH_BYTES)).cast("I")

    @classmethod
    def create(cls, descriptor: int, processes: int) -> "ConnectionCounts":
        """Create the shared file's content, with every process marked as absent (not serving)."""
        with open(descriptor, "wb", closefd=False) as file:
            file.write(_ABSENT.to_bytes(_WIDTH_BYTES, "little") * processes)
        return cls(descriptor, processes)

    def set(self, number: int, connections: int) -> None:
        """Set the number of connections of a process."""
        self._counts[number - 1] = connections

    def mark_absent(self, number: int) -> None:
        """Mark a process as absent, so that other processes do not wait for it."""
        self._counts[number - 1] = _ABSENT

    def above_minimum(self, number: int) -> int:
        """Return how many more connections a process has than the serving process with the fewest."""
        return self._counts[number - 1] - min(self._counts)

    def above_share(self, number: int) -> int:
        """Return the connections of a process minus an equal share of all, rounded up; 0 if the process is absent."""
        serving = [count for count in self._counts if count != _ABSENT]
        own = self._counts[number - 1]
        return 0 if own == _ABSENT else own - math.ceil(sum(serving) / len(serving))
