"""Recognise questions that are little more than an identifier of code, errors or parts: "ERR42 timeout"."""

import re

from agent.intent.found import Found
from agent.intent.text import has_chinese
from agent.intent.topic import plain_words

# The length of each part is limited, so that a long text without blanks is not scanned again and again.
_PART = r"[A-Za-z0-9]{0,40}"
_IDENTIFIER = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    # sev-1, net.tcp_mem, max_age, main(), os.path, ERR42, std::move, etc/hosts.conf, camelCase
    rf"{_PART}\d{_PART}[-_.][\w.-]{{1,60}}|{_PART}[-_.]{_PART}\d\w{{0,40}}|"
    r"\w{1,60}_\w{1,60}|\w{1,60}\(\)|[A-Za-z]\w{0,40}(?:\.\w{1,40}){1,6}|[A-Z]{2,20}[-\d]\w{0,40}|"
    r"\w{1,60}::\w{1,60}|\w{1,40}/\w{1,40}\.\w{1,40}|[a-z]{1,30}[A-Z]\w{1,40})"
)


def is_identifier(found: Found) -> bool:
    """Return whether a question has an identifier ("ERR42") and at most two other content words, in Chinese three."""
    text = found.sentence.text
    most = 2 if not has_chinese(text) else 3
    return _IDENTIFIER.search(text) is not None and len(beside_identifiers(found)) <= most


def beside_identifiers(found: Found) -> list[str]:
    """Return the content words beside the identifiers: "outage" for "is db.example.com having an outage"."""
    return plain_words(_IDENTIFIER.sub(" ", found.sentence.text))
