"""Shadow collections: a shadow is a new build of a collection, which replaces the collection once it is complete."""

from retrievers.core.errors import BadRequest
from retrievers.ingest import collections
from retrievers.ingest.jobs.job_types import Lease
from retrievers.text import analysis, chunking, folding


async def open_shadow_collection(connection: collections.Connection, lease: Lease, live: int, embedder: int) -> int:
    """Return the number of the shadow that a job builds; create it if missing. Discard shadows of jobs that have ended.

    Args:
        live: number of the collection that it will replace.
        embedder: number of the shadow's embedder.
    Raises:
        BadRequest: another unfinished job builds a shadow of the collection.
    """
    which = {"tenant": lease.tenant, "live": live, "job": lease.id, "embedder": embedder}
    for number, built_by, active in await (await connection.execute(_SHADOWS, which)).fetchall():
        if built_by == lease.id:
            return int(number)
        if active:
            raise BadRequest(f"job {built_by.hex} is rebuilding the collection", where="collection")
        await connection.execute(_RETIRE_SHADOW, {"tenant": lease.tenant, "number": number})
    versions = {"analysis": analysis.VERSION, "split": chunking.VERSION, "folding": folding.VERSION}
    row = await (await connection.execute(_INSERT_SHADOW, which | versions)).fetchone()
    assert row is not None
    return int(row[0])


_SHADOWS = """
    SELECT k.number, k.built_by, EXISTS (SELECT FROM signalbox.job j WHERE j.tenant = k.tenant AND j.id = k.built_by
                                         AND j.status IN ('queued', 'running'))
    FROM signalbox.collection k
    WHERE k.tenant = %(tenant)s AND k.shadow_of = %(live)s AND k.retired_at IS NULL FOR UPDATE
"""
_INSERT_SHADOW = """
    INSERT INTO signalbox.collection
           (tenant, name, embedder, analysis, split, folding, fields, records, description, shadow_of, built_by)
    SELECT tenant, name || '/next', %(embedder)s, %(analysis)s, %(split)s, %(folding)s, fields, records, description,
           number, %(job)s
    FROM signalbox.collection WHERE tenant = %(tenant)s AND number = %(live)s
    RETURNING number
"""
# Collection names contain no slash, so this name is free.
_RETIRE_SHADOW = """
    UPDATE signalbox.collection SET name = name || '/' || number, retired_at = now()
    WHERE tenant = %(tenant)s AND number = %(number)s AND retired_at IS NULL
"""
