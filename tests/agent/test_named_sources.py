"""Sources that the settings name, through HTTP: chosen by a model, by rules and by the caller; what becomes of them."""

import json
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent.app import Service
from agent.breaker import FAILURES
from agent.observe.logs import secrets_of
from agent.opening import open_service
from agent.serve.http.app import create_app
from agent.settings import FILE, Settings, load_settings
from agent.testing import Request, ScriptedServer
from retrievers.core.errors import BadRequest
from retrievers.ingest.documents import Document

BIOS = {
    "lovelace.md": "# Ada Lovelace\n\nAda Lovelace wrote the first program, for the engine of Charles Babbage.\n",
    "hopper.md": "# Grace Hopper\n\nGrace Hopper led the team that made the first compiler. She cancelled no contract.\n",
}
TERMS = {
    "refunds.md": "# Refunds\n\nWho cancels the contract within 14 days is given the money back.\n",
    "accounts.md": "# Accounts\n\nAn account is closed after two years without a login. The first program is free.\n",
}
SECRET = "sk-very-secret-4711"


@pytest.fixture
def places(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """The seed's example: biographies and terms of use, both folders."""
    for name, texts in {"bios": BIOS, "terms": TERMS}.items():
        (tmp_path / name).mkdir()
        for file, text in texts.items():
            (tmp_path / name / file).write_text(text)
    return {
        "bios": {
            "kind": "local",
            "path": tmp_path / "bios",
            "description": "Biographies of people who made computing",
            "examples": ["Who was Alan Turing?", "When was Grace Hopper born?"],
        },
        "terms": {
            "kind": "local",
            "path": tmp_path / "terms",
            "description": "Terms of use: contracts, refunds and accounts",
            "examples": ["How do I cancel my contract?"],
        },
    }


@pytest.fixture
def open_named(owner_url: str, service_url: str) -> Any:
    """Opens a service with named sources, everything in them read."""

    @asynccontextmanager
    async def opened(sources: Mapping[str, Any], **more: Any) -> AsyncIterator[Service]:
        given = {"database_url": owner_url, "service_url": service_url, "pool_size": 4, "sources": sources}
        async with open_service(Settings.model_validate({**given, **more})) as service:
            for source in service.pipeline.sources.values():
                if hasattr(source, "ready"):
                    await source.ready()
            yield service

    return opened


def client_of(service: Service) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(create_app(service)), base_url="http://localhost")


async def retrieve(service: Service, query: str, *, status: int = 200, **more: Any) -> dict[str, Any]:
    async with client_of(service) as client:
        answer = await client.post("/v1/retrieve", json={"query": query, **more})
    assert answer.status_code == status, answer.text
    return dict(answer.json())


def reply(question: str, *sources: str, **more: Any) -> str:
    return json.dumps({"kind": "retrieve", "question": question, "searches": [question], "sources": sources, **more})


@asynccontextmanager
async def choosing(*sources: str, **more: Any) -> AsyncIterator[tuple[ScriptedServer, dict[str, Any]]]:
    """A model that chooses these sources for every question, with the settings that it is reached by."""

    def answer(body: dict[str, Any]) -> str:
        return reply("What is said about the first program?", *sources, **more)

    with ScriptedServer(answer) as server:
        yield server, {"llm": "openai/small", "llm_base_url": server.base_url, "intent": "llm", "max_rounds": 1}


def found_in(result: Mapping[str, Any]) -> set[str]:
    return {source for hit in result["hits"] for source in hit["sources"]}


# The seed's example.


@pytest.mark.parametrize(("chosen", "document"), [("bios", "lovelace"), ("terms", "accounts")])
async def test_a_model_chooses_between_two_folders_by_their_descriptions(
    chosen: str, document: str, places: dict[str, Any], open_named: Any
):
    async with choosing(chosen) as (server, model), open_named(places, **model) as service:
        result = await retrieve(service, "What is said about the first program?")
    shown = server.requests[0].body["messages"][0]["content"]
    assert '- "bios": Biographies of people who made computing; for example "Who was Alan Turing?"' in shown
    assert '- "terms": Terms of use: contracts, refunds and accounts' in shown
    assert found_in(result) == {chosen}
    assert result["hits"][0]["document_id"].startswith(document)
    assert result["hits"][0]["id"].startswith(f"0:{chosen}/")
    assert [one["name"] for one in result["intent"]["sources"]] == [chosen]
    assert {one["source"] for one in result["outcomes"] if one["status"] == "ok"} >= {chosen}


async def test_without_a_model_a_question_like_the_examples_of_one_goes_there(places: dict[str, Any], open_named: Any):
    async with open_named(places) as service:
        result = await retrieve(service, "How can I cancel a contract?")
        assert [one["name"] for one in result["intent"]["sources"]] == ["terms"]
        assert found_in(result) == {"terms"}
        assert result["hits"][0]["document_id"].startswith("refunds")


async def test_without_a_model_a_question_that_says_nothing_of_the_place_is_asked_of_both(
    places: dict[str, Any], open_named: Any
):
    async with open_named(places) as service:
        result = await retrieve(service, "the first program")
    assert {"bios", "terms"} <= {one["source"] for one in result["outcomes"] if one["status"] == "ok"}
    assert found_in(result) == {"bios", "terms"}


async def test_the_caller_names_a_source(places: dict[str, Any], open_named: Any):
    async with open_named(places) as service:
        result = await retrieve(service, "first program contract", sources=["bios"])
        assert found_in(result) == {"bios"}
        problem = await retrieve(service, "x", sources=["bio"], status=422)
        assert 'there is no source "bio"' in problem["detail"]
        assert '"bios"' in problem["detail"]
        named = await retrieve(service, "first program contract", collection="terms")
        assert found_in(named) == {"terms"}
