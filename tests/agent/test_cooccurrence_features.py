"""Evidence from the documents: some of those with a value have other values of the question as well."""

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from agent.intent.conditions.question_parser import parse_question
from agent.intent.deciding.candidate_scoring import field_candidates
from agent.intent.deciding.cooccurrence_features import COOCCURRENCE_FEATURES, cooccurrence_features
from agent.intent.deciding.features import extract_features
from agent.intent.time.periods import Calendar
from agent.intent.values import vocabulary
from retrievers.core.cooccurrence import Cooccurrence
from retrievers.core.metadata import Field
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


def features_of(text: str, field: str, known: FieldCatalogue = KNOWN) -> dict[str, float]:
    """Return the evidence of the first candidate of a field."""
    now = datetime(2026, 11, 20, tzinfo=UTC)
    sentence = parse_question(
        text, vocabulary.build_vocabulary(known), frozenset(), Calendar(date(2026, 11, 20)), now
    ).sentence
    named = [one for mention in sentence.mentions for one in field_candidates(sentence, mention) if one.field == field]
    return dict(cooccurrence_features(sentence, named[0].mention, named[0].matches))


def test_values_that_occur_together_are_evidence():
    said = features_of("what did Marsh edit about the Harbour?", "site")
    assert (said["occurs beside"], said["beside all at once"], said["least expected"]) == (1, 1, 1.5)
    assert said["most lift"] == said["least lift"] > 0


def test_values_may_occur_together_in_pairs_only():
    said = features_of("Marsh, boats, Mill", "editor")
    assert (said["occurs beside"], said["beside all at once"]) == (2, 0)
    assert features_of("Marsh, boats, Harbour", "editor")["beside all at once"] == 1


def test_values_of_one_field_are_alternatives():
    assert features_of("Marsh at the Harbour or the Mill", "editor")["beside all at once"] == 1
    assert features_of("boats of Marsh or Pike", "tags")["least expected"] == 3


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
    assert features_of(text, field) == {}


def test_without_documents_there_is_no_evidence():
    assert (
        features_of("what did Marsh edit about the Harbour?", "site", replace(KNOWN, cooccurrence=Cooccurrence())) == {}
    )


def test_fields_of_different_collections_are_not_compared():
    apart = Cooccurrence.of([{"editor": "Marsh"}, {"site": "Harbour"}], DISTINCT)
    assert features_of("what did Marsh edit about the Harbour?", "site", replace(KNOWN, cooccurrence=apart)) == {}


def test_the_evidence_reaches_the_decision():
    known, now = vocabulary.build_vocabulary(KNOWN), datetime(2026, 11, 20, tzinfo=UTC)
    text = "what did Marsh edit about the Harbour?"
    sentence = parse_question(text, known, frozenset(), Calendar(date(2026, 11, 20)), now).sentence
    candidate = next(one for mention in sentence.mentions for one in field_candidates(sentence, mention))
    assert extract_features(sentence, candidate).keys() >= COOCCURRENCE_FEATURES
