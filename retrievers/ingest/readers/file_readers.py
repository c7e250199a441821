"""Read files of each format: one reader per file name ending turns an open file into documents.

Files are untrusted, and may keep a parser busy or exhaust memory. So `file_input` runs the readers in
a process with limits (`retrievers.sandbox`); only plain text is read outside it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from datetime import datetime
from typing import Any, BinaryIO

from retrievers.core.errors import BadDocument
from retrievers.core.file_positions import positions_from_json
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.readers.csv_table import MAX_LINE_BYTES, Item, Progress, read_table
from retrievers.ingest.readers.front_matter import read_front_matter
from retrievers.ingest.readers.html import declared_charset, read_page
from retrievers.ingest.readers.json_text import parse_json
from retrievers.ingest.readers.office_readers import (
    MAX_WHOLE_FILE_BYTES,
    read_mail_documents,
    read_pdf_document,
    read_slides_document,
    read_whole_file,
    read_word_document,
    read_workbook_documents,
)
from retrievers.ingest.readers.record import MAX_TEXT_CHARACTERS, build_document, read_record, rejected_item
from retrievers.ingest.readers.source_file import SourceFile
from retrievers.ingest.readers.text_cleaning import Cleaner, decode_text, is_utf_16, json_type
from retrievers.text.chunking import markdown_title
from retrievers.text.prompt_sanitising import is_blank

MAX_PLAIN_BYTES = 4 * MAX_TEXT_CHARACTERS
"""Maximum size of a plain text file in bytes; a character takes at most four."""

_FENCE = re.compile(r" {0,3}(```|~~~)")
_FIRST_LEVEL_HEADING = re.compile(r" {0,3}#(?=[ \t])")


def read_source(source: SourceFile) -> Iterator[tuple[int, Item]]:
    """Yield the documents of a file as (number of bytes consumed since the previous document, document).

    The number is 0 for a format that is read as a whole. An error that concerns the whole file is yielded last, as a
    `RejectedItem`.
    """
    consumed = 0

    def count(size: int) -> None:
        nonlocal consumed
        consumed += size

    for item in reject_on_error(source.where, READERS[source.ending](source, count)):
        yield consumed, item
        consumed = 0


def reject_on_error(where: str, items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items; an error that concerns the whole file is yielded last, as a `RejectedItem`.

    Args:
        where: path of the file, for messages.
    """
    try:
        yield from items
    except BadDocument as error:
        yield rejected_item(where, None, str(error), cut=True)
    except UnicodeDecodeError:
        yield rejected_item(where, None, "it changed while it was read; the rest of the file was not read", cut=True)
    except OSError as error:
        yield rejected_item(where, None, f"cannot be read: {error.strerror or error}", cut=True)


# Between processes.


def read_to_messages(
    file: BinaryIO, *, where: str, id: str, title: str, ending: str, size_bytes: int
) -> Iterator[dict[str, Any]]:
    """Run `read_source` as a task of `retrievers.sandbox`; yield its items as JSON messages."""
    for consumed, item in read_source(SourceFile(file, where, id, title, ending, size_bytes)):
        yield message_from_item(item) | {"read": consumed}


_DEFAULTS = {
    kind: {one.name: one.default if one.default_factory is MISSING else one.default_factory() for one in fields(kind)}
    for kind in (Document, RejectedItem)
}
"""Default of each attribute, MISSING if it has none."""


def message_from_item(item: Item) -> dict[str, Any]:
    """Return a document or rejected item as a JSON object, from which `item_from_message` makes an equal item.

    Attributes that have their default are left out: a file may have very many short documents.
    """
    # Metadata are JSON values already; `asdict` would copy them all.
    message: dict[str, Any] = {
        name: value for name, default in _DEFAULTS[type(item)].items() if (value := getattr(item, name)) != default
    }
    if isinstance(item, Document) and item.expires_at is not None:
        message["expires_at"] = item.expires_at.isoformat()
    if isinstance(item, Document) and item.places is not None:
        message["places"] = item.places.to_json()
    return {"document" if isinstance(item, Document) else "rejected": message}


def item_from_message(message: Mapping[str, Any]) -> Item:
    """Return the item of a message from `message_from_item`."""
    is_document = "document" in message
    given = dict(message["document" if is_document else "rejected"])
    for name in given.keys() & {"important", "questions", "readers", "notes"}:
        given[name] = tuple(given[name])
    if "expires_at" in given:
        given["expires_at"] = datetime.fromisoformat(given["expires_at"])
    if "places" in given:
        given["places"] = positions_from_json(given["places"])
    return Document(**given) if is_document else RejectedItem(**given)


# One reader per format.


def _decode_file(data: bytes, *, declared: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Return the text of a whole file, and notes for its documents if the encoding was guessed.

    Args:
        declared: the character set that the file itself states.
    """
    text, notes = decode_text(data, declared=declared)
    if is_blank(text):
        raise BadDocument("the file is empty")
    return text, notes


def _read_plain(source: SourceFile, _count: Progress) -> Iterator[Item]:
    data = source.file.read(MAX_PLAIN_BYTES + 1)
    if len(data) > MAX_PLAIN_BYTES:
        raise BadDocument(f"it has more than {MAX_TEXT_CHARACTERS:,} characters, the limit of a text: split it")
    text, notes = _decode_file(data)
    yield build_document({}, source.where, text=text, id=source.id, title=source.title, notes=notes)


def _read_markdown(source: SourceFile, _count: Progress) -> Iterator[Item]:
    text, notes = _decode_file(read_whole_file(source))
    cleaner = Cleaner()
    front, body = read_front_matter(cleaner.clean_text(text))
    # Tags are used as key terms, and also stay in the metadata for filters.
    tags = front.get("tags")
    if isinstance(tags, list):
        tags = [tag for tag in tags if isinstance(tag, str)]
    if isinstance(tags, list | str):
        front = {"important": tags, **front}
    title = _first_heading(body) or source.title
    yield build_document(front, source.where, text=body, id=source.id, title=title, notes=notes, cleaner=cleaner)


def _first_heading(text: str) -> str:
    """Return the text of the first "# ..." line outside code; "" if there is none."""
    fence = ""
    for line in text.split("\n"):
        if opened := _FENCE.match(line):
            fence = opened[1] if not fence else "" if opened[1] == fence else fence
        elif (
            not fence
            and (opened := _FIRST_LEVEL_HEADING.match(line))
            and (title := markdown_title(line[opened.end() :]))
        ):
            return title
    return ""


def _read_html(source: SourceFile, _count: Progress) -> Iterator[Item]:
    data = read_whole_file(source)
    text, notes = _decode_file(data, declared=declared_charset(data))
    cleaner = Cleaner()
    page = read_page(cleaner.clean_text(text))
    if is_blank(page.text):
        raise BadDocument("no visible text in this page")
    title = page.title or source.title
    yield build_document(
        page.metadata, source.where, text=page.text, id=source.id, title=title, notes=notes, cleaner=cleaner
    )


# JSON.


def _read_json(source: SourceFile, _count: Progress) -> Iterator[Item]:
    """Yield the documents of a JSON file, which contains one object or a list of objects."""
    text, notes = _decode_file(read_whole_file(source))
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
        raise BadDocument(f"{json_type(content)} where an object or a list of objects was expected")


def _read_json_lines(source: SourceFile, count: Progress) -> Iterator[Item]:
    yield from read_json_lines(source.file, source.where, count)


def read_json_lines(stream: BinaryIO, where: str, count: Progress) -> Iterator[Item]:
    """Yield one document per line of a stream of JSON Lines, which may be endless.

    Args:
        where: name of the stream, for messages.
        count: called with the bytes consumed.
    """
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
        text, notes = decode_text(line, of="line")
        return read_record(parse_json(text, number), where, notes=notes)
    except BadDocument as error:
        return rejected_item(where, None, str(error))


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield (size in bytes, content) of each line. The content of a line over `MAX_LINE_BYTES` is cut."""
    line = stream.readline(MAX_LINE_BYTES + 1)
    if is_utf_16(line):
        # Only old Windows shells write UTF-16, so it is read at once.
        data = line + stream.read(MAX_WHOLE_FILE_BYTES)
        if len(data) > MAX_WHOLE_FILE_BYTES:
            raise BadDocument(f"UTF-16 and larger than {MAX_WHOLE_FILE_BYTES >> 20} MB; save it as UTF-8")
        for index, text in enumerate(decode_text(data)[0].split("\n")):
            yield 0 if index else len(data), text.encode()
        return
    while line:
        size, last = len(line), line
        while len(line) > MAX_LINE_BYTES and not last.endswith(b"\n") and (last := stream.readline(MAX_LINE_BYTES)):
            size += len(last)
        yield size, line
        line = stream.readline(MAX_LINE_BYTES + 1)


def _read_mail(source: SourceFile, _count: Progress) -> Iterator[Item]:
    return read_mail_documents(source, READERS)


def _read_table(source: SourceFile, count: Progress) -> Iterator[Item]:
    return read_table(source.file, source.ending, source.where, count)


READERS: Mapping[str, Callable[[SourceFile, Progress], Iterator[Item]]] = {
    **dict.fromkeys((".jsonl", ".ndjson"), _read_json_lines),
    ".json": _read_json,
    **dict.fromkeys((".csv", ".tsv"), _read_table),
    **dict.fromkeys((".md", ".markdown"), _read_markdown),
    **dict.fromkeys((".html", ".htm"), _read_html),
    **dict.fromkeys((".txt", ".text", ".log", ".rst"), _read_plain),
    ".pdf": read_pdf_document,
    ".docx": read_word_document,
    ".pptx": read_slides_document,
    ".xlsx": read_workbook_documents,
    ".eml": _read_mail,
}
"""File name ending to reader. A reader yields items. Errors that concern the whole file are BadDocument or OSError."""
PLAIN = frozenset({".txt", ".text", ".log", ".rst"})
"""Endings of files that are read without a parser."""
