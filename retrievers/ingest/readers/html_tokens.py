"""Cut HTML into tags and text in linear time, however malformed it is.

The parser of Python's library takes quadratic time in some releases, and its releases differ in what they make of
malformed pages.
"""

import re
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple

# In `_QUOTING`, a ">" inside a quoted value does not end the tag. A quote elsewhere than at a value's start is ignored.
_QUOTING = re.compile(
    r"""<(?P<name>[a-z][^ \t\n\r\f/>]*+)
        (?P<attributes>(?:[^>"'=/]++ | /(?!>) | ["'] | =++\s*+(?:"[^"]*+" | '[^']*+' | (?!["'])[^>\s]*+))*+)
        (?P<empty>/?)>""",
    re.IGNORECASE | re.VERBOSE,
)
_PLAIN = re.compile(
    r"<(?P<name>[a-z][^ \t\n\r\f/>]*+)(?P<attributes>(?:[^>/]++|/(?!>))*+)(?P<empty>/?)>", re.IGNORECASE
)
_END = re.compile(r"</(?P<name>[a-z][^ \t\n\r\f/>]*+)[^>]*+>", re.IGNORECASE)
_COMMENT_END = re.compile(r"--!?>")
_ATTRIBUTE = re.compile(r"""([^\s/>=][^\s/=>]*+)(?:\s*+=++\s*+("[^"]*+"|'[^']*+'|[^>\s]*+))?""")
_RAW = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style")}
"""Elements whose content is no markup, with the pattern of their end tag."""


class Tag(NamedTuple):
    """A tag.

    Attributes:
        name: in lower case.
        attributes: as written; see `tag_attributes`.
        opens: False for an end tag.
        closes: True for an end tag and for `<br/>`.
    """

    name: str
    attributes: str
    opens: bool
    closes: bool


def tokenize_html(markup: str) -> Iterator[str | Tag]:
    """Yield tags and text in order, without comments, declarations and processing instructions.

    A tag that does not end is text. A comment that does not end hides everything after it, as in a browser.
    """
    at, last, begin, last_section = 0, markup.rfind(">"), _QUOTING, markup.rfind("]]>")
    while at <= (start := markup.find("<", at)) < last:
        if start > at:
            yield unescape(markup[at:start])
        sign = markup[start + 1]
        if sign.isascii() and sign.isalpha():
            found = begin.match(markup, start)
            if not found:
                # A quote in the tag does not end. From here on, quotes are ignored: to look for the end of each would
                # take quadratic time.
                begin = _PLAIN
                found = begin.match(markup, start)
                assert found is not None
            name, empty = found["name"].lower(), bool(found["empty"])
            yield Tag(name, found["attributes"], True, empty)
            at = found.end()
            if name in _RAW and not empty:
                ending = _RAW[name].search(markup, at)
                if not ending:
                    return
                at = ending.start()
        elif sign == "/" and (found := _END.match(markup, start)):
            yield Tag(found["name"].lower(), "", False, True)
            at = found.end()
        elif markup.startswith("<!--", start):
            at = _end_of_comment(markup, start)
        elif markup.startswith("<![CDATA[", start) and start < last_section:
            at = markup.index("]]>", start) + 3
        elif sign in "/!?":
            at = markup.index(">", start) + 1
        else:
            yield "<"
            at = start + 1
    if rest := markup[at:].partition("<!--")[0]:
        yield unescape(rest)


def tag_attributes(tag: Tag) -> dict[str, str]:
    """Return the values of a tag's attributes, by name in lower case; "" for an attribute without a value."""
    found = _ATTRIBUTE.findall(tag.attributes)
    return {name.lower(): unescape(value[1:-1] if value[:1] in ('"', "'") else value) for name, value in found}


def _end_of_comment(markup: str, start: int) -> int:
    """Return the offset after the comment that begins at `start`; the end of the markup if the comment does not end."""
    for empty in ("<!-->", "<!--->"):
        if markup.startswith(empty, start):
            return start + len(empty)
    found = _COMMENT_END.search(markup, start + 4)
    return found.end() if found else len(markup)
