"""A primary with two standbys: questions are read from these, and go on whatever happens to one of the three."""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx2
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from agent.errors import BadSetting
from agent.serve.cli.doctor import standby_checks
from agent.serve.http.app import create_app
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings, load_settings
from retrievers.core.errors import Unavailable
from retrievers.core.types import Viewer
from retrievers.ingest.documents import Document
from retrievers.postgres.server.embedded import EmbeddedServer
from retrievers.postgres.server.schema_migrations import SERVICE_ROLE

VERSION = int(os.environ.get("SIGNALBOX_TEST_POSTGRES", "18"))
_OPTIONS = (
    "-c listen_addresses='' -c shared_buffers=32MB -c fsync=off -c max_connections=100 -c jit=off"
    " -c wal_receiver_status_interval=1s -c wal_retrieve_retry_interval=100ms"
)


class Node:
    """A PostgreSQL server of the cluster, with a folder of its own."""

    def __init__(self, home: Path) -> None:
        self.server = EmbeddedServer(home, VERSION)
        self.data = home / f"postgres-{VERSION}"
        self.server._prepare_folders()

    def url(self, database: str = "replicated") -> str:
        return self.server.conninfo(database=database)

    def start(self) -> None:
        options = f"{_OPTIONS} -p 5432 -k {self.server._socket_folder()}"
        self.server._run(self.data, "pg_ctl", "start", "-D", ".", "-w", "-t", "60", "-l", "server.log", "-o", options)

    def stop(self, mode: str = "immediate") -> None:
        self.server._run(self.data, "pg_ctl", "stop", "-D", ".", "-m", mode, "-w", "-t", "60")

    def copy(self, of: EmbeddedServer, *options: str) -> None:
        """Become a copy of a server that runs; with "-R", a standby of it."""
        self.data.mkdir()
        if self.server._user:
            import pwd

            account = pwd.getpwnam(self.server._user)
            os.chown(self.data, account.pw_uid, account.pw_gid)
        self.data.chmod(0o700)
        command = ("pg_basebackup", "-h", str(of._socket_folder()), "-p", "5432", "-U", "postgres", "-D", ".")
        self.server._run(self.data, *command, "-X", "stream", "--checkpoint=fast", "--no-sync", *options)
        self.forget()

    def forget(self) -> None:
        """What a server that ran here, or was killed, says of itself: its number may be that of a zombie."""
        for left in (*self.data.glob(".s.PGSQL.*"), *self.data.glob("postmaster.pid")):
            left.unlink()

    def processes(self) -> list[int]:
        """The server's process, then those of its sessions and its own workers."""
        first = int((self.data / "postmaster.pid").read_text().splitlines()[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, children)]

    def signal(self, number: signal.Signals) -> None:
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def run(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Receives what the primary writes and does not replay it."""
        self.run("SELECT pg_wal_replay_pause()")
        while self.run("SELECT pg_get_wal_replay_pause_state()") != [("paused",)]:
            time.sleep(0.01)
        try:
            yield
        finally:
            self.run("SELECT pg_wal_replay_resume()")


class Cluster:
    def __init__(self, primary: Node, standbys: Sequence[Node]) -> None:
        self.primary, self.standbys = primary, standbys

    def settings(self, **more: object) -> Settings:
        service = make_conninfo(self.primary.url(), user=SERVICE_ROLE)
        urls = tuple(node.url() for node in self.standbys)
        # As of a login that READ_URLS does not name.
        read = tuple(url.replace("user=postgres ", "").replace("user=postgres", "") for url in urls)
        given = {"database_url": self.primary.url(), "service_url": service, "read_urls": read, "pool_size": 4}
        return Settings.model_validate({**given, "max_lag_s": 5.0, "workers": 0, **more})


@pytest.fixture(scope="module")
def cluster(server: EmbeddedServer, template: str) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="signalbox-c-", ignore_cleanup_errors=True) as home:
        nodes = [Node(Path(home) / name) for name in ("p", "a", "b")]
        primary, *standbys = nodes
        primary.copy(server)
        started = []
        try:
            primary.start()
            started.append(primary)
            with psycopg.connect(primary.url("postgres"), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE replicated TEMPLATE {template}".encode())
            for node in standbys:
                node.copy(primary.server, "-R")
                node.start()
                started.append(node)
            yield Cluster(primary, standbys)
        finally:
            for node in started:
                with suppress(Exception):
                    node.stop()


def document(id: str, text: str, readers: tuple[str, ...] = ()) -> Document:
    return Document(id, id, id.title(), text, metadata={"team": "red"}, readers=readers)


async def until(holds: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Wait for something that is bound to come; how long that takes says nothing."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.05)


def faults(service: Service) -> list[str | None]:
    return [one.fault for one in service.database.reads.standbys()]


def reads(service: Service) -> list[int]:
    return [one.reads for one in service.database.reads.standbys()]


async def ids(service: Service, question: str = "turbine", tenant: str | Viewer = "acme") -> set[str]:
    return {hit.document_id for hit in (await service.retrieve(question, tenant=tenant)).hits}


@asynccontextmanager
async def opened(cluster: Cluster, **more: object) -> AsyncIterator[Service]:
    async with open_service(cluster.settings(**more)) as service:
        await until(lambda: faults(service) == [None, None])
        yield service


@pytest.fixture(scope="module", autouse=True)
def corpus(cluster: Cluster) -> None:
    async def fill() -> None:
        async with open_service(cluster.settings()) as service:
            for tenant, word in (("acme", "alpha"), ("bolt", "beta")):
                texts = [document(f"{word}{n}", f"A turbine of canary{word}, number {n}.") for n in range(3)]
                await service.ingest(texts, "docs", tenant=tenant)

    asyncio.run(fill())


async def caught_up(service: Service, standbys: int = 2) -> None:
    """The tenant's questions are read from standbys again."""
    watch = service.database.reads._watch
    assert watch is not None
    await until(lambda: len(watch.usable_standbys(("acme", "platform"))[0]) == standbys)


async def test_questions_are_read_from_standbys_and_a_standby_s_tenants_do_not_see_each_other(cluster: Cluster):
    async with opened(cluster) as service:
        await caught_up(service)
        before = sum(reads(service))
        assert await ids(service) == {"alpha0", "alpha1", "alpha2"}
        assert await ids(service, tenant="bolt") == {"beta0", "beta1", "beta2"}
        assert await ids(service, "canaryalpha", tenant="bolt") == {"beta0", "beta1", "beta2"}
        counted = await service.retrieve("How many documents are there?", tenant="bolt")
        assert counted.table is not None
        assert counted.table.rows == ((3,),)
        assert sum(reads(service)) - before >= 12
        logged_in = "SELECT DISTINCT usename FROM pg_stat_activity WHERE usename LIKE 'signalbox%'"
        assert [node.run(logged_in) for node in cluster.standbys] == [[(SERVICE_ROLE,)]] * 2

        # The signature is verified there, too, and row security holds.
        standby = service.database.reads._watch.standbys[0].connections  # type: ignore[union-attr]
        async with standby.connection() as connection:
            forged = service.database.scope("acme").replace("acme", "bolt")
            with pytest.raises(psycopg.errors.Error, match="scope"):
                await connection.execute("SELECT signalbox.access_changed(%s)", (forged,))
            with pytest.raises(psycopg.errors.Error):
                await connection.execute("SELECT count(*) FROM signalbox.document")


async def test_what_a_process_has_stored_its_next_question_finds_while_standbys_lag(cluster: Cluster):
    async with opened(cluster, max_lag_s=60.0) as service:
        await caught_up(service)
        with cluster.standbys[0].paused(), cluster.standbys[1].paused():
            for number in range(3):
                record = {"id": f"new{number}", "text": f"A turbine, novelty{number}."}
                job = await service.submit("docs", [record], tenant="acme")
                assert job.inserted == 1
                assert f"new{number}" in await ids(service, f"novelty{number}")
            await service.submit("fresh", [{"id": "f", "text": "A sprocket."}], tenant="acme")
            assert await ids(service, "sprocket") >= {"f"}
            assert faults(service) == [None, None]
            # Another tenant is still read from standbys.
            before = sum(reads(service))
            assert await ids(service, tenant="bolt") == {"beta0", "beta1", "beta2"}
            assert sum(reads(service)) > before
        await caught_up(service)
        before = sum(reads(service))
        assert "new2" in await ids(service, "novelty2")
        assert sum(reads(service)) > before
        for number in range(3):
            await service.delete("docs", f"new{number}", tenant="acme")
        await service.delete("fresh", tenant="acme")


async def test_who_may_read_no_more_sees_nothing_at_once_though_standbys_lag(cluster: Cluster):
    ann = Viewer("acme", ("user:ann",))
    secret = document("secret", "A turbine with a zeppelin.", ("user:ann",))
    async with opened(cluster, max_lag_s=60.0) as service, opened(cluster, max_lag_s=60.0) as other:
        await service.ingest([secret], "docs", tenant="acme")
        await caught_up(service)
        assert "secret" in await ids(other, "zeppelin", ann)
        with cluster.standbys[0].paused(), cluster.standbys[1].paused():
            taken = Document("secret", "secret", "Secret", secret.text, metadata={"team": "red"}, readers=("user:bob",))
            await service.ingest([taken], "docs", tenant="acme")
            assert "secret" not in await ids(other, "zeppelin", ann)
            assert faults(other) == [None, None]
        await service.delete("docs", "secret", tenant=Viewer("acme", ("*",)))


async def test_a_standby_that_lags_is_left_until_it_has_caught_up(cluster: Cluster):
    async with opened(cluster, max_lag_s=2.0) as service:
        await caught_up(service)
        with cluster.standbys[0].paused():
            # An idle primary is no lag, however long it is idle.
            await asyncio.sleep(3.0)
            assert faults(service) == [None, None]
            cluster.primary.run("CREATE TABLE IF NOT EXISTS public.noise (n int); INSERT INTO public.noise VALUES (1)")
            await until(lambda: faults(service) == ["lagging", None])
            behind = service.database.reads.standbys()[0].lag_s
            assert behind is not None
            assert behind > 2.0
            before = reads(service)
            for tenant in ("acme", "bolt"):
                assert len(await ids(service, tenant=tenant)) == 3
            assert reads(service)[0] == before[0]
            assert reads(service)[1] > before[1]
        await until(lambda: faults(service) == [None, None])


async def asked_throughout(service: Service, during: Callable[[], Awaitable[None]]) -> float:
    """Four askers until it is over: all are answered in full; returns the longest that one waited, in seconds."""
    over, longest = asyncio.Event(), [0.0]

    async def asker(number: int) -> None:
        tenant, word = (("acme", "alpha"), ("bolt", "beta"))[number % 2]
        while not over.is_set():
            started = time.monotonic()
            found = await service.retrieve("turbine", tenant=tenant, intent="off")
            longest[0] = max(longest[0], time.monotonic() - started)
            assert {hit.document_id for hit in found.hits} == {f"{word}{n}" for n in range(3)}, found.degraded

    askers = [asyncio.create_task(asker(number)) for number in range(4)]
    try:
        await asyncio.sleep(0.3)
        await during()
    finally:
        over.set()
    await asyncio.gather(*askers)
    return longest[0]


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_no_question_fails_when_a_standby_dies_or_hangs_and_it_is_read_again_afterwards(
    cluster: Cluster, how: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("retrievers.postgres.connections.server_probe.TIMEOUT_S", 1.0)
    victim = cluster.standbys[0]
    async with opened(cluster, source_timeout_s=10, timeout_s=20) as service:
        await caught_up(service)

        async def during() -> None:
            victim.signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            await until(lambda: faults(service) == ["down", None])
            await asyncio.sleep(0.3)

        try:
            await asked_throughout(service, during)
        finally:
            if how == "killed":
                victim.forget()
                victim.start()
            else:
                victim.signal(signal.SIGCONT)
        await until(lambda: faults(service) == [None, None])
        await asked_throughout(service, lambda: asyncio.sleep(0))
        pool = service.database.reads._watch.standbys[0].connections  # type: ignore[union-attr]
        await until(lambda: pool.usage().in_use == 0)
        assert faults(service) == [None, None]


async def test_without_its_primary_it_answers_and_stores_nothing_until_that_is_back(cluster: Cluster):
    async with opened(cluster) as service:
        await caught_up(service)
        transport = httpx2.ASGITransport(create_app(service))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=30) as client:

            async def store() -> httpx2.Response:
                body = {"collection": "docs", "documents": [{"id": "late", "text": "A tardy one."}]}
                return await client.post("/v1/documents", json=body)

            assert (await client.get("/readyz")).json()["status"] == "ready"
            cluster.primary.stop()
            try:
                found = await client.post("/v1/retrieve", json={"query": "turbine"})
                assert found.status_code in (200, 404), found.text  # the settings' tenant has no collection
                assert await ids(service) == {"alpha0", "alpha1", "alpha2"}
                await until(lambda: service.database.primary.lost)
                refused = await store()
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
                assert refused.json()["detail"].startswith("the database is unavailable: the primary does not answer (")
                await asyncio.sleep(1.1)
                ready = await client.get("/readyz")
                assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
                assert ready.json()["parts"]["database"]["status"] == "failing"
                assert ready.json()["parts"]["standby_1"] | {"since": ""} == {
                    "status": "ok",
                    "since": "",
                    "lag_s": 0.0,
                }
                # As old as it is, what a standby has replayed is what the primary was last known to have.
                assert len(await ids(service)) == 3
            finally:
                cluster.primary.start()
            await until(lambda: service.database.primary.lost is None)
            assert (await store()).status_code == 200
            await until(lambda: faults(service) == [None, None])
            assert (await client.request("DELETE", "/v1/collections/docs")).status_code == 200


async def test_without_the_primary_a_key_opens_and_a_quota_lets_nobody_in(
    cluster: Cluster,
):
    async with opened(cluster) as service:
        _, key = await service.keys.create("acme")
        await service.metering.tenants.change_any_settings("bolt", {"questions_per_day": 1000})
        service.database.reads.note_write("acme")
        await caught_up(service)
        cluster.primary.stop()
        try:
            assert (await service.keys.verify(key)).tenant == "acme"
            await until(lambda: service.database.primary.lost)
            with pytest.raises(Unavailable, match="the primary does not answer"):
                await ids(service, tenant="bolt")
        finally:
            cluster.primary.start()
        await until(lambda: service.database.primary.lost is None)
        assert len(await ids(service, tenant="bolt")) == 3
        await service.metering.tenants.change_any_settings("bolt", {"questions_per_day": None})


async def test_the_doctor_and_the_figures_tell_of_each_standby(cluster: Cluster):
    strange = cluster.settings(read_urls=(*cluster.settings().read_urls, cluster.primary.url(), "host=/nowhere"))
    checks = await standby_checks.check_standbys(strange)
    assert [(one.name, one.ok) for one in checks] == [
        ("standby 1", True),
        ("standby 2", True),
        ("standby 3", False),
        ("standby 4", False),
    ]
    assert checks[0].found.endswith(", used for reads, 0.0 s behind")
    assert "postgres is not a login IN ROLE signalbox_app" in checks[2].found
    assert "no such file" in checks[3].found.lower()
    own = make_conninfo(cluster.primary.url(), user=SERVICE_ROLE)
    (itself,) = await standby_checks.check_standbys(cluster.settings(read_urls=(own,)))
    assert "it was promoted, or is the primary itself" in itself.found

    async with opened(cluster) as service:
        await ids(service)
        transport = httpx2.ASGITransport(create_app(service))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            figures = (await client.get("/metrics")).text
        assert 'signalbox_standby_in_use{standby="standby_2"} 1.0' in figures
        assert 'signalbox_standby_lag_seconds{standby="standby_1"}' in figures
        assert 'signalbox_standby_reads_total{standby="standby_1"}' in figures


async def test_addresses_are_read_between_commas_and_need_a_primary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SIGNALBOX_READ_URLS", "postgresql://a,b:5433/db, postgresql://u:s3cret@c/db,host=d dbname=db")
    (tmp_path / "signalbox.toml").write_text('DATABASE_URL = "postgresql://p/db"\n')
    settings = load_settings(folder=tmp_path)
    assert settings.read_urls == ("postgresql://a,b:5433/db", "postgresql://u:s3cret@c/db", "host=d dbname=db")
    assert "s3cret" in settings.secrets
    assert "s3cret" not in repr(settings)
    (tmp_path / "signalbox.toml").write_text('READ_URLS = ["postgresql://a/db", ""]\n')
    monkeypatch.delenv("SIGNALBOX_READ_URLS")
    settings = load_settings(folder=tmp_path)
    assert settings.read_urls == ("postgresql://a/db",)
    with pytest.raises(BadSetting, match="set DATABASE_URL too"):
        async with open_service(settings):
            pass


async def test_an_address_that_cannot_be_meant_is_refused(cluster: Cluster):
    with pytest.raises(Unavailable, match="READ_URLS contains an invalid connection string"):
        async with open_service(cluster.settings(read_urls=("postgresql://a:b@c@d/x",))):
            pass


async def test_a_promoted_standby_and_what_follows_it_are_read_no_more(cluster: Cluster):
    """The last of these tests: the cluster is split afterwards."""
    promoted = cluster.standbys[0]
    async with opened(cluster) as service:
        await caught_up(service)

        async def during() -> None:
            promoted.run("SELECT pg_promote()")
            for table in ("chunk", "document"):
                promoted.run(f"ALTER TABLE signalbox.{table} NO FORCE ROW LEVEL SECURITY")
                promoted.run(f"TRUNCATE signalbox.{table} CASCADE")
            await until(lambda: faults(service) == ["promoted", None])

        await asked_throughout(service, during)
    follower = Node(promoted.data.parent.parent / "f")
    follower.copy(promoted.server, "-R")
    follower.start()
    try:
        urls = (follower.url().replace("user=postgres", f"user={SERVICE_ROLE}"), cluster.settings().read_urls[1])
        async with open_service(cluster.settings(read_urls=urls)) as service:
            await until(lambda: faults(service) == ["diverged", None])
            assert await ids(service) == {"alpha0", "alpha1", "alpha2"}
            assert "on timeline 2; ours is on 1" in service.database.reads.standbys()[0].reason

        # Where the addresses name both, the promoted one is the primary once the old one has gone.
        places = ",".join(str(node.server._socket_folder()) for node in (cluster.primary, promoted))
        owner = make_conninfo(cluster.primary.url(), host=places, target_session_attrs="read-write")
        service_url = make_conninfo(owner, user=SERVICE_ROLE)
        moving = cluster.settings(database_url=owner, service_url=service_url, read_urls=urls)
        async with open_service(moving) as service:
            await until(lambda: faults(service) == ["diverged", None])
            cluster.primary.stop()
            await until(lambda: faults(service)[0] is None)
            await service.ingest([document("after", "A turbine after the move.")], "moved", tenant="acme")
            await caught_up(service, 1)
            assert await ids(service) == {"after"}
    finally:
        follower.stop()
