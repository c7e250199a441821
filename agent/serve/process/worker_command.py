"""The `worker` command: run the background jobs of `serve` without the HTTP server."""

import asyncio
import logging
import os
import signal
import socket

from agent.observe import logs
from agent.service.factory import open_service
from agent.settings import load_settings

_LOG_EVERY_S = 60.0

_log = logging.getLogger(__name__)


async def run(at_once: int | None) -> int:
    """Run jobs until SIGTERM or Ctrl-C.

    Running jobs then have GRACE_S seconds to finish; unfinished jobs are returned to the queue for another worker.

    Args:
        at_once: number of concurrent jobs; None means the setting WORKERS, at least one.
    Returns:
        The exit code.
    """
    settings = load_settings()
    settings = settings.model_copy(update={"workers": at_once or max(settings.workers, 1)})
    logs.configure(settings)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    async with open_service(settings) as service, service.worker:
        name = f"{socket.gethostname()}:{os.getpid()}"
        syncs = ", ".join(sorted(settings.sync)) or "none"
        _log.info("worker %s runs up to %d jobs at once; syncs: %s", name, settings.workers, syncs)
        while not stopping.is_set():
            try:
                await asyncio.wait_for(stopping.wait(), _LOG_EVERY_S)
            except TimeoutError:
                _log.info("worker %s is alive, %d jobs running", name, service.worker.running_jobs)
        _log.info("worker %s is stopping, %d jobs running", name, service.worker.running_jobs)
        await service.worker.stop(settings.grace_s)
    return 0
