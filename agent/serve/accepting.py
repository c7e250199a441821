"""Accepting from a socket that other processes accept from, too, so that connections spread evenly among them."""

import asyncio
import socket
from collections.abc import Callable
from itertools import islice

from fastapi import FastAPI

from agent.serve.counts import Counts
from agent.serve.server import Protocol, Server

# So long a process with more connections than another leaves it the first try at the next one.
_DEFERENCE_S = 0.002
# Ticks of uvicorn, of 0.1 s, after which it is looked whether the connections are spread evenly: on a busy machine the
# one with fewer may have come too late.
_BALANCE_TICKS = 10


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
        self._connections: dict[Protocol, None] = {}
        self._was_uneven = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await super().startup(sockets)
        self._counts.set(self._number, 0)
        self._tell()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        self._counts.leave(self._number)
        await super().shutdown(sockets)

    async def turn(self) -> None:
        """See `Server.turn`."""
        if not self.should_exit and self._counts.surplus(self._number) > 0:
            await asyncio.sleep(_DEFERENCE_S)

    def count(self, connection: Protocol, open: bool) -> None:
        """See `Server.count`."""
        if open:
            self._connections[connection] = None
        else:
            self._connections.pop(connection, None)
        if not self.should_exit:
            self._counts.set(self._number, len(self._connections))

    async def end_handshakes(self, listener: socket.socket) -> None:
        """See `Server.end_handshakes`; the supervisor has, unless other processes go on accepting."""

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
