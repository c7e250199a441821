"""A knowledge base of Azure AI Search, by agentic retrieval: `azure:KB_NAME` or `azure:https://HOST/KB_NAME`.

With the name of its knowledge source, `azure:KB_NAME/SOURCE_NAME`, records come with their fields, which filters need.
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from retrievers.cloud.filters import ProviderCondition
from retrievers.cloud.provider import (
    SOURCE,
    CloudProvider,
    CloudQuery,
    ProviderAccess,
    check_base_url,
    find_link,
    first_text,
    object_or_empty,
    record_text,
    split_setting,
)
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.http.provider_hits import ProviderHit, clean_text, finite_number, json_objects, value_at
from retrievers.http.response_limits import BadResponse, parse_json

FORMS = (
    "azure:KB_NAME",
    "azure:KB_NAME/SOURCE_NAME",
    "azure:https://HOST/KB_NAME",
    "azure:https://HOST/KB_NAME/SOURCE_NAME",
)
_VERSION = "2026-04-01"
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True, slots=True)
class AzureKnowledgeBase(CloudProvider):
    access: ProviderAccess
    url: str
    source: str | None
    max_hits: int = 100

    async def find(self, search: CloudQuery) -> Iterator[ProviderHit]:
        """See `CloudProvider.find`. `limit` is ignored: the number of results is a setting of the knowledge base."""
        body: dict[str, Any] = {"intents": [{"type": "semantic", "search": search.text}], "includeActivity": False}
        if self.source is None and search.checked:
            mend = "set CLOUD to azure:KB_NAME/SOURCE_NAME, so that its records come with their fields"
            raise BadRequest(
                f"{SOURCE} cannot filter records, because they come without fields: {mend}", where="filter"
            )
        if self.source is not None:
            body["knowledgeSourceParams"] = [
                {
                    "kind": "searchIndex",
                    "knowledgeSourceName": self.source,
                    "includeReferences": True,
                    "includeReferenceSourceData": True,
                    **({} if search.filter is None else {"filterAddOn": search.filter}),
                }
            ]
        answer = await self.access.http.request_json(
            "POST",
            self.url,
            headers={"api-key": self.access.require_key()},
            params={"api-version": _VERSION},
            body=body,
            timeout_s=self.access.timeout_s,
        )
        if not isinstance(value_at(answer, "references"), list):
            raise Unavailable(SOURCE, "its answer has no references")
        passages = await asyncio.to_thread(_passages, answer)
        found = (_found(one, passages) for one in json_objects(answer["references"]))
        # A record without fields cannot be checked against a filter.
        return (one for one in found if one.metadata or not search.checked)

    @staticmethod
    def express(condition: ProviderCondition) -> str | None:
        """Return a condition in OData; None for "contains" and "prefix", and for keys that are no OData names."""
        key, op, value = condition.key, condition.op, condition.value
        if not _FIELD.fullmatch(key) or op in ("contains", "prefix"):
            return None
        if op == "has":
            return f"{key}/any(one: one eq {_literal(value)})"
        if op == "in":
            return "(" + " or ".join(f"{key} eq {_literal(one)}" for one in value) + ")"
        return f"{key} {({'gte': 'ge', 'lte': 'le'}).get(op, op)} {_literal(value)}"

    @staticmethod
    def combine(how: Literal["and", "or"], parts: list[str]) -> str:
        return "(" + f" {how} ".join(parts) + ")"


def _passages(answer: Any) -> dict[str, Any]:
    """Return the passages in an answer, by the id of their reference. They are JSON inside a text of the answer."""
    passages: dict[str, Any] = {}
    for message in json_objects(value_at(answer, "response")):
        for content in json_objects(message.get("content")):
            try:
                extracted = parse_json(content["text"].encode(errors="replace"))
            except (KeyError, AttributeError, ValueError, BadResponse):
                continue  # a written answer, if the knowledge base is configured to give one
            passages |= {str(one.get("ref_id")): one for one in json_objects(extracted)}
    return passages


def _found(reference: Any, passages: dict[str, Any]) -> ProviderHit:
    stored = object_or_empty(reference.get("sourceData"))
    passage = object_or_empty(passages.get(str(reference.get("id"))))
    return ProviderHit(
        text=clean_text(passage.get("content")) or record_text(stored),
        title=first_text(passage.get("title"), stored.get("title"), reference.get("title")) or "",
        url=find_link(stored),
        id=first_text(reference.get("docKey"), reference.get("id")),
        score=finite_number(reference.get("rerankerScore")),
        metadata=stored,
    )


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def open_knowledge_base(rest: str, access: ProviderAccess) -> AzureKnowledgeBase:
    """Build the knowledge base with this name.

    Raises:
        ValueError: the setting, its key or its address is invalid.
    """
    access.require_key()
    base_url = access.base_url
    if "://" in rest:
        parts = urlsplit(check_base_url(rest))
        base_url, rest = f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
    if base_url is None:
        raise ValueError("it has no default address: set CLOUD_BASE_URL to the address of the search service")
    count = 2 if "/" in rest else 1
    name, source = [*split_setting(rest, count), None][:2]
    escaped = quote(str(name).replace("'", "''"), safe="")
    return AzureKnowledgeBase(access, f"{base_url}/knowledgebases('{escaped}')/retrieve", source)
