"""End a serving process without waiting for threads."""

import logging
import os
import sys
from contextlib import suppress
from typing import NoReturn

from retrievers.sandbox import pool


def exit_immediately(code: int) -> NoReturn:
    """End this process at once, with this exit code. Call it when the service is closed: then everything is stored.

    Otherwise Python would wait for the threads of this process, which may interpret a question or read a file for
    seconds, although nobody needs their results any more.
    """
    try:
        pool.end_processes()
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # nobody reads it any more
                stream.flush()
    finally:
        os._exit(code)
