"""`signalbox keys`: create, list and revoke API keys, with access to the database."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from agent.serve.cli.options import AsJson

if TYPE_CHECKING:
    from retrievers.postgres.accounts.api_keys import ApiKeyRecord, ApiKeyStore

app = typer.Typer(
    help="API keys: each belongs to one tenant and gives access only to that tenant's documents.", no_args_is_help=True
)


@app.command()
def create(
    tenant: Annotated[str, typer.Option(help="tenant of the key")],
    name: Annotated[str, typer.Option(help="purpose of the key")] = "",
    expires: Annotated[
        float | None,
        typer.Option(metavar="DAYS", help="number of days the key is valid (default: until it is revoked)"),
    ] = None,
    principal: Annotated[
        list[str] | None,
        typer.Option(help="user or group the key reads as, such as user:7; repeatable; * reads everything"),
    ] = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="requests with the key may name the users and groups they read as")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Create a key and print it. It cannot be shown again, because only its digest is stored."""

    async def run(keys: "ApiKeyStore") -> int:
        from agent.serve.cli import output

        made, key = await keys.create(tenant, name, days=expires, principals=principal or (), trusted=trusted)
        if as_json:
            output.write_json({"key": key, **made.json()})
        else:
            print(key)
            until = f"until {_day(made.expires_at)}" if made.expires_at else "until it is revoked"
            output.print_note(f"key {made.id} of tenant {made.tenant}, valid {until}; it is not shown again")
        return 0

    return _run_with_keys(run)


@app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option(help="tenant of the keys (default: all tenants)")] = None,
    as_json: AsJson = False,
) -> int:
    """List the keys without their secrets: tenant, purpose, creation, expiry and last use."""

    async def run(keys: "ApiKeyStore") -> int:
        from agent.serve.cli import output

        found = await keys.list_keys(tenant)
        if as_json:
            output.write_json([key.json() for key in found])
        else:
            print("\n".join(_lines(found)) or "no keys; make one with: signalbox keys create --tenant T")
        return 0

    return _run_with_keys(run)


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(help="id of the key, shown by `keys list`", metavar="ID")],
    as_json: AsJson = False,
) -> int:
    """Revoke a key for good; it stops working within a second."""

    async def run(keys: "ApiKeyStore") -> int:
        from agent.serve.cli import output

        key = await keys.revoke(id)
        if as_json:
            output.write_json(key.json())
        else:
            print(output.terminal_text(f"key {key.id} of tenant {key.tenant} is revoked"))
        return 0

    return _run_with_keys(run)


def _run_with_keys(action: Callable[["ApiKeyStore"], Awaitable[int]]) -> int:
    """Open the database, run one action and close it; no model or embedder is loaded."""
    from agent.service.factory import database_addresses
    from agent.settings import load_settings
    from retrievers.postgres.accounts.api_keys import ApiKeyStore
    from retrievers.postgres.connections.database import Database

    async def run() -> int:
        with database_addresses(load_settings()) as (owner, service):
            async with Database(owner, service, size=1) as database:
                return await action(ApiKeyStore(database))

    return asyncio.run(run())


def _lines(keys: list["ApiKeyRecord"]) -> Iterator[str]:
    from agent.serve.cli.output import terminal_text

    for key in keys:
        reads = [f"reads as {' '.join(key.principals)}"] if key.principals else []
        reads += ["trusted"] if key.trusted else []
        parts = [key.id, f"{key.state:7}", key.tenant, key.name, *reads, f"made {_day(key.created_at)}"]
        parts += [f"{word} {_day(at)}" for word, at in (("expires", key.expires_at), ("used", key.last_used_at)) if at]
        yield terminal_text("  ".join(filter(None, parts)))


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"
