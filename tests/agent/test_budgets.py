"""What a text may cost: each stage reads a bounded part of it, and its work does not grow faster than the text."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from agent.answering.faithfulness_check import extract_features
from agent.intent import rules_reader, value_guard
from agent.intent.language.text import MOST_CHARACTERS, readable
from agent.intent.time.periods import Calendar
from agent.intent.topic.question_parts import guess_parts
from agent.intent.value_guard import ValueGuard
from agent.intent.values import value_linking, vocabulary
from agent.options.guard_rules import normalise_rule_text
from agent.retrieval.fusion import FusedHit
from agent.retrieval.highlight import MOST_TERMS, Highlighter
from agent.retrieval.rerank.hybrid import HybridReranker
from agent.retrieval.rerank.reranker import MOST_TOTAL_CHARACTERS, truncate_longest
from agent.types import Message
from retrievers.core.metadata import Field
from retrievers.core.types import Card, Chunk, ChunkId, FieldCatalogue, FieldValues
from retrievers.testing import processor_s
from retrievers.text.analysis import analyse
from retrievers.text.folding import fold
from retrievers.text.prompt_sanitising import sanitise_prompt_text

SLOW = {
    "one letter": "a",
    "digits": "1",
    "near-numbers": "1,",
    "near-versions": "1.2.",
    "question marks": "?",
    "brackets": "[(",
    "quotes": "'\"",
    "blanks": " \n\t",
    "hyphens": "a-",
    "ids": "a1-",
    "combining marks": "e\u0301\u0323",
    "one Chinese character": "的",
    "Chinese names": "林志远陈思敏何俊",
    "Chinese numbers": "百万千十",
    "Chinese dates": "去年第三季度到今年",
    "mixed scripts": "a的1 б",
    "near-dates": "Januar Febuary Marc 2025-13-45 ",
    "periods": "since June 2025 before last week of the month ",
    "comparisons": "more than 5 and less than ",
    "alternatives": "incident or runbook and proposal, ",
    "negations": "not no never without all but ",
    "groups": "per team by month ",
    "questions": "what? how many and how many ",
    "near-names": "Anders Holmm Tom Okafar ",
    "addresses": "http://a.b/c?d=e&f=g#h ",
    "JSON": '{"a":[',
}
Make = Callable[[str], Any]


def grown(kind: str, length: int) -> str:
    return (SLOW[kind] * (length // len(SLOW[kind]) + 1))[:length]


@pytest.mark.parametrize("kind", SLOW)
def test_rules_read_a_bounded_part_of_a_question_and_of_the_turns_before_it(
    kind: str, ground: Make, monkeypatch: pytest.MonkeyPatch
):
    read: list[str] = []

    def find(text: str, *given: Any, **more: Any) -> Any:
        read.append(text)
        return rules_find(text, *given, **more)

    rules_find = rules_reader.parse_question
    monkeypatch.setattr(rules_reader, "parse_question", find)
    text = f"Which {grown(kind, 90_000)} ones"
    turns = [{"role": role, "content": text} for _ in range(20) for role in ("user", "assistant")]
    ground("city").read(text, turns)
    ground("city").read("and which of them were rejected?", turns)
    assert read
    assert max(map(len, read)) <= MOST_CHARACTERS
    assert len(read) <= 20


def test_of_a_long_question_the_beginning_and_the_end_are_read_and_all_of_it_is_searched_for(ground: Make):
    text = f"denied demolition permits {'x ' * 3000} in Old Town"
    reading = ground("city").read(text)
    assert readable(text).startswith("denied demolition permits x")
    assert readable(text).endswith("x in Old Town")
    assert reading.searches == (text,)


def test_a_question_of_usual_length_is_read_whole():
    text = "x" * MOST_CHARACTERS
    assert readable(text) == text


async def test_under_a_filter_a_bounded_part_of_each_turn_is_folded_and_not_on_the_event_loop(
    ground: Make, monkeypatch: pytest.MonkeyPatch
):
    folded: list[tuple[int, threading.Thread]] = []

    def noting(text: str) -> str:
        folded.append((len(text), threading.current_thread()))
        return fold(text)

    monkeypatch.setattr(value_guard, "fold", noting)
    known: Any = None
    judge = ValueGuard(catalogue=known, scope=known, wanted=known, deadline=0)
    history = [Message(role=role, content="words " * 16_000) for _ in range(20) for role in ("user", "assistant")]
    city = ground("city")
    made = city.read("penguins", [turn.model_dump() for turn in history])
    await judge.check_rules_reading(made, history, city.context, known)
    assert len(folded) == 41
    assert max(length for length, _ in folded) <= MOST_CHARACTERS
    assert threading.main_thread() not in [thread for _, thread in folded]


@pytest.mark.parametrize("kind", SLOW)
def test_the_work_of_reading_does_not_grow_with_what_is_not_read(kind: str, ground: Make):
    known = ground("city")
    known.read(grown(kind, 1000))  # what is remembered of words and dictionaries is there then

    def spent(length: int) -> float:
        turns = [{"role": role, "content": grown(kind, length)} for role in ("user", "assistant")]
        return processor_s(lambda: known.read(grown(kind, length), turns))

    assert spent(32_000) < 8 * (spent(1000) + 0.004)


def test_a_turn_full_of_unknown_words_is_compared_with_a_bounded_number_of_names(
    ground: Make, monkeypatch: pytest.MonkeyPatch
):
    compared: Counter[str] = Counter()

    def extract(text: str, choices: Sequence[str], **given: Any) -> list[Any]:
        compared[text] += len(choices)
        return []

    monkeypatch.setattr(vocabulary.process, "extract", extract)
    catalogue = ground("city").context.catalogue
    people = {f"{first} {last}": 1 for first in NAMES for last in NAMES}
    author = FieldValues(Field("author", "string", "string"), people, len(people), len(people), None, None, {})
    crowded = replace(catalogue, fields={**catalogue.fields, "author": author})
    known = replace(ground("city"), context=replace(ground("city").context, catalogue=crowded))
    known.read("What did Gvido Rosun write?")
    assert compared["gvido rosun"] >= len(people)
    compared.clear()
    known.read(" ".join(f"Gvido Rosun{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"))
    readings = 4  # of one turn: as it is, and counted
    assert 0 < compared.total() <= readings * (value_linking.MOST_COMPARISONS + 2 * len(people))


NAMES = [f"{a}{b}{c}ström".capitalize() for a in "bdfgk" for b in "aeiou" for c in ("l", "rn", "st")]


def test_parts_of_a_question_without_end_are_not_gone_through():
    assert guess_parts("What is penguin food? " * 200) == []
    assert guess_parts("".join(f"What is penguin number {n}? " for n in range(5000))) == []
    assert guess_parts("What do penguins eat? Where do walruses sleep?") != []


# Reranking


def hit(number: int, text: str, title: str = "") -> FusedHit:
    id = ChunkId("t", "c", str(number), 0)
    return FusedHit(id, 0.1, 0.1, {}, {}, Chunk(id, title, text))


def test_the_longest_are_cut_first():
    assert truncate_longest(["abcdef", "ab", "abcd"], 9) == ["abc", "ab", "abc"]
    assert truncate_longest(["abcdef", "ab", "abcd"], 12) == ["abcdef", "ab", "abcd"]
    assert truncate_longest(["abc"] * 4, 2) == [""] * 4
    assert truncate_longest([]) == []


def test_short_documents_beside_a_huge_one_are_judged_whole():
    pool = [hit(0, "x " * MOST_TOTAL_CHARACTERS + "penguins march"), hit(1, f"{'y ' * 500} penguins march")]
    cut, whole = asyncio.run(HybridReranker().rerank("penguins march", "en", pool, deadline=0))
    assert cut == 0
    assert whole == pytest.approx(0.35)  # each word and the pair once: half of what many occurrences count


def test_a_long_question_is_not_gone_through_for_every_passage():
    pool = [hit(number, f"penguin number {number} marches") for number in range(1000)]

    def spent(words: int) -> float:
        question = " ".join(f"q{number}" for number in range(words))
        return processor_s(lambda: asyncio.run(HybridReranker().rerank(question, "en", pool, deadline=0)))

    spent(1000)
    assert spent(1600) < 4 * (spent(10) + 0.02)


# Highlights and analysis


def test_a_bounded_number_of_words_is_looked_for_in_a_hit():
    words = [f"w{number:04}" for number in range(1000)]
    assert len(Highlighter(" ".join(words), "en")(" ".join(words))) == MOST_TERMS


def test_a_character_that_stands_for_many_does_not_multiply_the_work():
    long = "\ufdfa" * 10_000  # 18 characters each
    assert sum(len(term.text) for term in analyse(long, "en")) < 4 * len(long)
    whole = analyse("صلى الله عليه وسلم", "en")
    assert [term.text for term in analyse("\ufdfa", "en")] == [term.text for term in whole]


# Marks of different classes, which normalising sorts; stems of notes are spacing marks, and the sound marks of narrow
# kana are letters that become marks.
@pytest.mark.parametrize("marks", ["\u0301\u0327", "\u0315\u0301\u0f73", "\U0001d165\U0001d16d", "\uff9e\u0301"])
@pytest.mark.parametrize(
    "normalise", [fold, normalise_rule_text, sanitise_prompt_text, extract_features, lambda text: analyse(text, "en")]
)
def test_marks_without_end_on_one_letter_are_normalised_in_linear_time(normalise: Callable[[str], Any], marks: str):
    def spent(length: int) -> float:
        return processor_s(lambda: normalise("a" + (marks * length)[:length]))

    spent(100)
    assert spent(80_000) < 16 * (spent(10_000) + 0.01)  # quadratic, it is 3 s


def test_a_text_of_very_many_names_asks_for_none_of_them():
    known = FieldValues(Field("team", "string", "string"), {"Payments": 40, "Search": 60}, 2, 100)
    catalogue = FieldCatalogue((), 100, {"team": known})
    cards = {"fulltext": Card("fulltext", "", "documents")}
    now = datetime(2026, 11, 20, tzinfo=UTC)
    context = rules_reader.ReadingContext(catalogue, frozenset(), cards, Calendar(now.date()), now)

    def values(times: int) -> list[str]:
        read = rules_reader.read_by_rules("notes of the Payments team" + " or Payments" * times, (), context)
        return [piece.filter["value"] for piece in read.conditions]

    assert values(0) == ["Payments"]
    assert set(values(3)) == {"Payments"}
    assert values(60) == []
