"""Routes: which sources a request is put to by what its caller says of it, as the setting ROUTES has it."""

import json
from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeVar

from agent.types import Request
from retrievers import registry
from retrievers.core.errors import listing

FORM = "KEY=VALUE:SOURCE+SOURCE"
_USER = "user"

AnyRequest = TypeVar("AnyRequest", bound=Request)


class Route(NamedTuple):
    """Requests whose metadata has this value under this key ("user": whose user it is) are for these sources."""

    key: str
    value: str
    sources: tuple[str, ...]


def parse(rule: str) -> Route:
    """A route of the form `FORM`, such as "app=support:fulltext+vector".

    Raises:
        ValueError: it has another form.
    """
    condition, _, named = rule.rpartition(":")
    key, _, value = condition.partition("=")
    sources = tuple(one.strip() for one in named.split("+"))
    if not (key.strip() and value.strip() and all(sources)):
        raise ValueError(f'"{rule[:80]}" is no route; one looks like {FORM}')
    return Route(key.strip(), value.strip(), sources)


def check(rules: Sequence[str], named: Collection[str]) -> None:
    """Raises ValueError where a route leads to no source.

    Args:
        rules: of the form of `parse`.
        named: the sources that the settings name.
    """
    known = (*registry.names(), *named)
    if unknown := [name for rule in rules for name in parse(rule).sources if name not in known]:
        raise ValueError(f"there is no source {listing(unknown)}; there are: {listing(known, len(known))}")


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
