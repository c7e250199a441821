"""Convert faults of the database server or of the connection to it into `Unavailable`."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from retrievers.core.errors import Unavailable

SOURCE = "the database"
RETRY_AFTER_S = 5.0
_READ_ONLY = "25006"


@contextmanager
def convert_server_errors(advice: str = "") -> Iterator[None]:
    """Raise Unavailable for server faults (see `to_unavailable`) inside the block. Other errors pass unchanged.

    Args:
        advice: what to do if the server cannot be reached, appended to the reason.
    """
    try:
        yield
    except psycopg.Error as error:
        unavailable = to_unavailable(error, advice)
        if unavailable is None:
            raise
        raise unavailable from error


def to_unavailable(error: psycopg.Error, advice: str = "") -> Unavailable | None:
    """Return the `Unavailable` for a server fault; None for any other error.

    Server faults are the driver's operational errors (SQLSTATE classes 08, 53, 57, 58 and others, and connection
    failures without an SQLSTATE), and a write while the database is read-only.
    """
    if error.sqlstate == _READ_ONLY:
        reason = f"it is read-only, so nothing can be stored or deleted now ({first_line(error)})"
        return Unavailable(SOURCE, reason, retry_after_s=RETRY_AFTER_S)
    # A statement that is too large or too complex is the caller's fault.
    if not isinstance(error, psycopg.OperationalError) or isinstance(error, psycopg.errors.ProgramLimitExceeded):
        return None
    reason = first_line(error) + (f"; {advice}" if advice else "")
    is_full = (error.sqlstate or "").startswith("53")
    return Unavailable(SOURCE, reason, retry_after_s=RETRY_AFTER_S if is_full else None)


def is_server_error(error: psycopg.Error) -> bool:
    """Return whether the fault is this server's, so that another server might execute the failed statement.

    The server is gone, full or read-only, or is a standby that removed rows while the statement still read them.
    """
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return error.sqlstate == _READ_ONLY
    state = error.sqlstate
    return state is None or state[:2] in ("08", "40", "53", "58", "XX") or state[:3] == "57P"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; the name of its type if it has none."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
