"""Evidence from the documents: whether those with a value that is named also have the other values that are named."""

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from agent.intent import vocabulary
from agent.intent.deciding import candidates
from agent.intent.found import find
from agent.intent.time.periods import Calendar
from agent.intent.together import signs_of_documents
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
KNOWN = FieldCatalogue(((1, 1),), 4, FIELDS, cooccurrence=Cooccurrence.of(DOCUMENTS, FIELDS))


def signs(text: str, field: str, known: FieldCatalogue = KNOWN) -> dict[str, float]:
    """Return the evidence of the first candidate of a field."""
    now = datetime(2026, 11, 20, tzinfo=UTC)
    sentence = find(text, vocabulary.build(known), frozenset(), Calendar(date(2026, 11, 20)), now).sentence
    named = [one for mention in sentence.mentions for one in candidates(sentence, mention) if one.field == field]
    return dict(signs_of_documents(sentence, named[0].mention, named[0].known))


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("what did Marsh edit about the Harbour?", True),
        ("what did Pike edit about the Harbour?", False),
    ],
)
def test_names_meet_in_documents_or_do_not(text: str, met: bool):
    said = signs(text, "site")
    assert (said["names beside"], said["never met"], said["met none"]) == (1, not met, not met)
    assert (said["met all at once"], said["least lift"] > 0) == (met, met)


def test_three_names_may_meet_in_pairs_only():
    said = signs("Marsh, boats, Mill", "editor")
    assert (said["names beside"], said["never met"], said["met all at once"]) == (2, 0, 0)
    assert signs("Marsh, boats, Harbour", "editor")["met all at once"] == 1


@pytest.mark.parametrize("text", ["what did Marsh edit?", "noise and boats"])
def test_a_name_alone_or_beside_values_of_its_own_field_has_no_such_evidence(text: str):
    assert signs(text, "editor" if "Marsh" in text else "tags") == {}


def test_without_documents_there_is_no_evidence():
    assert signs("what did Marsh edit about the Harbour?", "site", replace(KNOWN, cooccurrence=Cooccurrence())) == {}
