"""Write log lines as text or JSON: one line per event, with the ids of its request and without secrets."""

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

from retrievers.core.credentials import MASK, mask_credentials
from retrievers.core.log_filter import RepetitionFilter
from retrievers.ingest.readers.text_cleaning import one_line

if TYPE_CHECKING:
    from agent.records.trace import Trace
    from agent.settings import Settings
    from retrievers.core.errors import Unavailable

_LONGEST_MESSAGE = 4000
# A shorter value is not treated as a secret: it would also match parts of ordinary words.
_SHORTEST_SECRET = 6
_MOST_CALLS = 8
# Credentials that are hidden although no setting contains them: an Authorization header, an API key of this service.
_CREDENTIALS = r"(?<=\bBearer )\S+|(?<=\bsbx_)\w+"
# Control characters, and characters that change the writing direction.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(slots=True)
class LogContext:
    """Ids of the current request, added to each of its log lines."""

    request_id: str
    trace_id: str | None = None
    tenant: str | None = None


_context: ContextVar[LogContext | None] = ContextVar("about", default=None)


@contextmanager
def log_context(request_id: str) -> Iterator[LogContext]:
    """Add this request's ids to all lines logged inside the block, also to those from its tasks and threads."""
    context = LogContext(request_id)
    token = _context.set(context)
    try:
        yield context
    finally:
        _context.reset(token)


def current_log_context() -> LogContext | None:
    """Return the ids of the current request; None outside of a request."""
    return _context.get()


class LogContextObserver:
    """Observer (see `agent.records.observers`) that adds trace id and tenant to the further log lines of a request."""

    def on_answer(self, trace: "Trace") -> None:
        """See `Observer.on_answer`."""
        if (request := _context.get()) is not None:
            request.trace_id, request.tenant = trace.id, trace.tenant

    def on_failure(self, error: "Unavailable") -> None:
        """Do nothing: a failed question has no trace."""


class _LineFormatter(logging.Formatter):
    """Base of both formatters. A call `log.info(..., extra={"fields": {...}})` adds fields to its line.

    Args:
        secrets: values to hide in all lines; those shorter than `_SHORTEST_SECRET` characters are not hidden.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        known = sorted({one for one in secrets if len(one) >= _SHORTEST_SECRET}, key=len, reverse=True)
        self._secrets = re.compile("|".join([*map(re.escape, known), _CREDENTIALS]), re.IGNORECASE)

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the fields of a line, in output order."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = {"time": at.replace("+00:00", "Z"), "level": record.levelname, "logger": record.name}
        fields["message"] = record.getMessage()
        if (request := _context.get()) is not None:
            fields |= {"request_id": request.request_id, "trace_id": request.trace_id, "tenant": request.tenant}
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = _described(record.exc_info[1])
        fields |= getattr(record, "fields", {})
        return {key: self.safe(value) for key, value in fields.items() if value is not None}

    def safe(self, value: Any) -> Any:
        """Return the value without secrets and without characters that control a terminal or start a new line."""
        if isinstance(value, bool | int | float):
            return value
        text = mask_credentials(self._secrets.sub(MASK, str(value)))
        if text.isascii() and text.isprintable() and len(text) <= _LONGEST_MESSAGE:
            return text  # the common case
        return _UNSAFE.sub(" ", one_line(text, _LONGEST_MESSAGE))


class JsonFormatter(_LineFormatter):
    """One JSON object per line: time, level, logger, message, request_id, trace_id, tenant and further fields."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        return json.dumps(self.fields(record), ensure_ascii=False)


class TextFormatter(_LineFormatter):
    """Time, level, logger and message, then the other fields as key=value."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        fields = self.fields(record)
        head = " ".join(str(fields.pop(key)) for key in ("time", "level", "logger", "message"))
        return " ".join([head, *(f"{key}={value}" for key, value in fields.items())])


_SPARING = RepetitionFilter()


def configure(settings: "Settings", stream: TextIO | None = None) -> None:
    """Send the log lines of the whole process to `stream` (None: stderr) in the format of the settings."""
    secrets = secrets_of(settings)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(secrets) if settings.log_format == "json" else TextFormatter(secrets))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    logging.getLogger("psycopg.pool").addFilter(_SPARING)
    # At INFO these libraries log every request they send, including addresses.
    for chatty in ("httpx", "httpx2", "httpcore", "httpcore2", "openai", "LiteLLM", "mcp"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))


def secrets_of(settings: "Settings") -> list[str]:
    """Return the values of the settings that must not appear in a log."""
    return list(settings.secrets)


def _described(error: BaseException) -> str:
    """Return the error's type and its innermost calls, but not its text, which may quote user input."""
    frames = traceback.extract_tb(error.__traceback__)[-_MOST_CALLS:]
    calls = (f"{PurePath(one.filename).name}:{one.lineno} {one.name}" for one in frames)
    return " > ".join([*calls, type(error).__name__])
