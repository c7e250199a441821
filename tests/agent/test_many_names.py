"""Collections with many values: their names are collected once, beside the event loop, and each value is read once."""

import gc
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from agent.intent.language import text
from agent.intent.rules_reader import ReadingContext, read_by_rules
from agent.intent.time.periods import Calendar
from agent.intent.turn.source_examples import source_with_example
from agent.intent.values import vocabulary
from agent.service import documents
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from retrievers.core.metadata import Field
from retrievers.core.types import FieldCatalogue, FieldValues
from retrievers.ingest.documents import Document
from retrievers.postgres.catalogue import catalogue as stored

WORDS = "payment search cache queue index".split()
VALUES = dict.fromkeys((" ".join(words) for words in list(product(WORDS, repeat=5))[:1000]), 1)


def catalogue(fields: int = 2) -> FieldCatalogue:
    named = {f"f{n}": FieldValues(Field(f"f{n}", "string", "string"), VALUES, 1000, 1000) for n in range(fields)}
    return FieldCatalogue((), 1000, named)


def test_a_value_is_split_into_words_once(monkeypatch: pytest.MonkeyPatch):
    vocabulary.build_vocabulary(catalogue())  # loads the word lists
    calls: list[str] = []
    split = text.tokenize
    monkeypatch.setattr(text, "tokenize", lambda given: calls.append(given) or split(given))
    text._words_of_name.cache_clear()
    vocabulary.build_vocabulary(catalogue())
    assert len([one for one in calls if one in VALUES]) == len(VALUES)


@pytest.mark.parametrize(
    "value",
    ["x " * 39, "漢字" * 35, "\ufdfa" * 70, "\ufdfa" * 190, "part/" * 15],
    ids=["letters", "chinese", "wide", "long", "path"],
)
def test_each_character_of_long_values_is_read_at_most_three_times(value: str, monkeypatch: pytest.MonkeyPatch):
    values = dict.fromkeys((f"{value}{n}" for n in range(50)), 1)
    many = FieldCatalogue((), 50, {"f": FieldValues(Field("f", "string", "string"), values, 50, 50)})
    split, read = text.tokenize, [0]

    def counted(given: str) -> list[text.Token]:
        read[0] += len(given)
        return split(given)

    monkeypatch.setattr(text, "tokenize", counted)
    text._words_of_name.cache_clear()
    vocabulary.build_vocabulary(many)
    assert read[0] <= 3 * sum(map(len, values)) + 500  # and the few names of the field


def test_the_vocabulary_of_fewer_values_is_made_from_that_of_all(monkeypatch: pytest.MonkeyPatch):
    people = dict.fromkeys(["Ada Brook", "Ben Carter", "Ursula Zimmermann"], 20)
    months = {"2024-01": 10, "2024-02": 10}
    fields = {
        name: FieldValues(Field(name, "string", "string"), values, len(values), 60)
        for name, values in (("author", people), ("month", months), ("state", {"open": 30, "closed": 30}))
    }
    every = FieldCatalogue((), 60, fields)
    vocabulary.build_vocabulary(every)
    monkeypatch.setattr(vocabulary, "_build_vocabulary", None)
    some = {"author": dict.fromkeys(["Ada Brook"], 20), "month": {}, "state": {"open": 30}}
    narrowed = vocabulary.narrowed_catalogue(
        every, {name: replace(one, values=some[name]) for name, one in fields.items()}
    )
    known = vocabulary.build_vocabulary(narrowed)
    named = {(one.field, one.value) for found in (*known.names.values(), *known.stems.values()) for one in found}
    assert named == {("author", "Ada Brook"), ("state", "open")}
    assert known.date_units == {}
    assert not known.misspelt_values(["ursula", "zimmerman"], person=True)
    assert vocabulary.build_vocabulary(every).misspelt_values(["ursula", "zimmerman"], person=True)


@pytest.mark.parametrize("letters", [1, 200])
def test_the_words_of_questions_and_long_texts_are_not_kept(letters: int):
    """There may be tens of thousands of them, with 8,000 characters each."""
    before = text._words_of_name.cache_info().currsize
    assert source_with_example("which rotors are new " * letters, {}) is None
    assert text.words_of("x" * 200 + "?" * letters)
    assert text._words_of_name.cache_info().currsize == before


def test_threads_that_need_the_same_names_collect_them_once(monkeypatch: pytest.MonkeyPatch):
    many, calls = catalogue(), []
    judge = vocabulary.field_role
    monkeypatch.setattr(vocabulary, "field_role", lambda values: calls.append(values) or judge(values))
    with ThreadPoolExecutor(4) as threads:
        first, *others = threads.map(vocabulary.build_vocabulary, [many] * 4)
    assert all(other is first for other in others)
    assert len(calls) == len(many.fields)


@pytest.mark.parametrize("question", ["which payments are in the search queue?", "how many have cache index?"])
def test_what_is_made_of_a_catalogue_goes_with_it(question: str):
    """Each write makes a new catalogue, so nothing may keep the names of the earlier ones."""

    def vocabularies() -> int:
        gc.collect()
        return sum(isinstance(one, vocabulary.Vocabulary) for one in gc.get_objects())

    before = vocabularies()
    for _ in range(3):
        now = datetime(2026, 6, 1, tzinfo=UTC)
        context = ReadingContext(catalogue(), frozenset({"f"}), {}, Calendar(now.date()), now)
        assert read_by_rules(question, (), context).question == question
        del context
    assert vocabularies() == before


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    settings = Settings(database_url=owner_url, service_url=service_url)
    async with open_service(settings) as service:
        yield service


async def test_a_collection_is_described_beside_the_event_loop(service: Service, monkeypatch: pytest.MonkeyPatch):
    await service.ingest([Document("a", "a", "A", "rotor", metadata={"team": "search"})], "docs")
    threads: list[object] = []

    def watched(work: Callable[..., Any]) -> Callable[..., Any]:
        def seen(*given: Any) -> Any:
            threads.append(threading.current_thread())
            return work(*given)

        return seen

    monkeypatch.setattr(documents, "infer_words", watched(documents.infer_words))
    monkeypatch.setattr(stored, "merge_values", watched(stored.merge_values))
    await service.describe("docs")
    assert len(threads) == 2
    assert threading.main_thread() not in threads
