"""A server that is told to stop: every request that was sent is answered, and no connection is reset."""

import asyncio
import json
import logging
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from unittest.mock import AsyncMock

import pytest
from fastapi import FastAPI

from agent.serve.http import problems
from agent.serve.http.app import create_app
from agent.serve.http.middleware.admission import Gate, Gates
from agent.serve.process import server as serving
from agent.serve.process.listening_socket import finish_handshakes, open_listener, refuse_waiting_connections
from agent.serve.process.server import Server
from agent.service.factory import open_service
from agent.settings import Settings

Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]

TYPE = "urn:signalbox:problem:stopping"
REQUEST = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Told(Server):
    """Stops when the test says so, and says when every connection knows."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(app)
        self.stopping = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def finish_handshakes(self, listener: socket.socket) -> None:
        self.stopping.set()
        await super().finish_handshakes(listener)


class Late(Told):
    """Accepts nothing until it is told to stop, as a process that is very busy."""

    async def wait_for_turn(self) -> None:
        while not self.should_exit:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)


class Running:
    """A server on a port of this machine."""

    def __init__(self, kind: type[Told], app: FastAPI) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        app.get("/work")(self._work)
        app.get("/now")(lambda: "done")
        self.server = kind(app)
        self.listener = open_listener("127.0.0.1", 0)
        self.address = self.listener.getsockname()
        self.task = asyncio.create_task(self.server.serve([self.listener]))

    async def _work(self) -> str:
        self.begun.set()
        await self.may_end.wait()
        return "worked"

    async def connect(self) -> Connected:
        return await asyncio.open_connection(*self.address[:2])

    async def begin_to_stop(self) -> None:
        self.server.should_exit = True
        async with asyncio.timeout(60):
            await self.server.stopping.wait()

    async def stop(self) -> None:
        self.server.should_exit = True
        await self.task


class Unlimited:
    """Refuses nothing early."""

    def rejection(self, *_: object) -> None:
        """See `EarlyRejection.rejection`."""


def bare() -> FastAPI:
    """An application without the layers of the service, which turn away what comes after the stop."""
    app = FastAPI()
    app.state.gates, app.state.early_rejection = Gates(has_model=False), Unlimited()
    app.state.grace_s = 60.0  # requests at work have time to finish, however busy the machine is
    app.state.stop_jobs = AsyncMock()
    return app


@asynccontextmanager
async def running(kind: type[Told] = Told, app: FastAPI | None = None) -> AsyncIterator[Running]:
    one = Running(kind, app or bare())
    try:
        yield one
    finally:
        one.may_end.set()
        await one.stop()


async def answer(connected: Connected) -> tuple[int, bytes]:
    """Status and body of all that comes until the server ends the connection, without a reset."""
    reader, writer = connected
    async with asyncio.timeout(60):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b"connection: close" in head.lower()
    return int(head.split()[1]), body


async def test_a_request_that_was_never_accepted_is_answered():
    async with running(Late) as one:
        sent = [await one.connect() for _ in range(20)]
        for _, writer in sent:
            writer.write(REQUEST % b"now")
        one.server.should_exit = True
        assert [await answer(each) for each in sent] == [(200, b'"done"')] * 20


class Counting(Late):
    """Late, and counts how often it waited for its turn to accept."""

    turns = 0

    async def wait_for_turn(self) -> None:
        await super().wait_for_turn()
        self.turns += 1


@pytest.mark.parametrize(("waiting", "fewest", "most"), [(20, 20, 22), (400, 20, 200)])
async def test_a_process_waits_for_its_turn_before_each_connection_but_less_often_if_many_wait(
    waiting: int, fewest: int, most: int
):
    async with running(Counting) as one:
        sent = [await one.connect() for _ in range(waiting)]
        for _, writer in sent:
            writer.write(REQUEST % b"now")
        one.server.should_exit = True
        assert [await answer(each) for each in sent] == [(200, b'"done"')] * waiting
    assert isinstance(one.server, Counting)
    assert fewest <= one.server.turns <= most


async def test_a_request_at_work_finishes_and_its_answer_says_that_it_is_the_last():
    async with running() as one:
        sent = await one.connect()
        sent[1].write(REQUEST % b"work")
        await one.begun.wait()
        await one.begin_to_stop()
        one.may_end.set()
        assert await answer(sent) == (200, b'"worked"')


async def test_requests_that_wait_for_their_turn_are_answered_as_well():
    app = bare()
    gate = app.state.gates.searches = Gate(1, 8)

    @app.get("/queue")
    async def queue() -> str:
        async with gate.admit("a", 60):
            await one.may_end.wait()
            return "done"

    async with running(app=app) as one:
        sent = [await one.connect() for _ in range(4)]
        for _, writer in sent:
            writer.write(REQUEST % b"queue")
        async with asyncio.timeout(60):
            while (gate.at_work, gate.waiting) != (1, 3):  # noqa: ASYNC110 - a gate has no event
                await asyncio.sleep(0.01)
        await one.begin_to_stop()
        one.may_end.set()
        assert [await answer(each) for each in sent] == [(200, b'"done"')] * 4


async def test_jobs_are_stopped_while_requests_are_still_at_work():
    app, told = bare(), asyncio.Event()

    async def stop_jobs(within_s: float) -> None:
        told.set()

    app.state.stop_jobs = stop_jobs
    async with running(app=app) as one:
        sent = await one.connect()
        sent[1].write(REQUEST % b"work")
        await one.begun.wait()
        one.server.should_exit = True
        async with asyncio.timeout(60):
            await told.wait()
        one.may_end.set()
        assert await answer(sent) == (200, b'"worked"')


async def test_jobs_have_the_grace_period_also_without_requests_at_work():
    app, said = bare(), []

    async def stop_jobs(within_s: float) -> None:
        if within_s:
            await asyncio.sleep(0.5)
        said.append(within_s)

    app.state.stop_jobs = stop_jobs
    async with running(app=app):
        pass
    assert said == [60.0, 0.0]


async def test_a_second_ctrl_c_ends_the_grace_period_of_jobs():
    app, waiting, ended = bare(), asyncio.Event(), asyncio.Event()

    async def stop_jobs(within_s: float) -> None:
        if within_s:
            waiting.set()
            await ended.wait()
        ended.set()

    app.state.stop_jobs = stop_jobs
    one = Running(Told, app)
    one.server.should_exit = True
    async with asyncio.timeout(60):
        await waiting.wait()
        assert not ended.is_set()
        one.server.force_exit = True
        await one.task
    assert ended.is_set()


async def test_a_second_ctrl_c_ends_the_grace_period_of_requests_which_are_answered_503():
    app, begun, may_end = bare(), asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        begun.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()

    app.get("/stubborn")(stubborn)
    async with running(app=app) as one:
        long, half = await one.connect(), await one.connect()
        long[1].write(REQUEST % b"stubborn")
        half[1].write((REQUEST % b"now")[:20])
        await begun.wait()
        await one.begin_to_stop()
        one.server.force_exit = True
        for each in (long, half):
            status, body = await answer(each)
            assert (status, json.loads(body)["type"]) == (503, TYPE)
        may_end.set()


async def test_a_connection_is_not_closed_as_idle_while_a_request_on_it_is_not_read():
    async with running() as one:
        used, unused = await one.connect(), await one.connect()
        await answered([used])
        quiet = await one.connect()
        await answered([quiet])
        for connected in (used, unused):
            descriptor = connected[1].get_extra_info("socket").fileno()
            assert os.write(descriptor, REQUEST % b"now")  # at once: the server has had no turn to read it
        for connection in one.server._open_connections:
            connection.timeout_keep_alive_handler()
            if not connection.transport.is_closing() and connection.timeout_keep_alive_task is not None:
                connection.timeout_keep_alive_task._run()  # its time is over, and the server still had no turn
        assert await quiet[0].read() == b""
        for reader, writer in (used, unused):
            async with asyncio.timeout(60):
                await reader.readuntil(b'"done"')
            writer.close()
        quiet[1].close()


class Deaf(Told):
    """Accepts nothing, as a process without file descriptors."""

    async def wait_for_turn(self) -> None:
        await asyncio.Event().wait()


async def test_who_was_not_accepted_within_the_grace_period_is_still_there_to_be_answered():
    app = bare()
    app.state.grace_s = 0.2
    async with running(Deaf, app) as one:
        waiting = [await one.connect() for _ in range(3)]
        for _, writer in waiting:
            writer.write(REQUEST % b"now")
        await one.stop()
        turning = asyncio.create_task(asyncio.to_thread(refuse_waiting_connections, one.listener))
        assert [(await answer(each))[0] for each in waiting] == [503] * 3
        await turning


async def test_a_request_that_crosses_the_stop_on_a_kept_connection_is_answered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serving, "_LAST_REQUEST_S", 60.0)
    async with running() as one:
        reader, writer = await one.connect()
        writer.write(REQUEST % b"now")
        await reader.readuntil(b'"done"')
        await one.begin_to_stop()
        writer.write(REQUEST % b"now")
        assert await answer((reader, writer)) == (200, b'"done"')


async def test_a_request_that_does_not_end_when_it_is_cancelled_is_answered_503():
    app, may_end = bare(), asyncio.Event()
    app.state.grace_s = 0.1

    async def stubborn() -> None:
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()

    app.get("/stubborn")(stubborn)
    async with running(app=app) as one:
        sent = await one.connect()
        sent[1].write(REQUEST % b"stubborn")
        await one.begin_to_stop()
        status, body = await answer(sent)
        may_end.set()
    assert (status, json.loads(body)["type"]) == (503, TYPE)


async def test_a_request_that_takes_too_long_and_one_of_which_half_came_are_answered_503(
    owner_url: str, service_url: str
):
    settings = Settings(database_url=owner_url, service_url=service_url, pool_size=2, grace_s=0.5)
    async with open_service(settings) as service, running(app=create_app(service)) as one:
        half, long = await one.connect(), await one.connect()
        half[1].write((REQUEST % b"now")[:20])
        long[1].write(REQUEST % b"work")
        await one.begun.wait()
        one.server.should_exit = True
        for each in (half, long):
            status, body = await answer(each)
            assert (status, json.loads(body)["type"]) == (503, "urn:signalbox:problem:stopping")


async def test_a_connection_that_is_kept_and_not_used_ends_without_an_answer():
    async with running() as one:
        reader, writer = await one.connect()
        one.server.should_exit = True
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    "what", [b"\x16\x03\x01 no HTTP\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"]
)
async def test_what_a_client_sends_after_its_last_request_does_not_cost_it_the_answer(what: bytes):
    async with running() as one:
        reader, writer = await one.connect()
        writer.write(what)
        async with asyncio.timeout(60):
            head = await reader.readuntil(b"\r\n\r\n")
            for _ in range(50):
                writer.write(b"more " * 1000)
                await writer.drain()
                await asyncio.sleep(0)
            rest = await reader.read()
        writer.close()
    assert b"connection: close" in head.lower()
    assert rest


async def test_who_waits_for_a_server_that_never_answered_is_told_that_it_stops():
    with open_listener("127.0.0.1", 0) as listener:
        waiting = [await asyncio.open_connection(*listener.getsockname()) for _ in range(3)]
        for _, writer in waiting[1:]:
            writer.write(REQUEST % b"any")
        turning = asyncio.create_task(asyncio.to_thread(refuse_waiting_connections, listener))
        for status, body in [await answer(one) for one in waiting]:
            told = json.loads(body)
            assert (status, told["type"], told["detail"]) == (503, TYPE, problems.stopping_problem().detail)
        await turning
    refuse_waiting_connections(listener)  # which is closed


@contextmanager
def descriptor_limit(soft: int) -> Iterator[None]:
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


async def test_who_waits_is_answered_also_if_there_are_descriptors_for_a_few_only():
    with open_listener("127.0.0.1", 0) as listener:
        waiting = [await asyncio.open_connection(*listener.getsockname()) for _ in range(20)]
        for _, writer in waiting:
            writer.write(REQUEST % b"any")
        lowest_free = os.dup(0)
        os.close(lowest_free)
        with descriptor_limit(lowest_free + 3):
            turning = asyncio.create_task(asyncio.to_thread(refuse_waiting_connections, listener))
            assert [(await answer(each))[0] for each in waiting] == [503] * 20
            await turning


async def test_who_waits_is_answered_also_on_a_descriptor_of_a_high_number():
    with open_listener("127.0.0.1", 0) as listener, descriptor_limit(2048), ExitStack() as stack:
        waiting = [await asyncio.open_connection(*listener.getsockname()) for _ in range(3)]
        while (opened := os.dup(0)) < 1100:
            stack.callback(os.close, opened)
        stack.callback(os.close, opened)
        turning = asyncio.create_task(asyncio.to_thread(refuse_waiting_connections, listener))
        assert [(await answer(each))[0] for each in waiting] == [503] * 3
        await turning


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can drop what begins a connection")
async def test_before_a_listener_closes_no_new_connection_begins_and_those_that_had_begun_are_there():
    with open_listener("127.0.0.1", 0) as listener, ExitStack() as stack:
        before = stack.enter_context(socket.create_connection(listener.getsockname()))
        await finish_handshakes(listener)
        after = stack.enter_context(socket.socket())
        after.setblocking(False)
        with pytest.raises(BlockingIOError):
            after.connect(listener.getsockname())
        before.sendall(b"still read")
        accepted = stack.enter_context(listener.accept()[0])
        assert accepted.recv(10) == b"still read"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.usefixtures("sparing_log")
async def test_without_file_descriptors_connections_wait_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("agent.serve.process.acceptor._REST_S", 0.02)
    rests, sleep = 0, asyncio.sleep

    async def counted(delay_s: float) -> None:
        nonlocal rests
        rests += delay_s == 0.02
        await sleep(delay_s)

    monkeypatch.setattr("agent.serve.process.acceptor.asyncio.sleep", counted)
    async with running() as one:
        kept = [await one.connect() for _ in range(6)]
        await answered(kept)
        for thread in threading.enumerate():
            if thread.name.endswith(" ahead"):  # it reads a file, whose descriptor would become free meanwhile
                await asyncio.to_thread(thread.join)
        with descriptor_limit(kept[-1][1].get_extra_info("socket").fileno() + 8):
            waiting = socket.create_connection(one.address[:2])
            waiting.sendall(REQUEST % b"now")
            waiting.setblocking(False)
            while rests < 20:
                await sleep(0.01)
            with pytest.raises(BlockingIOError):
                waiting.recv(1)
            await answered(kept)  # those that were accepted before are served
        reader, writer = await asyncio.open_connection(sock=waiting)
        async with asyncio.timeout(60):
            await reader.readuntil(b'"done"')
        for _, each in [*kept, (reader, writer)]:
            each.close()
    said = [record.message for record in caplog.records if record.name == "agent.serve.process.acceptor"]
    assert len(said) == 1
    assert "file descriptors are in use" in said[0] or "Too many open files" in said[0]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def answered(connections: list[Connected]) -> None:
    """Each is asked something, and answers."""
    for reader, writer in connections:
        writer.write(REQUEST % b"now")
        async with asyncio.timeout(60):
            await reader.readuntil(b'"done"')


# A process whose threads are at work when it is to end.

BUSY = """
import asyncio, threading
from agent.serve.process.immediate_exit import exit_immediately

async def main():
    begun, forever = threading.Event(), threading.Event()
    asyncio.get_running_loop().run_in_executor(None, lambda: (begun.set(), forever.wait()))
    begun.wait()
    print("said", flush=False)
    exit_immediately(3)

asyncio.run(main())
"""


def test_a_process_ends_whatever_its_threads_do():
    command = [sys.executable, "-c", BUSY]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "said\n", "")


# Ctrl-C while the program is still loading its commands.

INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "agent.serve.cli.program":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, if the tests run in the background of a shell
from agent.serve.cli import main
main()
"""


def test_ctrl_c_at_the_very_start_ends_the_program_without_a_traceback():
    command = [sys.executable, "-c", INTERRUPTED, "--help"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
