"""A file that is being read."""

from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read.

    Attributes:
        file: open, at its start.
        where: path of the file as given, for messages.
        id: id of the document, if the content of the file gives none.
        title: title of the document, if the content of the file gives none.
        ending: ending of the file's name, in lower case, with the dot.
    """

    file: BinaryIO
    where: str
    id: str
    title: str
    ending: str
    size_bytes: int
