"""Extract the visible text of an HTML page, with its structure as Markdown for the splitter."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from retrievers.core.errors import BadDocument
from retrievers.ingest.readers.hidden_text import remove_hidden_text
from retrievers.ingest.readers.html_tokens import Tag, tag_attributes, tokenize_html

_SKIPPED = frozenset({"script", "style", "nav", "template", "noscript", "svg"})
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
# fmt: off
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hr",
    "html", "legend", "li", "main", "ol", "option", "p", "pre", "section", "summary", "table", "tbody", "td", "tfoot",
    "th", "thead", "tr", "ul",
})
# fmt: on
_META = frozenset({"author", "date", "keywords", "description"})
_CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_SPACES = re.compile(r"\s+")
_CHARSET_WITHIN_BYTES = 4096
_MOST_INDENTS = 20
"""Maximum indentation of nested lists, in levels. On deeper levels, lines would be more indentation than text."""


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """The visible content of an HTML page.

    Attributes:
        title: from <title>, else the first <h1>, else "".
        text: blocks separated by blank lines; list items and table rows are on consecutive lines.
        metadata: <meta name="..."> for author, date, keywords and description.
    """

    title: str
    text: str
    metadata: Mapping[str, str]


def declared_charset(data: bytes) -> str | None:
    """Return the character set in a page's <meta>, as written; None if it states none."""
    found = _CHARSET.search(data[:_CHARSET_WITHIN_BYTES])
    return found[1].decode("ascii", "ignore") if found else None


def read_page(markup: str) -> HtmlPage:
    """Return the visible content of HTML markup, however malformed.

    Raises:
        BadDocument: a character reference has thousands of digits.
    """
    reader = _PageReader()
    try:
        for piece in tokenize_html(remove_hidden_text(markup)):
            reader.take(piece)
    except ValueError as error:
        raise BadDocument(f"not readable as HTML: {error}") from error
    return reader.page()


class _PageReader:
    """Builds an `HtmlPage` from tags and text. Text is collected until a block element starts or ends."""

    def __init__(self) -> None:
        self._blocks: list[tuple[str, str]] = []
        self._run: list[str] = []
        self._metadata: dict[str, str] = {}
        self._title: list[str] = []
        self._first_h1 = ""
        self._skipped: list[str] = []
        self._in_title = False
        self._in_pre = False
        self._heading = 0
        self._bullet = ""
        self._lists = 0
        self._row: list[str] | None = None
        self._in_cell = False

    def page(self) -> HtmlPage:
        self._end_row()
        self._flush()
        parts: list[str] = []
        last = ""
        for kind, block in self._blocks:
            if parts:
                parts.append("\n" if kind == last != "block" else "\n\n")
            parts.append(block)
            last = kind
        return HtmlPage(_joined(self._title) or self._first_h1, "".join(parts), self._metadata)

    def take(self, piece: str | Tag) -> None:
        """Process the next piece of the page: a tag, or the text between two tags."""
        if isinstance(piece, str):
            self._take_text(piece)
            return
        if piece.opens:
            self._open(piece)
        if piece.closes:
            self._close(piece.name)

    def _open(self, piece: Tag) -> None:
        tag = piece.name
        if tag in _SKIPPED:
            # One entry per name is enough: an end tag ends all of this name that are open.
            if tag not in self._skipped:
                self._skipped.append(tag)
        elif self._skipped:
            return
        elif tag == "title":
            self._in_title = not self._title
        elif tag == "meta":
            self._take_meta(tag_attributes(piece))
        elif tag == "br":
            self._run.append("\n")
        elif tag in _BLOCKS:
            self._in_title = False
            self._start_block(tag)

    def _close(self, tag: str) -> None:
        if self._skipped:
            if tag in self._skipped:
                # This also ends elements inside that were left open.
                del self._skipped[self._skipped.index(tag) :]
        elif tag == "title":
            self._in_title = False
        elif tag in _BLOCKS:
            self._end_block(tag)

    def _take_text(self, data: str) -> None:
        if self._skipped:
            return
        if self._in_title:
            self._title.append(data)
        else:
            self._run.append(data if self._in_pre else _SPACES.sub(" ", data))

    def _take_meta(self, attributes: Mapping[str, str]) -> None:
        name = attributes.get("name", "").strip().lower()
        content = _joined([attributes.get("content", "")])
        if name in _META and content:
            self._metadata.setdefault(name, content)

    def _start_block(self, tag: str) -> None:
        if tag in _HEADINGS or tag in ("table", "tr"):
            # A heading or a table inside a cell: the outer table is for layout, not for data.
            self._end_row()
        self._flush()
        if tag in _HEADINGS:
            self._heading = _HEADINGS[tag]
        elif tag == "tr":
            self._row = []
        elif tag in ("td", "th"):
            self._end_cell()
            self._in_cell = self._row is not None
        elif tag in ("ul", "ol"):
            self._lists += 1
        elif tag == "li" and self._row is None:
            self._bullet = "  " * min(self._lists - 1, _MOST_INDENTS) + "- "
        elif tag == "pre":
            self._in_pre = self._row is None

    def _end_block(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._end_cell()
        elif tag in ("tr", "table"):
            self._end_row()
        self._flush()
        if tag in _HEADINGS:
            self._heading = 0
        elif tag in ("ul", "ol"):
            self._lists = max(self._lists - 1, 0)
        elif tag == "li":
            self._bullet = ""
        elif tag == "pre":
            self._in_pre = False

    def _end_cell(self) -> None:
        if self._row is not None and self._in_cell:
            self._row.append(_joined(self._run))
            self._run.clear()
        self._in_cell = False

    def _end_row(self) -> None:
        self._end_cell()
        if self._row and any(self._row):
            self._blocks.append(("row", " | ".join(self._row)))
        self._row = None

    def _flush(self) -> None:
        """Make a block of the collected text. Inside a table row, only add a space to it, as a row is one line."""
        if self._row is not None:
            self._run.append(" ")
            return
        raw = "".join(self._run)
        self._run.clear()
        if not raw.strip():
            return
        if self._in_pre:
            # Fenced, so that a "# comment" in it is not read as a heading.
            self._blocks.append(("block", "```\n" + raw.strip("\n").rstrip() + "\n```"))
        elif self._heading:
            heading = _joined([raw])
            self._blocks.append(("block", "#" * self._heading + " " + heading))
            if self._heading == 1:
                self._first_h1 = self._first_h1 or heading
        else:
            lines = [_joined([line]) for line in raw.split("\n")]
            content = self._bullet + "\n".join(line for line in lines if line)
            self._blocks.append(("item" if self._bullet else "block", content))
        self._heading, self._bullet = 0, ""


def _joined(parts: list[str]) -> str:
    """Join pieces of text to one line, with each run of white space replaced by one space."""
    return " ".join("".join(parts).split())
