"""A vector store at OpenAI, or at a server that speaks its API: `openai:VECTOR_STORE_ID`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from retrievers.cloud.filters import ProviderCondition
from retrievers.cloud.provider import (
    SOURCE,
    CloudProvider,
    CloudQuery,
    ProviderAccess,
    find_link,
    first_text,
    object_or_empty,
    split_setting,
)
from retrievers.core.errors import Unavailable
from retrievers.http.provider_hits import ProviderHit, clean_text, finite_number, json_objects, value_at

FORMS = ("openai:VECTOR_STORE_ID",)
_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class OpenAIVectorStore(CloudProvider):
    access: ProviderAccess
    url: str
    max_hits: int = 50

    async def find(self, search: CloudQuery) -> Iterator[ProviderHit]:
        """See `CloudProvider.find`."""
        body: dict[str, Any] = {"query": search.text, "max_num_results": search.limit}
        if search.filter is not None:
            body["filters"] = search.filter
        headers = {"Authorization": f"Bearer {self.access.key}"}
        answer = await self.access.http.request_json(
            "POST", self.url, headers=headers, body=body, timeout_s=self.access.timeout_s
        )
        if not isinstance(value_at(answer, "data"), list):
            raise Unavailable(SOURCE, "its answer has no data")
        return (_found(one) for one in json_objects(answer["data"]))

    @staticmethod
    def express(condition: ProviderCondition) -> dict[str, Any] | None:
        if condition.op in ("contains", "prefix", "has"):
            return None
        value = list(condition.value) if condition.op == "in" else condition.value
        return {"type": condition.op, "key": condition.key, "value": value}

    @staticmethod
    def combine(how: Literal["and", "or"], parts: list[dict[str, Any]]) -> dict[str, Any]:
        return {"type": how, "filters": parts}


def _found(result: Any) -> ProviderHit:
    attributes = object_or_empty(result.get("attributes"))
    texts = [clean_text(one.get("text")) for one in json_objects(result.get("content"))]
    return ProviderHit(
        text="\n".join(filter(None, texts)),
        title=result.get("filename"),
        url=find_link(attributes),
        id=first_text(result.get("file_id"), result.get("filename")),
        score=finite_number(result.get("score")),
        metadata=attributes,
    )


def open_knowledge_base(rest: str, access: ProviderAccess) -> OpenAIVectorStore:
    """Build the vector store with this id.

    Raises:
        ValueError: the setting or its key is invalid.
    """
    access.require_key()
    return OpenAIVectorStore(
        access, f"{access.base_url or _URL}/vector_stores/{quote(split_setting(rest, 1)[0], safe='')}/search"
    )
