"""Repeat a run at regular times until the process is told to stop."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from agent.serve.exit_codes import error_line

_log = logging.getLogger("signalbox.eval")


async def repeat(name: str, run: Callable[[], Awaitable[str]], every_s: float) -> None:
    """Run at once, and then every `every_s` seconds, until SIGTERM or Ctrl-C, which also ends a run under way.

    Times that pass during a run are skipped. An error of the first run is raised, because it probably means that the
    command is wrong. An error of a later run is logged, and the next run is tried at its time.

    Args:
        name: name of the evaluation in the log.
        run: measures once; returns the figures as one line of text.
        every_s: seconds between the starts of two runs.
    Raises:
        Exception: that of the first run.
    """
    stopping = asyncio.Event()
    _log.info("evaluation %s runs every %g s", name, every_s)
    runs = asyncio.create_task(_runs(name, run, every_s, stopping))

    def stop() -> None:
        stopping.set()
        runs.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        await runs
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise
    _log.info("evaluation %s is stopped", name)


async def _runs(name: str, run: Callable[[], Awaitable[str]], every_s: float, stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    begun, is_first = loop.time(), True
    while True:
        try:
            said, level = await run(), logging.INFO
        except Exception as error:
            if is_first and not stopping.is_set():
                raise
            said, level = f"failed: {error_line(error)}", logging.WARNING
        if stopping.is_set():
            return
        now = loop.time()
        wait_s = every_s - (now - begun) % every_s
        next_at = datetime.now(UTC) + timedelta(seconds=wait_s)
        _log.log(level, "evaluation %s: %s; next at %s", name, said, f"{next_at:%Y-%m-%d %H:%M:%S} UTC")
        begun, is_first = now + wait_s, False
        await asyncio.sleep(wait_s)
