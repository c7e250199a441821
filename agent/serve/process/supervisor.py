"""`signalbox serve`: run one process, or several on one socket, and supervise them until told to stop."""

import asyncio
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from agent.observe import logs
from agent.serve.exit_codes import UNAVAILABLE
from agent.serve.identity import check_exposure
from agent.serve.process.counts import Counts
from agent.serve.process.line import Line
from agent.serve.process.listening import end_handshakes, listening, turn_away
from agent.settings import load_settings
from retrievers.ingest.clean import one_line

_MOST_BY_ITSELF = 4
"""Maximum default number of processes; each has its own database connections."""
_FIGURES_WITHIN_S = 1.0
# A process that ran this long did not fail at its start. After a failed start, the next start is delayed.
_STEADY_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
# Seconds between the grace period and SIGKILL, for the last answers (1 s, see `Server.shutdown`) and pending writes.
_STOPPED_WITHIN_S = 5.0

_log = logging.getLogger(__name__)


async def serve(host: str, port: int, processes: int | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C, then finish the running requests.

    Args:
        processes: number of processes; None means the setting.
    Returns:
        The exit code.
    Raises:
        BadRequest: the address is invalid, or reachable from other machines with AUTH=off or without any key.
        Unavailable: the port is taken, or the service cannot be opened.
    """
    with listening(host, port) as listener, ExitStack() as stack:
        stack.callback(turn_away, listener)
        address, port = listener.getsockname()[:2]
        settings = load_settings()
        check_exposure(settings, address)
        shown = f"[{address}]" if ":" in address else address
        said = f"signalbox listens on http://{shown}:{port}; the console is at http://{shown}:{port}/"
        # With JSON log lines, a collector reads all of stderr, so this line must be JSON too.
        is_json = settings.log_format == "json"
        announce = partial(_log.info, said) if is_json else partial(print, said, file=sys.stderr, flush=True)
        processes = processes or settings.processes or min(os.cpu_count() or 1, _MOST_BY_ITSELF)
        if processes > 1:
            logs.configure(settings)
            return await Supervisor(listener, processes, announce, settings.grace_s).run()
        from agent.serve.process import (
            server,  # imported here, because it is large and the supervisor of several processes does not need it
        )

        await server.serve(listener, announce)
        return 0


class Supervisor:
    """Runs processes that accept from one socket, and restarts those that die.

    Args:
        announce: called when the first process can answer.
        grace_s: seconds for running requests to finish at shutdown.
    """

    def __init__(self, listener: socket.socket, count: int, announce: Callable[[], None], grace_s: float) -> None:
        self._grace_s = grace_s
        self._listener, self._count, self._announce = listener, count, announce
        self._shared = tempfile.TemporaryFile()  # noqa: SIM115 - open until the process ends
        self._counts = Counts.new(self._shared.fileno(), count)
        self._running: dict[int, Process] = {}
        self._answering: dict[int, Line] = {}
        self._failures: dict[int, tuple[str, int]] = {}
        """Reason and exit code of each process that could not start, in order of failure."""
        self._answered, self._stopping = asyncio.Event(), asyncio.Event()

    async def run(self) -> int:
        """Run until SIGTERM or Ctrl-C, or until no process could start; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled, number)
        keepers = [asyncio.create_task(self._keep(number)) for number in range(1, self._count + 1)]
        await self._stopping.wait()
        await end_handshakes(self._listener)
        self._signal(signal.SIGTERM)
        await asyncio.wait(keepers, timeout=self._grace_s + _STOPPED_WITHIN_S)
        self._signal(signal.SIGKILL)
        await asyncio.gather(*keepers)
        if self._answered.is_set() or len(self._failures) < self._count:
            return 0
        reason, code = next(iter(self._failures.values()))
        print(f"signalbox: {one_line(reason)}", file=sys.stderr)
        return code

    def _signalled(self, number: signal.Signals) -> None:
        if self._stopping.is_set() and number == signal.SIGINT:
            self._signal(number)  # a second Ctrl-C: do not wait for running requests
        self._stopping.set()

    def _signal(self, number: signal.Signals) -> None:
        for process in self._running.values():
            with suppress(ProcessLookupError):  # it has just ended
                process.send_signal(number)

    async def _keep(self, number: int) -> None:
        """Run the process of that number, and restart it when it ends, until the supervisor is told to stop."""
        pause_s = 0.0
        while not self._stopping.is_set():
            started = time.monotonic()
            reason, code = await self._run(number)
            if self._stopping.is_set():
                return
            if not self._answered.is_set():
                # Do not restart it until another process answers. If all fail at the start, the supervisor ends.
                self._failures[number] = reason, code
                if len(self._failures) == self._count:
                    self._stopping.set()
                await _either(self._answered, self._stopping)
                continue
            steady = time.monotonic() - started >= _STEADY_S
            pause_s = 0.0 if steady else min(max(2 * pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
            _log.warning("process %d will be restarted in %g s: %s", number, pause_s, reason)
            await _either(self._stopping, within_s=pause_s)

    async def _run(self, number: int) -> tuple[str, int]:
        """Run one process until it ends. Return why it ended, as text for the log, and its exit code."""
        reason = ""

        def told(what: dict[str, Any]) -> None:
            nonlocal reason
            reason = what.get("failed", reason)
            if what.get("ready"):
                for other in self._answering.values():
                    other.tell({"joined": number})
                self._answering[number] = line
                if not self._answered.is_set():
                    self._announce()
                    self._answered.set()

        try:
            ours, theirs = socket.socketpair()
            with theirs, ExitStack() as stack:
                stack.enter_context(ours)
                process = self._running[number] = await self._start(number, theirs)
                stack.pop_all()
        except OSError as error:
            return f"no process can be started: {error.strerror}", UNAVAILABLE
        if self._stopping.is_set():
            self._signal(signal.SIGTERM)  # started too late to be signalled with the others
        line = await Line.over(ours, answer=partial(self._figures, number), told=told)
        await line.listen()
        self._answering.pop(number, None)
        self._counts.leave(number)
        code = await process.wait()
        del self._running[number]
        return reason or (f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"), code

    async def _start(self, number: int, line: socket.socket) -> Process:
        # Use this process's import path, not the folder in which the command was started.
        code = f"import sys; sys.path[:] = {sys.path!r}; from agent.serve.process.child import main; main()"
        descriptors = self._listener.fileno(), line.fileno(), self._shared.fileno()
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, *map(str, (*descriptors, number, self._count)),
            stdin=DEVNULL, pass_fds=descriptors,
            # Ctrl-C goes to the supervisor, which signals the others.
            process_group=0,
        )  # fmt: skip

    async def _figures(self, asking: int) -> dict[int, str]:
        """Return {process number: metrics text}, without process `asking` and those that do not answer in time."""
        others = {number: line for number, line in self._answering.items() if number != asking}
        texts = await asyncio.gather(*(line.ask(_FIGURES_WITHIN_S) for line in others.values()))
        return {number: text for number, text in zip(others, texts, strict=True) if text is not None}


async def _either(*events: asyncio.Event, within_s: float | None = None) -> None:
    """Wait until one of the events is set, at most `within_s` seconds; None means without limit."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
