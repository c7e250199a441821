"""Retrievers by name: a module `retrievers.NAME` with `build(resources)` is a retriever.

One of several providers is a package of that name, with a module for each provider.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import retrievers
from retrievers.core.errors import BadRequest, listing
from retrievers.core.types import Retriever

_OTHER_MODULES = frozenset({"registry", "testing"})
_PACKAGES = frozenset({"cloud", "web"})


@dataclass(frozen=True, slots=True)
class Resources:
    """What retrievers are built from. A new kind of resource is a new attribute.

    Attributes:
        options: the settings, by name in lower case ("web_provider").
    """

    database: Any
    embedder: Any
    catalogue: Any
    options: Mapping[str, Any] = field(default_factory=dict)


@cache
def names() -> tuple[str, ...]:
    """Every retriever, whether it is configured or not."""
    found = (one.name for one in iter_modules(retrievers.__path__) if not one.ispkg or one.name in _PACKAGES)
    return tuple(sorted(name for name in found if name not in _OTHER_MODULES))


def build(name: str, resources: Resources) -> Retriever | None:
    """The retriever of that name; None when the settings do not ask for it.

    Raises:
        BadRequest: there is none, or the settings ask for one that cannot be; names the setting.
    """
    if name not in names():
        raise BadRequest(f'there is no source "{name}"; there are: {listing(names())}', where="sources", valid=names())
    retriever: Retriever | None = import_module(f"retrievers.{name}").build(resources)
    return retriever
