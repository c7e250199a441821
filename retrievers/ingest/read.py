"""Read paths and uploads: yields a `Document`, or a `RejectedItem` with the reason, for each item."""

import os
import stat
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal

from retrievers.core.errors import BadDocument, BadRequest
from retrievers.ingest.clean import Cleaner, one_line, printable
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.formats import PLAIN, READERS, guarded, item_of, read_json_lines, read_source
from retrievers.ingest.record import MAX_ID_CHARACTERS, MAX_REASON_CHARACTERS, read_record, rejected
from retrievers.ingest.scans import Scans
from retrievers.ingest.schema import schema_of
from retrievers.ingest.source import SourceFile
from retrievers.ingest.table import Item, Progress
from retrievers.sandbox import MOST_REQUESTS, Sandbox, Stopped, never

__all__ = ["check_upload", "entries_of", "input_bytes", "read", "read_each", "read_record", "read_upload"]

SCANS = Scans()
"""Recognises the text of scans if the setting OCR is on."""
SANDBOX = Sandbox(places=3)
"""Reads files. A worker lets a tenant read at most two files at a time, so hostile files leave a place to others."""
MOST_FAILURES = 10_000
"""Maximum number of bad documents in one file; the rest of the file is not read."""
_TASK = "retrievers.ingest.formats:read_to_messages"


class Unreachable(RejectedItem):
    """Rejected because a path could not be examined: nobody knows which files it contains."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file to read.

    Attributes:
        where: path of the file as given, for messages.
        id: id of the document, if the content of the file gives none.
        title: title of the document, if the content of the file gives none.
    """

    path: Path
    where: str
    id: str
    title: str
    size_bytes: int


def read(
    paths: Sequence[Path | Literal["-"]],
    *,
    stdin: BinaryIO | None = None,
    progress: Progress | None = None,
    stopped: Stopped = never,
) -> Iterator[Item]:
    """Yield the documents of files and folders one at a time, in the order of the paths.

    Folders are searched recursively in path order. Hidden entries, files of unknown formats and the folder's own schema
    file are skipped; links to folders are not followed. Bad input never raises: it is yielded as a `RejectedItem`,
    followed by the other items.

    Args:
        paths: files, folders, or "-" for JSON Lines on standard input.
        stdin: stream for "-"; the process's standard input by default.
        progress: called with the number of bytes consumed since its last call. For files, the numbers add up to
            `input_bytes`.
        stopped: returns True if the caller no longer waits.
    Raises:
        Unavailable: `stopped` returned True.
    """
    report = progress or (lambda _size: None)
    for path in paths:
        if isinstance(path, Path):
            found = entries_of(path)
            while window := list(islice(found, MOST_REQUESTS)):
                with ExitStack() as files:
                    yield from _read_sources([_opened(entry, files) for entry in window], report, stopped)
        else:
            yield from guarded("stdin", read_json_lines(stdin or sys.stdin.buffer, "stdin", report))


def read_upload(name: str, data: bytes, *, stopped: Stopped = never) -> Iterator[Item]:
    """Yield the documents of an uploaded file; bad input is yielded as a `RejectedItem`.

    The name is untrusted. Only format, id and title are taken from it, never a path on this machine.

    Args:
        stopped: returns True if the caller no longer waits.
    Raises:
        BadRequest: the name is malformed or its ending unknown.
        Unavailable: `stopped` returned True.
    """
    ending = check_upload(name)
    with tempfile.TemporaryFile(prefix="signalbox-") as file:
        file.write(data)
        file.seek(0)
        source = SourceFile(file, name, name, PurePosixPath(name).stem, ending, len(data))
        yield from _read_sources([source], lambda _size: None, stopped)


def check_upload(name: str) -> str:
    """Return the ending of a file's name, in lower case.

    Raises:
        BadRequest: the name is malformed or its ending unknown.
    """
    if not name or len(name) > MAX_ID_CHARACTERS or not name.isprintable():
        raise BadRequest(f"a file's name has 1 to {MAX_ID_CHARACTERS} printable characters", where="name")
    ending = PurePosixPath(name).suffix.lower()
    if ending not in READERS:
        raise BadRequest(
            f'the ending "{ending}" is unknown; known endings: {" ".join(sorted(READERS))}',
            where="name",
            valid=sorted(READERS),
        )
    return ending


def input_bytes(paths: Sequence[Path | Literal["-"]]) -> int:
    """Return the total size in bytes of the files that `read` would open; standard input counts as 0."""
    entries = (entry for path in paths if isinstance(path, Path) for entry in entries_of(path))
    return sum(entry.size_bytes for entry in entries if isinstance(entry, Entry))


# Finding files.


def entries_of(path: Path) -> Iterator[Entry | RejectedItem]:
    """Yield the files at a path: the file itself, or every file in the folder. Unreadable ones are rejected."""
    where = path.as_posix()
    try:
        if path.is_dir():
            yield from _folder(path)
        elif path.suffix.lower() not in READERS and path.exists():
            known = " ".join(sorted(READERS))
            yield rejected(where, None, f'the ending "{path.suffix}" is unknown; known endings: {known}')
        else:
            yield _entry(path, path.name)
    except (OSError, ValueError) as error:
        yield _unseen(path, error)


def _folder(root: Path) -> Iterator[Entry | RejectedItem]:
    """Yield the files in a folder and its subfolders, sorted by path. Each link that is not followed is rejected."""
    waiting = [(root, True)]
    schema = schema_of(root)
    empty = True
    while waiting:
        path, is_folder = waiting.pop()
        try:
            if is_folder:
                with os.scandir(path) as entries:
                    seen = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
                # Sort a folder as if its name ended in the slash that follows it in paths.
                seen.sort(key=lambda entry: entry[0] + "/" * entry[1], reverse=True)
                waiting += [(path / name, is_inner) for name, is_inner in seen if not name.startswith(".")]
                continue
            if path == schema or (not stat.S_ISDIR(path.stat().st_mode) and path.suffix.lower() not in READERS):
                continue
            if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
                reason = "a link to a file outside this folder, which is not followed; give that file itself"
                found: Entry | RejectedItem = rejected(path.as_posix(), None, reason)
            else:
                found = _entry(path, path.relative_to(root).as_posix())
        except (OSError, ValueError) as error:
            found = _unseen(path, error)
        empty = False
        yield found
    if empty:
        yield rejected(
            root.as_posix(), None, f"no file to read in this folder; known endings: {' '.join(sorted(READERS))}"
        )


def _entry(path: Path, id: str) -> Entry | RejectedItem:
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        return rejected(path.as_posix(), None, "a link to a folder, which is not followed; give that folder itself")
    if not stat.S_ISREG(status.st_mode):
        return rejected(path.as_posix(), None, "not a regular file")
    return Entry(path, printable(path.as_posix()), Cleaner().text(id), path.stem, status.st_size)


def _unseen(path: Path, error: OSError | ValueError) -> RejectedItem:
    why = rejected(path.as_posix(), None, cannot_open(path, error))
    is_gone = isinstance(error, FileNotFoundError)
    return why if is_gone else Unreachable(why.where, why.id, why.reason, why.readers)


def cannot_open(path: Path, error: OSError | ValueError) -> str:
    """Return in one line why a file can't be opened."""
    if isinstance(error, FileNotFoundError):
        return "a broken link: what it points to does not exist" if path.is_symlink() else "does not exist"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    return f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else "not a valid path"


# Reading files.


def _opened(entry: Entry | RejectedItem, files: ExitStack) -> SourceFile | RejectedItem:
    if isinstance(entry, RejectedItem):
        return entry
    try:
        file = files.enter_context(entry.path.open("rb"))
    except OSError as error:
        return rejected(entry.where, None, cannot_open(entry.path, error))
    return SourceFile(file, entry.where, entry.id, entry.title, entry.path.suffix.lower(), entry.size_bytes)


def _read_sources(sources: Sequence[SourceFile | RejectedItem], report: Progress, stopped: Stopped) -> Iterator[Item]:
    """Yield the documents of files, in order."""
    # Closed at once: otherwise the traceback of an error would keep it open, and a place of the sandbox with it.
    with closing(read_each([one for one in sources if isinstance(one, SourceFile)], stopped)) as answers:
        for one in sources:
            if isinstance(one, RejectedItem):
                yield one
            else:
                yield from _counted(one, next(answers)[1], report)


def read_each(
    sources: Sequence[SourceFile], stopped: Stopped = never
) -> Generator[tuple[SourceFile, Iterator[tuple[int, Item]]], None, None]:
    """Yield each file with its documents, as (file, iterator of (bytes consumed since the last document, document)).

    All formats but plain text are read in the sandbox.

    Args:
        sources: at most `MOST_REQUESTS` files. Take all documents of one file before the next file.
        stopped: returns True if the caller no longer waits.
    """
    if SCANS.languages:
        # One at a time, so that no process waits with another file while text is recognised.
        for one in sources:
            yield one, read_source(one) if one.ending in PLAIN else _with_recognition(one, stopped)
        return
    parsed = [one for one in sources if one.ending not in PLAIN]
    with closing(SANDBOX.run(_TASK, [(one.file, _arguments(one)) for one in parsed], stopped=stopped)) as answers:
        for one in sources:
            yield one, read_source(one) if one.ending in PLAIN else _items(one, next(answers))


def _alone(source: SourceFile, stopped: Stopped) -> Iterator[tuple[int, Item]]:
    with closing(SANDBOX.run(_TASK, [(source.file, _arguments(source))], stopped=stopped)) as answers:
        yield from _items(source, next(answers))


def _with_recognition(source: SourceFile, stopped: Stopped) -> Iterator[tuple[int, Item]]:
    """Yield the documents of a file. On a PDF with scanned pages, run text recognition (OCR) and read it again."""
    scanned: tuple[int, Item] | None = None
    for consumed, item in _alone(source, stopped):
        if source.ending == ".pdf" and item.scanned:
            scanned = consumed, item
        else:
            yield consumed, item
    if scanned is None:
        return
    consumed, item = scanned
    try:
        with SCANS.recognised(source.file, stopped) as file:
            size = os.fstat(file.fileno()).st_size
            ((_, made),) = _alone(replace(source, file=file, size_bytes=size), stopped)
    except BadDocument as error:
        wrong = one_line(f"their text was not recognised: {error}", MAX_REASON_CHARACTERS)
        if isinstance(item, Document):
            yield consumed, replace(item, notes=(*item.notes, wrong))
        else:
            reason = one_line(f"{item.reason.partition(';')[0]}; {wrong}", MAX_REASON_CHARACTERS)
            yield consumed, replace(item, reason=reason)
        return
    if isinstance(made, Document):
        count = item.scanned - made.scanned
        which = "1 scanned page" if count == 1 else f"{count:,} scanned pages"
        made = replace(made, notes=(*made.notes, f"the text of {which} was recognised"))
    yield consumed, made


def _counted(source: SourceFile, items: Iterator[tuple[int, Item]], report: Progress) -> Iterator[Item]:
    """Yield the items, and call `report` with the bytes consumed. At the end, they add up to the size of the file."""
    left = source.size_bytes
    for size, item in items:
        report(size)
        left -= size
        yield item
    if left > 0:
        report(left)


def _items(source: SourceFile, messages: Iterator[dict[str, Any]]) -> Iterator[tuple[int, Item]]:
    """Yield (bytes consumed since the last item, item) for each message of the process that reads the file.

    Stop after `MOST_FAILURES` rejected items.
    """
    failures = 0
    try:
        for message in messages:
            item = item_of(message)
            failures += isinstance(item, RejectedItem)
            if failures > MOST_FAILURES:
                reason = f"{MOST_FAILURES:,} documents before this one are invalid: the rest was not read"
                yield message["read"], RejectedItem(item.where, item.id, reason, item.readers, cut=True)
                return
            yield message["read"], item
    except BadDocument as error:
        yield 0, rejected(source.where, None, str(error), cut=True)


def _arguments(source: SourceFile) -> dict[str, Any]:
    return {field.name: getattr(source, field.name) for field in fields(source) if field.name != "file"}
