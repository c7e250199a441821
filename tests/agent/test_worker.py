"""`signalbox worker`: jobs on any number of machines, and what follows a source whoever dies on the way."""

import contextlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from retrievers.postgres.server.embedded import EmbeddedServer

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("SIGNALBOX_TEST_KILLS", "6"))
"""Of the test that kills at random; 100 take some ten minutes."""
_spec = importlib.util.spec_from_file_location("sync_tests", ROOT / "tests" / "retrievers" / "test_sync.py")
assert _spec is not None
assert _spec.loader is not None
sync_tests = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sync_tests)

# A worker that is killed is missed after two seconds instead of thirty, and vectors are made without a model.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from retrievers.ingest.jobs import job_queue

from retrievers.testing import HashEmbedder
from agent.service import factory
from agent.serve import cli
job_queue.JobQueue.__init__.__kwdefaults__["lease_s"] = 2.0
factory.open_embedder = lambda *given, **options: HashEmbedder()
cli.main()
"""


class Machines:
    """Processes of one installation, by a name of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.log = folder / "log"
        keep = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
        self.environment = {**keep, "SIGNALBOX_HOME": str(self.home)}

    def start(self, name: str, *arguments: str) -> None:
        with self.log.open("ab") as log:
            command = [sys.executable, "-c", PROGRAM, str(ROOT), *arguments]
            self.running[name] = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )

    def run(self, *arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-c", PROGRAM, str(ROOT), *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def end(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def url(self) -> str:
        return EmbeddedServer(self.home).conninfo()

    def ask(self, statement: str) -> list[Any]:
        """Rows, as soon as the database answers."""
        for _ in range(600):
            with contextlib.suppress(psycopg.Error, OSError):
                return list(sync_tests.owner(self.url(), statement))
            time.sleep(0.2)
        raise AssertionError("the database does not come back")

    def until(self, so: Callable[[], bool], within_s: float = 60.0) -> None:
        until = time.monotonic() + within_s
        while not so():
            assert time.monotonic() < until, self.log.read_text()[-4000:]
            time.sleep(0.1)

    def runs(self) -> int:
        (row,) = self.ask("SELECT count(*) FROM signalbox.job WHERE sync IS NOT NULL AND status = 'done'")
        return int(row[0])


@pytest.fixture
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    machines = Machines(tmp_path_factory.mktemp("machines"))
    yield machines
    machines.end()
    EmbeddedServer(machines.home).stop()


def settings(machines: Machines, **more: object) -> None:
    lines = [f"{key} = {json.dumps(value)}" for key, value in more.items()]
    table = (
        f'[sync.docs]\nsource = "{machines.folder / "source"}"\ncollection = "docs"\nevery = "1s"\ntenant = "acme"\n'
    )
    (machines.folder / "signalbox.toml").write_text("\n".join([*lines, table]))


@pytest.mark.slow
def test_killed_at_any_moment_three_workers_still_bring_the_collection_to_its_source(machines: Machines):
    settings(machines, sync_max_delete=1.0, pool_size=4)
    edits = sync_tests.Edits(machines.folder / "source", KILLS)
    edits.some(80)
    for name in ("one", "two", "three"):
        machines.start(name, "worker")
    machines.until(lambda: machines.home.exists() and bool(list(machines.home.rglob("postmaster.pid"))))
    machines.start("serve", "serve", "--port", "0", "--processes", "1")
    machines.until(lambda: machines.runs() > 0, 900)
    choose = random.Random(KILLS)

    for _ in range(KILLS):
        edits.some(choose.randrange(1, 12))
        time.sleep(choose.uniform(0, 2.5))
        victim = choose.choice(["one", "two", "three", "serve", "postgres"])
        if victim == "postgres":
            for file in machines.home.rglob("postmaster.pid"):
                with contextlib.suppress(ProcessLookupError, ValueError, IndexError):
                    os.kill(int(file.read_text().splitlines()[0]), signal.SIGKILL)
            continue
        machines.running[victim].kill()
        machines.running[victim].wait()
        machines.start(victim, *(("serve", "--port", "0", "--processes", "1") if victim == "serve" else ("worker",)))
    before = machines.runs()
    # What two files share is settled by the run after the one that saw it.
    machines.until(lambda: machines.runs() >= before + 4, 600)
    machines.end()

    code, said = machines.run("sync", "source", "--collection", "fresh", "--tenant", "acme")
    assert code in (0, 2), said
    server = EmbeddedServer(machines.home)
    server.start()
    try:
        docs, fresh = sync_tests.stored(server.conninfo(), "docs"), sync_tests.stored(server.conninfo(), "fresh")
    finally:
        server.stop()
    assert len(docs["document"]) > 20
    differ = {name: sorted({*docs[name]} ^ {*fresh[name]})[:6] for name in docs if docs[name] != fresh[name]}
    assert differ == {}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_worker_that_is_told_to_stop_hands_back_what_it_holds_and_another_goes_on(machines: Machines):
    settings(machines, grace_s=0.5)
    source = machines.folder / "source"
    for n in range(40):
        sync_tests.write(source, f"{n}.md", f"# {n}\n" + "\n\n".join(sync_tests.said(n + k) * 20 for k in range(40)))
    machines.start("one", "worker", "--at-once", "1")
    under_way = "SELECT count(*) FROM signalbox.job WHERE status = 'running'"
    machines.until(lambda: machines.ask(under_way) == [(1,)], 900)

    told = time.monotonic()
    machines.running["one"].terminate()
    assert machines.running["one"].wait(60) == 0
    assert time.monotonic() - told < 15
    assert "is stopping" in machines.log.read_text()  # perhaps before the worker knows of the job that it has taken
    server = EmbeddedServer(machines.home)
    server.start()
    try:
        assert machines.ask("SELECT status, lease FROM signalbox.job") == [("queued", None)]
    finally:
        server.stop()

    machines.start("two", "worker")
    machines.until(lambda: machines.runs() > 0, 900)
    assert machines.ask("SELECT count(*), sum(deaths) FROM signalbox.job WHERE status = 'done'")[0][1] == 0
    assert machines.ask("SELECT documents FROM signalbox.collection WHERE name = 'docs'") == [(40,)]


def test_what_a_worker_cannot_do_is_one_line(machines: Machines):
    (machines.folder / "signalbox.toml").write_text('database_url = "host=/nowhere dbname=x"\n')
    code, said = machines.run("worker")
    assert (code, said.count("\n"), "signalbox: the database is unavailable" in said) == (3, 1, True), said
    settings(machines)
    code, said = machines.run("worker", "--at-once", "0")
    assert code == 2
