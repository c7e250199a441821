"""Two fields hold the same people: what somebody did tells which of them a question means."""

from datetime import UTC, datetime

import pytest

from agent.intent.analysis import person_roles
from agent.intent.conditions.question_parser import parse_question
from agent.intent.time.periods import Calendar
from agent.intent.values import vocabulary
from retrievers.core.metadata import Field
from retrievers.core.types import FieldCatalogue, FieldValues

NOW = datetime(2026, 3, 2, tzinfo=UTC)
PEOPLE = {"Ann Okafor": 9, "Bo Lindgren": 7, "Mia Haas": 6, "李明": 5, "Jo Brandt": 4}


def catalogue(*fields: str) -> FieldCatalogue:
    held = {
        name: FieldValues(Field(name, "string", "string"), PEOPLE, len(PEOPLE), sum(PEOPLE.values()), None, None, {})
        for name in fields
    }
    return FieldCatalogue((), sum(PEOPLE.values()), held)


@pytest.mark.parametrize(
    ("field", "role"),
    [
        ("requested_by", "requester"),
        ("signedOffBy", "approver"),
        ("复核人", "reviewer"),
        ("shenpiren", "approver"),
        ("Prüfer", "reviewer"),
        ("resp", "handler"),
        ("uploader", "uploader"),
    ],
)
def test_the_name_of_a_field_tells_the_role_of_its_people(field: str, role: str):
    assert role in person_roles.person_roles(field)


def test_a_word_that_is_a_role_is_short_for_no_other():
    assert person_roles.person_roles("first_author") == {"writer"}


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("claims that Ann Okafor signed off", "approved_by"),
        ("claims Ann Okafor put in", "requested_by"),
        ("what is still on Ann Okafor's plate", "owner"),
        ("rejected by Mia Haas, on trains", "approved_by"),
        ("李明批的报告", "approved_by"),
        ("李明提的报告", "requested_by"),
    ],
)
def test_the_deed_beside_a_name_is_nearest_to_the_field_of_its_role(text: str, nearest: str):
    known = vocabulary.build_vocabulary(catalogue("requested_by", "approved_by", "owner"))
    sentence = parse_question(text, known, frozenset(["claims"]), Calendar(NOW.date()), NOW).sentence
    (mention,) = sentence.mentions
    near = person_roles.role_verb_closeness(sentence, mention)
    assert max(near, key=lambda field: near[field]) == nearest
    assert sorted(near.values())[-2] < near[nearest]


def test_a_deed_that_leads_on_to_a_name_is_that_ones_alone():
    known = vocabulary.build_vocabulary(catalogue("requested_by", "approved_by"))
    text = "claims requested by Ann Okafor or approved by Mia Haas"
    sentence = parse_question(text, known, frozenset(["claims"]), Calendar(NOW.date()), NOW).sentence
    ann, mia = (person_roles.role_verb_closeness(sentence, one) for one in sentence.mentions)
    assert ann == {"requested_by": 1.0, "approved_by": 0.0}
    assert mia["approved_by"] == 1.0 > mia["requested_by"]


def test_a_question_without_a_deed_tells_no_role():
    known = vocabulary.build_vocabulary(catalogue("requested_by", "approved_by"))
    sentence = parse_question("Ann Okafor on trains", known, frozenset(), Calendar(NOW.date()), NOW).sentence
    assert not any(person_roles.role_verb_closeness(sentence, sentence.mentions[0]).values())


def test_a_name_that_is_taken_out_may_be_a_deed():
    known = vocabulary.build_vocabulary(catalogue("requested_by", "approved_by"))
    sentence = parse_question("Ann Okafor and 李明批的报告", known, frozenset(), Calendar(NOW.date()), NOW).sentence
    first, second = sentence.mentions
    assert person_roles.role_verb_closeness(sentence, second)["approved_by"] == 1.0
    alone = sentence.without([first])
    assert person_roles.role_verb_closeness(alone, alone.mentions[0])["approved_by"] == 1.0
    assert alone.cached("mark", lambda: 1) == 1
    assert sentence.cached("mark", lambda: 2) == 2  # what is known of one is not known of the other
