"""`signalbox serve`: the HTTP application under uvicorn, until it is told to stop."""

import asyncio
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from agent.app import open_service
from agent.serve.http.app import create_app
from agent.serve.identity import check_exposure, identifier
from agent.settings import load_settings
from retrievers.core.errors import BadRequest, Unavailable

_BACKLOG = 1024
GRACE_S = 10
"""How long requests at work may take to finish once the server is told to stop."""


async def serve(host: str, port: int) -> int:
    """Serve until SIGTERM or Ctrl-C; requests at work then finish first.

    Raises:
        BadRequest: no address to listen on, or one that others can reach with AUTH=off or without any key.
        Unavailable: the port is taken, or the service cannot be opened.
    """
    with _listening(host, port) as listener:
        address = listener.getsockname()[0]
        settings = load_settings()
        auth = check_exposure(settings, address)
        async with open_service(settings) as service:
            app = create_app(service, identify=await identifier(service, auth))
            server = Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=GRACE_S, http="h11"))
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
