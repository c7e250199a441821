"""Routes: the sources of a request by its metadata or its user, as the setting ROUTES says."""

import json
from collections.abc import Collection, Sequence
from typing import TypeVar

from agent.options.routes import parse
from agent.types import Request

_USER = "user"

AnyRequest = TypeVar("AnyRequest", bound=Request)


def routed(request: AnyRequest, rules: Sequence[str], existing: Collection[str]) -> AnyRequest:
    """The request with the sources of the first route that it fits, as if its caller had named them.

    A caller's own sources stand. A route leads to nothing that a caller could not name.

    Args:
        rules: of the form of `parse`.
        existing: sources that are configured and that the tenant may ask; a route to none of them is passed over.
    """
    if request.sources is not None or not rules:
        return request
    said = {**request.metadata, **({_USER: request.user} if request.user is not None else {})}
    for key, value, named in map(parse, rules):
        sources = tuple(one for one in named if one in existing)
        if sources and key in said and _text(said[key]) == value:
            return request.model_copy(update={"sources": sources})
    return request


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
