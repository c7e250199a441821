"""Routing rules: choose the sources of a request by its metadata or user, as the setting ROUTES says."""

import json
from collections.abc import Collection, Sequence
from typing import TypeVar

from agent.options.routes import parse_route
from agent.types import Request

_USER = "user"

AnyRequest = TypeVar("AnyRequest", bound=Request)


def apply_routing_rules(request: AnyRequest, rules: Sequence[str], existing: Collection[str]) -> AnyRequest:
    """Return the request with the sources of the first matching route, as if the caller had chosen them.

    A request that already chooses sources is returned unchanged.

    Args:
        rules: the setting ROUTES, in the form that `parse_route` reads, such as "app=support:fulltext+vector".
        existing: names of the configured sources that the tenant may use. A route's other sources are ignored, and a
            route without any of these is skipped.
    """
    if request.sources is not None or not rules:
        return request
    said = {**request.metadata, **({_USER: request.user} if request.user is not None else {})}
    for key, value, named in map(parse_route, rules):
        sources = tuple(one for one in named if one in existing)
        if sources and key in said and _text(said[key]) == value:
            return request.model_copy(update={"sources": sources})
    return request


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
