"""Mirrors: whatever becomes of the source and of those who sync it, the collection ends as a fresh build would."""

import asyncio
import json
import os
import random
import shutil
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from retrievers.core.errors import BadRequest, RetrievalError, Unavailable
from retrievers.core.types import unrestricted_viewer
from retrievers.ingest import document_store
from retrievers.ingest.jobs.delivery import delivery_of_records
from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.ingest.jobs.job_types import LostLease
from retrievers.ingest.jobs.worker import Worker
from retrievers.ingest.readers import file_input as reading
from retrievers.ingest.report import IngestReport
from retrievers.ingest.run import ingest
from retrievers.postgres.connections.database import Database
from retrievers.sandbox import ProcessLimits as Bounds
from retrievers.sandbox import Sandbox
from retrievers.sync import mirror_run as mirroring
from retrievers.sync import source_batches
from retrievers.sync.deletion_guard import DeletionLimits, DeletionRefused
from retrievers.sync.folder import FolderSource
from retrievers.sync.manifest import forget_documents
from retrievers.sync.mirror_run import Mirror, MirrorReport
from retrievers.sync.plan import SyncPlan
from retrievers.sync.schedule import MirrorScheduler, Schedule
from retrievers.sync.source import Source
from retrievers.sync.source_factory import open_source
from retrievers.testing import HashEmbedder

# ruff: noqa: ASYNC240 - the files are small, and nothing else waits

TENANT = "acme"
WORDS = "turbine blade rotor bearing gear oil pitch tower bolt grid crew storm winter".split()


def owner(url: str, statement: str, *values: object) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []


_STORED = {
    "document": """SELECT d.id, d.title, d.body, d.metadata, d.fields, d.digest, d.chunks, p.readers
                   FROM signalbox.document d
                   JOIN signalbox.collection c ON c.tenant = d.tenant AND c.number = d.collection
                   LEFT JOIN signalbox.collection p ON p.tenant = d.tenant AND p.number = d.part
                   WHERE d.tenant = %s AND c.name = %s""",
    "chunk": """SELECT k.document_id, k.ordinal, k.body, k.embedding::text, k.bm25::text, k.fields, k.digest,
                       replace(k.lexemes::text, c.number || ':', '')
                FROM signalbox.chunk k JOIN signalbox.collection c ON c.tenant = k.tenant AND c.number = k.collection
                WHERE k.tenant = %s AND c.name = %s""",
    "term": """SELECT c.readers, t.term, t.chunks FROM signalbox.term t
               JOIN signalbox.collection c ON c.tenant = t.tenant AND c.number = t.collection
               LEFT JOIN signalbox.collection p ON p.tenant = c.tenant AND p.number = c.part_of
               WHERE t.tenant = %s AND coalesce(p.name, c.name) = %s""",
    "field_value": """SELECT c.readers, v.field, v.value, v.number, v.documents FROM signalbox.field_value v
               JOIN signalbox.collection c ON c.tenant = v.tenant AND c.number = v.collection
               LEFT JOIN signalbox.collection p ON p.tenant = c.tenant AND p.number = c.part_of
               WHERE v.tenant = %s AND coalesce(p.name, c.name) = %s""",
    "collection": """SELECT c.readers, c.documents, c.chunks, c.words, c.languages,
                            CASE WHEN c.part_of IS NULL THEN c.mean_length END
               FROM signalbox.collection c
               LEFT JOIN signalbox.collection p ON p.tenant = c.tenant AND p.number = c.part_of
               WHERE c.tenant = %s AND coalesce(p.name, c.name) = %s AND (c.part_of IS NULL OR c.documents > 0)""",
}


def stored(url: str, collection: str) -> dict[str, list[str]]:
    """All that is stored of a collection and counted of it, apart from moments, numbers and versions."""
    return {name: sorted(map(repr, owner(url, query, TENANT, collection))) for name, query in _STORED.items()}


def ids(url: str, collection: str = "docs") -> list[str]:
    rows = owner(
        url, "SELECT d.id FROM signalbox.document d JOIN signalbox.collection c ON c.number = d.collection"
        " WHERE c.name = %s ORDER BY d.id", collection,
    )  # fmt: skip
    return [row[0] for row in rows]


def said(n: int) -> str:
    return " ".join(WORDS[(n * k) % len(WORDS)] for k in range(1, 9))


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def worker_on(database: Database, **options: Any) -> Worker:
    return Worker(JobQueue(database), partial(ingest, database, HashEmbedder()), **options)


async def sync(
    database: Database, source: Source | Path, collection: str = "docs", *, limits: DeletionLimits | None = None
) -> MirrorReport:
    """One run, as the command line does it."""
    mirror = Mirror(database, TENANT, collection, FolderSource(source) if isinstance(source, Path) else source)
    worker = worker_on(database)
    lease = await MirrorScheduler(database, worker.jobs).begin_run(mirror)
    run = mirroring.bind_run(mirror, worker.jobs, worker.ingest, limits or DeletionLimits())
    report = await worker.run_mirror(lease, run)
    assert isinstance(report, MirrorReport)
    return report


async def plan(database: Database, folder: Path, limits: DeletionLimits | None = None) -> SyncPlan:
    return await Mirror(database, TENANT, "docs", FolderSource(folder)).plan(limits or DeletionLimits())


def did(report: MirrorReport) -> tuple[int, int, int, int, int]:
    """Added, updated, deleted, unchanged, failed."""
    return report.inserted, report.updated, report.deleted, report.unchanged, len(report.failed)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files with five documents."""
    path = tmp_path / "source"
    write(path, "a.md", f"---\nteam: red\nreaders: [user:7]\n---\n# A\n{said(1)}")
    write(path, "sub/b.md", f"# B\n{said(2)}")
    write(path, "c.jsonl", "".join(json.dumps({"id": f"c{n}", "text": said(n), "size": n}) + "\n" for n in range(3)))
    return path


# What follows.


async def test_additions_changes_and_deletions_follow_and_nothing_else_is_touched(
    database: Database, owner_url: str, folder: Path
):
    assert did(await sync(database, folder)) == (5, 0, 0, 0, 0)
    assert did(await sync(database, folder)) == (0, 0, 0, 5, 0)

    write(folder, "a.md", f"---\nteam: red\nreaders: [user:8]\n---\n# A\n{said(1)}")
    write(folder, "d.txt", said(9))
    write(folder, "c.jsonl", "".join(json.dumps({"id": f"c{n}", "text": said(n), "size": n}) + "\n" for n in (0, 2)))
    (folder / "sub" / "b.md").unlink()

    assert did(await sync(database, folder)) == (1, 1, 2, 2, 0)
    assert ids(owner_url) == ["a.md", "c0", "c2", "d.txt"]
    await sync(database, folder, "fresh")  # the same source in another collection, from nothing
    assert stored(owner_url, "docs") == stored(owner_url, "fresh")


async def test_a_run_reads_only_what_has_changed(database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch):
    for path in folder.rglob("*.*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    settled_at = time.time() + 10  # two seconds after the last change, a file's times can be trusted
    monkeypatch.setattr("retrievers.sync.folder.time.time_ns", lambda: int(settled_at * 1e9))
    await sync(database, folder)
    read: list[str] = []
    monkeypatch.setattr(
        FolderSource, "_read_some", lambda self, wanted, is_cancelled: read.extend(w.key for w in wanted) or iter(())
    )

    (folder / "c.jsonl").touch()
    await sync(database, folder)

    assert read == ["c.jsonl"]


async def test_a_file_that_was_changed_within_the_clocks_step_is_seen(database: Database, owner_url: str, folder: Path):
    path = folder / "sub" / "b.md"
    times = path.stat().st_mtime_ns
    await sync(database, folder)

    path.write_text(path.read_text()[:-1] + "!")  # as long as before
    os.utime(path, ns=(times, times))

    assert did(await sync(database, folder)) == (0, 1, 0, 4, 0)


async def test_a_document_that_moves_to_another_file_stays(database: Database, owner_url: str, folder: Path):
    await sync(database, folder)
    lines = (folder / "c.jsonl").read_text().splitlines(keepends=True)

    write(folder, "c.jsonl", lines[0])
    write(folder, "e.jsonl", "".join(lines[1:]))  # c.jsonl comes before it by name
    assert did(await sync(database, folder)) == (0, 0, 0, 5, 0)
    write(folder, "b.jsonl", lines[2])  # and this one before both
    write(folder, "e.jsonl", lines[1])
    assert did(await sync(database, folder)) == (0, 0, 0, 5, 0)
    (folder / "e.jsonl").rename(folder / "z.jsonl")
    assert did(await sync(database, folder)) == (0, 0, 0, 5, 0)
    assert ids(owner_url) == ["a.md", "c0", "c1", "c2", "sub/b.md"]


async def test_an_id_that_two_files_give_is_that_of_the_first_and_passes_to_the_other(database: Database, folder: Path):
    write(folder, "x.jsonl", json.dumps({"id": "twice", "text": "of x"}))
    write(folder, "y.jsonl", json.dumps({"id": "twice", "text": "of y"}))

    first = await sync(database, folder)
    assert did(first) == (6, 0, 0, 0, 1)
    assert (
        first.failed[0].reason == f'the id "twice" was already given at {folder / "x.jsonl"}:1; this one was left out'
    )
    (folder / "x.jsonl").unlink()

    assert did(await sync(database, folder)) == (0, 1, 0, 5, 0)
    assert did(await sync(database, folder)) == (0, 0, 0, 6, 0)


async def test_what_one_of_three_files_gave_for_a_while_goes_back_to_the_first_of_the_others(
    database: Database, owner_url: str, folder: Path
):
    def give(name: str, id: str) -> None:
        write(folder, name, json.dumps({"id": id, "text": f"of {name}"}))

    give("k.jsonl", "other")
    give("l.jsonl", "x")
    give("m.jsonl", "x")
    await sync(database, folder)
    give("k.jsonl", "x")
    await sync(database, folder)
    give("k.jsonl", "other")
    await sync(database, folder)

    text = "SELECT body FROM signalbox.document WHERE id = 'x'"
    assert owner(owner_url, text) == [("of l.jsonl",)]


async def test_a_document_that_can_be_read_no_more_is_gone_and_one_that_cannot_be_opened_stays(
    database: Database, owner_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    await sync(database, folder)
    write(folder, "a.md", "---\nreaders: {user: 7}\n---\n# A\nbody")
    opened = Path.open

    def not_b(self: Path, *args: Any, **options: Any) -> Any:
        if self.name == "b.md":
            raise PermissionError(13, "no")
        return opened(self, *args, **options)

    write(folder, "sub/b.md", "# changed, but not to be read")
    monkeypatch.setattr(Path, "open", not_b)
    report = await sync(database, folder)

    assert did(report) == (0, 0, 1, 4, 2)
    assert sorted(one.reason for one in report.failed) == [
        '"readers" is an object; it must be a list like ["user:7", "group:legal"]', "no permission to read it",
    ]  # fmt: skip
    assert ids(owner_url) == ["c0", "c1", "c2", "sub/b.md"]
    monkeypatch.undo()
    assert did(await sync(database, folder)) == (0, 1, 0, 3, 1)


async def test_of_a_file_that_is_not_read_to_its_end_nothing_goes(
    database: Database, owner_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = [f"r{n},{said(n)}" for n in range(4)]
    write(folder, "rows.csv", "\n".join(["id,text", *rows]))
    write(folder, "page.html", "<p>turbine blade rotor</p>")
    await sync(database, folder)
    before = ids(owner_url)

    write(folder, "rows.csv", "\n".join(["id,text", rows[0], 'r1,"an open quote', *rows[2:]]))
    write(folder, "page.html", "<p>turbine blade rotor bearing</p>")
    monkeypatch.setattr(reading, "SANDBOX", Sandbox(1, Bounds(wait_s=-1.0)))
    planned = await plan(database, folder)
    report = await sync(database, folder)

    assert (list(planned.deleted), report.deleted) == ([], 0)
    assert ids(owner_url) == before
    assert {one.where.rpartition("/")[2].partition(":")[0] for one in report.failed} == {"rows.csv", "page.html"}
    monkeypatch.undo()
    write(folder, "rows.csv", "\n".join(["id,text", rows[0]]))
    report = await sync(database, folder)
    assert (report.deleted, report.updated) == (3, 1)


async def test_what_others_changed_or_deleted_in_the_collection_is_put_right(
    database: Database, owner_url: str, folder: Path
):
    await sync(database, folder)
    before = stored(owner_url, "docs")
    worker = worker_on(database)
    await worker.run_delivery(TENANT, delivery_of_records("docs", [{"id": "c1", "text": "not of the source"}]))
    async with database.transaction(unrestricted_viewer(TENANT)) as connection:
        (number,) = await (
            await connection.execute("SELECT number FROM signalbox.collection WHERE part_of IS NULL")
        ).fetchone()  # type: ignore[misc]
        await document_store.remove_documents(connection, TENANT, number, ["sub/b.md"])
        await forget_documents(connection, TENANT, "docs", "sub/b.md")

    assert (await plan(database, folder)).changed == ["c1"]
    assert did(await sync(database, folder)) == (1, 1, 0, 3, 0)
    assert stored(owner_url, "docs") == before


async def test_documents_of_nobodys_source_stay_and_two_sources_share_a_collection(
    database: Database, owner_url: str, folder: Path, tmp_path: Path
):
    await worker_on(database).run_delivery(TENANT, delivery_of_records("docs", [{"id": "mine", "text": "by hand"}]))
    other = tmp_path / "other"
    write(other, "a.md", "# A of the other")
    write(other, "o.md", "# O")
    write(other, "p.md", "# P")

    await sync(database, folder)
    report = await sync(database, other)
    assert did(report) == (2, 0, 0, 0, 1)
    mirror = Mirror(database, TENANT, "docs", FolderSource(folder))
    assert report.failed[0].reason == (
        'the id "a.md" belongs to another source of this collection; if that is followed no more: '
        f"signalbox sync --forget {mirror.manifest.sync.hex}"
    )
    (other / "o.md").unlink()
    assert did(await sync(database, other)) == (0, 0, 1, 1, 1)
    assert ids(owner_url) == ["a.md", "c0", "c1", "c2", "mine", "p.md", "sub/b.md"]


# A source that is moved or named otherwise.


async def forget_sync(database: Database, name: str) -> None:
    await MirrorScheduler(database, JobQueue(database)).forget_source(TENANT, name)


async def test_a_source_that_was_moved_takes_its_documents_over_once_the_old_one_is_forgotten(
    database: Database, owner_url: str, folder: Path
):
    await worker_on(database).run_delivery(TENANT, delivery_of_records("docs", [{"id": "mine", "text": "by hand"}]))
    await sync(database, folder)
    moved = folder.rename(folder.with_name("moved"))
    (moved / "sub" / "b.md").unlink()
    write(moved, "a.md", "# A again")
    assert len((await sync(database, moved)).failed) == 4
    await forget_sync(database, FolderSource(folder).name)
    before = ids(owner_url)
    assert before == ["a.md", "c0", "c1", "c2", "mine", "sub/b.md"]
    assert [one.source for one in await MirrorScheduler(database, JobQueue(database)).list_mirrors(TENANT)] == [
        FolderSource(moved).name
    ]

    planned = await plan(database, moved)
    assert (planned.added, planned.changed, planned.deleted, planned.unchanged) == ([], ["a.md"], ["sub/b.md"], 3)
    assert did(await sync(database, moved)) == (0, 1, 1, 3, 0)

    assert ids(owner_url) == ["a.md", "c0", "c1", "c2", "mine"]
    assert did(await sync(database, moved)) == (0, 0, 0, 4, 0)
    assert owner(owner_url, "SELECT count(*) FROM signalbox.sync") == [(1,)]


async def test_a_source_that_has_little_of_a_forgotten_one_deletes_nothing_of_it(
    database: Database, owner_url: str, folder: Path, tmp_path: Path
):
    other, third = tmp_path / "other", tmp_path / "third"
    write(other, "a.md", "# A of the other")
    write(third, "t.md", "# T")
    await sync(database, third)
    await sync(database, folder)
    await forget_sync(database, Mirror(database, TENANT, "docs", FolderSource(folder)).manifest.sync.hex)

    assert did(await sync(database, third)) == (0, 0, 0, 1, 0)
    assert (await plan(database, other)).deleted == []
    report = await sync(database, other)
    assert did(report) == (0, 1, 0, 0, 0)
    assert "4 documents of a source that was forgotten stay" in report.notes[0]
    assert ids(owner_url) == ["a.md", "c0", "c1", "c2", "sub/b.md", "t.md"]
    assert did(await sync(database, other, limits=DeletionLimits(force=True))) == (0, 0, 4, 1, 0)
    assert ids(owner_url) == ["a.md", "t.md"]


async def test_a_forgotten_source_that_is_synced_again_is_followed_as_before(
    database: Database, owner_url: str, folder: Path
):
    await sync(database, folder)
    await forget_sync(database, "docs")
    (folder / "sub" / "b.md").unlink()

    assert did(await sync(database, folder)) == (0, 0, 1, 4, 0)
    assert len(await MirrorScheduler(database, JobQueue(database)).list_mirrors(TENANT)) == 1


async def test_nothing_is_deleted_of_a_forgotten_source_while_something_cannot_be_read(
    database: Database, owner_url: str, folder: Path
):
    await sync(database, folder)
    moved = folder.rename(folder.with_name("moved"))
    (moved / "sub" / "b.md").unlink()
    (moved / "sub" / "b.md").symlink_to("nowhere")
    write(moved, "bad.json", "{")
    await forget_sync(database, "docs")

    report = await sync(database, moved)

    assert (report.deleted, len(report.failed) > 0) == (0, True)
    assert "sub/b.md" in ids(owner_url)


@pytest.mark.parametrize(
    "same",
    [
        ("docs", "./docs", "docs/", "docs//", "x/../docs", "{here}/docs", "{here}/docs/"),
        ("git:docs", "git:./docs/", "git:{here}/docs@HEAD"),
        ("https://a.example/list", "https://A.example:443/list/", "HTTPS://a.example/list#x"),
        ("https://a.example", "https://a.example/"),
        ("s3://bucket", "s3://bucket/"),
        ("s3://bucket/a", "s3://bucket/a/"),
        ("postgresql://u:p@db.example/x", "postgres://v@DB.example:5432/x"),
    ],
)
def test_spellings_that_mean_the_same_are_one_source(
    same: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    table = "t" if "://u:p" in same[0] else None
    shown = {open_source(one.format(here=tmp_path), table=table).name for one in same}
    assert len(shown) == 1, shown


# The guard.


async def test_a_source_that_vanished_or_is_empty_deletes_nothing_unless_it_is_meant(
    database: Database, owner_url: str, folder: Path
):
    await sync(database, folder)
    away = folder.rename(folder.with_name("away"))

    with pytest.raises(BadRequest, match="does not exist"):
        await sync(database, folder)
    folder.mkdir()
    with pytest.raises(DeletionRefused, match=r"5 of 5 documents are gone from the source, more than .*\(50%\)"):
        await sync(database, folder)
    assert len(ids(owner_url)) == 5
    assert "--force" in str((await plan(database, folder)).refused)
    shutil.rmtree(folder)
    away.rename(folder)
    assert did(await sync(database, folder)) == (0, 0, 0, 5, 0)

    (folder / "c.jsonl").unlink()
    write(folder, "new.txt", "what is new comes in all the same")
    with pytest.raises(DeletionRefused, match="3 of 5 documents"):
        await sync(database, folder)
    assert len(ids(owner_url)) == 6
    assert did(await sync(database, folder, limits=DeletionLimits(0.6))) == (0, 0, 3, 3, 0)
    shutil.rmtree(folder)
    folder.mkdir()
    assert did(await sync(database, folder, limits=DeletionLimits(force=True))) == (0, 0, 3, 0, 0)
    assert ids(owner_url) == []


async def test_what_lies_in_a_folder_that_cannot_be_looked_into_stays(
    database: Database, owner_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    await sync(database, folder)
    scandir = os.scandir

    def not_sub(path: Any) -> Any:
        if Path(path).name == "sub":
            raise PermissionError(13, "no")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", not_sub)
    report = await sync(database, folder)

    assert did(report) == (0, 0, 0, 5, 1)
    assert "sub/b.md" in ids(owner_url)


# Looking first.


async def test_a_dry_run_says_what_a_run_then_does_and_changes_nothing(
    database: Database, owner_url: str, folder: Path
):
    assert (await plan(database, folder)).added == ["a.md", "c0", "c1", "c2", "sub/b.md"]
    assert owner(owner_url, "SELECT count(*) FROM signalbox.sync") == [(0,)]
    await sync(database, folder)
    write(folder, "c.jsonl", json.dumps({"id": "c0", "text": "other"}) + "\n" + json.dumps({"id": "c9", "text": "new"}))
    (folder / "sub" / "b.md").unlink()
    write(folder, "bad.json", "{")
    rows = owner(owner_url, "SELECT * FROM signalbox.sync_item ORDER BY item")
    before = stored(owner_url, "docs")

    planned = await plan(database, folder, DeletionLimits(0.6))

    assert (planned.added, planned.changed, planned.deleted) == (["c9"], ["c0"], ["c1", "c2", "sub/b.md"])
    assert (planned.unchanged, len(planned.failed), planned.refused) == (1, 1, None)
    assert stored(owner_url, "docs") == before
    assert owner(owner_url, "SELECT * FROM signalbox.sync_item ORDER BY item") == rows
    assert did(await sync(database, folder, limits=DeletionLimits(0.6))) == (1, 1, 3, 1, 1)


# Whoever dies on the way.


class Edits:
    """Random changes of a folder: files written, moved, deleted; documents that come, go and wander."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.choose, self.count = folder, random.Random(seed), 0

    def some(self, number: int) -> None:
        for _ in range(number):
            self.choose.choice([self.markdown, self.markdown, self.lines, self.lines, self.remove, self.move])()

    def markdown(self) -> None:
        n, self.count = self.choose.randrange(40), self.count + 1
        readers = f"readers: [user:{n % 3}]\n" if n % 4 == 0 else ""
        named = f"id: named-{n % 7}\n" if n % 5 == 0 else ""
        write(
            self.folder,
            f"m/{n}.md",
            f"---\nteam: {WORDS[n % 4]}\n{readers}{named}---\n# M{n}\n{said(self.count)} {self.count}",
        )

    def lines(self) -> None:
        n, self.count = self.choose.randrange(12), self.count + 1
        records = [{"id": f"r{self.choose.randrange(120)}", "text": f"{said(k)} {self.choose.randrange(3)}", "size": k}
                   for k in range(self.choose.randrange(1, 25))]  # fmt: skip
        write(self.folder, f"r{n}.jsonl", "".join(json.dumps(one) + "\n" for one in records))

    def remove(self) -> None:
        if files := sorted(self.folder.rglob("*.*")):
            self.choose.choice(files).unlink()

    def move(self) -> None:
        if files := sorted(self.folder.rglob("*.*")):
            path = self.choose.choice(files)
            path.rename(path.with_name(f"moved-{self.choose.randrange(20)}{path.suffix}"))


class Died(Exception):
    """In place of a kill: nothing more of the run is carried out."""


@pytest.mark.slow
async def test_a_run_that_dies_anywhere_is_brought_to_the_same_end_by_the_next(
    database: Database, owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(source_batches, "_DOCUMENTS_AT_ONCE", 20)
    folder = tmp_path / "source"
    edits = Edits(folder, 5)
    edits.some(60)
    force = DeletionLimits(force=True)
    await sync(database, folder, limits=force)
    choose, died = random.Random(3), 0
    transaction = Database.transaction

    for _ in range(60):
        left = choose.randrange(1, 40)

        def mortal(self: Database, who: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Died
            return transaction(self, who, **more)

        with monkeypatch.context() as patch:
            patch.setattr(Database, "transaction", mortal)
            try:
                await sync(database, folder, limits=force)
            except Died:
                died += 1
        owner(owner_url, "UPDATE signalbox.job SET free_at = now() WHERE status = 'running'")
        edits.some(choose.randrange(4))
    assert died > 20
    for _ in range(3):
        # What two items share is settled by the run after the one that saw it.
        await sync(database, folder, limits=force)

    await sync(database, folder, "fresh", limits=force)
    assert stored(owner_url, "docs") == stored(owner_url, "fresh")
    assert sum(map(len, stored(owner_url, "docs").values())) > 300


# Schedules.


def schedules_on(
    database: Database, folder: Path, *, every_s: float = 3600.0, name: str = "docs"
) -> tuple[MirrorScheduler, Worker]:
    """A worker whose settings name the folder, not looking for jobs yet."""
    jobs = JobQueue(database)
    mirror = Mirror(database, TENANT, "docs", FolderSource(folder))
    own = MirrorScheduler(database, jobs, [Schedule(name, mirror, every_s)])
    store = partial(ingest, database, HashEmbedder())
    run = mirroring.bind_run(mirror, jobs, store, DeletionLimits())
    return own, Worker(jobs, store, mirrors={mirror.manifest.sync: run}, schedule=own.queue_due_runs)


async def runs(database: Database) -> list[tuple[str, int, int]]:
    """Status, added and deleted of each run, the first first."""
    jobs = [one for one in await JobQueue(database).recent_jobs(TENANT, 50) if one.sync is not None]
    return [(one.status, one.inserted, one.deleted) for one in reversed(jobs)]


async def test_a_run_that_is_due_is_written_down_once_and_carried_out_by_one_worker(
    database: Database, owner_url: str, folder: Path
):
    three = [schedules_on(database, folder) for _ in range(3)]

    await asyncio.gather(*(own.queue_due_runs() for own, _ in three))
    taken = await asyncio.gather(*(worker.jobs.lease_next() for _, worker in three))
    leases = [lease for lease in taken if lease is not None]
    assert len(leases) == 1
    await three[0][1].run_job(leases[0])
    await asyncio.gather(*(own.queue_due_runs() for own, _ in three))
    assert await runs(database) == [("done", 5, 0)]

    owner(owner_url, "UPDATE signalbox.sync SET due_at = now()")
    await asyncio.gather(*(own.queue_due_runs() for own, _ in three))
    await asyncio.gather(*(own.queue_due_runs() for own, _ in three))
    assert await runs(database) == [("done", 5, 0), ("queued", 0, 0)]


async def test_a_worker_that_looks_for_jobs_keeps_the_schedule(database: Database, owner_url: str, folder: Path):
    async with schedules_on(database, folder)[1]:
        for _ in range(3000):
            if await runs(database) == [("done", 5, 0)]:
                break
            await asyncio.sleep(0.02)
    (one,) = await MirrorScheduler(database, JobQueue(database)).list_mirrors(TENANT)
    assert (one.name, one.collection, one.every_s, one.documents) == ("docs", "docs", 3600.0, 5)
    assert one.last is not None
    assert (one.last.status, one.last.inserted) == ("done", 5)


async def test_a_schedule_that_no_worker_has_any_more_is_said_to_be_so_and_not_run(
    database: Database, owner_url: str, folder: Path
):
    own, _ = schedules_on(database, folder)
    (new,) = await own.list_mirrors(TENANT)
    assert (new.name, new.every_s, new.has_worker, new.last) == ("docs", 3600.0, False, None)
    with pytest.raises(BadRequest, match="no worker has had it in its settings"):
        await own.queue_run(TENANT, "docs")
    await sync(database, folder)  # by hand
    (by_hand,) = await own.list_mirrors(TENANT)
    assert (by_hand.name, by_hand.every_s, by_hand.has_worker, by_hand.documents) == ("docs", 3600.0, False, 5)
    await own.queue_due_runs()
    elsewhere = MirrorScheduler(database, JobQueue(database))
    (known,) = await elsewhere.list_mirrors(TENANT)
    assert (known.has_worker, known.next_at is not None) == (True, True)
    await elsewhere.queue_run(TENANT, "docs")

    owner(owner_url, "UPDATE signalbox.sync SET heard_at = now() - interval '3 minutes'")
    (old,) = await elsewhere.list_mirrors(TENANT)
    assert (old.name, old.has_worker, old.next_at) == ("docs", False, None)
    with pytest.raises(BadRequest, match="no worker has had it in its settings"):
        await elsewhere.queue_run(TENANT, "docs")
    moved = schedules_on(database, folder / "sub")[0]  # the settings say another source under the name
    await moved.queue_due_runs()
    assert [(one.name, one.source) for one in await elsewhere.list_mirrors(TENANT)] == [
        ("docs", str(folder / "sub")), (None, str(folder)),
    ]  # fmt: skip


async def test_a_worker_says_again_and_again_that_it_has_a_schedule(
    database: Database, owner_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("retrievers.sync.schedule._RECORD_EVERY_S", 0.0)
    own, _ = schedules_on(database, folder)
    await own.queue_due_runs()
    due = owner(owner_url, "SELECT due_at FROM signalbox.sync")
    owner(owner_url, "UPDATE signalbox.sync SET heard_at = NULL")
    await own.queue_due_runs()
    assert owner(owner_url, "SELECT heard_at IS NOT NULL FROM signalbox.sync") == [(True,)]
    assert owner(owner_url, "SELECT due_at FROM signalbox.sync") == due
    assert await runs(database) == [("queued", 0, 0)]


async def test_the_run_of_a_sync_is_cancelled_while_it_waits_and_while_it_goes_on(
    database: Database, owner_url: str, folder: Path
):
    own, worker = schedules_on(database, folder)
    await own.queue_due_runs()
    (waiting,) = await worker.jobs.recent_jobs(TENANT, 5)
    assert (await worker.jobs.cancel(TENANT, waiting.id)).error == "cancelled"
    assert await worker.jobs.lease_next() is None

    await own.queue_run(TENANT, "docs")
    lease = await worker.jobs.lease_next()
    assert lease is not None
    await worker.jobs.cancel(TENANT, lease.id.hex)
    with pytest.raises(LostLease):
        await worker.run_job(lease)
    assert await runs(database) == [("failed", 0, 0), ("failed", 0, 0)]
    with pytest.raises(BadRequest, match="it is already failed"):
        await worker.jobs.cancel(TENANT, lease.id.hex)
    assert did(await sync(database, folder)) == (5, 0, 0, 0, 0)


async def test_a_delivery_does_not_wait_for_runs_of_syncs(database: Database, owner_url: str, folder: Path):
    worker = worker_on(database)
    await worker.run_delivery(TENANT, delivery_of_records("docs", [{"id": "mine", "text": "by hand"}]))
    before = owner(owner_url, "SELECT delivery, xmin FROM signalbox.document")
    await schedules_on(database, folder)[0].queue_due_runs()

    await worker.run_delivery(TENANT, delivery_of_records("docs", [{"id": "mine", "text": "by hand"}]))

    assert owner(owner_url, "SELECT delivery, xmin FROM signalbox.document") == before


async def test_a_worker_that_does_not_know_the_source_leaves_the_run_to_others(database: Database, folder: Path):
    own, knowing = schedules_on(database, folder)
    await own.queue_due_runs()

    assert await JobQueue(database).lease_next() is None
    assert await knowing.jobs.lease_next() is not None


async def test_a_refused_deletion_is_the_reason_of_the_failed_run_and_the_next_one_tries_again(
    database: Database, owner_url: str, folder: Path
):
    own, worker = schedules_on(database, folder)
    away = folder.with_name("away")

    async def run() -> None:
        owner(owner_url, "UPDATE signalbox.sync SET due_at = now()")
        await own.queue_due_runs()
        lease = await worker.jobs.lease_next()
        assert lease is not None
        with suppress(RetrievalError):
            await worker.run_job(lease)

    await run()
    folder.rename(away)
    await run()
    folder.mkdir()
    await run()
    shutil.rmtree(folder)
    away.rename(folder)
    await run()

    assert [one[0] for one in await runs(database)] == ["done", "failed", "failed", "done"]
    reasons = [one.error or "" for one in await worker.jobs.recent_jobs(TENANT, 10)]
    assert "5 of 5 documents are gone" in reasons[1]
    assert "does not exist" in reasons[2]
    assert len(ids(owner_url)) == 5


async def test_one_run_at_a_time_and_the_run_of_who_died_is_taken_over(
    database: Database, owner_url: str, folder: Path
):
    mirror = Mirror(database, TENANT, "docs", FolderSource(folder))
    worker = worker_on(database)
    schedules = MirrorScheduler(database, worker.jobs)
    late = await schedules.begin_run(mirror)
    with pytest.raises(Unavailable, match=f"job {late.id.hex} is already syncing it"):
        await schedules.begin_run(mirror)

    owner(owner_url, "UPDATE signalbox.job SET free_at = now()")
    assert did(await sync(database, folder)) == (5, 0, 0, 0, 0)
    with pytest.raises(LostLease):
        # It was away for a while, and goes on as if nothing had happened.
        await mirror.run(worker.jobs, late, worker.ingest, DeletionLimits(), lambda report: None)
    assert await runs(database) == [("done", 5, 0)]


async def test_a_run_that_is_cancelled_is_handed_back_and_goes_on_where_it_stopped(
    database: Database, owner_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(source_batches, "_DOCUMENTS_AT_ONCE", 2)
    own, worker = schedules_on(database, folder)
    await own.queue_due_runs()
    stored_some = asyncio.Event()
    store = worker.ingest

    async def slow(*given: Any, **options: Any) -> IngestReport:
        if stored_some.is_set():
            await asyncio.sleep(60)
        stored_some.set()
        return await store(*given, **options)

    mirror = Mirror(database, TENANT, "docs", FolderSource(folder))
    run = mirroring.bind_run(mirror, worker.jobs, slow, DeletionLimits())
    leaving = Worker(worker.jobs, slow, mirrors={mirror.manifest.sync: run})
    async with leaving:
        await stored_some.wait()
        for _ in range(3000):
            if ids(owner_url):
                break
            await asyncio.sleep(0.02)
        assert leaving.running_jobs == 1
        await leaving.stop(0.1)
        assert leaving.running_jobs == 0
    assert await runs(database) == [("queued", len(ids(owner_url)), 0)]
    assert 0 < len(ids(owner_url)) < 5

    async with worker:
        for _ in range(3000):
            if (await runs(database))[0][0] == "done":
                break
            await asyncio.sleep(0.02)
    assert await runs(database) == [("done", 5, 0)]


async def test_a_tenant_has_no_more_jobs_under_way_than_the_limit_on_all_workers_together(
    database: Database, owner_url: str
):
    jobs = JobQueue(database, most_of_tenant=2)
    for n in range(4):
        await jobs.submit(TENANT, delivery_of_records("docs", [{"id": f"d{n}", "text": "x"}]))
    await jobs.submit("other", delivery_of_records("docs", [{"id": "d", "text": "x"}]))

    taken = [await JobQueue(database, most_of_tenant=2).lease_next() for _ in range(5)]

    assert sorted(lease.tenant for lease in taken if lease) == [TENANT, TENANT, "other"]
    owner(owner_url, "UPDATE signalbox.job SET free_at = now() - interval '1 s' WHERE status = 'running'")
    assert await jobs.lease_next() is not None  # who died does not count


async def test_another_tenant_sees_nothing_of_a_mirror(database: Database, folder: Path):
    await sync(database, folder)
    assert await MirrorScheduler(database, JobQueue(database)).list_mirrors("rival") == []
    async with database.transaction(unrestricted_viewer("rival")) as connection:
        for table in ("sync", "sync_item", "sync_document"):
            cursor = await connection.execute(f"TABLE signalbox.{table}".encode())
            assert await cursor.fetchall() == []
