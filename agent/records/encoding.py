"""Encode records as JSON that PostgreSQL can store, with compact rankings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

Json = dict[str, Any]


def pack_ranking(scores: Sequence[tuple[str, float]]) -> str | list[list[Any]]:
    """Return ids with their scores, to six digits, as one text: [("notes/a#1", 0.5)] -> "0.5 notes/a#1".

    There is a line for each id. If an id contains a line break, return a list of [id, score] instead. Lists for all ids
    would make up most of a record: PostgreSQL would take twice the time to store it and half as much space again.
    """
    text = "\n".join([f"{score:.6g} {id}" for id, score in scores])
    is_plain = text.count("\n") < max(len(scores), 1)
    return text if is_plain else [[id, score] for id, score in scores]


def unpack_rankings(record: Json) -> Json:
    """Return a stored record with every ranking as a list of [id, score]; a score that is not finite becomes None."""

    def listed(ranking: Any) -> Any:
        if not isinstance(ranking, str):
            return ranking
        lines = (line.partition(" ") for line in ranking.split("\n")) if ranking else ()
        return [[id, float(score) if math.isfinite(float(score)) else None] for score, _, id in lines]

    answers = [{**answer, "hits": listed(answer["hits"])} for answer in record["answers"]]
    return {**record, "answers": answers, "ranking": listed(record["ranking"])}


def encode_json(value: Json | Sequence[Json]) -> str:
    """Return the value as JSON that PostgreSQL can store: without NUL, lone surrogates, NaN and infinities."""
    try:
        text = to_json(value, inf_nan_mode="null", fallback=str)
    except (PydanticSerializationError, UnicodeError):
        text = to_json(storable_value(value), inf_nan_mode="null", fallback=str)
    if b"\\u0000" in text:
        text = to_json(storable_value(from_json(text)))
    return text.decode()


def storable_value(value: Any) -> Any:
    """Return the value with NUL replaced by U+FFFD and lone surrogates by "?" in all texts, including keys."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode().replace("\0", "\ufffd")
    if isinstance(value, Mapping):
        return {storable_value(key): storable_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [storable_value(one) for one in value]
    return value
