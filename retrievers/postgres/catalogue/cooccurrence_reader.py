"""Read which documents have each metadata value, for scopes with few documents."""

import asyncio
import json
from collections.abc import Mapping, Sequence

from retrievers.core.cooccurrence import MOST_DOCUMENTS, Cooccurrence
from retrievers.core.errors import Unavailable
from retrievers.core.types import FieldValues, Scope
from retrievers.postgres.connections.read_routing import ReadRouter

_MOST_CHARACTERS = 4_000
"""Maximum length of a document's values as JSON. One document with longer values makes `build_cooccurrence` empty."""
PATIENCE_S = 1.0
"""Maximum time for reading the values, in seconds."""
_ROWS = """
    SELECT CASE WHEN length(d.fields::text) <= %(characters)s THEN d.fields::text END
    FROM unnest(%(tenants)s::text[], %(among)s::integer[]) AS one (tenant, number)
    JOIN signalbox.document d ON d.tenant = one.tenant AND d.collection = one.number
    LIMIT %(most)s
"""


async def read_field_rows(reads: ReadRouter, scope: Scope) -> list[str | None] | None:
    """Return one JSON object per document in the scope, with the values that filters can use, in any order.

    At most `MOST_DOCUMENTS` + 1 documents are read: one too many shows that the scope is too large. A document whose
    values are too long gives None. The result is None if the documents cannot be read within `PATIENCE_S`.
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


def build_cooccurrence(rows: Sequence[str | None], fields: Mapping[str, FieldValues]) -> Cooccurrence:
    """Return which documents have which values; empty if a document's values are too long or the scope is too large.

    Args:
        rows: result of `read_field_rows`.
        fields: the fields to keep. Those whose `values` are empty are dropped.
    """
    if None in rows:
        return Cooccurrence()
    listed = {name: len(one.values) for name, one in fields.items() if one.values}
    return Cooccurrence.of((json.loads(row or "{}") for row in rows), listed)
