"""Find which values occur in the documents that satisfy a filter."""

from collections.abc import Collection, Mapping

from retrievers.core.filters import Filter, filter_to_jsonpath
from retrievers.core.types import Scope
from retrievers.postgres.connections.read_routing import ReadRouter

_WITHIN = """
    WITH inside AS MATERIALIZED (
        SELECT d.fields
        FROM unnest(%(tenants)s::text[], %(among)s::integer[]) AS one (tenant, collection)
        JOIN signalbox.document d USING (tenant, collection)
        WHERE d.enabled AND (d.expires_at IS NULL OR d.expires_at > now()) AND d.fields @@ %(wanted)s::jsonpath
        LIMIT %(most)s),
    candidate AS (SELECT * FROM unnest(%(fields)s::text[], %(values)s::text[]) AS c (field, value))
    SELECT c.field, c.value, count(*)
    FROM inside CROSS JOIN (SELECT DISTINCT field FROM candidate) AS asked
    CROSS JOIN LATERAL (
        SELECT DISTINCT item #>> '{}' AS value
        FROM jsonb_path_query(inside.fields -> asked.field, '$[*]') AS item) AS held
    JOIN candidate c ON c.field = asked.field AND c.value = held.value
    GROUP BY c.field, c.value
"""


async def count_filtered_values(
    reads: ReadRouter,
    scope: Scope,
    wanted: Filter,
    candidates: Mapping[str, Collection[str]],
    *,
    most_documents: int | None = None,
) -> dict[str, dict[str, int]]:
    """Return those candidate values that occur in documents that satisfy a filter.

    Args:
        wanted: the filter.
        candidates: field to the values to look for.
        most_documents: maximum number of documents to look at; None for all that satisfy the filter.
    Returns:
        {field: {value: number of these documents with the value}}, without values and fields that do not occur.
    Raises:
        Unavailable: the database cannot answer.
    """
    pairs = [(field, value) for field, values in candidates.items() for value in values if "\0" not in value]
    if not pairs or not scope.collections:
        return {}
    values = {
        "tenants": [one.tenant for one in scope.collections],
        "among": [one.number for one in scope.collections],
        "wanted": filter_to_jsonpath(wanted),
        "most": most_documents,
        "fields": [field for field, _ in pairs],
        "values": [value for _, value in pairs],
    }
    held: dict[str, dict[str, int]] = {}
    for field, value, count in await reads.fetch(scope.viewer, _WITHIN, values):
        held.setdefault(field, {})[value] = count
    return held
