import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from agent.intent.off import question_language, read
from agent.retrieve import retrieve
from agent.router import plan
from agent.types import Intent, Request, SourceChoice, Step
from retrievers.core.errors import BadFilter, BadRequest, Unavailable
from retrievers.core.filters import Compare
from retrievers.core.types import Card, ChunkId, Collection, Hit, Query, Scope

SCOPE = Scope("t", (Collection(1, "t", "peps", languages={"en": 3}), Collection(2, "t", "notes", languages={"zh": 1})))
QUERIES = {"q": Query("q", "en", SCOPE), "r": Query("r", "en", SCOPE)}


@dataclass
class StubRetriever:
    """A source that answers, waits or fails as it is told."""

    found: Sequence[str] = ()
    delay_s: float = 0.0
    error: Exception | None = None
    events: list[str] = field(default_factory=list)

    card = Card("stub", "tests")

    async def search(self, query: Query) -> list[Hit]:
        self.events.append(f"asked {query.text}")
        try:
            await asyncio.sleep(self.delay_s)
        except asyncio.CancelledError:
            self.events.append("cancelled")
            raise
        if self.error:
            raise self.error
        self.events.append("answered")
        return [Hit(ChunkId("t", "c", name, 0), 1.0, "stub") for name in self.found]


def step(source: str, *, search: str = "q", timeout_s: float = 5.0, number: int = 1) -> Step:
    return Step(source=source, search=search, filter=None, timeout_s=timeout_s, step=number)


def names(hits: Sequence[Hit]) -> list[str]:
    return [hit.id.document_id for hit in hits]


async def test_a_slow_source_is_cut_off_the_others_hits_stay_and_the_outcome_says_why():
    sources = {"vector": StubRetriever(delay_s=60), "fulltext": StubRetriever(["a", "b"])}

    done = await retrieve([step("vector", timeout_s=0.05), step("fulltext")], QUERIES, sources, timeout_s=5)

    assert names(done.hits["q", "fulltext"]) == ["a", "b"]
    assert done.hits["q", "vector"] == ()
    slow, quick = done.outcomes
    assert (slow.source, slow.status, slow.hits, slow.reason) == (
        "vector", "timeout", 0, "vector is unavailable: no answer after 0.05 s",
    )  # fmt: skip
    assert (quick.source, quick.status, quick.hits, quick.reason) == ("fulltext", "ok", 2, None)
    assert 50 <= slow.elapsed_ms < 2000
    assert [error.source for error in done.errors] == ["vector"]
    assert sources["vector"].events == ["asked q", "cancelled"]


async def test_the_time_of_the_request_ends_every_source():
    started = time.perf_counter()
    done = await retrieve([step("slow", timeout_s=60)], QUERIES, {"slow": StubRetriever(delay_s=60)}, timeout_s=0.05)
    assert time.perf_counter() - started < 2
    assert done.outcomes[0].reason == "slow is unavailable: no answer after 0.05 s"


async def test_sources_are_asked_at_the_same_time():
    sources = {name: StubRetriever([name], delay_s=0.2) for name in "abcde"}
    started = time.perf_counter()
    done = await retrieve([step(name) for name in sources], QUERIES, sources, timeout_s=5)
    assert time.perf_counter() - started < 0.8
    assert [outcome.source for outcome in done.outcomes] == list("abcde")


async def test_every_search_of_every_source_has_its_own_hits():
    sources = {"a": StubRetriever(["x"]), "b": StubRetriever([])}
    steps = [step("a"), step("a", search="r"), step("b", search="r", number=2)]
    done = await retrieve(steps, QUERIES, sources, timeout_s=5)
    assert {key: names(hits) for key, hits in done.hits.items()} == {
        ("q", "a"): ["x"],
        ("r", "a"): ["x"],
        ("r", "b"): [],
    }
    assert [(outcome.status, outcome.step) for outcome in done.outcomes] == [("ok", 1), ("ok", 1), ("empty", 2)]
    assert sources["a"].events == ["asked q", "asked r", "answered", "answered"]


async def test_when_all_sources_fail_every_reason_is_kept():
    sources = {"a": StubRetriever(error=Unavailable("a", "no quota")), "b": StubRetriever(delay_s=60)}
    done = await retrieve([step("a"), step("b", timeout_s=0.01)], QUERIES, sources, timeout_s=5)
    assert [str(error) for error in done.errors] == [
        "a is unavailable: no quota",
        "b is unavailable: no answer after 0.01 s",
    ]
    assert [outcome.status for outcome in done.outcomes] == ["error", "timeout"]


@pytest.mark.parametrize("error", [BadRequest("no such field"), ZeroDivisionError()])
async def test_a_refused_request_and_a_programming_mistake_surface_and_stop_the_others(error: Exception):
    sources = {"bad": StubRetriever(error=error), "slow": StubRetriever(delay_s=60)}
    with pytest.raises(type(error)):
        await retrieve([step("bad"), step("slow")], QUERIES, sources, timeout_s=5)
    assert sources["slow"].events == ["asked q", "cancelled"]


async def test_a_source_that_cannot_apply_the_filter_is_left_out_and_says_so():
    sources = {"glossary": StubRetriever(error=BadFilter("no fields")), "fulltext": StubRetriever(["a"])}
    done = await retrieve([step("glossary"), step("fulltext")], QUERIES, sources, timeout_s=5)
    assert names(done.hits["q", "fulltext"]) == ["a"]
    assert [(one.status, one.reason) for one in done.outcomes] == [("skipped", "no fields"), ("ok", None)]


async def test_a_caller_who_leaves_cancels_the_searches():
    sources = {"slow": StubRetriever(delay_s=60)}
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await retrieve([step("slow")], QUERIES, sources, timeout_s=60)
    assert sources["slow"].events == ["asked q", "cancelled"]


async def test_a_plan_without_steps_finds_nothing():
    done = await retrieve([], {}, {}, timeout_s=5)
    assert (done.hits, done.outcomes, done.errors) == ({}, (), ())


# Router.


def intent(**more: object) -> Intent:
    return Intent(**{"question": "q", "language": "en", "searches": ("q", "r"), "collections": ("peps",), **more})


def choices(*names: str) -> tuple[SourceChoice, ...]:
    return tuple(SourceChoice(name=name, confidence=1.0, reason="") for name in names)


def planned(given: Intent) -> list[tuple[str, str]]:
    steps = plan(given, sources=("vector", "fulltext"), source_timeout_s=3, timeout_s=10)
    return [(one.search, one.source) for one in steps]


def test_every_search_is_asked_of_every_source():
    assert planned(intent()) == [("q", "vector"), ("q", "fulltext"), ("r", "vector"), ("r", "fulltext")]


def test_only_the_chosen_sources_that_exist_are_asked_each_once():
    assert planned(intent(sources=choices("fulltext", "web", "fulltext"), searches=("q", "q"))) == [("q", "fulltext")]


def test_a_choice_of_sources_that_do_not_exist_never_widens():
    assert planned(intent(sources=choices("web"))) == []


def test_small_talk_needs_no_search():
    assert planned(intent(kind="none")) == []


@pytest.mark.parametrize(("source_s", "request_s", "step_s"), [(3, 10, 3), (3, 1, 1)])
def test_a_step_has_the_time_of_a_source_but_no_more_than_the_request(source_s: float, request_s: float, step_s: float):
    steps = plan(intent(filter={"a": 1}), sources=("vector",), source_timeout_s=source_s, timeout_s=request_s)
    assert {one.timeout_s for one in steps} == {step_s}
    assert all(one.filter == {"a": 1} and one.step == 1 for one in steps)


# Intent off.


def test_without_reading_the_question_is_its_own_search_and_the_callers_filter_stands():
    found = read(Request(query="Who wrote it?"), SCOPE, Compare("eq", "status", "Final"), ("vector", "fulltext"))
    assert found.searches == ("Who wrote it?",)
    assert found.collections == ("notes", "peps")
    assert found.filter == {"type": "eq", "key": "status", "value": "Final"}
    assert [(choice.name, choice.reason) for choice in found.sources] == [
        ("vector", "default"),
        ("fulltext", "default"),
    ]
    assert (found.kind, found.by, found.confidence, found.language) == ("retrieve", "caller", 1.0, "en")


def test_sources_the_caller_names_twice_are_asked_once():
    found = read(Request(query="Q", sources=("fulltext", "fulltext")), SCOPE, None, ("vector", "fulltext"))
    assert [(choice.name, choice.reason) for choice in found.sources] == [("fulltext", "named by the caller")]


def test_the_last_turn_of_the_user_is_the_question():
    messages = [
        {"role": "user", "content": "First"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "Last"},
    ]
    messages.append({"role": "assistant", "content": "B"})
    assert read(Request(messages=messages), SCOPE, None, ()).question == "Last"


def test_the_language_of_a_question_is_one_of_its_collections():
    assert question_language("Wer war es und wann?", SCOPE) == "en"
    assert question_language("Wer war es und wann?", Scope("t", ())) == "de"
