"""What the doors of other services' shapes share: bodies, error answers, and what they say of a hit."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from agent.serve.http.problems import Problem
from agent.types import MAX_QUERY_CHARACTERS, RankedHit, Result
from retrievers.core.errors import BadDocument
from retrievers.core.fields import flatten

MOST_ATTRIBUTES = 16
LONGEST_KEY, LONGEST_VALUE = 64, 512
"""In characters; what OpenAI's attributes can hold."""

Attribute = str | int | float | bool
Question = Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS)]


class Tolerant(BaseModel):
    """Base of bodies whose clients may send keys that are not known here: those are passed over."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


def gives(answer: type[BaseModel], error: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """For the OpenAPI document: the answers of a door whose errors have a form of their own."""
    said = "the request is at fault", "not the request's fault; a 503 says when to try again"
    errors: dict[int | str, dict[str, Any]] = {
        code: {"model": error, "description": one} for code, one in zip(("4XX", "5XX"), said, strict=True)
    }
    return {200: {"model": answer}, **errors}


def refusal(problem: Problem, error: BaseModel) -> Response:
    """The problem in another form, where what is wrong with a request is a 400."""
    status = 400 if problem.status == 422 else problem.status
    # What a request named may hold what is no text; as escapes it is none the less JSON.
    return Response(json.dumps(error.model_dump()), status, problem.headers, "application/json")


def hits_of(result: Result) -> Sequence[RankedHit]:
    """The hits of a result, for answers that have no place for anything else.

    Raises:
        Problem: an advisor refused to have the question answered; with what it says.
    """
    if result.refusal is not None:
        raise Problem(403, "refused", result.refusal)
    return result.hits


def above(hits: Sequence[RankedHit], threshold: float | None = None) -> Iterator[tuple[RankedHit, float]]:
    """The hits of a first page with one score from 0 to 1 each, those below the threshold left out.

    The score is the hit's relevance; the reranker's score where one judged the hits; and for a hit from outside, of
    which there is neither, its score as a share of the best hit's. It is never higher than that of the hit before:
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


def name_of(hit: RankedHit) -> str:
    """What a person knows the document by."""
    return hit.title or hit.document_id


def attributes(hit: RankedHit, first: Iterable[str] = ()) -> dict[str, Attribute]:
    """At most 16 texts, numbers and booleans of a hit's metadata, with its URL: what OpenAI's attributes can hold.

    Nested objects have dotted keys, the members of a list stand in one text, and a text is cut to 512 characters.

    Args:
        first: keys that must not be missing where there are more.
    """
    try:
        flat = flatten(dict(hit.metadata))
    except BadDocument:  # it came from elsewhere and is nested as no document of ours
        flat = dict(hit.metadata)
    if hit.url and "url" not in flat:
        flat = {"url": hit.url, **flat}
    wanted = set(first)
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
