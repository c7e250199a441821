"""The SQL source: calculates counts, sums, extremes, groups and lists from metadata.

An aggregate is compiled to SQL here. A statement written by a model or a person is checked by the guard. Both are
executed in the same way, and their results can be cited.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from retrievers.core.errors import BadRequest
from retrievers.core.types import Card, Chunk, ChunkId, Hit, Query, ResultTable, Scope
from retrievers.postgres.connections.database import Database
from retrievers.postgres.guard.guard import judge_statement
from retrievers.postgres.guard.lexer import MAX_BYTES
from retrievers.postgres.sql import execution
from retrievers.postgres.sql.aggregate import compile_aggregate
from retrievers.postgres.sql.view import DocumentsView, DocumentsViews, describe_columns
from retrievers.registry import Resources

CARD = Card(
    name="sql",
    kind="metadata",
    good_for="calculations over metadata: how many, which share, sums, averages, extremes, rankings, groups",
    examples=(
        "How many documents are there?",
        "Which author wrote the most?",
        "average number of authors per document in 2024",
        "list the five oldest drafts",
        "what share of them is final, in percent",
        "一共有多少篇文档?",
        "哪一年发布的文档最多?",
        "每种状态各有多少篇?",
    ),
)

_MOST_LINES = 50
_MOST_CELL_CHARACTERS = 200
_PLACES = """
    SELECT d.tenant, d.collection, d.id FROM signalbox.document d
    WHERE d.tenant = ANY (%(tenants)s) AND d.collection = ANY (%(among)s) AND d.id = ANY (%(ids)s)
"""


@dataclass(frozen=True, slots=True)
class Sql:
    """A retriever that calculates over the metadata of documents with SQL, and returns the result table as hits."""

    database: Database
    views: DocumentsViews

    @property
    def card(self) -> Card:
        """See `Retriever.card`."""
        return CARD

    async def search(self, query: Query) -> list[Hit]:
        """Return one hit per document if the result table lists document ids, else one hit for the whole table.

        The first hit contains the table. The result is empty if the query has neither an aggregate nor a statement.

        Raises:
            BadRequest: the statement is refused; the message says why.
            Unavailable: no answer in time.
        """
        if query.aggregate is None and query.statement is None:
            return []
        table = await self.answer(query)
        hits = await self._listed(query, table)
        if not hits:
            return [_calculated(query.scope, table)]
        return [hits[0]._replace(table=table), *hits[1:]]

    async def answer(self, query: Query) -> ResultTable:
        """Execute the query's aggregate, or else its statement, and return the table. Raises like `search`."""
        view = await self.views.of(query.scope)
        if query.aggregate is not None:
            statement = compile_aggregate(query.aggregate, query.filter, view)
            # A long list of values can exceed the guard's size limit. The compiled statement contains only names of the
            # view and quoted values, so it is safe without the guard.
            if len(statement.encode()) <= MAX_BYTES:
                statement = _accepted(statement, view)
        else:
            statement = _accepted(query.statement or "", view)
        return await execution.run_statement(self.database, query.scope, view, statement)

    async def columns(self, scope: Scope) -> Mapping[str, str]:
        """Return column name to type of the view `documents`, for a model that writes statements."""
        return (await self.views.of(scope)).columns

    async def describe(self, scope: Scope) -> str:
        """Describe the columns of the view `documents` for a model that writes statements."""
        return describe_columns(await self.views.of(scope))

    async def _listed(self, query: Query, table: ResultTable) -> list[Hit]:
        """Return a hit for every document in the table's "id" column, in row order.

        Empty if the table has no such column or no rows, or if one of the ids is unknown.
        """
        if "id" not in table.columns or not table.rows:
            return []
        place = table.columns.index("id")
        ids = list(dict.fromkeys(str(row[place]) for row in table.rows))
        among = {one.number: one.name for one in query.scope.collections}
        values: dict[str, Any] = {
            "tenants": sorted({one.tenant for one in query.scope.collections}),
            "among": list(among),
            "ids": ids,
        }
        found: dict[str, list[ChunkId]] = {}
        for tenant, number, id in await self.database.reads.fetch(query.scope.viewer, _PLACES, values):
            found.setdefault(id, []).append(ChunkId(tenant, among[number], id, 0))
        if len(found) < len(ids):
            return []
        chunks = [chunk for id in ids for chunk in sorted(found[id])]
        return [Hit(chunk, 1 / rank, CARD.name) for rank, chunk in enumerate(chunks, 1)][: query.limit]


def _accepted(statement: str, view: DocumentsView) -> str:
    verdict = judge_statement(statement, view.columns)
    if verdict.sql is None:
        raise BadRequest(f"the SQL statement is refused: {verdict.reason}", where="statement")
    return verdict.sql


def _calculated(scope: Scope, table: ResultTable) -> Hit:
    """Return a hit whose chunk has the table as text, so that it can be cited; no such document is stored."""
    count = sum(one.documents for one in scope.collections)
    names = ", ".join(dict.fromkeys(one.name for one in scope.collections))
    digest = hashlib.sha256(repr((table.sql, table.rows)).encode(errors="replace")).hexdigest()[:12]
    first = scope.collections[0] if scope.collections else None
    chunk = Chunk(
        id=ChunkId(scope.tenant, first.name if first else "", f"table:{digest}", 0),
        title=f"Calculated over {names} ({count:,} document{'' if count == 1 else 's'})",
        text=(text := format_table(table)),
        end=len(text),
    )
    return Hit(chunk.id, 1.0, CARD.name, chunk, table)


def format_table(table: ResultTable) -> str:
    """Format a table, with the statement that produced it, for models and people."""
    rows = [[_cell(value) for value in row] for row in table.rows[:_MOST_LINES]]
    if len(table.columns) == 1 and len(rows) == 1:
        lines = [f"{table.columns[0]}: {rows[0][0]}"]
    else:
        lines = [" | ".join(table.columns), *(" | ".join(row) for row in rows)]
    more = len(table.rows) - len(rows)
    if more > 0:
        lines.append(f"... and {more:,} more rows")
    if not rows:
        lines.append("(no rows)")
    return "\n".join([*lines, "", "Calculated by:", table.sql])


def _cell(value: object) -> str:
    if value is None:
        return "none"
    written = ", ".join(map(_cell, value)) if isinstance(value, list) else str(value)
    line = " ".join(written.split())
    return line if len(line) <= _MOST_CELL_CHARACTERS else line[: _MOST_CELL_CHARACTERS - 1] + "…"


def build(resources: Resources) -> Sql:
    """Build the source over the service's database."""
    return Sql(resources.database, DocumentsViews(resources.database))
