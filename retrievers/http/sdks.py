"""The SDKs that read answers by themselves, with clients that bound what they read."""

import logging
import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from retrievers.http.bounds import limit

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_MOST_ERROR_CHARACTERS = 4_000
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
    handlers = import_module("litellm.llms.custom_httpx.http_handler")
    openai = import_module("litellm.llms.openai.common_utils")
    # It looks some models up in threads, with the synchronous ones.
    for handler in (handlers.AsyncHTTPHandler, handlers.HTTPHandler):
        _limit_made_by(handler, "create_client")
    for name in ("_get_async_http_client", "_get_sync_http_client"):
        _limit_made_by(openai.BaseOpenAILLM, name)
    # It searches whole answers that it cannot read for secrets, to log and to raise them: seconds for one MiB.
    for name in ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    redaction: Any = import_module("litellm.litellm_core_utils.secret_redaction")
    redaction._SECRET_RE = _Beginning(redaction._SECRET_RE)


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
