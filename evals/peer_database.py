"""Give each contender of a comparison a database of its own."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from retrievers.core.errors import Unavailable

_ADDRESS = frozenset({"host", "port", "user", "password"})
"""The parts of a connection string that every adapter takes."""


class PeerDatabase:
    """An async context manager that creates an empty database with pgvector, and drops it on leaving.

    Args:
        owner: connection string of a role that may create databases, for the server on which it is created.
    Attributes:
        address: the parts of the new database's connection string that adapters take.
    Raises:
        Unavailable: on entering, if the owner may not create a database or the extension.
    """

    def __init__(self, owner: str) -> None:
        given: dict[str, str] = {key: str(value) for key, value in conninfo_to_dict(owner).items() if value is not None}
        self._owner, self._name = owner, f"signalbox_bench_{uuid.uuid4().hex[:12]}"
        self.address = {key: value for key, value in given.items() if key in _ADDRESS} | {"dbname": self._name}

    async def __aenter__(self) -> Self:
        try:
            await self._on_server("CREATE DATABASE {}")
            async with self._connection() as connection:
                await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.Error as error:
            await self.__aexit__()
            reason = f"{str(error).strip().splitlines()[0]}; the database role must be allowed to create a database"
            raise Unavailable("the database", reason) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._on_server("DROP DATABASE IF EXISTS {} WITH (FORCE)")

    async def size(self) -> int:
        """Return the size of the database in bytes."""
        async with self._connection() as connection:
            cursor = await connection.execute("SELECT pg_database_size(current_database())")
            row = await cursor.fetchone()
        assert row is not None
        return int(row[0])

    async def analyse(self) -> None:
        """Update the statistics of all tables, because autovacuum would do so at an unknown time, maybe too late."""
        async with self._connection() as connection:
            await connection.execute("VACUUM ANALYZE")

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        address = make_conninfo(self._owner, dbname=self._name)
        async with await AsyncConnection.connect(address, autocommit=True) as connection:
            yield connection

    async def _on_server(self, statement: Any) -> None:
        async with await AsyncConnection.connect(self._owner, autocommit=True) as connection:
            await connection.execute(sql.SQL(statement).format(sql.Identifier(self._name)))
