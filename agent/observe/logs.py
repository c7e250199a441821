"""Log lines for people (text) or collectors (JSON): one line each, of which request, and without secrets."""

import json
import logging
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TextIO

from retrievers.core.log_filter import Sparing
from retrievers.core.secrets import HIDDEN, without_credentials
from retrievers.ingest.clean import one_line

if TYPE_CHECKING:
    from agent.records.trace import Trace
    from agent.settings import Settings
    from retrievers.core.errors import Unavailable

_LONGEST_MESSAGE = 4000
# A value this short is no secret, and would be found in words that are none.
_SHORTEST_SECRET = 6
_MOST_CALLS = 8
# Whatever the settings hold: an Authorization header, a key of ours.
_CREDENTIALS = r"(?<=\bBearer )\S+|(?<=\bsbx_)\w+"
# Control characters, and those that turn the direction of writing.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(slots=True)
class About:
    """The request that is being answered, as every log line of it says."""

    request_id: str
    trace_id: str | None = None
    tenant: str | None = None


_about: ContextVar[About | None] = ContextVar("about", default=None)


@contextmanager
def of_request(request_id: str) -> Iterator[About]:
    """Lines logged within, tasks and threads included, are of that request."""
    about = About(request_id)
    token = _about.set(about)
    try:
        yield about
    finally:
        _about.reset(token)


def about() -> About | None:
    """The request that is being answered; None outside of any."""
    return _about.get()


class Naming:
    """Gives the log lines of a request the id of its trace; an observer, see `agent.records.observer`."""

    def answered(self, trace: "Trace") -> None:
        """See `Observer.answered`."""
        if (request := _about.get()) is not None:
            request.trace_id, request.tenant = trace.id, trace.tenant

    def failed(self, error: "Unavailable") -> None:
        """A question without an answer has no trace."""


class _LineFormatter(logging.Formatter):
    """What both forms share. `extra={"fields": {...}}` adds fields to a line."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        known = sorted({one for one in secrets if len(one) >= _SHORTEST_SECRET}, key=len, reverse=True)
        self._secrets = re.compile("|".join([*map(re.escape, known), _CREDENTIALS]), re.IGNORECASE)

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """The line's fields, in their order."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = {"time": at.replace("+00:00", "Z"), "level": record.levelname, "logger": record.name}
        fields["message"] = record.getMessage()
        if (request := _about.get()) is not None:
            fields |= {"request_id": request.request_id, "trace_id": request.trace_id, "tenant": request.tenant}
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = _described(record.exc_info[1])
        fields |= getattr(record, "fields", {})
        return {key: self.safe(value) for key, value in fields.items() if value is not None}

    def safe(self, value: Any) -> Any:
        """The value without secrets and what could drive a terminal or begin a line of its own."""
        if isinstance(value, bool | int | float):
            return value
        text = without_credentials(self._secrets.sub(HIDDEN, str(value)))
        if text.isascii() and text.isprintable() and len(text) <= _LONGEST_MESSAGE:
            return text  # as nearly all are
        return _UNSAFE.sub(" ", one_line(text, _LONGEST_MESSAGE))


class JsonLines(_LineFormatter):
    """One JSON object per line: time, level, logger, message, request_id, trace_id, tenant and further fields."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        return json.dumps(self.fields(record), ensure_ascii=False)


class TextLines(_LineFormatter):
    """Time, level, logger and message, then the other fields as key=value."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        fields = self.fields(record)
        head = " ".join(str(fields.pop(key)) for key in ("time", "level", "logger", "message"))
        return " ".join([head, *(f"{key}={value}" for key, value in fields.items())])


_SPARING = Sparing()


def configure(settings: "Settings", stream: TextIO | None = None) -> None:
    """Send the log lines of the whole process to the stream, stderr when None, in the form of the settings."""
    secrets = secrets_of(settings)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(secrets) if settings.log_format == "json" else TextLines(secrets))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    # What they say at INFO is of every request they send, addresses included.
    logging.getLogger("psycopg.pool").addFilter(_SPARING)
    for chatty in ("httpx", "httpx2", "httpcore", "httpcore2", "openai", "LiteLLM", "mcp"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))


def secrets_of(settings: "Settings") -> list[str]:
    """Values of the settings that no log may hold."""
    return list(settings.secrets)


def _described(error: BaseException) -> str:
    """The error's type and the innermost calls that led to it. Its text may quote what a user sent."""
    frames = traceback.extract_tb(error.__traceback__)[-_MOST_CALLS:]
    calls = (f"{PurePath(one.filename).name}:{one.lineno} {one.name}" for one in frames)
    return " > ".join([*calls, type(error).__name__])
