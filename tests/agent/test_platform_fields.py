"""A public collection of the platform shows others the fields of documents that they can find, and no other field."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from mcp import Client

from agent.serve.authentication import Caller
from agent.serve.http.app import create_app
from agent.serve.mcp.server import build_server
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from agent.testing import ScriptedServer
from retrievers.core.errors import BadRequest
from retrievers.core.metadata import Field
from retrievers.core.types import PLATFORM
from retrievers.ingest.documents import Document
from retrievers.postgres.guard.guard import judge_statement
from retrievers.postgres.sql import execution
from retrievers.postgres.sql.view import DocumentsViews

SECRET = "internal_margin"
ASKED = "Which windmill notes are there?"


def note(id: str, *, public: bool = True, **more: Any) -> Document:
    return Document(id, id, id, f"A note about windmills, {id}.", metadata={"team": "red"}, public=public, **more)


def secret(**more: Any) -> Document:
    return Document("s", "s", "s", "Inside.", metadata={"team": "red", SECRET: 7}, **more)


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer(lambda body: "{}") as server:
        yield server


@pytest.fixture
async def service(owner_url: str, service_url: str, model: ScriptedServer) -> AsyncIterator[Service]:
    settings = Settings(
        database_url=owner_url, service_url=service_url, pool_size=4, llm="openai/small", llm_base_url=model.base_url
    )
    async with open_service(settings) as service:
        yield service


async def declared(service: Service) -> None:
    await service.ingest([note("a")], "shared", tenant=PLATFORM, schema={SECRET: Field(SECRET, "number", "number")})


async def disabled(service: Service) -> None:
    await service.ingest([note("a"), secret(public=True, enabled=False)], "shared", tenant=PLATFORM)


async def disabled_and_private(service: Service) -> None:
    await service.ingest([secret(enabled=False)], "shared", tenant=PLATFORM)
    await service.ingest([note("a")], "shared", tenant=PLATFORM)


async def private_and_deleted(service: Service) -> None:
    await service.ingest([secret()], "shared", tenant=PLATFORM)
    await service.delete("shared", "s", tenant=PLATFORM)
    await service.ingest([note("a")], "shared", tenant=PLATFORM)


async def expired(service: Service) -> None:
    past = datetime.now(UTC) - timedelta(days=1)
    await service.ingest([note("a"), secret(public=True, expires_at=past)], "shared", tenant=PLATFORM)


async def replaced(service: Service) -> None:
    await service.ingest([note("a"), secret(public=True)], "shared", tenant=PLATFORM)
    await service.ingest([note("s")], "shared", tenant=PLATFORM)


async def refused(service: Service) -> None:
    await service.ingest([note("a"), secret()], "shared", tenant=PLATFORM)


async def over_http(service: Service) -> list[Any]:
    async def authenticate(authorization: str | None) -> Caller:
        return Caller("acme", "key")

    transport = httpx2.ASGITransport(create_app(service, authenticate=authenticate))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        wanted = {"type": "eq", "key": "no_such_field", "value": 1}
        answers = [
            await client.get("/v1/collections"),
            await client.get("/v1/collections/shared"),
            await client.post("/v1/retrieve", json={"query": ASKED, "collection": "shared", "explain": True}),
            await client.post("/v1/augment", json={"query": ASKED}),
            await client.post("/v1/retrieve", json={"query": ASKED, "filter": wanted}),
            await client.post("/v1/retrieve", json={"query": ASKED, "filter": {**wanted, "key": SECRET}}),
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 422, 422]
    assert "team" in answers[1].text
    assert "team" in answers[4].text
    # The name is the caller's own there; that it is unknown is said as of any other.
    assert SECRET not in json.dumps([error["valid"] for error in answers[5].json()["errors"]])
    return [answer.text for answer in answers[:5]]


async def over_mcp(service: Service) -> list[Any]:
    async with Client(build_server(service, lambda context: Caller("acme", None))) as client:
        described = await client.call_tool("describe_collections", {})
        resource = await client.read_resource("signalbox://collections/shared")
        wanted = {"type": "eq", "key": "no_such_field", "value": 1}
        bad = await client.call_tool("search_knowledge", {"query": ASKED, "filter": wanted})
        listed = await client.list_tools()
    seen = [one.model_dump_json() for one in (described, resource, bad, listed)]
    assert all("team" in one for one in seen[:3])
    return seen


async def in_statements(service: Service) -> list[Any]:
    scope = await service.catalogue.scope("acme", "shared", fresh=True)
    view = await DocumentsViews(service.database).of(scope)
    table = await execution.run_statement(
        service.database, scope, view, judge_statement("SELECT * FROM documents", view.columns).sql or ""
    )
    assert "team" in view.columns
    return [sorted(view.columns), table]


async def in_prompts(service: Service, model: ScriptedServer) -> list[Any]:
    model.requests.clear()
    await service.ask(ASKED, collection="shared", tenant="acme", intent="llm")
    asked = [json.dumps(request.body) for request in model.requests]
    assert any("team" in body for body in asked)
    return asked


async def in_python(service: Service) -> list[Any]:
    fields, held = await service.fields("shared", tenant="acme")
    with pytest.raises(BadRequest) as caught:
        await service.retrieve(ASKED, tenant="acme", filter={"type": "eq", "key": "nothing", "value": 1})
    return [sorted(fields), sorted(held), await service.describe("shared", tenant="acme"), caught.value.valid]


@pytest.mark.parametrize(
    "history",
    [declared, disabled, disabled_and_private, private_and_deleted, expired, replaced, refused],
    ids=lambda history: history.__name__,
)
async def test_no_door_names_a_field_that_no_document_has_which_others_can_find(
    service: Service, model: ScriptedServer, history: Callable[[Service], Awaitable[None]]
):
    await history(service)
    # The platform looks first: what it may know must not be kept for others.
    await service.describe("shared", tenant=PLATFORM)
    await service.retrieve(ASKED, collection="shared", tenant=PLATFORM)

    for door in (over_http, over_mcp, in_statements, in_python):
        assert SECRET not in str(await door(service)), door.__name__
    assert SECRET not in str(await in_prompts(service, model))


async def test_the_platform_itself_knows_its_fields_whoever_looked_before(service: Service):
    await declared(service)
    for tenant, knows in (("acme", False), (PLATFORM, True), ("globex", False), (PLATFORM, True)):
        described = await service.describe("shared", tenant=tenant)
        assert (SECRET in {one["name"] for one in described["fields"]}) is knows
        scope = await service.catalogue.scope(tenant, "shared")
        assert (SECRET in (await service.catalogue.fields(scope)).fields) is knows
        assert (SECRET in (await DocumentsViews(service.database).of(scope)).columns) is knows


async def test_a_field_is_seen_from_the_first_document_on_that_others_can_find(service: Service):
    await declared(service)
    await service.ingest([secret(public=True)], "shared", tenant=PLATFORM)
    described = await service.describe("shared", tenant="acme")
    assert {one["name"]: one["documents"] for one in described["fields"]}[SECRET] == 1
