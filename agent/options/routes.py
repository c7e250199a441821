"""The option ROUTES: choose sources by a request's metadata or user."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from retrievers import registry
from retrievers.core.errors import join_names

FORM = "KEY=VALUE:SOURCE+SOURCE"


class Route(NamedTuple):
    """A rule: requests whose metadata has `value` under `key` search only `sources`.

    The key "user" stands for the request's field `user`.
    """

    key: str
    value: str
    sources: tuple[str, ...]


def parse_route(rule: str) -> Route:
    """Return a route: "app=support:fulltext+vector" -> Route("app", "support", ("fulltext", "vector")).

    Raises:
        ValueError: malformed.
    """
    condition, _, named = rule.rpartition(":")
    key, _, value = condition.partition("=")
    sources = tuple(one.strip() for one in named.split("+"))
    if not (key.strip() and value.strip() and all(sources)):
        raise ValueError(f'"{rule[:80]}" is not a route; write {FORM}')
    return Route(key.strip(), value.strip(), sources)


def check_routes(rules: Sequence[str], named: Collection[str]) -> None:
    """Raise ValueError if a route names an unknown source.

    Args:
        rules: routes in the form of `parse_route`.
        named: names of the tables `[sources.NAME]`, which exist beside the built-in sources.
    """
    known = (*registry.names(), *named)
    if unknown := [name for rule in rules for name in parse_route(rule).sources if name not in known]:
        raise ValueError(f"there is no source {join_names(unknown)}; there are: {join_names(known, len(known))}")
