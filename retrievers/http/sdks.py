"""The SDKs that read answers by themselves, with clients that bound what they read."""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from retrievers.http.bounds import limit

if TYPE_CHECKING:
    from openai import AsyncOpenAI

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
    _limit_made_by(handlers.AsyncHTTPHandler, "create_client")
    _limit_made_by(openai.BaseOpenAILLM, "_get_async_http_client")


def _limit_made_by(owner: Any, name: str) -> None:
    make = getattr(owner, name)

    def made(*args: Any, **kwargs: Any) -> Any:
        client = make(*args, **kwargs)
        limit(client)
        return client

    static = isinstance(owner.__dict__[name], staticmethod)
    setattr(owner, name, staticmethod(made) if static else made)
