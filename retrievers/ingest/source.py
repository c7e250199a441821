"""A file that is being read."""

from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read.

    Attributes:
        file: open, at its start.
        where: its path as given, for messages.
        id: what its document is called when it does not say so itself.
        title: the same for its title.
        ending: of its name, in lower case, with the dot.
    """

    file: BinaryIO
    where: str
    id: str
    title: str
    ending: str
    size_bytes: int
