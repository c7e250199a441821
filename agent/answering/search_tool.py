"""Retrieval as a tool of a model: the function schema for OpenAI's APIs, and the text that a call returns."""

import json
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

from pydantic import ValidationError
from pydantic_core import from_json

from agent.errors import to_bad_request
from agent.options.fusion import LEAST_DEPTH, MOST_DEPTH, FusionMethod
from agent.options.rank_features import FORM
from agent.types import MAX_COMPLETE, MAX_TOP_K, Request, Result
from retrievers.core.errors import BadRequest
from retrievers.core.filters import OPERATORS
from retrievers.text.prompt_sanitising import sanitise_prompt_value

NAME = "search_knowledge"
_TOP_K = 5
_DESCRIPTION = "Search the document collections. Returns the passages that fit the question best, with their metadata."
_SCALAR = ("string", "number", "boolean")
_FILTER = {
    "anyOf": [{"$ref": "#/$defs/comparison"}, {"$ref": "#/$defs/group"}, {"$ref": "#/$defs/not"}],
}


def _object(**properties: Any) -> dict[str, Any]:
    """Return an object schema for strict mode: every property required, no others allowed."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_PARAMETERS: dict[str, Any] = {
    **_object(
        query={"type": "string", "description": "a self-contained question or search text"},
        collection={
            "type": ["string", "null"],
            "description": "the collection to search; null searches all collections",
        },
        filter={
            "anyOf": [*_FILTER["anyOf"], {"type": "null"}],
            "description": "a filter on the documents' metadata; null for no filter",
        },
        top_k={
            "type": ["integer", "null"],
            "description": f"maximum number of passages, 1 to {MAX_TOP_K}; null means {_TOP_K}",
        },
        min_relevance={
            "type": ["number", "null"],
            "description": "minimum relevance of a passage, 0 to 1; null means the service's setting",
        },
        reranker={
            "type": ["string", "null"],
            "description": "none, hybrid or the configured reranker; null means the configured reranker",
        },
        fusion={
            "type": ["string", "null"],
            "enum": [*get_args(FusionMethod), None],
            "description": "method that merges the sources' rankings; null means the service's setting",
        },
        lexical_weight={
            "type": ["number", "null"],
            "description": "weight of full text in the fusion convex, 0 to 1; null chooses it by the question",
        },
        depth={
            "type": ["integer", "null"],
            "description": f"hits requested from each source, {LEAST_DEPTH} to {MOST_DEPTH}; null means the setting",
        },
        rank_features={
            "type": ["string", "null"],
            "description": f"further ranking features, separated by commas: {FORM}; null means the service's setting",
        },
        per_document={
            "type": ["integer", "null"],
            "description": "maximum number of passages of one document while other documents are relevant, "
            f"1 to {MAX_TOP_K}; null means the default",
        },
        complete={
            "type": ["boolean", "null"],
            "description": "true returns every document that satisfies the conditions, whatever top_k says, at most "
            f"{MAX_COMPLETE}; null returns the best passages",
        },
    ),
    "$defs": {
        "comparison": _object(
            type={"type": "string", "enum": list(OPERATORS)},
            key={"type": "string", "description": "a metadata field"},
            value={
                "anyOf": [
                    *({"type": kind} for kind in _SCALAR),
                    {"type": "array", "items": {"anyOf": [{"type": kind} for kind in _SCALAR]}},
                ],
                "description": "dates as ISO 8601; a list for in and nin; true or false for exists",
            },
        ),
        "group": _object(type={"type": "string", "enum": ["and", "or"]}, filters={"type": "array", "items": _FILTER}),
        "not": _object(type={"type": "string", "enum": ["not"]}, filter=_FILTER),
    },
}


def schema(
    api: Literal["chat", "responses"] = "chat", *, names: Collection[str] | None = None, about: str = ""
) -> dict[str, Any]:
    """Return the function definition for a request's `tools`, in strict mode.

    Args:
        api: "chat" for chat completions, "responses" for the Responses API, whose form is flat.
        names: names of the arguments to offer; None means all.
        about: text appended to the description.
    Raises:
        BadRequest: `api` has another value.
    """
    parameters = _copy(_PARAMETERS)
    if names is not None:
        parameters["required"] = [name for name in parameters["required"] if name in names]
        parameters["properties"] = {name: parameters["properties"][name] for name in parameters["required"]}
    function = {"name": NAME, "description": _DESCRIPTION + about, "parameters": parameters, "strict": True}
    if api == "chat":
        return {"type": "function", "function": function}
    if api == "responses":
        return {"type": "function", **function}
    raise BadRequest(f'there is no tool format "{api}"; there are: "chat", "responses"', where="api")


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def read_arguments(arguments: str | Mapping[str, Any], *, names: Collection[str] | None = None) -> dict[str, Any]:
    """Return the arguments of a tool call as options of a request; null means not given.

    Args:
        arguments: JSON text, or the decoded object.
        names: names of the arguments that were offered; None means all.
    Raises:
        BadRequest: the arguments are not a JSON object or do not fit the schema.
    """
    try:
        given = from_json(arguments, allow_inf_nan=False) if isinstance(arguments, str) else arguments
    except ValueError:
        raise BadRequest("the arguments are not JSON", where="arguments") from None
    if not isinstance(given, Mapping):
        raise BadRequest("the arguments are not a JSON object", where="arguments")
    names = _PARAMETERS["required"] if names is None else names
    if unknown := [name for name in given if name not in names]:
        what = f"there is no argument {json.dumps(unknown[0])[:80]}; there are: {', '.join(names)}"
        raise BadRequest(what, where="arguments", valid=names)
    options = {"top_k": _TOP_K, **{name: value for name, value in given.items() if value is not None}}
    try:
        Request.model_validate(options)
    except ValidationError as error:
        raise to_bad_request(error, options) from None
    return options


def result_output(result: Result) -> str:
    """Return a result as JSON for the model: passages, status, notes about them, and a calculated table."""
    passages = [
        {
            "n": n, "document_id": hit.document_id, "title": hit.title, "text": hit.text, "url": hit.url,
            "metadata": hit.metadata, "relevance": hit.relevance,
        }
        for n, hit in enumerate(result.hits, 1)
    ]  # fmt: skip
    said: dict[str, Any] = {"status": result.status, "passages": passages}
    if result.refusal is not None:
        said["refusal"] = result.refusal
    if result.table is not None:
        said["table"] = result.table.model_dump(mode="json", include={"columns", "rows"})
    if result.complete is not None:
        said |= {"total_documents": result.total, "complete": result.complete}
    if result.relaxed:
        said["left_out"] = [one.model_dump(mode="json") for one in result.relaxed]
    return json.dumps(sanitise_prompt_value(said), ensure_ascii=False, default=str)


def error_output(error: BadRequest) -> str:
    """Return an error as JSON for the model: what was wrong, and the valid values."""
    said = {"error": str(error), "where": error.where, "valid": list(error.valid)}
    return json.dumps(sanitise_prompt_value(said), ensure_ascii=False)
