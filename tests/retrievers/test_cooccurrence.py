"""Which values occur in the same documents, as a viewer sees them."""

from typing import Any

import psycopg
import pytest

from retrievers.core.cooccurrence import Cooccurrence
from retrievers.core.types import Viewer
from retrievers.ingest.documents import Document
from retrievers.ingest.run import ingest
from retrievers.postgres.catalogue import cooccurrence_reader, field_values
from retrievers.postgres.catalogue.catalogue import Catalogue
from retrievers.postgres.connections.database import Database
from retrievers.testing import HashEmbedder

TENANT = "acme"


def document(id: str, readers: tuple[str, ...] = (), **metadata: Any) -> Document:
    return Document(where=id, id=id, title="", text="Oil the bearing.", metadata=metadata, readers=readers)


async def read(database: Database, *documents: Document, principals: tuple[str, ...] = ()) -> Cooccurrence:
    report = await ingest(database, HashEmbedder(), TENANT, "docs", documents)
    assert report.failed == []
    return await read_again(database, principals)


async def read_again(database: Database, principals: tuple[str, ...] = ()) -> Cooccurrence:
    catalogue = Catalogue(database)
    scope = await catalogue.scope(Viewer(TENANT, principals), "docs")
    return (await catalogue.fields(scope)).cooccurrence


def together(found: Cooccurrence, *pairs: tuple[str, str]) -> int:
    """Return the number of documents with all of the values."""
    every = -1
    for name, value in pairs:
        every &= found.documents_with_values(name, (value,))
    return every.bit_count()


async def test_values_of_one_document_occur_together(database: Database):
    found = await read(
        database,
        document("a", team="infra", tags=["x", "y"], open=True),
        document("b", team="infra", tags=["x"], open=False),
        document("c", team="hr", tags=["y"], size=3, day="2024-03-01"),
    )
    assert found.documents_with_field("team").bit_count() == 3
    assert found.documents_with_field("open").bit_count() == 2
    assert together(found, ("team", "infra"), ("tags", "x")) == 2
    assert together(found, ("team", "infra"), ("open", "true")) == 1
    assert together(found, ("team", "hr"), ("tags", "x")) == 0
    assert found.documents_with_values("tags", ("x", "y")).bit_count() == 3
    assert {name for name, _ in found.having} == {"team", "tags", "open", "language", "public"}


async def test_a_document_that_the_viewer_may_not_read_is_not_counted(database: Database):
    found = await read(
        database, document("a", team="infra", site="north"), document("b", ("user:7",), team="infra", site="south")
    )
    assert together(found, ("team", "infra")) == 1
    assert together(found, ("site", "south")) == 0
    assert together(await read_again(database, ("user:7",)), ("team", "infra"), ("site", "south")) == 1


async def test_of_many_or_large_documents_nothing_is_kept(database: Database, monkeypatch: pytest.MonkeyPatch):
    found = await read(database, document("a", team="infra"), document("b", team="hr"))
    assert found.documents_with_field("team").bit_count() == 2
    for module in ("retrievers.core.cooccurrence", "retrievers.postgres.catalogue.field_values"):
        monkeypatch.setattr(f"{module}.MOST_DOCUMENTS", 1)
        assert (await read_again(database)).having == {}
        monkeypatch.setattr(f"{module}.MOST_DOCUMENTS", 2)
    monkeypatch.undo()
    found = await read(database, document("c", **{f"key{n}": "a long value" for n in range(200)}))
    assert (found.having, found.fields) == ({}, {})


async def test_the_fields_with_the_most_values_are_left_out(database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("retrievers.core.cooccurrence._MOST_VALUES", 5)
    found = await read(database, *(document(f"d{n}", team="infra", author=f"author {n}") for n in range(3)))
    assert found.fields.keys() == {"team", "language", "public"}


async def test_while_the_documents_cannot_be_read_the_fields_are_known_and_later_what_occurs_together(
    database: Database, owner_url: str, monkeypatch: pytest.MonkeyPatch
):
    await read(database, document("a", team="infra"))
    catalogue = Catalogue(database)
    scope = await catalogue.scope(TENANT, "docs")
    monkeypatch.setattr(field_values, "_FRESH_S", 0.0)
    with psycopg.connect(owner_url) as other:
        other.execute("LOCK TABLE signalbox.document IN ACCESS EXCLUSIVE MODE")
        monkeypatch.setattr(cooccurrence_reader, "PATIENCE_S", 0.2)
        known = await catalogue.fields(scope)
        assert (known.fields["team"].values, known.cooccurrence.having) == ({"infra": 1}, {})
    monkeypatch.setattr(cooccurrence_reader, "PATIENCE_S", 30.0)
    assert (await catalogue.fields(scope)).cooccurrence.documents_with_field("team").bit_count() == 1
    assert (await catalogue.fields(scope)) is (await catalogue.fields(scope))
