"""The HTTP door over a real service and a real database."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from agent.app import Service, open_service
from agent.serve.http.app import create_app
from agent.settings import Settings
from retrievers.ingest.read import read

SAMPLE = Path(__file__).resolve().parents[2] / "evals" / "data" / "sample" / "corpus.jsonl"


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    settings = Settings(database_url=owner_url, service_url=service_url, pool_size=4)
    async with open_service(settings) as service:
        yield service


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(create_app(service))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def test_a_question_is_answered_in_the_shape_of_the_contract(
    service: Service, client: httpx2.AsyncClient
) -> None:
    await service.ingest(read([SAMPLE]), "sample")
    asked = {"query": "Why did the payment service fail?", "collection": "sample", "top_k": 3}
    answer = await client.post("/v1/retrieve", json=asked)
    assert answer.status_code == 200
    assert set(answer.json()) == set(
        "trace_id query intent plan hits table outcomes relaxed degraded status took_ms".split()
    )
    in_process = await service.retrieve("Why did the payment service fail?", collection="sample", top_k=3)
    assert [hit["id"] for hit in answer.json()["hits"]] == [hit.id for hit in in_process.hits]
    bad = await client.post("/v1/retrieve", json={"query": "x", "top_k": "5"})
    assert (bad.status_code, bad.headers["content-type"]) == (422, "application/problem+json")
    assert bad.json()["errors"][0]["where"] == "top_k"
