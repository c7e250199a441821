"""API keys: shown once, stored as digests, and verified so that a revoked key stops working within a second."""

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection

from retrievers.core.errors import BadRequest, RetrievalError, Unavailable
from retrievers.core.principals import check_principals
from retrievers.ingest.readers.text_cleaning import printable
from retrievers.postgres.connections.database import Database, Row
from retrievers.postgres.server.errors import convert_server_errors

FRESH_S = 0.5
"""How long the database's answer about a key is cached, in seconds. A revoked key works at most this long, plus the
duration of a request to the database.
"""
TIMEOUT_S = 3.0
"""Timeout for verifying a key, in seconds. It is short, because the request needs time for its other work."""
MOST_CACHED = 10_000
MOST_NAME_CHARACTERS = 200
MOST_DAYS = 36_500
# sbx_<id>_<256 random bits><64 bits derived from these with the database's secret>
_FORM = re.compile(r"sbx_(?P<id>[0-9a-f]{16})_(?P<random>[0-9a-f]{64})(?P<seal>[0-9a-f]{16})")
_NOBODYS = f"sbx_{'0' * 16}_{'0' * 64}{'0' * 16}"


class InvalidKey(RetrievalError):
    """The key is invalid, revoked or expired."""


@dataclass(frozen=True, slots=True)
class ApiKeyRecord:
    """What is stored about a key. The key itself is known to its holder only.

    Attributes:
        principals: principals of the holder's requests. Without any, only documents without readers are visible.
        trusted: whether the holder may choose other principals for a request.
        last_used_at: accurate to the minute.
    """

    tenant: str
    id: str
    name: str
    principals: tuple[str, ...]
    trusted: bool
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    @property
    def state(self) -> str:
        """State of the key: live, expired or revoked."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= datetime.now(UTC) else "live"

    def json(self) -> dict[str, Any]:
        """Return the key's record as JSON values."""
        moments = {name: value.isoformat() for name, value in asdict(self).items() if isinstance(value, datetime)}
        return {**asdict(self), **moments, "state": self.state}


class KeyHolder(NamedTuple):
    """Who makes a request with a live key: tenant, id of the key, and principals and `trusted` as in `ApiKeyRecord`."""

    tenant: str
    id: str
    principals: tuple[str, ...]
    trusted: bool


@dataclass(frozen=True, slots=True)
class _KeyLookup:
    """A verification of a key by the database, finished or in progress; `at` is when it began, by `time.monotonic`."""

    at: float
    answer: "asyncio.Task[KeyHolder]"


class ApiKeyStore:
    """Creates, lists, revokes and verifies the API keys that one database stores."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asked: OrderedDict[bytes, _KeyLookup] = OrderedDict()

    async def create(
        self,
        tenant: str,
        name: str = "",
        *,
        days: float | None = None,
        principals: Iterable[str] = (),
        trusted: bool = False,
    ) -> tuple[ApiKeyRecord, str]:
        """Create a key for the tenant. Return its record, and the key as text, which cannot be shown again.

        Args:
            name: what the key is for, up to 200 printable characters.
            days: validity in days; None for unlimited.
            principals, trusted: see `ApiKeyRecord`.
        Raises:
            BadRequest: the tenant, the name, the days or the principals are invalid.
            Unavailable: the database cannot be reached.
        """
        if len(name) > MOST_NAME_CHARACTERS or name != printable(name):
            raise BadRequest(f"a key's name has at most {MOST_NAME_CHARACTERS} printable characters", where="name")
        if days is not None and not 0 < days <= MOST_DAYS:
            raise BadRequest(f"a key expires after more than 0 and at most {MOST_DAYS:,} days", where="expires")
        reads_as = check_principals(principals, everything=True)
        id, random = secrets.token_hex(8), secrets.token_hex(32)
        key = f"sbx_{id}_{random}{self._seal(id, random)}"
        expires_at = datetime.now(UTC) + timedelta(days=days) if days is not None else None
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                _CREATE, (tenant, id, name, list(reads_as), trusted, _digest(key), expires_at)
            )
            row = await cursor.fetchone()
        assert row is not None
        return _key(row), key

    async def list_keys(self, tenant: str | None = None) -> list[ApiKeyRecord]:
        """Return the keys of a tenant, or of all tenants, oldest first, including revoked and expired keys.

        Raises:
            BadRequest: the tenant's name is invalid.
            Unavailable: the database cannot be reached, or its owner may not act as `signalbox_keys`.
        """
        if tenant is not None:
            return [_key(row) for row in await self._database.fetch(tenant, _LIST, ())]
        async with self._all_tenants() as connection:
            return [_key(row) for row in await (await connection.execute(_LIST)).fetchall()]

    async def revoke(self, id: str) -> ApiKeyRecord:
        """Revoke a key permanently. Revoking it again has no effect.

        Raises:
            BadRequest: there is no key with this id.
            Unavailable: as in `list_keys`.
        """
        async with self._all_tenants() as connection:
            cursor = await connection.execute("SELECT tenant FROM signalbox.api_key WHERE id = %s", (printable(id),))
            found = await cursor.fetchone()
        if found is None:
            raise BadRequest("there is no key with that id; `signalbox keys list` shows all keys", where="id")
        rows = await self._database.fetch(found[0], _REVOKE, (id,))
        return _key(rows[0])

    async def has_live_key(self) -> bool:
        """Return whether any tenant has a live key."""
        return any(key.state == "live" for key in await self.list_keys())

    async def verify(self, key: str) -> KeyHolder:
        """Return the holder of a key.

        A key ends in a seal, a digest that only this service can compute. A wrong seal is refused without a database
        query. The database's answer or failure is cached for `FRESH_S`, and concurrent calls share one query.

        Raises:
            BadKey: the key is invalid, revoked or expired.
            Unavailable: the database cannot be reached.
        """
        # A malformed key is checked in the same way, so that the time of the refusal does not tell them apart.
        parts = _FORM.fullmatch(key) or _FORM.fullmatch(_NOBODYS)
        assert parts is not None
        if not hmac.compare_digest(parts["seal"], self._seal(parts["id"], parts["random"])):
            raise InvalidKey("this service does not know it")
        digest, now = _digest(key), time.monotonic()
        asked = self._asked.get(digest)
        if asked is None or now - asked.at >= FRESH_S:
            asked = _KeyLookup(now, asyncio.create_task(self._ask(parts["id"], digest)))
            asked.answer.add_done_callback(_seen)
            self._asked[digest] = asked
            self._asked.move_to_end(digest)
            if len(self._asked) > MOST_CACHED:
                self._asked.popitem(last=False)
        # Shielded, because other callers may wait for the same answer.
        return await asyncio.shield(asked.answer)

    async def _ask(self, id: str, digest: bytes) -> KeyHolder:
        """Ask the database for the holder of a key. Raises like `verify`."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                rows = await self._database.reads.fetch_autocommit(
                    None, _VERIFY, {"id": id, "digest": digest}, current=True
                )
        except TimeoutError as error:
            raise Unavailable("the database", f"it did not look up the key within {TIMEOUT_S:g} s") from error
        if not rows:
            raise InvalidKey("this service does not know it")
        tenant, ended, principals, trusted = rows[0]
        if ended is not None:
            raise InvalidKey(f"the key {id} {'has been' if ended == 'revoked' else 'has'} {ended}")
        return KeyHolder(tenant, id, tuple(principals), trusted)

    def _seal(self, id: str, random: str) -> str:
        return self._database.sign_text(f"{id}_{random}")[:16]

    @asynccontextmanager
    async def _all_tenants(self) -> AsyncIterator[AsyncConnection[tuple[Any, ...]]]:
        """Open a connection of the owner that can read the keys of all tenants. Must not serve a tenant's request."""
        try:
            with convert_server_errors():
                async with await AsyncConnection.connect(self._database.owner, connect_timeout=10) as connection:
                    # LOCAL, because behind a connection pooler the session may next serve another client.
                    await connection.execute("SET LOCAL ROLE signalbox_keys")
                    yield connection
        except psycopg.errors.InsufficientPrivilege as error:
            raise Unavailable(
                "the database", "only the role that ran `signalbox migrate` can manage keys: use it in DATABASE_URL"
            ) from error


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _key(row: Row) -> ApiKeyRecord:
    tenant, id, name, principals, *more = row
    return ApiKeyRecord(tenant, id, name, tuple(principals), *more)


def _seen(answer: "asyncio.Task[KeyHolder]") -> None:
    """Mark the exception as retrieved: if all callers are gone when the query fails, asyncio would log it as lost."""
    if not answer.cancelled():
        answer.exception()


_CREATE = """
    INSERT INTO signalbox.api_key (tenant, id, name, principals, trusted, digest, expires_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
    RETURNING tenant, id, name, principals, trusted, created_at, expires_at, revoked_at, last_used_at
"""
_LIST = """
    SELECT tenant, id, name, principals, trusted, created_at, expires_at, revoked_at, last_used_at
    FROM signalbox.api_key ORDER BY created_at, tenant, id
"""
_REVOKE = """
    UPDATE signalbox.api_key SET revoked_at = coalesce(revoked_at, now()) WHERE id = %s
    RETURNING tenant, id, name, principals, trusted, created_at, expires_at, revoked_at, last_used_at
"""
_VERIFY = "SELECT tenant, ended, principals, trusted FROM signalbox.verified_key(%(id)s, %(digest)s)"
