"""Build retrievers by name: a module `retrievers.NAME` with a function `build(resources)` is a retriever.

A retriever with several providers is a package of that name with one module per provider.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import retrievers
from retrievers.core.errors import BadRequest, join_names
from retrievers.core.types import Retriever

_OTHER_MODULES = frozenset({"registry", "testing"})
_PACKAGES = frozenset({"cloud", "web"})


@dataclass(frozen=True, slots=True)
class Resources:
    """The objects and settings that retrievers are built from.

    Attributes:
        options: the settings, by name in lower case ("web_provider").
    """

    database: Any
    embedder: Any
    catalogue: Any
    options: Mapping[str, Any] = field(default_factory=dict)


@cache
def names() -> tuple[str, ...]:
    """Return the names of all retrievers, configured or not."""
    found = (one.name for one in iter_modules(retrievers.__path__) if not one.ispkg or one.name in _PACKAGES)
    return tuple(sorted(name for name in found if name not in _OTHER_MODULES))


def build(name: str, resources: Resources) -> Retriever | None:
    """Build the retriever with this name. Return None if the settings do not configure it.

    Raises:
        BadRequest: there is no such retriever, or its settings are invalid. The message names the setting.
    """
    if name not in names():
        raise BadRequest(
            f'there is no source "{name}"; there are: {join_names(names())}', where="sources", valid=names()
        )
    retriever: Retriever | None = import_module(f"retrievers.{name}").build(resources)
    return retriever
