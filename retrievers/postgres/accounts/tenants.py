"""Settings and quotas of tenants. One statement per request reads the settings and counts its questions."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg import AsyncConnection, sql

from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.types import unrestricted_viewer
from retrievers.postgres.connections.database import Database, Row
from retrievers.postgres.server.errors import convert_server_errors


@dataclass(frozen=True, slots=True)
class TenantSettings:
    """A tenant's settings, which override those of the service. None stands for the service's setting.

    Attributes:
        sources: names of the sources that its questions may use; None for all.
        week_start: 0 (Monday) to 6 (Sunday).
        fiscal_year_start: a month, 1 to 12.
        collection: default collection of questions that name none.
        language: language of answers, an ISO 639-1 code.
        questions_per_day, tokens_per_day: quotas per day in the tenant's time zone; 0 allows nothing.
    """

    sources: tuple[str, ...] | None = None
    time_zone: str | None = None
    week_start: int | None = None
    fiscal_year_start: int | None = None
    collection: str | None = None
    language: str | None = None
    questions_per_day: int | None = None
    tokens_per_day: int | None = None


SELF_SERVICE_SETTINGS = ("time_zone", "week_start", "fiscal_year_start", "collection", "language")
"""Settings that a tenant may change itself, because they grant nothing. The database lets the service write only these.
"""
SETTING_NAMES = tuple(one.name for one in fields(TenantSettings))


class DailyUsage(NamedTuple):
    """Usage of a tenant on one day: number of questions, number of model tokens, and the time when the day ends."""

    day: date
    questions: int
    tokens: int
    ends_at: datetime

    @property
    def left_s(self) -> float:
        """Seconds until the day ends."""
        return max((self.ends_at - datetime.now(UTC)).total_seconds(), 0.0)


class TenantState(NamedTuple):
    """The settings of a tenant (`rules`) and its usage of today.

    Attributes:
        changed: counter of changes to the readers of the tenant's documents, see `Catalogue.scope`.
        use: usage of today; None for a counted request of a tenant without quotas.
        refused: whether a quota is used up. The request was then not counted and must not be answered.
    """

    changed: int
    rules: TenantSettings
    use: DailyUsage | None
    refused: bool


class Tenants:
    """The settings and the usage of the tenants of one database.

    Args:
        zone: time zone of tenants that have set none.
    """

    def __init__(self, database: Database, zone: str = "UTC") -> None:
        self._database, self._zone = database, zone

    async def admit(self, tenant: str, questions: int = 1) -> TenantState:
        """Return the state of the tenant for a request, and count the request if there is a quota.

        If a quota is used up, nothing is counted and `refused` of the state is True. The quota also holds for
        concurrent requests in several processes together.

        Args:
            questions: number of questions to count; 0 to only read the state, in which `refused` is then False.
        Raises:
            Unavailable: the database cannot be reached, or cannot count.
        """
        values = {"zone": self._zone, "asking": questions}
        # If the primary is down and a standby is asked, a call that counts fails, and one that only reads does not.
        row = (await self._database.reads.fetch_autocommit(tenant, _RULES, values, current=True))[0]
        use = DailyUsage(*row[-5:-1]) if row[-5] is not None else None
        return TenantState(row[0], _rules(row[1:-5]), use, row[-1])

    async def state(self, tenant: str) -> TenantState:
        """Return the settings and today's usage without counting a request."""
        return await self.admit(tenant, 0)

    async def add_usage(self, tenant: str, questions: int, tokens: int) -> None:
        """Add numbers of questions and model tokens to today's usage, even beyond a quota."""
        values = {"scope": self._database.scope(tenant), "zone": self._zone, "asked": questions, "spent": tokens}
        await self._database.fetch_autocommit(_NOTE, values)

    async def change_own_settings(self, tenant: str, changes: Mapping[str, Any]) -> None:
        """Change some of the settings in `SELF_SERVICE_SETTINGS`, with the tenant's rights.

        Args:
            changes: setting to its new value; None for the service's setting.
        Raises:
            BadRequest: the database does not know the time zone.
            Unavailable: the database cannot be reached.
        """
        await self._check_zone(tenant, changes)
        await self._database.fetch(unrestricted_viewer(tenant), _upsert(changes), {"tenant": tenant, **changes})

    async def change_any_settings(self, tenant: str, changes: Mapping[str, Any]) -> None:
        """Change any of the tenant's settings, with the owner's rights. Raises like `change_own_settings`."""
        await self._check_zone(tenant, changes)  # also checks the tenant's name
        async with self._administering() as connection:
            await connection.execute(_upsert(changes), {"tenant": tenant, **changes})

    async def names(self) -> list[str]:
        """Return the names of all tenants that have a collection, a key or settings, sorted.

        Raises:
            Unavailable: the database cannot be reached, or its owner may not act as `signalbox_tenants`.
        """
        async with self._administering() as connection:
            return [row[0] for row in await (await connection.execute(_NAMES)).fetchall()]

    async def _check_zone(self, tenant: str, changes: Mapping[str, Any]) -> None:
        """Raise BadRequest if the changes contain a time zone that the database server does not know."""
        zone = changes.get("time_zone")
        try:
            await self._database.fetch(tenant, "SELECT now() AT TIME ZONE %(zone)s::text", {"zone": zone})
        except psycopg.errors.InvalidParameterValue as error:
            raise BadRequest(f'time_zone: the database does not know "{zone}"', where="time_zone") from error

    @asynccontextmanager
    async def _administering(self) -> AsyncIterator[AsyncConnection[Row]]:
        """Open a connection of the owner that sees the settings of all tenants. Must not serve a tenant's request."""
        try:
            with convert_server_errors():
                async with await AsyncConnection.connect(self._database.owner, connect_timeout=10) as connection:
                    await connection.execute("SET LOCAL ROLE signalbox_tenants")
                    yield connection
        except psycopg.errors.InsufficientPrivilege as error:
            raise Unavailable(
                "the database", "only the role that ran `signalbox migrate` can manage tenants: use it in DATABASE_URL"
            ) from error


def _upsert(changes: Mapping[str, Any]) -> LiteralString:
    names = [name for name in SETTING_NAMES if name in changes]
    statement = sql.SQL(_UPSERT).format(
        columns=sql.SQL(", ").join([sql.Identifier("tenant"), *map(sql.Identifier, names)]),
        values=sql.SQL(", ").join(map(sql.Placeholder, ["tenant", *names])),
        sets=sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in names),
    )
    return statement.as_string()


def _rules(row: Row) -> TenantSettings:
    sources, *more = row
    return TenantSettings(tuple(sources) if sources is not None else None, *more)


_COLUMNS = ", ".join(f"(r.settings).{name}" for name in SETTING_NAMES)
_RULES = (
    f"SELECT r.access_changed, {_COLUMNS}, (r.use).day, (r.use).questions, (r.use).tokens, r.ends_at, r.refused "  # noqa: S608
    "FROM signalbox.tenant_rules(%(scope)s, %(zone)s, %(asking)s::integer) r"
)
_UPSERT = """
    INSERT INTO signalbox.tenant_setting ({columns}) VALUES ({values})
    ON CONFLICT (tenant) DO UPDATE SET {sets} RETURNING tenant
"""
_NOTE = "SELECT signalbox.note_use(%(scope)s, %(zone)s, %(asked)s::bigint, %(spent)s::bigint)"
_NAMES = """
    SELECT tenant FROM signalbox.collection UNION SELECT tenant FROM signalbox.api_key
    UNION SELECT tenant FROM signalbox.tenant_setting ORDER BY 1
"""
