"""A knowledge base at Alibaba Cloud's Bailian, by either of its APIs.

`bailian:pipeline/NAME` is DashScope's pipeline of this name. `bailian:WORKSPACE/INDEX_ID` is the Retrieve API of
2023-12-29, in Beijing unless CLOUD_BASE_URL names the endpoint of another region.
"""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from retrievers.cloud.alibaba_signature import signed_headers, signed_query_string
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

FORMS = ("bailian:pipeline/NAME", "bailian:WORKSPACE/INDEX_ID")
_MOST = 20
"""Maximum number of reranked passages. Without reranking, the passages of the two searches are returned unranked."""
_CANDIDATES = 100
_PIPELINES = "https://dashscope.aliyuncs.com"
_RETRIEVE = "https://bailian.cn-beijing.aliyuncs.com"
_LONGEST_QUERY = 1_000
"""Maximum length of a question in characters: it is part of the address, where a Chinese character takes nine."""


@dataclass(slots=True)
class BailianPipeline(CloudProvider):
    access: ProviderAccess
    name: str
    url: str
    max_hits: int = _MOST
    _id: str | None = field(default=None, init=False)

    async def find(self, search: CloudQuery) -> Iterator[ProviderHit]:
        """See `CloudProvider.find`. The API has no filters: the whole filter is applied to its answer."""
        headers = {"Authorization": f"Bearer {self.access.key}"}
        self._id = self._id or await self._looked_up(headers)
        body = {
            "query": search.text,
            "dense_similarity_top_k": _CANDIDATES,
            "sparse_similarity_top_k": _CANDIDATES,
            "enable_reranking": True,
            "rerank_top_n": search.limit,
        }
        url = f"{self.url}/pipeline/{quote(self._id, safe='')}/retrieve"
        try:
            answer = await self.access.http.request_json(
                "POST", url, headers=headers, body=body, timeout_s=self.access.timeout_s
            )
        except ProviderRefusal as error:
            if error.status == 404:
                self._id = None  # it may have been recreated under the same name
            raise
        _check(answer, "code", "message")
        nodes = (
            (object_or_empty(one.get("node")), one.get("score")) for one in json_objects(value_at(answer, "nodes"))
        )
        return (_found(node.get("text"), score, object_or_empty(node.get("metadata"))) for node, score in nodes)

    async def _looked_up(self, headers: dict[str, str]) -> str:
        params = {"pipeline_name": self.name}
        answer = await self.access.http.request_json(
            "GET", f"{self.url}/pipeline_simple", headers=headers, params=params, timeout_s=self.access.timeout_s
        )
        if not isinstance(answer, dict):
            raise Unavailable(SOURCE, "its answer has an unknown format")
        id = first_text(answer.get("id"))
        if id is None:
            code = first_text(answer.get("code")) or ""
            said = first_text(answer.get("message"), code) or "no reason given"
            raise ProviderRefusal(SOURCE, f"Index:{self.name} NotExist: {said}", _status(code, 404))
        return id


@dataclass(frozen=True, slots=True)
class BailianIndex(CloudProvider):
    access: ProviderAccess
    workspace: str
    index_id: str
    url: str
    key_id: str
    secret: str = field(repr=False)
    max_hits: int = _MOST

    async def find(self, search: CloudQuery) -> Iterator[ProviderHit]:
        """See `CloudProvider.find`."""
        params = {
            "IndexId": self.index_id,
            "Query": search.text[:_LONGEST_QUERY],
            "DenseSimilarityTopK": str(_CANDIDATES),
            "SparseSimilarityTopK": str(_CANDIDATES),
            "EnableReranking": "true",
            "RerankTopN": str(search.limit),
        }
        if search.filter is not None:
            params["SearchFilters"] = json.dumps(search.filter, ensure_ascii=False)
        path, query = f"/{quote(self.workspace, safe='-_.~')}/index/retrieve", signed_query_string(params)
        headers = signed_headers(
            "POST",
            urlsplit(self.url).netloc,
            path,
            query,
            action="Retrieve",
            version="2023-12-29",
            key_id=self.key_id,
            secret=self.secret,
            date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            nonce=uuid.uuid4().hex,
        )
        try:
            # One attempt only: the service refuses a signature that it has seen before.
            answer = await self.access.http.request_json(
                "POST", f"{self.url}{path}?{query}", headers=headers, timeout_s=self.access.timeout_s, attempts=1
            )
        except ProviderRefusal as error:
            status = _status(first_text(value_at(error.body, "Code")) or "", error.status)
            raise ProviderRefusal(SOURCE, error.reason, status, retry_after_s=error.retry_after_s) from None
        _check(answer, "Code", "Message")
        return (
            _found(one.get("Text"), one.get("Score"), object_or_empty(one.get("Metadata")))
            for one in json_objects(value_at(answer, "Data", "Nodes"))
        )

    @staticmethod
    def express(condition: ProviderCondition) -> list[dict[str, Any]] | None:
        """Return an equality condition as a list of one group, {key: value}. None for booleans and other conditions."""
        if condition.op != "eq" or isinstance(condition.value, bool):
            return None
        return [{condition.key: condition.value}]

    @staticmethod
    def combine(how: Literal["and", "or"], parts: list[list[dict[str, Any]]]) -> list[dict[str, Any]] | None:
        """Return the groups of all `parts` as one list for "and"; None for "or", which the API does not have."""
        return [group for part in parts for group in part] if how == "and" else None


def _check(answer: Any, code_key: str, message_key: str) -> None:
    """Check an answer of HTTP status 200, which can contain an error.

    Raises:
        ProviderRefusal: the answer contains an error.
        Unavailable: the answer has an unknown format.
    """
    code, success = value_at(answer, code_key), value_at(answer, "Success")
    if code is None and success is None:
        raise Unavailable(SOURCE, "its answer has an unknown format")
    if success is False or (success is None and code != "Success"):
        said = first_text(value_at(answer, message_key), code) or "no reason given"
        status = first_text(value_at(answer, "Status")) or ""
        known = _status(first_text(code) or "", int(status) if status.isdecimal() and len(status) == 3 else 500)
        raise ProviderRefusal(SOURCE, f"{first_text(code) or 'error'}: {said}", known)


def _status(code: str, otherwise: int) -> int:
    """Return the HTTP status that an error code means: the API sends 404 even for an unknown key."""
    code = code.lower()
    if any(word in code for word in ("accesskey", "signature", "apikey", "forbidden", "permission", "denied")):
        return 403
    if "throttl" in code or "quota" in code:
        return 429
    return 404 if "notexist" in code or "notfound" in code or "not_exist" in code else otherwise


def _found(text: Any, score: Any, metadata: Any) -> ProviderHit:
    title = first_text(metadata.get("title"), metadata.get("doc_name")) or ""
    id = first_text(metadata.get("doc_id"), metadata.get("doc_name"))
    return ProviderHit(text, title, find_link(metadata), id, finite_number(score), metadata)


def open_knowledge_base(rest: str, access: ProviderAccess) -> CloudProvider:
    """Build the pipeline or index with this name.

    Raises:
        ValueError: the setting or its key is invalid.
    """
    first, second = split_setting(rest, 2)
    if first == "pipeline":
        access.require_key()
        return BailianPipeline(access, second, f"{access.base_url or _PIPELINES}/api/v1/indices")
    key_id, secret = access.key_pair()
    base_url = access.base_url or _RETRIEVE
    if urlsplit(base_url).path:
        raise ValueError("CLOUD_BASE_URL must be an endpoint without a path")
    return BailianIndex(access, first, second, base_url, key_id, secret)
