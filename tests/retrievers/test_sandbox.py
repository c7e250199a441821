import asyncio
import errno
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import patch

import pytest

from retrievers.core.errors import BadDocument, Unavailable
from retrievers.sandbox import CancelCheck, ProcessLimits, Sandbox, pool
from retrievers.sandbox.pool import _Process

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="there is no limit of the address space")
TASKS = """
import mmap, os, socket, struct, subprocess, tempfile, time
from retrievers.core.errors import BadDocument

def words(file):
    for word in file.read().decode().split():
        yield {"word": word}

def act(file, what):
    if what == "fill":
        full = [bytes(1 << 20) for _ in range(4096)]
    elif what == "spin":
        while True:
            pass
    elif what == "sleep":
        time.sleep(60)
    elif what == "drip":
        os.write(0, struct.pack("!I", 900_000))
        while True:
            os.write(0, b" ")
            time.sleep(0.01)
    elif what == "claim":
        while True:
            yield {"read": 8 << 20, "text": "x" * 100_000}
            time.sleep(0.1)
    elif what == "speak":
        while True:
            yield {"text": "x" * 100_000}
    elif what == "chatter":
        while True:
            yield {}
    elif what == "shout":
        yield {"text": "x" * 3_000_000}
    elif what == "raise":
        raise RuntimeError("a library is at a loss")
    elif what == "refuse":
        raise BadDocument("no text in it")
    elif what == "nest":
        def deeper(): return deeper()
        deeper()
    elif what == "die":
        os.abort()
    elif what == "connect":
        socket.create_connection(("127.0.0.1", 9))
    elif what == "start":
        subprocess.run(["true"])
    elif what == "fork":
        os.fork()
    elif what == "keep":
        global kept
        kept = bytearray(b"x") * (270 << 20)
    elif what == "reserve":
        global reserved
        reserved = mmap.mmap(-1, 310 << 20)
    elif what == "load":
        import markitdown
        with open("/proc/self/statm") as statm:
            pages = int(statm.read().split()[0])
        blas = os.environ["OPENBLAS_NUM_THREADS"]
        yield {"address_space": pages * os.sysconf("SC_PAGE_SIZE"), "threads_of_blas": blas}
        return
    yield {"pid": os.getpid(), "folder": tempfile.gettempdir(), "files": os.listdir()}

def once_filled(file):
    while not (text := file.read()):
        time.sleep(0.01)
        file.seek(0)
    yield {"text": text.decode()}

def parts(file, count):
    for _ in range(count):
        yield {"read": 8 << 20, "text": "x" * 900_000}
"""
SMALL = ProcessLimits(memory_bytes=600 << 20, cpu_s=1, wait_s=120, output_bytes=1_000_000, messages=5000)


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    (tmp_path / "tasks_of_this_test.py").write_text(TASKS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    sandbox = Sandbox(2, SMALL)
    yield sandbox
    sandbox.close()


def file_of(text: str = "") -> BinaryIO:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - of the caller
    file.write(text.encode())
    file.seek(0)
    return file


def run(sandbox: Sandbox, what: str, is_cancelled: CancelCheck = lambda: False) -> dict[str, Any]:
    """The last object that an act gives."""
    with (
        file_of() as file,
        closing(sandbox.run("tasks_of_this_test:act", [(file, {"what": what})], is_cancelled=is_cancelled)) as answers,
    ):
        return list(next(answers))[-1]


def test_files_are_read_one_after_the_other_by_one_process(sandbox: Sandbox):
    texts = [f"one {n} three" for n in range(16)]
    files = [file_of(text) for text in texts]

    answers = sandbox.run("tasks_of_this_test:words", [(file, {}) for file in files])

    assert [" ".join(one["word"] for one in answer) for answer in answers] == texts
    assert run(sandbox, "nothing")["pid"] == run(sandbox, "nothing")["pid"]
    for file in files:
        file.close()


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("fill", "reading it takes more than 600 MiB of memory; split it"),
        ("spin", "reading it takes more than 1 s of processor time; split it"),
        ("speak", "its text is larger than 1 MB; split it"),
        ("shout", "its text is larger than 1 MB; split it"),
        ("chatter", "8 MiB of it or less hold more than 5,000 documents; split it"),
        ("raise", "RuntimeError: a library is at a loss"),
        ("refuse", "no text in it"),
        ("nest", "it is nested too deeply"),
        ("die", "its reader crashed (SIGABRT); it may use 600 MiB of memory"),
        ("connect", "PermissionError: socket.getaddrinfo"),
        ("start", "PermissionError: subprocess.Popen"),
        ("fork", "PermissionError: os.fork"),
    ],
)
def test_a_file_that_goes_too_far_is_refused_with_the_reason_and_the_next_one_is_read(
    sandbox: Sandbox, what: str, reason: str
):
    with pytest.raises(BadDocument) as error:
        run(sandbox, what)

    assert str(error.value) == reason
    assert run(sandbox, "nothing")["files"] == []


def test_a_file_that_nobody_waits_for_when_its_turn_comes_costs_no_process(sandbox: Sandbox):
    before = run(sandbox, "nothing")["pid"]

    with pytest.raises(Unavailable):
        run(sandbox, "nothing", lambda: True)

    assert run(sandbox, "nothing")["pid"] == before


@pytest.mark.parametrize("what", ["sleep", "drip", "claim"])
def test_a_file_that_is_waited_for_too_long_is_refused(sandbox: Sandbox, what: str):
    """Also if its process sends a byte at a time, or says that it has read more than the file holds."""
    sandbox._limits = replace(SMALL, wait_s=0.5)

    with pytest.raises(BadDocument, match=r"reading it takes longer than 0\.5 s; split it"):
        run(sandbox, what)


def test_what_a_process_sends_a_byte_at_a_time_can_be_cancelled(sandbox: Sandbox):
    asked = iter([False] * 3)

    with pytest.raises(Unavailable):
        run(sandbox, "drip", is_cancelled=lambda: next(asked, True))


def test_a_bad_file_among_others_costs_none_of_them(sandbox: Sandbox):
    acts = ["nothing", "die", "nothing", "refuse", "keep", "nothing", "fill", "nothing"]
    found = []
    with file_of() as file:
        for answer in sandbox.run("tasks_of_this_test:act", [(file, {"what": act}) for act in acts]):
            try:
                found.append("pid" in list(answer)[-1])
            except BadDocument:
                found.append(False)

    assert found == [True, False, True, False, True, True, False, True]


def test_files_that_were_read_ahead_are_read_again_when_the_one_before_is_given_up(sandbox: Sandbox):
    texts = ["one two", *(f"file {n}" for n in range(5))]
    files = [file_of(text) for text in texts]

    answers = sandbox.run("tasks_of_this_test:words", [(file, {}) for file in files])
    first = next(answers)
    next(first)
    time.sleep(0.3)  # the process may read on; the test holds whether or not it has
    first.close()
    rest = [" ".join(one["word"] for one in answer) for answer in answers]

    assert rest == texts[1:]
    for file in files:
        file.close()


def test_the_libraries_take_a_part_of_the_address_space_however_many_cores_there_are(sandbox: Sandbox):
    converters = run(sandbox, "load")

    assert converters["threads_of_blas"] == "1"
    assert converters["address_space"] < ProcessLimits().memory_bytes / 2


@pytest.mark.parametrize("what", ["keep", pytest.param("reserve", marks=on_linux)])
def test_a_process_that_keeps_much_memory_or_address_space_is_replaced(sandbox: Sandbox, what: str):
    full = run(sandbox, what)["pid"]

    assert run(sandbox, "nothing")["pid"] != full


def test_a_file_of_many_documents_may_be_of_any_size(sandbox: Sandbox):
    with file_of() as file:
        (answer,) = [list(one) for one in sandbox.run("tasks_of_this_test:parts", [(file, {"count": 5})])]

    assert len(answer) == 5


def test_what_nobody_waits_for_is_not_read_to_its_end(sandbox: Sandbox):
    with pytest.raises(Unavailable):
        run(sandbox, "sleep", is_cancelled=lambda: True)


def test_a_process_without_work_leaves_nothing_behind(sandbox: Sandbox):
    last = run(sandbox, "nothing")
    assert Path(last["folder"]).is_dir()

    sandbox.close()

    assert not Path(last["folder"]).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(last["pid"], 0)


async def test_cancelling_ends_the_process_that_reads(sandbox: Sandbox):
    loop, begun, ended = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def read(is_cancelled: CancelCheck) -> None:
        loop.call_soon_threadsafe(begun.set)
        try:
            run(sandbox, "sleep", is_cancelled)
        finally:
            loop.call_soon_threadsafe(ended.set)

    reading = asyncio.create_task(sandbox.run_in_thread(read))
    await begun.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    await ended.wait()
    assert not sandbox._idle


async def test_at_the_end_of_this_process_those_that_read_end_too(sandbox: Sandbox):
    begun, loop = asyncio.Event(), asyncio.get_running_loop()
    send = _Process.send

    def sent(self: _Process, *given: Any) -> None:
        send(self, *given)
        loop.call_soon_threadsafe(begun.set)

    with patch.object(_Process, "send", sent):
        reading = asyncio.create_task(sandbox.run_in_thread(lambda is_cancelled: run(sandbox, "sleep", is_cancelled)))
        await begun.wait()
    (process,) = sandbox._busy
    pool.end_processes()

    with pytest.raises((BadDocument, Unavailable)):
        await reading
    assert not process.is_alive
    assert not await asyncio.to_thread(os.path.exists, process._folder)


async def test_at_the_end_of_this_process_one_that_does_not_end_is_left(sandbox: Sandbox):
    begun, loop = asyncio.Event(), asyncio.get_running_loop()
    send = _Process.send

    def sent(self: _Process, *given: Any) -> None:
        send(self, *given)
        loop.call_soon_threadsafe(begun.set)

    with patch.object(_Process, "send", sent), patch.object(_Process, "kill"):  # the kernel takes long to end it
        reading = asyncio.create_task(sandbox.run_in_thread(lambda is_cancelled: run(sandbox, "sleep", is_cancelled)))
        await begun.wait()
        (process,) = sandbox._busy
        await asyncio.to_thread(pool.end_processes)
        assert process.is_alive

    process.kill()
    with pytest.raises((BadDocument, Unavailable)):
        await reading


async def test_where_no_process_can_be_started_the_file_is_read_later(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr("subprocess.Popen", full)
        with pytest.raises(Unavailable, match="Too many open files"):
            await sandbox.run_in_thread(lambda is_cancelled: run(sandbox, "nothing", is_cancelled))

    assert await sandbox.run_in_thread(lambda is_cancelled: run(sandbox, "nothing", is_cancelled))


def test_no_more_files_are_read_at_once_than_there_are_places(sandbox: Sandbox):
    with file_of("a b") as file:
        request = [(file, {})]
        first, second = (sandbox.run("tasks_of_this_test:words", request) for _ in range(2))
        taken = [next(first), next(second)]

        assert not sandbox._normal.acquire(blocking=False)
        del taken
        first.close()
        assert sandbox._normal.acquire(blocking=False)
        sandbox._normal.release()
        second.close()


def test_a_message_is_read_whole_however_it_is_cut():
    from retrievers.sandbox.messages import MessageReceiver, encode_message

    data = encode_message({"text": "中" * 1000}) + encode_message({"end": None})

    class Slow:
        """A socket that gives a byte or nothing at a time."""

        stream, quiet = io.BytesIO(data), False

        def recv(self, _size: int) -> bytes:
            self.quiet = not self.quiet
            if self.quiet:
                raise TimeoutError
            return self.stream.read(1)

    receiver, found = MessageReceiver(Slow(), 10_000), []  # type: ignore[arg-type]
    while len(found) < 2:
        with suppress(TimeoutError):
            found.append(receiver.receive(60))

    assert found == [{"text": "中" * 1000}, {"end": None}]
    with pytest.raises(TimeoutError):
        receiver.receive(60)
    with pytest.raises(EOFError):
        receiver.receive(60)


async def test_a_file_that_takes_long_leaves_its_place_to_the_others(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("retrievers.sandbox.reading_slots._LONG_S", 0.0)
    monkeypatch.setattr("retrievers.sandbox.pool._MOST_LONG", 1)
    single = Sandbox(1, SMALL)
    long = asyncio.create_task(single.run_in_thread(lambda is_cancelled: run(single, "sleep", is_cancelled)))
    while not single._busy:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.01)
    try:
        assert await single.run_in_thread(lambda is_cancelled: run(single, "nothing", is_cancelled))
        assert not long.done()
    finally:
        long.cancel()
        await asyncio.wait({long})
    assert single._normal.acquire(timeout=60)
    assert single._long.acquire(timeout=60)
    single.close()


async def test_where_too_many_files_take_long_one_gives_way_to_a_waiting_file_and_is_read_again(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("retrievers.sandbox.reading_slots._LONG_S", 0.0)
    monkeypatch.setattr("retrievers.sandbox.pool._MOST_LONG", 1)
    single = Sandbox(1, SMALL)

    def read(file: BinaryIO, is_cancelled: CancelCheck) -> list[dict[str, Any]]:
        with closing(single.run("tasks_of_this_test:once_filled", [(file, {})], is_cancelled=is_cancelled)) as answers:
            return list(next(answers))

    with file_of() as one, file_of() as two:
        slow = []
        for file in (one, two):
            slow.append(asyncio.create_task(single.run_in_thread(partial(read, file))))
            while len(single._busy) < len(slow):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
        assert await single.run_in_thread(lambda is_cancelled: run(single, "nothing", is_cancelled))
        assert not any(task.done() for task in slow)
        for file in (one, two):
            file.write(b"text")
            file.flush()
        assert await asyncio.gather(*slow) == [[{"text": "text"}]] * 2
    assert single._normal.acquire(timeout=60)
    assert single._long.acquire(timeout=60)
    single.close()
