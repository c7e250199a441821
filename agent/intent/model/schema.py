"""The JSON form in which a model is asked for its reading of a question; `agent.intent.model.reply` reads the reply."""

from typing import Any, ClassVar

from pydantic import RootModel, field_validator

from retrievers.core.errors import join_names
from retrievers.core.filters import OPERATORS

KINDS = ("retrieve", "aggregate", "none")
OPS = ("count", "distinct", "list", "sum", "avg", "median", "min", "max", "group", "top", "share", "difference")
ORDERS = ("asc", "desc")
REPLY_KEYS = (
    "kind", "question", "language", "searches", "filter", "time", "sources", "collections", "aggregate", "confidence",
)  # fmt: skip


class Form(RootModel[dict[str, Any]]):
    """The reply requested of the model. A reply with at least one known key passes; `read_reply` checks the rest."""

    tolerant: ClassVar[bool] = True

    @field_validator("root")
    @classmethod
    def _has_a_part(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not any(part in value for part in REPLY_KEYS):
            raise ValueError(f"it has none of the keys {join_names(REPLY_KEYS)}")
        return value

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
        """Return the JSON schema shown to the model, which is stricter than what `read_reply` accepts."""
        return _SCHEMA


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


_STRING = {"type": "string"}
_SCALAR = [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]
_FILTER_SCHEMA = {"$ref": "#/$defs/filter"}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"type": "string", "enum": list(KINDS)},
        "question": _STRING,
        "language": _STRING,
        "searches": {"type": "array", "items": _STRING},
        "filter": _nullable(_FILTER_SCHEMA),
        "time": _nullable(
            {
                "type": "object",
                "properties": {
                    "key": _STRING,
                    "phrase": _STRING,
                    "from": _nullable(_STRING),
                    "to": _nullable(_STRING),
                },
            }
        ),
        "sources": {"type": "array", "items": _STRING},
        "collections": {"type": "array", "items": _STRING},
        "aggregate": _nullable(
            {
                "type": "object",
                "properties": {
                    "op": {"type": "string", "enum": list(OPS)},
                    "field": _nullable(_STRING),
                    "group_by": _nullable(_STRING),
                    "order": _nullable({"type": "string", "enum": list(ORDERS)}),
                    "limit": _nullable({"type": "integer"}),
                    "where": _nullable(_FILTER_SCHEMA),
                    "between": _nullable({"type": "array", "items": {"anyOf": _SCALAR}}),
                    "decimals": _nullable({"type": "integer"}),
                },
            }
        ),
        "confidence": {"type": "number"},
    },
    "$defs": {
        "filter": {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {
                        "type": {"type": "string", "enum": list(OPERATORS)},
                        "key": _STRING,
                        "value": {"anyOf": [*_SCALAR, {"type": "array", "items": {"anyOf": _SCALAR}}]},
                    },
                },
                {
                    "type": "object",
                    "properties": {
                        "type": {"type": "string", "enum": ["and", "or"]},
                        "filters": {"type": "array", "items": _FILTER_SCHEMA},
                    },
                },
                {
                    "type": "object",
                    "properties": {"type": {"type": "string", "enum": ["not"]}, "filter": _FILTER_SCHEMA},
                },
            ]
        }
    },
}
"""Written by hand, because `read_reply` accepts many more forms than the model is asked for."""
