"""Recognise questions that are little more than an identifier of code, errors or parts: "ERR42 timeout"."""

import re

from agent.intent.conditions.question_parser import ParsedQuestion
from agent.intent.language.text import has_chinese
from agent.intent.topic.topic_words import content_words

# The length of each part is limited, so that a long text without blanks is not scanned again and again.
_PART = r"[A-Za-z0-9]{0,40}"
_IDENTIFIER = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    # sev-1, net.tcp_mem, max_age, main(), os.path, ERR42, std::move, etc/hosts.conf, camelCase
    rf"{_PART}\d{_PART}[-_.][\w.-]{{1,60}}|{_PART}[-_.]{_PART}\d\w{{0,40}}|"
    r"\w{1,60}_\w{1,60}|\w{1,60}\(\)|[A-Za-z]\w{0,40}(?:\.\w{1,40}){1,6}|[A-Z]{2,20}[-\d]\w{0,40}|"
    r"\w{1,60}::\w{1,60}|\w{1,40}/\w{1,40}\.\w{1,40}|[a-z]{1,30}[A-Z]\w{1,40})"
)


def is_identifier_query(parsed: ParsedQuestion) -> bool:
    """Return whether a question has an identifier ("ERR42") and at most two other content words, in Chinese three."""
    text = parsed.sentence.text
    most = 2 if not has_chinese(text) else 3
    return _IDENTIFIER.search(text) is not None and len(words_beside_identifiers(parsed)) <= most


def words_beside_identifiers(parsed: ParsedQuestion) -> list[str]:
    """Return the content words beside the identifiers: "outage" for "is db.example.com having an outage"."""
    return content_words(_IDENTIFIER.sub(" ", parsed.sentence.text))
