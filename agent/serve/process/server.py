"""Run the HTTP application under uvicorn in one process until it is told to stop."""

import asyncio
import logging
import math
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from copy import copy
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent.intent.warmup import warm_up
from agent.observe import logs
from agent.serve.authentication import open_authenticator, resolve_auth_mode
from agent.serve.http import problems
from agent.serve.http.app import create_app
from agent.serve.http.middleware.admission import Gates
from agent.serve.http.middleware.early_rejection import EarlyRejection
from agent.serve.http.middleware.observability import CollectMetrics
from agent.serve.process.acceptor import Acceptor
from agent.serve.process.half_close import HalfCloseTransport
from agent.serve.process.listening_socket import finish_handshakes
from agent.service.factory import open_service
from agent.settings import is_span_export_configured, load_settings
from retrievers.core import process_memory
from retrievers.core.optional_dependencies import install_command

if TYPE_CHECKING:
    from agent.observe.spans import SpanRecorder

_log = logging.getLogger(__name__)
_HEAD_WITHIN_S = 10.0
# Longer than clients and load balancers keep an idle connection (mostly 60 s at most: nginx, AWS), because the side
# that closes first may lose a request in transit.
_KEPT_S = 75
# Seconds that a busy process gets to read the bytes that have arrived on an idle connection, before it looks again.
_READ_S = 0.02
# Seconds a kept connection stays open at shutdown: a request may be in transit.
_LAST_REQUEST_S = 0.5
_LAST_ANSWER_S = 0.5
_POLL_S = 0.02
# Seconds that a thread computes before another may run (Python: 5 ms). A question takes the processor for many short
# steps, and may wait so long before each while another thread reads a long text.
_SWITCH_INTERVAL_S = 0.0005


async def serve(listener: socket.socket, announce: Callable[[], None]) -> None:
    """Serve in this process alone until SIGTERM or Ctrl-C, then finish the running requests.

    Args:
        announce: called when the first request can be answered.
    Raises:
        BadRequest: the address is reachable from other machines with AUTH=off or without any key.
        Unavailable: the service cannot be opened.
    """
    async with open_application(listener) as app:
        announce()
        await Server(app).serve([listener])


@asynccontextmanager
async def open_application(
    listener: socket.socket, *, number: int = 1, processes: int = 1, collect_metrics: CollectMetrics | None = None
) -> AsyncIterator[FastAPI]:
    """Open the application configured by the settings, for callers at the socket's address; close it after the block.

    Args:
        number: number of this process, from 1 to `processes`. Process 1 also runs the ingestion jobs.
        collect_metrics: returns the metrics of all processes; None if this is the only one.
    """
    process_memory.configure_malloc()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    settings = load_settings()
    auth = resolve_auth_mode(settings, listener.getsockname()[0])
    logs.configure(settings)
    cores = math.ceil((os.cpu_count() or 1) / processes)
    with _open_span_recorder() as span_recorder:
        async with open_service(settings, cores=cores) as service, AsyncExitStack() as stack:
            warm_up()  # loads data in a thread; otherwise the first questions would wait for it
            if number == 1:
                await stack.enter_async_context(service.worker)
            authenticate = await open_authenticator(service, auth)
            yield create_app(
                service,
                authenticate=authenticate,
                span_recorder=span_recorder,
                processes=processes,
                collect_metrics=collect_metrics,
            )


class Server(uvicorn.Server):
    """uvicorn's server, with this service's way to accept connections, shut down, log and answer errors.

    At shutdown, requests that were accepted have GRACE_S seconds to finish and then get a 503, also those that wait at
    the gates (see `Gates`): they wait for other requests, a moment each. Running jobs have GRACE_S too, and are then
    returned to the queue. A second Ctrl-C ends these seconds at once.
    """

    def __init__(self, app: FastAPI) -> None:
        # Logging is configured for the whole process, and each request already has a log line.
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEPT_S,
        )
        super().__init__(config)
        self._gates: Gates = app.state.gates
        self._grace_s: float = app.state.grace_s
        self._stop_jobs: Callable[[float], Awaitable[None]] = app.state.stop_jobs
        self._acceptors: list[Acceptor] = []

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGTERM and Ctrl-C. Unlike uvicorn, do not raise the signals again after the shutdown."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await super().startup([])
        self._acceptors = [Acceptor(self, listener) for listener in sockets or ()]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn. Every sent request gets an answer, if only a 503, and no connection is reset."""
        # Stop the jobs while the requests finish, not afterwards: new jobs would slow down the last requests, and on a
        # busy machine it takes a second to return the running jobs to the queue.
        jobs = asyncio.ensure_future(self._stop_jobs(self._grace_s))
        for connection in self._open_connections:
            connection.shutdown()
        if not await self._ends_in_grace(self._finish_requests(sockets or ())):
            self._gates.close()
            if unfinished := len(self.server_state.tasks):
                _log.warning("%d running requests did not finish in time: they get a 503", unfinished)
            for task in self.server_state.tasks:
                task.cancel()
            # A cancelled request sends its 503 itself. If it takes too long, its connection sends the 503 in its place.
            for unanswered in (False, True):
                for connection in self._open_connections:
                    connection.end_request(unanswered=unanswered)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_ANSWER_S):
                        await self._wait_for_connections()
        while not (jobs.done() or self.force_exit):
            await asyncio.wait({jobs}, timeout=_POLL_S)
        await self._stop_jobs(0.0)  # also the jobs that the last requests created
        await jobs
        await self.lifespan.shutdown()

    @property
    def _open_connections(self) -> list["HttpProtocol"]:
        """The open connections."""
        return [one for one in self.server_state.connections if isinstance(one, HttpProtocol)]

    async def _finish_requests(self, listeners: Iterable[socket.socket]) -> None:
        """Accept the connections that are waiting, and wait until no connection and no request is left."""
        for listener in listeners:
            await self.finish_handshakes(listener)
        for acceptor in self._acceptors:
            await acceptor.close()
        await self._wait_for_connections()

    async def _ends_in_grace(self, work: Coroutine[Any, Any, None]) -> bool:
        """Wait for the work for at most GRACE_S seconds, or until a second Ctrl-C. Then cancel it and return False."""
        task = asyncio.create_task(work)
        ends = self._grace_s + time.monotonic()
        while not (task.done() or self.force_exit) and (left_s := ends - time.monotonic()) > 0:
            await asyncio.wait({task}, timeout=min(left_s, _POLL_S))
        task.cancel()
        await asyncio.wait({task})
        if task.cancelled():
            return False
        task.result()  # raises its error
        return True

    async def _wait_for_connections(self) -> None:
        """Wait until no connection and no request is left."""
        state = self.server_state
        while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn has no event
            await asyncio.sleep(_POLL_S)

    async def finish_handshakes(self, listener: socket.socket) -> None:
        """Stop new connections on the socket, see `listening_socket.finish_handshakes`."""
        await finish_handshakes(listener)

    async def wait_for_turn(self) -> None:
        """Wait until this process may accept a connection. Here it returns at once; `BalancedServer` waits."""

    def create_protocol(self) -> "HttpProtocol":
        """Return the protocol for a new connection."""
        return HttpProtocol(self)

    def count_connection(self, connection: "HttpProtocol", open: bool) -> None:
        """Called when a connection was made (`open`) or lost. Does nothing here; `BalancedServer` counts them."""


class HttpProtocol(H11Protocol):
    """uvicorn's protocol with problem documents for malformed HTTP, early rejections and a limit for slow clients."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.config, server.server_state, server.lifespan.state)
        self._server = server
        self._head_timer: asyncio.TimerHandle | None = None
        self._will_close = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See uvicorn. A client that does not send a complete request head in time is disconnected."""
        super().connection_made(HalfCloseTransport(transport))  # type: ignore[arg-type]
        self._head_timer = self.loop.call_later(_HEAD_WITHIN_S, self._on_head_timeout)
        if self._server.should_exit:
            self.shutdown()  # for the other connections, `Server.shutdown` has called it

    def data_received(self, data: bytes) -> None:
        """See uvicorn."""
        if self.transport.is_closing():
            return
        at_rest = self.conn.our_state is self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        early_rejection: EarlyRejection = self.app.state.early_rejection
        # If the client does not read its answers, do not write more: the normal path waits.
        may_write = at_rest and not self.flow.write_paused
        rejection = early_rejection.rejection(data, self.server_state.default_headers) if may_write else None
        if rejection is not None:
            self._send_rejection(*rejection)
        else:
            super().data_received(data)
        if not self._has_partial_head():
            self._cancel_head_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(_HEAD_WITHIN_S, self._on_head_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        """See uvicorn."""
        self._cancel_head_timer()
        super().connection_lost(exc)
        self._server.count_connection(self, open=False)

    def timeout_keep_alive_handler(self) -> None:
        """See uvicorn. Do not close while unread bytes are there: they may be a request, which is still answered."""
        if not self.transport.close_unless_unread():  # type: ignore[attr-defined]
            self._restart_idle_timer(_READ_S)

    def close_after_response(self) -> None:
        """Close the connection after its next answer, which says `Connection: close`; the client then reconnects."""
        if self._will_close:
            return
        self._will_close = True
        headers = [*self.server_state.default_headers, (b"connection", b"close")]
        self.server_state = copy(self.server_state)
        self.server_state.default_headers = headers
        if self.cycle is not None and not self.cycle.response_started:
            self.cycle.default_headers = headers

    def shutdown(self) -> None:
        """See uvicorn. Close after the next answer, or if no request arrives within `_LAST_REQUEST_S`."""
        self.close_after_response()
        self.timeout_keep_alive = _LAST_REQUEST_S  # type: ignore[assignment] # uvicorn has whole seconds
        is_at_work = self.cycle is not None and not self.cycle.response_complete
        if not is_at_work and not self._has_partial_head():
            self._cancel_head_timer()
            self._restart_idle_timer(_LAST_REQUEST_S)

    def end_request(self, *, unanswered: bool = False) -> None:
        """Answer a request whose head is incomplete with a 503, without waiting for its remaining bytes.

        Args:
            unanswered: also answer a complete request that has no answer yet. What the application sends later is
                dropped.
        """
        if self.transport.is_closing():
            return
        if self._has_partial_head():
            self._respond_and_close(problems.stopping_problem())
        elif unanswered and self.cycle is not None and not self.cycle.response_started:
            self.cycle.disconnected = True
            self._respond_and_close(problems.stopping_problem())

    def _send_rejection(self, answer: bytes, is_last: bool) -> None:
        self.transport.write(answer)
        if is_last:
            self._unset_keepalive_if_required()
            self.transport.close()
        else:
            self._restart_idle_timer(self.timeout_keep_alive)

    def _restart_idle_timer(self, seconds: float) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _has_partial_head(self) -> bool:
        """Return whether the head of a request has arrived in part."""
        return self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_head_timeout(self) -> None:
        if self._has_partial_head() and not self.transport.is_closing():
            self.send_400_response("")
        elif not self.transport.close_unless_unread():  # type: ignore[attr-defined]
            self._head_timer = self.loop.call_later(_READ_S, self._on_head_timeout)

    def send_400_response(self, msg: str) -> None:
        """See uvicorn."""
        self._respond_and_close(problems.Problem(400, "malformed-http", "the request is not valid HTTP/1.1"))

    def _respond_and_close(self, problem: problems.Problem) -> None:
        """Answer with the problem and close. If an answer has already started, only close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            id = uuid.uuid4().hex
            body = problems.problem_body(problem, id).model_dump_json(exclude_none=True).encode()
            headers = [
                ("Content-Type", problems.MEDIA_TYPE),
                ("Content-Length", str(len(body))),
                ("X-Request-ID", id),
                ("Connection", "close"),
                *problem.headers.items(),
            ]
            for event in (
                h11.Response(status_code=problem.status, headers=headers),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


@contextmanager
def _open_span_recorder() -> Iterator["SpanRecorder | None"]:
    """Yield the span exporter; None if the environment does not ask for spans or the packages are missing."""
    if not is_span_export_configured():
        yield None
        return
    try:
        from agent.observe.spans import SpanRecorder
    except ImportError:
        _log.warning("no spans are sent: packages are missing, %s", install_command("otel"))
        yield None
        return
    span_recorder = SpanRecorder()
    try:
        yield span_recorder
    finally:
        span_recorder.close()
