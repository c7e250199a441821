"""Many rows of one statement, without holding up the event loop."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from psycopg import AsyncConnection, AsyncCursor

from retrievers.postgres.database import Row


async def fetched(cursor: AsyncCursor[Row], each: int = 1000) -> list[Row]:
    """All rows of a statement, decoded some at a time: others have the event loop in between."""
    rows: list[Row] = []
    while some := await cursor.fetchmany(each):
        rows += some
        await asyncio.sleep(0)
    return rows


async def pages(
    connection: AsyncConnection[Row], statement: str, values: Mapping[str, Any], each: int
) -> AsyncIterator[list[Row]]:
    """The rows of a statement, so many at a time: neither memory nor the event loop has all of them at once.

    Args:
        connection: in a transaction.
    """
    async with connection.cursor(name="pages") as cursor:
        await cursor.execute(statement.encode(), values)
        while rows := await cursor.fetchmany(each):
            yield rows
