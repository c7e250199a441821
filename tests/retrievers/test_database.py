"""The pool under requests that are cut short: nothing is lost, nothing goes on, no answer reaches the wrong one."""

import asyncio
import random
from contextlib import suppress

import numpy as np
import psycopg
from pgvector import Vector
from psycopg.adapt import PyFormat

from retrievers.postgres.connections.database import Database

_BUSY = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
          AND backend_type = 'client backend'
"""


def busy(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(_BUSY).fetchone()
    assert row is not None
    return int(row[0])


async def test_cancelled_statements_end_in_postgresql_and_no_connection_is_lost(database: Database, owner_url: str):
    choose = random.Random(5)
    pool = database.primary._pool
    assert pool is not None

    async def asking(n: int) -> None:
        kind = choose.choice(["sleep", "search", "fetch", "transaction"])
        if kind == "sleep":
            await database.fetch_autocommit("SELECT pg_sleep(60)", {})
        elif kind == "search":
            assert await database.fetch_autocommit("SELECT %(n)s::int, pg_sleep(0.002)::text", {"n": n}) == [(n, "")]
        elif kind == "fetch":
            assert await database.fetch("t", "SELECT %(n)s::int, pg_sleep(0.002)::text", {"n": n}) == [(n, "")]
        else:
            async with database.transaction("t") as connection:
                assert await (await connection.execute("SELECT %s::int", (n,))).fetchall() == [(n,)]

    async def cut(n: int) -> None:
        task = asyncio.create_task(asking(n))
        await asyncio.sleep(choose.random() * 0.02)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    for start in range(0, 600, 30):
        await asyncio.gather(*(cut(n) for n in range(start, start + 30)))
    for _ in range(400):  # far less than what is to be ended would take
        if not busy(owner_url):
            break
        await asyncio.sleep(0.05)

    assert busy(owner_url) == 0
    for n in range(20):
        assert await database.fetch("t", "SELECT %(n)s::int", {"n": n}) == [(n,)]
    stats = pool.get_stats()
    assert stats["pool_available"] == stats["pool_size"] <= 4
    assert not stats.get("requests_waiting")


async def test_the_connection_used_last_is_taken_first_and_the_one_unused_longest_is_closed(database: Database):
    async with database.connection(), database.connection(), database.connection():
        pass
    pool = database.primary._pool
    assert pool is not None

    async def asked() -> int:
        return int((await database.fetch_autocommit("SELECT pg_backend_pid()", {}))[0][0])

    known = [connection.info.backend_pid for connection in pool._pool]
    assert len(known) == 3
    assert {await asked() for _ in range(6)} == {known[-1]}
    pool._nconns_min = 2  # as after a while in which no more than one was in use
    await pool._shrink_pool()
    assert [connection.info.backend_pid for connection in pool._pool] == known[1:]


async def test_a_connection_that_carried_much_is_replaced(database: Database):
    async def process(carried_bytes: int) -> object:
        async with database.transaction("acme") as connection:
            database.retire(connection, carried_bytes)
            return (await (await connection.execute("SELECT pg_backend_pid()")).fetchone() or [None])[0]

    replaced = await process(8 << 20)
    kept = await process(1000)

    pool = database.primary._pool
    assert pool is not None
    assert replaced != kept
    assert kept in {connection.info.backend_pid for connection in pool._pool}


async def test_all_connections_share_what_they_know_of_vectors(database: Database):
    async with database.connection() as one, database.connection() as other:
        dumpers = [each.adapters.get_dumper(Vector, PyFormat.BINARY) for each in (one, other)]
        assert dumpers[0] is dumpers[1]
        for each in (one, other):
            row = await (
                await each.execute("SELECT %b::vector, %b::vector", [Vector([1, 2]), np.array([3.0, 4.0])])
            ).fetchone()
            assert row == (Vector([1, 2]), Vector([3, 4]))
