"""Measure how much of a question names values and fields of the catalogue: evidence that documents can answer it."""

import re
from typing import NamedTuple

from agent.intent.conditions.question_parser import ParsedQuestion
from agent.intent.reading import BOOSTS_FROM
from agent.intent.topic import small_talk
from agent.intent.topic.term_coverage import CODE_NAMES
from retrievers.text.languages import STOP_WORDS

# A word alone asks what the documents say about it: "ERR_CONN_4711".
_CODE_ALONE = re.compile(r"\W*[\w.:/-]+\W*", re.ASCII)
# The question asks for documents: "which reports name the capital of Mongolia?".
_ASKED = frozenset("which what many all any".split())


class CatalogueOverlap(NamedTuple):
    """How much of a question names values and fields of the catalogue, each in [0, 1].

    Attributes:
        values, fields: share of the letters that name values, or fields.
        noun: 1 if the question has a noun for the collection's documents ("peps"), else 0.
    """

    values: float
    fields: float
    noun: float


def measure_overlap(parsed: ParsedQuestion) -> CatalogueOverlap | None:
    """Return how much of a question names values and fields, for the choice between the documents and the web.

    None if the question is surely for the documents: "our reports on Spain", "ERR_CONN_4711".
    """
    sentence = parsed.sentence
    if small_talk.refers_to_own_documents(sentence.text) or _CODE_ALONE.fullmatch(sentence.text):
        return None
    dates = sentence.vocabulary.of_role("date")
    if parsed.length_conditions or any(
        condition.field not in dates
        and condition.confidence >= BOOSTS_FROM
        and _means_something(sentence.text[condition.start : condition.end])
        for condition in parsed.conditions
    ):
        return None
    if any((match[1].casefold(),) in sentence.vocabulary.names for match in CODE_NAMES.finditer(sentence.text)):
        return None
    nouns = [place for place, token in enumerate(sentence.tokens) if token.folded in sentence.nouns]
    if any(sentence.folded(place - 1) in _ASKED for place in nouns):
        return None
    letters = sum(len(token.text) for token in sentence.tokens if token.kind != "mark") or 1
    values = (sentence.text[one.start : one.end] for one in sentence.mentions)
    return CatalogueOverlap(
        min(sum(len(one) for one in values if _means_something(one)) / letters, 1.0),
        min(sum(len(sentence.tokens[place].text) for place, _ in sentence.cued_tokens) / letters, 1.0),
        float(bool(nouns)),
    )


def _means_something(name: str) -> bool:
    """Return whether a name is more than a function word or a single Chinese character: 是 is both "yes" and "is"."""
    return len(name) > 1 and name.casefold() not in STOP_WORDS["en"]
