"""A `[sources.NAME]` table of `signalbox.toml`, checked."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from retrievers.core.errors import listing
from retrievers.named import RESERVED, Kind, SourceDefinition, card_of

FORM = "a small letter, then at most 31 small letters, digits and _"
_NAME = r"^[a-z][a-z0-9_]{0,31}$"
_KEYS: dict[Kind, tuple[str, ...]] = {
    "local": ("path",),
    "web": ("provider", "api_key", "api_key_env", "base_url", "fetch"),
    "cloud": ("provider", "api_key", "api_key_env", "base_url"),
    "collections": ("collections",),
}
"""What a kind has beside what all have; the first is needed."""
_OWN = {key for keys in _KEYS.values() for key in keys}
_SHORT = {"local": "LOCAL", "web": "WEB_PROVIDER", "cloud": "CLOUD"}


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must be one line of printable characters")
    return value


def as_sent(key: str | None) -> str | None:
    """A key as it is sent, without the blanks around it; None for none.

    Raises:
        ValueError: no header could hold it.
    """
    key = key.strip() if key else ""
    if not (key.isascii() and key.isprintable()):
        raise ValueError("it holds a character that no key has")
    return key or None


Collection = Annotated[str, Field(min_length=1, max_length=128)]
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500), AfterValidator(_one_line)]


def _name(value: str) -> str:
    if value in RESERVED:
        raise ValueError(f'"{value}" is the name of a part of the service: take another')
    return value


Name = Annotated[str, StringConstraints(pattern=_NAME), AfterValidator(_name)]


class NamedSource(BaseModel):
    """One named source.

    Attributes:
        description: what it holds, by which models and rules choose.
        examples: questions it is the right source for.
        path: of a folder.
        provider: as WEB_PROVIDER or CLOUD says it.
        api_key_env: the variable of the environment that holds the key, in place of `api_key`.
        top_k: most hits of one search.
        min_relevance: its hits with a lower relevance are left out.
        timeout_s: for one search; SOURCE_TIMEOUT_S when None.
        cost: of one search, in US dollars; what costs is asked METERED_SEARCHES times for a question.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Kind
    description: Line
    examples: Annotated[tuple[Line, ...], Field(max_length=10)] = ()
    path: Path | None = None
    provider: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    api_key: Annotated[str | None, AfterValidator(as_sent)] = Field(None, repr=False)
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
        # A file knows lists alone, and is read strictly.
        return tuple(value) if isinstance(value, list) else value

    @field_validator("path", "provider", "base_url", "collections", mode="before")
    @classmethod
    def _can_be_passed_on(cls, value: object) -> object:
        if any("\0" in str(one) for one in (value if isinstance(value, tuple | list) else (value,))):
            raise ValueError("it holds a NUL character")
        # An empty path would be the working folder, with all that happens to lie there.
        return None if value == "" else value

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Self:
        own = _KEYS[self.kind]
        if not getattr(self, own[0]):
            raise ValueError(f"a source of the kind {self.kind} needs the key {own[0]}")
        fields = type(self).model_fields
        # A dump of the settings, which a replay is made from, holds every key.
        if others := sorted(key for key in _OWN - set(own) if getattr(self, key) != fields[key].default):
            raise ValueError(f"a source of the kind {self.kind} has no key {listing(others)}; its own: {listing(own)}")
        if self.min_relevance is not None and self.kind in ("web", "cloud"):
            raise ValueError(f"the relevance of hits of the kind {self.kind} is not known, so min_relevance has no use")
        if self.api_key is not None and self.api_key_env is not None:
            raise ValueError("api_key and api_key_env exclude each other")
        return self

    def stated(self, name: str) -> SourceDefinition:
        """The source as it is built and chosen."""
        limits = {key: getattr(self, key) for key in ("top_k", "min_relevance", "timeout_s", "cost")}
        options = {key: getattr(self, key) for key in _KEYS[self.kind]}
        return SourceDefinition(self.kind, card_of(name, self.kind, self.description, self.examples, **limits), options)


def clash(sources: dict[str, NamedSource], given: dict[Literal["local", "web", "cloud"], Any]) -> str | None:
    """What is wrong between named sources and the short form of one; None where nothing is.

    Args:
        given: the single settings LOCAL, WEB_PROVIDER and CLOUD.
    """
    for name, setting in _SHORT.items():
        one = sources.get(name)
        if one is not None and one.kind != name:
            return f'the name "{name}" is that of a source of the kind {name}: take another'
        if one is not None and given.get(name):  # type: ignore[call-overload]
            return f"[sources.{name}] and {setting} say the same: remove one"
    return None
