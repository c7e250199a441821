"""How many connections each of several processes has, in memory that all of them share."""

import math
import mmap

_WIDTH_BYTES = 4
_ABSENT = 0xFFFFFFFF


class Counts:
    """Of processes numbered from 1.

    Args:
        descriptor: of an open file, the same for all processes.
    """

    def __init__(self, descriptor: int, processes: int) -> None:
        self._counts = memoryview(mmap.mmap(descriptor, processes * _WIDTH_BYTES)).cast("I")

    @classmethod
    def new(cls, descriptor: int, processes: int) -> "Counts":
        """In an empty file; none serves yet."""
        with open(descriptor, "wb", closefd=False) as file:
            file.write(_ABSENT.to_bytes(_WIDTH_BYTES, "little") * processes)
        return cls(descriptor, processes)

    def set(self, number: int, connections: int) -> None:
        """A process that serves has so many."""
        self._counts[number - 1] = connections

    def leave(self, number: int) -> None:
        """A process serves no more: nobody need leave anything to it."""
        self._counts[number - 1] = _ABSENT

    def surplus(self, number: int) -> int:
        """How many connections a process has more than the one that has fewest."""
        return self._counts[number - 1] - min(self._counts)

    def excess(self, number: int) -> int:
        """How many connections of a process would have to go for all to have the same; < 0 where it lacks some."""
        serving = [count for count in self._counts if count != _ABSENT]
        own = self._counts[number - 1]
        return 0 if own == _ABSENT else own - math.ceil(sum(serving) / len(serving))
