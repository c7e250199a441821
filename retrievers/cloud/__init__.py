"""A knowledge base kept by a cloud provider, searched through its API: CLOUD=PROVIDER:NAME.

bailian:pipeline/NAME            DashScope's retrieval pipeline; CLOUD_API_KEY is the DashScope key
bailian:WORKSPACE/INDEX_ID       Bailian's Retrieve API; CLOUD_API_KEY is ACCESS_KEY_ID:ACCESS_KEY_SECRET
bedrock:REGION/KB_ID             Amazon Bedrock; CLOUD_API_KEY likewise, or AWS's own places for credentials
azure:KB_NAME                    Azure AI Search at CLOUD_BASE_URL, or azure:https://HOST/KB_NAME; filters need
azure:KB_NAME/SOURCE_NAME        the name of the knowledge source of kind searchIndex
vertex:PROJECT/LOCATION/STORE    Vertex AI Search; CLOUD_API_KEY is a bearer token, or Google's own places
dify:KNOWLEDGE_ID                Dify's external knowledge API at CLOUD_BASE_URL
openai:VECTOR_STORE_ID           OpenAI, or CLOUD_BASE_URL
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from retrievers.cloud import azure, bailian, bedrock, dify, openai_store, vertex
from retrievers.cloud.base import SOURCE, Access, Provider, Search, bounded, web_address
from retrievers.cloud.filters import satisfies
from retrievers.core.errors import BadRequest, RetrievalError, Unavailable
from retrievers.core.types import Card, Hit, Query
from retrievers.http.client import Client, Refused
from retrievers.http.found import cleaned, hits_of
from retrievers.ingest.clean import one_line
from retrievers.postgres.catalogue import filterable
from retrievers.registry import Resources

CARD = Card(
    name=SOURCE,
    good_for="documents of a knowledge base kept elsewhere, which the collections here do not hold",
    kind="outside",
    examples=("What does the cloud knowledge base say about refunds?", "云端知识库里关于报销的规定是什么?"),
)
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
    """The retriever over one knowledge base.

    Args:
        secrets: what no error may repeat.
    """

    provider: Provider
    http: Client
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def card(self) -> Card:
        """See `Retriever.card`."""
        return CARD

    async def search(self, query: Query) -> list[Hit]:
        """Hits by the provider's score, whatever that is; see `Retriever.search`.

        Raises:
            Unavailable: the provider cannot be asked now, or not with this key or name.
            BadRequest: it does not take the filter, or answers nothing the filter could be held against.
        """
        text = cleaned(query.text)
        if not text:
            return []
        fields = filterable(query.scope) if query.filter else {}
        # Of what it finds, some may have to be left out.
        limit = self.provider.most if query.filter else min(query.limit, self.provider.most)
        try:
            found = await self.provider.find(Search(text, limit, query.filter, fields))
        except Refused as error:
            # Without its cause: that may repeat a key.
            raise self._meant(error, filtered=query.filter is not None) from None
        except Unavailable as error:
            raise Unavailable(SOURCE, self._clean(error.reason), retry_after_s=error.retry_after_s) from None
        if query.filter:
            found = [one for one in found if satisfies(one, query.filter, fields)]
        return hits_of([replace(one, metadata=bounded(one.metadata)) for one in found], query, SOURCE)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.provider.aclose()
        await self.http.aclose()

    def _meant(self, error: Refused, *, filtered: bool) -> RetrievalError:
        """What an error answer means to whoever reads it."""
        reason = self._clean(error.reason)
        if error.status in (400, 422) and filtered:
            return BadRequest(f"{SOURCE} does not take the filter: {reason}", where="filter")
        if error.status in (401, 403):
            reason = f"the key was refused, set CLOUD_API_KEY to one that may search it ({reason})"
        if error.status == 404:
            reason = f"there is no such knowledge base, correct CLOUD or CLOUD_BASE_URL ({reason})"
        if error.status == 429:
            reason = f"its limit is reached ({reason})"
        return Refused(SOURCE, reason, error.status, retry_after_s=error.retry_after_s)

    def _clean(self, reason: str) -> str:
        for secret in self.secrets:
            reason = reason.replace(secret, "***")
        return one_line(reason, _LONGEST_REASON)


def build(resources: Resources) -> Cloud | None:
    """The retriever over the knowledge base that CLOUD names; None when it names none.

    Raises:
        BadRequest: CLOUD is of no known form, or lacks its key or address.
    """
    options = resources.options
    stated = options.get("cloud")
    if not stated:
        return None
    name, _, rest = stated.partition(":")
    provider = _PROVIDERS.get(name)
    if provider is None:
        raise _unusable(f'"{one_line(name, 40)}" is no provider', FORMS)
    key = options.get("cloud_api_key")
    secrets = _secrets(key)
    http = Client(SOURCE, secrets=secrets)
    try:
        address = options.get("cloud_base_url")
        base_url = web_address(address) if address else None
        access = Access(key, base_url, options.get("source_timeout_s", 3.0), http)
        connect: Callable[[str, Access], Provider] = provider.connect
        return Cloud(connect(rest, access), http, secrets)
    except ValueError as error:
        raise _unusable(f"{name} cannot be used: {error}", provider.FORMS) from None


def _unusable(reason: str, forms: tuple[str, ...]) -> BadRequest:
    return BadRequest(f"setting CLOUD: {reason}; valid forms: {', '.join(forms)}", where="cloud", valid=forms)


def _secrets(key: Any) -> tuple[str, ...]:
    """The key, and the half of it that is secret; the longer one first, so that nothing of it is left."""
    if not key:
        return ()
    secret = key.partition(":")[2]
    return (key, secret) if secret else (key,)
