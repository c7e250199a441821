"""The values that pass between the stages of a search. All are immutable; a stage returns new ones."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from retrievers.core.aggregates import Aggregate
from retrievers.core.cooccurrence import Cooccurrence
from retrievers.core.file_positions import FilePositions
from retrievers.core.filters import Filter
from retrievers.core.memo import Memo
from retrievers.core.metadata import Field

PLATFORM = "0"
"""The tenant whose public documents every tenant may read."""


ALL_PRINCIPALS = ("*",)
"""Principals of a viewer that may read all documents of its tenant, whoever the readers of a document are."""


class Viewer(NamedTuple):
    """The tenant and principals (users and groups) on whose behalf something is read.

    A document without readers is visible to all viewers of its tenant. A document with readers is visible only to
    viewers that have one of its readers among their principals.

    Attributes:
        principals: sorted; `ALL_PRINCIPALS` to see all documents, empty to see only documents without readers.
    """

    tenant: str
    principals: tuple[str, ...] = ()

    @classmethod
    def of(cls, who: "str | Viewer") -> "Viewer":
        """Return a viewer without principals if `who` is a tenant's name, or `who` itself if it is a viewer."""
        return cls(who) if isinstance(who, str) else who

    def sees_all_of(self, principals: Iterable[str]) -> bool:
        """Return whether this viewer sees every document that is visible to these principals."""
        return self.principals == ALL_PRINCIPALS or set(principals) <= set(self.principals)

    def may_erase(self, principals: tuple[str, ...]) -> bool:
        """Return whether this viewer may erase records of questions that were asked with these principals.

        The viewer must see everything that these principals see. Records of questions without principals can be erased
        only by a viewer without principals or with `ALL_PRINCIPALS`. The SQL function `signalbox.erases` has the same
        rule.
        """
        return self.sees_all_of(principals) and (bool(principals) or self.principals in ((), ALL_PRINCIPALS))


def unrestricted_viewer(tenant: str) -> Viewer:
    """Return a viewer that sees all documents of a tenant, for use by the operator and by ingestion."""
    return Viewer(tenant, ALL_PRINCIPALS)


class ChunkId(NamedTuple):
    """Identity of a chunk (passage); `ordinal` counts the chunks of its document from 0.

    The order of ids breaks ties between equal scores. So an id contains no serial number, which would differ between
    two imports of the same documents.
    """

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
        start, end: position of the passage in its document's text, in characters, half-open.
        heading: titles of the sections around it, outermost first, joined by " > ".
        gap: the white space between this passage and the next one of the document.
        metadata: the document's metadata, as given.
        important, questions: the document's key terms and the questions it answers. Loaded only for rerankers that
            compare words.
        places: pages, slides or rows of the passage in its file. Offsets count from the start of the document's text.
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
    places: FilePositions | None = None


@dataclass(frozen=True, slots=True)
class ResultTable:
    """Rows that a source calculated, and the SQL statement that produced them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    sql: str


class Hit(NamedTuple):
    """A chunk in one ranking, with its score in that ranking. Scores of different sources are not comparable.

    Attributes:
        chunk: None until its text is loaded. PostgreSQL searches return ids only, and after fusion the texts of the
            few best hits are loaded.
        table: the rows that a source calculated; only the first hit of the source has it.
        component_scores: name of another source to a component of the score, on that source's scale.
    """

    id: ChunkId
    score: float
    source: str
    chunk: Chunk | None = None
    table: ResultTable | None = None
    component_scores: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection as a search needs it.

    Documents with the same readers form a part of the collection. The database counts each part on its own, so that a
    viewer sees only the numbers of documents that it may read.

    Attributes:
        number: short number of the collection inside the database, also the prefix of its lexemes.
        embedder: name of the embedder of its vectors, None if it has no vectors.
        embedder_number: number of that embedder's index, None if it has no vectors.
        mean_length: the average chunk length that BM25 uses, in words.
        languages: number of documents analysed as each language.
        documents, chunks: numbers of stored documents and chunks, including expired documents and their chunks.
        version: increases with every change of the collection, except changes inside its parts.
        parts: (number, version) of each part that the viewer may see.
        records: nouns that mean a document of the collection, as a schema declares them ("upload", "uploads").
        description: what the collection contains, written by a person; "" if nobody has described it.
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
    """Values of a metadata field in a scope. Filters read from a question are checked against them.

    Attributes:
        values: each value, as text for use in filters, to its number of documents. If there are more than 1,000
            values, or many in all fields together, only the most common. Empty for numbers and dates.
        distinct: number of different values.
        documents: number of documents that have the field.
        low, high: lowest and highest number or date (ISO 8601). None for other types and if there are no values.
        aliases: alias to the value that it stands for, as schema files declare them.
        spellings: common form after `text.folding.fold` to the values that differ only in case, accents or punctuation:
            "cafe" to ("Café", "cafe"). Forms of a single value are left out.
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
    """The fields of a scope with their values.

    Attributes:
        key: (number, version) of each collection and part, so it changes with the content. Anything derived from a
            catalogue with another key is stale.
        documents: number of documents in the scope.
        records: nouns for a document that all collections of the scope declare, see `Collection.records`.
        cooccurrence: which documents have which values; empty for a scope with many documents.
        memo: what was computed from the catalogue, such as the names of its values.
    """

    key: tuple[tuple[int, int], ...]
    documents: int
    fields: Mapping[str, FieldValues] = field(default_factory=dict)
    records: tuple[str, ...] = ()
    cooccurrence: Cooccurrence = field(default_factory=Cooccurrence, repr=False, compare=False)
    memo: Memo = field(init=False, default_factory=Memo, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Scope:
    """What one request may read: the tenant, and the collections resolved for it.

    Attributes:
        collections: collections in the database.
        external_collections: collections outside the database, one per source that holds documents itself (see
            `DocumentHolder`). Their numbers have no meaning.
        principals: as in `Viewer`.
        changed: counter of changes to the readers of the tenant's documents, as of the time the collections were
            loaded.
    """

    tenant: str
    collections: tuple[Collection, ...]
    external_collections: tuple[Collection, ...] = ()
    principals: tuple[str, ...] = ()
    changed: int = 0

    @property
    def viewer(self) -> Viewer:
        """The tenant and the principals on whose behalf the request reads."""
        return Viewer(self.tenant, self.principals)

    @property
    def all_collections(self) -> tuple[Collection, ...]:
        """All collections that are searched: those in the database, then those outside it."""
        return (*self.collections, *self.external_collections)

    def restricted_to(self, names: Iterable[str]) -> "Scope":
        """Return the scope with only those database collections that have one of these names. Keeps external ones."""
        wanted = frozenset(names)
        kept = tuple(one for one in self.collections if one.name in wanted)
        return self if len(kept) == len(self.collections) else dataclasses.replace(self, collections=kept)

    def allows(self, chunk: ChunkId) -> bool:
        """Return whether the chunk belongs to the tenant or the platform. This repeats the database's own check."""
        return chunk.tenant in (self.tenant, PLATFORM)


@dataclass(frozen=True, slots=True)
class Query:
    """One search text within one scope.

    Attributes:
        language: ISO 639-1 code of the text.
        limit: maximum number of hits.
        translation: a word-by-word English translation of a Chinese text, if few of the documents are Chinese; else
            empty.
        aggregate: calculation over the documents that satisfy the filter, for a source of kind "metadata".
        statement: SQL for such a source, written by a model or a person. Not trusted.
    """

    text: str
    language: str
    scope: Scope
    filter: Filter | None = None
    limit: int = 100
    aggregate: Aggregate | None = None
    statement: str | None = None
    translation: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """What the router knows about a source.

    Attributes:
        good_for: a one-line description, also shown to a model that chooses sources.
        kind: what the source searches: the text of documents, their metadata (by calculation), or something outside.
        examples: questions for which this source is the right one.
        named: True if the settings define the source as `[sources.NAME]`.
        part: True if it searches a subset of what other sources search. Such a source is used only if it is chosen by
            name or for the question.
        world: True if it answers questions about the world beyond the documents, as a web search does.
        top_k: maximum number of hits of one search; None for the number requested.
        min_relevance: hits with a lower relevance are dropped, 0 to 1.
        timeout_s: time limit of one search, in seconds; None for the setting's.
        cost: cost of one search, in US dollars.
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
        """Whether searches of this source count against the limit of searches, since they may cost money."""
        return self.kind == "outside" or self.cost > 0


class Retriever(Protocol):
    """A source that can be searched. One module per retriever; the module's name is its name in the configuration."""

    @property
    def card(self) -> Card:
        """The router's description of this source."""
        ...

    async def search(self, query: Query) -> list[Hit]:
        """Return hits for the query, best first, at most `query.limit`, ties by chunk id.

        Raises:
            Unavailable: the source cannot answer now.
            BadRequest: the source can never answer this query.
        """
        ...


@runtime_checkable
class MultiBackend(Protocol):
    """A retriever that searches several backends, each of which can fail on its own."""

    def backend_scopes(self, scope: Scope) -> Mapping[str, Scope]:
        """Split the scope among the backends.

        Returns:
            Name of a backend's circuit breaker to the scope that the backend searches. Scores of different backends are
            comparable.
        """
        ...


@runtime_checkable
class DocumentHolder(Protocol):
    """A retriever that holds documents of its own, outside the database."""

    async def collection(self, *, fresh: bool = False) -> Collection:
        """Return the source's documents as a collection for `Scope.external_collections`, named after the source.

        Args:
            fresh: wait a moment for recent changes to be read; otherwise return the documents as last read.
        """
        ...

    def load(self, ids: Iterable[ChunkId], wanted_by: Filter | None = None) -> Mapping[ChunkId, Chunk]:
        """Return {id: chunk}, without unknown ids and without chunks that the filter `wanted_by` excludes."""
        ...

    def documents(self, wanted: Filter | None = None) -> list[ChunkId]:
        """Return the id of the first passage of every document that satisfies the filter, sorted."""
        ...


@runtime_checkable
class TermCounter(Protocol):
    """A `DocumentHolder` that knows how common terms are in its documents."""

    def term_counts(self, terms: Iterable[str]) -> Mapping[str, int]:
        """Return term to the number of the source's passages that contain it. Terms in no passage are left out."""
        ...


@runtime_checkable
class Closeable(Protocol):
    """A retriever with resources to release when the service stops."""

    async def aclose(self) -> None:
        """Release the resources."""
        ...
