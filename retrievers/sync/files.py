"""Read files that a source provides as bytes, in the same way as the files of a folder."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import PurePosixPath
from typing import BinaryIO

from retrievers.ingest.readers.file_input import read_source_files
from retrievers.ingest.readers.file_readers import READERS
from retrievers.ingest.readers.office_readers import MAX_WHOLE_FILE_BYTES
from retrievers.ingest.readers.source_file import SourceFile as File
from retrievers.ingest.readers.text_cleaning import Cleaner, printable
from retrievers.sandbox import MOST_REQUESTS, CancelCheck
from retrievers.sync.source import ItemRequest, ReadEvent, UnreadableItem, raise_if_cancelled, read_events


class UnreadableFile(Exception):
    """One file cannot be read now. The message says why."""


def is_ingestible(name: str) -> bool:
    """Return whether `signalbox ingest` would read the file at a path: a known format, no hidden file or folder."""
    path = PurePosixPath(name)
    return path.suffix.lower() in READERS and not any(part.startswith(".") for part in path.parts)


def path_document_id(name: str) -> str:
    """Return the id of the document in the file at a path, for a file that does not state an id itself."""
    return Cleaner().clean_text(name)


def read_files(
    requests: Sequence[ItemRequest],
    is_cancelled: CancelCheck,
    load: Callable[[str, BinaryIO], None],
    source_name: str,
) -> Iterator[ReadEvent]:
    """Yield the documents of files, see `Source.read`, reading a few files at a time.

    Args:
        load: writes the content of the file with a key into an open file; raises `UnreadableFile`.
        source_name: name of the source, put before the path in messages.
    """
    left = iter(requests)
    while some := list(islice(left, MOST_REQUESTS)):
        with ExitStack() as opened:
            files: list[File] = []
            for one in some:
                raise_if_cancelled(is_cancelled)
                file = opened.enter_context(tempfile.TemporaryFile(prefix="signalbox-"))
                try:
                    load(one.key, file)
                except UnreadableFile as error:
                    yield UnreadableItem(one.key, str(error))
                    continue
                size_bytes = file.tell()
                file.seek(0)
                path = PurePosixPath(one.key)
                where = printable(f"{source_name}/{one.key}")
                files.append(File(file, where, one.key, path.stem, path.suffix.lower(), size_bytes))
            for read, items in read_source_files(files, is_cancelled):
                yield from read_events(read.id, items)


def size_problem(size_bytes: int) -> str | None:
    """Return a message that says why a file of this size is too large to fetch; None if it is small enough."""
    most = MAX_WHOLE_FILE_BYTES
    return f"larger than {most >> 20} MB" if size_bytes > most else None
