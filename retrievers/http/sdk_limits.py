"""Limit the answers of SDKs that read them with their own clients."""

import asyncio
import io
import logging
import math
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from retrievers.http.response_limits import limit_client, remaining_s

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_MOST_ERROR_CHARACTERS = 4_000
_LOOKUP_S = 60.0
"""Timeout of a request that litellm sends while no deadline is set (see `deadline_within`), in seconds."""
_OF_THE_PACKED_BODY = frozenset({"content-length", "content-encoding", "transfer-encoding"})
OPENAI_URL = "https://api.openai.com/v1"


def open_openai(base_url: str | None, api_key: str | None) -> "AsyncOpenAI":
    """Open OpenAI's SDK without retries of its own.

    Args:
        base_url: URL including "/v1"; None for OpenAI's.
        api_key: None if the server needs none.
    """
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    http = DefaultAsyncHttpxClient(verify=_tls())
    limit_client(http)
    # Without a key or an address the SDK would read them from the environment.
    key, url = api_key or "no-key", base_url or OPENAI_URL
    return AsyncOpenAI(api_key=key, base_url=url, max_retries=0, http_client=http)


@cache
def _tls() -> ssl.SSLContext:
    """Return the certificate authorities that the SDK trusts. Loaded once per process, because that takes 0.1 s."""
    from httpx import create_ssl_context

    return create_ssl_context()


@cache
def limit_litellm() -> None:
    """Limit the answers that litellm reads.

    litellm creates its clients in two places: for providers with their own API and for OpenAI-compatible ones.
    """
    handlers: Any = import_module("litellm.llms.custom_httpx.http_handler")
    openai: Any = import_module("litellm.llms.openai.common_utils").BaseOpenAILLM
    _limit_made_by(handlers.AsyncHTTPHandler, "create_client")
    _limit_made_by(openai, "_get_async_http_client")
    blocking = _blocking_client(handlers)
    handlers.HTTPHandler.create_client = blocking
    openai._get_sync_http_client = staticmethod(blocking)
    _limit_threads(blocking())
    # litellm removes secrets from an answer that it cannot parse before it logs and raises it, which takes seconds per
    # MiB. So logging is off, and only the beginning of the answer is searched.
    for name in ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    redaction: Any = import_module("litellm.litellm_core_utils.secret_redaction")
    redaction._SECRET_RE = _Beginning(redaction._SECRET_RE)


def _blocking_client(handlers: Any) -> Callable[..., Any]:
    """Return a factory of the blocking clients with which litellm looks up models and tokens in threads.

    An ordinary blocking client applies its timeout to each read, and its thread cannot be cancelled, so it could read
    for ever. The clients made here send each request through a limited asynchronous client in an event loop of its own,
    with the deadline of the current call. In a thread with a running event loop, a request fails at once, because it
    would block that loop. The only such requests are lookups of prices.

    Args:
        handlers: litellm's module of HTTP clients.
    """
    httpx = handlers.httpx

    async def answer(request: Any, timeout_s: float) -> Any:
        try:
            async with asyncio.timeout(timeout_s), handlers.AsyncHTTPHandler().client as client:
                found = await client.request(
                    request.method, request.url, headers=request.headers, content=request.read(), follow_redirects=False
                )
        except TimeoutError:
            raise httpx.ReadTimeout(f"no answer within {timeout_s:.3g} s", request=request) from None
        return httpx.Response(found.status_code, headers=found.headers, content=found.content, request=request)

    class Transport(httpx.BaseTransport):  # type: ignore[misc, name-defined]
        def handle_request(self, request: Any) -> Any:
            if asyncio._get_running_loop() is not None:
                raise httpx.ConnectError("a blocking request is not possible inside an event loop", request=request)
            return asyncio.run(answer(request, max(min(remaining_s(), _LOOKUP_S), 0.0)))

    def make(*_: Any) -> Any:
        return httpx.Client(transport=Transport(), follow_redirects=True)

    return make


def _limit_threads(client: Any) -> None:
    """Make boto3 and requests send through a limited client, wherever a deadline is set (see `deadline_within`).

    litellm reads SageMaker's vectors and the access tokens of Google and Databricks with these two libraries, which
    would read as long as bytes arrive. Other users of the two, such as buckets, set no deadline and are not affected.
    """

    def limit_send(owner: Any, answer_of: Callable[[Any, Any, _UnpackedAnswer], Any]) -> None:
        send = owner.send

        def sent(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            if not math.isfinite(remaining_s()) or asyncio._get_running_loop() is not None:
                return send(self, request, *args, **kwargs)
            headers = dict(request.headers)
            found = client.request(request.method, request.url, headers=headers, content=request.body or b"")
            return answer_of(self, request, _UnpackedAnswer(found))

        owner.send = sent

    with suppress(ImportError):
        aws: Any = import_module("botocore.awsrequest").AWSResponse
        session: Any = import_module("botocore.httpsession").URLLib3Session
        limit_send(session, lambda _, request, raw: aws(request.url, raw.status, raw.headers, raw))
    with suppress(ImportError):
        adapter: Any = import_module("requests.adapters").HTTPAdapter
        limit_send(adapter, lambda self, request, raw: self.build_response(request, raw))


class _UnpackedAnswer(io.BytesIO):
    """An answer in the form of urllib3, as boto3 and requests read it. Its body is already decompressed."""

    def __init__(self, answer: Any) -> None:
        super().__init__(answer.content)
        self.status, self.reason = answer.status_code, answer.reason_phrase
        self.headers = {name: value for name, value in answer.headers.items() if name not in _OF_THE_PACKED_BODY}

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        yield self.read()


@dataclass(frozen=True, slots=True)
class _Beginning:
    """A regular expression whose `sub` cuts the text to `_MOST_ERROR_CHARACTERS` before it replaces matches."""

    pattern: re.Pattern[str]

    def sub(self, replacement: str, text: str) -> str:
        return self.pattern.sub(replacement, text[:_MOST_ERROR_CHARACTERS])


def _limit_made_by(owner: Any, name: str) -> None:
    make = getattr(owner, name)

    def made(*args: Any, **kwargs: Any) -> Any:
        client = make(*args, **kwargs)
        limit_client(client)
        return client

    static = isinstance(owner.__dict__[name], staticmethod)
    setattr(owner, name, staticmethod(made) if static else made)
