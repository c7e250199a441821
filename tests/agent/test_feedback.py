"""Feedback beside the score: documents that the user opened, and the right filter."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from agent.serve.http.app import create_app
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from retrievers.core.errors import BadRequest, NotFound
from retrievers.core.types import Viewer, unrestricted_viewer
from retrievers.ingest.documents import Document

TEAM = {"type": "eq", "key": "team", "value": "red"}
ALL = unrestricted_viewer("default")


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    async with open_service(Settings(database_url=owner_url, service_url=service_url, pool_size=4)) as service:
        documents = [Document(id, id, id, "We rolled back.", metadata={"team": "red"}) for id in "ab"]
        await service.ingest(documents, "notes")
        yield service


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(create_app(service))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def ask(service: Service) -> str:
    return (await service.retrieve("who rolled back?", collection="notes")).trace_id


async def stored(service: Service) -> tuple[Any, ...]:
    """Score, comment, document ids and filter of the only feedback, and the number of documents that it is about."""
    statement = """SELECT score, comment, document_ids, filter
                   FROM signalbox.feedback f LEFT JOIN signalbox.feedback_label l ON l.id = f.trace"""
    (row,) = await service.database.fetch(ALL, statement, ())
    shares = await service.database.fetch(ALL, "SELECT document_id FROM signalbox.feedback_document", ())
    return (*row, len(shares))


async def test_documents_add_up_and_a_later_score_or_filter_replaces_the_earlier_one(
    service: Service, client: httpx2.AsyncClient
):
    trace = await ask(service)

    async def give(**opinion: Any) -> tuple[Any, ...]:
        answer = await client.post("/v1/feedback", json={"trace_id": trace, **opinion})
        assert (answer.status_code, answer.json()) == (200, {"trace_id": trace, "score": opinion.get("score")})
        return await stored(service)

    # A document that was opened is no judgement of the documents of the answer.
    assert await give(document_ids=["a"]) == (None, None, ["a"], None, 0)
    assert await give(document_ids=["b", "a", "b"]) == (None, None, ["a", "b"], None, 0)
    assert await give(score=9, comment="good") == (9, "good", ["a", "b"], None, 2)
    assert await give(filter=TEAM) == (9, "good", ["a", "b"], TEAM, 2)
    assert await give(score=3, filter={}) == (3, None, ["a", "b"], {}, 2)


@pytest.mark.parametrize(
    ("opinion", "where"),
    [
        ({}, "score"),
        ({"score": 11}, "score"),
        ({"document_ids": [""]}, "document_ids.0"),
        ({"document_ids": ["x"] * 101}, "document_ids"),
        ({"document_ids": "a"}, "document_ids"),
        ({"filter": {"type": "eq", "key": "tame", "value": "x"}}, "filter.key"),
        ({"filter": []}, "filter"),
    ],
)
async def test_an_opinion_that_is_not_valid_is_refused_with_its_place(
    service: Service, client: httpx2.AsyncClient, opinion: dict[str, Any], where: str
):
    answer = await client.post("/v1/feedback", json={"trace_id": await ask(service), **opinion})

    assert answer.status_code == 422
    assert [one["where"] for one in answer.json()["errors"]] == [where]
    assert await service.database.fetch(ALL, "SELECT FROM signalbox.feedback", ()) == []


async def test_no_more_documents_are_kept_than_allowed(service: Service):
    trace = await ask(service)
    await service.ingest([Document(f"d{n}", f"d{n}", f"d{n}", "Note.") for n in range(120)], "notes")

    await service.feedback(trace, document_ids=[f"d{n}" for n in range(60)])
    await service.feedback(trace, document_ids=[f"d{n}" for n in range(60, 120)])

    kept = (await stored(service))[2]
    assert (len(kept), kept[0], kept[-1]) == (100, "d0", "d99")


async def test_a_document_that_does_not_exist_is_refused_by_its_id_and_nothing_is_stored(
    service: Service, client: httpx2.AsyncClient
):
    trace = await ask(service)
    ids = ["a", "z", "b", "y"]

    refused = await client.post("/v1/feedback", json={"trace_id": trace, "score": 9, "document_ids": ids})

    assert (refused.status_code, refused.json()["errors"][0]["where"]) == (422, "document_ids.1")
    assert 'no document "y", "z"' in refused.json()["detail"]
    assert await service.database.fetch(ALL, "SELECT FROM signalbox.feedback", ()) == []


async def test_documents_beside_the_answer_and_deleted_ones_of_the_answer_are_known(service: Service):
    trace = await ask(service)
    secret = Document("secret", "secret", "secret", "Note.", readers=("user:1",))
    await service.ingest([Document("late", "late", "late", "Note."), secret], "notes")
    await service.ingest([Document("else", "else", "else", "Note.")], "others")
    await service.delete("notes", document="a")

    await service.feedback(trace, document_ids=["a", "late"])
    for id in ("secret", "else"):  # a document of other readers, and one of another collection
        with pytest.raises(BadRequest, match=f'no document "{id}"'):
            await service.feedback(trace, document_ids=[id], tenant=Viewer("default"))
    assert (await stored(service))[2] == ["a", "late"]


async def test_python_refuses_what_http_refuses(service: Service):
    trace = await ask(service)

    for opinion in ({}, {"document_ids": ["x" * 513]}, {"document_ids": "a"}, {"filter": [TEAM]}):
        with pytest.raises(BadRequest):
            await service.feedback(trace, **opinion)  # type: ignore[arg-type]


async def test_who_may_not_see_an_answer_cannot_tell_its_filter_and_learns_no_field(service: Service):
    trace = (await service.retrieve("who?", collection="notes", principals=("user:1",))).trace_id
    wrong = {"type": "eq", "key": "tame", "value": "x"}

    with pytest.raises(NotFound):
        await service.feedback(trace, filter=wrong, tenant=Viewer("default", ("user:2",)))
    with pytest.raises(NotFound):
        await service.feedback(trace, filter=wrong, tenant=unrestricted_viewer("other"))


async def test_the_document_of_the_interface_describes_the_new_keys(client: httpx2.AsyncClient):
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]

    judgement = schemas["Judgement"]
    assert judgement["required"] == ["trace_id"]
    assert {"score", "comment", "document_ids", "filter"} < judgement["properties"].keys()
    assert "right filter" in json.dumps(judgement["properties"]["filter"])
