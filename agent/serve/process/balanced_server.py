"""Accept connections on a socket shared by several processes, and spread the connections evenly among them."""

import asyncio
import socket
from collections.abc import Callable
from itertools import islice

from fastapi import FastAPI

from agent.serve.process.connection_counts import ConnectionCounts
from agent.serve.process.server import HttpProtocol, Server

# Seconds that a process waits before it accepts if another one has fewer connections, so that the other comes first.
_DEFERENCE_S = 0.002
# Number of uvicorn ticks (0.1 s each) between checks of the balance: on a busy machine, the process with fewer
# connections may accept too late.
_BALANCE_TICKS = 10


class BalancedServer(Server):
    """A server on a socket that other processes serve as well.

    A client's keep-alive connections arrive together and stay open for long. asyncio accepts all waiting connections,
    so one process would get them all; with one socket per process (SO_REUSEPORT) the distribution is random.

    Args:
        number: this process's number in `counts`.
        started: called when the server accepts connections.
    """

    def __init__(self, app: FastAPI, counts: ConnectionCounts, number: int, started: Callable[[], None]) -> None:
        super().__init__(app)
        self._counts, self._number, self._tell = counts, number, started
        self._connections: dict[HttpProtocol, None] = {}
        self._was_uneven = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await super().startup(sockets)
        self._counts.set(self._number, 0)
        self._tell()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        self._counts.mark_absent(self._number)
        await super().shutdown(sockets)

    async def wait_for_turn(self) -> None:
        """Wait a moment if another process has fewer connections; see `Server.wait_for_turn`."""
        if not self.should_exit and self._counts.above_minimum(self._number) > 0:
            await asyncio.sleep(_DEFERENCE_S)

    def count_connection(self, connection: HttpProtocol, open: bool) -> None:
        """Count a connection as opened or closed; see `Server.count_connection`."""
        if open:
            self._connections[connection] = None
        else:
            self._connections.pop(connection, None)
        if not self.should_exit:
            self._counts.set(self._number, len(self._connections))

    async def finish_handshakes(self, listener: socket.socket) -> None:
        """Do nothing: the supervisor stops new connections for all processes. If only this one ends, others accept."""

    async def on_tick(self, counter: int) -> bool:
        """Once a second, close connections above this process's share. Return whether to exit, as in uvicorn."""
        if counter % _BALANCE_TICKS == 0:
            # Only an imbalance in two checks in a row counts.
            uneven = self._counts.above_share(self._number) > 0
            if uneven and self._was_uneven:
                self.close_excess_connections()
            self._was_uneven = uneven
        return await super().on_tick(counter)

    def close_excess_connections(self) -> None:
        """Close the connections that exceed this process's share, each after its next response."""
        for connection in islice(self._connections, max(0, self._counts.above_share(self._number))):
            connection.close_after_response()
