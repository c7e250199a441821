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
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.readers.csv_table import Item, Progress
from retrievers.ingest.readers.file_readers import (
    PLAIN,
    READERS,
    item_from_message,
    read_json_lines,
    read_source,
    reject_on_error,
)
from retrievers.ingest.readers.record import MAX_ID_CHARACTERS, MAX_REASON_CHARACTERS, read_record, rejected_item
from retrievers.ingest.readers.schema_file import schema_of
from retrievers.ingest.readers.source_file import SourceFile
from retrievers.ingest.readers.text_cleaning import Cleaner, one_line, printable
from retrievers.ingest.readers.text_recognition import TextRecognition
from retrievers.sandbox import MOST_REQUESTS, CancelCheck, Sandbox, never_cancelled

__all__ = [
    "check_upload",
    "input_bytes",
    "list_entries",
    "read_paths",
    "read_record",
    "read_source_files",
    "read_upload",
]

TEXT_RECOGNITION = TextRecognition()
"""Recognises the text of scans if the setting OCR is on."""
SANDBOX = Sandbox(slots=3)
"""Reads files. A worker lets a tenant read at most two files at a time, so hostile files leave a slot to others."""
MOST_FAILURES = 10_000
"""Maximum number of bad documents in one file; the rest of the file is not read."""
_TASK = "retrievers.ingest.readers.file_readers:read_to_messages"


class UnreachablePath(RejectedItem):
    """Rejected because a path could not be examined: nobody knows which files it contains."""


@dataclass(frozen=True, slots=True)
class FileEntry:
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


def read_paths(
    paths: Sequence[Path | Literal["-"]],
    *,
    stdin: BinaryIO | None = None,
    progress: Progress | None = None,
    is_cancelled: CancelCheck = never_cancelled,
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
        is_cancelled: returns True if the caller no longer waits.
    Raises:
        Unavailable: `is_cancelled` returned True.
    """
    report = progress or (lambda _size: None)
    for path in paths:
        if isinstance(path, Path):
            found = list_entries(path)
            while window := list(islice(found, MOST_REQUESTS)):
                with ExitStack() as files:
                    yield from _read_sources([_open_entry(entry, files) for entry in window], report, is_cancelled)
        else:
            yield from reject_on_error("stdin", read_json_lines(stdin or sys.stdin.buffer, "stdin", report))


def read_upload(name: str, data: bytes, *, is_cancelled: CancelCheck = never_cancelled) -> Iterator[Item]:
    """Yield the documents of an uploaded file; bad input is yielded as a `RejectedItem`.

    The name is untrusted. Only format, id and title are taken from it, never a path on this machine.

    Args:
        is_cancelled: returns True if the caller no longer waits.
    Raises:
        BadRequest: the name is malformed or its ending unknown.
        Unavailable: `is_cancelled` returned True.
    """
    ending = check_upload(name)
    with tempfile.TemporaryFile(prefix="signalbox-") as file:
        file.write(data)
        file.seek(0)
        source = SourceFile(file, name, name, PurePosixPath(name).stem, ending, len(data))
        yield from _read_sources([source], lambda _size: None, is_cancelled)


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
    """Return the total size in bytes of the files that `read_paths` would open; standard input counts as 0."""
    entries = (entry for path in paths if isinstance(path, Path) for entry in list_entries(path))
    return sum(entry.size_bytes for entry in entries if isinstance(entry, FileEntry))


# Finding files.


def list_entries(path: Path) -> Iterator[FileEntry | RejectedItem]:
    """Yield the files at a path: the file itself, or every file in the folder. Unreadable ones are rejected."""
    where = path.as_posix()
    try:
        if path.is_dir():
            yield from _folder(path)
        elif path.suffix.lower() not in READERS and path.exists():
            known = " ".join(sorted(READERS))
            yield rejected_item(where, None, f'the ending "{path.suffix}" is unknown; known endings: {known}')
        else:
            yield _entry(path, path.name)
    except (OSError, ValueError) as error:
        yield _rejected_path(path, error)


def _folder(root: Path) -> Iterator[FileEntry | RejectedItem]:
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
                found: FileEntry | RejectedItem = rejected_item(path.as_posix(), None, reason)
            else:
                found = _entry(path, path.relative_to(root).as_posix())
        except (OSError, ValueError) as error:
            found = _rejected_path(path, error)
        empty = False
        yield found
    if empty:
        yield rejected_item(
            root.as_posix(), None, f"no file to read in this folder; known endings: {' '.join(sorted(READERS))}"
        )


def _entry(path: Path, id: str) -> FileEntry | RejectedItem:
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        return rejected_item(
            path.as_posix(), None, "a link to a folder, which is not followed; give that folder itself"
        )
    if not stat.S_ISREG(status.st_mode):
        return rejected_item(path.as_posix(), None, "not a regular file")
    return FileEntry(path, printable(path.as_posix()), Cleaner().clean_text(id), path.stem, status.st_size)


def _rejected_path(path: Path, error: OSError | ValueError) -> RejectedItem:
    why = rejected_item(path.as_posix(), None, open_error(path, error))
    is_gone = isinstance(error, FileNotFoundError)
    return why if is_gone else UnreachablePath(why.where, why.id, why.reason, why.readers)


def open_error(path: Path, error: OSError | ValueError) -> str:
    """Return in one line why a file can't be opened."""
    if isinstance(error, FileNotFoundError):
        return "a broken link: what it points to does not exist" if path.is_symlink() else "does not exist"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    return f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else "not a valid path"


# Reading files.


def _open_entry(entry: FileEntry | RejectedItem, files: ExitStack) -> SourceFile | RejectedItem:
    if isinstance(entry, RejectedItem):
        return entry
    try:
        file = files.enter_context(entry.path.open("rb"))
    except OSError as error:
        return rejected_item(entry.where, None, open_error(entry.path, error))
    return SourceFile(file, entry.where, entry.id, entry.title, entry.path.suffix.lower(), entry.size_bytes)


def _read_sources(
    sources: Sequence[SourceFile | RejectedItem], report: Progress, is_cancelled: CancelCheck
) -> Iterator[Item]:
    """Yield the documents of files, in order."""
    # Closed at once: otherwise the traceback of an error would keep it open, and a slot of the sandbox with it.
    with closing(read_source_files([one for one in sources if isinstance(one, SourceFile)], is_cancelled)) as answers:
        for one in sources:
            if isinstance(one, RejectedItem):
                yield one
            else:
                yield from _report_progress(one, next(answers)[1], report)


def read_source_files(
    sources: Sequence[SourceFile], is_cancelled: CancelCheck = never_cancelled
) -> Generator[tuple[SourceFile, Iterator[tuple[int, Item]]], None, None]:
    """Yield each file with its documents, as (file, iterator of (bytes consumed since the last document, document)).

    All formats but plain text are read in the sandbox.

    Args:
        sources: at most `MOST_REQUESTS` files. Take all documents of one file before the next file.
        is_cancelled: returns True if the caller no longer waits.
    """
    if TEXT_RECOGNITION.languages:
        # One at a time, so that no process waits with another file while text is recognised.
        for one in sources:
            yield one, read_source(one) if one.ending in PLAIN else _read_with_recognition(one, is_cancelled)
        return
    parsed = [one for one in sources if one.ending not in PLAIN]
    with closing(
        SANDBOX.run(_TASK, [(one.file, _task_arguments(one)) for one in parsed], is_cancelled=is_cancelled)
    ) as answers:
        for one in sources:
            yield one, read_source(one) if one.ending in PLAIN else _read_messages(one, next(answers))


def _read_one(source: SourceFile, is_cancelled: CancelCheck) -> Iterator[tuple[int, Item]]:
    with closing(SANDBOX.run(_TASK, [(source.file, _task_arguments(source))], is_cancelled=is_cancelled)) as answers:
        yield from _read_messages(source, next(answers))


def _read_with_recognition(source: SourceFile, is_cancelled: CancelCheck) -> Iterator[tuple[int, Item]]:
    """Yield (bytes consumed since the last item, item) for a file, with text recognition (OCR) for a PDF.

    A PDF with scanned pages is read again after the recognition, and only the second reading is yielded. If the
    recognition fails, the first reading is yielded, with why in its notes, or in its reason if it is a rejected item.
    """
    scanned: tuple[int, Item] | None = None
    for consumed, item in _read_one(source, is_cancelled):
        if source.ending == ".pdf" and item.scanned:
            scanned = consumed, item
        else:
            yield consumed, item
    if scanned is None:
        return
    consumed, item = scanned
    try:
        with TEXT_RECOGNITION.recognise(source.file, is_cancelled) as file:
            size = os.fstat(file.fileno()).st_size
            ((_, made),) = _read_one(replace(source, file=file, size_bytes=size), is_cancelled)
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


def _report_progress(source: SourceFile, items: Iterator[tuple[int, Item]], report: Progress) -> Iterator[Item]:
    """Yield the items, and call `report` with the bytes consumed. At the end, they add up to the size of the file."""
    left = source.size_bytes
    for size, item in items:
        report(size)
        left -= size
        yield item
    if left > 0:
        report(left)


def _read_messages(source: SourceFile, messages: Iterator[dict[str, Any]]) -> Iterator[tuple[int, Item]]:
    """Yield (bytes consumed since the last item, item) for each message of the process that reads the file.

    Stop after `MOST_FAILURES` rejected items.
    """
    failures = 0
    try:
        for message in messages:
            item = item_from_message(message)
            failures += isinstance(item, RejectedItem)
            if failures > MOST_FAILURES:
                reason = f"{MOST_FAILURES:,} documents before this one are invalid: the rest was not read"
                yield message["read"], RejectedItem(item.where, item.id, reason, item.readers, cut=True)
                return
            yield message["read"], item
    except BadDocument as error:
        yield 0, rejected_item(source.where, None, str(error), cut=True)


def _task_arguments(source: SourceFile) -> dict[str, Any]:
    return {field.name: getattr(source, field.name) for field in fields(source) if field.name != "file"}
