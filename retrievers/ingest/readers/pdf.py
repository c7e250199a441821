"""Extract the text of a PDF like markitdown, and also the offset of each page, which markitdown does not keep."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO, StringIO
from typing import Any, BinaryIO

_BREAK = "\x1f"
"""Marks the start of a page in the text while it is processed.

`str.strip` removes it like white space. It is replaced by a space where it occurs in the PDF itself.
"""
_EMPTY_LINES = re.compile(r"\n{3,}")
_PARTIAL_NUMBER = re.compile(r"\.\d+")


@dataclass(frozen=True, slots=True)
class PdfText:
    """The text of a PDF.

    Attributes:
        marks: (offset in the text, number from 1) of each page that has text.
        pages: number of pages.
        pictures: numbers of the pages, from 1, that contain a picture and no text.
    """

    text: str
    marks: tuple[tuple[int, int], ...]
    pages: int
    pictures: tuple[int, ...]


def read_pdf(file: BinaryIO) -> PdfText:
    """Return the text of all pages: tables and forms as Markdown, prose as lines.

    Raises:
        ImportError: markitdown with its PDF reader is not installed.
        Exception: a damaged or protected file may raise almost anything.
    """
    from markitdown.converters._pdf_converter import _extract_form_content_from_words as form_of

    data = BytesIO(file.read())
    pictures: set[int] | None = None
    try:
        text, pictures = _forms(data, form_of)
    except Exception:  # pdfplumber failed; pdfminer alone may read the file
        text = ""
    if not text.strip():
        text = _prose(data)
    first, *parts = _tidied(_numbers_joined(text)).replace("\f", "\n\n").split(_BREAK)
    marks: list[tuple[int, int]] = []
    blank = set()
    start = len(first)
    for number, part in enumerate(parts, 1):
        if part.strip():
            marks.append((start, number))
        else:
            blank.add(number)
        start += len(part)
    # If pdfplumber failed, pictures are not known: every page without text then counts as one.
    scanned = blank if pictures is None else blank & pictures
    return PdfText(first + "".join(parts), tuple(marks), len(parts), tuple(sorted(scanned)))


def _forms(data: BytesIO, form_of: Callable[[Any], str | None]) -> tuple[str, set[int]]:
    """Return the text of a PDF with forms or tables ("" for any other PDF), and the numbers of pages that are pictures.

    Args:
        form_of: returns the text of a page with a form or table; None for any other page.
    """
    import pdfplumber

    parts: list[str] = []
    pictures = set()
    has_forms = False
    breaks = 0
    with pdfplumber.open(data) as pdf:
        for number, page in enumerate(pdf.pages, 1):
            content = form_of(page)
            has_forms = has_forms or content is not None
            content = (page.extract_text() or "").strip() if content is None else content
            if not content.strip() and page.images:
                pictures.add(number)
            page.close()
            breaks += 1
            if content.strip():
                parts.append(_BREAK * breaks + content.replace(_BREAK, " "))
                breaks = 0
    if not has_forms:
        return "", pictures
    text = "\n\n".join(parts)
    body = text.lstrip()
    lead = text[: len(text) - len(body)].count(_BREAK)
    return _BREAK * lead + body.rstrip() + _BREAK * breaks, pictures


def _prose(data: BytesIO) -> str:
    data.seek(0)
    return "".join(_BREAK + text.replace(_BREAK, " ") for text in _pages(data))


def _pages(data: BytesIO) -> Iterator[str]:
    """Yield the text of each page as in `pdfminer.high_level.extract_text`, which ends a page with a form feed."""
    from pdfminer.converter import TextConverter
    from pdfminer.layout import LAParams
    from pdfminer.pdfinterp import PDFPageInterpreter, PDFResourceManager
    from pdfminer.pdfpage import PDFPage

    resources = PDFResourceManager(caching=True)
    text = StringIO()
    interpreter = PDFPageInterpreter(resources, TextConverter(resources, text, codec="utf-8", laparams=LAParams()))
    for page in PDFPage.get_pages(data):
        interpreter.process_page(page)
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def _numbers_joined(text: str) -> str:
    """Join a line like ".1" with the next non-empty line, as markitdown does."""
    lines, joined = text.split("\n"), []
    at = 0
    while at < len(lines):
        line, after = lines[at], at + 1
        if _PARTIAL_NUMBER.fullmatch(line.strip()):
            while after < len(lines) and not lines[after].strip():
                after += 1
            if after < len(lines):
                breaks = _BREAK * sum(one.count(_BREAK) for one in lines[at : after + 1])
                line = f"{breaks}{line.strip()} {lines[after].strip()}"
                after += 1
            else:
                after = at + 1
        joined.append(line)
        at = after
    return "\n".join(joined)


def _tidied(text: str) -> str:
    """Remove white space at the ends of lines, and all but one of several empty lines, as markitdown does."""
    lines = text.split("\n")
    ends = (line[len(line.rstrip()) :].count(_BREAK) * _BREAK for line in lines)
    return _EMPTY_LINES.sub("\n\n", "\n".join(line.rstrip() + end for line, end in zip(lines, ends, strict=True)))
