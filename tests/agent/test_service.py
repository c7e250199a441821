"""The service as its users hold it: tenants, freshness, pages, and a login of its own."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from agent import Service, open_service
from agent.settings import Settings
from retrievers.core.errors import BadRequest
from retrievers.ingest.documents import Document


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    async with open_service(Settings(database_url=owner_url, service_url=service_url)) as service:
        yield service


def document(name: str, text: str, **more: object) -> Document:
    return Document(name, name, name, text, **more)  # type: ignore[arg-type]


async def test_an_empty_tenant_is_an_error_and_never_the_default_one(service: Service):
    await service.ingest([document("a", "Penguins march.")], "docs")
    calls = (
        service.retrieve("penguins", tenant=""),
        service.augment("penguins", tenant=""),
        service.collections(tenant=""),
        service.describe("docs", tenant=""),
        service.delete("docs", tenant=""),
        service.ingest([document("b", "text")], "docs", tenant=""),
    )
    for call in calls:
        with pytest.raises(BadRequest, match="a tenant is a name"):
            await call
    assert [one.documents for one in await service.collections()] == [1]


async def test_what_was_just_ingested_is_found_at_once(service: Service):
    await service.ingest([document("a", "Penguins march.")], "docs")
    await service.retrieve("walrus migration", collection="docs")
    await service.ingest([document("b", "The walrus migration begins.")], "docs")
    result = await service.retrieve("walrus migration", collection="docs", sources=("fulltext",))
    assert [hit.document_id for hit in result.hits] == ["b"]


async def test_expired_passages_do_not_use_up_the_candidates_of_full_text(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("retrievers.fulltext.CANDIDATES", 20)
    past = datetime(2020, 1, 1, tzinfo=UTC)
    gone = [document(f"gone{n}", "A zebra.", expires_at=past) for n in range(25)]
    here = [document(f"here{n}", "Some stripes.") for n in range(30)]
    await service.ingest([*gone, *here], "docs")
    result = await service.retrieve("zebra stripes", collection="docs", sources=("fulltext",), top_k=100)
    assert sorted(hit.document_id for hit in result.hits) == sorted(one.id for one in here)


async def test_a_page_behind_the_last_hit_is_empty_but_something_was_found(service: Service):
    await service.ingest([document("a", "Penguins march.")], "docs")
    result = await service.retrieve("penguins", collection="docs", page=3)
    assert (result.hits, result.status) == ((), "found")
    assert (await service.retrieve("penguins", collection="docs", page=1)).hits != ()


async def test_joined_passages_stand_in_the_prompt_as_they_stand_in_the_document(service: Service):
    text = "\n\n\n".join(f"Penguins and part {n}. " + f"word{n} " * 160 for n in range(6)).strip()
    await service.ingest([document("a", text)], "docs")
    prompt = await service.augment("penguins", collection="docs", budget_tokens=20_000)
    assert [(one.start, one.end) for one in prompt.citations] == [(0, len(text))]
    assert text in prompt.prompt


async def test_vectors_of_another_embedder_in_some_collection_are_reported(service: Service, owner_url: str):
    await service.ingest([document("a", "Penguins march.")], "docs")
    await service.ingest([document("b", "Penguins swim.")], "other")
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("INSERT INTO signalbox.embedder (name, dimension) VALUES ('elsewhere', 3)")
        connection.execute(
            "UPDATE signalbox.collection SET embedder = e.number FROM signalbox.embedder e"
            " WHERE e.name = 'elsewhere' AND collection.name = 'other'"
        )
    await service.collections()
    assert (await service.retrieve("penguins")).degraded == ("vector_partial",)
    assert (await service.retrieve("penguins", collection="docs")).degraded == ()


async def test_a_login_of_its_own_that_is_a_member_of_the_service_role_is_enough(owner_url: str):
    login = make_conninfo(owner_url, user="signalbox_login")
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute(
            "DO $$ BEGIN CREATE ROLE signalbox_login LOGIN IN ROLE signalbox_app;"
            " EXCEPTION WHEN duplicate_object THEN NULL; END $$"
        )
    async with open_service(Settings(database_url=owner_url, service_url=login)) as service:
        await service.ingest([document("a", "Penguins march.")], "docs")
        assert [hit.document_id for hit in (await service.retrieve("penguins")).hits] == ["a"]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await service.database.fetch(
                "default", "SELECT set_config('role', 'none', true), key FROM signalbox.secret", {}
            )


async def test_an_unknown_template_is_the_callers_mistake_and_lists_those_there_are(service: Service):
    await service.ingest([document("a", "Penguins march.")], "docs")
    with pytest.raises(BadRequest, match="answer/v1"):
        await service.augment("penguins", collection="docs", template="nope")
