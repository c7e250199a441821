"""Read the documents of metadata values, for scopes with few documents."""

import asyncio
import json
from collections.abc import Mapping, Sequence

from retrievers.core.cooccurrence import MOST_DOCUMENTS, Cooccurrence
from retrievers.core.errors import Unavailable
from retrievers.core.types import FieldValues, Scope
from retrievers.postgres.read_routing import Reads

_MOST_CHARACTERS = 4_000
"""Maximum length of a document's values as JSON. With a longer document in a scope nothing is read."""
PATIENCE_S = 1.0
_ROWS = """
    SELECT CASE WHEN length(d.fields::text) <= %(characters)s THEN d.fields::text END
    FROM unnest(%(tenants)s::text[], %(among)s::integer[]) AS one (tenant, number)
    JOIN signalbox.document d ON d.tenant = one.tenant AND d.collection = one.number
    LIMIT %(most)s
"""


async def read_rows(reads: Reads, scope: Scope) -> list[str | None] | None:
    """Return the filterable values of the scope's documents as JSON, of at most one document more than are kept.

    A document with too many values is None. Return None if the documents cannot be read within `PATIENCE_S`: a question
    is then read without them.
    """
    values = {
        "tenants": [one.tenant for one in scope.collections],
        "among": [one.number for one in scope.collections],
        "characters": _MOST_CHARACTERS,
        "most": MOST_DOCUMENTS + 1,
    }
    try:
        async with asyncio.timeout(PATIENCE_S):
            return [row[0] for row in await reads.fetch(scope.viewer, _ROWS, values)]
    except (TimeoutError, Unavailable):
        return None


def cooccurrence_of(rows: Sequence[str | None], fields: Mapping[str, FieldValues]) -> Cooccurrence:
    """Return the documents of the listed values; nothing if a document has too many values."""
    if None in rows:
        return Cooccurrence()
    listed = {name: len(one.values) for name, one in fields.items() if one.values}
    return Cooccurrence.of((json.loads(row or "{}") for row in rows), listed)
