"""Paths to documents: one reader per file form, each item a Document or a Rejected with the reason."""

import functools
import os
import re
import stat
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal

import yaml

from retrievers.core.errors import BadDocument, BadRequest
from retrievers.core.extras import install_command
from retrievers.ingest.clean import Cleaner, decode, is_utf_16, kind, printable
from retrievers.ingest.documents import Rejected
from retrievers.ingest.html import declared_charset, read_page
from retrievers.ingest.json_text import parse_json
from retrievers.ingest.record import MAX_ID_CHARACTERS, build_document, read_record, rejected
from retrievers.ingest.schema import schema_of
from retrievers.ingest.table import MAX_LINE_BYTES, Item, Progress, read_table

__all__ = ["check_upload", "input_bytes", "read", "read_record", "read_upload"]

MAX_WHOLE_FILE_BYTES = 256 << 20
"""Of forms that are read in one piece; JSONL and CSV may be of any size."""

_SIGNATURES = {".pdf": b"%PDF-", ".docx": b"PK\x03\x04"}
_SIGNATURE_WITHIN_BYTES = 1024
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r" {0,3}(```|~~~)")
_FIRST_LEVEL_HEADING = re.compile(r" {0,3}#[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*")


@dataclass(frozen=True, slots=True)
class _Source:
    """A file to read.

    Attributes:
        where: its path as given, for messages.
        id: what its document is called when it does not say so itself.
        title: the same for its title.
    """

    path: Path
    where: str
    id: str
    title: str
    size_bytes: int

    @property
    def ending(self) -> str:
        return self.path.suffix.lower()


def read(
    paths: Sequence[Path | Literal["-"]],
    *,
    stdin: BinaryIO | None = None,
    progress: Progress | None = None,
) -> Iterator[Item]:
    """Documents of files and folders, one at a time, in the order of the paths.

    Folders are searched recursively, in the order of their paths; hidden entries, files of other forms and
    the folder's own schema file are passed over, links to folders are not followed. Bad input never raises:
    it comes out as a Rejected, and the items after it follow.

    Args:
        paths: files, folders, or "-" for JSON Lines on standard input.
        stdin: read for "-"; the process's standard input by default.
        progress: called with the bytes consumed since its last call, `input_bytes` in total for files.
    """
    report = progress or (lambda _size: None)
    for path in paths:
        if isinstance(path, Path):
            for source in _sources(path):
                if isinstance(source, Rejected):
                    yield source
                else:
                    yield from _read_file(source, report)
        else:
            yield from _guarded("stdin", _read_json_lines(stdin or sys.stdin.buffer, "stdin", report))


def read_upload(name: str, data: bytes) -> Iterator[Item]:
    """Documents of a file that came by its name and content; bad input comes out as a Rejected.

    The name is data: it gives the ending, the id and the title, and nothing on this machine is called by it.

    Raises:
        BadRequest: no file that is read here can have this name.
    """
    ending = check_upload(name)
    # Only their paths open tables and PDF files.
    with tempfile.NamedTemporaryFile(prefix="signalbox-", suffix=ending) as file:
        file.write(data)
        file.flush()
        source = _Source(Path(file.name), name, name, PurePosixPath(name).stem, len(data))
        for item in _read_file(source, lambda _size: None):
            # What a converter says of a damaged file may name its path.
            yield replace(item, reason=item.reason.replace(file.name, name)) if isinstance(item, Rejected) else item


def check_upload(name: str) -> str:
    """The ending of a file's name.

    Raises:
        BadRequest: no file that is read here can have this name.
    """
    if not name or len(name) > MAX_ID_CHARACTERS or not name.isprintable():
        raise BadRequest(f"a file's name has 1 to {MAX_ID_CHARACTERS} printable characters", where="name")
    ending = PurePosixPath(name).suffix.lower()
    if ending not in _READERS:
        raise BadRequest(
            f'the ending "{ending}" is not known; these are: {" ".join(sorted(_READERS))}',
            where="name",
            valid=sorted(_READERS),
        )
    return ending


def input_bytes(paths: Sequence[Path | Literal["-"]]) -> int:
    """Size in bytes of all files that `read` would open; standard input counts as 0."""
    sources = (source for path in paths if isinstance(path, Path) for source in _sources(path))
    return sum(source.size_bytes for source in sources if isinstance(source, _Source))


# Finding files.


def _sources(path: Path) -> Iterator[_Source | Rejected]:
    """The files behind a path named explicitly."""
    where = path.as_posix()
    try:
        if path.is_dir():
            yield from _folder(path)
        elif path.suffix.lower() not in _READERS and path.exists():
            known = " ".join(sorted(_READERS))
            yield rejected(where, None, f'the ending "{path.suffix}" is not known; these are: {known}')
        else:
            yield _source(path, path.name)
    except (OSError, ValueError) as error:
        yield rejected(where, None, _cannot_open(path, error))


def _folder(root: Path) -> Iterator[_Source | Rejected]:
    """The files in a folder, sorted by path; entries that cannot be followed are rejected one by one."""
    waiting = [(root, True)]
    schema = schema_of(root)
    empty = True
    while waiting:
        path, is_folder = waiting.pop()
        try:
            if is_folder:
                with os.scandir(path) as entries:
                    seen = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
                # A folder sorts as if its name ended in the slash that follows it in every path.
                seen.sort(key=lambda entry: entry[0] + "/" * entry[1], reverse=True)
                waiting += [(path / name, is_inner) for name, is_inner in seen if not name.startswith(".")]
                continue
            if path == schema or (not stat.S_ISDIR(path.stat().st_mode) and path.suffix.lower() not in _READERS):
                continue
            found = _source(path, path.relative_to(root).as_posix())
        except (OSError, ValueError) as error:
            found = rejected(path.as_posix(), None, _cannot_open(path, error))
        empty = False
        yield found
    if empty:
        yield rejected(root.as_posix(), None, f"no file to read in this folder; endings: {' '.join(sorted(_READERS))}")


def _source(path: Path, id: str) -> _Source | Rejected:
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        return rejected(path.as_posix(), None, "a link to a folder, which is not followed; name that folder itself")
    if not stat.S_ISREG(status.st_mode):
        return rejected(path.as_posix(), None, "not a regular file")
    return _Source(path, printable(path.as_posix()), Cleaner().text(id), path.stem, status.st_size)


def _cannot_open(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "a broken link: what it points to does not exist" if path.is_symlink() else "does not exist"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    return f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else "not a possible path"


# Reading files.


def _read_file(source: _Source, report: Progress) -> Iterator[Item]:
    counted = 0

    def count(size: int) -> None:
        nonlocal counted
        counted += size
        report(size)

    yield from _guarded(source.where, _READERS[source.ending](source, count), source.path)
    # What is read in one piece, or was given up, is reported here.
    if counted < source.size_bytes:
        report(source.size_bytes - counted)


def _guarded(where: str, items: Iterator[Item], path: Path | None = None) -> Iterator[Item]:
    """Items up to the first error that concerns the whole file, and then that error."""
    try:
        yield from items
    except BadDocument as error:
        yield rejected(where, None, str(error))
    except UnicodeDecodeError:
        yield rejected(where, None, "it changed while it was read; the rest of the file was not read")
    except OSError as error:
        yield rejected(where, None, _cannot_open(path or Path(where), error))


def _bytes_of(source: _Source) -> bytes:
    with source.path.open("rb") as file:
        data = file.read(MAX_WHOLE_FILE_BYTES + 1)
    if len(data) > MAX_WHOLE_FILE_BYTES:
        raise BadDocument(f"larger than {MAX_WHOLE_FILE_BYTES >> 20} MB; split it, or use JSON Lines (.jsonl) or CSV")
    return data


def _text_of(data: bytes, *, declared: str | None = None) -> tuple[str, tuple[str, ...]]:
    """The text of a whole file, and notes about its encoding."""
    text, notes = decode(data, declared=declared)
    if not text.strip():
        raise BadDocument("the file is empty")
    return text, notes


def _read_plain(source: _Source, _count: Progress) -> Iterator[Item]:
    text, notes = _text_of(_bytes_of(source))
    yield build_document({}, source.where, text=text, id=source.id, title=source.title, notes=notes)


def _read_markdown(source: _Source, _count: Progress) -> Iterator[Item]:
    text, notes = _text_of(_bytes_of(source))
    cleaner = Cleaner()
    front, body = _front_matter(cleaner.text(text))
    # Tags are key terms chosen by the author; they stay metadata as well, to filter by.
    tags = front.get("tags")
    if isinstance(tags, list):
        tags = [tag for tag in tags if isinstance(tag, str)]
    if isinstance(tags, list | str):
        front = {"important": tags, **front}
    title = _first_heading(body) or source.title
    yield build_document(front, source.where, text=body, id=source.id, title=title, notes=notes, cleaner=cleaner)


def _front_matter(text: str) -> tuple[dict[Any, Any], str]:
    """The YAML at the start of a Markdown text, and the rest of the text.

    Raises:
        BadDocument: no valid YAML, or no mapping.
    """
    found = _FRONT_MATTER.match(text)
    if not found:
        return {}, text
    try:
        front = yaml.safe_load(found[1])
    # Besides YAMLError, PyYAML lets through what converting a value raises (ValueError for the date
    # 2024-02-31, KeyError for "!!bool maybe", RecursionError, and others).
    except Exception as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 2}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise BadDocument(f"the front matter is not valid YAML{place}: {problem}") from error
    if front is None:
        front = {}
    if not isinstance(front, dict):
        raise BadDocument(f'the front matter is {kind(front)}; it must be lines like "title: ..."')
    return front, text[found.end() :]


def _first_heading(text: str) -> str:
    """The first "# ..." line outside code."""
    fence = ""
    for line in text.split("\n"):
        if opened := _FENCE.match(line):
            fence = opened[1] if not fence else "" if opened[1] == fence else fence
        elif not fence and (heading := _FIRST_LEVEL_HEADING.fullmatch(line)) and heading[1]:
            return heading[1]
    return ""


def _read_html(source: _Source, _count: Progress) -> Iterator[Item]:
    data = _bytes_of(source)
    text, notes = _text_of(data, declared=declared_charset(data))
    cleaner = Cleaner()
    page = read_page(cleaner.text(text))
    if not page.text:
        raise BadDocument("no visible text in this page")
    title = page.title or source.title
    yield build_document(
        page.metadata, source.where, text=page.text, id=source.id, title=title, notes=notes, cleaner=cleaner
    )


def _read_converted(source: _Source, _count: Progress) -> Iterator[Item]:
    """PDF and DOCX, by the optional package markitdown."""
    if not source.size_bytes:
        raise BadDocument("the file is empty")
    with source.path.open("rb") as file:
        # The converter guesses by content, and would take a file that is neither for plain text.
        if _SIGNATURES[source.ending] not in file.read(_SIGNATURE_WITHIN_BYTES):
            raise BadDocument(f"damaged, or not a {source.ending} file")
    if source.ending == ".docx":
        _check_unpacked(source)
    try:
        convert = _converter()
    except ImportError as error:
        raise BadDocument(f"reading {source.ending} needs: {install_command('docs')}") from error
    try:
        text = convert(source.path).text_content
    # Damaged and protected files make the parsers behind it raise almost anything.
    except Exception as error:
        raise BadDocument(f"cannot be converted to text: {str(error) or type(error).__name__}") from error
    if isinstance(text, str) and text.lstrip().startswith("%PDF-"):
        raise BadDocument(f"damaged, or not a {source.ending} file")
    if not isinstance(text, str) or not text.strip():
        raise BadDocument("no text in it; if its pages are pictures, run text recognition (OCR) first")
    yield build_document({}, source.where, text=text, id=source.id, title=source.title)


def _check_unpacked(source: _Source) -> None:
    """A few kilobytes can unpack to more than the memory holds; nothing unpacks to more than its archive says."""
    try:
        with zipfile.ZipFile(source.path) as archive:
            size = sum(part.file_size for part in archive.infolist())
    # Damaged archives make it raise almost anything; the converter will say so.
    except Exception:
        return
    if size > MAX_WHOLE_FILE_BYTES:
        raise BadDocument(f"it unpacks to more than {MAX_WHOLE_FILE_BYTES >> 20} MB; split it")


@functools.cache
def _converter() -> Callable[[Path], Any]:
    from markitdown import MarkItDown

    convert: Callable[[Path], Any] = MarkItDown().convert
    return convert


# JSON.


def _read_json(source: _Source, _count: Progress) -> Iterator[Item]:
    """One object, or a list of objects."""
    text, notes = _text_of(_bytes_of(source))
    try:
        content = parse_json(text)
    except BadDocument as error:
        hint = "; one object per line? Then name it .jsonl" if "Extra data" in str(error) else ""
        raise BadDocument(f"{error}{hint}") from None
    if isinstance(content, list):
        if not content:
            raise BadDocument("an empty list: no documents in it")
        for index, record in enumerate(content):
            yield read_record(record, f"{source.where}[{index}]", notes=notes)
    elif isinstance(content, dict):
        yield read_record(content, source.where, notes=notes)
    else:
        raise BadDocument(f"{kind(content)} where an object or a list of objects was expected")


def _read_json_lines_file(source: _Source, count: Progress) -> Iterator[Item]:
    with source.path.open("rb") as file:
        yield from _read_json_lines(file, source.where, count)


def _read_json_lines(stream: BinaryIO, where: str, count: Progress) -> Iterator[Item]:
    empty = True
    for number, (size, line) in enumerate(_lines(stream), 1):
        count(size)
        if line.strip():
            empty = False
            yield _json_line(line, f"{where}:{number}", number)
    if empty:
        raise BadDocument("the input is empty" if where == "stdin" else "the file is empty")


def _json_line(line: bytes, where: str, number: int) -> Item:
    try:
        if len(line.rstrip(b"\r\n")) > MAX_LINE_BYTES:
            raise BadDocument(f"the line is longer than {MAX_LINE_BYTES >> 20} MB")
        text, notes = decode(line, of="line")
        return read_record(parse_json(text, number), where, notes=notes)
    except BadDocument as error:
        return rejected(where, None, str(error))


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The size in bytes and the content of each line, which is cut when it is over the limit."""
    line = stream.readline(MAX_LINE_BYTES + 1)
    if is_utf_16(line):
        # Only old Windows shells write this, so it need not be read piece by piece.
        data = line + stream.read(MAX_WHOLE_FILE_BYTES)
        if len(data) > MAX_WHOLE_FILE_BYTES:
            raise BadDocument(f"UTF-16 and larger than {MAX_WHOLE_FILE_BYTES >> 20} MB; save it as UTF-8")
        for index, text in enumerate(decode(data)[0].split("\n")):
            yield 0 if index else len(data), text.encode()
        return
    while line:
        size, last = len(line), line
        while len(line) > MAX_LINE_BYTES and not last.endswith(b"\n") and (last := stream.readline(MAX_LINE_BYTES)):
            size += len(last)
        yield size, line
        line = stream.readline(MAX_LINE_BYTES + 1)


def _read_table(source: _Source, count: Progress) -> Iterator[Item]:
    return read_table(source.path, source.where, count)


_READERS: Mapping[str, Callable[[_Source, Progress], Iterator[Item]]] = {
    **dict.fromkeys((".jsonl", ".ndjson"), _read_json_lines_file),
    ".json": _read_json,
    **dict.fromkeys((".csv", ".tsv"), _read_table),
    **dict.fromkeys((".md", ".markdown"), _read_markdown),
    **dict.fromkeys((".html", ".htm"), _read_html),
    **dict.fromkeys((".txt", ".text", ".log", ".rst"), _read_plain),
    **dict.fromkeys((".pdf", ".docx"), _read_converted),
}
"""A reader per ending: yields items, raises BadDocument or OSError for what concerns the whole file."""
