"""Errors of the service itself; errors of sources and storage are in `retrievers.core.errors`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from retrievers.core.errors import BadRequest

_PLAIN = (
    (re.compile(r"^Value error, | after validation| for <class 'pathlib.Path'>"), ""),
    (re.compile(r"^Tuple should"), "List should"),
    (re.compile(r"^Extra inputs are not permitted"), "There is no such key"),
    (re.compile(r"a valid (?:tuple|list|array)\b"), "a list"),
    (
        re.compile(r"(?:a valid dictionary|an object)(?: or (?:instance of \w+|object to extract fields from))?"),
        "an object",
    ),
)


class BadSetting(BadRequest):
    """A setting has an unusable value; the error says where the value came from."""


def plain(message: str) -> str:
    """Rewrite a pydantic message in terms of JSON: "Tuple should ..." becomes "list should ..."."""
    for pattern, words in _PLAIN:
        message = pattern.sub(words, message)
    return message[:1].lower() + message[1:]


def place_of(fault: Mapping[str, Any], given: object) -> tuple[int | str, ...]:
    """Return the path of a pydantic fault in the input, without the names of types that pydantic adds for a union
    ("query.constrained-str").
    """
    path: list[int | str] = []
    for part in fault["loc"]:
        if (isinstance(given, Mapping) and part in given) or (
            isinstance(given, Sequence) and not isinstance(given, str) and isinstance(part, int) and part < len(given)
        ):
            given = given[part]
        elif fault["type"] != "missing" or part != fault["loc"][-1]:
            continue
        path.append(part)
    return tuple(path)


def readable(error: ValidationError, given: object = None) -> BadRequest:
    """Turn a pydantic error into a one-line `BadRequest` that names the field and never echoes the input.

    Args:
        given: the input, to leave out what pydantic adds to the names of fields; None to take them as they are.
    """
    first, *others = error.errors(include_input=False, include_url=False)
    path = first["loc"] if given is None else place_of(first, given)
    # The faults of the other types of a union are of the same field.
    rest = [one for one in others if given is None or place_of(one, given) != path]
    where = ".".join(str(part) for part in path) or "request"
    more = f" (and {len(rest)} more)" if rest else ""
    return BadRequest(f"{where}: {plain(first['msg'])}{more}", where=where)
