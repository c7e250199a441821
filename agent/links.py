"""Addresses in an answer: what a passage talked the model into linking must neither load nor open.

A picture or link whose address carries words of the conversation is how a hostile document gets them out (EchoLeak).
So what makes a link of an address in Markdown or HTML is broken apart by a blank, unless the address is exactly that of
a cited document. Everything can still be read. It works on a stream, so nothing is taken back that a reader has seen.
"""

import re
from collections.abc import Collection

# Chinese marks end an address: no blank does in Chinese.
_IN_ADDRESS = r"[^\s，。；、！？（）《》「」【】]"
_URL = re.compile(rf"(?P<scheme>[a-z][a-z0-9+.-]{{1,20}}://|www\.)(?:(?![<>`\"'\\]){_IN_ADDRESS})+", re.IGNORECASE)
_PUNCTUATION = ".,;:!?)]}*_~"
_FENCE = re.compile(r"[ \t>]*(?:```|~~~)")
# What an unfinished text may still become: a link, a definition, a tag, an address.
_PENDING = re.compile(
    rf"(?:\](?:[(:]\s*{_IN_ADDRESS}*)?"
    r"|<(?:[a-z!/?][^<>=]*)?"
    rf"|[a-z][a-z0-9+.-]*(?::{_IN_ADDRESS}*)?"
    r"|[`~ \t>]+|[\ud800-\udbff])\Z",
    re.IGNORECASE,
)
_LONGEST_PENDING = 4000
# What is cut off behind its blanks may have any address.
_LINK = re.compile(r"\](?=[(:]\s*(?:(?P<address><|[^\s)]+)|\Z))")
# A tag with attributes; one that is not closed may still get some.
_TAG = re.compile(r"<(?=[a-z!/?](?![^<>=]*>))", re.IGNORECASE)
# A relative address stays with whoever shows the answer. In angle brackets one may hold blanks, and words behind them.
_UNKNOWN = "//"
_ELSEWHERE = re.compile(r"[:\\&<]|//")
# ESC and its like drive a terminal; tag characters and direction marks hide words from a reader.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")


class LinkGuard:
    """Text in pieces, made safe to show.

    Args:
        allowed: addresses of the cited documents.
    """

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = frozenset(allowed)
        self._held = ""
        self._last = "\n"
        self._fenced = False

    def feed(self, piece: str) -> str:
        """What can be shown by now."""
        self._held += piece
        pending = _PENDING.search(self._held, max(0, len(self._held) - _LONGEST_PENDING))
        if pending is None or len(self._held) - pending.start() == _LONGEST_PENDING:
            return self.end()
        ready, self._held = self._held[: pending.start()], self._held[pending.start() :]
        return self._safe(ready)

    def end(self) -> str:
        """What is left."""
        ready, self._held = self._held, ""
        return self._safe(ready)

    def _safe(self, text: str) -> str:
        if not text:
            return ""
        text = _UNSEEN.sub("", text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        text = _TAG.sub("< ", _LINK.sub(self._apart, text))
        return "".join(self._without_addresses(line) for line in text.splitlines(keepends=True))

    def _without_addresses(self, line: str) -> str:
        if self._last.endswith("\n") and _FENCE.match(line):
            self._fenced = not self._fenced
        self._last = line
        # In a block of code an address is no link, and a blank would spoil a command.
        return line if self._fenced else _URL.sub(self._parted, line)

    def _apart(self, found: re.Match[str]) -> str:
        address = found["address"] or _UNKNOWN
        return "]" if address in self._allowed or not _ELSEWHERE.search(address) else "] "

    def _parted(self, found: re.Match[str]) -> str:
        scheme, address = found["scheme"], found[0]
        known = address.rstrip(_PUNCTUATION) in self._allowed
        return address if known else f"{scheme} {address.removeprefix(scheme)}"


def safe(text: str, allowed: Collection[str]) -> str:
    """A whole text made safe to show, see `LinkGuard`."""
    guard = LinkGuard(allowed)
    return guard.feed(text) + guard.end()
