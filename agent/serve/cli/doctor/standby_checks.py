"""Check the standbys for `doctor`: which are read, their lag, and the remedy for each fault."""

import asyncio

import psycopg

from agent.serve.cli.doctor.check_result import CheckResult
from agent.service.factory import database_addresses
from agent.settings import Settings
from retrievers.core.errors import RetrievalError
from retrievers.postgres.connections.standbys import Fault, StandbyStatus

_LOOKS, _LOOK_EVERY_S = 15, 0.2
_ADVICE: dict[Fault, str] = {
    "down": "check that it runs and that READ_URLS is correct; until then, reads go to the other servers",
    "login": "remove user and password from READ_URLS, or use a login IN ROLE signalbox_app that is not a superuser",
    "foreign": "READ_URLS must name standbys of the server and the database at DATABASE_URL",
    "promoted": "remove it from READ_URLS, or make it a standby of the primary at DATABASE_URL again",
    "diverged": "set DATABASE_URL to the primary it follows, or make it follow the primary at DATABASE_URL",
    "lagging": "check why its replay lags (pg_stat_replication on the primary), or raise MAX_LAG_S",
}


async def check_standbys(settings: Settings) -> list[CheckResult]:
    """Return a check of each standby in READ_URLS; one failed check if the database can't be opened."""
    from retrievers.postgres.connections.database import Database

    if not settings.read_urls:
        return []
    try:
        with database_addresses(settings) as (owner, service):
            opened = Database(owner, service, size=1, standbys=settings.read_urls, max_lag_s=settings.max_lag_s)
            async with opened as database:
                for _ in range(_LOOKS):  # a lag is known only after a comparison with the primary
                    found = database.reads.standbys()
                    if all(one.fault != "lagging" for one in found):
                        break
                    await asyncio.sleep(_LOOK_EVERY_S)
    except (RetrievalError, psycopg.Error) as error:
        return [CheckResult("standbys", False, " ".join(str(error).split()), "see the check of the database above")]
    return [_check_result(one) for one in found]


def _check_result(one: StandbyStatus) -> CheckResult:
    name = one.name.replace("_", " ")
    behind = "" if one.lag_s is None else f", {one.lag_s:.1f} s behind"
    if one.fault is None:
        return CheckResult(name, True, f"{one.host}, used for reads{behind}")
    return CheckResult(name, False, f"{one.host}, not used for reads{behind}: {one.reason}", _ADVICE[one.fault])
