"""Values in other words or another language than the question, and fields of codes of languages and countries."""

from datetime import UTC, datetime

import pytest

from agent.intent.language.countries import country_names, language_code
from agent.intent.rules_reader import ReadingContext, read_by_rules
from agent.intent.time.periods import Calendar
from agent.intent.values.thesaurus import other_names
from retrievers.core.metadata import Field
from retrievers.core.types import FieldCatalogue, FieldValues

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def label(name: str, *values: str) -> FieldValues:
    return FieldValues(Field(name, "string", "string"), dict.fromkeys(values, 8), len(values), 8 * len(values))


def conditions(question: str, *fields: FieldValues) -> dict[str, object]:
    catalogue = FieldCatalogue(((1, 1),), 80, {one.field.name: one for one in fields})
    nouns = frozenset({"case", "cases"})
    made = read_by_rules(question, (), ReadingContext(catalogue, nouns, {}, Calendar(NOW.date()), NOW))
    return {one.field: one.filter["value"] for one in made.conditions}


def names(*values: str, fields: tuple[str, ...] = ()) -> set[tuple[str, str]]:
    return {(value, " ".join(words)) for value, words in other_names(values, fields)}


def test_a_value_is_found_by_another_word_for_it():
    field = label("stage", "PAUSED", "ACTIVE", "CLOSED")
    assert conditions("cases that are on hold", field) == {"stage": "PAUSED"}
    assert conditions("暂停的 cases", field) == {"stage": "PAUSED"}


def test_a_value_in_another_language_is_found_by_its_english_name():
    field = label("art", "Sturz", "Wunde", "Stimmung", "Infektion")
    assert conditions("all infection cases", field) == {"art": "Infektion"}


def test_the_values_of_a_field_are_in_one_language():
    assert ("chat", "cat") in names("chat", "chien", "lapin")
    assert not any(value == "chat" and "cat" in words.split() for value, words in names("chat", "phone", "email"))


def test_a_word_that_names_another_value_or_a_field_is_no_other_name():
    assert ("paused", "suspended") not in names("paused", "suspended")
    assert not any(value == "submitted" for value, _ in names("submitted", "open", fields=("submitted",)))


def test_what_somebody_did_is_not_the_state_of_a_document():
    field = label("state", "shipped", "open", "closed")
    assert conditions("cases dispatched", field) == {"state": "shipped"}
    assert conditions("cases dispatched by Ann", field) == {}


@pytest.mark.parametrize(
    ("value", "code"),
    [("de", "de"), ("DE", "de"), ("pt-BR", "pt"), ("en_GB", "en"), ("Deutsch", "de"), ("English", ""), ("xx", "")],
)
def test_a_language_is_known_by_its_code_and_its_own_name(value: str, code: str):
    assert language_code(value) == code


def test_codes_of_languages_in_capitals_are_found_by_name():
    field = label("Language", "EN", "FR", "DE", "PT")
    assert conditions("french cases", field) == {"Language": "FR"}


def test_several_codes_of_countries_need_no_word_in_the_field_name():
    assert "dutch" in country_names("flag", ["UK", "NL", "FR", "IE"])["NL"]
    assert "United Kingdom" in country_names("flag", ["UK", "NL", "FR", "IE"])["UK"]
    assert country_names("flag", ["NL", "FR"]) == {}
    assert country_names("state", ["CA", "DE", "IN", "AL"]) == {}
