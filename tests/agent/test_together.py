"""Evidence from the documents: some of those with a value have other values of the question as well."""

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from agent.intent import vocabulary
from agent.intent.evidence import evidence
from agent.intent.found import find
from agent.intent.likelihood import candidates
from agent.intent.time.periods import Calendar
from agent.intent.together import SIGNS, signs_of_documents
from retrievers.core.cooccurrence import Cooccurrence
from retrievers.core.fields import Field
from retrievers.core.types import FieldCatalogue, FieldValues

DOCUMENTS = [
    {"editor": "Marsh", "site": "Harbour", "tags": ["boats"]},
    {"editor": "Marsh", "site": "Harbour", "tags": ["boats", "noise"]},
    {"editor": "Marsh", "site": "Mill", "tags": ["noise"]},
    {"editor": "Pike", "site": "Quarry", "tags": ["boats"]},
]
FIELDS = {
    "editor": FieldValues(Field("editor", "string", "string"), {"Marsh": 3, "Pike": 1}, 2, 4),
    "site": FieldValues(Field("site", "string", "string"), {"Harbour": 2, "Mill": 1, "Quarry": 1}, 3, 4),
    "tags": FieldValues(Field("tags", "list", "string"), {"boats": 3, "noise": 2}, 2, 4),
}
DISTINCT = {name: len(one.values) for name, one in FIELDS.items()}
KNOWN = FieldCatalogue(((1, 1),), 4, FIELDS, cooccurrence=Cooccurrence.of(DOCUMENTS, DISTINCT))


def signs(text: str, field: str, known: FieldCatalogue = KNOWN) -> dict[str, float]:
    """Return the evidence of the first candidate of a field."""
    now = datetime(2026, 11, 20, tzinfo=UTC)
    sentence = find(text, vocabulary.build(known), frozenset(), Calendar(date(2026, 11, 20)), now).sentence
    named = [one for mention in sentence.mentions for one in candidates(sentence, mention) if one.field == field]
    return dict(signs_of_documents(sentence, named[0].mention, named[0].known))


def test_values_that_occur_together_are_evidence():
    said = signs("what did Marsh edit about the Harbour?", "site")
    assert (said["occurs beside"], said["beside all at once"], said["least expected"]) == (1, 1, 1.5)
    assert said["most lift"] == said["least lift"] > 0


def test_values_may_occur_together_in_pairs_only():
    said = signs("Marsh, boats, Mill", "editor")
    assert (said["occurs beside"], said["beside all at once"]) == (2, 0)
    assert signs("Marsh, boats, Harbour", "editor")["beside all at once"] == 1


def test_values_of_one_field_are_alternatives():
    assert signs("Marsh at the Harbour or the Mill", "editor")["beside all at once"] == 1
    assert signs("boats of Marsh or Pike", "tags")["least expected"] == 3


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("what did Pike edit about the Harbour?", "site"),
        ("what did Marsh edit?", "editor"),
        ("noise and boats", "tags"),
        ("what did Marsh edit that is not about the Harbour?", "site"),
        ("what did Marsh edit that is not about the Harbour?", "editor"),
    ],
    ids=["never together", "alone", "one field", "denied", "beside a denied one"],
)
def test_where_nothing_is_confirmed_there_is_no_evidence(text: str, field: str):
    assert signs(text, field) == {}


def test_without_documents_there_is_no_evidence():
    assert signs("what did Marsh edit about the Harbour?", "site", replace(KNOWN, cooccurrence=Cooccurrence())) == {}


def test_fields_of_different_collections_are_not_compared():
    apart = Cooccurrence.of([{"editor": "Marsh"}, {"site": "Harbour"}], DISTINCT)
    assert signs("what did Marsh edit about the Harbour?", "site", replace(KNOWN, cooccurrence=apart)) == {}


def test_the_evidence_reaches_the_decision():
    known, now = vocabulary.build(KNOWN), datetime(2026, 11, 20, tzinfo=UTC)
    text = "what did Marsh edit about the Harbour?"
    sentence = find(text, known, frozenset(), Calendar(date(2026, 11, 20)), now).sentence
    candidate = next(one for mention in sentence.mentions for one in candidates(sentence, mention))
    assert evidence(sentence, candidate).keys() >= SIGNS
