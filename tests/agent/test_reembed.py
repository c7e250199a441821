"""Collections made anew while they are asked: another embedder or splitter, deaths, writes and failures meanwhile."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agent import Service, open_service
from agent.settings import Settings
from agent.testing import Fault, ScriptedServer
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.types import Viewer, unrestricted_viewer
from retrievers.ingest import rebuild
from retrievers.ingest.documents import Document
from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.ingest.rebuild import CollectionRebuilder

_EACH = """
    FROM signalbox.{table} t JOIN signalbox.collection k ON k.tenant = t.tenant AND k.number = t.collection
    LEFT JOIN signalbox.collection p ON p.tenant = k.tenant AND p.number = k.part_of
    WHERE t.tenant = %s AND coalesce(p.name, k.name) = %s ORDER BY 1, 2, 3, 4
"""
_OF = {
    name: _EACH.format(table=name) for name in ("document", "chunk", "term", "field_value", "field_count", "field_word")
}
_DUMP = {
    "collection": """
        SELECT k.readers, k.analysis, k.split, k.folding, k.fields, k.languages, k.documents, k.public_documents,
               k.chunks, k.words, CASE WHEN k.part_of IS NULL THEN k.mean_length END, k.records, k.description
        FROM signalbox.collection k LEFT JOIN signalbox.collection p ON p.tenant = k.tenant AND p.number = k.part_of
        WHERE k.tenant = %s AND coalesce(p.name, k.name) = %s AND (k.part_of IS NULL OR k.documents > 0) ORDER BY 1""",
    "document": """
        SELECT id, title, url, body, t.metadata, t.fields, important, questions, language, digest, t.chunks, t.words,
               public, enabled, expires_at, t.created_at, updated_at, delivery,
               (SELECT readers FROM signalbox.collection p WHERE p.tenant = t.tenant AND p.number = t.part)""",
    "chunk": """
        SELECT document_id, ordinal, public, expires_at, start_character, end_character, length, embedding::text,
               bm25::text, t.fields, heading, digest, replace(lexemes::text, k.number || ':', ''), body, gap,
               (SELECT readers FROM signalbox.collection p WHERE p.tenant = t.tenant AND p.number = t.part)""",
    "term": "SELECT term, k.readers, t.chunks, 0",
    "field_value": "SELECT field, value, k.readers, t.number, t.documents",
    "field_count": "SELECT field, k.readers, t.documents, kept, long",
    "field_word": "SELECT field, value, t.words, place, k.readers",
}


def dump(url: str, tenant: str = "default", name: str = "docs") -> dict[str, list[Any]]:
    """All that is stored of a collection, apart from its numbers and version."""
    with psycopg.connect(url) as connection:
        return {
            part: connection.execute((query + _OF.get(part, "")).encode(), (tenant, name)).fetchall()
            for part, query in _DUMP.items()
        }


def same(one: dict[str, list[Any]], other: dict[str, list[Any]]) -> bool:
    for name in one:
        assert len(one[name]) == len(other[name]), name
        differing = [(a, b) for a, b in zip(one[name], other[name], strict=True) if a != b]
        assert not differing, (name, str(differing[0])[:2000])
    return True


OLD, NEW = "openai/old", "openai/new"
QUESTIONS = ("penguin 7", "how far does a walrus swim?", "ice 30")


def document(name: str, text: str, **more: object) -> Document:
    return Document(name, name, f"Title {name}", text, **more)  # type: ignore[arg-type]


def bare(name: str, text: str) -> Document:
    """Its passage is embedded as its text alone, so that the text as a question has its vector."""
    return Document(name, name, "", text)


def corpus(count: int = 90) -> list[Document]:
    return [
        document(
            f"d{n:03}",
            f"Penguin {n} walks over ice {n % 31}. " * (1 + 40 * (n % 9 == 0)),
            metadata={"year": 2000 + n % 20, "team": f"team {n % 3}"},
            readers=("user:7",) if n % 10 == 3 else (),
            enabled=n % 17 != 5,
        )
        for n in range(count)
    ]


@asynccontextmanager
async def opened(
    owner: str, service: str, old: ScriptedServer, new: ScriptedServer, **more: Any
) -> AsyncIterator[Service]:
    settings = Settings(
        database_url=owner, service_url=service, embedder=OLD, embedder_base_url=old.base_url,
        embedders=f"{NEW}={new.base_url}", **more,
    )  # fmt: skip
    async with open_service(settings) as it:
        yield it


@pytest.fixture
def models() -> Any:
    with ScriptedServer(dimension=16) as old, ScriptedServer(dimension=48) as new:
        yield old, new


@pytest.fixture
async def service(
    owner_url: str, service_url: str, models: tuple[ScriptedServer, ScriptedServer]
) -> AsyncIterator[Service]:
    async with opened(owner_url, service_url, *models) as it:
        yield it


async def pages(service: Service, viewer: Viewer | None = None) -> list[Any]:
    found = []
    for question in QUESTIONS:
        for page in (1, 2):
            result = await service.retrieve(question, collection="docs", page=page, tenant=viewer)
            found.append([(hit.id, hit.score, dict(hit.scores)) for hit in result.hits])
    return found


async def turn(service: Service) -> bool:
    """One job of the queue, or one turn of one; False where there is none due."""
    lease = await service.worker.jobs.lease_next()
    if lease is None:
        return False
    await service.worker.run_job(lease)
    return True


def slow(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of one batch of 20 documents."""
    monkeypatch.setattr(rebuild, "_BATCH", 20)
    monkeypatch.setattr(rebuild, "_LAST", 4)

    async def run_turn(*given: Any) -> bool:
        builder = CollectionRebuilder(service.database, service.embedder, service.worker.jobs, slice_s=0)
        try:
            return await builder.run_turn(*given)
        finally:
            service.catalogue.invalidate("default")

    monkeypatch.setattr(service.worker._runner, "_rebuild", run_turn)


async def embedder_of(service: Service, name: str = "docs") -> tuple[str | None, int | None]:
    found = next(one for one in await service.collections() if one.name == name)
    return found.embedder, found.dimension


async def test_questions_see_the_old_vectors_until_the_switch_and_writes_meanwhile_are_there_after_it(
    service: Service, models: tuple[ScriptedServer, ScriptedServer], monkeypatch: pytest.MonkeyPatch, owner_url: str
):
    await service.ingest(corpus(), "docs")
    before, reader = await pages(service), Viewer("default", ("user:7",))
    as_reader = await pages(service, reader)
    slow(service, monkeypatch)

    job = await service.reembed("docs", NEW)
    assert (job.kind, job.embedder, job.status) == ("reembed", NEW, "queued")
    assert (await service.describe("docs"))["job"] == {
        "job_id": job.id, "kind": "reembed", "embedder": NEW, "status": "queued",
    }  # fmt: skip
    assert (await service.reembed("docs", NEW)).id == job.id
    for _ in range(3):
        await turn(service)
        assert await pages(service) == before
        assert await pages(service, reader) == as_reader
        assert await embedder_of(service) == (OLD, 16)
        assert [one.name for one in await service.collections()] == ["docs"]
    job = await service.job(job.id)
    assert 0 < job.done < (job.documents or 0)
    with psycopg.connect(owner_url) as connection:  # before the switch, so that no question ever lacks it
        valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('signalbox.chunk_embedding_2')"
        assert connection.execute(valid).fetchone() == (True,)

    changed = [bare("d000", "The walrus swims far."), document("d088", "Another text."), document("new", "New.")]
    await service.ingest(changed, "docs")
    await service.delete("docs", "d001")
    await service.delete("docs", "d087")
    expected = dump(owner_url, "default")
    while await turn(service):
        pass

    job = await service.job(job.id)
    assert (job.status, job.error, job.done) == ("done", None, job.documents)
    assert await embedder_of(service) == (NEW, 48)
    assert (await service.describe("docs"))["job"] is None
    for _, number in await removed(service, owner_url):
        assert number
    after = dump(owner_url, "default")
    assert [row[7] for row in expected["chunk"]] != [row[7] for row in after["chunk"]]
    assert same(without_vectors(expected), without_vectors(after))
    found = await service.retrieve("The walrus swims far.", collection="docs", sources=("vector",))
    assert (found.hits[0].document_id, round(found.hits[0].scores["vector"] or 0, 2)) == ("d000", 1.0)
    assert await pages(service) != before
    # The same as what a fresh ingestion with the new embedder stores.
    asked = len(models[1].requests)
    assert (await service.ingest(changed, "docs")).unchanged == 3
    assert len(models[1].requests) == asked


async def removed(service: Service, url: str) -> list[tuple[str, int]]:
    """Have what was replaced go, as a worker does later; which that was."""
    service.worker.jobs.expiry.retired_s = 0
    gone = await service.worker.jobs.expiry.retired_collections()
    for tenant, number in gone:
        assert await service.worker.jobs.expiry.delete_retired_collection(tenant, number, within_s=60)
    with psycopg.connect(url) as connection:
        left = connection.execute(
            "SELECT count(*) FROM signalbox.collection WHERE shadow_of IS NOT NULL OR name LIKE '%/%'"
        ).fetchone()
    assert left == (0,)
    return gone


def without_vectors(found: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {**found, "chunk": [(*row[:7], *row[8:]) for row in found["chunk"]]}


async def test_a_question_to_collections_of_two_embedders_is_embedded_once_by_each(
    service: Service, models: tuple[ScriptedServer, ScriptedServer]
):
    await service.ingest([document("a", "Penguins march."), document("b", "Whales sing.")], "docs")
    await service.ingest([document("c", "Walruses swim."), document("d", "Bears sleep.")], "others")
    await service.reembed("others", NEW)
    while await turn(service):
        pass
    await service.retrieve("warm up", sources=("vector",))
    asked = [len(model.requests) for model in models]

    result = await service.retrieve("who swims?", sources=("vector",))

    assert {hit.id.split("/")[0] for hit in result.hits} == {"docs", "others"}
    assert result.degraded == ()
    inputs = [[one.body["input"] for one in model.requests[n:]] for model, n in zip(models, asked, strict=True)]
    assert [one.count(["who swims?"]) for one in inputs] == [1, 1]
    assert all(-1.01 <= hit.scores["vector"] <= 1.01 for hit in result.hits)


_KILLED = """
import asyncio, sys
from agent import open_service
from agent.settings import Settings
from retrievers.ingest import rebuild

rebuild._BATCH = 20

async def main():
    owner, service, old, new = sys.argv[1:]
    settings = Settings(database_url=owner, service_url=service, embedder="openai/old", embedder_base_url=old,
                        embedders="openai/new=" + new)
    async with open_service(settings) as it:
        async with it.worker:
            await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_killed_at_several_moments_it_is_finished_by_the_next_worker_and_nothing_is_lost(
    owner_url: str, service_url: str
):
    # Slow enough to die in the middle; what was copied before is not embedded again.
    with ScriptedServer(dimension=16) as old, ScriptedServer(dimension=48, faults=[Fault(delay_s=0.4)] * 500) as new:
        async with opened(owner_url, service_url, old, new) as service:
            await service.ingest(corpus(), "docs")
            expected = dump(owner_url)
            job = await service.reembed("docs", NEW)
            done = [0]
            viewer = unrestricted_viewer("default")
            for _ in range(2):
                process = subprocess.Popen(  # noqa: ASYNC220
                    [sys.executable, "-c", _KILLED, owner_url, service_url, old.base_url, new.base_url],
                    stdout=subprocess.DEVNULL,
                    cwd=ROOT,
                )
                try:
                    async with asyncio.timeout(60):
                        while (now := await service.job(job.id, tenant=viewer)).done <= done[-1]:  # noqa: ASYNC110
                            await asyncio.sleep(0.05)
                finally:
                    os.kill(process.pid, signal.SIGKILL)
                    process.wait()
                done.append(now.done)
                assert now.status == "running"
                assert await embedder_of(service) == (OLD, 16)
                with psycopg.connect(owner_url, autocommit=True) as connection:  # as if the lease had ended
                    connection.execute("UPDATE signalbox.job SET free_at = now()")
            while await turn(service):
                pass
            assert (await service.job(job.id)).status == "done"
            assert await embedder_of(service) == (NEW, 48)
            await removed(service, owner_url)
            assert same(without_vectors(expected), without_vectors(dump(owner_url)))
            assert (await service.check("docs")).findings == ()
            # Who is killed while it sends has asked for nothing.
            texts = [text for one in new.requests if one.body is not None for text in one.body["input"]]
            # At most one batch of each of the dead was embedded twice.
            assert len(texts) - len({*texts}) <= 3 * 60


ROOT = Path(__file__).resolve().parents[2]


async def test_an_embedder_that_fails_leaves_the_old_vectors_in_force_and_the_job_says_why(
    owner_url: str, service_url: str
):
    faults: list[Fault | None] = [None] * 2
    with (
        ScriptedServer(dimension=16) as old,
        ScriptedServer(dimension=48, faults=iter([*faults, *[Fault(status=401)] * 3])) as new,
    ):
        async with opened(owner_url, service_url, old, new) as service:
            await service.ingest(corpus(), "docs")
            before = await pages(service)
            job = await service.reembed("docs", NEW)
            with pytest.raises(Unavailable):
                await turn(service)
            job = await service.job(job.id)
            assert (job.status, job.next_try_at is not None) == ("queued", True)
            assert job.error is not None
            assert job.error.startswith(f"the embedder {NEW} is unavailable: ")
            assert await embedder_of(service) == (OLD, 16)
            assert await pages(service) == before

            # Up again, it goes on by itself.
            new._faults = iter(())
            with psycopg.connect(owner_url, autocommit=True) as connection:
                connection.execute("UPDATE signalbox.job SET free_at = now()")
            while await turn(service):
                pass
            assert (await service.job(job.id)).status == "done"
            assert await embedder_of(service) == (NEW, 48)


async def test_vectors_too_long_for_an_index_fail_the_job_and_change_nothing(owner_url: str, service_url: str):
    with ScriptedServer(dimension=16) as old, ScriptedServer(dimension=4096) as new:
        async with opened(owner_url, service_url, old, new) as service:
            await service.ingest(corpus(5), "docs")
            before = await pages(service)
            job = await service.reembed("docs", NEW)
            with pytest.raises(BadRequest):
                await turn(service)
            job = await service.job(job.id)
            assert (job.status, job.error) == (
                "failed",
                f"the embedder {NEW} makes vectors of 4,096 dimensions; the index takes at most 4,000",
            )
            assert await pages(service) == before


async def test_cancelled_it_leaves_nothing_behind_and_can_be_begun_again(
    service: Service, monkeypatch: pytest.MonkeyPatch, owner_url: str
):
    await service.ingest(corpus(), "docs")
    before, stored = await pages(service), dump(owner_url)
    slow(service, monkeypatch)
    job = await service.reembed("docs", NEW)
    await turn(service)
    with pytest.raises(BadRequest, match=f'job {job.id} is already rebuilding collection "docs"'):
        await service.rebuild("docs")
    cancelled = await service.cancel_job(job.id)
    assert (cancelled.status, cancelled.error) == ("failed", "cancelled")
    with pytest.raises(BadRequest, match="it is already failed"):
        await service.cancel_job(job.id)
    assert not await turn(service)
    assert len(await removed(service, owner_url)) == 1
    assert await pages(service) == before
    assert same(stored, dump(owner_url))
    with psycopg.connect(owner_url) as connection:
        assert connection.execute("SELECT name FROM signalbox.embedder").fetchall() == [(OLD,)]
        assert connection.execute("SELECT to_regclass('signalbox.chunk_embedding_2')").fetchone() == (None,)

    await service.retry_job(job.id)
    while await turn(service):
        pass
    assert await embedder_of(service) == (NEW, 48)


async def test_a_collection_that_is_deleted_meanwhile_ends_the_job_with_all_that_was_built(
    service: Service, monkeypatch: pytest.MonkeyPatch, owner_url: str
):
    await service.ingest(corpus(), "docs")
    slow(service, monkeypatch)
    job = await service.reembed("docs", NEW)
    await turn(service)
    assert await service.delete("docs") > 0
    ended = await service.job(job.id)
    assert (ended.status, ended.error) == ("failed", "the collection was deleted")
    with psycopg.connect(owner_url) as connection:
        for table in ("collection", "document", "chunk", "term", "field_value"):
            statement = f"SELECT count(*) FROM signalbox.{table}"  # noqa: S608
            assert connection.execute(statement.encode()).fetchone() == (0,), table


async def test_jobs_of_others_have_their_turn_between(service: Service, monkeypatch: pytest.MonkeyPatch):
    await service.ingest(corpus(), "docs")
    slow(service, monkeypatch)
    long = await service.reembed("docs", NEW)
    short = await service.submit("other", [{"id": "a", "text": "Short."}], wait=False)
    await turn(service)
    await turn(service)
    assert (await service.job(short.id)).status == "done"
    assert (await service.job(long.id)).status == "queued"


async def test_another_tenant_sees_nothing_of_it(service: Service, monkeypatch: pytest.MonkeyPatch):
    await service.ingest(corpus(30), "docs")
    slow(service, monkeypatch)
    job = await service.reembed("docs", NEW)
    await turn(service)
    other = unrestricted_viewer("other")
    assert await service.collections(tenant=other) == ()
    for call in (
        service.reembed("docs", NEW, tenant=other), service.rebuild("docs", tenant=other),
        service.check("docs", tenant=other), service.cancel_job(job.id, tenant=other),
    ):  # fmt: skip
        with pytest.raises(BadRequest, match=r"no collection|no job"):
            await call
    async with service.database.transaction(other) as connection:
        await connection.execute("SELECT set_config('signalbox.shadows', 'on', true)")
        for table in ("collection", "document", "chunk"):
            assert (await (await connection.execute(f"SELECT FROM signalbox.{table}".encode())).fetchall()) == []


async def test_the_platforms_documents_are_searched_by_all_without_a_gap_and_feedback_stays(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    public = [document(f"p{n}", f"Public penguin {n}.", public=True) for n in range(30)]
    await service.ingest(public, "docs", tenant="0")
    slow(service, monkeypatch)
    seen = await service.retrieve("public penguin 7", tenant="acme")
    await service.feedback(seen.trace_id, 9, tenant="acme")
    await service.reembed("docs", NEW, tenant="0")
    await turn(service)
    during = await service.retrieve("public penguin 7", tenant="acme")
    assert [(hit.id, hit.score) for hit in during.hits] == [(hit.id, hit.score) for hit in seen.hits]
    assert [one.name for one in await service.collections(tenant="acme")] == ["docs"]
    while await turn(service):
        pass
    assert (await service.retrieve("public penguin 7", tenant="acme", sources=("vector",))).hits
    rows = await service.database.fetch(
        "acme",
        "SELECT count(*) FROM signalbox.feedback_document f JOIN signalbox.collection k ON k.number = f.collection",
        {},
    )
    assert rows[0][0] > 0


async def test_rebuilding_makes_what_a_fresh_ingestion_of_another_version_makes_without_embedding_again(
    service: Service, models: tuple[ScriptedServer, ScriptedServer], monkeypatch: pytest.MonkeyPatch, owner_url: str
):
    from retrievers.text import analysis, chunking

    await service.ingest(corpus(), "docs")
    asked = len(models[0].requests)
    job = await service.rebuild("docs")
    assert (job.kind, job.embedder) == ("rebuild", None)
    while await turn(service):
        pass
    assert len(models[0].requests) == asked
    await removed(service, owner_url)

    cut = chunking.split_passages
    monkeypatch.setattr(chunking, "split_passages", lambda text: cut(text, 300))
    monkeypatch.setattr(chunking, "VERSION", chunking.VERSION + 1)
    monkeypatch.setattr(analysis, "VERSION", analysis.VERSION + 1)
    with pytest.raises(BadRequest, match="run `signalbox rebuild docs`, which rebuilds it"):
        await service.ingest([document("x", "x")], "docs")
    assert [one.kind for one in (await service.check("docs")).findings if one.kind == "version"] == ["version"]
    await service.rebuild("docs")
    while await turn(service):
        pass
    await removed(service, owner_url)
    assert (await service.check("docs")).findings == ()
    assert (await service.ingest(corpus(), "docs")).unchanged == len(corpus())
    rebuilt = dump(owner_url)

    await service.ingest(corpus(), "fresh")
    fresh = dump(owner_url, name="fresh")
    moments = slice(15, 18)
    for found in (rebuilt, fresh):
        found["document"] = [(*row[: moments.start], *row[moments.stop :]) for row in found["document"]]
    assert same(rebuilt, fresh)


async def test_an_ingestion_that_is_under_way_at_the_switch_goes_on_in_the_new_collection(
    owner_url: str, service_url: str
):
    hold, held, switched = (threading.Event() for _ in range(3))
    faults = _held_until(switched, hold, held)
    with ScriptedServer(dimension=16, faults=faults) as old, ScriptedServer(dimension=48) as new:
        async with opened(owner_url, service_url, old, new) as service:
            await service.ingest(corpus(), "docs")
            await service.reembed("docs", NEW)
            hold.set()
            late = [bare("late", "The walrus comes late."), document("d002", "Changed late.")]
            writing = asyncio.create_task(service.ingest(late, "docs"))
            await asyncio.to_thread(held.wait)  # until it is being embedded with the old one
            while await turn(service):
                pass
            assert await embedder_of(service) == (NEW, 48)
            assert not writing.done()

            switched.set()
            report = await writing

            assert (report.inserted, report.updated, report.failed) == (1, 1, [])
            await removed(service, owner_url)
            assert (await service.check("docs")).findings == ()
            assert (await service.document("docs", "late")).text == "The walrus comes late."
            assert (await service.document("docs", "d002")).text == "Changed late."
            found = await service.retrieve("The walrus comes late.", collection="docs", sources=("vector",))
            assert (found.hits[0].document_id, round(found.hits[0].scores["vector"] or 0, 2)) == ("late", 1.0)


def _held_until(released: threading.Event, hold: threading.Event, held: threading.Event) -> Iterator[None]:
    """No faults, but requests that come while `hold` is set wait for `released`; `held` tells that one has come."""
    while True:
        if hold.is_set():
            held.set()
            released.wait()
        yield None


async def test_writers_that_never_pause_do_not_hold_up_the_switch(service: Service, owner_url: str):
    await service.ingest(corpus(), "docs")
    job = await service.reembed("docs", NEW)
    stop = asyncio.Event()

    async def write(name: str) -> int:
        written = 0
        while not stop.is_set():
            await service.ingest([document(f"{name}{written % 5}", f"Text {written} of {name}.")], "docs")
            written += 1
        return written

    writers = [asyncio.create_task(write(name)) for name in ("x", "y")]
    async with asyncio.timeout(60):
        while (await service.job(job.id)).status != "done":
            await turn(service)
    stop.set()
    assert min(await asyncio.gather(*writers)) > 0
    await removed(service, owner_url)
    assert await embedder_of(service) == (NEW, 48)
    assert (await service.check("docs")).findings == ()


async def test_writers_of_many_documents_that_never_pause_do_not_hold_up_the_switch_and_wait_a_moment(
    service: Service, owner_url: str
):
    await service.ingest(corpus(30), "docs")
    job = await service.reembed("docs", NEW)
    stop, longest_s = asyncio.Event(), 0.0

    async def write(name: str) -> int:
        nonlocal longest_s
        written = 0
        while not stop.is_set():
            written, began = written + 1, time.monotonic()
            batch = [document(f"{name}{n}", f"Text {written} of {name} {n}.") for n in range(80)]
            await service.ingest(batch, "docs")
            longest_s = max(longest_s, time.monotonic() - began)
        return written

    writers = [asyncio.create_task(write(name)) for name in ("x", "y")]
    async with asyncio.timeout(120):
        while (await service.job(job.id)).status != "done":
            await turn(service)
    stop.set()
    assert min(await asyncio.gather(*writers)) > 0
    assert longest_s < 30  # an ingestion with all that it waits for, on a machine that does much else
    await removed(service, owner_url)
    assert await embedder_of(service) == (NEW, 48)
    assert (await service.check("docs")).findings == ()
    with psycopg.connect(owner_url) as connection:
        assert connection.execute("SELECT count(*) FROM signalbox.changed").fetchone() == (0,)


_MANY = """
    INSERT INTO signalbox.document (tenant, collection, id, title, body, metadata, fields, language, digest, chunks,
                                    words, enabled)
    SELECT k.tenant, k.number, 'z' || n, '', 'x', '{}', '{}', 'en', '\\x00', 0, 0, false
    FROM signalbox.collection k, generate_series(1, 20000) n WHERE k.name LIKE 'docs%'
"""
_READ = """
    SELECT sum(pg_stat_get_xact_tuples_returned(oid)), json_object_agg(relname, pg_stat_get_xact_tuples_returned(oid))
           FILTER (WHERE pg_stat_get_xact_tuples_returned(oid) > 50) FROM pg_class
    WHERE relnamespace = 'signalbox'::regnamespace AND relkind IN ('r', 'i')
"""


async def test_what_is_read_while_writers_wait_does_not_depend_on_how_many_documents_there_are(
    service: Service, owner_url: str, monkeypatch: pytest.MonkeyPatch
):
    await service.ingest(corpus(20), "docs")
    await service.reembed("docs", NEW)
    settle, advance, reads = CollectionRebuilder._try_switch, JobQueue.record_rebuild_progress, list[Any]()

    async def after_much(self: CollectionRebuilder, *given: Any) -> Any:
        # Both hold 20,000 documents more, and one was changed since.
        with psycopg.connect(owner_url, autocommit=True) as connection:
            connection.execute(_MANY)
            connection.execute("TRUNCATE signalbox.changed")
            connection.execute("ANALYZE signalbox.document")
        await service.ingest([document("d000", "Changed."), document("new", "New.")], "docs")
        monkeypatch.setattr(CollectionRebuilder, "_try_switch", settle)
        return await settle(self, *given)

    async def counted(self: JobQueue, connection: Any, *given: Any, **counts: Any) -> None:
        await advance(self, connection, *given, **counts)
        reads.append(await (await connection.execute(_READ)).fetchone())

    monkeypatch.setattr(CollectionRebuilder, "_try_switch", after_much)
    monkeypatch.setattr(JobQueue, "record_rebuild_progress", counted)
    while await turn(service):
        pass

    assert await embedder_of(service) == (NEW, 48)
    assert 0 < reads[-1][0] < 5000, reads  # what the session read in the second before is counted too
    hits = (await service.retrieve("Changed.", collection="docs")).hits
    assert "Changed." in hits[0].text


async def test_begun_again_it_walks_from_the_beginning(service: Service, monkeypatch: pytest.MonkeyPatch):
    await service.ingest(corpus(50), "docs")
    slow(service, monkeypatch)
    job = await service.reembed("docs", NEW)
    for _ in range(4):
        await turn(service)
    await service.cancel_job(job.id)
    await service.retry_job(job.id)
    while await turn(service):
        pass
    assert (await service.job(job.id)).status == "done"
    assert (await service.check("docs")).findings == ()
    assert await embedder_of(service) == (NEW, 48)


async def test_what_was_replaced_is_removed_by_the_worker_and_its_index_with_it(service: Service, owner_url: str):
    await service.ingest(corpus(20), "docs")
    await service.reembed("docs", NEW)
    while await turn(service):
        pass
    count = "SELECT (SELECT count(*) FROM signalbox.document), to_regclass('signalbox.chunk_embedding_1')::text"
    with psycopg.connect(owner_url, autocommit=True) as connection:
        # Questions that began before the switch may still be using it.
        assert await service.worker.jobs.expiry.retired_collections() == []
        assert connection.execute(count).fetchone() == (40, "signalbox.chunk_embedding_1")
        connection.execute("UPDATE signalbox.collection SET retired_at = now() - interval '1 minute' WHERE number = 1")
        async with service.worker, asyncio.timeout(60):
            while connection.execute(count).fetchone() != (20, None):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    assert (await service.check("docs")).findings == ()


async def test_a_key_is_sent_to_no_endpoint_but_its_own(owner_url: str, service_url: str):
    with ScriptedServer(dimension=16) as old, ScriptedServer(dimension=48) as new, ScriptedServer() as third:
        more = {
            "embedder_api_key": "key-of-old",
            "embedders": f"{NEW}={new.base_url}, openai/third={third.base_url}",
            "embedder_keys": "openai/third=key-of-third",
        }
        settings = Settings(
            database_url=owner_url, service_url=service_url, embedder=OLD, embedder_base_url=old.base_url, **more
        )
        async with open_service(settings) as service:
            await service.ingest(corpus(5), "docs")
            for name in (NEW, "openai/third"):
                await service.reembed("docs", name)
                while await turn(service):
                    pass
    for model, key in ((old, "key-of-old"), (new, None), (third, "key-of-third")):
        sent = " ".join(one.headers.get("authorization", "") for one in model.requests)
        assert model.requests
        assert [one for one in ("key-of-old", "key-of-third") if one in sent] == ([key] if key else [])


async def test_who_reads_as_somebody_is_told_of_no_job(service: Service):
    await service.ingest(corpus(5), "docs")
    await service.reembed("docs", NEW)
    assert (await service.describe("docs"))["job"] is not None
    assert (await service.describe("docs", tenant=Viewer("default", ("user:7",))))["job"] is None
