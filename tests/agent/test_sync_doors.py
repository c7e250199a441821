"""Mirrors on the command line and over HTTP."""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import psycopg
import pytest

from agent.errors import BadSetting
from agent.serve.authentication import Caller, Unauthenticated
from agent.serve.cli import run
from agent.serve.http.app import create_app
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings, load_settings
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.sync.source_factory import open_source

ACME, RIVAL = {"Authorization": "Bearer acme"}, {"Authorization": "Bearer rival"}


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.mkdir()
    for name in "abc":
        (path / f"{name}.md").write_text(f"# {name}\nThe rotor of turbine {name}.")
    return path


@pytest.fixture
def signalbox(
    tmp_path: Path, owner_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Answer]:
    """Runs a command line on a fresh database, in a folder of its own."""
    for name in [name for name in os.environ if name.startswith("SIGNALBOX_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", owner_url)

    def call(*arguments: str) -> Answer:
        code = run(arguments)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Answer(code, captured.out, captured.err)

    return call


def test_a_folder_is_synced_looked_at_and_guarded_from_the_command_line(
    signalbox: Callable[..., Answer], folder: Path, tmp_path: Path
):
    assert signalbox("sync", "source", "--collection", "docs", "--dry-run").out == (
        "+ a.md\n+ b.md\n+ c.md\ndocs: 3 to add, 0 to change, 0 to delete, 0 unchanged, 0 cannot be stored\n"
    )
    assert signalbox("collections").out.startswith("no collection yet")
    done = signalbox("sync", "source", "--collection", "docs")
    assert done.code == 0
    assert done.out.startswith("docs: 3 added, 0 updated, 0 deleted, 0 unchanged, 0 failed (")

    (folder / "a.md").write_text("# changed")
    (folder / "b.md").unlink()
    (folder / "d.json").write_text("{")
    said = json.loads(signalbox("sync", "source", "--collection", "docs", "--json").out)
    assert {key: said[key] for key in ("inserted", "updated", "deleted", "unchanged", "source", "collection")} == {
        "inserted": 0, "updated": 1, "deleted": 1, "unchanged": 1, "source": str(folder), "collection": "docs",
    }  # fmt: skip
    assert len(said["failed"]) == 1
    again = signalbox("sync", "source", "--collection", "docs")
    assert (again.code, "d.json: malformed JSON" in again.err) == (2, True), again.err

    for path in folder.iterdir():
        path.unlink()
    planned = json.loads(signalbox("sync", "source", "--collection", "docs", "--dry-run", "--json").out)
    assert (planned["deleted"], "--force" in planned["refused"]) == (["a.md", "c.md"], True)
    looked = signalbox("sync", "source", "--collection", "docs", "--dry-run")
    assert (looked.code, "the deletions would be refused: 2 of 2" in looked.err) == (1, True)
    refused = signalbox("sync", "source", "--collection", "docs")
    assert (refused.code, "2 of 2 documents are gone" in refused.err) == (1, True)
    folder.rmdir()
    assert signalbox("sync", "source", "--collection", "docs").code == 2
    folder.mkdir()
    assert "0 added, 0 updated, 2 deleted" in signalbox("sync", "source", "--collection", "docs", "--force").out
    listed = signalbox("sync")
    assert f"{folder} -> docs, by hand" in listed.out
    assert "2 deleted" in listed.out
    assert [one["last"]["deleted"] for one in json.loads(signalbox("sync", "--json").out)] == [2]
    assert "sync: 0 of 0 documents" in signalbox("jobs").out


def test_a_sync_of_the_settings_is_run_by_its_name(signalbox: Callable[..., Answer], folder: Path, tmp_path: Path):
    table = f'[sync.handbook]\nsource = "{folder}"\ncollection = "docs"\nevery = "15m"\ntenant = "acme"\n'
    (tmp_path / "signalbox.toml").write_text(f"sync_max_delete = 1\n{table}")
    known = f"handbook: {folder} -> docs, every 900 s, but no running worker has it in its settings\n"
    assert signalbox("sync", "--tenant", "acme").out == known
    assert signalbox("sync").out.startswith("no collection follows a source")

    assert "3 added" in signalbox("sync", "handbook").out
    for path in folder.iterdir():
        path.unlink()
    assert "3 deleted" in signalbox("sync", "handbook").out
    assert signalbox("sync", "--tenant", "acme", "--json").out.count('"collection": "docs"') >= 1
    other = signalbox("sync", "handbook", "--collection", "else")
    assert (other.code, "give only its name" in other.err) == (2, True)
    missing = signalbox("sync", "nothing")
    assert (missing.code, "the name of a sync in the settings: handbook" in missing.err) == (2, True)


def test_a_source_that_was_moved_is_forgotten_from_the_command_line(
    signalbox: Callable[..., Answer], folder: Path, tmp_path: Path
):
    signalbox("sync", "source", "--collection", "docs")
    folder.rename(tmp_path / "moved")
    blocked = signalbox("sync", "moved", "--collection", "docs")
    command = blocked.err.partition("signalbox ")[2].split("\n")[0].split()
    assert (blocked.code, command[:2]) == (2, ["sync", "--forget"]), blocked.err
    several = signalbox("sync", "--forget", "docs")
    assert (several.code, "give the id" in several.err, str(folder) in several.err) == (2, True, True), several.err

    assert signalbox(*command).out == f"forgotten: {folder} -> docs; its documents stay\n"
    assert (
        "0 added, 0 updated, 0 deleted, 3 unchanged, 0 failed" in signalbox("sync", "moved", "--collection", "docs").out
    )
    assert signalbox("sync").out.count(" -> docs") == 1
    assert signalbox(*command).code == 2
    assert "--forget takes no other arguments" in signalbox("sync", "moved", "--forget", "docs").err
    assert json.loads(signalbox("sync", "--forget", "docs", "--json").out)["forgotten"]["collection"] == "docs"


@pytest.mark.parametrize(
    "table",
    [
        'every = "0s"', 'every = "15"', "every = 15", 'every = "1m"\ncollection = ""', 'every = "1m"\nsecret = "x"',
    ],
)  # fmt: skip
def test_a_schedule_that_is_none_is_a_bad_setting(table: str, tmp_path: Path):
    (tmp_path / "signalbox.toml").write_text(f'[sync.docs]\nsource = "s"\n{table}\n')
    with pytest.raises(BadSetting, match="SYNC"):
        load_settings(folder=tmp_path)


def test_a_password_of_a_source_is_nowhere_to_be_seen(signalbox: Callable[..., Answer], owner_url: str, tmp_path: Path):
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE article AS SELECT 1 AS id, 'one' AS text")
        info = connection.info
        address = f"postgresql://{info.user}:hunter2@/{info.dbname}?host={info.host}&port={info.port}"
    (tmp_path / "signalbox.toml").write_text(
        f'[sync.news]\nsource = "{address}"\ntable = "article"\ncollection = "docs"\nevery = "1h"\n'
    )
    said = signalbox("sync", "news")
    assert (said.code, "1 added" in said.out) == (0, True), said.err
    shown = [*said, *signalbox("sync"), *signalbox("sync", "--json"), *signalbox("jobs"), *signalbox("doctor")]
    with psycopg.connect(owner_url) as connection:
        shown += map(repr, connection.execute("SELECT * FROM signalbox.sync").fetchall())
    assert "hunter2" not in " ".join(map(str, shown))
    with open(tmp_path / "signalbox.toml", "a") as file:
        file.write('[sync.list]\nsource = "https://127.0.0.1/list?key=hunter2b"\ncollection = "d"\nevery = "1h"\n')
    said = signalbox("sync", "list")
    assert said.code != 0
    shown = [*said, *signalbox("sync", "--json"), *signalbox("jobs", "--json"), *signalbox("doctor")]
    assert "hunter2" not in " ".join(map(str, shown))
    assert {"hunter2", "hunter2b"} <= set(load_settings(folder=tmp_path).secrets)
    bad = signalbox("sync", "postgresql://a:hunter2@nowhere.invalid:99999x/x", "--table", "t", "--collection", "d")
    assert (bad.code, "hunter2" in bad.err) == (3, False)


# Over HTTP.


async def by_key(authorization: str | None) -> Caller:
    """Two tenants, whose keys are their names."""
    key = (authorization or "").removeprefix("Bearer ")
    if key not in ("acme", "rival"):
        raise Unauthenticated
    return Caller(key, key)


@pytest.fixture
async def service(owner_url: str, service_url: str, folder: Path) -> AsyncIterator[Service]:
    given = {"docs": {"source": str(folder), "collection": "docs", "every": "1h", "tenant": "acme"}}
    settings = Settings.model_validate(
        {"database_url": owner_url, "service_url": service_url, "pool_size": 4, "timeout_s": 60, "sync": given}
    )
    async with open_service(settings) as service:
        yield service


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(create_app(service, authenticate=by_key))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=ACME) as client:
        yield client


async def last(client: httpx2.AsyncClient, run: int) -> dict[str, Any]:
    """The schedule `docs`, once its run of that number is over."""
    for _ in range(3000):
        jobs = (await client.get("/v1/jobs")).json()["jobs"]
        if len(jobs) >= run and all(job["status"] in ("done", "failed") for job in jobs):
            found: dict[str, Any] = (await client.get("/v1/syncs/docs")).json()
            return found
        await asyncio.sleep(0.02)
    raise AssertionError("it never ran")


async def test_a_schedule_is_seen_and_run_over_http(service: Service, client: httpx2.AsyncClient, folder: Path):
    async with service.worker:
        first = await last(client, 1)
        assert (first["name"], first["source"], first["collection"], first["every_s"]) == (
            "docs", str(folder), "docs", 3600.0,
        )  # fmt: skip
        assert (first["documents"], first["last"]["inserted"], first["failed"]) == (3, 3, [])
        assert first["last"]["sync"] == first["id"]

        (folder / "a.md").unlink()
        (folder / "bad.json").write_text("{")
        ran = await client.post("/v1/syncs/docs/run")
        assert ran.status_code == 202, ran.text
        second = await last(client, 2)
    assert (second["last"]["deleted"], second["last"]["failed_count"], second["documents"]) == (1, 1, 2)
    assert "malformed JSON" in second["failed"][0]["reason"]
    listed = (await client.get("/v1/syncs")).json()["syncs"]
    assert [(one["name"], one["last"]["job_id"]) for one in listed] == [("docs", second["last"]["job_id"])]
    assert [(one["has_worker"], one["next_at"] is not None) for one in listed] == [(True, True)]
    await client.post("/v1/syncs/docs/run")
    queued = (await client.get("/v1/jobs")).json()["jobs"][0]
    cancelled = await client.post(f"/v1/jobs/{queued['job_id']}/cancel")
    assert (cancelled.status_code, cancelled.json()["error"]) == (200, "cancelled"), cancelled.text
    with psycopg.connect(service.settings.database_url or "", autocommit=True) as connection:
        connection.execute("UPDATE signalbox.sync SET heard_at = NULL")
    refused = await client.post("/v1/syncs/docs/run")
    assert (refused.status_code, "no worker has had it" in refused.json()["detail"]) == (422, True), refused.text
    retried = await client.post(f"/v1/jobs/{second['last']['job_id']}/retry")
    assert (retried.status_code, "the next run of its source" in retried.json()["detail"]) == (422, True), retried.text


async def test_a_schedule_is_its_tenants_own(service: Service, client: httpx2.AsyncClient):
    async with service.worker:
        id = (await last(client, 1))["id"]
    assert (await client.get("/v1/syncs", headers=RIVAL)).json() == {"syncs": []}
    for name in ("docs", id):
        assert (await client.get(f"/v1/syncs/{name}", headers=RIVAL)).status_code == 404
        assert (await client.post(f"/v1/syncs/{name}/run", headers=RIVAL)).status_code == 404
    assert (await client.get("/v1/syncs", headers={"Authorization": "Bearer no"})).status_code == 401
    assert (await client.get("/v1/syncs/nothing")).status_code == 404


async def test_a_source_is_forgotten_over_http_by_its_tenant_alone(service: Service, client: httpx2.AsyncClient):
    async with service.worker:
        id = (await last(client, 1))["id"]
    assert (await client.delete(f"/v1/syncs/{id}", headers=RIVAL)).status_code == 404
    gone = await client.delete(f"/v1/syncs/{id}")
    assert (gone.status_code, gone.json()["collection"]) == (200, "docs"), gone.text
    assert id not in [one["id"] for one in (await client.get("/v1/syncs")).json()["syncs"] if one["last"]]
    assert (await client.delete("/v1/syncs/nothing")).status_code == 404
    assert len((await client.get("/v1/documents/docs/a.md")).json()["text"]) > 0


async def deadlocks(service: Service) -> int:
    """How many PostgreSQL has counted in this database."""
    async with service.database.connection() as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")
    await asyncio.sleep(1.2)  # idle connections report what they counted within a second
    with psycopg.connect(service.settings.database_url or "") as own:
        row = own.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    return int(row[0]) if row else -1


async def waits_for_a_lock(service: Service) -> bool:
    with psycopg.connect(service.settings.database_url or "") as own:
        statement = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return own.execute(statement).fetchone() is not None


async def test_the_deletion_of_a_collection_in_the_middle_of_a_run_waits_for_it_and_not_in_a_circle(
    service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    mirror = service.mirror(open_source(str(folder)), "docs", tenant="acme")
    await service.sync(mirror)
    (folder / "a.md").write_text("# changed")
    (folder / "d.md").write_text("# new")
    record, reached, deleting = JobQueue.record_batch, asyncio.Event(), asyncio.Event()

    async def halted(*arguments: Any, **counts: int) -> None:
        held = await (await arguments[1].execute(_MANIFEST_IS_LOCKED)).fetchone()
        if held and held[0] and not reached.is_set():
            reached.set()
            await deleting.wait()
        await record(*arguments, **counts)

    monkeypatch.setattr(JobQueue, "record_batch", halted)
    run = asyncio.create_task(service.sync(mirror))
    await asyncio.wait_for(reached.wait(), 20)
    gone = asyncio.create_task(service.delete("docs", tenant="acme"))
    async with asyncio.timeout(60):
        while not gone.done() and not await waits_for_a_lock(service):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    deleting.set()
    done = await asyncio.gather(run, gone, return_exceptions=True)

    assert not isinstance(done[1], BaseException), done
    assert isinstance(done[0], tuple | Unavailable | BadRequest), done
    assert await deadlocks(service) == 0


_MANIFEST_IS_LOCKED = """
    SELECT pg_current_xact_id_if_assigned() IS NOT NULL
       AND EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND mode = 'RowExclusiveLock'
                   AND relation = 'signalbox.sync_document'::regclass)
"""


def end_leases(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as own:
        own.execute("UPDATE signalbox.job SET free_at = now() WHERE status = 'running'")


async def test_two_workers_on_one_mirror_beside_deletions_never_wait_in_a_circle(service: Service, folder: Path):
    choose = random.Random(7)
    for n in range(40):
        (folder / f"{n}.md").write_text(f"# {n}")

    async def follow() -> None:
        for _ in range(12):
            for _ in range(6):
                n = choose.randrange(60)
                (folder / f"{n}.md").write_text(f"---\nid: x{choose.randrange(40)}\n---\n# {choose.random()}")
            mirror = service.mirror(open_source(str(folder)), "docs", tenant="acme")
            with suppress(Unavailable, BadRequest):
                await service.sync(mirror, force=True)

    async def rob() -> None:
        for _ in range(40):
            await asyncio.to_thread(end_leases, service.settings.database_url or "")
            await asyncio.sleep(choose.random() * 0.1)

    async def delete() -> None:
        for n in range(60):
            with suppress(BadRequest):
                await service.delete("docs", None if n % 15 == 14 else f"x{choose.randrange(40)}", tenant="acme")
            await asyncio.sleep(choose.random() * 0.05)

    async with asyncio.timeout(100):
        done = await asyncio.gather(follow(), follow(), rob(), delete(), return_exceptions=True)

    assert done == [None] * 4
    assert await deadlocks(service) == 0


async def test_a_deleted_document_and_a_deleted_collection_are_in_no_manifest(
    service: Service, client: httpx2.AsyncClient, owner_url: str
):
    async with service.worker:
        await last(client, 1)
    await client.delete("/v1/documents/docs/a.md")
    with psycopg.connect(owner_url, autocommit=True) as connection:
        rows = connection.execute("SELECT document_id FROM signalbox.sync_document ORDER BY 1").fetchall()
        assert rows == [("b.md",), ("c.md",)]
        await client.delete("/v1/collections/docs")
        assert connection.execute("SELECT count(*) FROM signalbox.sync_document").fetchone() == (0,)
