"""The service for synchronous code, and retrieval as a tool of a model."""

import asyncio
import concurrent.futures
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.answering import search_tool
from agent.errors import BadSetting
from agent.integrations.blocking import BlockingService, open_blocking
from agent.settings import Settings
from agent.types import Answer
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.ingest.documents import Document


@pytest.fixture
def settings(owner_url: str, service_url: str) -> Settings:
    return Settings(database_url=owner_url, service_url=service_url, pool_size=4)


@pytest.fixture
def service(settings: Settings) -> Iterator[BlockingService]:
    with open_blocking(settings) as service:
        yield service


def document(name: str, text: str, **metadata: Any) -> Document:
    return Document(name, name, name, text, metadata=metadata)


def test_synchronous_code_stores_finds_describes_and_deletes(service: BlockingService):
    report = service.ingest([document("a", "Penguins march.", year=2005)], "birds")
    assert (report.inserted, report.failed) == (1, [])
    assert [hit.document_id for hit in service.retrieve("penguins", collection="birds").hits] == ["a"]
    assert "Penguins march." in service.augment("penguins").prompt
    assert "Penguins march." in service.ask("penguins").answer
    assert [one.name for one in service.collections()] == ["birds"]
    assert "year" in json.dumps(service.describe("birds"))
    assert service.delete("birds") == 1


def test_an_answer_can_be_streamed_and_left_in_the_middle(service: BlockingService):
    service.ingest([document("a", "Penguins march.")], "birds")
    *pieces, last = service.ask_stream("penguins")
    assert isinstance(last, Answer)
    assert "".join(str(one) for one in pieces) == last.answer
    stream = service.ask_stream("penguins")
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    with pytest.raises(BadRequest, match="no collection"):
        list(service.ask_stream("penguins", collection="fish"))


def test_errors_come_to_the_caller_as_they_are(service: BlockingService):
    with pytest.raises(BadRequest, match='there is no collection "fish"'):
        service.retrieve("penguins", collection="fish")
    with pytest.raises(BadRequest, match="top_k"):
        service.retrieve("penguins", top_k=0)


def test_many_threads_share_one_service(service: BlockingService):
    service.ingest([document(name, f"{name} march.") for name in ("penguins", "walruses")], "birds")
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda word: service.retrieve(word, top_k=1), ["penguins", "walruses"] * 8))
    assert [one.hits[0].document_id for one in found] == ["penguins", "walruses"] * 8


async def test_another_event_loop_goes_on_while_it_waits_and_can_give_up(service: BlockingService):
    service.ingest([document("a", "Penguins march.")], "birds")
    result = await service.acall(service.service.retrieve("penguins"))
    assert result.hits[0].document_id == "a"

    begun, cancelled = threading.Event(), threading.Event()

    async def forever() -> None:
        try:
            begun.set()
            await asyncio.sleep(600)
        finally:
            cancelled.set()

    waiting = asyncio.create_task(service.acall(forever()))
    assert await asyncio.to_thread(begun.wait, 60)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(cancelled.wait, 60)


def test_a_service_that_cannot_be_opened_says_why(tmp_path: Path):
    with pytest.raises(Unavailable, match="is unavailable"):
        open_blocking(Settings(database_url="host=127.0.0.1 port=1 dbname=x", home=tmp_path))
    with pytest.raises(BadSetting, match="DEPHT"):
        open_blocking(depht=3)
    assert not [one for one in threading.enumerate() if one.name == "signalbox"]


def test_closing_ends_what_runs_and_refuses_what_comes(settings: Settings):
    service = open_blocking(settings)
    failed: list[type[BaseException]] = []
    started = threading.Event()

    async def forever() -> None:
        started.set()
        await asyncio.sleep(60)

    def wait() -> None:
        try:
            service.call(forever())
        except concurrent.futures.CancelledError as error:
            failed.append(type(error))

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert started.wait(60)
    service.close()
    service.close()
    waiter.join(60)
    assert failed == [concurrent.futures.CancelledError]
    with pytest.raises(RuntimeError, match="the service is closed"):
        service.retrieve("penguins")


def test_a_call_from_the_services_own_thread_is_refused_instead_of_waiting_for_itself(service: BlockingService):
    async def inside() -> None:
        service.collections()

    with pytest.raises(RuntimeError, match="own thread"):
        service.call(inside())


# The tool


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object schema within a schema."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for part in schema.values():
            yield from objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects(part)


def test_the_tool_schema_is_as_strict_mode_demands():
    function = search_tool.schema()["function"]
    assert (function["name"], function["strict"]) == ("search_knowledge", True)
    every = list(objects(function["parameters"]))
    assert len(every) == 4  # the arguments, a comparison, a group, a negation
    for one in every:
        assert one["additionalProperties"] is False
        assert sorted(one["required"]) == sorted(one["properties"])
    text = json.dumps(function["parameters"])
    # What strict mode does not take.
    assert not [word for word in ('"default"', '"minimum"', '"maximum"', '"minLength"', '"oneOf"') if word in text]
    flat = search_tool.schema("responses")
    assert flat == {"type": "function", **function}
    with pytest.raises(BadRequest, match="chat"):
        search_tool.schema("assistants")  # type: ignore[arg-type]


def test_a_models_call_is_answered_with_the_passages(service: BlockingService):
    service.ingest([document("a", "Penguins march.", year=2005), document("b", "Penguins swim.", year=2019)], "birds")
    assert service.as_tool() == search_tool.schema()
    recent = {"type": "gte", "key": "year", "value": 2010}
    arguments = json.dumps({"query": "penguins", "collection": "birds", "filter": recent, "top_k": None})
    answer = json.loads(service.call_tool(arguments))
    assert 0 < answer["passages"][0].pop("relevance") <= 1
    assert answer == {
        "status": "found",
        "passages": [
            {
                "n": 1, "document_id": "b", "title": "b", "text": "Penguins swim.", "url": None,
                "metadata": {"year": 2019},
            }
        ],
    }  # fmt: skip


def test_a_bad_call_is_answered_with_what_would_be_valid(service: BlockingService):
    service.ingest([document("a", "Penguins march.", year=2005)], "birds")
    ranking = ["reranker", "fusion", "lexical_weight", "depth", "rank_features"]
    known = ["query", "collection", "filter", "top_k", "min_relevance", *ranking, "per_document", "complete"]
    for arguments, where, valid in (
        ("{", "arguments", []),
        ("[]", "arguments", []),
        ('{"query": NaN}', "arguments", []),
        ('{"query": "x", "limit": 3}', "arguments", known),
        ('{"query": "x", "top_k": 1000}', "top_k", []),
        ('{"query": ""}', "query", []),
        ('{"query": "x", "collection": "fish"}', "collection", ["birds"]),
    ):
        answer = json.loads(service.call_tool(arguments))
        assert (answer["where"], answer["valid"]) == (where, valid), arguments
        assert answer["error"]
    unknown = {"query": "x", "filter": {"type": "eq", "key": "yaer", "value": 1}}
    assert "year" in json.loads(service.call_tool(unknown))["valid"]
