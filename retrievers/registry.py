"""Retrievers by name: a module `retrievers.NAME` with `CARD` and `build(resources)` is a retriever."""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import retrievers
from retrievers.core.errors import BadRequest, listing
from retrievers.core.types import Retriever

_OTHER_MODULES = frozenset({"registry", "testing"})


@dataclass(frozen=True, slots=True)
class Resources:
    """What retrievers are built from. A new kind of resource is a new attribute."""

    database: Any
    embedder: Any
    catalogue: Any


@cache
def names() -> tuple[str, ...]:
    """Every retriever: the modules directly in this package."""
    found = (module.name for module in iter_modules(retrievers.__path__) if not module.ispkg)
    return tuple(sorted(name for name in found if name not in _OTHER_MODULES))


def build(name: str, resources: Resources) -> Retriever:
    """The retriever of that name.

    Raises:
        BadRequest: there is none.
    """
    if name not in names():
        raise BadRequest(f'there is no source "{name}"; there are: {listing(names())}', where="sources", valid=names())
    retriever: Retriever = import_module(f"retrievers.{name}").build(resources)
    return retriever
