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
    """A setting is unknown or has an unusable value; the error says where it was set."""


def simplify_message(message: str) -> str:
    """Return a pydantic message in terms of JSON, in lower case: "Tuple should have ..." -> "list should have ..."."""
    for pattern, words in _PLAIN:
        message = pattern.sub(words, message)
    return message[:1].lower() + message[1:]


def error_path(fault: Mapping[str, Any], given: object) -> tuple[int | str, ...]:
    """Return the path to the invalid value in the input: keys and list indexes, outermost first.

    Pydantic also puts the types of a union into the path ("query.constrained-str"); these are left out.

    Args:
        fault: one item of `ValidationError.errors()`.
        given: the whole input.
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


def to_bad_request(error: ValidationError, given: object = None) -> BadRequest:
    """Return a one-line `BadRequest` for a pydantic error. It names the first invalid field and never echoes the input.

    Args:
        given: the input, to shorten paths as `error_path` does; None keeps pydantic's paths.
    """
    first, *others = error.errors(include_input=False, include_url=False)
    path = first["loc"] if given is None else error_path(first, given)
    # A union gives a fault for each of its types, all for the same field. They count as one.
    rest = [one for one in others if given is None or error_path(one, given) != path]
    where = ".".join(str(part) for part in path) or "request"
    more = f" (and {len(rest)} more)" if rest else ""
    return BadRequest(f"{where}: {simplify_message(first['msg'])}{more}", where=where)
