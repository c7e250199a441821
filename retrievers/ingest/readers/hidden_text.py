"""Find text that a page hides by its own markup: elements, attributes and inline styles.

A page can give a model instructions in text that its reader does not see. Style sheets and scripts are not evaluated,
so text that only they hide counts as visible.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_MAY_HIDE = re.compile(
    r"hidden|style\s*=|<(?:audio|canvas|datalist|dialog|iframe|noembed|noframes|noscript|template|video)\b",
    re.IGNORECASE,
)
_NEVER_SHOWN = frozenset(
    {"audio", "canvas", "datalist", "iframe", "noembed", "noframes", "noscript", "template", "video"}
)
"""Elements whose text a browser shows only as a fallback, or not at all."""
# These are never treated as hidden: a page that hides one of them shows it later by a script.
_PAGE = frozenset({"html", "head", "body"})
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:([0-9a-f]{1,6})\s?|(.))", re.DOTALL | re.IGNORECASE)
_IMPORTANT = re.compile(r" ?! ?important\Z")
_LENGTH = re.compile(r"([+-]?(?:\d++\.?\d*+|\.\d++))([a-z]*+|%)")
_NO_COLOUR = re.compile(
    r"transparent|#(?:[0-9a-f]{3}0|[0-9a-f]{6}00)|(?:rgb|hsl)a?\((?:(?:[^,]*,){3}|[^/]*/)\s*(?:0+(?:\.0*)?|\.0+)%?\s*\)"
)
_CLIPPED = re.compile(r"rect\((?:\s*[01](?:px)?[\s,]*){4}\)|(?:inset\((?:50|100)%|circle\(0)[^)]*\)")
_REVEALED = ("transform", "transition", "animation", "will-change")
"""Properties that suggest that a script or an animation is about to raise an opacity of 0."""
_FAR = 999.0
_RELATIVE = frozenset({"em", "ex", "ch", "%"})

Styles = Mapping[str, str]


class _TextStyle(NamedTuple):
    """Which inherited styles hide an element's text, all False if the text is visible.

    Attributes:
        tiny: the text is too small.
        invisible: `visibility` hides the text.
        clear: the text has no colour, or the colour of its background.
    """

    tiny: bool = False
    invisible: bool = False
    clear: bool = False


def remove_hidden_text(markup: str) -> str:
    """Return the HTML markup without hidden text; unchanged if there is no hidden text. Takes linear time."""
    if not _MAY_HIDE.search(markup):
        return markup
    # Imported late, because few pages need it.
    from lxml import etree, html

    parser = html.HTMLParser(encoding="utf-8", huge_tree=True)
    try:
        root = html.document_fromstring(markup.encode(errors="replace"), parser=parser)
    except (etree.LxmlError, ValueError):
        # Markup without any element.
        return markup
    return html.tostring(root, encoding="unicode") if _remove_hidden(root) else markup


def _remove_hidden(root: Any) -> bool:
    """Remove hidden text inside an element, and return whether there was any such text. Emptied elements stay."""
    removed = False
    open_elements = [(root, _TextStyle())]
    while open_elements:
        element, around = open_elements.pop()
        styles = _styles(element.get("style", ""))
        if element.tag not in _PAGE and _is_hidden(element, styles):
            removed = removed or len(element) > 0 or bool(element.text)
            element.clear(keep_tail=True)
            continue
        text = _text(styles, around)
        if any(text):
            removed = _remove_text(element) or removed
        open_elements += [(child, text) for child in element if isinstance(child.tag, str)]
    return removed


def _remove_text(element: Any) -> bool:
    """Remove an element's own text before, between and after its children. Return whether there was any."""
    found = bool((element.text or "").strip())
    element.text = None
    for child in element:
        found = found or bool((child.tail or "").strip())
        child.tail = None
    return found


def _styles(style: str) -> Styles:
    """Parse an inline style as a browser does: the last value of a property counts, or its last important value."""
    if not style:
        return {}
    style = _ESCAPE.sub(_unescaped, _COMMENT.sub("", style)).lower()
    plain: dict[str, str] = {}
    important: dict[str, str] = {}
    for declaration in style.split(";"):
        name, _, value = declaration.partition(":")
        value, count = _IMPORTANT.subn("", " ".join(value.split()))
        (important if count else plain)[name.strip()] = value
    return plain | important


def _unescaped(found: re.Match[str]) -> str:
    code = int(found[1], 16) if found[1] else 0
    return chr(code) if 0 < code <= 0x10FFFF else found[2] or ""


def _is_hidden(element: Any, styles: Styles) -> bool:
    """Return whether an element hides everything inside it."""
    display = styles.get("display")
    return (
        element.tag in _NEVER_SHOWN
        or display == "none"
        or (display is None and element.get("hidden", "until-found").strip().lower() != "until-found")
        or element.get("aria-hidden", "").strip().lower() == "true"
        or (element.tag == "dialog" and element.get("open") is None and display is None)
        or styles.get("content-visibility") == "hidden"
        or (_length(styles.get("opacity")) == (0.0, "") and not any(name in styles for name in _REVEALED))
        or _is_out_of_sight(styles)
    )


def _is_out_of_sight(styles: Styles) -> bool:
    """Return whether an element is clipped to nothing or moved off the page."""
    cut, placed = styles.get("overflow") in ("hidden", "clip"), styles.get("position") in ("absolute", "fixed")
    clips = (styles.get("clip", ""), styles.get("clip-path", ""))
    sizes = [_length(styles.get(name)) for name in ("width", "height", "max-width", "max-height")]
    if ((cut or placed) and any(map(_CLIPPED.match, clips))) or (
        cut and any(size and size[0] <= (1 if size[1] == "px" else 0) for size in sizes)
    ):
        return True
    moved = ["text-indent", "margin-left", "margin-top"]
    if placed:
        moved += ["left", "right", "top", "bottom"]
    return any(length[0] <= -_FAR for name in moved if (length := _length(styles.get(name))))


def _text(styles: Styles, around: _TextStyle) -> _TextStyle:
    """Return which styles hide the text of an element.

    Args:
        styles: styles of the element.
        around: result for the element around it; inherited where `styles` states nothing else.
    """
    if not styles:
        return around
    tiny, invisible, clear = around
    size = next((length for part in _sizes(styles) if (length := _length(part))), None)
    if size is not None and not (tiny and size[1] in _RELATIVE):
        tiny = size[0] <= (1 if size[1] in ("px", "pt") else 0)
    if visibility := styles.get("visibility"):
        invisible = visibility in ("hidden", "collapse")
    if colour := styles.get("color"):
        beneath = styles.get("background-color", styles.get("background"))
        clear = bool(_NO_COLOUR.fullmatch(colour)) or colour == beneath
    return _TextStyle(tiny, invisible, clear)


def _sizes(styles: Styles) -> list[str]:
    """Return the values in `font-size` and `font` that may be the text size.

    A number without a unit in `font` is left out, because it is a weight, unless it is 0.
    """
    parts = (part.partition("/")[0] for part in styles.get("font", "").split())
    return [styles.get("font-size", ""), *(part for part in parts if part == "0" or not part.isdigit())]


def _length(value: str | None) -> tuple[float, str] | None:
    found = _LENGTH.fullmatch(value) if value else None
    return (float(found[1]), found[2]) if found else None
