"""Accept connections in place of asyncio's loop, which spins when no file descriptor is left."""

import asyncio
import logging
import resource
import socket
from typing import TYPE_CHECKING, Any

from retrievers.core.descriptors import are_descriptors_scarce
from retrievers.core.log_filter import RepetitionFilter

if TYPE_CHECKING:
    from agent.serve.process.server import Server

# Number of file descriptors kept free for files, pipes and connections to the database and models: running requests
# need them.
_RESERVED_DESCRIPTORS = 64
_REST_S = 0.5
# At shutdown, connections close all the time, and those that wait must be accepted within the grace period.
_STOPPING_REST_S = 0.02
_MOST_IN_A_ROW = 64
# A turn adds at most this part of the connections that were accepted since none was waiting, so that the processes stay
# balanced: 1/32.
_PARTS_PER_TURN = 32

_log = logging.getLogger(__name__)
_log.addFilter(RepetitionFilter())


class Acceptor:
    """Accepts the connections of a listening socket for a server, and pauses while no file descriptor is left."""

    def __init__(self, server: "Server", listener: socket.socket) -> None:
        self._server, self._listener = server, listener
        listener.setblocking(False)
        self._handling: set[asyncio.Task[Any]] = set()
        self._task = asyncio.create_task(self._accept())

    async def close(self) -> None:
        """Accept the waiting connections and close the socket.

        When the last process closes the socket, the kernel resets all waiting connections and loses their requests. If
        this call is cancelled, the socket stays open, and `listening_socket.refuse_waiting_connections` answers them.
        """
        self._task.cancel()
        try:
            await self._accept_waiting()
            self._listener.close()
        finally:
            while self._handling:
                await asyncio.wait(self._handling)

    async def _accept(self) -> None:
        while True:
            await self._accept_waiting()
            await _wait_readable(self._listener)

    async def _accept_waiting(self) -> None:
        """Accept until no connection is waiting."""
        in_a_row, next_turn = 0, 0
        while True:
            # The more connections are waiting, the more are accepted per turn: otherwise many would wait for seconds.
            if in_a_row >= next_turn:
                await self._server.wait_for_turn()
                next_turn = in_a_row + 1 + in_a_row // _PARTS_PER_TURN
            # Accept many at once: on a busy machine the next chance comes late.
            if in_a_row and in_a_row % _MOST_IN_A_ROW == 0:
                await asyncio.sleep(0)
            try:
                if are_descriptors_scarce(_RESERVED_DESCRIPTORS):
                    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
                    raise OSError(0, f"nearly all {limit} file descriptors are in use; raise the limit (ulimit -n)")
                accepted, _ = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue  # the client has already gone
            except OSError as error:
                _log.warning("no connection can be accepted, new ones wait: %s", error.strerror)
                await asyncio.sleep(_STOPPING_REST_S if self._server.should_exit else _REST_S)
            else:
                in_a_row += 1
                accepted.setblocking(False)
                self._handle(accepted)

    def _handle(self, accepted: socket.socket) -> None:
        connection = self._server.create_protocol()
        self._server.count_connection(connection, open=True)
        task = asyncio.create_task(asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted))
        self._handling.add(task)

        def handled(task: asyncio.Task[Any]) -> None:
            self._handling.discard(task)
            if task.cancelled() or (error := task.exception()) is not None:
                # No connection was made, so nothing can be lost.
                accepted.close()
                self._server.count_connection(connection, open=False)
                if not task.cancelled():
                    _log.warning("an accepted connection could not be handled: %s", error)

        task.add_done_callback(handled)


async def _wait_readable(listener: socket.socket) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(listener, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(listener)
