"""JSON over HTTP for providers' APIs: one request, bounded in time and size, and one kind of error.

The address is the operator's, from the settings; pages whose addresses come from elsewhere are read by
`retrievers.http.fetch`. Redirects are not followed: a key would travel with them.
"""

import asyncio
import concurrent.futures
import json
import math
import re
import ssl
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, Literal
from urllib.parse import quote

import httpx2
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from retrievers.core.errors import Unavailable
from retrievers.http.bounds import BadAnswer, limit, parse_json

ATTEMPTS = 2
_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 2.0
_LONGEST_REASON = 200
_BEHIND_S = 1.0
"""What a thread waits longer than the event loop needs at most."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


class ProviderRefusal(Unavailable):
    """The provider answered, and with an error.

    Attributes:
        status: of HTTP.
        body: the JSON of the answer, for what a provider says in codes of its own; None when it is none.
    """

    def __init__(
        self, source: str, reason: str, status: int, *, retry_after_s: float | None = None, body: Any = None
    ) -> None:
        super().__init__(source, reason, retry_after_s=retry_after_s)
        self.status, self.body = status, body


class _Lost(Unavailable):
    """The connection failed, which the next one need not."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of any status. `body` is unpacked."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Send = Callable[[str, str, Mapping[str, str], bytes | None], Response]
"""Method, address, headers and body of a request, to its answer."""


class Client:
    """A provider's API.

    Args:
        source: the retriever's name, for errors.
        secrets: keys that must not occur in an error, whatever the provider repeats.
    """

    def __init__(self, source: str, *, secrets: Collection[str] = ()) -> None:
        self._source = source
        forms = {form for secret in filter(None, secrets) for form in (secret, quote(secret, safe=""))}
        self._secrets = sorted(forms, key=len, reverse=True)  # one may hold another
        self._http = httpx2.AsyncClient(timeout=None, follow_redirects=False, verify=_tls())
        limit(self._http)

    async def json(
        self,
        method: Literal["GET", "POST"],
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        timeout_s: float = 10.0,
        attempts: int = ATTEMPTS,
    ) -> Any:
        """The JSON of an answer of status 200 to 299.

        Args:
            params: of the query string; None values are left out.
            body: sent as JSON; or `content`, bytes that were signed as they are.
            timeout_s: for all tries together, body included.
            attempts: most tries: connection errors, 429 and 5xx are repeated, after `Retry-After` where that is
                short and leaves time for it.
        Raises:
            Refused: an answer of another status; the reason tells what the provider says.
            Unavailable: no answer in time, or none that is JSON of a bearable size.
        """
        if body is not None:
            content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
            headers = {"Content-Type": "application/json", **(headers or {})}
        query = {key: _encodable(str(value)) for key, value in (params or {}).items() if value is not None}
        deadline = time.monotonic() + timeout_s

        async def once() -> Any:
            return await self._once(method, url, headers or {}, query, content)

        def wait_s(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            asked_s = getattr(error, "retry_after_s", None) or 0.0
            return float(max(_FIRST_WAIT_S * 2 ** (state.attempt_number - 1), asked_s))

        def may_pass(error: BaseException) -> bool:
            if isinstance(error, ProviderRefusal) and (error.status == 429 or error.status >= 500):
                # Better to say what the provider says than to run out of time.
                left_s = min(_LONGEST_WAIT_S, deadline - time.monotonic())
                return (error.retry_after_s or 0.0) <= left_s
            return isinstance(error, _Lost)

        try:
            async with asyncio.timeout(timeout_s):
                retrying = AsyncRetrying(
                    stop=stop_after_attempt(attempts), wait=wait_s, retry=retry_if_exception(may_pass), reraise=True
                )
                return await retrying(once)
        except TimeoutError:
            raise Unavailable(self._source, f"no answer within {timeout_s:.3g} s") from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def sender(self, timeout_s: float) -> "Send":
        """A function that sends one request, for SDKs that work in a thread and would read without a bound.

        It is made on the event loop and called elsewhere. It raises Unavailable: no answer in time, or one that passes
        a limit.
        """
        loop = asyncio.get_running_loop()
        late = f"no answer within {timeout_s:.3g} s"

        async def answer(method: str, url: str, headers: Mapping[str, str], content: bytes | None) -> Response:
            try:
                async with asyncio.timeout(timeout_s):
                    response = await self._response(method, url, headers, {}, content)
            except TimeoutError:
                raise Unavailable(self._source, late) from None
            return Response(response.status_code, response.headers, response.content)

        def send(method: str, url: str, headers: Mapping[str, str], content: bytes | None) -> Response:
            waiting = asyncio.run_coroutine_threadsafe(answer(method, url, headers, content), loop)
            try:
                return waiting.result(timeout_s + _BEHIND_S)
            except (TimeoutError, concurrent.futures.CancelledError):
                raise Unavailable(self._source, late) from None

        return send

    async def _once(
        self, method: str, url: str, headers: Mapping[str, str], params: Mapping[str, str], content: bytes | None
    ) -> Any:
        answer = await self._response(method, url, headers, params, content)
        data = answer.content
        if not answer.is_success:
            reason = f"HTTP {answer.status_code}: {self._said(data) or answer.reason_phrase or 'no reason given'}"
            told = {"retry_after_s": _retry_after_s(answer), "body": _error_body(data)}
            raise ProviderRefusal(self._source, self._clean(reason), answer.status_code, **told)
        try:
            return parse_json(data)
        except BadAnswer as error:
            raise Unavailable(self._source, error.reason) from None
        except ValueError:
            raise Unavailable(self._source, "its answer is not JSON") from None

    async def _response(
        self, method: str, url: str, headers: Mapping[str, str], params: Mapping[str, str], content: bytes | None
    ) -> httpx2.Response:
        try:
            # An empty mapping would drop the query that the address has.
            query = params or None
            return await self._http.request(method, url, headers=headers, params=query, content=content)
        except BadAnswer as error:
            raise Unavailable(self._source, error.reason) from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, UnicodeError):
            raise Unavailable(self._source, "its address or its key holds what cannot be sent") from None
        except (httpx2.HTTPError, OSError) as error:
            # The text may hold the address, and that a key.
            raise _Lost(self._source, f"the connection failed ({type(error).__name__})") from None

    def _said(self, data: bytes) -> str:
        """The message of an error's body, wherever the provider puts it."""
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            return ""
        for _ in range(3):
            if isinstance(found, Mapping):
                keys = ("message", "Message", "detail", "error_msg", "msg", "error", "errors", "title")
                found = next((found[key] for key in keys if found.get(key)), "")
            elif isinstance(found, list):
                found = found[0] if found else ""
        return found if isinstance(found, str) else ""

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return _CONTROL.sub(" ", text)[:_LONGEST_REASON]


@cache
def _tls() -> ssl.SSLContext:
    """The authorities that are trusted: to load them takes 0.1 s, and is for the start, not for a request."""
    return httpx2.create_ssl_context()


def _encodable(text: str) -> str:
    """Text that has an UTF-8 form: half a surrogate pair becomes a question mark."""
    return text.encode(errors="replace").decode()


def _error_body(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _retry_after_s(answer: httpx2.Response) -> float | None:
    """Seconds to wait, from a number of them or a date."""
    value = answer.headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - datetime.now(UTC).timestamp()
    return max(seconds, 0.0) if math.isfinite(seconds) else None
