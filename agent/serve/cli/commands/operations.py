"""The commands that run the servers, prepare settings and database, and check the installation."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.serve.cli.options import AsJson, Principal, Tenant, principals_or_all
from agent.serve.cli.service_runner import run_with_service
from agent.serve.exit_codes import BAD_INPUT, DONE, UNAVAILABLE

if TYPE_CHECKING:
    from agent.service.service import Service


def mcp(tenant: Tenant = None, principal: Principal = None) -> int:
    """Run an MCP server over stdio.

    It offers tools and collections to an agent until its input ends.
    """

    async def run(service: "Service") -> int:
        from agent.serve.mcp.stdio import serve_stdio

        await serve_stdio(service, service.viewer(tenant, principals_or_all(principal)))
        return DONE

    return run_with_service(run)


def serve(
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on; 0 for a free port", min=0, max=65535)] = 8000,
    processes: Annotated[
        int | None, typer.Option(help="number of processes (default: the setting PROCESSES)", min=1, max=64)
    ] = None,
) -> int:
    """Run the HTTP API, the console and MCP."""
    from agent.serve.process import supervisor
    from agent.serve.process.immediate_exit import exit_immediately

    async def run() -> int:
        code = await supervisor.serve(host, port, processes)
        if code == DONE:  # otherwise the server did not start, and no thread is left to wait for
            exit_immediately(code)
        return code

    # Until the server installs its own handlers, exit with all cleanup, so that waiting connections get an answer.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    return asyncio.run(run())


def worker(
    at_once: Annotated[
        int | None, typer.Option(help="number of concurrent jobs (default: the setting WORKERS)", min=1, max=16)
    ] = None,
) -> int:
    """Run only the jobs of `serve`.

    Runs ingestion and scheduled syncs until stopped; on any number of machines.
    """
    from agent.serve.process import worker_command
    from agent.serve.process.immediate_exit import exit_immediately

    async def run() -> int:
        exit_immediately(await worker_command.run(at_once))

    return asyncio.run(run())


def migrate(as_json: AsJson = False) -> int:
    """Update the database schema.

    Also creates the service's login. Needed only if the service may not do so itself.
    """
    from agent.serve.cli import output
    from agent.service.factory import database_addresses
    from agent.settings import load_settings
    from retrievers.postgres.server import schema_migrations as migrating

    with database_addresses(load_settings()) as (owner, service):
        applied = migrating.migrate(owner)
        if service is None:
            migrating.service_conninfo(owner)
    names = [f"{one.version:04} {one.name}" for one in applied]
    if as_json:
        output.write_json({"applied": names})
    else:
        if applied and applied[0].version > 1:
            output.print_note(
                "running processes of an earlier version still answer, but may not run jobs: restart them"
            )
        print("\n".join(f"applied {name}" for name in names) or "the schema is up to date")
    return DONE


def init(
    path: Annotated[
        Path | None, typer.Argument(help="file or folder (default: signalbox.toml in this folder)", metavar="[PATH]")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace an existing file")] = False,
) -> int:
    """Write a commented settings file.

    It shows every setting with its default. A command reads the signalbox.toml of the folder in which it is started.
    """
    from agent.serve.cli.init import write_settings_file

    print(f"{write_settings_file(path or Path(), force=force)} written; remove the # in front of a key to set it")
    return DONE


def doctor(as_json: AsJson = False) -> int:
    """Check the installation.

    Checks the settings, the database, the models, the sources and the disk, and says how to fix each problem.
    """
    from agent.serve.cli import output
    from agent.serve.cli.doctor.checks import run_checks

    checks = asyncio.run(run_checks())
    output.print_checks(checks, as_json=as_json)
    if all(check.ok for check in checks):
        return DONE
    return BAD_INPUT if checks[0].name == "settings" and not checks[0].ok else UNAVAILABLE
