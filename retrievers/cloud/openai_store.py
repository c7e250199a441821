"""A vector store at OpenAI, or at a server that speaks its API: `openai:VECTOR_STORE_ID`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from retrievers.cloud.base import SOURCE, Access, CloudProvider, CloudQuery, link_of, mapping, name_of, names
from retrievers.cloud.filters import FieldComparison
from retrievers.core.errors import Unavailable
from retrievers.http.found import ProviderHit, cleaned, number, part, records

FORMS = ("openai:VECTOR_STORE_ID",)
_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class VectorStore(CloudProvider):
    access: Access
    url: str
    most: int = 50

    async def find(self, search: CloudQuery) -> Iterator[ProviderHit]:
        """See `CloudProvider.find`."""
        body: dict[str, Any] = {"query": search.text, "max_num_results": search.limit}
        if search.filter is not None:
            body["filters"] = search.filter
        headers = {"Authorization": f"Bearer {self.access.key}"}
        answer = await self.access.http.json(
            "POST", self.url, headers=headers, body=body, timeout_s=self.access.timeout_s
        )
        if not isinstance(part(answer, "data"), list):
            raise Unavailable(SOURCE, "its answer has no data")
        return (_found(one) for one in records(answer["data"]))

    @staticmethod
    def spell(condition: FieldComparison) -> dict[str, Any] | None:
        if condition.op in ("contains", "prefix", "has"):
            return None
        value = list(condition.value) if condition.op == "in" else condition.value
        return {"type": condition.op, "key": condition.key, "value": value}

    @staticmethod
    def join(how: Literal["and", "or"], parts: list[dict[str, Any]]) -> dict[str, Any]:
        return {"type": how, "filters": parts}


def _found(result: Any) -> ProviderHit:
    attributes = mapping(result.get("attributes"))
    texts = [cleaned(one.get("text")) for one in records(result.get("content"))]
    return ProviderHit(
        text="\n".join(filter(None, texts)),
        title=result.get("filename"),
        url=link_of(attributes),
        id=name_of(result.get("file_id"), result.get("filename")),
        score=number(result.get("score")),
        metadata=attributes,
    )


def knowledge_base(rest: str, access: Access) -> VectorStore:
    """Build the vector store with this id.

    Raises:
        ValueError: the setting or its key is invalid.
    """
    access.needed_key()
    return VectorStore(access, f"{access.base_url or _URL}/vector_stores/{quote(names(rest, 1)[0], safe='')}/search")
