"""One of several processes of `signalbox serve`, started by the supervisor."""

import asyncio
import signal
import socket
import sys
from collections.abc import Mapping

from fastapi import FastAPI

from agent.serve.exit_codes import described, exit_code
from agent.serve.process.counts import Counts
from agent.serve.process.leaving import leave
from agent.serve.process.line import Line
from agent.serve.process.server import application
from agent.serve.process.shared_socket import SharingServer

_FIGURES_WITHIN_S = 2.0


async def work(listener: socket.socket, end: socket.socket, counts: Counts, number: int, processes: int) -> int:
    """Serve until SIGTERM, or until the supervisor is gone.

    Args:
        end: socket to the supervisor. This process sends `{"ready": true}` or `{"failed": reason}` and can request the
            metrics of the other processes. The supervisor reports when another process is ready and can request the
            metrics of this one.
        number: number of this process, from 1 to `processes`.
        processes: number of processes.
    Returns:
        The exit code.
    """
    app: FastAPI | None = None
    server: SharingServer | None = None

    async def own() -> str | None:
        return app.state.observation.metrics.render().decode() if app is not None else None

    async def everyone(own: bytes) -> Mapping[int, bytes]:
        others: dict[str, str] = await line.ask(_FIGURES_WITHIN_S) or {}
        return {int(other): text.encode() for other, text in others.items()} | {number: own}

    def told(what: object) -> None:
        if server is not None:
            server.make_room()

    line = await Line.over(end, answer=own, told=told)
    attached = asyncio.create_task(line.listen())
    try:
        async with application(listener, number=number, processes=processes, everyone=everyone) as app:
            serving = server = SharingServer(app, counts, number, lambda: line.tell({"ready": True}))
            attached.add_done_callback(lambda task: serving.handle_exit(signal.SIGTERM, None))
            await server.serve([listener])
    except Exception as error:
        line.tell({"failed": described(error)})
        return exit_code(error)
    return 0


def main() -> None:
    """Run the process that `sys.argv[1:]` describes.

    The arguments are the file descriptors of the listening socket, of the socket to the supervisor and of the counts,
    the number of this process, and the number of processes.
    """
    signal.signal(signal.SIGTERM, lambda signalled, frame: sys.exit(128 + signalled))
    listener, end, counted, number, processes = map(int, sys.argv[1:])
    counts = Counts(counted, processes)

    async def work_and_leave() -> None:
        leave(await work(socket.socket(fileno=listener), socket.socket(fileno=end), counts, number, processes))

    try:
        import uvloop
    except ImportError:  # not available on Windows
        asyncio.run(work_and_leave())
    else:
        uvloop.run(work_and_leave())  # 6 % more questions per second
