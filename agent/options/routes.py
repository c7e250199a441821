"""The option ROUTES: sources by the metadata or the user of a request."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from retrievers import registry
from retrievers.core.errors import listing

FORM = "KEY=VALUE:SOURCE+SOURCE"


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
