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
from agent.serve.authentication import resolve_auth_mode
from agent.serve.exit_codes import UNAVAILABLE
from agent.serve.process.channel import ProcessChannel
from agent.serve.process.connection_counts import ConnectionCounts
from agent.serve.process.listening_socket import finish_handshakes, open_listener, refuse_waiting_connections
from agent.settings import load_settings
from retrievers.ingest.readers.text_cleaning import one_line

_MOST_BY_ITSELF = 4
"""Maximum default number of processes; each has its own database connections."""
_METRICS_TIMEOUT_S = 1.0
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
    with open_listener(host, port) as listener, ExitStack() as stack:
        stack.callback(refuse_waiting_connections, listener)
        address, port = listener.getsockname()[:2]
        settings = load_settings()
        resolve_auth_mode(settings, address)
        shown = f"[{address}]" if ":" in address else address
        address_line = f"signalbox listens on http://{shown}:{port}; the console is at http://{shown}:{port}/"
        # With JSON log lines, a collector reads all of stderr, so this line must be JSON too.
        is_json = settings.log_format == "json"
        announce = (
            partial(_log.info, address_line) if is_json else partial(print, address_line, file=sys.stderr, flush=True)
        )
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
        self._counts = ConnectionCounts.create(self._shared.fileno(), count)
        self._running: dict[int, Process] = {}
        self._channels: dict[int, ProcessChannel] = {}
        self._failures: dict[int, tuple[str, int]] = {}
        """Reason and exit code of each process that could not start, in order of failure."""
        self._answered, self._stopping = asyncio.Event(), asyncio.Event()

    async def run(self) -> int:
        """Run until SIGTERM or Ctrl-C, or until no process could start; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled, number)
        keepers = [asyncio.create_task(self._keep_running(number)) for number in range(1, self._count + 1)]
        await self._stopping.wait()
        await finish_handshakes(self._listener)
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

    async def _keep_running(self, number: int) -> None:
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
                await _wait_for_any(self._answered, self._stopping)
                continue
            steady = time.monotonic() - started >= _STEADY_S
            pause_s = 0.0 if steady else min(max(2 * pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
            _log.warning("process %d will be restarted in %g s: %s", number, pause_s, reason)
            await _wait_for_any(self._stopping, within_s=pause_s)

    async def _run(self, number: int) -> tuple[str, int]:
        """Run one process until it ends. Return why it ended, as text for the log, and its exit code."""
        reason = ""

        def on_message(what: dict[str, Any]) -> None:
            nonlocal reason
            reason = what.get("failed", reason)
            if what.get("ready"):
                for other in self._channels.values():
                    other.send_message({"joined": number})
                self._channels[number] = channel
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
        channel = await ProcessChannel.connect(
            ours, on_request=partial(self._other_metrics, number), on_message=on_message
        )
        await channel.listen()
        self._channels.pop(number, None)
        self._counts.mark_absent(number)
        code = await process.wait()
        del self._running[number]
        return reason or (f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"), code

    async def _start(self, number: int, channel: socket.socket) -> Process:
        # Use this process's import path, not the folder in which the command was started.
        # A second Ctrl-C while it is still loading ends it without a traceback.
        code = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
            f"sys.path[:] = {sys.path!r}; from agent.serve.process.child import main; main()"
        )
        descriptors = self._listener.fileno(), channel.fileno(), self._shared.fileno()
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, *map(str, (*descriptors, number, self._count)),
            stdin=DEVNULL, pass_fds=descriptors,
            # Ctrl-C goes to the supervisor, which signals the others.
            process_group=0,
        )  # fmt: skip

    async def _other_metrics(self, asking: int) -> dict[int, str]:
        """Return {process number: metrics text}, without process `asking` and those that do not answer in time."""
        others = {number: channel for number, channel in self._channels.items() if number != asking}
        texts = await asyncio.gather(*(channel.request_reply(_METRICS_TIMEOUT_S) for channel in others.values()))
        return {number: text for number, text in zip(others, texts, strict=True) if text is not None}


async def _wait_for_any(*events: asyncio.Event, within_s: float | None = None) -> None:
    """Wait until one of the events is set, at most `within_s` seconds; None means without limit."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
