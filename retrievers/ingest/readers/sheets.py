"""Read the rows of an Excel file as a stream, sheet by sheet."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from itertools import chain
from typing import Any, BinaryIO

from retrievers.core.errors import BadDocument
from retrievers.ingest.readers.office_properties import OfficeProperties, read_properties
from retrievers.ingest.readers.record import TEXT_KEYS
from retrievers.ingest.readers.slides import row_text

MOST_ROWS = 1_048_576
"""Maximum number of rows of a sheet: Excel's own limit. A hostile file can claim any number of empty rows."""
_PART_CHARACTERS = 1_000_000
"""Maximum length of a `SheetText`. A longer sheet becomes several."""
_HEADER_WITHIN_ROWS = 10


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One row of a sheet that has a text column: sheet name, row number from 1, and non-empty cells by column name."""

    sheet: str
    row: int
    cells: dict[str, Any]


@dataclass(slots=True)
class SheetText:
    """Rows of a sheet as text, one per line.

    Attributes:
        first_row: number of the first row, if this continues a long sheet; 0 for the beginning of a sheet.
        marks: (offset in the text, row number from 1) of each row.
    """

    sheet: str
    first_row: int = 0
    lines: list[str] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)
    characters: int = 0

    def add(self, row: int, line: str) -> None:
        self.marks.append((self.characters, row))
        self.lines.append(line)
        self.characters += len(line) + 1


class Workbook:
    """An open .xlsx file.

    Attributes:
        names: names of the visible sheets.
        hidden: number of hidden sheets.

    Raises:
        ImportError: openpyxl is not installed.
        Exception: a damaged file may raise almost anything.
    """

    def __init__(self, file: BinaryIO) -> None:
        from openpyxl import load_workbook

        self._book = load_workbook(file, read_only=True, data_only=True, keep_links=False)
        self._sheets = [one for one in self._book.worksheets if one.sheet_state == "visible"]
        self.names = tuple(" ".join(str(one.title).split()) for one in self._sheets)
        self.hidden = len(self._book.worksheets) - len(self._sheets)

    @property
    def properties(self) -> OfficeProperties:
        return read_properties(self._book.properties)

    def close(self) -> None:
        self._book.close()

    def read(self) -> Iterator[SheetRow | SheetText]:
        """Yield the content of all visible sheets.

        The header of a sheet, which contains the column names, is the first row with several distinct cells, all text,
        among the first ten non-empty rows. If it is the very first and contains the name of a text column, as in CSV,
        the sheet yields a `SheetRow` per row. Any other sheet yields a `SheetText` with one line per row.
        """
        for name, sheet in zip(self.names, self._sheets, strict=True):
            sheet.reset_dimensions()  # drop the size that the file claims
            yield from _read(name, _rows(sheet))


def _rows(sheet: Any) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield (row number from 1, cells) of each non-empty row."""
    for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
        if number > MOST_ROWS:
            raise BadDocument(f"a sheet has more than {MOST_ROWS:,} rows")
        if any(_shown(cell) for cell in row):
            yield number, row


def _read(name: str, rows: Iterator[tuple[int, Sequence[Any]]]) -> Iterator[SheetRow | SheetText]:
    before: list[tuple[int, Sequence[Any]]] = []
    header: list[str] = []
    header_row = 0
    for number, row in rows:
        if _is_header(row):
            header, header_row = [_shown(cell) for cell in row], number
            break
        before.append((number, row))
        if len(before) == _HEADER_WITHIN_ROWS:
            break
    if not before and any(key in header for key in TEXT_KEYS):
        columns = [one or f"column_{n}" for n, one in enumerate(header, 1)]
        for number, row in rows:
            yield SheetRow(name, number, {key: cell for key, cell in zip(columns, row, strict=False) if _shown(cell)})
        return
    part = SheetText(name)
    named = chain(((number, row, []) for number, row in before), ((number, row, header) for number, row in rows))
    for number, row, names in named:
        line = row_text(names, [_shown(cell) for cell in row])
        if part.characters and part.characters + len(line) > _PART_CHARACTERS:
            yield part
            part = SheetText(name, number)
        part.add(number, line)
    if not part.lines and header:
        part.add(header_row, "; ".join(filter(None, header)))
    if part.lines:
        yield part


def _is_header(row: Sequence[Any]) -> bool:
    cells = [cell for cell in row if _shown(cell)]
    return len(cells) > 1 and all(isinstance(cell, str) for cell in cells) and len(set(cells)) == len(cells)


def _shown(cell: Any) -> str:
    """Return a cell as text: whole numbers without a decimal point, dates without a midnight time; "" if empty."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 1e15 else repr(cell)
    if isinstance(cell, datetime):
        return cell.date().isoformat() if cell.time() == time() else cell.isoformat(" ", "seconds")
    if isinstance(cell, date | time):
        return cell.isoformat()
    return " ".join(str(cell).split())


def json_value(cell: Any) -> Any:
    """Return a cell as a JSON value: dates and times as text."""
    return cell if isinstance(cell, bool | int | float | str) else _shown(cell)
