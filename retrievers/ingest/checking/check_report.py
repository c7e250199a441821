"""Errors found in a stored collection, and which of them a viewer may see."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from retrievers.core.types import ALL_PRINCIPALS, Collection, Viewer
from retrievers.postgres.connections.database import Database

KINDS = {
    "version": "it was split or analysed by another version of signalbox: run `signalbox rebuild {name}`",
    "documents": "documents whose stored values, language or counts are wrong",
    "passages": "documents whose passages, terms or BM25 weights do not match their text",
    "vectors": "documents with a passage without a vector of the collection's embedder",
    "embedder": "no setting names the embedder of its vectors, so only full-text search works: add it to EMBEDDERS",
    "orphans": "passages without a document",
    "terms": "terms with a wrong count, which changes BM25 scores",
    "counts": "wrong counts of documents, passages, words or languages",
    "fields": "fields whose values, ranges or words do not match the documents",
    "indexes": "database indexes that are missing or invalid",
    "leftovers": "older builds of the collection that were never removed",
}
_OF_DOCUMENTS = ("documents", "passages", "vectors")
"""Kinds whose findings contain ids of documents."""
_OF_NOBODY = ("version", "embedder", "indexes")
"""Kinds whose findings reveal nothing about documents, so that every viewer may see them."""
MAX_EXAMPLES = 5


@dataclass(slots=True)
class ErrorNames:
    """Names of everything in a collection that has one kind of error: documents, passages, terms, fields or indexes.

    Attributes:
        count: number of things with this error.
        names: all ids if they are documents; otherwise possibly only the first few names.
    """

    count: int
    names: list[str]

    @classmethod
    def of(cls, names: Sequence[str]) -> "ErrorNames":
        """Create an instance that contains all names."""
        return cls(len(names), list(names))


ErrorsByKind = dict[str, ErrorNames]
"""Errors by kind, a key of `KINDS`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of error found in a collection, as the viewer may see it.

    Attributes:
        kind: a key of `KINDS`.
        text: description of this kind of error.
        count: number of things with this error; for documents, of those that the viewer may read. None for values
            derived from documents, such as terms, if the viewer may not read all documents.
        examples: at most `MAX_EXAMPLES` ids of documents that the viewer may read, terms, or names of fields or
            indexes; empty if `count` is None.
        mended: whether this error was repaired.
    """

    kind: str
    text: str
    count: int | None
    examples: tuple[str, ...]
    mended: bool = False


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check of a stored collection.

    Attributes:
        collection: name of the collection.
        documents: number of documents compared; if the viewer may not read all, the number it may read.
    """

    collection: str
    documents: int
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no error remains."""
        return all(one.mended for one in self.findings)


async def build_report(
    database: Database, viewer: Viewer, collection: Collection, documents: int, wrong: ErrorsByKind, left: ErrorsByKind
) -> CheckReport:
    """Build the report of a check that the viewer may see.

    Args:
        documents: number of documents compared.
        wrong: errors before the repair.
        left: errors after the repair.
    """
    told: Mapping[str, ErrorNames] = left | wrong
    if viewer.principals != ALL_PRINCIPALS:
        documents, told = await _errors_for_viewer(database, viewer, collection, told)
    findings = []
    for kind, text in KINDS.items():
        if kind in wrong or kind in left:
            said, one = text.format(name=collection.name), told.get(kind)
            count, names = (one.count, one.names) if one is not None else (None, [])
            findings.append(Finding(kind, said, count, tuple(names[:MAX_EXAMPLES]), kind not in left))
    return CheckReport(collection.name, documents, tuple(findings))


async def _errors_for_viewer(
    database: Database, viewer: Viewer, collection: Collection, wrong: Mapping[str, ErrorNames]
) -> tuple[int, dict[str, ErrorNames]]:
    """Return the number of documents that the viewer may read, and the errors that the viewer may see, by kind."""
    told = {kind: wrong[kind] for kind in _OF_NOBODY if kind in wrong}
    which = {"tenant": collection.tenant, "collection": collection.number}
    async with database.transaction(viewer) as connection:
        for kind in _OF_DOCUMENTS:
            if kind in wrong:
                cursor = await connection.execute(_READABLE, which | {"ids": wrong[kind].names, "most": MAX_EXAMPLES})
                rows = await cursor.fetchall()
                told[kind] = ErrorNames(rows[0][1] if rows else 0, [row[0] for row in rows])
        counted = await (await connection.execute(_READABLE_COUNT, which)).fetchone()
    return (int(counted[0]) if counted else 0), told


# Runs as the viewer: row security excludes documents that it may not read.
_READABLE = """
    SELECT id, count(*) OVER () FROM signalbox.document
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND id = ANY (%(ids)s) ORDER BY id LIMIT %(most)s
"""
_READABLE_COUNT = "SELECT count(*) FROM signalbox.document WHERE tenant = %(tenant)s AND collection = %(collection)s"
