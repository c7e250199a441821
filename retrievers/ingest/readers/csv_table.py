"""Read CSV and TSV: a header with the names of the columns, and one document per row."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, TextIO

from retrievers.core.errors import BadDocument
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.readers.json_text import parse_json
from retrievers.ingest.readers.record import MAX_TEXT_CHARACTERS, TEXT_KEYS, read_record, rejected_item
from retrievers.ingest.readers.text_cleaning import detect_encoding, encoding_notes

Item = Document | RejectedItem
Progress = Callable[[int], None]
"""Called with the number of bytes consumed since the last call."""

MAX_LINE_BYTES = 16 << 20

_WORDS = frozenset({"id", "_id", "title", "url", "important", "questions", "expires_at", *TEXT_KEYS})
"""CSV columns whose cells always stay text."""
_FLAGS = frozenset({"public", "enabled"})
_YES_NO = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_CSV_SAMPLE_CHARACTERS = 1 << 16
# At most 18 and 15 digits. Longer numbers are card or serial numbers, or would lose precision as doubles.
_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})", re.ASCII)
_DECIMAL = re.compile(r"-?(?:0|[1-9]\d{0,8})\.\d{1,6}", re.ASCII)


def read_table(file: BinaryIO, ending: str, shown: str, count: Progress) -> Iterator[Item]:
    """Yield the rows below the header as documents. `where` of each has the number of the line on which it begins.

    Args:
        ending: ending of the file's name, which determines the default delimiter.
        shown: the file's path for messages.
        count: called with the number of bytes consumed.
    Raises:
        BadDocument: an error that concerns the whole file.
    """
    encoding = detect_encoding(file)
    notes = encoding_notes(encoding)
    with io.TextIOWrapper(file, encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline="") as text:
        sample = next((line for line in text.read(_CSV_SAMPLE_CHARACTERS).splitlines() if line.strip()), "")
        if not sample:
            raise BadDocument("the file is empty")
        text.seek(0)
        default = "\t" if ending == ".tsv" else ","
        # Strict: otherwise an open quote would silently turn the rest of the file into one cell.
        rows = csv.reader(_bounded_lines(text), delimiter=_delimiter(sample, default), strict=True)
        columns: list[str] = []
        counted, line = 0, 1
        empty = True
        while (row := _next_row(rows)) is not None:
            where, line = f"{shown}:{line}", rows.line_num + 1
            count(file.tell() - counted)
            counted = file.tell()
            if not columns and isinstance(row, BadDocument):
                raise row
            if isinstance(row, list) and not any(cell.strip() for cell in row):
                continue
            if not columns and isinstance(row, list):
                columns = _columns(row)
                continue
            empty = False
            yield _read_row(row, columns, where, notes)
        if empty:
            raise BadDocument("no rows below the header")


def _bounded_lines(text: TextIO) -> Iterator[str]:
    while line := text.readline(MAX_LINE_BYTES):
        if len(line) == MAX_LINE_BYTES:
            raise csv.Error(f"a line is longer than {MAX_LINE_BYTES >> 20} MB, so the rest of the file was not read")
        yield line


def _delimiter(header: str, default: str) -> str:
    """Return the delimiter that splits off a text column in the header, or else the one that makes most columns.

    Args:
        header: first line of the file.
        default: the delimiter if others do no better.
    """

    def columns(delimiter: str) -> tuple[bool, int]:
        names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter), [])]
        return any(key in names for key in TEXT_KEYS), len(names)

    return max((default, ",", ";", "\t"), key=columns)


def _next_row(rows: Iterator[list[str]]) -> list[str] | BadDocument | None:
    """Return the next row, or the error in it; None after the last row."""
    # The limit applies to the whole process, so it is set back afterwards.
    limit = csv.field_size_limit(MAX_TEXT_CHARACTERS)
    try:
        row = next(rows, None)
    except csv.Error as error:
        if "field larger" in str(error):
            return BadDocument(f'a cell has over {MAX_TEXT_CHARACTERS:,} characters; is a quote (") left open?')
        return BadDocument(f'malformed CSV: {error}; check its quotes (")')
    finally:
        csv.field_size_limit(limit)
    if row is not None and any("\0" in cell for cell in row):
        return BadDocument("a NUL character; if the file is UTF-16, save it as UTF-8")
    return row


def _columns(header: list[str]) -> list[str]:
    names = [name.strip() for name in header]
    if not any(key in names for key in TEXT_KEYS):
        found = ", ".join(f'"{name}"' for name in names)
        raise BadDocument(f'no column "text" (nor "content" or "body") in the first row, the header: {found}')
    return [name or f"column_{number}" for number, name in enumerate(names, 1)]


def _read_row(row: list[str] | BadDocument, columns: list[str], where: str, notes: tuple[str, ...]) -> Item:
    if isinstance(row, BadDocument):
        return rejected_item(where, None, str(row), cut=True)  # an open quote makes all following rows part of this one
    if len(row) > len(columns):
        return rejected_item(where, None, f"{len(row)} cells, but the header has {len(columns)} columns")
    cells = {name: cell for name, cell in zip(columns, row, strict=False) if cell.strip()}
    try:
        record = {name: _cell(name, cell) for name, cell in cells.items()}
    except BadDocument as error:
        return rejected_item(where, None, str(error))
    return read_record(record, where, notes=notes)


def typed_cell(name: str, cell: object) -> object:
    """Return the JSON value of a cell of an Excel sheet, which has a type of its own: the text "12" stays text.

    Columns with a reserved name have the same types as in CSV, see `_cell`.
    """
    if isinstance(cell, str):
        return _cell(name, cell) if name in _WORDS or name in _FLAGS or name == "metadata" else cell
    return str(cell) if name in _WORDS else cell


def _cell(name: str, cell: str) -> object:
    """Convert the text of a CSV cell to a JSON value.

    Columns with a reserved name have a fixed type: text, JSON (`metadata`) or boolean (`public`, `enabled`). A cell of
    any other column becomes a boolean or number if its text is written as one, or else stays text.

    Raises:
        BadDocument: a cell of `metadata` is no valid JSON, or one of `public` or `enabled` is no boolean.
    """
    if name in TEXT_KEYS:
        return cell
    plain = cell.strip()
    if name in _WORDS:
        return plain
    if name == "metadata":
        return parse_json(plain)
    if name in _FLAGS:
        if plain.lower() not in _YES_NO:
            raise BadDocument(f'"{name}" is "{plain[:40]}"; it must be true or false')
        return _YES_NO[plain.lower()]
    if plain.lower() in ("true", "false"):
        return plain.lower() == "true"
    if _INTEGER.fullmatch(plain):
        return int(plain)
    return float(plain) if _DECIMAL.fullmatch(plain) else cell
