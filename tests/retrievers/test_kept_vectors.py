"""Vectors that are kept in memory give what the database gives, and nothing else."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import psycopg
import pytest
from pgvector import HalfVector

from retrievers.core.types import Hit, Query, Viewer, whole
from retrievers.embed.pool import Embedders
from retrievers.ingest.documents import Document
from retrievers.ingest.run import ingest
from retrievers.ingest.store import remove_documents
from retrievers.postgres import kept_vectors
from retrievers.postgres.catalogue import Catalogue
from retrievers.postgres.database import Database
from retrievers.postgres.kept_vectors import Kept, KeptVectors
from retrievers.testing import HashEmbedder
from retrievers.vector import Vector

TENANT = "acme"
ANNA, BEN = Viewer(TENANT, ("anna",)), Viewer(TENANT, ("ben",))
EMBEDDER = HashEmbedder()
LATER = datetime.now(UTC) + timedelta(days=1)


def document(id: str, text: str = "a note about turbines", **given: Any) -> Document:
    return Document(where=id, id=id, title=id, text=text, **given)


@pytest.fixture
async def kept(database: Database) -> KeptVectors:
    """Vectors of a collection with readers and a copied text, read for both viewers."""
    await ingest(
        database,
        EMBEDDER,
        TENANT,
        "notes",
        [document("all"), document("copy"), document("annas", readers=("anna",)), document("late", expires_at=LATER)],
    )
    return KeptVectors(database)


async def found(kept: KeptVectors, viewer: Viewer, times: int = 3) -> list[list[str]]:
    """Ask several times, as new processes do at first; return the ids of each answer."""
    hits = [await search(kept, viewer) for _ in range(times)]
    return [[hit.id.document_id for hit in one] for one in hits]


async def search(kept: KeptVectors, viewer: Viewer, **changes: Any) -> list[Hit]:
    database = kept._database
    scope = await Catalogue(database).scope(viewer, "notes")
    return await Vector(database, Embedders(EMBEDDER), kept).search(Query("turbines", "en", scope, **changes))


async def test_vectors_are_read_when_nothing_has_changed_since_the_last_question(kept: KeptVectors):
    plain = Vector(kept._database, Embedders(EMBEDDER))
    scope = await Catalogue(kept._database).scope(ANNA, "notes")
    expected = await plain.search(Query("turbines", "en", scope))
    for number in (0, 1, 1):
        assert (await search(kept, ANNA), len(kept._kept)) == (expected, number)
    assert await search(kept, ANNA, limit=2) == expected[:2]


async def test_what_is_written_is_seen_by_the_next_question(kept: KeptVectors):
    await found(kept, ANNA)
    await ingest(kept._database, EMBEDDER, TENANT, "notes", [document("new")])
    assert all("new" in one for one in await found(kept, ANNA))
    number = (await Catalogue(kept._database).scope(ANNA, "notes")).collections[0].number
    async with kept._database.transaction(whole(TENANT)) as connection:
        await remove_documents(connection, TENANT, number, ["new"])
    assert not any("new" in one for one in await found(kept, ANNA))


async def test_a_reader_who_is_taken_away_finds_nothing_that_was_kept(kept: KeptVectors):
    assert all("annas" in one for one in await found(kept, ANNA))
    assert not any("annas" in one for one in await found(kept, BEN))
    await ingest(kept._database, EMBEDDER, TENANT, "notes", [document("annas", readers=("ben",))])
    assert not any("annas" in one for one in await found(kept, ANNA))
    assert all("annas" in one for one in await found(kept, BEN))


async def test_what_expires_is_left_out_though_it_is_kept(kept: KeptVectors, owner_url: str):
    scope = await Catalogue(kept._database).scope(ANNA, "notes")
    await found(kept, ANNA)
    (one,) = kept._kept.values()
    question = EMBEDDER.vector("turbines").astype(np.float16)
    for at, count in ((LATER - timedelta(seconds=1), 4), (LATER, 3)):
        assert len(one.nearest(question, 10, at)) == count
    assert scope.collections[0].chunks == 4
    with psycopg.connect(owner_url) as connection:
        connection.execute("UPDATE signalbox.chunk SET expires_at = now() WHERE document_id = 'late'")
    assert "late" not in (await found(KeptVectors(kept._database), ANNA))[-1]


async def test_of_questions_at_once_one_reads(kept: KeptVectors, monkeypatch: pytest.MonkeyPatch):
    reads: list[str] = []
    read = KeptVectors._read

    async def counted(self: KeptVectors, viewer: Viewer, values: dict[str, Any], state: str) -> Kept | None:
        reads.append(state)
        return await read(self, viewer, values, state)

    monkeypatch.setattr(KeptVectors, "_read", counted)
    await search(kept, ANNA)
    hits = await asyncio.gather(*(search(kept, ANNA) for _ in range(8)))
    assert (len(reads), len(kept._kept)) == (1, 1)
    assert hits == [hits[0]] * 8


async def test_the_oldest_are_forgotten(kept: KeptVectors, monkeypatch: pytest.MonkeyPatch):
    await found(kept, ANNA)
    assert (len(kept._kept), kept._values) == (1, 4 * 64)
    monkeypatch.setattr(kept_vectors, "_MOST_KEPT_VALUES", 5 * 64)
    await found(kept, BEN)
    assert (len(kept._kept), kept._values) == (1, 3 * 64)


@pytest.mark.parametrize("dimension", [7, 64, 387])
async def test_scores_equal_those_of_pgvector(database: Database, dimension: int):
    vectors = np.random.default_rng(dimension).standard_normal((301, dimension))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[200] = vectors[100]
    halves = vectors.astype(np.float16)
    question = halves[300]
    places = [("acme", 1, f"d{number}", 0) for number in range(300)]
    kept = Kept(places, halves[:300].astype(np.float32), ())
    rows = await database.search(
        """
        SELECT 'acme', 1, 'd' || n - 1, 0, -(one::halfvec <#> %(question)b) FROM unnest(%(vectors)s::text[])
        WITH ORDINALITY AS given (one, n) ORDER BY 5 DESC, ('d' || n - 1) COLLATE "C" LIMIT 50
        """,
        {"question": HalfVector(question), "vectors": [str(one.tolist()) for one in halves[:300]]},
    )
    near = kept.nearest(question, 50, datetime.now(UTC))
    assert [row[:4] for row in near] == [tuple(row[:4]) for row in rows]
    assert np.allclose([row[4] for row in near], [row[4] for row in rows], rtol=0, atol=1e-6)
    assert len(kept.nearest(question, 1000, datetime.now(UTC))) == 300
