"""The values that pass between the stages. All are frozen; a stage returns new ones."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from retrievers.core.aggregates import Aggregate
from retrievers.core.fields import Field
from retrievers.core.filters import Filter
from retrievers.core.places import Places

PLATFORM = "0"
"""The tenant whose public documents every tenant may read."""


EVERYTHING = ("*",)
"""In place of principals: reads what has readers, whoever they are."""


class Viewer(NamedTuple):
    """On whose behalf something is read.

    Attributes:
        principals: users and groups of the tenant, sorted; without any, only what has no readers is seen.
    """

    tenant: str
    principals: tuple[str, ...] = ()

    @classmethod
    def of(cls, who: "str | Viewer") -> "Viewer":
        """A tenant by its name alone is without principals."""
        return cls(who) if isinstance(who, str) else who

    def sees_all_of(self, principals: Iterable[str]) -> bool:
        """Whether everything that these principals see is seen."""
        return self.principals == EVERYTHING or set(principals) <= set(self.principals)

    def erases(self, principals: tuple[str, ...]) -> bool:
        """Whether what was asked as these principals may be erased, as the database has it (`signalbox.erases`)."""
        return self.sees_all_of(principals) and (bool(principals) or self.principals in ((), EVERYTHING))


def whole(tenant: str) -> Viewer:
    """Who sees everything of a tenant: the operator, and ingestion."""
    return Viewer(tenant, EVERYTHING)


class ChunkId(NamedTuple):
    """Identity of a chunk. Its order breaks ties between equal scores, so it holds no serial number."""

    tenant: str
    collection: str
    document_id: str
    ordinal: int

    def __str__(self) -> str:
        tenant, collection, document_id, ordinal = self
        if tenant == PLATFORM:
            return f"{PLATFORM}:{collection}/{document_id}#{ordinal}"
        return f"{collection}/{document_id}#{ordinal}"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Identity and text of one passage.

    Attributes:
        start, end: the passage's place in its document's text, in characters, half-open.
        heading: titles of the sections around it, outermost first, joined by " > ".
        gap: the white space between it and the document's next passage.
        metadata: the document's own, as it was given.
        important, questions: the document's key terms and the questions it answers; only rerankers by words have
            them read.
        places: where in its file the passage stands; characters are the document's.
    """

    id: ChunkId
    title: str
    text: str
    url: str | None = None
    heading: str = ""
    start: int = 0
    end: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    gap: str = "\n"
    important: Sequence[str] = ()
    questions: Sequence[str] = ()
    places: Places | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that a source calculated, and the statement they came from."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    sql: str


class Hit(NamedTuple):
    """A chunk in one ranking, with that ranking's score.

    `chunk` is None until its text is read: searches in PostgreSQL return identities, and only the few
    that survive fusion are read. Scores of different sources are not comparable. `table` is what the
    source calculated, on the first of its hits. `parts` is what the score is made of, where a source
    measures as others do: by the name of the source whose scores each can be compared with.
    """

    id: ChunkId
    score: float
    source: str
    chunk: Chunk | None = None
    table: Table | None = None
    parts: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """One collection as a search needs it.

    Attributes:
        number: its short number inside the database, also the prefix of its lexemes.
        embedder: name of the embedder its vectors were made with, None while it holds none.
        embedder_number: number of that embedder's index, None while it holds none.
        mean_length: BM25's average chunk length in use, in words.
        languages: how many documents were analysed as each language.
        documents, chunks: what is stored, expired ones included.
        version: raised by every change of the collection, but of its parts.
        parts: number and version of those that are seen of its parts: the documents with the same readers each.
        records: words for one of its documents, as a schema declares them ("upload", "uploads", "上传").
        description: what it holds, as somebody has said it; "" where nobody has.
    """

    number: int
    tenant: str
    name: str
    embedder: str | None = None
    embedder_number: int | None = None
    dimension: int | None = None
    documents: int = 0
    chunks: int = 0
    mean_length: float = 1.0
    languages: Mapping[str, int] = field(default_factory=dict)
    fields: Mapping[str, Field] = field(default_factory=dict)
    version: int = 0
    records: tuple[str, ...] = ()
    parts: tuple[tuple[int, int], ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True)
class FieldValues:
    """What a metadata field holds in a scope: the ground that filters read from a question stand on.

    Attributes:
        values: text of each value, as it is filtered by, with the number of documents: all of them up to
            1,000, beyond that the commonest. Empty for numbers and dates.
        distinct: how many values there are.
        documents: how many documents have the field.
        low, high: the range of a number or a date (ISO 8601), None otherwise or when there is none.
        aliases: other names of values, given in a schema file: alias to value.
        spellings: values that differ in case, accents or punctuation alone, by what `text.folding.fold` makes
            of them; only where there is more than one.
    """

    field: Field
    values: Mapping[str, int] = dataclasses.field(default_factory=dict)
    distinct: int = 0
    documents: int = 0
    low: str | float | None = None
    high: str | float | None = None
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    spellings: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FieldCatalogue:
    """The fields of a scope with what they hold.

    Attributes:
        key: changes whenever the content does: what was derived from an older one is stale.
        documents: how many documents the scope holds.
        records: words for a document that every collection of the scope declares.
    """

    key: tuple[tuple[int, int], ...]
    documents: int
    fields: Mapping[str, FieldValues] = field(default_factory=dict)
    records: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scope:
    """What one request may read: the tenant, and the collections already resolved for it.

    Attributes:
        collections: of the database.
        beside: what sources hold themselves, each as a collection whose number means nothing.
        principals: as of `Viewer`.
        changed: how often readers of the tenant's documents had changed when the collections were read.
    """

    tenant: str
    collections: tuple[Collection, ...]
    beside: tuple[Collection, ...] = ()
    principals: tuple[str, ...] = ()
    changed: int = 0

    @property
    def viewer(self) -> Viewer:
        """On whose behalf the request reads."""
        return Viewer(self.tenant, self.principals)

    @property
    def all(self) -> tuple[Collection, ...]:
        """Everything that is searched."""
        return (*self.collections, *self.beside)

    def only(self, names: Iterable[str]) -> "Scope":
        """The scope with the collections of these names alone; what sources hold themselves stays."""
        wanted = frozenset(names)
        kept = tuple(one for one in self.collections if one.name in wanted)
        return self if len(kept) == len(self.collections) else dataclasses.replace(self, collections=kept)

    def allows(self, chunk: ChunkId) -> bool:
        """Whether the chunk belongs to the tenant or to the platform. The database has checked before."""
        return chunk.tenant in (self.tenant, PLATFORM)


@dataclass(frozen=True, slots=True)
class Query:
    """One search text within one scope.

    Attributes:
        language: ISO 639-1 code of the text.
        limit: most hits wanted.
        gloss: the text in English, word by word, when it is Chinese and the documents hardly are; else empty.
        aggregate: what a source over metadata is to calculate within the filter.
        statement: SQL for such a source, written by a model or a person, and not trusted.
    """

    text: str
    language: str
    scope: Scope
    filter: Filter | None = None
    limit: int = 100
    aggregate: Aggregate | None = None
    statement: str | None = None
    gloss: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """What the router knows of a source.

    Attributes:
        good_for: in a line, also shown to a model that chooses.
        kind: what it searches: the documents' texts, their metadata by calculation, or something outside.
        examples: questions it is the right source for.
        named: whether it is a `[sources.NAME]` of the settings.
        part: whether it searches a part of what other sources search: then it is asked only where it was chosen.
        world: whether it is for questions about the world.
        top_k: most hits of one search; None for as many as are asked for.
        min_relevance: its hits with a lower relevance are left out, 0 to 1.
        timeout_s: for one search; the settings' when None.
        cost: of one search, in US dollars.
    """

    name: str
    good_for: str
    kind: Literal["documents", "metadata", "outside"] = "documents"
    examples: Sequence[str] = ()
    named: bool = False
    part: bool = False
    world: bool = False
    top_k: int | None = None
    min_relevance: float | None = None
    timeout_s: float | None = None
    cost: float = 0.0

    @property
    def is_metered(self) -> bool:
        """Whether its searches are counted, since they may be paid for."""
        return self.kind == "outside" or self.cost > 0


class Retriever(Protocol):
    """Anything that can search. One module per retriever; its name is its name in the configuration."""

    @property
    def card(self) -> Card:
        """The router's view of this source."""
        ...

    async def search(self, query: Query) -> list[Hit]:
        """Hits for the query, best first, at most `query.limit`, ties by chunk id.

        Raises:
            Unavailable: the source cannot answer now.
            BadRequest: it can never answer this query.
        """
        ...


@runtime_checkable
class Divided(Protocol):
    """A retriever whose scope is served by several things, each of which may fail by itself."""

    def parts(self, scope: Scope) -> Mapping[str, Scope]:
        """What of the scope each of them serves, by the name of its breaker; scores of different parts compare."""
        ...


@runtime_checkable
class Holder(Protocol):
    """A retriever with documents of its own, beside the collections of the database."""

    async def collection(self, *, fresh: bool = False) -> Collection:
        """What it holds, as `Scope.beside` says it; the collection's name is the source's.

        Args:
            fresh: wait a moment for what has changed; otherwise as last read.
        """
        ...

    def load(self, ids: Iterable[ChunkId], wanted_by: Filter | None = None) -> Mapping[ChunkId, Chunk]:
        """The chunks of those identities; what it does not hold, or the filter does not allow, is left out."""
        ...

    def documents(self, wanted: Filter | None = None) -> list[ChunkId]:
        """The first passage of every document that the filter allows, in the order of the ids."""
        ...


@runtime_checkable
class Counting(Protocol):
    """A holder that says how common words are in its documents."""

    def term_counts(self, terms: Iterable[str]) -> Mapping[str, int]:
        """In how many of its passages each term occurs; absent terms are left out."""
        ...


@runtime_checkable
class Closing(Protocol):
    """A retriever with something to let go of when the service ends."""

    async def aclose(self) -> None:
        """Let go of it."""
        ...
