"""The commands that show collections, sources, rows and web pages."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from agent.serve.cli.options import AsJson, Principal, Tenant, principals_or_all
from agent.serve.cli.service_runner import run_with_service
from agent.serve.exit_codes import DONE
from retrievers.core.errors import BadRequest

if TYPE_CHECKING:
    from agent.service.service import Service


def collections(
    action: Annotated[
        str | None, typer.Argument(help="`show` or `describe` one collection", metavar="[list|show|describe]")
    ] = None,
    name: Annotated[str | None, typer.Argument(help="name of the collection", metavar="[NAME]")] = None,
    text: Annotated[
        str | None, typer.Argument(help='its description; "" for a draft made from its documents', metavar="[TEXT]")
    ] = None,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: AsJson = False,
) -> int:
    """List, show or describe collections.

    `show NAME` shows one of them; `describe NAME TEXT` sets the description by which questions find it.
    """
    given = 1 + (name is not None) + (text is not None)
    actions = {None: 1, "list": 1, "show": 2, "describe": 3}
    if actions.get(action) != given:
        usage = "use `signalbox collections list`, `signalbox collections show NAME` or `... describe NAME TEXT`"
        if action not in actions:
            usage = f"there is no `signalbox collections {action}`; {usage}"
        raise BadRequest(usage, where="collections")

    async def run(service: "Service") -> int:
        from agent.serve.cli import output

        viewer = service.viewer(tenant, principals_or_all(principal))
        if name is None:
            found = await service.collections(tenant=viewer)
            output.print_collections(found, as_json=as_json)
            return DONE
        described = await service.describe(name, tenant=viewer)
        if text is not None:
            described = await service.declare(name, {"description": text}, tenant=viewer)
        output.print_fields(described, as_json=as_json)
        return DONE

    return run_with_service(run)


def sources(tenant: Tenant = None, principal: Principal = None, as_json: AsJson = False) -> int:
    """List the sources that questions may search.

    Named sources of `signalbox.toml` are included.
    """

    async def run(service: "Service") -> int:
        from agent.serve.cli import output

        found = await service.sources(tenant=service.viewer(tenant, principals_or_all(principal)))
        output.print_sources(found, as_json=as_json)
        return DONE

    return run_with_service(run)


def sql(
    statement: Annotated[str, typer.Argument(help="one SELECT; - reads one JSON string per line from stdin")],
    collection: Annotated[str, typer.Option(help="collection shown by the view `documents`")],
    check: Annotated[bool, typer.Option("--check", help="check the statement without running it")] = False,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: AsJson = False,
) -> int:
    """Run a read-only SELECT on a collection.

    The view `documents` has one row per document and a column per field.
    """
    from agent.serve.cli.sql import run

    return run_with_service(
        lambda service: run(
            service,
            statement,
            collection,
            check=check,
            as_json=as_json,
            viewer=service.viewer(tenant, principals_or_all(principal)),
        )
    )


def fetch(
    url: Annotated[str, typer.Argument(help="http or https address on the public internet", metavar="URL")],
    check: Annotated[bool, typer.Option("--check", help="check the address without fetching it")] = False,
    as_json: AsJson = False,
) -> int:
    """Fetch a web page as text.

    The guarded fetcher refuses addresses inside the network.
    """
    from agent.serve.cli.fetch import run
    from agent.settings import load_settings

    load_settings()  # as in every command, a wrong setting is an error
    return asyncio.run(run(url, check=check, as_json=as_json))
