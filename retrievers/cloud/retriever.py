"""The retriever over one knowledge base of any provider, built from the settings."""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from retrievers.cloud import CARD, azure, bailian, bedrock, dify, openai_store, vertex
from retrievers.cloud.filters import provider_filter, satisfies_filter
from retrievers.cloud.provider import SOURCE, CloudProvider, CloudQuery, ProviderAccess, check_base_url, limit_metadata
from retrievers.core.errors import BadRequest, RetrievalError, Unavailable
from retrievers.core.metadata import Field
from retrievers.core.types import Card, Hit, Query
from retrievers.http.json_client import JsonClient, ProviderRefusal
from retrievers.http.provider_hits import ProviderHit, clean_text, convert_provider_hits, safe_link
from retrievers.ingest.readers.text_cleaning import one_line
from retrievers.postgres.catalogue.catalogue import filterable_fields

_PROVIDERS: Mapping[str, ModuleType] = {
    "bailian": bailian,
    "bedrock": bedrock,
    "azure": azure,
    "vertex": vertex,
    "dify": dify,
    "openai": openai_store,
}
FORMS: tuple[str, ...] = tuple(form for provider in _PROVIDERS.values() for form in provider.FORMS)
_LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class Cloud:
    """The retriever that searches one knowledge base at a provider.

    Args:
        secrets: strings that are masked in error messages.
    """

    provider: CloudProvider
    http: JsonClient
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def card(self) -> Card:
        """See `Retriever.card`."""
        return CARD

    async def search(self, query: Query) -> list[Hit]:
        """Return hits sorted by the provider's score, on the provider's own scale; see `Retriever.search`.

        Raises:
            Unavailable: the provider cannot be reached now, or refuses this key or name.
            BadRequest: the provider refuses the filter, or its results cannot be checked against it.
        """
        text = clean_text(query.text)
        if not text:
            return []
        fields = filterable_fields(query.scope) if query.filter else {}
        sent = provider_filter(query.filter, fields, self.provider.express, self.provider.combine)
        # With a filter, the check may drop results, so ask for as many as possible.
        limit = self.provider.max_hits if query.filter else min(query.limit, self.provider.max_hits)
        try:
            found = await self.provider.find(CloudQuery(text, limit, sent, checked=query.filter is not None))
        except ProviderRefusal as error:
            # Raised without its cause, which may contain a key.
            raise self._meant(error, filtered=sent is not None) from None
        except Unavailable as error:
            raise Unavailable(SOURCE, self._clean(error.reason), retry_after_s=error.retry_after_s) from None
        return await asyncio.to_thread(_hits, found, query, fields)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.provider.aclose()
        await self.http.aclose()

    def _meant(self, error: ProviderRefusal, *, filtered: bool) -> RetrievalError:
        """Convert the provider's error to one that tells the user what to do.

        Args:
            filtered: a filter was sent.
        """
        reason = self._clean(error.reason)
        if error.status in (400, 422) and filtered:
            return BadRequest(f"{SOURCE} does not take the filter: {reason}", where="filter")
        if error.status in (401, 403):
            reason = f"the key was refused, set CLOUD_API_KEY to one that may search it ({reason})"
        if error.status == 404:
            reason = f"there is no such knowledge base, correct CLOUD or CLOUD_BASE_URL ({reason})"
        if error.status == 429:
            reason = f"its limit is reached ({reason})"
        return ProviderRefusal(SOURCE, reason, error.status, retry_after_s=error.retry_after_s)

    def _clean(self, reason: str) -> str:
        for secret in self.secrets:
            reason = reason.replace(secret, "***")
        return one_line(reason, _LONGEST_REASON)


def open_cloud(options: Mapping[str, Any]) -> Cloud:
    """Build the knowledge base. CLOUD must be set; see `retrievers.cloud.build`."""
    name, _, rest = options["cloud"].strip().partition(":")
    provider = _PROVIDERS.get(name)
    if provider is None:
        raise _unusable(f'there is no provider "{one_line(name, 40)}"', FORMS)
    key = options.get("cloud_api_key")
    stated = (options.get("cloud_base_url") or "").strip()
    http = JsonClient(SOURCE, secrets=_secrets(key))
    try:
        base_url = check_base_url(stated) if stated else None
        access = ProviderAccess(key, base_url, float(options.get("source_timeout_s", 3.0)), http)
        open_knowledge_base: Callable[[str, ProviderAccess], CloudProvider] = provider.open_knowledge_base
        return Cloud(open_knowledge_base(rest, access), http, _secrets(key))
    except ValueError as error:
        raise _unusable(f"{name} cannot be used: {error}", provider.FORMS) from None


def _hits(found: Iterator[ProviderHit], query: Query, fields: Mapping[str, Field]) -> list[Hit]:
    kept = (one for one in found if not query.filter or satisfies_filter(one, query.filter, fields))
    return convert_provider_hits([_presentable(one) for one in kept], query, SOURCE, by_text=True)


def _presentable(found: ProviderHit) -> ProviderHit:
    """Return a result with cleaned text, limited metadata, and an id: its own, its address or a hash of its text."""
    text = clean_text(found.text)
    id = found.id or safe_link(found.url) or hashlib.sha256(text.encode()).hexdigest()[:16]
    return replace(found, text=text, id=id, metadata=limit_metadata(found.metadata))


def _unusable(reason: str, forms: tuple[str, ...]) -> BadRequest:
    return BadRequest(f"setting CLOUD: {reason}; valid forms: {', '.join(forms)}", where="cloud", valid=forms)


def _secrets(key: str | None) -> tuple[str, ...]:
    """Return the texts to mask: the key, then the secret after its colon, if any. The longer text is masked first."""
    if not key:
        return ()
    secret = key.partition(":")[2]
    return (key, secret) if secret else (key,)
