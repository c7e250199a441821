"""One of the processes of `signalbox serve`, run by the supervisor."""

import asyncio
import signal
import socket
import sys
from collections.abc import Mapping

from fastapi import FastAPI

from agent.serve.cli import described, exit_code
from agent.serve.line import Line
from agent.serve.server import Server, application

_FIGURES_WITHIN_S = 2.0


async def work(listener: socket.socket, end: socket.socket, number: int, processes: int) -> int:
    """Serve until SIGTERM, or until the supervisor is gone.

    Args:
        end: of the line to the supervisor. It is told `{"ready": true}`, or `{"failed": why}` where nothing comes of
            it, asked for the figures of the other processes, and may ask for those of this one.
        number, processes: which of how many this is, from 1.
    Returns:
        The exit code.
    """
    app: FastAPI | None = None

    async def own() -> str | None:
        return app.state.observation.metrics.render().decode() if app is not None else None

    async def everyone(own: bytes) -> Mapping[int, bytes]:
        others: dict[str, str] = await line.ask(_FIGURES_WITHIN_S) or {}
        return {int(other): text.encode() for other, text in others.items()} | {number: own}

    line = await Line.over(end, answer=own, told=lambda what: None)
    attached = asyncio.create_task(line.listen())
    try:
        async with application(listener, number=number, processes=processes, everyone=everyone) as app:
            server = Server(app)

            def stop(task: object) -> None:
                server.should_exit = True

            attached.add_done_callback(stop)
            await line.tell({"ready": True})
            await server.serve([listener])
    except Exception as error:
        await line.tell({"failed": described(error)})
        return exit_code(error)
    return 0


def main() -> None:
    """Arguments: the descriptors of the listening socket and of the line, the number of the process, of how many."""
    signal.signal(signal.SIGTERM, lambda signalled, frame: sys.exit(128 + signalled))
    listener, end, number, processes = map(int, sys.argv[1:])
    sys.exit(asyncio.run(work(socket.socket(fileno=listener), socket.socket(fileno=end), number, processes)))
