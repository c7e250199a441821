"""Shared code of the endpoints that imitate other services: bodies, errors and hit attributes."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from agent.serve.http.problems import Problem
from agent.types import MAX_QUERY_CHARACTERS, RankedHit, Result
from retrievers.core.errors import BadDocument
from retrievers.core.metadata import flatten_metadata

MOST_ATTRIBUTES = 16
LONGEST_KEY, LONGEST_VALUE = 64, 512
"""Limits in characters of OpenAI's attributes."""

Attribute = str | int | float | bool
QueryText = Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS)]


class LenientModel(BaseModel):
    """Base of request bodies in which unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


def openapi_responses(answer: type[BaseModel], error: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Return what the OpenAPI document lists as responses of an endpoint: `answer` for 200, `error` for 4XX and 5XX."""
    said = "the request is wrong", "the service failed; a 503 says when to try again"
    errors: dict[int | str, dict[str, Any]] = {
        code: {"model": error, "description": one} for code, one in zip(("4XX", "5XX"), said, strict=True)
    }
    return {200: {"model": answer}, **errors}


def error_response(problem: Problem, error: BaseModel) -> Response:
    """Return a response with the body `error` and the problem's status and headers; a 422 becomes a 400."""
    status = 400 if problem.status == 422 else problem.status
    # A quoted name may hold half of a surrogate pair; JSON escapes can still encode it.
    return Response(json.dumps(error.model_dump()), status, problem.headers, "application/json")


def require_hits(result: Result) -> Sequence[RankedHit]:
    """Return the hits of a result, for responses that have no place for a refusal.

    Raises:
        Problem: 403 with the advisor's text if an advisor refused the question.
    """
    if result.refusal is not None:
        raise Problem(403, "refused", result.refusal)
    return result.hits


def scored_hits(hits: Sequence[RankedHit], threshold: float | None = None) -> Iterator[tuple[RankedHit, float]]:
    """Yield each hit of a first page with a score from 0 to 1; skip hits whose score is below the threshold.

    The score is the reranker's score if a reranker judged the hit, otherwise its relevance. An external hit that has
    neither gets its own score divided by the first hit's. A score is never higher than the previous one, because
    clients sort by it.
    """
    best = hits[0].score if hits and hits[0].score > 0 else 1.0
    lowest = 1.0
    for hit in hits:
        own = max(_own_score(hit, best), 0.0)
        if threshold is None or own >= threshold:
            lowest = min(lowest, own)
            yield hit, lowest


def _own_score(hit: RankedHit, best: float) -> float:
    if "rerank" in hit.scores:
        return hit.score
    return hit.score / best if hit.relevance is None else hit.relevance


def document_title(hit: RankedHit) -> str:
    """Return the name of the hit's document for people: its title, or else its id."""
    return hit.title or hit.document_id


def hit_attributes(hit: RankedHit, preferred_keys: Iterable[str] = ()) -> dict[str, Attribute]:
    """Return at most 16 metadata values of a hit, with its URL, within the limits of OpenAI's attributes.

    Nested objects get dotted keys, lists are joined into one text, and a text is cut to 512 characters.

    Args:
        preferred_keys: keys to keep if there are more than 16.
    """
    try:
        flat = flatten_metadata(dict(hit.metadata))
    except BadDocument:  # a document of an external source may be nested deeper than stored ones
        flat = dict(hit.metadata)
    if hit.url and "url" not in flat:
        flat = {"url": hit.url, **flat}
    wanted = set(preferred_keys)
    held: dict[str, Attribute] = {}
    for key in sorted(flat, key=lambda key: key not in wanted):
        value = _attribute(flat[key])
        if value is not None and len(key) <= LONGEST_KEY and len(held) < MOST_ATTRIBUTES:
            held[key] = value
    return held


def _attribute(value: object) -> Attribute | None:
    if isinstance(value, bool) or (isinstance(value, int | float) and math.isfinite(value)):
        return value
    if isinstance(value, list):
        value = ", ".join(str(one) for one in value if isinstance(one, str | int | float))
    return value[:LONGEST_VALUE] if isinstance(value, str) else None
