"""A client of S3 whose answers are limited in bytes, in time and in XML elements. boto3 itself sets no such limits."""

import importlib
import io
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPResponse
from typing import Any

from retrievers.core.errors import Unavailable
from retrievers.core.optional_dependencies import install_command
from retrievers.http.response_limits import BadResponse, too_long_error, wire_bytes
from retrievers.sandbox import CancelCheck

_TIMEOUT_S = 20
_MOST_MARKUP = 60_000
"""Maximum number of "<" and "=" in one XML answer. A listing of 1,000 objects has up to 30,000."""
MOST_XML_BYTES = 8 << 20
"""Maximum size of an XML answer, such as one page of a listing: 1,000 names of 1 KiB, each byte sent as "%20"."""


@dataclass(slots=True)
class _ReadingLimits:
    """Limits of the answers that are read now. The source sets them before each step; one thread reads at a time."""

    most_bytes: int = 0
    ends_at: float = 0.0
    is_cancelled: CancelCheck = lambda: False

    def check(self, received: int) -> None:
        """Raise `BadResponse` if an answer with this many bytes so far exceeds a limit."""
        if received > wire_bytes(self.most_bytes):
            raise too_long_error(self.most_bytes)
        if time.monotonic() > self.ends_at or self.is_cancelled():
            raise BadResponse("it takes too long to answer")


@dataclass(slots=True)
class BucketClient:
    """Opens boto3's client at first use. Credentials, region and endpoint are found as by AWS's own tools."""

    _limits: _ReadingLimits = field(default_factory=_ReadingLimits)
    _client: Any = None

    def opened(self, most_bytes: int, timeout_s: float, is_cancelled: CancelCheck) -> Any:
        """Return boto3's client. Until the next call of this method, its answers raise an error if they exceed a limit.

        Args:
            most_bytes: maximum size of each answer, in bytes.
            timeout_s: time limit of all answers together, in seconds.
            is_cancelled: returns True once nobody waits for the answers any more.
        Raises:
            Unavailable: boto3 is not installed.
            Exception: one of `client_errors`.
        """
        if self._client is None:
            self._client = _open_client(self._limits)
        self._limits.most_bytes, self._limits.is_cancelled = most_bytes, is_cancelled
        self._limits.ends_at = time.monotonic() + timeout_s
        return self._client


def client_errors() -> tuple[type[Exception], ...]:
    """Return the errors that a client raises if the bucket cannot be read."""
    exceptions = importlib.import_module("botocore.exceptions")
    return exceptions.BotoCoreError, exceptions.ClientError, BadResponse, OSError, ValueError


def _open_client(limits: _ReadingLimits) -> Any:
    try:
        boto3, config = importlib.import_module("boto3"), importlib.import_module("botocore.config")
    except ImportError as error:
        raise Unavailable("the source", f"boto3 is missing: {install_command('aws')}") from error
    settings = config.Config(
        connect_timeout=_TIMEOUT_S, read_timeout=_TIMEOUT_S, retries={"total_max_attempts": 3},
        s3={"addressing_style": "auto"},
    )  # fmt: skip
    client = boto3.session.Session().client("s3", config=settings)
    session = client._endpoint.http_session
    pools = session._pool_classes_by_scheme
    for scheme, pool in list(pools.items()):
        pools[scheme] = type("Pool", (pool,), {"ConnectionCls": _limited_connection(pool.ConnectionCls, limits)})
    session.send = _checked(session.send)
    return client


def _limited_connection(connection: type, limits: _ReadingLimits) -> type:
    """Return a subclass of a connection class of http.client, whose answers are read through `_LimitedFile`."""

    class Response(HTTPResponse):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            file: Any = self.fp
            self.fp = io.BufferedReader(_LimitedFile(file.detach(), limits))

    return type("Connection", (connection,), {"response_class": Response})


class _LimitedFile(io.RawIOBase):
    """The bytes of one answer as they arrive: head, body, and all that frames them."""

    def __init__(self, file: io.RawIOBase, limits: _ReadingLimits) -> None:
        self._file, self._limits = file, limits
        self._received = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._limits.check(self._received)
        count: int | None = self._file.readinto(buffer)
        self._received += count or 0
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _checked(send: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `send` with a check of each answer that boto3 will parse: all but the content of an object."""

    def send_checked(request: Any) -> Any:
        answer = send(request)
        if not request.stream_output or answer.status_code >= 300:
            _check_xml(answer.content)
        return answer

    return send_checked


def _check_xml(body: bytes) -> None:
    """Raise `BadResponse` for XML that must not be parsed: parsing blocks all threads, and takes much memory."""
    if len(body) > MOST_XML_BYTES:
        raise too_long_error(MOST_XML_BYTES)
    if body.count(b"<") + body.count(b"=") > _MOST_MARKUP:
        raise BadResponse("its answer has too many XML elements")
    if b"<!DOCTYPE" in body:
        raise BadResponse("its answer declares a document type")
