"""Validate a `[sources.NAME]` table of `signalbox.toml`."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from retrievers.configured_sources import RESERVED, Kind, SourceDefinition, card_of
from retrievers.core.errors import join_names

FORM = "a small letter, then at most 31 small letters, digits and _"
_NAME = r"^[a-z][a-z0-9_]{0,31}$"
_KEYS: dict[Kind, tuple[str, ...]] = {
    "local": ("path",),
    "web": ("provider", "api_key", "api_key_env", "base_url", "fetch"),
    "cloud": ("provider", "api_key", "api_key_env", "base_url"),
    "collections": ("collections",),
}
"""Keys that only a source of this kind has; the first is required."""
_OWN = {key for keys in _KEYS.values() for key in keys}
_SHORT = {"local": "LOCAL", "web": "WEB_PROVIDER", "cloud": "CLOUD"}


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must be one line of printable characters")
    return value


def clean_api_key(key: str | None) -> str | None:
    """Return an API key without surrounding blanks; None if it is empty.

    Raises:
        ValueError: the key cannot be sent in an HTTP header.
    """
    key = key.strip() if key else ""
    if not (key.isascii() and key.isprintable()):
        raise ValueError("it contains a character that no key has")
    return key or None


Collection = Annotated[str, Field(min_length=1, max_length=128)]
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500), AfterValidator(_one_line)]


def _name(value: str) -> str:
    if value in RESERVED:
        raise ValueError(f'"{value}" is a reserved name; choose another')
    return value


SourceName = Annotated[str, StringConstraints(pattern=_NAME), AfterValidator(_name)]


class NamedSource(BaseModel):
    """One table `[sources.NAME]`.

    Attributes:
        description: the content of the source; models and rules choose sources by it.
        examples: questions this source should answer.
        path: the folder of a source of kind "local".
        provider: a value of WEB_PROVIDER for kind "web", of CLOUD for kind "cloud".
        api_key_env: name of the environment variable that holds the key, instead of `api_key`.
        fetch: whether to read the pages that a web search finds.
        collections: names of the collections that a source of kind "collections" searches.
        top_k: maximum number of hits per search.
        min_relevance: hits with a lower relevance are dropped.
        timeout_s: seconds per search; None means SOURCE_TIMEOUT_S.
        cost: US dollars per search; a source with a cost is searched at most METERED_SEARCHES times per question.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Kind
    description: Line
    examples: Annotated[tuple[Line, ...], Field(max_length=10)] = ()
    path: Path | None = None
    provider: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    api_key: Annotated[str | None, AfterValidator(clean_api_key)] = Field(None, repr=False)
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    base_url: str | None = None
    fetch: bool = False
    collections: Annotated[tuple[Collection, ...], Field(max_length=100)] = ()
    top_k: Annotated[int, Field(ge=1, le=1000)] | None = None
    min_relevance: Annotated[float, Field(ge=0, le=1)] | None = None
    timeout_s: Annotated[float, Field(gt=0, le=120)] | None = None
    cost: Annotated[float, Field(ge=0, le=1000)] = 0.0

    @field_validator("examples", "collections", mode="before")
    @classmethod
    def _texts(cls, value: object) -> object:
        # Strict validation accepts only a tuple, and TOML has only lists.
        return tuple(value) if isinstance(value, list) else value

    @field_validator("path", "provider", "base_url", "collections", mode="before")
    @classmethod
    def _has_no_nul(cls, value: object) -> object:
        if any("\0" in str(one) for one in (value if isinstance(value, tuple | list) else (value,))):
            raise ValueError("it contains a NUL character")
        # An empty path would mean the working folder and every file in it.
        return None if value == "" else value

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Self:
        own = _KEYS[self.kind]
        if not getattr(self, own[0]):
            raise ValueError(f"a source of kind {self.kind} needs the key {own[0]}")
        fields = type(self).model_fields
        # Compare values, not keys: the settings of a replay are built from a dump, which has every key.
        if others := sorted(key for key in _OWN - set(own) if getattr(self, key) != fields[key].default):
            raise ValueError(
                f"a source of kind {self.kind} has no key {join_names(others)}; its keys are: {join_names(own)}"
            )
        if self.min_relevance is not None and self.kind in ("web", "cloud"):
            raise ValueError(f"hits of kind {self.kind} have no relevance, so min_relevance has no effect; remove it")
        if self.api_key is not None and self.api_key_env is not None:
            raise ValueError("give api_key or api_key_env, not both")
        return self

    def to_definition(self, name: str) -> SourceDefinition:
        """Return the definition that `retrievers.configured_sources.build` takes; `name` is the table's NAME."""
        limits = {key: getattr(self, key) for key in ("top_k", "min_relevance", "timeout_s", "cost")}
        options = {key: getattr(self, key) for key in _KEYS[self.kind]}
        return SourceDefinition(self.kind, card_of(name, self.kind, self.description, self.examples, **limits), options)


def find_clash(sources: dict[str, NamedSource], given: dict[Literal["local", "web", "cloud"], Any]) -> str | None:
    """Return a message if a table `[sources.NAME]` conflicts with LOCAL, WEB_PROVIDER or CLOUD; None if none does.

    Args:
        sources: the tables by NAME.
        given: values of LOCAL ("local"), WEB_PROVIDER ("web") and CLOUD ("cloud").
    """
    for name, setting in _SHORT.items():
        one = sources.get(name)
        if one is not None and one.kind != name:
            return f'the name "{name}" is reserved for a source of kind {name}; choose another'
        if one is not None and given.get(name):  # type: ignore[call-overload]
            return f"[sources.{name}] and {setting} define the same source; remove one of them"
    return None
