"""Shared fixtures: one PostgreSQL server per run, one migrated template database, and a clone of it per test."""

import functools
import gc
import importlib
import logging
import math
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpcore2
import httpx2
import hypothesis
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from agent.settings import Settings
from retrievers.core import log_filter
from retrievers.embed import Vectors, onnx_embedder
from retrievers.embed.onnx_embedder import MINILM, OnnxEmbedder
from retrievers.postgres.connections.database import Database
from retrievers.postgres.server import embedded
from retrievers.postgres.server.embedded import EmbeddedServer
from retrievers.postgres.server.schema_migrations import SERVICE_ROLE, migrate

# No example may fail because the machine is slow.
hypothesis.settings.register_profile("any pace", deadline=None)
hypothesis.settings.load_profile("any pace")

# No request may time out because the machine is busy; tests of deadlines set their own.
PATIENT_DEFAULTS = {"timeout_s": 60.0, "source_timeout_s": 30.0}
httpx2.AsyncClient.__init__.__kwdefaults__["timeout"] = httpx2.Timeout(60.0)  # else 5 s

# Nor may the service do without something because that takes long: these limits are 1 to 5 s.
PATIENCE_S = 30.0
LIMITS = (
    "agent.chat.chat._DRAIN_S", "agent.chat.exchanges._DRAIN_S", "agent.chat.exchanges._WRITE_S",
    "agent.chat.conversation_memory._DRAIN_S", "agent.observe.evaluation_metrics._TIMEOUT_S",
    "agent.observe.health._DATABASE_TIMEOUT_S",
    "agent.records.trace_store._DRAIN_S", "agent.records.trace_store._WRITE_S", "agent.service.metering._DRAIN_S",
    "agent.service.metering._WRITE_S", "retrievers.embed.cosine_scale._PATIENCE_S", "retrievers.local.PATIENCE_S",
    "retrievers.postgres.catalogue.cooccurrence_reader.PATIENCE_S",
    "retrievers.postgres.accounts.api_keys.TIMEOUT_S", "retrievers.postgres.connections.server_probe.TIMEOUT_S",
)  # fmt: skip

# What is the same for every test is loaded once per process: the trusted certificates, 0.05 s for each HTTP client, and
# the embedding models, 0.2 s for each service. Together they took half of the processor time of all tests.
_load_certificates = functools.cache(lambda file, folder, load=httpcore2.default_ssl_context: load())
httpcore2.default_ssl_context = lambda **_: _load_certificates(*map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))


class _RememberingModel(onnx_embedder._Model):
    """Computes the vectors of a batch once per process: tests store the same few documents again and again. The key is
    the whole batch, because the padding of its other texts may change the last bits of a vector.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._known: dict[tuple[tuple[int, ...], ...], Vectors] = {}

    def run(self, batch: Sequence[Any]) -> Vectors:
        key = tuple(tuple(text.ids) for text in batch)
        if key not in self._known:
            self._known[key] = super().run(batch)
        return self._known[key].copy()


onnx_embedder._Model = functools.cache(_RememberingModel)

# Tests kill processes, never the machine: what the server wrote survives without being flushed. Small buffers and a
# short log keep the checkpoints of every CREATE DATABASE and DROP DATABASE short. Nothing is vacuumed or analysed at a
# moment that no test chose: plans, and what a test counts, would depend on it.
SERVER_SETTINGS = {
    "fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB", "max_wal_size": "64MB", "autovacuum": "off",
}  # fmt: skip
MEMORY_BYTES = 2 * 2**30  # a server takes some 100 MB
POSTGRES_VERSION = int(os.environ.get("SIGNALBOX_TEST_POSTGRES", "18"))
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give the run its own temporary folder, which its xdist workers share.

    With pytest's common folder, another run that starts meanwhile would revoke access for the user that runs the
    server.
    """
    for name, seconds in PATIENT_DEFAULTS.items():
        Settings.model_fields[name].default = seconds
        os.environ.setdefault(f"SIGNALBOX_{name.upper()}", str(seconds))  # for the commands that tests run
    Settings.model_rebuild(force=True)
    for limit in LIMITS:
        module, _, name = limit.rpartition(".")
        assert hasattr(importlib.import_module(module), name), limit
        setattr(importlib.import_module(module), name, PATIENCE_S)
    if config.option.basetemp is None:
        folder = tempfile.TemporaryDirectory(prefix="signalbox-pytest-", ignore_cleanup_errors=True)
        config.option.basetemp = folder.name
        config.add_cleanup(folder.cleanup)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the server, so that they can be run alone on another PostgreSQL version. Begin with the
    files that take longest, by the mean of each kind of test: one that begins last leaves the other workers idle.
    """
    cost: Counter[Path] = Counter()
    for item in items:
        is_slow = item.get_closest_marker("slow") is not None
        uses_server = "server" in getattr(item, "fixturenames", ())
        if uses_server:
            item.add_marker("database")
        cost[item.path] += 200 if is_slow else 7 if uses_server else 1
    items.sort(key=lambda item: -cost[item.path])


def pytest_collection_finish() -> None:
    """Leave what is loaded and collected by now out of garbage collection, as a service does at its start."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """The embedded server of this run, of the version in SIGNALBOX_TEST_POSTGRES."""
    with tempfile.TemporaryDirectory(prefix="signalbox-tests-", dir=_in_memory(), ignore_cleanup_errors=True) as home:
        server = EmbeddedServer(Path(home), POSTGRES_VERSION)
        with pytest.MonkeyPatch.context() as changed:
            settings = {**embedded._settings(), **SERVER_SETTINGS}
            changed.setattr(embedded, "_settings", lambda: settings)
            server.start()
        yield server
        server.stop()


def _in_memory() -> Path | None:
    """A folder in memory with room for the databases of a run, or None: the usual folder of temporary files.

    A copy of the template is 460 files. On ext4 it takes 0.1 to 0.5 s of processor time where others were deleted just
    now, because their inodes are passed over for five seconds; in memory it takes 0.03 s.
    """
    folder = Path("/dev/shm")
    return folder if folder.is_dir() and shutil.disk_usage(folder).free > MEMORY_BYTES else None


@pytest.fixture(scope="session")
def template(server: EmbeddedServer) -> str:
    """Name of a migrated database that tests clone."""
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE template_of_tests")
    migrate(server.conninfo(database="template_of_tests"))
    return "template_of_tests"


@pytest.fixture(scope="session")
def copy_of(server: EmbeddedServer) -> Callable[[str], AbstractContextManager[str]]:
    """Makes a copy of a database, by name, for a `with` block; gives the connection string of its owner."""

    @contextmanager
    def copied(template: str) -> Iterator[str]:
        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
            # Copying the template's files takes half the processor time of logging each of its pages.
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
        yield server.conninfo(database=name)
        with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    return copied


@pytest.fixture
def owner_url(copy_of: Callable[[str], AbstractContextManager[str]], template: str) -> Iterator[str]:
    """Connection string of the owner of a fresh, migrated database."""
    with copy_of(template) as url:
        yield url


@pytest.fixture(scope="module")
def module_url(copy_of: Callable[[str], AbstractContextManager[str]], template: str) -> Iterator[str]:
    """The same of a database for all tests of a file."""
    with copy_of(template) as url:
        yield url


@pytest.fixture
def service_url(owner_url: str) -> str:
    """Connection string of the role that the service uses, for the same database."""
    return make_conninfo(owner_url, user=SERVICE_ROLE)


@pytest.fixture
async def database(owner_url: str, service_url: str) -> AsyncIterator[Database]:
    """An open database, connected with the service's role; it prepares searches, as where there is no pooler."""
    async with Database(owner_url, service_url, size=4, prepares=True) as database:
        yield database


@pytest.fixture(scope="session")
def pgbouncer(server: EmbeddedServer) -> Iterator[Callable[[str], str]]:
    """PgBouncer in transaction mode, with one connection for each role and database: all of its clients share a server
    process. Gives the address there for one of the server's.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("there is no pgbouncer (Debian's package of that name)")
    with tempfile.TemporaryDirectory(prefix="signalbox-b-", ignore_cleanup_errors=True) as name:
        folder, user = Path(name), server._user
        (folder / "users").write_text(f'"{SERVICE_ROLE}" ""\n"postgres" ""\n')
        (folder / "ini").write_text(
            f"[databases]\n* = host={server._socket_folder()} port=5432\n[pgbouncer]\nlisten_port=6432\n"
            f"unix_socket_dir={folder}\nauth_type=trust\nauth_file={folder}/users\npool_mode=transaction\n"
            f"default_pool_size=1\nmax_client_conn=200\nlogfile={folder}/log\n"
        )
        if user is not None:
            for path in (folder, *folder.iterdir()):
                shutil.chown(path, user, user)
        process = subprocess.Popen(
            [program, "-q", str(folder / "ini")], user=user, group=user, stderr=subprocess.DEVNULL
        )
        try:
            while not (folder / ".s.PGSQL.6432").exists():
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.02)
            yield lambda url: make_conninfo(url, host=str(folder), port=6432)
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="session")
def minilm() -> OnnxEmbedder:
    """The packaged embedder, loaded once."""
    return OnnxEmbedder(MINILM, "minilm", languages=frozenset({"en"}))


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """Returns the folder of a development corpus; skips the test if there is none."""

    def folder(name: str) -> Path:
        path = SHARED / name
        if not path.is_dir():
            pytest.skip(f"the development corpus {name} is not beside this clone")
        return path

    return folder


@pytest.fixture(autouse=True)
def no_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections to other machines fail: no test may need one."""
    import socket

    connect = socket.socket.connect

    def local_only(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else "unix"
        if host not in ("unix", "127.0.0.1", "::1", "localhost"):
            raise OSError(f"tests may not connect to {host}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", local_only)


@pytest.fixture(autouse=True)
def logging_of_its_own() -> Iterator[None]:
    """Restore the root logger after the test, because a command run in it may have replaced the handlers."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


class _Failures(logging.Handler):
    """Collects the errors that a logger reports."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture(autouse=True)
def failed_readings() -> Iterator[list[logging.LogRecord]]:
    """Fail a test in which a rule crashed: the pipeline answers without it, so nothing else would show the bug.

    A test that wants the crash clears the list.
    """
    failures, log = _Failures(), logging.getLogger("agent.pipeline")
    log.addHandler(failures)
    yield failures.records
    log.removeHandler(failures)
    assert [(one.getMessage(), one.exc_info) for one in failures.records] == []


@pytest.fixture
def sparing_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each rate-limited log message appear exactly once in this test, whatever ran before."""
    monkeypatch.setattr(log_filter, "_SPARING_S", math.inf)
    for logger in logging.root.manager.loggerDict.values():
        for one in getattr(logger, "filters", ()):
            if isinstance(one, log_filter.RepetitionFilter):
                monkeypatch.setattr(one, "_due_s", {})
