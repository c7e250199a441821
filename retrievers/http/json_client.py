"""Send JSON requests to providers' APIs, with limits on time and size, and one error type.

Only for addresses from the operator's settings. `retrievers.http.page_fetcher` reads pages at addresses that others
wrote. Redirects are not followed, because the key would be sent to their target.
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
from retrievers.http.response_limits import BadResponse, check_json_size, limit_client, parse_json, run_off_loop

ATTEMPTS = 2
_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 2.0
_LONGEST_REASON = 200
_BEHIND_S = 1.0
"""How much longer a thread waits for an answer than the event loop, which normally reports a timeout, in seconds."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


class ProviderRefusal(Unavailable):
    """The provider answered with an error.

    Attributes:
        status: HTTP status.
        body: the answer's JSON, for providers with error codes of their own; None if the answer is not JSON.
    """

    def __init__(
        self, source: str, reason: str, status: int, *, retry_after_s: float | None = None, body: Any = None
    ) -> None:
        super().__init__(source, reason, retry_after_s=retry_after_s)
        self.status, self.body = status, body


class _Lost(Unavailable):
    """The connection failed. A retry may succeed."""


@dataclass(frozen=True, slots=True)
class RawResponse:
    """An answer of any status, with its body after decompression."""

    status: int
    headers: Mapping[str, str]
    body: bytes


SendRequest = Callable[[str, str, Mapping[str, str], bytes | None], RawResponse]
"""Takes method, address, headers and body of a request, and returns its answer."""


class JsonClient:
    """Client that sends JSON requests to a provider's API.

    Args:
        source: the name of the retriever that uses the client, for error messages.
        secrets: keys that are masked in error messages, in case the provider repeats them.
    """

    def __init__(self, source: str, *, secrets: Collection[str] = ()) -> None:
        self._source = source
        forms = {form for secret in filter(None, secrets) for form in (secret, quote(secret, safe=""))}
        self._secrets = sorted(forms, key=len, reverse=True)  # longest first, because one may contain another
        self._http = httpx2.AsyncClient(timeout=None, follow_redirects=False, verify=_tls())
        limit_client(self._http)

    async def request_json(
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
        """Send a request and return the JSON of a 2xx answer.

        Args:
            params: query parameters; None values are dropped.
            body: body to send as JSON.
            content: body as bytes, instead of `body`.
            timeout_s: time limit for all attempts together, including the reading of their bodies.
            attempts: maximum number of attempts. Connection errors, 429 and 5xx are retried. A `Retry-After` that is
                longer than `_LONGEST_WAIT_S` or than the time left prevents the retry.
        Raises:
            ProviderRefusal: an answer with another status. The reason contains the provider's message.
            Unavailable: no answer in time, or an answer that is too large or not JSON.
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
                # Without time for another attempt, the provider's message is a better error than a timeout.
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

    def sender(self, timeout_s: float) -> "SendRequest":
        """Return a function that sends one request from a thread, for SDKs that would read answers without a limit.

        Call this method on the event loop, and the returned function in a thread. The function raises Unavailable if
        there is no answer in time, or if the answer exceeds a limit on its size or its number of JSON values.

        Args:
            timeout_s: time limit in seconds, both from the call of this method and from the call of the function.
        """
        loop = asyncio.get_running_loop()
        ends_at = time.monotonic() + timeout_s
        late = f"no answer within {timeout_s:.3g} s"

        async def answer(method: str, url: str, headers: Mapping[str, str], content: bytes | None) -> RawResponse:
            try:
                async with asyncio.timeout(timeout_s):
                    response = await self._response(method, url, headers, {}, content)
                    await run_off_loop(check_json_size, response.content)
            except TimeoutError:
                raise Unavailable(self._source, late) from None
            except BadResponse as error:
                raise Unavailable(self._source, error.reason) from None
            return RawResponse(response.status_code, response.headers, response.content)

        def send(method: str, url: str, headers: Mapping[str, str], content: bytes | None) -> RawResponse:
            # A thread may call this late, when its caller has given up and the loop has ended.
            if time.monotonic() > ends_at or loop.is_closed():
                raise Unavailable(self._source, late)
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
            return await run_off_loop(parse_json, data)
        except BadResponse as error:
            raise Unavailable(self._source, error.reason) from None
        except ValueError:
            raise Unavailable(self._source, "its answer is not JSON") from None

    async def _response(
        self, method: str, url: str, headers: Mapping[str, str], params: Mapping[str, str], content: bytes | None
    ) -> httpx2.Response:
        try:
            # An empty mapping would remove the query from the address.
            query = params or None
            return await self._http.request(method, url, headers=headers, params=query, content=content)
        except BadResponse as error:
            raise Unavailable(self._source, error.reason) from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, UnicodeError):
            raise Unavailable(self._source, "its address or its key contains a character that cannot be sent") from None
        except (httpx2.HTTPError, OSError) as error:
            # The error's text may contain the address, and the address may contain a key.
            raise _Lost(self._source, f"the connection failed ({type(error).__name__})") from None

    def _said(self, data: bytes) -> str:
        """Return the error message in the JSON body of an answer, under one of the usual keys; "" if there is none."""
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
    """Return the trusted certificate authorities. They are loaded once per process, because that takes 0.1 s."""
    return httpx2.create_ssl_context()


def _encodable(text: str) -> str:
    """Replace unpaired surrogates by question marks, so that the text can be encoded as UTF-8."""
    return text.encode(errors="replace").decode()


def _error_body(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _retry_after_s(answer: httpx2.Response) -> float | None:
    """Return the seconds to wait that Retry-After states, as a number or a date. None without a valid value."""
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
