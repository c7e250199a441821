"""Maintain exact statistics of field values in the tables `field_value`, `field_count` and `field_word`.

Every function runs in the transaction that writes the documents and holds the collection's lock. Only differences are
written: documents submitted again with the same metadata change nothing here. `number` is that of a collection, or of a
part of it (the documents with the same readers), which has statistics of its own.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from psycopg import AsyncConnection

from retrievers.core.metadata import scalar_type
from retrievers.postgres.connections.database import Row
from retrievers.postgres.connections.row_batches import fetch_in_batches
from retrievers.text import folding

Connection = AsyncConnection[Row]
_Item = TypeVar("_Item")

MAX_VALUE_CHARACTERS = 200
"""Maximum length of a value that is stored. Longer text is only counted, because it is usually unique and not filtered
by.
"""
MAX_NAME_CHARACTERS = 100
"""Maximum length of a value that can be found by its words. A longer one is prose."""
MAX_NAME_WORDS = 8
"""Maximum number of words of a value that can be found from any of its words on; a longer one only from its first."""

_PAGE = 5_000
_AT_ONCE = 500
_ROWS_AT_ONCE = 2_000
"""Rows per statement. The driver blocks the event loop for about 10 ms to turn them into parameters."""


@dataclass(slots=True)
class FieldValueChanges:
    """Changes of the statistics of field values.

    Attributes:
        values: (field, text, None) or (field, None, number) to the change of the number of documents with this value.
        documents: field to the change of the number of documents that have it.
        long: field to the change of the number of values that are too long to be stored.
    """

    values: Counter[tuple[str, str | None, float | None]] = field(default_factory=Counter)
    documents: Counter[str] = field(default_factory=Counter)
    long: Counter[str] = field(default_factory=Counter)

    async def add_all(self, documents: Sequence[tuple[str, str, Mapping[str, Any]]], times: int) -> None:
        """Call `add` for documents, given as (id, title, fields), in a thread, because they may have many values."""

        def add() -> None:
            for id, title, fields in documents:
                self.add(id, title, fields, times)

        await asyncio.to_thread(add)

    def add(self, id: str, title: str, fields: Mapping[str, Any], times: int) -> None:
        """Count one document that is added (`times` 1) or removed (-1).

        Args:
            fields: the document's filterable values in normal form. Those equal to its id or title are not counted,
                because they are unique.
        """
        for name, given in fields.items():
            if (name == "id" and given == id) or (name == "title" and given == title):
                continue
            if isinstance(given, list):
                # A value counts once per document.
                items: Iterable[Any] = {_key(item) for item in given}
                if not given:
                    continue
            else:
                items = (_key(given),)
            self.documents[name] += times
            for text, number in items:
                if text is not None and len(text) > MAX_VALUE_CHARACTERS:
                    self.long[name] += times
                else:
                    self.values[name, text, number] += times


def _key(value: Any) -> tuple[str | None, float | None]:
    """Return a value as (text, None) or (None, number). Numbers are floats, since the database may return 1.0 for 1."""
    if isinstance(value, bool):
        return ("true" if value else "false"), None
    if isinstance(value, int | float):
        return None, float(value) + 0.0  # no negative zero, which PostgreSQL does not keep
    return value, None


async def apply_changes(connection: Connection, tenant: str, number: int, changes: FieldValueChanges) -> None:
    """Apply the changes to the stored statistics."""
    more, fewer = await asyncio.to_thread(lambda: [sorted(_rows(changes.values.items(), sign)) for sign in (+1, -1)])
    values: dict[str, Any] = {"tenant": tenant, "collection": number}
    kept: Counter[str] = Counter()
    for some in _slices(fewer):
        gone = await (await connection.execute(_FEWER, values | _columns(some))).fetchall()
        kept.subtract(row[0] for row in gone)
        await _write_words(connection, _DELETE_WORDS, tenant, number, gone)
    for some in _slices(more):
        new = await (await connection.execute(_MORE, values | _columns(some))).fetchall()
        kept.update(row[0] for row in new)
        await _write_words(connection, _INSERT_WORDS, tenant, number, new)
    names = sorted(
        name for name in {*changes.documents, *kept} if changes.documents[name] or kept[name] or changes.long[name]
    )
    if names:
        counts = {
            "fields": names,
            "documents": [changes.documents[name] for name in names],
            "kept": [kept[name] for name in names],
            "long": [changes.long[name] for name in names],
        }
        await connection.execute(_COUNT, values | counts)


async def refold_values(connection: Connection, tenant: str, number: int) -> None:
    """Recompute the words of a collection's values, if another version of folding produced them."""
    values = {"tenant": tenant, "collection": number, "version": folding.VERSION}
    stale = await connection.execute(
        "UPDATE signalbox.collection SET folding = %(version)s, version = version + 1"
        " WHERE tenant = %(tenant)s AND number = %(collection)s AND folding <> %(version)s",
        values,
    )
    if not stale.rowcount:
        return
    await connection.execute(
        "DELETE FROM signalbox.field_word WHERE tenant = %(tenant)s AND collection = %(collection)s", values
    )
    after = ("", "")
    while True:
        rows = await (
            await connection.execute(
                """
                SELECT field, value FROM signalbox.field_value
                WHERE tenant = %s AND collection = %s AND (field, value) > (%s, %s) AND number IS NULL
                ORDER BY field, value LIMIT %s
                """,
                (tenant, number, *after, _PAGE),
            )
        ).fetchall()
        if not rows:
            return
        await _write_words(connection, _INSERT_WORDS, tenant, number, rows)
        after = (rows[-1][0], rows[-1][1])


async def differing_fields(connection: Connection, tenant: str, number: int, changes: FieldValueChanges) -> list[str]:
    """Return the sorted names of fields whose stored statistics differ from the correct ones.

    Args:
        changes: the correct statistics, as changes to empty ones.
    """
    values, counts, words = [
        await fetch_in_batches(await connection.execute(query, (tenant, number)))
        for query in (_VALUES_OF, _COUNTS_OF, _WORDS_OF)
    ]
    return await asyncio.to_thread(_differing, changes, values, counts, words)


def _differing(
    changes: FieldValueChanges, values: Sequence[Row], counted: Sequence[Row], has: Sequence[Row]
) -> list[str]:
    kept = {(name, None if single is not None else value, single): documents
            for name, value, single, documents in values}  # fmt: skip
    made = {key: documents for key, documents in changes.values.items() if documents}
    wrong = {key[0] for key in kept.keys() | made.keys() if kept.get(key) != made.get(key)}
    distinct = Counter(name for name, _, _ in made)
    counts = {name: (count, distinct[name], changes.long[name]) for name, count in changes.documents.items() if count}
    stored = {row[0]: row[1:] for row in counted}
    wrong |= {name for name in counts.keys() | stored.keys() if counts.get(name) != stored.get(name)}
    words = {word for name, value, _ in made for word in _words(name, value)}
    return sorted(wrong | {word[2] for word in words ^ {*has}})


async def replace_statistics(connection: Connection, tenant: str, number: int, changes: FieldValueChanges) -> None:
    """Replace the stored statistics by new ones, given as changes to empty ones."""
    for table in ("field_value", "field_count", "field_word"):
        statement = f"DELETE FROM signalbox.{table} WHERE tenant = %s AND collection = %s"  # noqa: S608
        await connection.execute(statement.encode(), (tenant, number))
    items = list(changes.values.items())
    for start in range(0, max(len(items), 1), _AT_ONCE):
        part = FieldValueChanges(Counter(dict(items[start : start + _AT_ONCE])))
        if start == 0:
            part.documents, part.long = changes.documents, changes.long
        await apply_changes(connection, tenant, number, part)


_VALUES_OF = "SELECT field, value, number, documents FROM signalbox.field_value WHERE tenant = %s AND collection = %s"
_COUNTS_OF = "SELECT field, documents, kept, long FROM signalbox.field_count WHERE tenant = %s AND collection = %s"
_WORDS_OF = "SELECT words, place, field, value FROM signalbox.field_word WHERE tenant = %s AND collection = %s"


def _rows(
    changes: Iterable[tuple[tuple[str, str | None, float | None], int]], sign: int
) -> Iterable[tuple[str, str, float, int]]:
    """Return the changes of one sign as sortable rows (field, text, number, change without sign).

    The text is "" for a number, the number is 0 for a text.

    Args:
        sign: 1 for increases, -1 for decreases.
    """
    return ((name, text or "", number or 0.0, sign * by) for (name, text, number), by in changes if sign * by > 0)


def _columns(rows: Sequence[tuple[str, str, float, int]]) -> dict[str, Any]:
    return {
        "fields": [row[0] for row in rows],
        "values": [row[1] or None for row in rows],
        "numbers": [None if row[1] else row[2] for row in rows],
        "documents": [row[3] for row in rows],
    }


async def _write_words(connection: Connection, statement: str, tenant: str, number: int, named: Sequence[Row]) -> None:
    """Run a statement that inserts or deletes the rows that `_words` returns for some values.

    Args:
        named: (field, value) of each value, possibly with further columns.
    """
    words = await asyncio.to_thread(lambda: [word for name, value, *_ in named for word in _words(name, value)])
    for some in _slices(words):
        await connection.execute(statement.encode(), {"tenant": tenant, "collection": number} | _word_columns(some))


def _slices(rows: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    return (rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE))


def _words(name: str, value: str | None) -> list[tuple[str, int, str, str]]:
    """Return the rows by which a value is found, one for each word: (text from that word on, position, field, value).

    "Marie van Dam" -> "marie van dam" at 0, "van dam" at 1, "dam" at 2. [] for a number, a date or prose.
    """
    if value is None or len(value) > MAX_NAME_CHARACTERS or scalar_type(value) == "date":
        return []
    words = folding.fold(value).split(" ")
    if words == [""]:
        return []
    places = range(len(words)) if len(words) <= MAX_NAME_WORDS else (0,)
    return [(" ".join(words[place:]), place, name, value) for place in places]


def _word_columns(rows: Sequence[tuple[str, int, str, str]]) -> dict[str, Any]:
    return {
        "words": [row[0] for row in rows],
        "places": [row[1] for row in rows],
        "fields": [row[2] for row in rows],
        "values": [row[3] for row in rows],
    }


# Only PostgreSQL converts numbers to text, so that the text is always the same.
_CHANGE = """
    change AS MATERIALIZED (
        SELECT field, coalesce(value, number::text) COLLATE "C" AS value, number, documents
        FROM unnest(%(fields)s::text[], %(values)s::text[], %(numbers)s::float8[], %(documents)s::integer[])
             AS one (field, value, number, documents))
"""
# A value is new if its count equals the change: no row ever has zero documents. Numbers have no words.
_MORE = f"""
    WITH {_CHANGE}, put AS (
        INSERT INTO signalbox.field_value AS v (tenant, collection, field, value, number, documents)
        SELECT %(tenant)s, %(collection)s, field, value, number, documents FROM change
        ON CONFLICT (tenant, collection, field, value) DO UPDATE SET documents = v.documents + excluded.documents
        RETURNING field, value, documents)
    SELECT put.field, CASE WHEN change.number IS NULL THEN put.value END
    FROM put JOIN change ON change.field = put.field AND change.value = put.value
    WHERE put.documents = change.documents
"""  # noqa: S608
_FEWER = f"""
    WITH {_CHANGE}, fewer AS (
        UPDATE signalbox.field_value v SET documents = v.documents - change.documents FROM change
        WHERE v.tenant = %(tenant)s AND v.collection = %(collection)s AND v.field = change.field
          AND v.value = change.value AND v.documents > change.documents)
    DELETE FROM signalbox.field_value v USING change
    WHERE v.tenant = %(tenant)s AND v.collection = %(collection)s AND v.field = change.field
      AND v.value = change.value AND v.documents <= change.documents
    RETURNING v.field, CASE WHEN v.number IS NULL THEN v.value END
"""  # noqa: S608
_ONE_WORD = """
    unnest(%(words)s::text[], %(places)s::smallint[], %(fields)s::text[], %(values)s::text[])
    AS one (words, place, field, value)
"""
# Words folded by another version are recomputed later, so some rows may already exist.
_INSERT_WORDS = f"""
    INSERT INTO signalbox.field_word (tenant, collection, words, place, field, value)
    SELECT %(tenant)s, %(collection)s, words, place, field, value FROM {_ONE_WORD} ON CONFLICT DO NOTHING
"""  # noqa: S608
_DELETE_WORDS = f"""
    DELETE FROM signalbox.field_word w USING {_ONE_WORD}
    WHERE w.tenant = %(tenant)s AND w.collection = %(collection)s AND w.words = one.words AND w.place = one.place
      AND w.field = one.field AND w.value = one.value
"""  # noqa: S608
_COUNTS = """
    unnest(%(fields)s::text[], %(documents)s::integer[], %(kept)s::integer[], %(long)s::integer[])
    AS one (field, documents, kept, long)
"""
# Without ON CONFLICT: a row whose count decreases may not even be proposed, because its count would be negative.
_COUNT = f"""
    WITH one AS MATERIALIZED (SELECT * FROM {_COUNTS}), gone AS (
        DELETE FROM signalbox.field_count c USING one
        WHERE c.tenant = %(tenant)s AND c.collection = %(collection)s AND c.field = one.field
          AND c.documents + one.documents <= 0), changed AS (
        UPDATE signalbox.field_count c
        SET documents = c.documents + one.documents, kept = c.kept + one.kept, long = c.long + one.long FROM one
        WHERE c.tenant = %(tenant)s AND c.collection = %(collection)s AND c.field = one.field
          AND c.documents + one.documents > 0)
    INSERT INTO signalbox.field_count (tenant, collection, field, documents, kept, long)
    SELECT %(tenant)s, %(collection)s, field, documents, kept, long FROM one
    WHERE documents > 0 AND NOT EXISTS (
        SELECT FROM signalbox.field_count c
        WHERE c.tenant = %(tenant)s AND c.collection = %(collection)s AND c.field = one.field)
"""  # noqa: S608
