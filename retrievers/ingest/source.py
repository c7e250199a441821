"""A file that is being read."""

from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read.

    Attributes:
        file: open, at its start.
        where: its path as given, for messages.
        id: document id if the content gives none.
        title: document title if the content gives none.
        ending: the ending of its name, in lower case, with the dot.
    """

    file: BinaryIO
    where: str
    id: str
    title: str
    ending: str
    size_bytes: int
