"""Build the web source from the settings, or report what is wrong with them."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from retrievers.core.errors import BadRequest, join_names
from retrievers.core.optional_dependencies import install_command
from retrievers.http.json_client import JsonClient
from retrievers.http.page_fetcher import Fetcher
from retrievers.ingest.readers.text_cleaning import one_line
from retrievers.web import brave, ddgs, exa, searxng, tavily
from retrievers.web.provider import SOURCE, ProviderApi, WebProvider
from retrievers.web.retriever import Web

PROVIDERS: Mapping[str, WebProvider] = {
    "brave": brave.PROVIDER,
    "ddgs": ddgs.PROVIDER,
    "exa": exa.PROVIDER,
    "searxng": searxng.PROVIDER,
    "tavily": tavily.PROVIDER,
}


def open_web(options: Mapping[str, Any]) -> Web:
    """Build the web source. WEB_PROVIDER must be set; see `retrievers.web.build`."""
    given = options["web_provider"].strip()
    name, _, own_address = given.partition(":")
    provider = PROVIDERS.get(name)
    if provider is None or (own_address and name != "searxng"):
        valid = [f"{one}:URL" if one == "searxng" else one for one in PROVIDERS]
        raise BadRequest(
            f'setting WEB_PROVIDER: there is no web provider "{one_line(name, 40)}"; there are: {join_names(valid)}',
            where="web_provider",
            valid=valid,
        )
    key = options.get("web_api_key") or ""
    if provider.needs_key and not key:
        raise BadRequest(f"setting WEB_API_KEY is missing: {name} needs one", where="web_api_key")
    if provider.package and find_spec(provider.package) is None:
        raise BadRequest(
            f"setting WEB_PROVIDER: {name} is not installed: {install_command('web')}", where="web_provider"
        )
    address = _address(name, provider, own_address, options)
    timeout_s = float(options.get("source_timeout_s", 3.0))
    api = ProviderApi(name, JsonClient(SOURCE, secrets=[key]), address, key, timeout_s, provider.reasons)
    return Web(provider, api, Fetcher() if options.get("web_fetch") else None)


def _address(name: str, provider: WebProvider, own: str, options: Mapping[str, Any]) -> str:
    """Return the address of the API, without the path that the provider's module adds; "" if it uses no API.

    Args:
        own: the address after the provider's name in WEB_PROVIDER; "" if there is none.
    Raises:
        BadRequest: the address is invalid or contains a password, or the provider takes none.
    """
    base = (options.get("web_base_url") or "").strip()
    if provider.address is None:
        if base:
            raise BadRequest(f"setting WEB_BASE_URL: {name} takes no address", where="web_base_url")
        return ""
    where = "web_base_url" if base else "web_provider"
    address = (base or own or provider.address).rstrip("/").removesuffix("/search")
    try:
        parts = urlsplit(address)
        named = bool(parts.hostname) and parts.port != 0  # an invalid port raises ValueError
        usable = parts.scheme in ("http", "https") and named and not parts.query + parts.fragment
    except ValueError:
        usable = False
    if not usable:
        form = "http://localhost:8888" if base else f"{name}:http://localhost:8888"
        raise BadRequest(f"setting {where.upper()} is not a valid address such as {form}", where=where)
    if parts.username is not None or parts.password is not None:
        raise BadRequest(
            f"setting {where.upper()} contains a password, which logs would show: put name:password into WEB_API_KEY",
            where=where,
        )
    return address
