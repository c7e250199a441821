"""`signalbox serve`: the HTTP application under uvicorn, until it is told to stop."""

import asyncio
import logging
import signal
import socket
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent.app import open_service
from agent.observe import logs
from agent.serve.http import problems
from agent.serve.http.admission import Gates
from agent.serve.http.app import create_app
from agent.serve.identity import check_exposure, identifier
from agent.settings import load_settings, spans_are_wanted
from retrievers.core.errors import BadRequest, Unavailable

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from agent.observe.telemetry import Tracing

_log = logging.getLogger(__name__)
_BACKLOG = 1024
_HEAD_WITHIN_S = 10.0
GRACE_S = 10
"""How long requests at work may take to finish once the server is told to stop."""


async def serve(host: str, port: int) -> int:
    """Serve until SIGTERM or Ctrl-C; requests at work then finish first.

    Raises:
        BadRequest: no address to listen on, or one that others can reach with AUTH=off or without any key.
        Unavailable: the port is taken, or the service cannot be opened.
    """
    with listening(host, port) as listener, _tracing() as tracing:
        address, port = listener.getsockname()[:2]
        settings = load_settings()
        auth = check_exposure(settings, address)
        logs.configure(settings)
        async with open_service(settings) as service, service.worker:
            identify = await identifier(service, auth) if auth == "keys" else None
            app = create_app(service, identify=identify, tracing=tracing)
            shown = f"[{address}]" if ":" in address else address
            print(
                f"signalbox listens on http://{shown}:{port}; the console is at http://{shown}:{port}/", file=sys.stderr
            )
            await Server(app, app.state.gates).serve([listener])
    return 0


class Server(uvicorn.Server):
    """uvicorn with this service's ways of stopping, logging and refusing.

    Args:
        gates: closed as soon as the server is told to stop: what waits is turned away, what is at work finishes.
    """

    def __init__(self, app: "ASGIApp", gates: Gates) -> None:
        # Log lines go where all others go, and of each request there is one already.
        config = uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(config)
        self._gates = gates

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGTERM and Ctrl-C; unlike uvicorn, do not raise them again once everything has been stopped."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        self._gates.close()
        await super().shutdown(sockets)


class Protocol(H11Protocol):
    """uvicorn's protocol, that answers what is no HTTP in the form of all other errors."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See uvicorn; who connects and sends no request is not waited for."""
        super().connection_made(transport)
        self.loop.call_later(_HEAD_WITHIN_S, self._end_silence)

    def _end_silence(self) -> None:
        request: object = self.cycle  # None until the first one has come
        if request is None and not self.transport.is_closing():
            begun, _ = self.conn.trailing_data
            self.send_400_response("") if begun else self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """See uvicorn; where an answer is under way already there is nothing left but to hang up."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            id = uuid.uuid4().hex
            problem = problems.Problem(400, "malformed-http", "what was sent is no HTTP/1.1 request")
            body = problems.problem_body(problem, id).model_dump_json(exclude_none=True).encode()
            headers = [
                ("Content-Type", problems.MEDIA_TYPE),
                ("Content-Length", str(len(body))),
                ("X-Request-ID", id),
                ("Connection", "close"),
            ]
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


@contextmanager
def _tracing() -> Iterator["Tracing | None"]:
    """Where spans go; None where the environment does not ask for them, or they cannot be made."""
    if not spans_are_wanted():
        yield None
        return
    try:
        from agent.observe.telemetry import Tracing
    except ImportError:
        _log.warning("no spans are sent: install what makes them, pip install 'signalbox[otel]'")
        yield None
        return
    tracing = Tracing()
    try:
        yield tracing
    finally:
        tracing.close()


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens already: what is wrong with the address is said before anything is started."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise BadRequest(f'there is no host "{host}" to listen on: {error}', where="--host") from None
    family, kind, protocol, _, address = found[0]
    # With the protocol said, asyncio sets TCP_NODELAY on what connects; without, every answer comes 40 ms later.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise Unavailable(f"{host} port {port}", f"{error.strerror}; choose another with --port") from None
    return listener
