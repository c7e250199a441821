"""A folder, or one file, as a source: the files that `signalbox ingest` would read."""

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.schema import Schema
from retrievers.ingest.clean import printable
from retrievers.ingest.documents import RejectedItem
from retrievers.ingest.read import Entry, Unreachable, cannot_open, entries_of, read_each
from retrievers.ingest.schema import read_schema_file, schema_of
from retrievers.ingest.source import SourceFile as File
from retrievers.sandbox import MOST_REQUESTS, Stopped
from retrievers.sync.source import ItemEnd, Listing, Read, SourceItem, Unread, Wanted, check_running, reads_of

_SURE_AFTER_NS = 2_000_000_000
"""Time resolution of file systems, in nanoseconds. A file changed more recently may change again at the same time."""


@dataclass(slots=True)
class Folder:
    """Files below a path. Ids, titles, front matter and `schema.json` are those of `signalbox ingest`.

    A file is opened if its size, times or inode have changed, and read into documents if its digest has changed, too.
    """

    path: Path
    _entries: dict[str, Entry] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """See `Source.shown`. Links are not resolved: a link that points to another folder stays the same source."""
        return Path(os.path.abspath(self.path)).as_posix()

    def listing(self, stopped: Stopped) -> Listing:
        """See `Source.listing`."""
        if not self.path.exists():
            raise BadRequest(f"the source {printable(str(self.path))} does not exist", where="source")
        root = self.path.as_posix()
        now_ns = time.time_ns()
        items: list[SourceItem] = []
        failed: list[RejectedItem] = []
        unlisted: list[str] = []
        self._entries = {}
        for entry in entries_of(self.path):
            check_running(stopped)
            if isinstance(entry, RejectedItem):
                if entry.where == root and isinstance(entry, Unreachable):
                    raise Unavailable("the source", entry.reason)
                if entry.where != root:  # a folder without files is an empty source, not a failure
                    failed.append(entry)
                if isinstance(entry, Unreachable):
                    unlisted.append(entry.where.removeprefix(printable(root) + "/"))
            elif entry.id not in self._entries:
                self._entries[entry.id] = entry
                items.append(SourceItem(entry.id, _version(entry.path, now_ns)))
        schema = schema_of(self.path) if self.path.is_dir() else None
        return Listing(items, unlisted, failed, read_schema_file(schema) if schema else Schema())

    def read(self, wanted: Sequence[Wanted], stopped: Stopped) -> Iterator[Read]:
        """See `Source.read`."""
        left = iter(wanted)
        while some := list(islice(left, MOST_REQUESTS)):
            check_running(stopped)
            yield from self._read_some(some, stopped)

    def _read_some(self, wanted: Sequence[Wanted], stopped: Stopped) -> Iterator[Read]:
        with ExitStack() as opened:
            files: list[File] = []
            digests: dict[str, bytes] = {}
            for one in wanted:
                entry = self._entries[one.key]
                try:
                    file = opened.enter_context(entry.path.open("rb"))
                    digest = hashlib.file_digest(file, "sha256").digest()
                    file.seek(0)
                    size_bytes = os.fstat(file.fileno()).st_size
                except OSError as error:
                    yield Unread(one.key, cannot_open(entry.path, error))
                    continue
                if digest == one.digest:
                    yield ItemEnd(one.key, digest, is_same=True)
                    continue
                digests[one.key] = digest
                ending = entry.path.suffix.lower()
                files.append(File(file, entry.where, entry.id, entry.title, ending, size_bytes))
            for read, items in read_each(files, stopped):
                yield from reads_of(read.id, items, digests[read.id])


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
