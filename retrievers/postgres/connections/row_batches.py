"""Read many rows of one statement without blocking the event loop."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from psycopg import AsyncConnection, AsyncCursor

from retrievers.postgres.connections.database import Row


async def fetch_in_batches(cursor: AsyncCursor[Row], each: int = 1000) -> list[Row]:
    """Return all rows of an executed statement. They are decoded in batches of `each`; other tasks run in between."""
    rows: list[Row] = []
    while some := await cursor.fetchmany(each):
        rows += some
        await asyncio.sleep(0)
    return rows


async def stream_batches(
    connection: AsyncConnection[Row], statement: str, values: Mapping[str, Any], each: int
) -> AsyncIterator[list[Row]]:
    """Yield the rows of a statement in batches of `each`, to limit memory and to let other tasks run in between.

    Args:
        connection: a connection in a transaction.
    """
    async with connection.cursor(name="pages") as cursor:
        await cursor.execute(statement.encode(), values)
        while rows := await cursor.fetchmany(each):
            yield rows
