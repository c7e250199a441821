"""A knowledge base behind Dify's external knowledge API: `dify:KNOWLEDGE_ID` with CLOUD_BASE_URL.

CLOUD_BASE_URL is the endpoint as entered in Dify: `/retrieval` is appended to it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

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
from retrievers.http.json_client import ProviderRefusal
from retrievers.http.provider_hits import ProviderHit, finite_number, json_objects, value_at

FORMS = ("dify:KNOWLEDGE_ID",)
_STATUS = {1001: 401, 1002: 403, 2001: 404}
"""HTTP status for the API's error codes: malformed key, refused key, unknown knowledge base."""
_TEXT = {"eq": "is", "in": "in", "contains": "contains", "prefix": "start with"}
_NUMBER = {"eq": "=", "gt": ">", "gte": "≥", "lt": "<", "lte": "≤"}


@dataclass(frozen=True, slots=True)
class DifyKnowledgeBase(CloudProvider):
    access: ProviderAccess
    knowledge_id: str
    url: str
    max_hits: int = 100

    async def find(self, search: CloudQuery) -> Iterator[ProviderHit]:
        """See `CloudProvider.find`."""
        body: dict[str, Any] = {
            "knowledge_id": self.knowledge_id,
            "query": search.text,
            "retrieval_setting": {"top_k": search.limit, "score_threshold": 0.0},
        }
        if search.filter is not None:
            body["metadata_condition"] = search.filter
        headers = {"Authorization": f"Bearer {self.access.key}"}
        try:
            answer = await self.access.http.request_json(
                "POST", self.url, headers=headers, body=body, timeout_s=self.access.timeout_s
            )
        except ProviderRefusal as error:
            raise _refused(error.body, error.reason, error.status, error.retry_after_s) from None
        if "records" not in object_or_empty(answer):
            code = value_at(answer, "error_code")
            if code is None:
                raise Unavailable(SOURCE, "its answer has no records")
            raise _refused(answer, f"error {code}: {value_at(answer, 'error_msg')}", 500, None)
        return (_found(one) for one in json_objects(answer["records"]))

    @staticmethod
    def express(condition: ProviderCondition) -> dict[str, Any] | None:
        values = condition.value if condition.op == "in" else (condition.value,)
        if all(isinstance(one, str) for one in values):
            operator = _TEXT.get(condition.op)
        else:
            operator = None if any(isinstance(one, bool) for one in values) else _NUMBER.get(condition.op)
        if operator is None:
            return None
        value = list(values) if condition.op == "in" else condition.value
        return {
            "logical_operator": "and",
            "conditions": [{"name": condition.key, "comparison_operator": operator, "value": value}],
        }

    @staticmethod
    def combine(how: Literal["and", "or"], parts: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Join filters into one with a flat list of conditions under one operator: the API has no nested conditions.

        A filter that already uses the other operator does not fit in. "and" leaves it out; "or" then returns None.
        """
        flat = [one for one in parts if len(one["conditions"]) == 1 or one["logical_operator"] == how]
        if how == "or" and len(flat) < len(parts):
            return None
        if not flat:
            return parts[0]
        return {"logical_operator": how, "conditions": [condition for one in flat for condition in one["conditions"]]}


def _found(record: Any) -> ProviderHit:
    metadata = object_or_empty(record.get("metadata"))
    link = find_link(metadata)
    return ProviderHit(
        text=record.get("content"),
        title=record.get("title"),
        url=link,
        id=first_text(metadata.get("document_id"), link, metadata.get("path"), record.get("title")),
        score=finite_number(record.get("score")),
        metadata=metadata,
    )


def _refused(body: Any, reason: str, status: int, retry_after_s: float | None) -> ProviderRefusal:
    code = value_at(body, "error_code")
    known = _STATUS.get(code, status) if isinstance(code, int) else status
    return ProviderRefusal(SOURCE, reason, known, retry_after_s=retry_after_s)


def open_knowledge_base(rest: str, access: ProviderAccess) -> DifyKnowledgeBase:
    """Build the knowledge base with this name.

    Raises:
        ValueError: the setting, its key or its address is invalid.
    """
    access.require_key()
    if access.base_url is None:
        raise ValueError("it has no default address: set CLOUD_BASE_URL to the API endpoint that is entered in Dify")
    return DifyKnowledgeBase(access, split_setting(rest, 1)[0], f"{access.base_url}/retrieval")
