"""End a serving process without waiting for threads."""

import logging
import os
import sys
import threading
from typing import NoReturn

from retrievers.sandbox import pool


def leave(code: int) -> NoReturn:
    """End this process at once, with this exit code. Call it when the service is closed: then everything is stored.

    Python would wait for the threads of this process, which may read a question or a file for seconds. Nobody needs
    their results any more.
    """
    pool.end_processes()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def leave_within(seconds: float) -> None:
    """End this process if it has not ended by itself in time, such as when the database does not answer any more."""
    timer = threading.Timer(seconds, leave, (0,))
    timer.daemon = True
    timer.start()
