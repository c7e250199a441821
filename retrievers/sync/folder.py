"""A folder, or one file, as a source: the files that `signalbox ingest` would read."""

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from retrievers.core.collection_schema import Schema
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.ingest.documents import RejectedItem
from retrievers.ingest.readers.file_input import FileEntry, UnreachablePath, list_entries, open_error, read_source_files
from retrievers.ingest.readers.schema_file import read_schema_file, schema_of
from retrievers.ingest.readers.source_file import SourceFile as File
from retrievers.ingest.readers.text_cleaning import printable
from retrievers.sandbox import MOST_REQUESTS, CancelCheck
from retrievers.sync.source import (
    ItemEnd,
    ItemRequest,
    Listing,
    ReadEvent,
    SourceItem,
    UnreadableItem,
    check_item_count,
    raise_if_cancelled,
    read_events,
)

_SURE_AFTER_NS = 2_000_000_000
"""Time resolution of file systems, in nanoseconds. A file changed more recently may change again at the same time."""


@dataclass(slots=True)
class FolderSource:
    """Files below a path. Ids, titles, front matter and `schema.json` are those of `signalbox ingest`.

    A file is opened if its size, times or inode have changed, and read into documents if its digest has changed, too.
    """

    path: Path
    _entries: dict[str, FileEntry] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """See `Source.name`. Links are not resolved: a link that points to another folder stays the same source."""
        return Path(os.path.abspath(self.path)).as_posix()

    def list_items(self, is_cancelled: CancelCheck) -> Listing:
        """See `Source.list_items`."""
        if not self.path.exists():
            raise BadRequest(f"the source {printable(str(self.path))} does not exist", where="source")
        root = self.path.as_posix()
        now_ns = time.time_ns()
        items: list[SourceItem] = []
        failed: list[RejectedItem] = []
        unlisted: list[str] = []
        self._entries = {}
        for entry in list_entries(self.path):
            raise_if_cancelled(is_cancelled)
            check_item_count(len(items) + len(failed) + 1)
            if isinstance(entry, RejectedItem):
                if entry.where == root and isinstance(entry, UnreachablePath):
                    raise Unavailable("the source", entry.reason)
                if entry.where != root:  # a folder without files is an empty source, not a failure
                    failed.append(entry)
                if isinstance(entry, UnreachablePath):
                    unlisted.append(entry.where.removeprefix(printable(root) + "/"))
            elif entry.id not in self._entries:
                self._entries[entry.id] = entry
                items.append(SourceItem(entry.id, _version(entry.path, now_ns)))
        schema = schema_of(self.path) if self.path.is_dir() else None
        return Listing(items, unlisted, failed, read_schema_file(schema) if schema else Schema())

    def read(self, requests: Sequence[ItemRequest], is_cancelled: CancelCheck) -> Iterator[ReadEvent]:
        """See `Source.read`."""
        left = iter(requests)
        while some := list(islice(left, MOST_REQUESTS)):
            raise_if_cancelled(is_cancelled)
            yield from self._read_some(some, is_cancelled)

    def _read_some(self, requests: Sequence[ItemRequest], is_cancelled: CancelCheck) -> Iterator[ReadEvent]:
        with ExitStack() as opened:
            files: list[File] = []
            digests: dict[str, bytes] = {}
            for one in requests:
                entry = self._entries[one.key]
                try:
                    file = opened.enter_context(entry.path.open("rb"))
                    digest = hashlib.file_digest(file, "sha256").digest()
                    file.seek(0)
                    size_bytes = os.fstat(file.fileno()).st_size
                except OSError as error:
                    yield UnreadableItem(one.key, open_error(entry.path, error))
                    continue
                if digest == one.digest:
                    yield ItemEnd(one.key, digest, is_unchanged=True)
                    continue
                digests[one.key] = digest
                ending = entry.path.suffix.lower()
                files.append(File(file, entry.where, entry.id, entry.title, ending, size_bytes))
            for read, items in read_source_files(files, is_cancelled):
                yield from read_events(read.id, items, digests[read.id])


def _version(path: Path, now_ns: int) -> str | None:
    """Return a version of a file made of size, times and inode. None for a recently changed one: see `_SURE_AFTER_NS`.

    Args:
        now_ns: the current time, in nanoseconds since 1970.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    if max(status.st_mtime_ns, status.st_ctime_ns) > now_ns - _SURE_AFTER_NS:
        return None
    return f"{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}:{status.st_ino}"
