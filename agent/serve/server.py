"""`signalbox serve`: the HTTP application under uvicorn, until it is told to stop."""

import asyncio
import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

from agent.app import open_service
from agent.observe import logs
from agent.serve.http.app import create_app
from agent.settings import load_settings, spans_are_wanted
from retrievers.core.errors import BadRequest, Unavailable

if TYPE_CHECKING:
    from agent.observe.telemetry import Tracing

_log = logging.getLogger(__name__)
_BACKLOG = 1024
GRACE_S = 10
"""How long requests at work may take to finish once the server is told to stop."""


async def serve(host: str, port: int) -> int:
    """Serve until SIGTERM or Ctrl-C; requests at work then finish first.

    Raises:
        BadRequest: no address to listen on, or one that others can reach while no key is asked for.
        Unavailable: the port is taken, or the service cannot be opened.
    """
    with _listening(host, port) as listener, _tracing() as tracing:
        address = listener.getsockname()[0]
        if not ipaddress.ip_address(address).is_loopback:
            raise BadRequest(f"{host} can be reached by others, and no keys are asked for", where="--host")
        settings = load_settings()
        logs.configure(settings)
        async with open_service(settings) as service:
            app = create_app(service, tracing=tracing)
            # Its lines go where all others go; of each request there is one already.
            quiet: dict[str, Any] = {"log_config": None, "log_level": "warning", "access_log": False}
            server = Server(uvicorn.Config(app, timeout_graceful_shutdown=GRACE_S, http="h11", **quiet))
            shown = f"[{address}]" if ":" in address else address
            print(f"signalbox listens on http://{shown}:{listener.getsockname()[1]}/", file=sys.stderr)
            await server.serve([listener])
    return 0


class Server(uvicorn.Server):
    """A server that ends its process the way the process itself says."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


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


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens already: what is wrong with the address is said before anything is started."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise BadRequest(f'there is no host "{host}" to listen on: {error}', where="--host") from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise Unavailable(f"{host} port {port}", f"{error.strerror}; choose another with --port") from None
    return listener
