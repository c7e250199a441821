"""Haystack: a retriever component over an open service.

    pipeline.add_component("retriever", SignalboxRetriever(service, collection="peps", top_k=5))
    pipeline.connect("retriever.documents", "prompt_builder.documents")

`Pipeline.run_async` works with `agent.open_service()` and `open_blocking()`; `Pipeline.run` only with the latter.
"""

from collections.abc import Mapping
from datetime import date
from typing import Any

from agent.integrations import base
from agent.types import Result
from retrievers.core.errors import BadFilter

try:
    from haystack import Document, component
except ImportError as error:
    raise base.missing_package_error(__name__, "haystack-ai", error) from None

_COMPARISONS = {
    "==": "eq", "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "in": "in", "not in": "nin",
}  # fmt: skip
_GROUPS = ("AND", "OR", "NOT")
_NOT_METADATA = ("id", "content", "blob", "score", "embedding", "sparse_embedding")


@component
class SignalboxRetriever:
    """Retrieve documents whose `id` is the passage id, with the score and the metadata of `base.hit_metadata`.

    Args:
        service: from `agent.open_service()` or `agent.integrations.blocking.open_blocking()`.
        filters: in Haystack's form, see `translate_filter`; filters passed to `run` replace them.
        collection, top_k, tenant: sent with every request; None means the service's default.
        options: other keys of `agent.types.Request`, such as sources, intent or reranker.
    """

    def __init__(
        self,
        service: base.AnyService,
        *,
        collection: str | None = None,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        tenant: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        base.check_service(service)
        self._service = service
        self._given = {"collection": collection, "filter": translate_filter(filters), "top_k": top_k, "tenant": tenant}
        self._more = dict(options or {})

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None) -> dict[str, Any]:
        """Return the documents for a question.

        Raises:
            BadFilter: a filter has no signalbox equivalent, or names a field the collection does not have.
            BadRequest, Unavailable: as `Service.retrieve`.
        """
        return _answer(base.retrieve(self._service, query, self._options(filters, top_k)))

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, Any]:
        """As `run`."""
        return _answer(await base.aretrieve(self._service, query, self._options(filters, top_k)))

    def _options(self, filters: dict[str, Any] | None, top_k: int | None) -> dict[str, Any]:
        now = base.merge_options({"filter": translate_filter(filters), "top_k": top_k}, {})
        return base.merge_options(self._given, {**self._more, **now})


def _answer(result: Result) -> dict[str, Any]:
    return {
        "documents": [
            Document(id=hit.id, content=hit.text, meta=base.hit_metadata(result, hit), score=hit.score)
            for hit in result.hits
        ]
    }


def translate_filter(filters: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Translate Haystack's filters into signalbox's grammar.

    Haystack writes `{"operator": "AND", "conditions": [...]}` and `{"field": "meta.year", "operator": ">=", "value":
    2020}`; the "meta." prefix is optional. On a field with a list, "==" and "in" test for a member, while Haystack
    compares the whole list. With "==" and "!=", the value `None` means a missing field. No filters give None.

    Raises:
        BadFilter: malformed, or a field is not metadata.
    """
    return _part(filters, "filters") if filters else None


def _part(node: object, where: str) -> dict[str, Any]:
    if not isinstance(node, Mapping):
        raise BadFilter(f"{where} is not a Haystack condition", where=where)
    if "field" in node:
        return _comparison(node, where)
    operator, conditions = node.get("operator"), node.get("conditions")
    if operator not in _GROUPS:
        raise BadFilter(
            f"{where} needs a field, or an operator that is one of {', '.join(_GROUPS)}",
            where=f"{where}.operator",
            valid=_GROUPS,
        )
    if not isinstance(conditions, list) or not conditions:
        raise BadFilter(f"{where}.conditions must be a list of conditions", where=f"{where}.conditions")
    parts = [_part(one, f"{where}.conditions.{n}") for n, one in enumerate(conditions)]
    if operator == "NOT":
        return {"type": "not", "filter": {"type": "and", "filters": parts}}
    return {"type": "and" if operator == "AND" else "or", "filters": parts}


def _comparison(node: Mapping[str, Any], where: str) -> dict[str, Any]:
    field, operator, value = node["field"], node.get("operator"), node.get("value")
    if operator not in _COMPARISONS:
        raise BadFilter(
            f"{where}.operator must be one of {', '.join(_COMPARISONS)}", where=f"{where}.operator", valid=_COMPARISONS
        )
    if not isinstance(field, str) or field in _NOT_METADATA:
        raise BadFilter(
            f'{where}.field is not metadata: signalbox filters on metadata only, such as "meta.year", or "meta.id" '
            "for the document id",
            where=f"{where}.field",
        )
    key = field.removeprefix("meta.")
    if value is None:
        if operator in ("==", "!="):
            return {"type": "exists", "key": key, "value": operator == "!="}
        raise BadFilter(f'{where}.value is missing: only "==" and "!=" accept None', where=f"{where}.value")
    values = [_value(one) for one in value] if isinstance(value, list) else _value(value)
    return {"type": _COMPARISONS[operator], "key": key, "value": values}


def _value(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else value
