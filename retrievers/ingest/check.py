"""Whether all that is stored of a collection is what its documents make of it, and mending what is not.

Each document is prepared again of its row and compared with its passages; the counts are made anew of the passages and
compared with those that are kept. What seems to differ is compared once more while nobody writes, so that documents
which come meanwhile are not taken for drift. Mended is by the code that ingests, so the outcome is a fresh build's.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg.types.json import Jsonb

from retrievers.core.fields import Field
from retrievers.core.types import EVERYTHING, Collection, Viewer, whole
from retrievers.embed import Embedder, Vectors
from retrievers.embed.pool import Embedders
from retrievers.ingest import store, values
from retrievers.ingest.compare import compared
from retrievers.ingest.prepare import Prepared
from retrievers.ingest.retired import remove_retired
from retrievers.ingest.stored import Stored, prepare_again, read_stored
from retrievers.postgres import indexes
from retrievers.postgres.database import Database, Row
from retrievers.text import analysis, split, weights

Progress = Callable[[int], None]
"""Called with how many documents are compared."""

KINDS = {
    "version": "it was split or analysed by another version of signalbox: `signalbox rebuild {name}`",
    "documents": "documents whose values, language or counts are not what they were given",
    "passages": "documents whose passages, terms or BM25 weights are not those of their text",
    "vectors": "documents with a passage without a vector of the collection's embedder",
    "embedder": "no setting names the embedder of its vectors, so questions search its words alone: see EMBEDDERS",
    "orphans": "passages without a document",
    "terms": "terms that are counted wrongly, which moves BM25",
    "counts": "counts of documents, passages, words and languages that are wrong",
    "fields": "fields whose values, ranges or words are not those of the documents",
    "indexes": "indexes of the database that are missing or invalid",
    "leftovers": "older makes of it that were never removed",
}
_OF_DOCUMENTS = ("documents", "passages", "vectors")
"""Kinds whose findings name documents."""
_OF_NOBODY = ("version", "embedder", "indexes")
"""Kinds whose findings tell nothing of documents."""
_BATCH = 64
_PAGE = 2000
_ANY_DELIVERY = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong.

    Attributes:
        kind: a key of `KINDS`; `text` says it.
        count: how many of what the text speaks of; of documents, those that the viewer reads. None of anything that
            is made of documents, where the viewer does not read all of them.
        examples: ids of documents that the viewer reads, terms, names of fields or indexes; none where `count` is None.
        mended: whether it was mended.
    """

    kind: str
    text: str
    count: int | None
    examples: tuple[str, ...]
    mended: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What was compared, and what was wrong.

    Attributes:
        documents: how many were compared; of those that the viewer reads, where it does not read all.
    """

    collection: str
    documents: int
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong any more."""
        return all(one.mended for one in self.findings)


Wrong = dict[str, list[str]]
"""By kind what is wrong, each by a name."""


@dataclass
class Checker:
    """Compares one collection of a tenant's own.

    Args:
        embedder: gives the vectors that are missing, when they are mended.
        viewer: who is told: nothing of documents that it does not read. Everything is compared nevertheless.
        retired_s: how long ago an older make of the collection must have been replaced to be removed now.
    """

    database: Database
    embedder: Embedder
    collection: Collection
    viewer: Viewer
    progress: Progress = lambda done: None
    retired_s: float = 30.0
    _done: int = field(default=0, init=False)

    async def run(self, *, mend: bool = False) -> Report:
        """Compare, and where asked mend and compare again.

        Raises:
            UnknownCollection: it was deleted meanwhile.
            Replaced: it was made anew meanwhile.
            Unavailable: the database failed, or the embedder of vectors that are missing.
        """
        wrong = await self._compare()
        documents = self._done
        if not mend or not wrong:
            return await self._report(documents, wrong, wrong)
        await self._mend(wrong)
        return await self._report(documents, wrong, await self._compare())

    async def _report(self, documents: int, wrong: Wrong, left: Wrong) -> Report:
        found = []
        told: dict[str, Sequence[str] | None] = {kind: wrong.get(kind) or left.get(kind) for kind in KINDS}
        if self.viewer.principals != EVERYTHING:
            documents, told = await self._readable(told)
        for kind, text in KINDS.items():
            if kind in wrong or kind in left:
                said, names = text.format(name=self.collection.name), told[kind]
                count = None if names is None else len(names)
                found.append(Finding(kind, said, count, tuple(names or ())[:5], kind not in left))
        return Report(self.collection.name, documents, tuple(found))

    async def _readable(self, wrong: Mapping[str, Sequence[str] | None]) -> tuple[int, dict[str, Sequence[str] | None]]:
        """How many documents the viewer reads, and what of the names by kind it may be told; None for nothing."""
        told: dict[str, Sequence[str] | None] = {kind: wrong[kind] if kind in _OF_NOBODY else None for kind in wrong}
        async with self.database.transaction(self.viewer) as connection:
            for kind in _OF_DOCUMENTS:
                if names := wrong[kind]:
                    rows = await _rows(connection, _READABLE, self._which | {"ids": list(names)})
                    told[kind] = [row[0] for row in rows]
            documents = (await _rows(connection, _READABLE_COUNT, self._which))[0][0]
        return documents, told

    async def _compare(self) -> Wrong:
        self._done = 0
        wrong: Wrong = defaultdict(list)
        after = ""
        while True:
            async with self._at() as connection:
                ids = [row[0] for row in await _rows(connection, _IDS, self._which | {"after": after, "most": _BATCH})]
            if not ids:
                break
            if await self._differing(ids, locked=False):
                # Somebody may have been writing it.
                for kind, names in (await self._differing(ids, locked=True)).items():
                    wrong[kind] += names
            after, self._done = ids[-1], self._done + len(ids)
            self.progress(self._done)
        if await self._totals(locked=False):
            wrong |= await self._totals(locked=True)
        if faulty := await indexes.faulty(self.database):
            wrong["indexes"] = faulty
        name = self.collection.embedder
        if name is not None and not Embedders.of(self.embedder).has(name):
            wrong["embedder"] = [name]
        return dict(wrong)

    @property
    def _which(self) -> dict[str, Any]:
        return {"tenant": self.collection.tenant, "collection": self.collection.number}

    def _at(self) -> Any:
        return self.database.transaction(whole(self.collection.tenant))

    async def _differing(self, ids: Sequence[str], *, locked: bool) -> Wrong:
        """Documents that are not as they would be stored now, by kind."""
        async with self._at() as connection:
            if locked:
                await store.lock(connection, self.collection.tenant, self.collection.number)
            stored, fields = await read_stored(connection, self.collection.tenant, self.collection.number, ids)
            prepared = await asyncio.to_thread(_prepared, stored, fields)
            kept = {row[0]: row[1:] for row in await _rows(connection, _DOCUMENTS, self._which | {"ids": list(ids)})}
            rows: dict[str, list[Row]] = defaultdict(list)
            cursor = await connection.execute(
                _CHUNKS, self._which | self._lexemes(prepared) | {"ids": list(ids)}, binary=True
            )
            for row in await cursor.fetchall():
                rows[row[0]].append(row[1:])
            mean, number, dimension = (await _rows(connection, _MEAN, self._which))[0]
        return await asyncio.to_thread(compared, prepared, kept, rows, mean, (number, dimension))

    def _lexemes(self, prepared: Sequence[Prepared]) -> dict[str, Any]:
        listed = [(item.document.id, n, passage) for item in prepared for n, passage in enumerate(item.passages)]
        return {
            "of": [id for id, _, _ in listed],
            "ordinals": [n for _, n, _ in listed],
            "lexemes": [store.to_tsvector(self.collection.number, passage.lexemes) for _, _, passage in listed],
        }

    async def _totals(self, *, locked: bool) -> Wrong:
        """What is wrong with what is kept of all documents together."""
        wrong: Wrong = {}
        async with self._at() as connection:
            if locked:
                await store.lock(connection, self.collection.tenant, self.collection.number)
            if orphans := await _rows(connection, _ORPHANS, self._which):
                wrong["orphans"] = [f"{row[0]}#{row[1]}" for row in orphans]
            if terms := await _rows(connection, _TERMS, self._which):
                wrong["terms"] = [row[1] for row in terms]
            counts, changes = await self._counts(connection), await self._changes(connection)
            if counts:
                wrong["counts"] = [name for one in counts.values() for name in one]
            differing: list[str] = []
            for number, one in changes.items():
                differing += await values.differing(connection, self.collection.tenant, number, one)
            if differing:
                wrong["fields"] = sorted({*differing})
            versions = (await _rows(connection, _VERSIONS, self._which))[0]
            if versions != (analysis.VERSION, split.VERSION):
                wrong["version"] = [self.collection.name]
            await store.show_shadows(connection)
            if left := await _rows(connection, _LEFTOVERS, self._which):
                wrong["leftovers"] = [str(row[0]) for row in left]
        return wrong

    async def _counts(self, connection: store.Connection) -> dict[int, dict[str, Any]]:
        """The counts that are wrong, by the number of the collection or of its part, with what they should be."""
        made: dict[int, list[Any]] = defaultdict(lambda: [0, 0, 0, 0, Counter()])
        for number, language, documents, chunks, words, public in await _rows(connection, _COUNTED, self._which):
            one = made[number]
            for place, more in enumerate((documents, chunks, words, public)):
                one[place] += more
            one[4][language] += documents
        wrong: dict[int, dict[str, Any]] = defaultdict(dict)
        kept = await _rows(connection, _KEPT, self._which)
        chunks, words = sum(one[1] for one in made.values()), sum(one[2] for one in made.values())
        mean = weights.on_grid(words / chunks) if chunks else 0.0
        if abs((await _rows(connection, _MEAN, self._which))[0][0] - mean) > 1e-6:
            wrong[self.collection.number]["mean_length"] = mean
        for number, *counts in kept:
            pairs = zip(
                ("documents", "chunks", "words", "public_documents", "languages"), counts, made[number], strict=True
            )
            if differing := {name: new for name, old, new in pairs if old != new}:
                wrong[number] |= differing
        return wrong

    async def _changes(self, connection: store.Connection) -> dict[int, values.Changes]:
        """What the fields of all documents hold, by the number of the collection or of its part."""
        changes: dict[int, values.Changes] = {
            row[0]: values.Changes() for row in await _rows(connection, _KEPT, self._which)
        }
        after = ""
        while rows := await _rows(connection, _FIELDS, self._which | {"after": after, "most": _PAGE}):
            for number, id, title, given in rows:
                changes.setdefault(number, values.Changes()).add(id, title, given, 1)
            after = rows[-1][1]
        return changes

    async def _mend(self, wrong: Wrong) -> None:
        ids = sorted({*wrong.get("documents", ()), *wrong.get("passages", ()), *wrong.get("vectors", ())})
        tenant, number = self.collection.tenant, self.collection.number
        async with self._at() as connection:
            await store.lock(connection, tenant, number)
            await connection.execute(_DELETE_ORPHANS, self._which)
        for start in range(0, len(ids), _BATCH):
            await self._store_again(ids[start : start + _BATCH])
        async with self._at() as connection:
            await store.lock(connection, tenant, number)
            await connection.execute(_MEND_TERMS, self._which)
            for part, counts in (await self._counts(connection)).items():
                for name, count in counts.items():
                    if name == "mean_length":
                        continue  # every weight follows from it: `settle` below
                    given = Jsonb(count) if name == "languages" else count
                    await connection.execute(_MEND_COUNT[name], {"tenant": tenant, "part": part, "count": given})
            for part, changes in (await self._changes(connection)).items():
                if await values.differing(connection, tenant, part, changes):
                    await values.replace(connection, tenant, part, changes)
            await store.settle(connection, tenant, number)
        for name in wrong.get("indexes", ()):
            await indexes.mend(self.database, name)
        async with self._at() as connection:
            await store.show_shadows(connection)
            left = await _rows(connection, _REMOVABLE, self._which | {"seconds": self.retired_s})
        for row in left:
            await remove_retired(self.database, tenant, row[0], within_s=600)

    async def _store_again(self, ids: Sequence[str]) -> None:
        """Replace documents by themselves; one that was written meanwhile is as it should be."""
        tenant, number = self.collection.tenant, self.collection.number
        async with self._at() as connection:
            stored, fields = await read_stored(connection, tenant, number, ids)
            _, embedder, dimension = (await _rows(connection, _MEAN, self._which))[0]
            known = await store.known_vectors(connection, tenant, number, ids, embedder)
        prepared = await asyncio.to_thread(_prepared, stored, fields)
        vectors: Mapping[bytes, Vectors] = {digest: one for digest, one in known.items() if len(one) == dimension}
        texts = {passage.digest: passage.embedded for item in prepared for passage in item.passages}
        if missing := [digest for digest in texts if digest not in vectors]:
            named = await Embedders.of(self.embedder).named(self.collection.embedder or self.embedder.name)
            computed = await named.embed([texts[digest] for digest in missing])
            vectors = {**vectors, **dict(zip(missing, computed, strict=True))}
        async with self._at() as connection:
            await store.lock(connection, tenant, number)
            now = {one.document.id: one.updated_at for one in (await read_stored(connection, tenant, number, ids))[0]}
            same = [n for n, one in enumerate(stored) if now.get(one.document.id) == one.updated_at]
            again = [prepared[n] for n in same]
            await store.replace_documents(
                connection, tenant, number, again, vectors, embedder=embedder, mean_length=self.collection.mean_length,
                delivery=_ANY_DELIVERY,
            )  # fmt: skip
            await store.restore_moments(connection, tenant, number, [stored[n] for n in same])


def _prepared(stored: Sequence[Stored], fields: Mapping[str, Field]) -> list[Prepared]:
    return [prepare_again(one, fields, keeps_digest=True) for one in stored]


async def _rows(connection: store.Connection, statement: Any, given: Mapping[str, Any]) -> list[Row]:
    return await (await connection.execute(statement, given)).fetchall()


_IDS = """
    SELECT id FROM signalbox.document WHERE tenant = %(tenant)s AND collection = %(collection)s AND id > %(after)s
    ORDER BY id LIMIT %(most)s
"""
# As the viewer: row security leaves out what it does not read.
_READABLE = """
    SELECT id FROM signalbox.document
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND id = ANY (%(ids)s) ORDER BY id
"""
_READABLE_COUNT = "SELECT count(*) FROM signalbox.document WHERE tenant = %(tenant)s AND collection = %(collection)s"
_DOCUMENTS = """
    SELECT id, language, fields, chunks, words, public, part, expires_at FROM signalbox.document
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND id = ANY (%(ids)s)
"""
_CHUNKS = """
    SELECT c.document_id, c.ordinal, c.embedder, c.start_character, c.end_character, c.length, c.heading, c.digest,
           c.body, c.gap, coalesce(c.lexemes = w.lexemes::tsvector, false), c.fields, c.public, c.part, c.expires_at,
           c.bm25, c.embedding
    FROM signalbox.chunk c
    LEFT JOIN unnest(%(of)s::text[], %(ordinals)s::integer[], %(lexemes)s::text[]) AS w (document_id, ordinal, lexemes)
         ON w.document_id = c.document_id AND w.ordinal = c.ordinal
    WHERE c.tenant = %(tenant)s AND c.collection = %(collection)s AND c.document_id = ANY (%(ids)s)
"""
_MEAN = """
    SELECT k.mean_length, k.embedder, e.dimension
    FROM signalbox.collection k LEFT JOIN signalbox.embedder e ON e.number = k.embedder
    WHERE k.tenant = %(tenant)s AND k.number = %(collection)s
"""
_VERSIONS = "SELECT analysis, split FROM signalbox.collection WHERE tenant = %(tenant)s AND number = %(collection)s"
_WITHOUT_DOCUMENT = """
    c.tenant = %(tenant)s AND c.collection = %(collection)s AND NOT EXISTS (
        SELECT FROM signalbox.document d
        WHERE d.tenant = c.tenant AND d.collection = c.collection AND d.id = c.document_id)
"""
_ORPHANS = f"SELECT c.document_id, c.ordinal FROM signalbox.chunk c WHERE {_WITHOUT_DOCUMENT} ORDER BY 1, 2"  # noqa: S608
_DELETE_ORPHANS = f"DELETE FROM signalbox.chunk c WHERE {_WITHOUT_DOCUMENT}"  # noqa: S608
_NUMBERS = """
    ARRAY(SELECT number FROM signalbox.collection
          WHERE tenant = %(tenant)s AND %(collection)s IN (number, part_of))
"""
# Terms that no passage has any more are kept until the collection is settled.
_TERMS = f"""
    WITH counted AS (
        SELECT coalesce(c.part, c.collection) AS collection,
               substr(w.lexeme, position(':' IN w.lexeme) + 1) COLLATE "C" AS term, count(*)::integer AS chunks
        FROM signalbox.chunk c, unnest(c.lexemes) AS w
        WHERE c.tenant = %(tenant)s AND c.collection = %(collection)s GROUP BY 1, 2),
    kept AS (SELECT collection, term, chunks FROM signalbox.term
             WHERE tenant = %(tenant)s AND collection = ANY ({_NUMBERS}))
    SELECT coalesce(n.collection, t.collection) AS collection, coalesce(n.term, t.term) AS term,
           coalesce(n.chunks, 0) AS chunks
    FROM counted n FULL JOIN kept t ON t.collection = n.collection AND t.term = n.term
    WHERE coalesce(n.chunks, 0) <> coalesce(t.chunks, 0)
"""  # noqa: S608
_MEND_TERMS = f"""
    INSERT INTO signalbox.term (tenant, collection, term, chunks)
    SELECT %(tenant)s, collection, term, chunks FROM ({_TERMS}) wrong
    ON CONFLICT (tenant, collection, term) DO UPDATE SET chunks = excluded.chunks
"""  # noqa: S608
_COUNTED = """
    SELECT coalesce(part, collection), language, count(*), sum(chunks)::bigint, sum(words)::bigint, sum(public::integer)
    FROM signalbox.document WHERE tenant = %(tenant)s AND collection = %(collection)s AND enabled GROUP BY 1, 2
"""
_KEPT = """
    SELECT number, documents, chunks, words, public_documents, languages FROM signalbox.collection
    WHERE tenant = %(tenant)s AND %(collection)s IN (number, part_of) ORDER BY number
"""
_MEND_COUNT = {
    name: f"UPDATE signalbox.collection SET {name} = %(count)s, version = version + 1"  # noqa: S608
    " WHERE tenant = %(tenant)s AND number = %(part)s"
    for name in ("documents", "chunks", "words", "public_documents", "languages")
}
_FIELDS = """
    SELECT coalesce(part, collection), id, title, fields FROM signalbox.document
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND enabled AND id > %(after)s ORDER BY id LIMIT %(most)s
"""
_LEFTOVERS = """
    SELECT number FROM signalbox.collection WHERE tenant = %(tenant)s AND shadow_of = %(collection)s
      AND retired_at < now() - interval '1 hour'
"""
_REMOVABLE = """
    SELECT number FROM signalbox.collection WHERE tenant = %(tenant)s AND shadow_of = %(collection)s
      AND retired_at <= now() - make_interval(secs => %(seconds)s)
"""
