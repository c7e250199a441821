"""One of several processes of `signalbox serve`, started by the supervisor."""

import asyncio
import signal
import socket
import sys
from collections.abc import Mapping

from fastapi import FastAPI

from agent.serve.exit_codes import error_line, exit_code
from agent.serve.process.balanced_server import BalancedServer
from agent.serve.process.channel import ProcessChannel
from agent.serve.process.connection_counts import ConnectionCounts
from agent.serve.process.immediate_exit import exit_immediately
from agent.serve.process.server import open_application

_METRICS_TIMEOUT_S = 2.0


async def run_child(
    listener: socket.socket, end: socket.socket, counts: ConnectionCounts, number: int, processes: int
) -> int:
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
    server: BalancedServer | None = None

    async def own_metrics() -> str | None:
        return app.state.observability.metrics.render().decode() if app is not None else None

    async def collect_metrics(own_metrics: bytes) -> Mapping[int, bytes]:
        others: dict[str, str] = await channel.request_reply(_METRICS_TIMEOUT_S) or {}
        return {int(other): text.encode() for other, text in others.items()} | {number: own_metrics}

    def on_message(what: object) -> None:
        if server is not None:
            server.close_excess_connections()

    channel = await ProcessChannel.connect(end, on_request=own_metrics, on_message=on_message)
    attached = asyncio.create_task(channel.listen())
    try:
        async with open_application(
            listener, number=number, processes=processes, collect_metrics=collect_metrics
        ) as app:
            serving = server = BalancedServer(app, counts, number, lambda: channel.send_message({"ready": True}))
            attached.add_done_callback(lambda task: serving.handle_exit(signal.SIGTERM, None))
            await server.serve([listener])
    except Exception as error:
        channel.send_message({"failed": error_line(error)})
        return exit_code(error)
    return 0


def main() -> None:
    """Run the process that `sys.argv[1:]` describes.

    The arguments are the file descriptors of the listening socket, of the socket to the supervisor and of the counts,
    the number of this process, and the number of processes.
    """
    for sent in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sent, lambda signalled, frame: sys.exit(128 + signalled))
    listener, end, counted, number, processes = map(int, sys.argv[1:])
    counts = ConnectionCounts(counted, processes)

    async def run_and_exit() -> None:
        exit_immediately(
            await run_child(socket.socket(fileno=listener), socket.socket(fileno=end), counts, number, processes)
        )

    try:
        import uvloop
    except ImportError:  # not available on Windows
        asyncio.run(run_and_exit())
    else:
        uvloop.run(run_and_exit())  # 6 % more questions per second
