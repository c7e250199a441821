"""LlamaIndex: a retriever over an open service.

    engine = RetrieverQueryEngine.from_args(SignalboxRetriever(service, collection="peps", top_k=5))

`aretrieve` and other async methods work with `agent.open_service()` and `open_blocking()`; `retrieve` only with the
latter.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from agent.integrations import base
from agent.types import Result
from retrievers.core.errors import BadFilter

try:
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
    from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
except ImportError as error:
    raise base.missing_package_error(__name__, "llama-index-core", error) from None

_COMPARISONS = {
    "==": "eq", "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "in": "in", "nin": "nin",
    "contains": "contains", "text_match": "contains",
}  # fmt: skip


class SignalboxRetriever(BaseRetriever):  # type: ignore[misc]
    """Retrieve nodes whose `id_` is the passage id and whose source node is the document.

    The metadata are those of `base.hit_metadata`. Everything that signalbox adds to the document's own metadata is
    hidden from models (`excluded_llm_metadata_keys`).

    Args:
        service: from `agent.open_service()` or `agent.integrations.blocking.open_blocking()`.
        filters: LlamaIndex's `MetadataFilters`, or a filter in signalbox's grammar.
        collection, top_k, tenant: sent with every request; None means the service's default.
        options: other keys of `agent.types.Request`, such as sources, intent or reranker.
        more: arguments of LlamaIndex's `BaseRetriever`, such as callback_manager.
    Raises:
        BadFilter: a filter has no signalbox equivalent.
    """

    def __init__(
        self,
        service: base.AnyService,
        *,
        collection: str | None = None,
        filters: "MetadataFilters | Mapping[str, Any] | None" = None,
        top_k: int | None = None,
        tenant: str | None = None,
        options: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        base.check_service(service)
        wanted = translate_filter(filters) if isinstance(filters, MetadataFilters) else filters
        given = {"collection": collection, "filter": wanted, "top_k": top_k, "tenant": tenant}
        self._service = service
        self._options = base.merge_options(given, options or {})

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(base.retrieve(self._service, query_bundle.query_str, self._options))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(await base.aretrieve(self._service, query_bundle.query_str, self._options))


class PassageNode(TextNode):  # type: ignore[misc]
    """A passage as a node.

    Its hash ignores the metadata, in which ranks and scores differ between searches. So LlamaIndex recognises the same
    passage in two searches and merges its hits.
    """

    @property
    def hash(self) -> str:
        """Hash of the passage's id and text."""
        return hashlib.sha256(f"{self.node_id}\n{self.text}".encode()).hexdigest()


def _nodes(result: Result) -> list[NodeWithScore]:
    hidden = [base.PROVENANCE]
    return [
        NodeWithScore(
            node=PassageNode(
                id_=hit.id,
                text=hit.text,
                metadata=base.hit_metadata(result, hit),
                excluded_llm_metadata_keys=hidden,
                excluded_embed_metadata_keys=hidden,
                start_char_idx=hit.start,
                end_char_idx=hit.end,
                relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=hit.document_id)},
            ),
            score=hit.score,
        )
        for hit in result.hits
    ]


def translate_filter(filters: MetadataFilters) -> dict[str, Any] | None:
    """Translate LlamaIndex's filters into signalbox's grammar with the same meaning; None if there are no conditions.

    Raises:
        BadFilter: an operator has no equivalent.
    """
    parts = [one for part in filters.filters if (one := _one(part)) is not None]
    if not parts:
        return None
    condition = getattr(filters.condition, "value", "and")
    if condition == "not":  # in LlamaIndex, "not" means that none of the filters is satisfied
        return {"type": "not", "filter": {"type": "or", "filters": parts}}
    return parts[0] if len(parts) == 1 else {"type": condition, "filters": parts}


def _one(part: "MetadataFilter | MetadataFilters") -> dict[str, Any] | None:
    if isinstance(part, MetadataFilters):
        return translate_filter(part)
    operator, key, value = part.operator.value, part.key, part.value
    if operator == "is_empty":
        return {"type": "exists", "key": key, "value": False}
    if operator in ("any", "all"):
        values = value if isinstance(value, list) else [value]
        how = "or" if operator == "any" else "and"
        return {"type": how, "filters": [{"type": "contains", "key": key, "value": one} for one in values]}
    if operator not in _COMPARISONS:
        valid = (*_COMPARISONS, "any", "all", "is_empty")
        raise BadFilter(
            f'the LlamaIndex operator "{operator}" is not supported; valid: {", ".join(valid)}',
            where="filters",
            valid=valid,
        )
    return {"type": _COMPARISONS[operator], "key": key, "value": value}
