"""The socket that a server listens on."""

import socket

from retrievers.core.errors import BadRequest, Unavailable

BACKLOG = 1024
"""Connections that may wait to be accepted."""


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
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise Unavailable(f"{host} port {port}", f"{error.strerror}; choose another with --port") from None
    return listener
