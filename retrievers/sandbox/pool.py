"""A pool of processes that read untrusted files. They are started on demand and reused."""

import asyncio
import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from typing import Any, BinaryIO, TypeVar
from weakref import WeakSet

from retrievers.core.errors import BadDocument, Unavailable
from retrievers.sandbox.limits import DEFAULT_LIMITS, PART_BYTES, ProcessLimits
from retrievers.sandbox.messages import MessageReceiver
from retrievers.sandbox.reading_slots import ReadingPreempted, ReadingSlot, SlotPool, reading_attempt

CancelCheck = Callable[[], bool]
"""Returns True if the caller no longer waits for the file."""
Returned = TypeVar("Returned")

MOST_REQUESTS = 16
"""Maximum number of files handed to a process at once."""
_POLL_S = 0.2
"""How often the receiver checks whether the caller still waits, in seconds."""
_MOST_LONG = 2
"""Number of slots of a pool for long readings, see `retrievers.sandbox.reading_slots`."""
_MOST_THREADS = 32
"""Maximum number of calls of `run_in_thread` that read a file or wait for a slot. Further calls wait for a thread."""
_IDLE_S = 60.0
"""How long an idle process is kept, in seconds."""
_ENDS_WITHIN_S = 0.5
"""How long to wait for killed processes, in seconds. The kernel may take long to end one that has much memory."""
_MOST_FILES_EACH = 500
"""Maximum number of files per process, because libraries may keep memory or state of each file."""


def never_cancelled() -> bool:
    """Return False. The value of `is_cancelled` for a caller that waits to the end."""
    return False


_pools: "WeakSet[Sandbox]" = WeakSet()


@atexit.register
def end_processes() -> None:
    """End the processes of all pools, before this process ends."""
    for pool in tuple(_pools):
        pool.end_processes()


class Sandbox:
    """Reads files in separate processes.

    Args:
        slots: maximum number of files read in parallel, beside `_MOST_LONG` files that take long; further files wait.
            If more files take long while others wait, the reading of one is ended, and begins anew when a slot for
            long ones is free. Only readings with `run_in_thread` are ended.
    """

    def __init__(self, slots: int, limits: ProcessLimits = DEFAULT_LIMITS) -> None:
        self._slot_count, self._limits = slots, limits
        self._normal, self._long = SlotPool(slots), SlotPool(_MOST_LONG)
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._lock = threading.Lock()
        self._threads, self._long_threads = _thread_pools()
        # A forked process must not read from its parent's sockets.
        os.register_at_fork(after_in_child=self._reset_after_fork)
        _pools.add(self)

    def run(
        self,
        task: str,
        requests: Sequence[tuple[BinaryIO, Mapping[str, Any]]],
        *,
        is_cancelled: CancelCheck = never_cancelled,
    ) -> Generator[Iterator[dict[str, Any]], None, None]:
        """Run a task on each file. For each file in turn, yield an iterator over the JSON objects that the task yields.

        The process reads ahead: it goes on to the next file while the caller takes the objects of the file before.

        Args:
            task: "module:function", see `retrievers.sandbox.child.Task`.
            requests: at most `MOST_REQUESTS` pairs of a file that is open for reading and has a file descriptor, and
                the task's other arguments as JSON values.
        Raises:
            BadDocument: raised by an iterator if its file is invalid or exceeds the limits.
            Unavailable: `is_cancelled` returned True. May also be raised by an iterator.
            ReadingPreempted: raised by an iterator in `run_in_thread`, which handles it.
        """
        waiting = deque(requests)
        while waiting:
            with ReadingSlot(self._normal, self._long) as slot, self._process(is_cancelled) as process:
                process.send(task, waiting)
                while waiting and process.is_healthy:
                    waiting.popleft()
                    yield process.receive(is_cancelled, slot)

    async def run_in_thread(self, function: Callable[[CancelCheck], Returned]) -> Returned:
        """Call a function that uses `run`, in a thread. Cancelling this call ends the reading process.

        Args:
            function: takes the value to pass to `run` as `is_cancelled`. It is called again from the start if its
                reading was ended in favour of other files.
        Raises:
            Unavailable: a process or a file cannot be opened now. Errors of `function` are raised unchanged.
        """
        loop, stop = asyncio.get_running_loop(), threading.Event()
        try:
            with suppress(ReadingPreempted):
                return await loop.run_in_executor(self._threads, function, stop.is_set)
            return await loop.run_in_executor(self._long_threads, function, stop.is_set)
        except OSError as error:
            reason = f"a file cannot be read now ({error.strerror or error})"
            raise Unavailable("the sandbox", reason, retry_after_s=5) from error
        finally:
            stop.set()

    @contextmanager
    def _process(self, is_cancelled: CancelCheck) -> Iterator["_Process"]:
        # The caller may have left during the wait for a slot: do not start a process for it.
        _raise_if_cancelled(is_cancelled)
        process = self._take() or _Process(self._limits)
        self._busy.add(process)
        try:
            yield process
        finally:
            self._busy.discard(process)
            if process.is_usable:
                process.start_idle_timer(self._end_idle)
                with self._lock:
                    self._idle.append(process)
            else:
                process.end()

    def _take(self) -> "_Process | None":
        """Take an idle process that is still alive out of the pool, and return it; None if there is none."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                process = self._idle.pop()
            if process.is_alive:
                return process
            process.end()

    def close(self) -> None:
        """End the idle processes. The next file starts a new one."""
        while (process := self._take()) is not None:
            process.end()

    def end_processes(self) -> None:
        """End all processes, also those that read a file."""
        killed = (*self._idle, *self._busy)
        for process in killed:
            process.kill()  # all of them first, because each takes a moment to end
        with self._lock:
            self._idle.clear()
        deadline = time.monotonic() + _ENDS_WITHIN_S
        for process in killed:
            process.end(deadline - time.monotonic())

    def _end_idle(self, process: "_Process") -> None:
        """End a process that has been idle for `_IDLE_S`."""
        with self._lock:
            if process not in self._idle:
                return
            self._idle.remove(process)
        process.end()

    def _reset_after_fork(self) -> None:
        self._normal, self._long = SlotPool(self._slot_count), SlotPool(_MOST_LONG)
        self._idle, self._busy, self._lock = [], set(), threading.Lock()
        self._threads, self._long_threads = _thread_pools()


def _raise_if_cancelled(is_cancelled: CancelCheck) -> None:
    if is_cancelled():
        raise Unavailable("the file", "nobody waits for it any more")


def _thread_pools() -> tuple[ThreadPoolExecutor, ThreadPoolExecutor]:
    """Return the threads of `run_in_thread`: for first readings of files, and for readings after a preemption."""
    return (
        ThreadPoolExecutor(_MOST_THREADS, "sandbox", setattr, (reading_attempt, "is_first", True)),
        ThreadPoolExecutor(_MOST_LONG, "sandbox-long", setattr, (reading_attempt, "is_retry", True)),
    )


class _Process:
    """A process that reads files, and the socket to it.

    Attributes:
        is_well: False while the messages of a file are being received, and after the process died, was given up or
            announced its end.
    """

    def __init__(self, limits: ProcessLimits) -> None:
        self._limits = limits
        with ExitStack() as undoing:
            self._folder = tempfile.mkdtemp(prefix="signalbox-")
            undoing.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self._connection, theirs = socket.socketpair()
            undoing.callback(self._connection.close)
            with theirs:
                self._process = self._start(theirs)
            undoing.pop_all()
        self._connection.settimeout(_POLL_S)
        self._receiver = MessageReceiver(self._connection, limits.output_bytes + 1024)
        self._files = 0
        self._outstanding_bytes: deque[int] = deque()  # sizes of the files sent whose results are still to come
        self._idle_timer: threading.Timer | None = None
        self.is_healthy = True

    def _start(self, theirs: socket.socket) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            (sys.executable, "-P", "-m", "retrievers.sandbox.child", json.dumps(asdict(self._limits)), self._folder),
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            # The code is loaded from this process's path, not from the current working directory.
            env={
                "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path),
                "PYTHONUTF8": "1",
                "TMPDIR": self._folder,
                # Numeric libraries reserve address space per core, and address space is limited here.
                "OPENBLAS_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                # The C library does so too, for threads that allocate at the same time.
                "MALLOC_ARENA_MAX": "1",
            },
            start_new_session=True,
        )

    def send(self, task: str, requests: Iterable[tuple[BinaryIO, Mapping[str, Any]]]) -> None:
        """Send files to read. Their results are received in this order."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        files, arguments = zip(*requests, strict=True)
        for file in files:
            # another process may have read ahead in this file before it was ended, and file positions are shared
            file.seek(0)
        self._outstanding_bytes = deque(os.fstat(file.fileno()).st_size for file in files)
        self._files += len(files)
        request = json.dumps({"task": task, "arguments": arguments}).encode() + b"\n"
        with suppress(ConnectionError):  # the receiver will notice
            sent = socket.send_fds(self._connection, [request], [file.fileno() for file in files])
            self._connection.sendall(request[sent:])

    def receive(self, is_cancelled: CancelCheck, slot: ReadingSlot) -> Iterator[dict[str, Any]]:
        """Yield the task's messages for the next file that was sent. Raises like the iterators of `Sandbox.run`.

        If the caller stops before the end, the process cannot be used for other files.

        Args:
            is_cancelled: returns True if the caller no longer waits.
            slot: the slot that this reading occupies; may be exchanged for a long one.
        """
        self.is_healthy = False
        waited_s, read_bytes = 0.0, 0
        # The time begins anew as often as the file has parts, and no more often if the process claims to read more.
        parts = self._outstanding_bytes[0] // PART_BYTES
        while True:
            _raise_if_cancelled(is_cancelled)
            if waited_s > self._limits.wait_s:
                raise BadDocument(self._limits.out_of_time)
            slot.move_if_long()
            began = time.monotonic()
            try:
                message = self._receiver.receive(_POLL_S)
            except TimeoutError:
                waited_s += time.monotonic() - began
                continue
            except EOFError:
                raise BadDocument(self._exit_reason()) from None
            except ValueError:
                raise BadDocument(self._limits.too_much_output) from None
            waited_s += time.monotonic() - began
            if "error" in message:
                self._outstanding_bytes.popleft()
                self.is_healthy = not message["last"]
                if message["error"] is not None:
                    raise BadDocument(message["error"])
                return
            read_bytes += message.get("read", 0)
            if read_bytes >= PART_BYTES and parts:
                waited_s, read_bytes, parts = 0.0, 0, parts - 1
            yield message

    @property
    def is_usable(self) -> bool:
        """Whether this process can be sent more files to read."""
        return self.is_healthy and not self._outstanding_bytes and self._files < _MOST_FILES_EACH

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def start_idle_timer(self, retire: Callable[["_Process"], None]) -> None:
        """Call `retire` with this process after `_IDLE_S` seconds, unless files are sent to it before."""
        self._idle_timer = threading.Timer(_IDLE_S, retire, (self,))
        self._idle_timer.daemon = True
        self._idle_timer.start()

    def end(self, within_s: float = _ENDS_WITHIN_S) -> None:
        """Kill the process and its children, wait for its end at most `within_s` seconds, and remove its files."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self.kill()
        self._connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(within_s, 0))
        shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self) -> None:
        """Kill the process and its children, without waiting for their end."""
        if self.is_alive:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _exit_reason(self) -> str:
        try:
            return self._limits.exit_reason(self._process.wait(_POLL_S))
        except subprocess.TimeoutExpired:
            return "its reader ended unexpectedly"
