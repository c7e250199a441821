"""Build HTML from elements; text is escaped, and only `Markup` is taken as HTML."""

import html
from collections.abc import Iterable

from agent.serve.cli.output import terminal_text

_VOID = frozenset({"meta", "br"})


class Markup(str):
    """Text that is HTML already."""


def escaped(text: str) -> Markup:
    """Escape a text for HTML, also for attributes; drop control characters and replace lone surrogates."""
    return Markup(html.escape(terminal_text(text).encode("utf-8", "replace").decode(), quote=True))


def joined(*content: object) -> Markup:
    """Join content: elements as they are, texts escaped, lists piece by piece, None as nothing."""
    pieces = []
    for one in content:
        if isinstance(one, Markup):
            pieces.append(one)
        elif isinstance(one, str):
            pieces.append(escaped(one))
        elif isinstance(one, Iterable):
            pieces.append(joined(*one))
        elif one is not None:
            pieces.append(escaped(str(one)))
    return Markup("".join(pieces))


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """Return one element.

    Args:
        attributes: `class_` stands for `class` and `stroke_width` for `stroke-width`; None leaves an attribute out.
    """
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{given}>") if tag in _VOID else Markup(f"<{tag}{given}>{joined(*content)}</{tag}>")


def table(columns: Iterable[object], rows: Iterable[Iterable[object]], *, class_: str = "") -> Markup:
    """Return a table that scrolls by itself on a narrow page; the first cell of a row is its heading."""
    head = element("tr", (element("th", one, scope="col") for one in columns))
    body = []
    for row in rows:
        first, *rest = row
        body.append(element("tr", element("th", first, scope="row"), (element("td", one) for one in rest)))
    grid = element("table", element("thead", head), element("tbody", body), class_=class_ or None)
    return element("div", grid, class_="scroll", tabindex=0)
