"""Accepting from a socket that other processes accept from, too, so that connections spread evenly among them."""

import asyncio
import logging
import socket
from collections.abc import Callable
from copy import copy
from itertools import islice
from typing import Any

from fastapi import FastAPI

from agent.serve.counts import Counts
from agent.serve.server import Protocol, Server

# So long a process with more connections than another leaves it the first try at the next one.
_DEFERENCE_S = 0.002
# Ticks of uvicorn, of 0.1 s, after which it is looked whether the connections are spread evenly: on a busy machine the
# one with fewer may have come too late.
_BALANCE_TICKS = 10
_REST_S = 1.0
_MOST_IN_A_ROW = 64

_log = logging.getLogger(__name__)


class SharingServer(Server):
    """A server on a socket that others serve beside it.

    A client's kept connections come together and stay for long. asyncio accepts all that wait, so one process would
    have them all; with a socket for each process (SO_REUSEPORT) chance deals them out.

    Args:
        number: of this process among those that are counted.
        started: called when it accepts.
    """

    def __init__(self, app: FastAPI, counts: Counts, number: int, started: Callable[[], None]) -> None:
        super().__init__(app)
        self._counts, self._number, self._tell = counts, number, started
        self._connections: dict[_Connection, None] = {}
        self._was_uneven = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await super().startup([])
        self.servers = [_Accepting(self, listener) for listener in sockets or ()]  # type: ignore[misc]
        self._counts.set(self._number, 0)
        self._tell()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        self._counts.leave(self._number)
        await super().shutdown(sockets)

    async def turn(self) -> None:
        """Wait until this process may try to accept."""
        if self._counts.surplus(self._number) > 0:
            await asyncio.sleep(_DEFERENCE_S)

    def connection(self) -> "_Connection":
        """What handles a new connection."""
        return _Connection(self)

    def count(self, connection: "_Connection", open: bool) -> None:
        """A connection was made or lost."""
        if open:
            self._connections[connection] = None
        else:
            self._connections.pop(connection, None)
        if not self.should_exit:
            self._counts.set(self._number, len(self._connections))

    async def on_tick(self, counter: int) -> bool:
        """See uvicorn."""
        if counter % _BALANCE_TICKS == 0:
            # What comes and goes at once is no imbalance.
            uneven = self._counts.excess(self._number) > 0
            if uneven and self._was_uneven:
                self.make_room()
            self._was_uneven = uneven
        return await super().on_tick(counter)

    def make_room(self) -> None:
        """Connections that another process should have are closed after their next answer."""
        for connection in islice(self._connections, max(0, self._counts.excess(self._number))):
            connection.part()


class _Connection(Protocol):
    def __init__(self, server: SharingServer) -> None:
        super().__init__(server.config, server.server_state, server.lifespan.state)
        self._sharing, self._parting = server, False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._sharing.should_exit:
            self.shutdown()  # the others have been told already

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._sharing.count(self, open=False)

    def part(self) -> None:
        """Close after the next answer, which says so: the client opens another connection."""
        if self._parting:
            return
        self._parting = True
        headers = [*self.server_state.default_headers, (b"connection", b"close")]
        self.server_state = copy(self.server_state)
        self.server_state.default_headers = headers


class _Accepting:
    """What accepts, in the place of asyncio's own."""

    def __init__(self, server: SharingServer, listener: socket.socket) -> None:
        self._server, self._listener = server, listener
        listener.setblocking(False)
        self._handling: set[asyncio.Task[Any]] = set()
        self._task = asyncio.create_task(self._accept())

    def close(self) -> None:
        self._task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait({self._task, *self._handling})

    async def _accept(self) -> None:
        in_a_row = 0
        while True:
            # Many at once: on a busy machine it is long until the next chance.
            await self._server.turn()
            if in_a_row == _MOST_IN_A_ROW:
                await asyncio.sleep(0)
                in_a_row = 0
            try:
                accepted, _ = self._listener.accept()
            except BlockingIOError:
                await _readable(self._listener)
            except ConnectionError:
                continue  # who came is gone already
            except OSError as error:
                _log.warning("no connection could be accepted: %s", error.strerror)
                await asyncio.sleep(_REST_S)
            else:
                in_a_row += 1
                accepted.setblocking(False)
                self._handle(accepted)

    def _handle(self, accepted: socket.socket) -> None:
        connection = self._server.connection()
        self._server.count(connection, open=True)
        task = asyncio.create_task(asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted))
        self._handling.add(task)

        def handled(task: asyncio.Task[Any]) -> None:
            self._handling.discard(task)
            if task.cancelled() or (error := task.exception()) is not None:
                # No connection came of it that could be lost.
                accepted.close()
                self._server.count(connection, open=False)
                if not task.cancelled():
                    _log.warning("an accepted connection could not be handled: %s", error)

        task.add_done_callback(handled)


async def _readable(listener: socket.socket) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(listener, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(listener)
