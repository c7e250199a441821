"""`signalbox tenants`: settings and quotas of tenants, with access to the database."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.serve.cli.options import AsJson

if TYPE_CHECKING:
    from agent.service.metering import Metering
    from agent.settings import Settings

app = typer.Typer(help="Tenants: their settings, quotas and usage today.")

_KEYS = (
    "sources=vector,fulltext time_zone=Asia/Shanghai week_start=6 fiscal_year_start=4 collection=NAME language=zh "
    "questions_per_day=100 tokens_per_day=50000; an empty value restores the default of the service"
)


@app.callback(invoke_without_command=True)
def list_tenants(context: typer.Context, as_json: AsJson = False) -> int | None:
    """List every tenant with its settings and today's usage; `tenants set` changes the settings."""
    if context.invoked_subcommand is not None:
        return None

    async def run(metering: "Metering", settings: "Settings") -> int:
        from agent.serve.cli import output

        found = [await _settings_report(metering, settings, name) for name in await metering.tenants.names()]
        if as_json:
            output.write_json(found)
        else:
            print(
                "\n".join(map(_line, found))
                or "no tenants yet: storing documents, creating a key or `tenants set` creates one"
            )
        return 0

    return _run_with_metering(run)


@app.command("set")
def set_tenant(
    tenant: Annotated[str, typer.Argument(help="the tenant", metavar="TENANT")],
    pairs: Annotated[list[str], typer.Argument(help=_KEYS, metavar="KEY=VALUE...")],
    as_json: AsJson = False,
) -> int:
    """Change settings of a tenant; every process uses them from its next request on."""

    from agent.service.tenancy import read_changes

    changes = read_changes(pairs)

    async def run(metering: "Metering", settings: "Settings") -> int:
        from agent.serve.cli import output

        await metering.tenants.change_any_settings(tenant, changes.checked(settings))
        found = await _settings_report(metering, settings, tenant)
        if as_json:
            output.write_json(found)
        else:
            print(_line(found))
        return 0

    return _run_with_metering(run)


async def _settings_report(metering: "Metering", settings: "Settings", tenant: str) -> dict[str, Any]:
    from agent.service.tenancy import known_sources, tenant_settings_report

    return tenant_settings_report(tenant, await metering.state(tenant), settings, known_sources(settings))


def _line(found: dict[str, Any]) -> str:
    from agent.serve.cli.output import terminal_text

    values = {
        name: ",".join(value) if isinstance(value, tuple) else value
        for name, value in found["settings"].items()
        if value is not None
    }
    used = f"today {found['use']['questions']:,} questions, {found['use']['tokens']:,} tokens"
    return terminal_text("  ".join([found["tenant"], *(f"{name}={value}" for name, value in values.items()), used]))


def _run_with_metering(action: Callable[["Metering", "Settings"], Awaitable[int]]) -> int:
    """Open the database, run one action and close it; no model or embedder is loaded."""
    from agent.service.factory import database_addresses
    from agent.service.metering import Metering
    from agent.settings import load_settings
    from retrievers.postgres.connections.database import Database

    async def run() -> int:
        settings = load_settings()
        with database_addresses(settings) as (owner, service):
            async with Database(owner, service, size=1) as database, Metering(database, settings.time_zone) as metering:
                return await action(metering, settings)

    return asyncio.run(run())
