"""Read files that a source provides as bytes, in the same way as the files of a folder."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import PurePosixPath
from typing import BinaryIO

from retrievers.ingest.clean import Cleaner, printable
from retrievers.ingest.formats import READERS
from retrievers.ingest.office import MAX_WHOLE_FILE_BYTES
from retrievers.ingest.read import read_each
from retrievers.ingest.source import SourceFile as File
from retrievers.sandbox import MOST_REQUESTS, Stopped
from retrievers.sync.source import Read, Unread, Wanted, check_running, reads_of


class Unreadable(Exception):
    """One file cannot be read now. The message says why."""


def is_read(name: str) -> bool:
    """Return whether `signalbox ingest` would read the file at a path: a known format, no hidden file or folder."""
    path = PurePosixPath(name)
    return path.suffix.lower() in READERS and not any(part.startswith(".") for part in path.parts)


def id_of_path(name: str) -> str:
    """Return the id of the document in the file at a path, for a file that does not state an id itself."""
    return Cleaner().text(name)


def read_files(
    wanted: Sequence[Wanted],
    stopped: Stopped,
    load: Callable[[str, BinaryIO], None],
    shown: str,
) -> Iterator[Read]:
    """Yield the documents of files, see `Source.read`, reading a few files at a time.

    Args:
        load: writes the content of the file with a key into an open file; raises Unreadable.
        shown: name of the source, put before the path in messages.
    """
    left = iter(wanted)
    while some := list(islice(left, MOST_REQUESTS)):
        with ExitStack() as opened:
            files: list[File] = []
            for one in some:
                check_running(stopped)
                file = opened.enter_context(tempfile.TemporaryFile(prefix="signalbox-"))
                try:
                    load(one.key, file)
                except Unreadable as error:
                    yield Unread(one.key, str(error))
                    continue
                size_bytes = file.tell()
                file.seek(0)
                path = PurePosixPath(one.key)
                where = printable(f"{shown}/{one.key}")
                files.append(File(file, where, one.key, path.stem, path.suffix.lower(), size_bytes))
            for read, items in read_each(files, stopped):
                yield from reads_of(read.id, items)


def too_large(size_bytes: int) -> str | None:
    """Return in words why a file of this size is too large to fetch; None if it is small enough."""
    most = MAX_WHOLE_FILE_BYTES
    return f"larger than {most >> 20} MB" if size_bytes > most else None
