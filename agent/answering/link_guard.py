"""Links in an answer: keep a hostile passage from making the reader's client load or open an address.

A hostile document can make the model write an image or link whose address contains words of the conversation; the
client that loads it leaks them (EchoLeak). So a blank is inserted into every Markdown or HTML construct that makes a
link, unless its address is exactly that of a cited document: `[a](http://b)` -> `[a] (http:// b)`. It works on a
stream: text that was already shown is never changed.
"""

import re
from collections.abc import Collection

# Chinese punctuation ends an address, since Chinese text has no spaces.
_IN_ADDRESS = r"[^\s，。；、！？（）《》「」【】]"
_URL = re.compile(rf"(?P<scheme>[a-z][a-z0-9+.-]{{1,20}}://|www\.)(?:(?![<>`\"'\\]){_IN_ADDRESS})+", re.IGNORECASE)
_PUNCTUATION = ".,;:!?)]}*_~"
# A code block begins and ends at the margin. Inside a list, a quotation or HTML, its end depends on the container.
_OPENS = re.compile(r"(?P<mark>`{3,})[^`]*|(?P<tildes>~{3,}).*", re.DOTALL)
_CLOSES = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})[ \t]*\n?")
_UNCLEAR = re.compile(r"[ \t>*+.)\d-]*(?:```|~~~|<[a-z!/?])", re.IGNORECASE)
# The end of a text that may still become a link, a definition, a tag or an address. Quantifiers are possessive and
# parts are bounded, because the author of the text must not be able to make matching slow.
_PENDING = re.compile(
    r"(?:\](?:[(:]\s*+[^\s\]，。；、！？（）《》「」【】]*+)?+"
    r"|<(?:[a-z!/?][^<>=]*+)?+"
    rf"|[a-z][a-z0-9+.-]{{0,20}}+(?::(?:/(?:/{_IN_ADDRESS}*+)?+)?+)?+"
    rf"|www\.{_IN_ADDRESS}*+"
    r"|(?<![`~ \t>])[`~ \t>]++|[\ud800-\udbff])\Z",
    re.IGNORECASE,
)
_LONGEST_PENDING = 2000
# `\Z`: if the text ends before the address, any address may follow.
_LINK = re.compile(r"\](?=[(:]\s*+(?:(?P<address><|[^\s)\]]++)|\Z))")
# The "<" of a tag with attributes, of an unclosed tag, which may still get attributes, of a tag that is harmful without
# any, and of an address without slashes (<mailto:a@b>).
_TAG = re.compile(
    r"<(?=[a-z!/?](?![^<>=]*+>)|[!?]|[a-z][a-z0-9+.-]*+:(?!//)"
    r"|(?:iframe|noembed|noframes|plaintext|pre|script|style|textarea|title|xmp)\b)",
    re.IGNORECASE,
)
# An address is broken apart only if it may lead to another site. A relative one points to the site that shows the
# answer. "<" counts as another site: in angle brackets an address may contain blanks, and a title may follow.
_UNKNOWN = "//"
_ELSEWHERE = re.compile(r"[:\\&<]|//")
# ESC and other control characters drive a terminal; tag characters and direction marks hide words from a reader.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)


class LinkGuard:
    """Makes streamed text safe to show.

    Args:
        allowed: addresses of the cited documents.
    """

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = frozenset(allowed)
        self._held = ""
        self._line: list[str] = []
        self._fence = ""
        self._clear = True

    def feed(self, piece: str) -> str:
        """Add streamed text and return what can be shown of the text so far.

        The end of the text is held back while it may still become a link.
        """
        self._held += piece
        pending = _PENDING.search(self._held, max(0, len(self._held) - _LONGEST_PENDING))
        if pending is None or len(self._held) - pending.start() == _LONGEST_PENDING:
            return self.end()
        ready, self._held = self._held[: pending.start()], self._held[pending.start() :]
        return self._safe(ready)

    def end(self) -> str:
        """Return the text that was held back, made safe; "" if there is none."""
        ready, self._held = self._held, ""
        return self._safe(ready)

    def _safe(self, text: str) -> str:
        if not text:
            return ""
        text = _UNSEEN.sub("", text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        text = _TAG.sub("< ", _LINK.sub(self._break_link, text))
        return "".join(self._without_addresses(line) for line in text.splitlines(keepends=True))

    def _without_addresses(self, text: str) -> str:
        """Return a line, or a part of one, with a blank in each address that is not allowed; code stays unchanged."""
        # In a code block an address is not a link, and a blank would break a command.
        shown = text if self._fence else _URL.sub(self._break_url, text)
        self._line.append(shown)
        if text.endswith("\n"):
            self._end_line("".join(self._line))
            self._line.clear()
        return shown

    def _end_line(self, line: str) -> None:
        """Track where code blocks begin and end.

        After a line that may begin a code block or HTML inside a list or quotation, this is unclear. From then on no
        line counts as the beginning of a code block, so that all addresses are broken apart.
        """
        if self._fence:
            closes = _CLOSES.fullmatch(line)
            self._fence = "" if closes and closes["mark"].startswith(self._fence) else self._fence
        elif opens := _OPENS.fullmatch(line):
            self._fence = (opens["mark"] or opens["tildes"]) if self._clear else ""
        elif _UNCLEAR.match(line):
            self._clear = False

    def _break_link(self, found: re.Match[str]) -> str:
        address = found["address"] or _UNKNOWN
        return "]" if address in self._allowed or not _ELSEWHERE.search(address) else "] "

    def _break_url(self, found: re.Match[str]) -> str:
        scheme, address = found["scheme"], found[0]
        known = address.rstrip(_PUNCTUATION) in self._allowed
        return address if known else f"{scheme} {address.removeprefix(scheme)}"


def guard_links(text: str, allowed: Collection[str]) -> str:
    """Return a whole text made safe to show, see `LinkGuard`."""
    guard = LinkGuard(allowed)
    return guard.feed(text) + guard.end()
