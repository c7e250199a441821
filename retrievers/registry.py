"""Retrievers by name: a module `retrievers.NAME` with `CARD` and `build(resources)` is a retriever."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from retrievers.core.errors import BadRequest, listing
from retrievers.core.types import Retriever

NAMES = ("vector", "fulltext")


@dataclass(frozen=True, slots=True)
class Resources:
    """What retrievers are built from. A new kind of resource is a new attribute."""

    database: Any
    embedder: Any
    catalogue: Any


def build(name: str, resources: Resources) -> Retriever:
    """The retriever of that name.

    Raises:
        BadRequest: there is none.
    """
    if name not in NAMES:
        raise BadRequest(f'there is no source "{name}"; there are: {listing(NAMES)}', where="sources", valid=NAMES)
    retriever: Retriever = import_module(f"retrievers.{name}").build(resources)
    return retriever
