"""Several processes of one `signalbox serve`, as they are run and as clients see them."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from agent.observe.metrics import merge_processes
from agent.serve.http.middleware.admission import Gates
from agent.serve.process.connection_counts import ConnectionCounts
from retrievers.postgres.accounts import evaluations
from retrievers.postgres.connections.database import Database
from retrievers.postgres.server.schema_migrations import SERVICE_ROLE

ANSWERED = re.compile(r'signalbox_http_requests_total\{method="GET",process="(\d)",route="/healthz",.*\} (\d+)')
WRITING = re.compile(r'signalbox_gate_at_work\{gate="writes",process="\d"\} (\d)')


class Running:
    """`signalbox serve --processes 2`."""

    def __init__(self, owner_url: str, service_url: str, **settings: str) -> None:
        command = [sys.executable, "-c", "from agent.serve.cli import main; main()", "serve", "--port", "0"]
        named = {"DATABASE_URL": owner_url, "SERVICE_URL": service_url, "PROCESSES": "2", "LOG_LEVEL": "warning"}
        environment = os.environ | {f"SIGNALBOX_{name}": value for name, value in (named | settings).items()}
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()
        address = re.search(r"127\.0\.0\.1:\d+", self.said)
        self.address = address[0] if address else ""

    def children(self) -> list[int]:
        return [
            int(pid) for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ]

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address, timeout=60)

    @contextmanager
    def kept(self, count: int) -> Iterator[list[http.client.HTTPConnection]]:
        """Connections that are open at the same time, before anything is asked over them."""
        with ExitStack() as stack:
            connections = [stack.enter_context(closing(self.connection())) for _ in range(count)]
            for one in connections:
                one.connect()
            yield connections

    def get(self, path: str, connection: http.client.HTTPConnection | None = None) -> str:
        if connection is None:
            with closing(self.connection()) as connection:
                return self.get(path, connection)
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
        return text

    def counted(self) -> dict[str, int]:
        """Requests of /healthz that were answered, by process."""
        found = map(ANSWERED.match, self.get("/metrics").splitlines())
        return {one[1]: int(one[2]) for one in found if one}

    def complete(self) -> "Running":
        """When both processes answer."""
        until(self.is_complete)
        return self

    def is_complete(self) -> bool:
        return set(re.findall(r'_build_info\{process="(\d)"', self.get("/metrics"))) == {"1", "2"}

    def end(self) -> str:
        self.process.kill()
        return self.process.communicate()[1]


def until(is_so: Callable[[], bool], within_s: float = 90) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture(scope="module")
def running(module_url: str) -> Iterator[Running]:
    """Both processes answer."""
    running = Running(module_url, make_conninfo(module_url, user=SERVICE_ROLE))
    try:
        yield running.complete()
    finally:
        running.end()


def shares(running: Running, connections: list[http.client.HTTPConnection]) -> dict[str, int]:
    """How many of the connections each process has."""
    before = running.counted()
    for one in connections:
        running.get("/healthz", one)
    return {process: count - before.get(process, 0) for process, count in running.counted().items()}


@pytest.mark.slow
def test_kept_connections_spread_evenly_and_one_scrape_counts_the_requests_of_both(running: Running):
    assert len(running.children()) == 2
    with running.kept(8) as connections:
        # At once, or where the machine is busy, after the one with more has closed what is too much.
        until(lambda: shares(running, connections) == {"1": 4, "2": 4})


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/openapi.json", "/v1/collections"])
def test_whoever_asks_for_the_head_alone_gets_it_alone(running: Running, path: str):
    with closing(running.connection()) as connection:
        connection.request("HEAD", path)
        head = connection.getresponse()
        assert (head.status, head.read()) == (200, b"")
        connection.request("GET", path)
        whole = connection.getresponse()
        content = whole.read()
    assert head.headers["Content-Type"] == whole.headers["Content-Type"]
    assert whole.headers["Content-Length"] == str(len(content))
    assert int(head.headers["Content-Length"]) > 0


def test_one_process_carries_out_ingestion_jobs(running: Running):
    with running.kept(4) as connections:
        for one in connections:
            running.get("/readyz", one)

    def found() -> list[str]:
        return re.findall(r'signalbox_part_up\{part="(?:database|worker)",process="\d"\}', running.get("/metrics"))

    until(lambda: any('"worker"' in one for one in found()))  # a part is known once it has been used
    assert found() == [
        'signalbox_part_up{part="database",process="1"}',
        'signalbox_part_up{part="worker",process="1"}',
        'signalbox_part_up{part="database",process="2"}',
    ]


def test_the_figures_of_an_evaluation_are_shown_once(running: Running, module_url: str):
    async def publish() -> None:
        async with Database(module_url, make_conninfo(module_url, user=SERVICE_ROLE), size=1) as database:
            await evaluations.publish_figures(database, "acme", "quality", figures)

    figures = evaluations.EvaluationFigures(
        "questions", ("handbook",), {"hit@1": 0.75}, answered=4, failed=0, every_s=86_400.0
    )
    asyncio.run(publish())

    def shown() -> list[str]:
        return [line for line in running.get("/metrics").splitlines() if line.startswith("signalbox_evaluation{")]

    line = 'signalbox_evaluation{evaluation="quality",measure="hit@1"} 0.75'
    until(lambda: bool(shown()))
    # A process that was asked before shows what it read then for some seconds.
    assert {tuple(shown()) for _ in range(8)} <= {(), (line,)}


def test_a_process_that_hangs_is_missing_from_the_figures_and_holds_up_nobody(running: Running):
    hanging, _ = running.children()
    os.kill(hanging, signal.SIGSTOP)
    try:
        text = running.get("/metrics")
    finally:
        os.kill(hanging, signal.SIGCONT)
    assert len(re.findall(r"^signalbox_build_info", text, re.MULTILINE)) == 1
    running.complete()


def test_a_killed_process_is_replaced_while_the_other_answers_and_then_has_its_share(running: Running):
    killed, other = running.children()
    os.kill(killed, signal.SIGKILL)
    until(lambda: not is_alive(killed))
    with running.kept(6) as connections:

        def answered() -> bool:
            for one in connections:
                running.get("/healthz", one)
            return len(running.children()) == 2 and running.is_complete()

        until(answered)
        assert other in running.children()
        # All were the other's. It lets go of those that are too many after an answer; the client connects anew.
        until(lambda: shares(running, connections) == {"1": 3, "2": 3})


def one_of_each(running: Running, connections: list[http.client.HTTPConnection]) -> list[http.client.HTTPConnection]:
    """A connection to each of the processes."""
    until(lambda: shares(running, connections) == {"1": 4, "2": 4})
    by_process = {}
    for one in connections:
        (process,) = (process for process, count in shares(running, [one]).items() if count)
        by_process[process] = one
    return [by_process["1"], by_process["2"]]


def post(
    connection: http.client.HTTPConnection, collection: str, documents: list[dict[str, str]], **more: float
) -> None:
    body = json.dumps({"collection": collection, "documents": documents, **more})
    connection.request("POST", "/v1/documents", body, {"Content-Type": "application/json"})


@pytest.mark.slow
def test_two_processes_finish_what_is_at_work_when_they_are_told_to_stop(owner_url: str, service_url: str):
    running = Running(owner_url, service_url, GRACE_S="60")
    try:
        running.complete()
        documents = [{"text": f"text {n}"} for n in range(8)]
        # Nothing is stored before the service was told to stop, however fast or slow the machine is.
        with psycopg.connect(owner_url) as holding, running.kept(8) as kept:
            connections = one_of_each(running, kept)
            for name, one in zip(("one", "two"), connections, strict=True):
                post(one, name, [{"text": "the embedder is loaded"}])
                assert json.loads(one.getresponse().read())["inserted"] == 1
            holding.execute("LOCK TABLE signalbox.document IN SHARE MODE")
            for name, one in zip(("one", "two"), connections, strict=True):
                post(one, name, documents)
            until(lambda: WRITING.findall(running.get("/metrics")) == ["1", "1"])
            running.process.send_signal(signal.SIGTERM)
            holding.rollback()
            assert [json.loads(one.getresponse().read())["inserted"] for one in connections] == [8, 8]
        assert running.process.wait(60) == 0
    finally:
        running.end()


@pytest.mark.slow
def test_two_processes_return_what_they_store_in_the_background_to_the_queue(owner_url: str, service_url: str):
    running = Running(owner_url, service_url, GRACE_S="0.1")
    try:
        running.complete()
        with psycopg.connect(owner_url) as holding, running.kept(8) as kept:
            connections = one_of_each(running, kept)
            holding.execute("LOCK TABLE signalbox.document IN SHARE MODE")
            for name, one in zip(("one", "two"), connections, strict=True):
                post(one, name, [{"text": "a text"}], timeout_s=0.1)
            assert [one.getresponse().status for one in connections] == [503, 503]  # and their jobs go on
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(60) == 0
        with psycopg.connect(owner_url) as looking:
            jobs = looking.execute("SELECT status, lease, deaths FROM signalbox.job ORDER BY collection").fetchall()
        assert jobs == [("queued", None, 0)] * 2
    finally:
        running.end()


class Clients:
    """Threads that go on asking, half of them over a connection each, until they are refused or told to stop."""

    def __init__(self, running: Running, count: int) -> None:
        self._running, self._over = running, threading.Event()
        self.answers: Counter[int | str] = Counter()
        self._threads = [threading.Thread(target=self._ask, args=(number % 2 == 0,)) for number in range(count)]
        for one in self._threads:
            one.start()

    def _ask(self, keeps: bool) -> None:
        connection = self._running.connection()
        while not self._over.is_set():
            try:
                connection.connect() if connection.sock is None else None
            except ConnectionRefusedError:
                break
            try:
                connection.request("GET", "/v1/collections")
                answer = connection.getresponse()
                answer.read()
                self.answers[answer.status] += 1
                time.sleep(0.01)  # the machine is needed for the process that starts
            except (OSError, http.client.HTTPException) as error:
                self.answers[repr(error)] += 1
                connection.close()
            if not keeps:
                connection.close()
        connection.close()

    def end(self) -> Counter[int | str]:
        self._over.set()
        for one in self._threads:
            one.join()
        return self.answers


@pytest.mark.slow
def test_neither_a_process_that_is_replaced_nor_the_end_resets_a_connection(owner_url: str, service_url: str):
    running = Running(owner_url, service_url)
    try:
        clients = Clients(running.complete(), 6)
        for process in running.children():
            os.kill(process, signal.SIGTERM)
            until(lambda process=process: process not in running.children() and running.is_complete())  # type: ignore[misc]
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(60) == 0
        answers = clients.end()
    finally:
        running.end()
    assert set(answers) <= {200, 503}
    assert answers[200] > 10


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
def test_who_waits_for_a_start_that_is_stopped_is_told_so(processes: str, tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as free:
        database = f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/none"
        port = free.getsockname()[1]
        free.close()
        command = [sys.executable, "-c", "from agent.serve.cli import main; main()", "serve", "--port", str(port)]
        named = {"DATABASE_URL": database, "SERVICE_URL": database, "PROCESSES": processes, "HOME": str(tmp_path)}
        environment = os.environ | {f"SIGNALBOX_{name}": value for name, value in named.items()}
        with (
            subprocess.Popen(command, env=environment) as process,
            closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as waiting,
        ):
            until(lambda: is_open(waiting))
            with silent.accept()[0]:  # the service waits for a database that says nothing
                waiting.request("GET", "/v1/collections")
                process.send_signal(signal.SIGTERM)
                answer = waiting.getresponse()
                assert (answer.status, json.loads(answer.read())["detail"]) == (503, "the service is stopping")


def is_open(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.connect()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.slow
def test_no_process_is_left_when_the_one_that_looks_after_them_is_killed(owner_url: str, service_url: str):
    running = Running(owner_url, service_url)
    try:
        children = running.complete().children()
    finally:
        running.end()
    until(lambda: not any(map(is_alive, children)))
    # No process answers at the address any more.
    with closing(running.connection()) as connection:
        assert (len(children) >= 2, is_open(connection)) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "code", "says"),
    [
        ({"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}, 3, "the database is unavailable"),
        ({"AUTH": "keys"}, 2, "but none exists"),
    ],
)
def test_a_start_that_fails_says_why_once(
    owner_url: str, service_url: str, settings: dict[str, str], code: int, says: str
):
    running = Running(owner_url, service_url, **settings)
    rest = running.process.communicate(timeout=60)[1]
    assert running.said.startswith("signalbox: ")
    assert says in running.said
    assert (rest, running.process.returncode) == ("", code)


def test_figures_of_several_processes_keep_their_own_counts():
    text = '# HELP a_total Things.\n# TYPE a_total counter\na_total{{kind="x"}} {}\n'
    both = merge_processes({10: text.format(3.0).encode(), 2: text.format(4.0).encode()}).decode()
    assert both.splitlines() == [
        "# HELP a_total Things.",
        "# TYPE a_total counter",
        'a_total{kind="x",process="2"} 4.0',
        'a_total{kind="x",process="10"} 3.0',
    ]


def test_what_a_machine_works_on_at_once_is_shared_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)

    def sizes(gates: Gates) -> list[tuple[int, int]]:
        return [(gate._free, gate._most_waiting) for gate in gates.by_name().values()]

    assert sizes(Gates(has_model=True, processes=4)) == [(2, 14), (1, 14), (16, 16), (4, 8)]
    assert sizes(Gates(has_model=True)) == [(8, 56), (1, 56), (64, 64), (16, 32)]
    # Many can wait for others at once.
    assert sizes(Gates(has_model=True, searches_wait=True)) == [(64, 64), (1, 64), (64, 64), (16, 32)]


def test_connections_above_an_equal_share_are_to_go():
    with tempfile.TemporaryFile() as file:
        counts, other = ConnectionCounts.create(file.fileno(), 3), ConnectionCounts(file.fileno(), 3)
        counts.set(1, 7)
        assert (counts.above_share(1), counts.above_minimum(1)) == (0, 0)  # nobody else serves
        other.set(3, 0)
        assert (counts.above_share(1), counts.above_minimum(1)) == (3, 7)  # four each at most
        assert (other.above_share(3), other.above_minimum(3)) == (-4, 0)
        counts.mark_absent(3)
        assert (other.above_share(1), other.above_share(3)) == (0, 0)
