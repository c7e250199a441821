"""`check` finds each kind of drift that is made by hand here, and mends it to exactly what a fresh build has."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from agent import Service, open_service
from agent.settings import Settings
from agent.testing import ScriptedServer
from retrievers.core.errors import Unavailable, UnknownCollection
from retrievers.core.file_positions import FilePositions
from retrievers.core.types import Viewer, unrestricted_viewer
from retrievers.ingest import field_statistics
from retrievers.ingest.checking import collection_check, totals_check
from retrievers.ingest.documents import Document

OWNER = unrestricted_viewer("default")

_DRIFT = {
    "documents": [
        "UPDATE signalbox.document SET fields = fields - 'year' WHERE id = 'd01'",
        "UPDATE signalbox.document SET chunks = chunks + 1 WHERE id = 'd02'",
        "UPDATE signalbox.document SET language = 'de' WHERE id = 'd04'",
    ],
    "passages": [
        "DELETE FROM signalbox.chunk WHERE document_id = 'd00' AND ordinal = 1",
        "UPDATE signalbox.chunk SET body = 'other' WHERE document_id = 'd01'",
        "UPDATE signalbox.chunk SET lexemes = '' WHERE document_id = 'd02'",
        "UPDATE signalbox.chunk SET bm25 = '{7:1}/1000000000' WHERE document_id = 'd04'",
        "UPDATE signalbox.chunk SET public = true WHERE document_id = 'd06'",
        "UPDATE signalbox.chunk SET part = NULL WHERE document_id = 'd03'",
        "UPDATE signalbox.chunk SET expires_at = now() + interval '1 day' WHERE document_id = 'd06'",
        "UPDATE signalbox.chunk SET fields = '{}' WHERE document_id = 'd07'",
        "UPDATE signalbox.chunk SET places = NULL WHERE document_id = 'd12'",
    ],
    "vectors": [
        "UPDATE signalbox.chunk SET embedding = NULL WHERE document_id = 'd01'",
        "UPDATE signalbox.chunk SET embedding = '[1,0]', embedder = 7 WHERE document_id = 'd02'",
    ],
    "orphans": [
        "SET session_replication_role = replica; DELETE FROM signalbox.document WHERE id = 'd08'",
    ],
    "terms": [
        "UPDATE signalbox.term SET chunks = chunks + 3 WHERE term = 'ice'",
        "DELETE FROM signalbox.term WHERE term = 'penguin'",
        "INSERT INTO signalbox.term SELECT tenant, number, 'invented', 4 FROM signalbox.collection WHERE number > 0",
    ],
    "counts": [
        "UPDATE signalbox.collection SET documents = documents + 1 WHERE number > 0",
        "UPDATE signalbox.collection SET words = 1 WHERE number > 0",
        "UPDATE signalbox.collection SET languages = '{\"fr\": 2}'",
        "UPDATE signalbox.collection SET mean_length = 3 WHERE number > 0",
    ],
    "fields": [
        "UPDATE signalbox.field_value SET documents = documents + 1 WHERE field = 'team' AND value = 'team 1'",
        "DELETE FROM signalbox.field_value WHERE field = 'year'",
        "DELETE FROM signalbox.field_word",
        "UPDATE signalbox.field_count SET kept = 99 WHERE field = 'team'",
    ],
    "indexes": [
        "DROP INDEX signalbox.chunk_embedding_1",
        "DROP INDEX signalbox.chunk_lexemes",
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'signalbox.document_fields'::regclass",
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'signalbox.chunk_embedding_1'::regclass",
    ],
    "leftovers": [
        "INSERT INTO signalbox.collection (tenant, name, analysis, shadow_of, retired_at)"
        " SELECT tenant, 'docs/1', 1, number, now() - interval '2 hours' FROM signalbox.collection WHERE number > 0",
    ],
}
_ALL = {
    "collection": "SELECT part_of, readers, name, documents, public_documents, chunks, words, mean_length, languages"
    " FROM signalbox.collection ORDER BY number",
    "document": "SELECT id, fields, language, digest, chunks, words, part, created_at, updated_at, delivery, places"
    " FROM signalbox.document ORDER BY id",
    "chunk": "SELECT collection, document_id, ordinal, embedder, public, part, expires_at, start_character,"
    " end_character, length, embedding::text, bm25::text, fields, heading, digest, lexemes::text, body, gap, places"
    " FROM signalbox.chunk ORDER BY 1, 2, 3",
    **{name: f"SELECT * FROM signalbox.{name} ORDER BY 1, 2, 3, 4" for name in ("term", "field_value", "field_count")},  # noqa: S608
    "field_word": "SELECT * FROM signalbox.field_word ORDER BY 1, 2, 3, 4, 5, 6",
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'signalbox' ORDER BY 1",
    "invalid": "SELECT count(*) FROM pg_index WHERE NOT indisvalid",
}


def corpus() -> list[Document]:
    return [
        Document(
            f"d{n:02}", f"d{n:02}", f"Title {n}", f"Penguin {n} walks over ice {n % 4}. " * (1 + 120 * (n == 0)),
            metadata={"year": 2000 + n, "team": f"team {n % 3}"},
            readers=("user:7",) if n % 5 == 3 else (), enabled=n != 9,
            expires_at=datetime(2090, 1, 1, tzinfo=UTC) if n % 4 == 1 else None,
            places=FilePositions("page", ((0, 1), (2000, 2))) if n % 6 == 0 else None,
        )
        for n in range(14)
    ]  # fmt: skip


def everything(url: str) -> dict[str, Any]:
    with psycopg.connect(url) as connection:
        return {name: connection.execute(query.encode()).fetchall() for name, query in _ALL.items()}


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    with ScriptedServer(dimension=16) as model:
        settings = Settings(
            database_url=owner_url, service_url=service_url, embedder="openai/m", embedder_base_url=model.base_url
        )
        async with open_service(settings) as service:
            await service.ingest(corpus(), "docs")
            yield service


@pytest.mark.slow
@pytest.mark.parametrize("kind", _DRIFT)
async def test_drift_is_found_by_its_kind_and_mended_to_what_a_fresh_build_has(
    service: Service, owner_url: str, kind: str
):
    fresh = everything(owner_url)
    assert fresh["invalid"] == [(0,)]
    assert (await service.check("docs", mend=True, tenant=OWNER)).findings == ()
    for drift in _DRIFT[kind]:
        run(owner_url, drift)
        found = await service.check("docs", tenant=OWNER)
        assert kind in {one.kind for one in found.findings}, drift
        assert not found.ok
        assert all(one.count and one.examples and not one.mended for one in found.findings)

        mended = await service.check("docs", mend=True, tenant=OWNER)
        assert mended.ok, (drift, mended)
        assert (await service.check("docs", tenant=OWNER)).findings == (), drift
        if kind == "orphans":  # the document itself was not to be saved
            await service.ingest(corpus(), "docs")
            without = slice(7, 10)
            now = everything(owner_url)
            for one in (fresh, now):
                one["document"] = [(*row[: without.start], *row[without.stop :]) for row in one["document"]]
        else:
            now = everything(owner_url)
        for name in fresh:
            assert now[name] == fresh[name], (drift, name)


async def test_several_kinds_at_once_are_mended_together(service: Service, owner_url: str):
    fresh = everything(owner_url)
    run(
        owner_url,
        _DRIFT["passages"][0],
        _DRIFT["vectors"][1],
        _DRIFT["terms"][1],
        _DRIFT["counts"][3],
        _DRIFT["fields"][2],
    )
    kinds = {one.kind for one in (await service.check("docs", tenant=OWNER)).findings}
    assert {"passages", "vectors", "terms", "counts", "fields"} <= kinds
    assert (await service.check("docs", mend=True, tenant=OWNER)).ok
    assert everything(owner_url) == fresh


async def test_only_the_tenants_own_collections_are_compared(service: Service):
    with pytest.raises(UnknownCollection):
        await service.check("docs", tenant="other")
    with pytest.raises(UnknownCollection):
        await service.check("none")


async def test_vectors_of_an_embedder_that_no_setting_names_are_found(
    service: Service, owner_url: str, service_url: str
):
    async with open_service(Settings(database_url=owner_url, service_url=service_url)) as other:
        findings = (await other.check("docs", tenant=OWNER)).findings

    assert [(one.kind, one.examples, one.mended) for one in findings] == [("embedder", ("openai/m",), False)]
    assert (await service.check("docs", tenant=OWNER)).findings == ()


async def test_who_does_not_read_everything_is_told_nothing_of_what_it_does_not_read(service: Service, owner_url: str):
    run(
        owner_url,
        "UPDATE signalbox.chunk SET embedding = NULL WHERE document_id IN ('d01', 'd03')",
        "UPDATE signalbox.document SET chunks = chunks + 1 WHERE id = 'd08'",
        *(_DRIFT[kind][0] for kind in ("terms", "counts", "fields", "orphans", "indexes")),
    )
    everything_of = await service.check("docs", tenant=OWNER)
    plain = await service.check("docs", tenant="default")
    reader = await service.check("docs", tenant=Viewer("default", ("user:7",)))

    assert everything_of.documents == 13
    assert (plain.documents, reader.documents) == (11, 13)  # d03, d08 and d13 have a reader, and d08 is gone
    assert [one.kind for one in plain.findings] == [one.kind for one in everything_of.findings]
    by_kind = {one.kind: one for one in plain.findings}
    assert (by_kind["vectors"].count, by_kind["vectors"].examples) == (1, ("d01",))
    assert {one.kind: one.examples for one in reader.findings}["vectors"] == ("d01", "d03")
    for report in (plain, reader):
        for one in report.findings:
            if one.kind in ("terms", "counts", "fields", "orphans", "leftovers"):
                assert (one.count, one.examples) == (None, ()), one
    assert by_kind["indexes"].examples == ("chunk_embedding_1",)

    mended = await service.check("docs", mend=True, tenant="default")
    assert (mended.ok, {one.kind for one in mended.findings}) == (True, set(by_kind))
    assert (await service.check("docs", tenant=OWNER)).findings == ()


async def test_a_collection_that_the_viewer_does_not_see_is_none(service: Service):
    await service.ingest([Document("s1", "s1", "S", "Secret.", readers=("user:7",))], "secret")
    calls = (
        lambda who: service.check("secret", tenant=who),
        lambda who: service.rebuild("secret", tenant=who),
        lambda who: service.reembed("secret", "minilm", tenant=who),
        lambda who: service.delete("none", tenant=who),
        lambda who: service.delete("none", "x", tenant=who),
    )
    for call in calls:
        with pytest.raises(UnknownCollection) as raised:
            await call("default")
        assert raised.value.valid == ("docs",)
    assert (await service.check("secret", tenant=Viewer("default", ("user:7",)))).documents == 1


async def test_a_job_that_makes_a_collection_anew_counts_the_documents_that_the_viewer_reads(service: Service):
    job = await service.rebuild("docs")
    assert (job.documents, job.done) == (10, 0)  # of 14 one is disabled and three have a reader
    while lease := await service.worker.jobs.lease_next():
        await service.worker.run_job(lease)
    for who, documents in (("default", 10), (Viewer("default", ("user:7",)), 13), (OWNER, 13)):
        done = await service.job(job.id, tenant=who)
        assert (done.status, done.documents, done.done) == ("done", documents, documents), who
        assert (await service.jobs(tenant=who))[0].documents == documents, who


async def test_who_writes_meanwhile_is_not_kept_waiting_and_keeps_nobody_waiting(service: Service, owner_url: str):
    run(owner_url, _DRIFT["vectors"][0], _DRIFT["passages"][1])
    with psycopg.connect(owner_url) as writer:
        writer.execute("SELECT FROM signalbox.collection FOR UPDATE")
        async with asyncio.timeout(60):
            report = await service.check("docs", tenant=OWNER)
    assert {one.kind: one.examples for one in report.findings} == {"passages": ("d01",), "vectors": ("d01",)}


async def test_documents_that_come_meanwhile_are_no_drift(service: Service):
    async def write() -> None:
        for n in range(12):
            more = [Document(f"new{n}", f"new{n}", "N", f"Walrus {n} swims. " * (1 + 30 * n)), *corpus()[n : n + 1]]
            await service.ingest(more, "docs")

    writing = asyncio.create_task(write())
    reports = 0
    while not writing.done():
        assert (await service.check("docs", tenant=OWNER)).findings == ()
        reports += 1
    await writing
    assert reports > 1


async def test_one_that_takes_longer_than_it_may_says_which_command_does_not(
    service: Service, owner_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(totals_check, "_FIRST_TERMS", "SELECT pg_sleep(60)::text, %(most)s")
    for mend in (False, True):
        started = time.monotonic()
        with pytest.raises(Unavailable, match="run `signalbox check docs" + (" --mend`" if mend else "`")):
            await service.check("docs", mend=mend, timeout_s=1.5, tenant=OWNER)
        assert time.monotonic() - started < 20  # the statement takes 60 s
    sleeping = (
        "SELECT FROM pg_stat_activity WHERE query LIKE '%%pg_sleep%%' AND state <> 'idle'"
        " AND datname = current_database() AND pid <> pg_backend_pid()"
    )
    with psycopg.connect(owner_url, autocommit=True) as connection:
        while connection.execute(sleeping).fetchone():
            assert time.monotonic() - started < 50
            await asyncio.sleep(0.05)


async def test_what_takes_long_is_made_beside_the_event_loop(service: Service, monkeypatch: pytest.MonkeyPatch):
    threads = set()

    def watched(made: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            threads.add(threading.current_thread())
            return made(*given)

        return call

    for module, name in (
        (collection_check, "to_tsvector"),
        (collection_check, "find_differences"),
        (field_statistics, "_words"),
    ):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    assert (await service.check("docs", tenant=OWNER)).findings == ()
    assert threads
    assert threading.main_thread() not in threads
