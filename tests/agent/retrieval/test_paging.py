"""Pages over many documents: the share of each document, and lists that are complete."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from agent import Service, open_service
from agent.retrieval.paging import page_window
from agent.settings import Settings
from agent.types import MAX_COMPLETE, AugmentRequest, Intent, Request
from retrievers.ingest.documents import Document
from retrievers.local import Local

FINAL = {"type": "eq", "key": "status", "value": "Final"}


def proposal(number: int, status: str, parts: int = 1, **more: Any) -> Document:
    """A proposal of so many passages; one of several is more about penguins that march than one of a single passage."""
    about = "Penguins march. " * 6 if parts > 1 else "Penguins were seen. "
    text = "\n\n".join(f"{about}Part {part}. " + f"word{number} " * 180 for part in range(parts))
    return Document(f"p{number}", f"p{number:03}", f"Proposal {number}", text, metadata={"status": status}, **more)


def long_ones() -> list[Document]:
    """Two long documents, whose passages fill a page, and twelve short ones; every third is final."""
    long = [proposal(number, "Draft", 8) for number in (100, 101)]
    return [*long, *(proposal(number, "Final" if number % 3 == 0 else "Draft") for number in range(12))]


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    async with open_service(Settings(database_url=owner_url, service_url=service_url)) as service:
        await service.ingest(long_ones(), "docs")
        yield service


async def found(service: Service, question: str = "penguins march", **options: Any) -> list[str]:
    result = await service.retrieve(question, collection="docs", **options)
    return [hit.id for hit in result.hits]


def documents(ids: list[str]) -> list[str]:
    return [id.partition("#")[0] for id in ids]


async def test_a_page_holds_so_many_passages_of_a_document_and_the_request_says_how_many(service: Service):
    pages = [documents(await found(service, **said)) for said in ({"per_document": 1}, {"per_document": 3}, {})]
    assert [max(map(page.count, page)) for page in pages] == [1, 3, 2]
    plain = replace(service, pipeline=replace(service.pipeline, settings=Settings(per_document=100)))
    assert len(set(documents(await found(plain)))) < 5


async def test_a_document_that_is_named_is_shown_whole_unless_the_request_says_how_many(service: Service):
    for question in ("penguins march in p100", "penguins march in Proposal 100"):
        assert documents(await found(service, question)).count("docs/p100") == 8
        assert documents(await found(service, question, per_document=2)).count("docs/p100") == 2


async def test_a_question_for_documents_gives_one_passage_of_each(service: Service):
    ids = await found(service, "which proposals are about penguins that march?")
    assert len(set(documents(ids))) == len(ids) == 10


@pytest.mark.parametrize("fusion", ["convex", "rrf", "weighted_sum"])
@pytest.mark.parametrize("reranker", ["none", "hybrid"])
async def test_fewer_hits_are_the_first_ones_and_pages_follow_each_other(service: Service, fusion: str, reranker: str):
    settings = service.pipeline.settings.model_copy(update={"fusion": fusion})
    fused = replace(service, pipeline=replace(service.pipeline, settings=settings))
    for question in ("penguins march", "penguins march in p100", "which proposals are about penguins?"):
        every = await found(fused, question, top_k=100, reranker=reranker)
        assert len(set(every)) == len(every) == 28
        for top_k in (1, 3, 7, 10):
            pages = [await found(fused, question, top_k=top_k, page=page, reranker=reranker) for page in (1, 2, 3)]
            assert [id for page in pages for id in page] == every[: 3 * top_k]


async def test_a_complete_list_holds_every_document_under_the_filter_and_says_how_many(service: Service):
    past = datetime(2020, 1, 1, tzinfo=UTC)
    others = [proposal(200, "Final", expires_at=past), proposal(201, "Final", enabled=False)]
    await service.ingest(others, "docs")
    await service.ingest([proposal(300, "Final")], "docs", tenant="another")
    result = await service.retrieve("penguins", collection="docs", filter=FINAL, complete=True, top_k=1)
    assert sorted(hit.document_id for hit in result.hits) == ["p000", "p003", "p006", "p009"]
    assert (result.total, result.complete) == (4, True)
    assert [hit.rank for hit in result.hits] == [1, 2, 3, 4]
    everything = await service.retrieve("penguins", collection="docs", complete=True)
    assert (len(everything.hits), everything.total, everything.complete) == (14, 14, True)
    usual = await service.retrieve("penguins", collection="docs", filter=FINAL)
    assert (usual.total, usual.complete) == (None, None)


async def test_documents_that_no_source_has_ranked_follow_by_their_ids_and_pages_go_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("agent.retrieval.paging.MAX_COMPLETE", 5)
    pages = [
        await service.retrieve("march", collection="docs", complete=True, sources=("fulltext",), page=page, filter={
            "type": "ne", "key": "status", "value": "Rejected"}) for page in (1, 2, 3, 4)
    ]  # fmt: skip
    ids = [hit.document_id for page in pages for hit in page.hits]
    assert (len(ids), len(set(ids))) == (14, 14)
    assert [len(page.hits) for page in pages] == [5, 5, 4, 0]
    assert [page.complete for page in pages] == [False, False, True, True]
    assert {page.total for page in pages} == {14}
    unranked = [hit.document_id for page in pages for hit in page.hits if not hit.sources]
    assert unranked == sorted(unranked)


async def test_nothing_that_is_searched_for_stands_in_any_document_and_the_list_is_complete(service: Service):
    result = await service.retrieve("xylophone", collection="docs", filter=FINAL, complete=True, sources=("fulltext",))
    assert [hit.document_id for hit in result.hits] == ["p000", "p003", "p006", "p009"]
    assert (result.status, result.complete) == ("found", True)


async def test_a_question_for_all_is_answered_by_all_that_its_condition_allows(service: Service):
    asked = "list all final proposals about penguins that march"
    result = await service.retrieve(asked, collection="docs")
    assert result.intent.wants == "all"
    assert sorted(hit.document_id for hit in result.hits if hit.sources != ("sql",)) == ["p000", "p003", "p006", "p009"]
    assert (result.total, result.complete) == (4, True)
    two = await service.retrieve(asked, collection="docs", top_k=2)
    assert ([hit.id for hit in two.hits], two.total, two.complete) == ([hit.id for hit in result.hits[:2]], 4, False)
    refused = await service.retrieve(asked, collection="docs", complete=False)
    assert (refused.total, refused.complete) == (None, None)


async def test_without_a_condition_it_is_not_known_which_documents_all_are(service: Service):
    result = await service.retrieve("show me all proposals about penguins that march", collection="docs")
    assert (result.intent.filter, len(result.hits), result.total, result.complete) == (None, 10, None, False)


async def test_a_replay_of_a_question_for_all_gives_all_again(service: Service):
    asked = "list all final proposals about penguins that march"
    first = await service.retrieve(asked, collection="docs")
    again, difference = await service.replay_compared(first.trace_id)
    assert (difference["same"], len(again.hits), again.total) == (True, len(first.hits), 4)


async def test_a_prompt_says_how_many_of_all_it_shows(service: Service):
    prompt = await service.augment("penguins", collection="docs", filter=FINAL, complete=True, budget_tokens=600)
    shown = {one.document_id for one in prompt.citations}
    assert 0 < len(shown) < 4
    assert f"Passages of {len(shown)} of the 4 such documents follow" in prompt.prompt
    plain = await service.augment("penguins", collection="docs", filter=FINAL)
    assert "such documents follow" not in plain.prompt


async def test_documents_that_a_source_holds_itself_are_part_of_a_complete_list(owner_url: str, service_url: str):
    async with open_service(Settings(database_url=owner_url, service_url=service_url)) as service:
        await service.ingest([proposal(number, "Final") for number in range(3)], "docs")
        local = Local.of([proposal(number, "Final") for number in (7, 8)], service.embedder)
        await local.ready()
        sources = {**service.pipeline.sources, "local": local}
        both = replace(service, pipeline=replace(service.pipeline, sources=sources))
        result = await both.retrieve("xylophone", complete=True, sources=("fulltext",))
        assert [hit.document_id for hit in result.hits] == ["p000", "p001", "p002", "p007", "p008"]
        assert (result.total, result.complete) == (5, True)


def intent(wants: str = "passages", **more: Any) -> Intent:
    return Intent(question="?", language="en", searches=("?",), collections=(), wants=wants, **more)  # type: ignore[arg-type]


def test_what_a_request_says_goes_before_what_its_question_says():
    settings = Settings(per_document=4)

    def window(request: Request, read: Intent, *, filtered: bool = True) -> tuple[int, int, int, bool]:
        return page_window(request, read, settings, filtered=filtered)[:4]

    assert window(Request(), intent()) == (0, 10, 4, False)
    assert window(Request(page=3, top_k=5, per_document=7), intent("documents")) == (10, 15, 7, False)
    assert window(Request(), intent("documents")) == (0, 10, 1, False)
    assert window(Request(), intent("all")) == (0, MAX_COMPLETE, 1, True)
    assert window(Request(), intent("all"), filtered=False) == (0, 10, 4, False)
    assert window(Request(complete=True, top_k=3), intent(), filtered=False) == (0, MAX_COMPLETE, 1, True)
    assert window(Request(complete=False), intent("all")) == (0, 10, 4, False)
    assert window(AugmentRequest(complete=True, page=2), intent()) == (100, 200, 1, True)
    assert window(Request(), intent("all", aggregate={"op": "count"})) == (0, 10, 4, False)


async def test_a_bound_leaves_documents_out_of_a_complete_list_too(service: Service):
    asked = {"filter": FINAL, "complete": True, "intent": "off"}
    every = await service.retrieve("penguins were seen", collection="docs", **asked)
    assert (every.total, every.complete, len(every.hits)) == (4, True, 4)
    least = sorted(hit.relevance or 0.0 for hit in every.hits)[-1] + 0.001
    none = await service.retrieve("penguins were seen", collection="docs", min_relevance=least, **asked)
    assert (none.total, none.complete, none.hits, none.status) == (0, True, (), "nothing_found")


async def test_a_list_that_left_its_conditions_is_not_complete(service: Service):
    await service.ingest(
        [Document("x", "x", "Whales", "Whales dive.", metadata={"status": "Odd", "team": "sea"})], "docs"
    )
    result = await service.retrieve("list all final proposals of team sea", collection="docs")
    assert (result.total, result.complete) != (4, True)
    assert result.relaxed or not result.hits


async def test_what_is_asked_for_as_a_complete_list_is_no_small_talk(service: Service):
    result = await service.retrieve("tell me everything", collection="docs", filter=FINAL, complete=True)
    assert (result.total, result.complete, result.status) == (4, True, "found")


async def test_documents_that_satisfy_conditions_come_before_more_passages_of_one(service: Service):
    drafts = {"type": "eq", "key": "status", "value": "Draft"}
    ids = documents(await found(service, filter=drafts, per_document=1, intent="off"))
    assert len(set(ids)) == len(ids) == 10
