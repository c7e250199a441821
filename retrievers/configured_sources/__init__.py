"""Sources that the settings declare by name, of any number: folders, web searches, knowledge bases, collection groups.

    [sources.bios]                # in signalbox.toml
    kind = "local"
    path = "bios"
    description = "Biographies of the people who founded the company"

The settings LOCAL, WEB_PROVIDER and CLOUD are the short form for one source of a kind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from retrievers import cloud, local, web
from retrievers.configured_sources.collection_group import CollectionGroup
from retrievers.configured_sources.renamed_source import RenamedSource, replace_setting_names
from retrievers.core.errors import BadRequest
from retrievers.core.types import Card, Retriever
from retrievers.registry import Resources

Kind = Literal["local", "web", "cloud", "collections"]
RESERVED = frozenset(
    ("vector", "fulltext", "sql", "none", "database", "embedder", "model", "reranker", "disk", "worker", "other")
)
"""Names that no source may have, because `/readyz` and `/metrics` use them for other parts of the service."""

# By kind of source: for each key of a `[sources.NAME]`, the top-level setting with the same meaning. The builders know
# only the settings and name them in their errors, where the key replaces them.
_SHORT: Mapping[str, Mapping[str, str]] = {
    "local": {"path": "LOCAL"},
    "web": {"provider": "WEB_PROVIDER", "api_key": "WEB_API_KEY", "base_url": "WEB_BASE_URL", "fetch": "WEB_FETCH"},
    "cloud": {"provider": "CLOUD", "api_key": "CLOUD_API_KEY", "base_url": "CLOUD_BASE_URL"},
}
_BUILDERS = {"web": web.build, "cloud": cloud.build}


@dataclass(frozen=True, slots=True)
class SourceDefinition:
    """A source as declared in the settings.

    Attributes:
        options: `path`, `provider`, `api_key`, `base_url`, `fetch` and `collections`, if the kind has them.
    """

    kind: Kind
    card: Card
    options: Mapping[str, Any] = field(repr=False)


def card_of(name: str, kind: Kind, description: str, examples: Sequence[str] = (), **limits: Any) -> Card:
    """Build the card (description) of a named source. `limits` are further attributes of `Card`."""
    kinds: Mapping[Kind, Literal["documents", "outside"]] = {"web": "outside", "cloud": "outside"}
    return Card(
        name, description, kinds.get(kind, "documents"), tuple(examples), named=True, part=kind == "collections",
        world=kind == "web", **limits,
    )  # fmt: skip


def build(
    stated: SourceDefinition, resources: Resources, sources: Mapping[str, Retriever], *, timeout_s: float
) -> Retriever:
    """Build the retriever of a named source.

    Args:
        stated: the declaration of the source.
        sources: retrievers of the database by name. A group of collections uses "fulltext" and "vector".
        timeout_s: time limit of one search, in seconds, if the source declares none.
    Raises:
        BadRequest: the declaration is invalid. The message names the key in the settings.
    """
    card, options = stated.card, stated.options
    if stated.kind == "local":
        path = Path(options["path"])
        return local.Local.folder(path, resources.embedder, card=card, setting=f"sources.{card.name}.path")
    if stated.kind == "collections":
        return CollectionGroup(
            card, tuple(options["collections"]), {name: sources[name] for name in ("fulltext", "vector")}
        )
    short = _SHORT[stated.kind]
    words = {setting: f"sources.{card.name}.{key}" for key, setting in short.items()}
    given = {setting.lower(): options.get(key) for key, setting in short.items()}
    given["source_timeout_s"] = card.timeout_s or timeout_s
    try:
        inner = _BUILDERS[stated.kind](replace(resources, options=given))
    except BadRequest as error:
        where = next((key for key, setting in short.items() if setting.lower() == error.where), "provider")
        reason = replace_setting_names(str(error), words)
        raise BadRequest(reason, where=f"sources.{card.name}.{where}", valid=error.valid) from None
    if inner is None:
        raise BadRequest(f"setting sources.{card.name}.provider is empty", where=f"sources.{card.name}.provider")
    return RenamedSource(card, inner, words)
