"""Turn the sync tables of the settings into schedules of mirrors."""

from agent.intent.values.measures import check_units
from agent.settings import ScheduledSync, Settings
from retrievers.postgres.connections.database import Database
from retrievers.sync.mirror_run import Mirror
from retrievers.sync.schedule import Schedule
from retrievers.sync.source_factory import open_source


def sync_schedules(settings: Settings, database: Database) -> list[Schedule]:
    """Return a schedule for each table [sync.NAME]; no source is contacted yet.

    Raises:
        BadRequest: the `source` of a table is not an address of a known form.
    """
    return [Schedule(name, _mirror(settings, database, one), one.every_s) for name, one in settings.sync.items()]


def _mirror(settings: Settings, database: Database, given: ScheduledSync) -> Mirror:
    source = open_source(given.source, table=given.table, query=given.query, updated_at=given.updated_at)
    return Mirror(database, given.tenant or settings.tenant, given.collection, source, check_units)
