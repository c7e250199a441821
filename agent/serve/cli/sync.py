"""The `sync` command: make a collection follow a source, or list the syncs."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from agent.serve.cli import output
from agent.serve.cli.jobs import job_json
from agent.settings import Settings
from retrievers.core.errors import BadRequest
from retrievers.ingest.report import Failure, IngestReport
from retrievers.sync.source_factory import open_source

if TYPE_CHECKING:
    from agent.service.service import Service
    from retrievers.sync.mirror_run import Mirror, MirrorReport
    from retrievers.sync.plan import SyncPlan
    from retrievers.sync.schedule import MirrorStatus

_LINE_EVERY_S = 10.0
_MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class SyncArguments:
    """The arguments of the command; None if not given.

    Attributes:
        source: a source, or the NAME of a table [sync.NAME] in the settings, which then defines everything.
    """

    source: str | None
    collection: str | None
    tenant: str | None = None
    table: str | None = None
    query: str | None = None
    updated_at: str | None = None
    dry_run: bool = False
    force: bool = False
    forget: str | None = None


def check_arguments(arguments: SyncArguments) -> None:
    """Check the arguments of the command.

    Raises:
        BadRequest: the arguments exclude each other.
    """
    if arguments.forget is not None and arguments != SyncArguments(
        None, None, arguments.tenant, forget=arguments.forget
    ):
        raise BadRequest("--forget takes no other arguments except --tenant and --json", where="--forget")


async def run(service: "Service", arguments: SyncArguments, *, as_json: bool) -> int:
    """Run a sync and print the result; or, as the arguments say, plan one, list all or forget one.

    Return the exit code: 2 if a document failed, 1 if a planned sync would delete too many documents, otherwise 0.

    Raises:
        DeletionRefused: the sync would delete more documents than SYNC_MAX_DELETE allows.
    """
    if arguments.forget is not None:
        gone = await service.forget_sync(arguments.forget, tenant=service.viewer(arguments.tenant, ("*",)))
        if as_json:
            output.write_json({"forgotten": sync_json(gone)})
        else:
            print(output.terminal_text(f"forgotten: {gone.source} -> {gone.collection}; its documents stay"))
        return 0
    if arguments.source is None:
        _show_all(await service.syncs(tenant=service.viewer(arguments.tenant, ("*",))), as_json=as_json)
        return 0
    mirror = _open_mirror(service, arguments, arguments.source)
    if arguments.dry_run:
        plan = await service.plan_sync(mirror, force=arguments.force)
        _show_plan(mirror, plan, as_json=as_json)
        return 1 if plan.refused else 2 if plan.failed else 0
    started = time.monotonic()
    id, report = await service.sync(mirror, force=arguments.force, progress=_SyncProgress())
    for note in report.notes:
        output.print_note(note)
    _show_failures(report.failed)
    if as_json:
        output.write_json(
            {"source": mirror.source.name, "collection": mirror.collection, "job_id": id, **asdict(report)}
        )
    else:
        print(output.terminal_text(f"{mirror.collection}: {_counts(report)} ({time.monotonic() - started:.1f} s)"))
    return 2 if report.failed else 0


def _open_mirror(service: "Service", arguments: SyncArguments, source: str) -> "Mirror":
    options = {"table": arguments.table, "query": arguments.query, "updated_at": arguments.updated_at}
    known = service.settings.sync.get(source)
    if known is None:
        if arguments.collection is None:
            raise BadRequest(
                f"name the collection that follows the source: --collection NAME{_sync_names_hint(service.settings)}",
                where="--collection",
            )
        return service.mirror(open_source(source, **options), arguments.collection, tenant=arguments.tenant)
    if arguments.collection not in (None, known.collection) or any(options.values()):
        raise BadRequest(f'the settings define the sync "{source}": give only its name', where="source")
    options = {"table": known.table, "query": known.query, "updated_at": known.updated_at}
    tenant = arguments.tenant or known.tenant
    return service.mirror(open_source(known.source, **options), known.collection, tenant=tenant)


def _sync_names_hint(settings: Settings) -> str:
    names = ", ".join(sorted(settings.sync))
    return f", or give the name of a sync in the settings: {names}" if names else ""


class _SyncProgress:
    """Prints progress, one line every ten seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, report: IngestReport) -> None:
        if time.monotonic() - self._last >= _LINE_EVERY_S:
            self._last = time.monotonic()
            output.print_note(f"{report.done:,} documents")


def _counts(report: "MirrorReport") -> str:
    return (
        f"{report.inserted:,} added, {report.updated:,} updated, {report.deleted:,} deleted, "
        f"{report.unchanged:,} unchanged, {len(report.failed):,} failed"
    )


def _show_failures(failed: Sequence[Failure]) -> None:
    for failure in failed[:_MOST_SHOWN]:
        output.print_note(f"{failure.where}: {failure.reason}")
    if len(failed) > _MOST_SHOWN:
        output.print_note(f"{len(failed) - _MOST_SHOWN:,} more failed; --json lists all of them")


def _show_plan(mirror: "Mirror", plan: "SyncPlan", *, as_json: bool) -> None:
    if as_json:
        output.write_json(
            {"source": mirror.source.name, "collection": mirror.collection, "dry_run": True, **asdict(plan)}
        )
        return
    for sign, ids in (("+", plan.added), ("~", plan.changed), ("-", plan.deleted)):
        for id in ids[:_MOST_SHOWN]:
            print(output.terminal_text(f"{sign} {id}"))
        if len(ids) > _MOST_SHOWN:
            print(f"{sign} and {len(ids) - _MOST_SHOWN:,} more; --json lists all of them")
    _show_failures(plan.failed)
    counts = f"{len(plan.added):,} to add, {len(plan.changed):,} to change, {len(plan.deleted):,} to delete"
    print(
        output.terminal_text(
            f"{mirror.collection}: {counts}, {plan.unchanged:,} unchanged, {len(plan.failed):,} cannot be stored"
        )
    )
    if plan.refused:
        output.print_note(f"the deletions would be refused: {plan.refused}")


def _show_all(followed: "Sequence[MirrorStatus]", *, as_json: bool) -> None:
    if as_json:
        output.write_json([sync_json(one) for one in followed])
        return
    for one in followed:
        print(output.terminal_text(f"{one.name or one.id}: {one.source} -> {one.collection}, {_schedule_text(one)}"))
        if (job := one.last) is not None:
            counts = f"{job.inserted:,} added, {job.updated:,} updated, {job.deleted:,} deleted, {job.failed:,} failed"
            at = f"{job.finished_at or job.created_at:%Y-%m-%d %H:%M:%S}"
            print(output.terminal_text(f"    {at} {job.status}: {counts}{f'; {job.error}' if job.error else ''}"))
    if not followed:
        print("no collection follows a source; start with `signalbox sync SOURCE --collection NAME`")


def _schedule_text(one: "MirrorStatus") -> str:
    if not one.every_s:
        return "by hand"
    if not one.has_worker:
        return f"every {one.every_s:g} s, but no running worker has it in its settings"
    return f"every {one.every_s:g} s" + (f", next {one.next_at:%Y-%m-%d %H:%M:%S}" if one.next_at else "")


def sync_json(one: "MirrorStatus") -> dict[str, object]:
    """Return a sync as JSON values."""
    names = ("id", "name", "source", "collection", "every_s", "has_worker", "documents")
    values = {name: getattr(one, name) for name in names}
    next_at = one.next_at.isoformat() if one.next_at else None
    return values | {"next_at": next_at, "last": job_json(one.last) if one.last else None}
