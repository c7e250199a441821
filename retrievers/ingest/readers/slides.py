"""Extract the text of a PowerPoint file, slide by slide."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from retrievers.core.errors import BadDocument
from retrievers.ingest.readers.office_properties import OfficeProperties, read_properties

_MOST_DEPTH = 20
"""Maximum nesting of groups of shapes."""


@dataclass(frozen=True, slots=True)
class Slides:
    """A presentation.

    Attributes:
        texts: (number from 1, text) of each visible slide.
        hidden: number of hidden slides.
    """

    properties: OfficeProperties
    texts: tuple[tuple[int, str], ...]
    hidden: int


def read_slides(file: BinaryIO) -> Slides:
    """Return the slides of a .pptx file: titles as headings, column names in each table row, and speaker's notes.

    Raises:
        ImportError: python-pptx is not installed.
        BadDocument: the file is another kind of Office file, or groups of shapes are nested too deeply.
        Exception: a damaged file may raise almost anything.
    """
    from pptx import Presentation

    try:
        presentation = Presentation(file)
    except ValueError as error:
        if "is not a PowerPoint file" in str(error):
            raise BadDocument("an Office file, but no presentation") from None
        raise
    texts, hidden = [], 0
    for number, slide in enumerate(presentation.slides, 1):
        if slide._element.get("show") in ("0", "false"):
            hidden += 1
        else:
            texts.append((number, "\n\n".join(_parts(slide))))
    return Slides(read_properties(presentation.core_properties), tuple(texts), hidden)


def _parts(slide: Any) -> Iterator[str]:
    title = slide.shapes.title
    if title is not None and (heading := " ".join(title.text_frame.text.split())):
        yield f"# {heading}"
    for shape in _shapes(slide.shapes, 0):
        if title is not None and shape._element is title._element:  # ids of shapes may occur twice
            continue
        if text := _text(shape):
            yield text
    if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame) and (text := _paragraphs(frame)):
        yield f"Notes:\n{text}"


def _text(shape: Any) -> str:
    if shape.has_text_frame:
        return _paragraphs(shape.text_frame)
    return _table(shape.table) if getattr(shape, "has_table", False) else ""


def _shapes(shapes: Any, depth: int) -> Iterator[Any]:
    """Yield the shapes in their order in the file; a group is replaced by the shapes in it."""
    if depth > _MOST_DEPTH:
        raise BadDocument(f"its shapes are grouped deeper than {_MOST_DEPTH} levels")
    for shape in shapes:
        inner = getattr(shape, "shapes", None)
        if inner is None:
            yield shape
        else:
            yield from _shapes(inner, depth + 1)


def _paragraphs(frame: Any) -> str:
    lines = (("  " * one.level + "- " if one.level else "") + " ".join(one.text.split()) for one in frame.paragraphs)
    return "\n".join(line for line in lines if line.strip(" -"))


def _table(table: Any) -> str:
    """Return each row of a table as a line, see `row_text`. The first row is the header if the table says so."""
    rows = [[" ".join(cell.text.split()) for cell in row.cells] for row in table.rows]
    names = rows[0] if rows and table.first_row else []
    return "\n".join(filter(None, (row_text(names, row) for row in rows[1 if names else 0 :])))


def row_text(names: list[str], cells: list[str]) -> str:
    """Return a table row as a line with the column name before each non-empty cell: "Name: Bolt; Price: 2"."""
    named = [names[n] if n < len(names) else "" for n in range(len(cells))]
    return "; ".join(f"{name}: {cell}" if name else cell for name, cell in zip(named, cells, strict=True) if cell)
