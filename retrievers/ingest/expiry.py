"""Delete expired rows and replaced collections, and withdraw expired documents from the counts, for all tenants."""

import logging
import math
import time
from typing import Any

from retrievers.core.errors import Unavailable
from retrievers.core.timeouts import wait_within
from retrievers.core.types import unrestricted_viewer
from retrievers.ingest.database_timeout import with_database_timeout
from retrievers.ingest.derived_data import update_derived_data
from retrievers.ingest.retired_collections import delete_retired_collection
from retrievers.postgres.connections.database import Database, Row

_EVERY_S = 60.0
_BATCH = 1000
_REMOVE_S = 5.0
"""Maximum time per run for deleting rows of a replaced collection, in seconds."""
_UPDATE_S = 600.0
"""Time limit for settling a collection, in seconds, in case the database hangs. A large collection takes minutes."""

_log = logging.getLogger(__name__)


class ExpirySweeper:
    """Deletes expired rows of all tenants, at most once a minute. Several processes may do so at the same time.

    Args:
        patience_s: how long to wait for one statement, in seconds.
        retired_s: time between the replacement of a collection and the deletion of its rows, in seconds. Requests that
            began before the replacement still use them.
    """

    def __init__(self, database: Database, *, patience_s: float = 10.0, retired_s: float = 30.0) -> None:
        self._database = database
        self.patience_s, self.retired_s = patience_s, retired_s
        self._ran_at = -math.inf

    async def run(self) -> None:
        """Delete what has expired, unless this was done within the last minute. Errors are logged."""
        if time.monotonic() - self._ran_at < _EVERY_S:
            return
        self._ran_at = time.monotonic()
        try:
            await self.sweep()
            for tenant, number in await self.collections_with_expired():
                await self.update_derived_data(tenant, number)
            for tenant, number in await self.retired_collections():
                if not await self.delete_retired_collection(tenant, number, within_s=_REMOVE_S):
                    self._ran_at = -math.inf  # rows are left for the next call, which need not wait a minute
        except Exception as error:
            reason = error if isinstance(error, Unavailable) else repr(error)
            _log.warning("expired rows could not be deleted; the next try is in %g s: %s", _EVERY_S, reason)

    async def sweep(self) -> None:
        """Delete a batch of each kind of expired row of all tenants, such as jobs, traces and conversations."""
        await self._fetch("SELECT signalbox.sweep(%s, %s)", _BATCH)

    async def collections_with_expired(self) -> list[tuple[str, int]]:
        """Return (tenant, collection number) of the collections with expired documents that are still counted."""
        rows = await self._fetch("SELECT * FROM signalbox.expired_documents(%s, %s)", _BATCH)
        return [(row[0], row[1]) for row in rows]

    async def update_derived_data(self, tenant: str, number: int) -> None:
        """Remove expired documents from what is searched and counted, see `retrievers.ingest.derived_data`.

        Raises:
            TimeoutError: the database does not finish within `_UPDATE_S` seconds.
        """

        async def update() -> bool:
            async with self._database.transaction(unrestricted_viewer(tenant)) as connection:
                return await update_derived_data(connection, tenant, number)

        while await wait_within(update(), _UPDATE_S):
            pass

    async def retired_collections(self) -> list[tuple[str, int]]:
        """Return (tenant, collection number) of the replaced collections whose rows are to be deleted."""
        rows = await self._fetch("SELECT * FROM signalbox.retired_collections(%s, %s, %s)", self.retired_s, _BATCH)
        return [(row[0], row[1]) for row in rows]

    async def delete_retired_collection(self, tenant: str, number: int, *, within_s: float) -> bool:
        """See `retrievers.ingest.retired_collections.delete_retired_collection`."""
        return await wait_within(
            delete_retired_collection(self._database, tenant, number, within_s=within_s), _UPDATE_S
        )

    async def _fetch(self, statement: str, *values: Any) -> list[Row]:
        """Return the rows of an SQL function for workers, which acts for all tenants.

        Args:
            values: arguments of the SQL function after the first, which is the worker pass of this process.
        """

        async def fetched() -> list[Row]:
            async with self._database.connection() as connection:
                cursor = await connection.execute(statement, (self._database.worker_scope(), *values))
                return await cursor.fetchall()

        return await with_database_timeout(fetched(), self.patience_s)
