"""The SDKs that read answers by themselves, with clients that bound what they read."""

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from retrievers.http.bounds import left_s, limit

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_MOST_ERROR_CHARACTERS = 4_000
_LOOKUP_S = 60.0
"""For a request that litellm sends outside of any call."""
OPENAI_URL = "https://api.openai.com/v1"


def open_openai(base_url: str | None, api_key: str | None) -> "AsyncOpenAI":
    """OpenAI's SDK, without retries of its own.

    Args:
        base_url: up to and with "/v1"; OpenAI's own when None.
        api_key: None for a server that asks for none.
    """
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    http = DefaultAsyncHttpxClient()
    limit(http)
    # Without a key or an address the SDK would look for them in the environment.
    key, url = api_key or "no-key", base_url or OPENAI_URL
    return AsyncOpenAI(api_key=key, base_url=url, max_retries=0, http_client=http)


@cache
def limit_litellm() -> None:
    """Bound what litellm reads.

    It makes its clients itself, at two places: for providers with an API of their own and for those that speak
    OpenAI's.
    """
    handlers: Any = import_module("litellm.llms.custom_httpx.http_handler")
    openai: Any = import_module("litellm.llms.openai.common_utils").BaseOpenAILLM
    _limit_made_by(handlers.AsyncHTTPHandler, "create_client")
    _limit_made_by(openai, "_get_async_http_client")
    blocking = _blocking_client(handlers)
    handlers.HTTPHandler.create_client = blocking
    openai._get_sync_http_client = staticmethod(blocking)
    # It searches whole answers that it cannot read for secrets, to log and to raise them: seconds for one MiB.
    for name in ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    redaction: Any = import_module("litellm.litellm_core_utils.secret_redaction")
    redaction._SECRET_RE = _Beginning(redaction._SECRET_RE)


def _blocking_client(handlers: Any) -> Callable[..., Any]:
    """What makes the clients by which litellm looks models and tokens up in threads.

    A thread cannot be cancelled, and the timeout of a blocking client is for each read. So each request is one of a
    bounded asynchronous client, on an event loop of its own, with the deadline of the call under way. An event loop
    that serves others must not wait: there it looks up no more than prices, and finds none.
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
                raise httpx.ConnectError("nothing is looked up while an event loop waits", request=request)
            return asyncio.run(answer(request, max(min(left_s(), _LOOKUP_S), 0.0)))

    def make(*_: Any) -> Any:
        return httpx.Client(transport=Transport(), follow_redirects=True)

    return make


@dataclass(frozen=True, slots=True)
class _Beginning:
    """A pattern for the beginning of a text; the rest is dropped."""

    pattern: re.Pattern[str]

    def sub(self, replacement: str, text: str) -> str:
        return self.pattern.sub(replacement, text[:_MOST_ERROR_CHARACTERS])


def _limit_made_by(owner: Any, name: str) -> None:
    make = getattr(owner, name)

    def made(*args: Any, **kwargs: Any) -> Any:
        client = make(*args, **kwargs)
        limit(client)
        return client

    static = isinstance(owner.__dict__[name], staticmethod)
    setattr(owner, name, staticmethod(made) if static else made)
