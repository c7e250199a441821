"""The loop: every part of a question on the first page, and no more searches, calls and time than that takes."""

import json
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from rich.console import Console

from agent import Service, open_service
from agent.answering.decision_record import DecisionRecord
from agent.intent.topic.question_parts import guess_parts
from agent.llm.call_log import CallLog
from agent.llm.model import ModelFailed
from agent.llm.model_factory import open_model
from agent.retrieval.answer_coverage import has_outstanding_cosine, measure_coverage
from agent.retrieval.fusion import FusedHit
from agent.retrieval.plan_execution import StepResult
from agent.retrieval.search_loop import next_searches, put_answers_first, searches_by_part
from agent.retrieval.sufficiency_judge import MOST_PARTS, JudgedPart, SufficiencyInput, judge_sufficiency
from agent.serve.cli.explain.trace_report import print_trace
from agent.settings import Settings
from agent.testing import Fault, ScriptedServer
from agent.types import AugmentRequest, Intent, Outcome, Request, Result, Step
from retrievers.core.circuit_breakers import FAILURE_THRESHOLD, CircuitBreaker
from retrievers.core.errors import Unavailable
from retrievers.core.types import Chunk, ChunkId, Collection, Hit, Scope
from retrievers.ingest.documents import Document

MARCH = [
    Document(
        f"m{n:02}",
        f"m{n:02}",
        f"March {n}",
        f"Penguins march over the ice to the colony in group {n}.",
        metadata={"team": "red"},
    )
    for n in range(12)
]
# Every word of "glass furnace" is as common as the words of the march; both stand together in one document alone.
OTHERS = [
    Document(f"g{n:02}", f"g{n:02}", f"Note {n}", f"A {word} is mentioned.", metadata={"team": "red"})
    for n, word in enumerate(["glass"] * 15 + ["furnace"] * 15)
]
MELTING = Document(
    "melting",
    "melting",
    "Melting",
    "In a glass furnace sand becomes a glowing liquid. Drawn off at the far end, it cools slowly on tables, is cut to "
    "size and packed with straw by people who have done little else for years.",
    metadata={"team": "red"},
)
PANES = Document("panes", "panes", "Panes", "Molten silica is poured over tin.", metadata={"team": "blue"})
CORPUS = [*MARCH, *OTHERS, MELTING, PANES]

TWO_THINGS = "I need two things: penguins that march over the ice to the colony and sand in a glass furnace"
TWO_PARTS = "How do penguins march over the ice to the colony, and what are windows made from?"
MARCHING = {"part": "how penguins march", "answered": True, "by": [2, 1], "missing": "", "search": ""}
WINDOWS = {
    "part": "what windows are made from", "answered": False, "by": [], "missing": "the material",
    "search": "molten silica poured over tin",
}  # fmt: skip


@asynccontextmanager
async def opened(owner_url: str, service_url: str, **settings: Any) -> AsyncIterator[Service]:
    async with open_service(Settings(database_url=owner_url, service_url=service_url, **settings)) as service:
        await service.ingest(CORPUS, "notes")
        yield service


class Scripted:
    """A model that reads every question naively, as one search, and judges as it is told, one reply after the other."""

    def __init__(
        self, *judgements: Any, filter: Mapping[str, Any] | None = None, source: str = "fulltext", **options: Any
    ) -> None:
        self.judgements = list(judgements)
        self.filter, self.source = filter, source
        self.server = ScriptedServer(self._reply, **options)

    @property
    def judged(self) -> list[str]:
        """The prompts that asked for a judgement."""
        asked = [one.body["messages"][-1]["content"] for one in self.server.requests]
        return [text for text in asked if "The passages found" in text]

    def _reply(self, body: dict[str, Any]) -> str:
        asked = body["messages"][-1]["content"]
        if "The passages found" in asked:
            judgement = self.judgements.pop(0) if len(self.judgements) > 1 else self.judgements[0]
            return judgement if isinstance(judgement, str) else json.dumps({"parts": judgement})
        question = next(line for line in reversed(asked.splitlines()) if line and not line.startswith("-----"))
        reading = {"kind": "retrieve", "question": question, "searches": [question], "filter": self.filter}
        return json.dumps({**reading, "language": "en", "sources": [self.source], "confidence": 0.9})

    @asynccontextmanager
    async def service(self, owner_url: str, service_url: str, **settings: Any) -> AsyncIterator[Service]:
        with self.server as server:
            given = {"llm": "openai/scripted", "llm_base_url": server.base_url, "llm_api_key": "any"}
            async with opened(owner_url, service_url, **given, **settings) as service:
                yield service


async def decided(service: Service, question: str, **request: Any) -> tuple[Result, DecisionRecord]:
    asked = Request(query=question, collection="notes", sources=("fulltext",), **request)
    return await service.pipeline.retrieve_with_record("default", asked)


def documents(result: Result) -> list[str]:
    return [hit.document_id for hit in result.hits]


def _searched(result: Result, source: str) -> list[str]:
    """What the source was asked, not counting the steps that were not needed."""
    ran = [step for step, outcome in zip(result.plan, result.outcomes, strict=True) if outcome.status != "skipped"]
    return [step.search for step in ran if step.source == source]


def rounds(decision: DecisionRecord) -> list[tuple[str, str | None]]:
    return [(one.by, one.stopped) for one in decision.rounds]


# Without a model.


async def test_a_part_that_was_not_found_gets_a_search_of_its_own(owner_url: str, service_url: str):
    async with opened(owner_url, service_url) as service:
        once = replace(service.pipeline, settings=service.settings.model_copy(update={"max_rounds": 1}))
        request = Request(query=TWO_THINGS, collection="notes", sources=("fulltext",), explain=True)
        alone, decision = await once.retrieve_with_record("default", request)
        assert "melting" not in documents(alone)
        assert decision.rounds == ()

        both = await service.retrieve(**request.model_dump(exclude_none=True))
        # The first round and the search for the furnace take turns.
        assert documents(both)[:4:2] == documents(alone)[:2]
        assert documents(both)[1] == "melting"
        assert both.degraded == ()
        assert next((one.step, one.search) for one in both.plan if one.step > 1) == (2, "sand in a glass furnace")

        assert both.explanation is not None
        first, second = both.explanation["rounds"]
        assert (first["number"], first["searches"], first["by"], first["added"]) == (1, [TWO_THINGS], "rules", 10)
        assert [(one["part"], one["answered"]) for one in first["judged"]["parts"]] == [
            ("penguins that march over the ice to the colony", True),
            ("sand in a glass furnace", False),
        ]
        assert first["stopped"] is None
        assert (second["searches"], second["added"], second["stopped"]) == (["sand in a glass furnace"], 5, "enough")
        shown = StringIO()
        print_trace(
            {**both.explanation, "created_at": "", "expires_at": ""},
            Console(file=shown, width=160, highlight=False, markup=False, emoji=False),
        )
        assert "stopped: every part is answered" in shown.getvalue()


async def test_pages_are_cut_from_one_ranking_in_which_parts_take_turns(owner_url: str, service_url: str):
    async with opened(owner_url, service_url) as service:
        ten, _ = await decided(service, TWO_THINGS)
        five, _ = await decided(service, TWO_THINGS, top_k=5)
        second, _ = await decided(service, TWO_THINGS, top_k=5, page=2)
        assert documents(ten) == [*documents(five), *documents(second)]
        assert len(set(documents(ten))) == 10
        scores = [hit.score for hit in ten.hits]
        assert scores == sorted(scores, reverse=True)


async def test_a_question_of_one_part_is_not_judged_by_rules(owner_url: str, service_url: str):
    async with opened(owner_url, service_url) as service:
        _, decision = await decided(service, "how do penguins march over the ice?")
        assert decision.rounds == ()
        _, decision = await decided(service, TWO_THINGS, intent="off")
        assert decision.rounds == ()
        turns = ({"role": "user", "content": "what is glass in a furnace?"}, {"role": "assistant", "content": "Sand."})
        _, decision = await decided(service, "and what about penguins on the ice?", messages=turns)
        assert len(decision.first_intent.searches[0]) > len("and what about penguins on the ice?"), "it carries over"
        assert decision.rounds == ()


# With a model.


async def test_what_the_model_finds_missing_is_searched_for_and_stands_beside_what_answers_the_rest(
    owner_url: str, service_url: str
):
    scripted = Scripted([MARCHING, WINDOWS], [MARCHING, {**WINDOWS, "answered": True, "by": [3]}])
    async with scripted.service(owner_url, service_url) as service:
        asked = AugmentRequest(query=TWO_PARTS, collection="notes", sources=("fulltext",))
        prompt, decision = await service.pipeline.augment_with_record("default", asked)
        assert rounds(decision) == [("llm", None), ("llm", "enough")]
        assert len(scripted.server.requests) == 3
        # What answers a part comes first, in the order in which the model named it; the new search takes turns.
        shown = [line.partition(" ")[2] for line in scripted.judged[0].splitlines() if line.startswith("[")]
        assert [hit.title for hit in prompt.hits[:3]] == [shown[1], "Panes", shown[0]]
        assert {one.document_id[0] for one in prompt.citations} >= {"p", "m"}
        assert "molten silica poured over tin" in scripted.judged[1]


@pytest.mark.parametrize(
    "settings", [{}, {"reranker": "hybrid"}, {"rank_features": "tags:team=3"}, {"fusion": "rrf", "reranker": "hybrid"}]
)
async def test_what_ranks_hits_after_the_rounds_pushes_no_part_off_the_page(
    owner_url: str, service_url: str, settings: dict[str, Any]
):
    scripted = Scripted([MARCHING, WINDOWS], [MARCHING, {**WINDOWS, "answered": True, "by": [3]}])
    async with scripted.service(owner_url, service_url, **settings) as service:
        result, _ = await decided(service, TWO_PARTS)
        assert documents(result)[1] == "panes"
        assert documents(result)[0].startswith("m")
        scores = [hit.score for hit in result.hits]
        assert scores == sorted(scores, reverse=True)


async def test_other_words_for_one_thing_are_mixed_by_a_reranker(owner_url: str, service_url: str):
    furnace = {"part": "glass", "answered": False, "search": "glowing liquid"}
    scripted = Scripted([furnace], [{**furnace, "answered": True, "by": [1]}])
    async with scripted.service(owner_url, service_url, reranker="hybrid") as service:
        result, decision = await decided(service, "penguins march to a glass furnace and furnace glass")
        assert len(decision.rounds) == 2
        assert {hit.part for hit in decision.ranking} == {0}
        judged = [hit.scores["rerank"] for hit in result.hits]
        assert judged == sorted(judged, reverse=True)


async def test_a_first_round_that_speaks_of_all_that_was_asked_costs_no_judgement(owner_url: str, service_url: str):
    scripted = Scripted("never asked")
    async with scripted.service(owner_url, service_url) as service:
        result, decision = await decided(service, "how do penguins march over the ice to the colony?")
        assert rounds(decision) == [("rules", "enough")]
        assert len(scripted.server.requests) == 1, "the reading alone"
        assert result.degraded == ()


async def test_a_replay_judges_and_searches_as_before_and_calls_nobody(owner_url: str, service_url: str):
    scripted = Scripted([MARCHING, WINDOWS], [{**WINDOWS, "answered": True, "by": [2]}])
    async with scripted.service(owner_url, service_url) as service:
        first = await service.retrieve(TWO_PARTS, collection="notes", sources=("fulltext",))
        assert "panes" in documents(first)
        trace = await service.explain(first.trace_id)
        assert [call["stage"] for call in trace["calls"]] == ["intent", "sufficiency", "sufficiency"]
        assert "sufficiency/v1" in trace["prompts"]
        again, difference = await service.replay_compared(first.trace_id)
        assert (documents(again), again.degraded, difference["same"]) == (documents(first), (), True)
        once, difference = await service.replay_compared(first.trace_id, changes={"MAX_ROUNDS": "1"})
        assert "panes" not in documents(once)
        assert difference["outcome"]["searched_further"] == {"before": [WINDOWS["search"]], "after": []}
        assert len(scripted.server.requests) == 3


async def test_a_judgement_that_cannot_be_used_leaves_what_was_found(owner_url: str, service_url: str):
    scripted = Scripted("")
    async with scripted.service(owner_url, service_url) as service:
        broken = ["{}", '{"parts": []}', '{"parts": "all"}', '{"parts": [{"part": 1}]}']
        for judgement in ("That should do.", *broken, "[" * 5000):
            scripted.judgements = [judgement]
            result, decision = await decided(service, TWO_PARTS)
            assert result.degraded == ("sufficiency_unavailable",), judgement
            assert rounds(decision) == [("rules", "failed")]
            assert len(result.hits) == 10


async def test_without_the_rarity_of_words_what_was_found_is_the_answer(
    owner_url: str, service_url: str, monkeypatch: pytest.MonkeyPatch
):
    async def fail(*_: Any) -> None:
        raise Unavailable("PostgreSQL", "the connection was lost")

    monkeypatch.setattr("agent.retrieval.search_loop.measure_coverage", fail)
    async with opened(owner_url, service_url) as service:
        result, decision = await decided(service, TWO_THINGS)
        assert rounds(decision) == [("rules", "failed")]
        assert result.degraded == ("sufficiency_unavailable",)
        assert len(result.hits) == 10


async def test_the_rounds_end_when_rounds_calls_tokens_or_new_words_do(owner_url: str, service_url: str):
    scripted = Scripted([])
    async with scripted.service(owner_url, service_url) as service:

        async def stopped(**changes: Any) -> list[str | None]:
            settings = service.settings.model_copy(update=changes)
            _, decision = await replace(service.pipeline, settings=settings).retrieve_with_record(
                "default", Request(query=TWO_PARTS, collection="notes", sources=("fulltext",))
            )
            return [one.stopped for one in decision.rounds]

        def searching(*words: str) -> None:
            scripted.judgements = [[{**WINDOWS, "search": word}] for word in words]

        searching("glass", "furnace")
        assert await stopped() == [None, None, "rounds"]
        searching("glass")
        assert await stopped(max_rounds=2) == [None, "rounds"]
        searching("glass")
        assert await stopped(loop_calls=1) == [None, "budget"]
        before = len(scripted.judged)
        assert await stopped(loop_calls=0) == ["budget"]
        assert await stopped(loop_tokens=100) == ["budget"]
        assert await stopped(loop_share=0.0) == ["budget"]
        assert len(scripted.judged) == before
        searching(f" {TWO_PARTS.upper()} ")
        assert await stopped() == ["no_progress"], "that was searched for already"
        searching("unheard-of")
        assert await stopped() == [None, "no_progress"], "it brought nothing"


async def test_a_judge_that_is_late_has_its_share_of_the_time_and_no_more(owner_url: str, service_url: str):
    scripted = Scripted("too late", faults=[None, Fault(delay_s=30)])
    async with scripted.service(owner_url, service_url, loop_share=0.05) as service:
        result, decision = await decided(service, TWO_PARTS)
        assert rounds(decision) == [("rules", "failed")]
        assert result.degraded == ("sufficiency_unavailable",)
        assert len(result.hits) == 10


async def test_a_model_that_rests_is_not_asked_to_judge(owner_url: str, service_url: str):
    scripted = Scripted([MARCHING])
    async with scripted.service(owner_url, service_url) as service:
        resting = CircuitBreaker()
        for _ in range(FAILURE_THRESHOLD):
            resting.record_failure()
        pipeline = replace(service.pipeline, model_breaker=resting)
        result, _ = await pipeline.retrieve_with_record(
            "default", Request(query=TWO_PARTS, collection="notes", sources=("fulltext",))
        )
        assert result.degraded == ("sufficiency_unavailable",)
        assert scripted.judged == []


async def test_what_is_asked_of_the_world_is_not_judged(owner_url: str, service_url: str):
    scripted = Scripted("never asked", source="web")
    async with scripted.service(owner_url, service_url) as service:
        request = Request(query=TWO_PARTS, collection="notes")
        result, decision = await service.pipeline.retrieve_with_record("default", request)
        assert [one.name for one in result.intent.sources] == ["web"]
        assert (decision.rounds, scripted.judged) == ((), [])


async def test_what_the_documents_do_not_hold_is_searched_for_outside_where_that_is_allowed(
    owner_url: str, service_url: str
):
    page = {
        "title": "Float glass",
        "url": "https://glass.example/float",
        "content": "Panes float on tin.",
        "score": 0.9,
    }
    paints = {"part": "what paints are made from", "answered": False, "search": "pigments bound by oil"}
    scripted = Scripted(
        [MARCHING, WINDOWS, paints],
        [{**WINDOWS, "answered": True, "by": [2]}],
        other=lambda _: {"query": "q", "results": [page], "answers": [], "unresponsive_engines": []},
    )

    def asked_outside() -> int:
        return sum(one.path.startswith("/search") for one in scripted.server.requests)

    web = {"web_provider": f"searxng:{scripted.server.root_url}", "outside_fallback": True}
    async with scripted.service(owner_url, service_url, **web) as service:
        result = await service.retrieve(TWO_PARTS, collection="notes")
        # The ranking so far, the two searches of the documents and that of the web take turns.
        assert result.hits[3].url == page["url"]
        assert result.relaxed == ()
        # Two parts are missing; one search outside is what a question may cost, and it gives away nothing that the
        # model may have read in the documents.
        assert asked_outside() == 1
        assert _searched(result, "web") == [TWO_PARTS]

        for changes, request in (({"outside_fallback": False}, {}), ({}, {"sources": ("fulltext",)})):
            scripted.judgements = [[MARCHING, WINDOWS], [{**WINDOWS, "answered": True}]]
            settings = service.settings.model_copy(update=changes)
            pipeline = replace(service.pipeline, settings=settings)
            inside, _ = await pipeline.retrieve_with_record(
                "default", Request(query=TWO_PARTS, collection="notes", **request)
            )
            assert _searched(inside, "web") == []
        assert asked_outside() == 1


async def test_outside_only_the_callers_filter_holds_and_the_rest_is_said_to_be_left_out(
    owner_url: str, service_url: str
):
    page = {"title": "Float glass", "url": "https://glass.example/float", "content": "Panes float on tin."}
    red = {"type": "eq", "key": "team", "value": "red"}
    scripted = Scripted(
        [MARCHING, {**WINDOWS, "search": "penguins on ice"}],
        filter=red,
        other=lambda _: {"query": "q", "results": [page], "answers": [], "unresponsive_engines": []},
    )
    web = {"web_provider": f"searxng:{scripted.server.root_url}", "outside_fallback": True, "max_rounds": 2}
    async with scripted.service(owner_url, service_url, **web) as service:
        inferred = await service.retrieve(TWO_PARTS, collection="notes")
        assert page["url"] in [hit.url for hit in inferred.hits]
        assert [(one.dropped, one.reason) for one in inferred.relaxed] == [(red, "a source outside cannot apply it")]

        callers = await service.retrieve(TWO_PARTS, collection="notes", filter=red)
        assert {hit.metadata.get("team") for hit in callers.hits} == {"red"}
        assert callers.relaxed == ()


# What no round may widen.


async def test_hits_of_later_rounds_satisfy_the_callers_filter(owner_url: str, service_url: str):
    scripted = Scripted([MARCHING, WINDOWS])
    async with scripted.service(owner_url, service_url) as service:
        wanted = {"type": "eq", "key": "team", "value": "red"}
        result, decision = await decided(service, TWO_PARTS, filter=wanted, top_k=100)
        assert [one.searches for one in decision.rounds[1:]] == [(WINDOWS["search"],)]
        assert {hit.metadata["team"] for hit in result.hits} == {"red"}
        assert result.relaxed == ()
        assert "\nteam = red\n" in scripted.judged[0], "the judge is told, since no text says it"


async def test_a_part_for_which_a_constraint_of_the_question_holds_nothing_is_searched_for_without_it(
    owner_url: str, service_url: str
):
    red = {"type": "eq", "key": "team", "value": "red"}
    scripted = Scripted([MARCHING, WINDOWS], [{**WINDOWS, "answered": True, "by": [2]}], filter=red)
    async with scripted.service(owner_url, service_url) as service:
        asked = AugmentRequest(query=TWO_PARTS, collection="notes", sources=("fulltext",), top_k=100)
        result, _ = await service.pipeline.augment_with_record("default", asked)
        assert result.prompt.startswith("For a part of the request nothing was found")
        assert "so say where they were not met: team = red\n" in result.prompt
        assert documents(result)[1] == "panes"
        assert {hit.metadata["team"] for hit in result.hits if hit.document_id != "panes"} == {"red"}
        assert [(one.dropped, one.reason) for one in result.relaxed] == [
            (red, 'nothing was found with it for "molten silica poured over tin"')
        ]


async def test_later_rounds_see_no_other_tenant_and_no_other_collection(owner_url: str, service_url: str):
    scripted = Scripted([MARCHING, WINDOWS])
    async with scripted.service(owner_url, service_url) as service:
        await service.ingest([replace(PANES, id="theirs")], "notes", tenant="globex")
        await service.ingest([replace(PANES, id="elsewhere")], "other")
        result, _ = await decided(service, TWO_PARTS, top_k=100)
        assert "panes" in documents(result)
        assert not {"theirs", "elsewhere"} & set(documents(result))


async def test_outside_is_shown_the_question_alone_and_no_more_often_than_it_may_be(owner_url: str, service_url: str):
    asked: list[str] = []

    def search(request: Any) -> Any:
        asked.append(parse_qs(urlsplit(request.path).query)["q"][0])
        return {"results": []}

    # What a passage may have talked the judge into searching for.
    missing = [{**WINDOWS, "part": str(n), "search": f"Zeppelin password{n} 4711"} for n in range(MOST_PARTS)]
    scripted = Scripted([MARCHING, *missing[1:]], other=search)
    web = {"web_provider": f"searxng:{scripted.server.root_url}", "outside_fallback": True}
    async with scripted.service(owner_url, service_url, **web) as service:
        sources = {name: service.pipeline.sources[name] for name in ("fulltext", "web")}
        pipeline = replace(service.pipeline, sources=sources)
        _, decision = await pipeline.retrieve_with_record("default", Request(query=TWO_PARTS, collection="notes"))
        assert len(decision.rounds) > 1
        assert asked == [TWO_PARTS]


async def test_what_a_paid_source_has_answered_is_kept_when_a_model_reads_a_filter_it_cannot_take(
    owner_url: str, service_url: str
):
    page = {"url": "https://news.example/1", "title": "Glass", "content": "Float glass is poured over tin."}
    red = {"type": "eq", "key": "team", "value": "red"}
    scripted = Scripted("never asked", filter=red, source="web", other=lambda request: {"results": [page]})
    web = {"web_provider": f"searxng:{scripted.server.root_url}", "intent": "llm"}
    async with scripted.service(owner_url, service_url, **web) as service:
        result = await service.retrieve("How is glass made these days?", sources=("web",))
        assert [hit.url for hit in result.hits] == [page["url"]]
        assert [one.dropped for one in result.relaxed] == [red]
        # The caller's own filter stands, whatever has been paid for.
        kept = await service.retrieve("How is glass made these days?", sources=("web",), filter=red)
        assert kept.hits == ()


# The decisions themselves.


def hit(id: str, text: str = "", title: str = "", score: float = 1.0) -> FusedHit:
    name = ChunkId("acme", "notes", id, 0)
    chunk = Chunk(name, title, text, None, {})
    return FusedHit(name, score, score, {}, {}, chunk)


@dataclass
class Counts:
    """A catalogue of ten passages."""

    terms: Mapping[str, int]

    async def term_counts(self, scope: Scope, terms: Iterable[str]) -> dict[int, dict[str, int]]:
        return {1: {term: self.terms[term] for term in terms if term in self.terms}}


SCOPE = Scope(
    "acme", (Collection(1, "acme", "notes", documents=10, chunks=10, languages={"en": 10}, fields={}, version=1),)
)


@pytest.mark.parametrize(
    ("asked", "texts", "share"),
    [
        ("red fox", ["a red fox"], 1.0),
        # ln(1 + 9.5 / 1.5) of the fox beside ln(1 + 1.5 / 9.5) of what is in nine of ten
        ("red fox", ["the FOX"], 0.9315),
        ("red fox", ["the fox", "is red"], 0.9315),
        ("red fox", ["infrared"], 0.0),
        ("libraries", ["one library"], 1.0),
        ("red fox", [], 0.0),
        ("is it?", ["anything"], 0.0),
    ],
)
async def test_coverage_is_the_largest_share_of_the_words_by_their_rarity(asked: str, texts: list[str], share: float):
    counts: Any = Counts({"red": 9, "fox": 1, "librari": 1})
    hits = [hit(str(place), text) for place, text in enumerate(texts)]
    assert await measure_coverage([asked], hits, SCOPE, counts) == [share]


async def test_a_title_covers_as_well_as_the_text():
    counts: Any = Counts({"fox": 1})
    assert await measure_coverage(["fox", "hare"], [hit("a", title="Fox")], SCOPE, counts) == [1.0, 0.0]


async def test_a_field_covers_the_word_that_is_its_name():
    sponsored = hit("a", "Makes the lock optional.")
    assert sponsored.chunk is not None
    sponsored = sponsored._replace(chunk=replace(sponsored.chunk, metadata={"sponsor": "Ada"}))
    counts: Any = Counts({"sponsor": 1, "lock": 1})
    assert await measure_coverage(["sponsor of the lock"], [sponsored], SCOPE, counts) == [1.0]
    assert await measure_coverage(["sponsor of the lock"], [hit("a", "The lock.")], SCOPE, counts) == [0.5]


@pytest.mark.parametrize(
    ("asked", "text", "share"),
    [
        # What no English document can hold is not missed beside a name that few hold ...
        ("PYTHONUTF8 是什么时候加的", "Set PYTHONUTF8 to use UTF-8.", 1.0),
        # ... but beside a word that is in nine of ten it is the question: ln(1 + 1.5 / 9.5) of it and two unknown words
        ("red 启动器", "the red one", 0.0232),
        # An identifier is more than the words in it: "set" and "name" in nine of ten beside the rare whole
        ("__set_name__", "set a name", 0.1283),
        ("__set_name__", "calls __set_name__ on it", 1.0),
    ],
)
async def test_coverage_across_languages_goes_by_names_and_identifiers(asked: str, text: str, share: float):
    counts: Any = Counts({"red": 9, "set": 9, "name": 9, "pythonutf8": 1, "set-name": 1})
    assert await measure_coverage([asked], [hit("a", text)], SCOPE, counts) == [share]


def vectors(search: str, scores: Sequence[float], source: str = "vector") -> StepResult:
    hits = [Hit(ChunkId("acme", "notes", str(place), 0), score, source) for place, score in enumerate(scores)]
    outcome = Outcome(source=source, step=1, status="ok", hits=len(hits), elapsed_ms=1.0)
    return StepResult(Step(source=source, search=search, filter=None, timeout_s=1.0), None, hits, outcome)


def test_a_passage_stands_out_by_its_distance_from_the_usual_one():
    best, others = ChunkId("acme", "notes", "0", 0), [0.3] * 29
    high = vectors("fox", [0.5, *others])
    assert has_outstanding_cosine("fox", [high], {best})
    assert not has_outstanding_cosine("hare", [high], {best})  # of another search
    assert not has_outstanding_cosine("fox", [high], {ChunkId("acme", "notes", "1", 0)})  # not among those shown
    assert not has_outstanding_cosine(
        "fox", [vectors("fox", [0.8, *[0.7] * 29])], {best}
    )  # near, as all are to this embedder
    assert not has_outstanding_cosine("fox", [vectors("fox", [0.5, 0.3, 0.3])], {best})  # too few to tell
    assert not has_outstanding_cosine("fox", [vectors("fox", [9.0, *others], "fulltext")], {best})


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        (TWO_THINGS, ["penguins that march over the ice to the colony", "sand in a glass furnace"]),
        (
            "Point me to the steam tutorial. Also: was another spelling refused?",
            ["Point me to the steam tutorial", "was another spelling refused"],
        ),
        (
            "which engine failed and which one made it? also what became of steam power",
            ["which engine failed", "what became of steam power"],
        ),
        ("一是怎么申请年休假期，二是病假工资标准？", ["怎么申请年休假期", "病假工资标准"]),
        ("how do penguins march?", []),
        ("My server keeps its sockets open. Did that ever change for child processes?", []),
        ("Aspirin reduces fever and prevents strokes in adults.", []),
        ("What is it? And why?", []),
        ("Signatures took pairs apart in the parameter list. Why was that taken away again?", []),
    ],
)
def test_what_may_be_parts_of_a_question(question: str, parts: list[str]):
    assert guess_parts(question) == parts


def test_only_what_is_missing_and_new_is_searched_for():
    parts = [
        JudgedPart("a", True, (1,)),
        JudgedPart("b", False, search="Red  Fox"),
        JudgedPart("c", False, search="red fox"),
        JudgedPart("d", False, search="Hare"),
        JudgedPart("e", False),
    ]
    assert next_searches(parts, ["a question", "HARE"]) == ["red fox"]


def test_what_answers_a_part_stands_first_but_takes_no_more_than_its_share():
    ranking = [hit(str(n), score=1 - n / 100) for n in range(1, 13)]
    parts = [
        JudgedPart("a", True, (9, 1)),
        JudgedPart("b", True, (12,)),
        JudgedPart("c", False),
        JudgedPart("d", False),
        JudgedPart("e", True, (7, 8, 5)),
    ]
    found = [one.id.document_id for one in put_answers_first(ranking, parts)]
    assert found == ["9", "12", "7", "1", "8", "2", "3", "4", "5", "6", "10", "11"]


@pytest.mark.parametrize(
    ("by", "searches", "groups"),
    [
        ("rules", ("one", "two"), [["one"], ["two"]]),
        ("llm", ("one", "two"), [["one", "two"]]),
        ("rules", ("年假怎么申请", "病假工资", "annual leave"), [["年假怎么申请", "annual leave"], ["病假工资"]]),
        ("rules", (), [[]]),
    ],
)
def test_the_searches_of_a_part(by: Any, searches: tuple[str, ...], groups: list[list[str]]):
    intent = Intent(question="?", language="en", searches=searches, collections=("notes",), by=by)
    assert searches_by_part(intent) == groups


async def said(reply: object, passages: int = 2) -> Sequence[JudgedPart]:
    with ScriptedServer([json.dumps(reply)]) as server:
        model = open_model("openai/scripted", base_url=server.base_url, api_key="any")
        assert model is not None
        question = SufficiencyInput("why?", None, ("why?",), [hit(str(n), "text") for n in range(passages)])
        try:
            return (await judge_sufficiency(question, model, time.monotonic() + 10))[0]
        finally:
            await model.aclose()


async def test_of_a_judgement_only_what_can_be_is_believed():
    odd = "sand\n\x1b[31m and tin" + " " + "long " * 200
    parts = await said(
        {
            "parts": [
                {"part": "a", "answered": True, "by": [2, 7, 0, 2]},
                {"part": "b", "answered": True, "by": [3], "search": "of b"},
                {"part": "c", "answered": False, "by": [], "missing": None, "search": None},
                {"part": "d", "answered": False, "search": odd},
                {"part": "e", "answered": True, "by": [1]},
            ]
        }
    )
    assert len(parts) == MOST_PARTS
    assert parts[0] == JudgedPart("a", True, (2,)), "there are two passages"
    assert parts[1] == JudgedPart("b", False, (), "", "of b"), "a passage that is not there answers nothing"
    assert parts[2] == JudgedPart("c", False, (), "", "c"), "its own words are better than none"
    assert parts[3].search.startswith("sand [31m and tin long long")
    assert parts[3].search.isprintable()
    assert len(parts[3].search) <= 500


async def test_a_judge_without_a_reply_has_failed():
    with ScriptedServer(faults=[Fault(status=400)] * 9) as server:
        model = open_model("openai/scripted", base_url=server.base_url, api_key="any")
        assert model is not None
        calls = CallLog()
        with pytest.raises(ModelFailed):
            await judge_sufficiency(
                SufficiencyInput("why?", None, (), []), calls.logged_model(model), time.monotonic() + 10
            )
        assert [one.stage for one in calls.records] == ["sufficiency"]
        await model.aclose()
