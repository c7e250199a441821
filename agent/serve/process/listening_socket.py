"""Open, drain and close the socket that a server listens on."""

import asyncio
import ctypes
import json
import select
import socket
import struct
import time
import uuid
from contextlib import suppress

from retrievers.core.errors import BadRequest, Unavailable

BACKLOG = 1024
"""Maximum number of connections waiting to be accepted."""
_HANDSHAKE_S = 0.1
_TURNED_AWAY_WITHIN_S = 1.0
_ROOM_WITHIN_S = 0.1
_SO_ATTACH_FILTER = 26
# A classic BPF program of (code, jump if true, jump if false, value): load byte 13 of the TCP header (the flags), drop
# the packet if SYN is set, otherwise keep it.
_DROP_SYN = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
)


def open_listener(host: str, port: int) -> socket.socket:
    """Return a listening socket, so that a wrong address is reported before anything is started.

    Raises:
        BadRequest: the host is unknown.
        Unavailable: the port cannot be opened.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise BadRequest(f'there is no host "{host}" to listen on: {error}', where="--host") from None
    family, kind, protocol, _, address = found[0]
    # With the protocol given, asyncio sets TCP_NODELAY on connections; without it, every answer takes 40 ms longer.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise Unavailable(f"{host} port {port}", f"{error.strerror}; choose another port with --port") from None
    return listener


async def finish_handshakes(listener: socket.socket) -> None:
    """Stop new connections, and wait until every connection whose handshake has begun can be accepted.

    Otherwise a connection could arrive between the last accept and the close, which would reset it. The filter drops
    the first packet of a new connection; its client retries a second later and is refused. Other systems than Linux
    have no such filter: there this function only waits.
    """
    program = ctypes.create_string_buffer(_DROP_SYN)
    with suppress(OSError):
        count = len(_DROP_SYN) // struct.calcsize("HBBI")
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", count, ctypes.addressof(program)))
    await asyncio.sleep(_HANDSHAKE_S)


def refuse_waiting_connections(listener: socket.socket) -> None:
    """Answer the connections still waiting to be accepted with a 503, when the server ends before it can answer.

    Otherwise the kernel would reset them when the socket is closed, and their requests would be lost.
    """
    # Closing a socket before its client does resets it, and the answer is lost. So the sockets stay open for a while.
    answered: dict[int, socket.socket] = {}
    arrived = select.poll()  # unlike `select.select`, it takes any descriptor number
    ends = time.monotonic() + _TURNED_AWAY_WITHIN_S
    with suppress(OSError):  # the socket is already closed
        listener.setblocking(False)
        while (left_s := ends - time.monotonic()) > 0:
            lacks_descriptors = False
            try:
                while True:
                    connection = _accept_and_refuse(listener)
                    answered[connection.fileno()] = connection
                    arrived.register(connection, select.POLLIN)
            except BlockingIOError:
                if not answered:
                    break
            except ConnectionError:
                continue  # the client has already gone
            except OSError:
                if not answered:
                    raise
                lacks_descriptors = True
            ready = arrived.poll(1000 * min(left_s, _ROOM_WITHIN_S))
            finished = [descriptor for descriptor, _ in ready if not _read(answered[descriptor])]
            if lacks_descriptors and not ready:
                finished = list(answered)  # they have read their answer, or never will: make room for the others
            for descriptor in finished:
                arrived.unregister(descriptor)
                answered.pop(descriptor).close()
    for connection in answered.values():
        connection.close()


def _accept_and_refuse(listener: socket.socket) -> socket.socket:
    """Accept a connection, and send all that it gets. Raises OSError if none is waiting or none can be accepted."""
    connection, _ = listener.accept()
    connection.setblocking(False)
    with suppress(OSError):  # the client is gone
        connection.sendall(_stopping())
        connection.shutdown(socket.SHUT_WR)
    return connection


def _read(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65_536)
    except OSError:  # the client is gone
        return b""


def _stopping() -> bytes:
    """Return the response of `agent.serve.http.problems.stopping_problem`, which would take too long to import here."""
    problem = {
        "type": "urn:signalbox:problem:stopping",
        "title": "Service Unavailable",
        "status": 503,
        "detail": "the service is stopping",
        "request_id": uuid.uuid4().hex,
    }
    body = json.dumps(problem).encode()
    head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 5\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
