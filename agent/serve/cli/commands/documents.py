"""The commands that store, renew, check and delete documents."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.serve.cli.options import AsJson, Tenant, principals_or_all
from agent.serve.cli.service_runner import run_with_service
from agent.serve.exit_codes import DONE
from retrievers.core.errors import BadRequest

if TYPE_CHECKING:
    from agent.service.service import Service

Collection = Annotated[str, typer.Argument(help="the collection")]
Wait = Annotated[bool, typer.Option("--wait", help="do the work in this process and wait for its end")]


def ingest(
    paths: Annotated[list[str], typer.Argument(help="files or folders; - reads JSONL from stdin", metavar="PATH...")],
    collection: Annotated[str, typer.Option(help="collection to store in; created if missing")],
    tenant: Tenant = None,
    schema: Annotated[Path | None, typer.Option(help="JSON file with the field types (default: inferred)")] = None,
    description: Annotated[
        str | None, typer.Option(help="description of the collection (default: a draft made from its documents)")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Store documents from files or folders.

    Reads JSONL, CSV, Markdown, HTML, text, PDF and DOCX. Unchanged documents cost nothing, changed ones are replaced,
    and a bad document does not affect the others.
    """
    from agent.serve.cli.ingest import run

    return run_with_service(
        lambda service: run(
            service, paths, collection, tenant=tenant, schema=schema, description=description, as_json=as_json
        )
    )


def sync(
    source: Annotated[
        str | None,
        typer.Argument(
            help="a folder or file, git:CHECKOUT, s3://BUCKET/PREFIX, the URL of a sitemap, of a list of pages or of a "
            "database, or the NAME of a table [sync.NAME] in the settings; without a source, the syncs are listed",
            metavar="[SOURCE]",
        ),
    ] = None,
    collection: Annotated[
        str | None, typer.Option(help="collection that follows the source; created if missing")
    ] = None,
    tenant: Tenant = None,
    table: Annotated[str | None, typer.Option(help="for a database: the table, with or without its schema")] = None,
    query: Annotated[str | None, typer.Option(help="for a database: a SELECT instead of a table")] = None,
    updated_at: Annotated[
        str | None, typer.Option(help="for a database: the column that changes whenever its row changes")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show the changes without making them")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="delete all documents missing from the source, even more than SYNC_MAX_DELETE"),
    ] = False,
    forget: Annotated[
        str | None,
        typer.Option(
            help="end a sync, for instance because its source was moved or renamed; its documents stay",
            metavar="COLLECTION|ID",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Make a collection follow a source.

    New documents are added, changed ones replaced and missing ones deleted.
    """
    from agent.serve.cli.sync import SyncArguments, check_arguments, run

    arguments = SyncArguments(source, collection, tenant, table, query, updated_at, dry_run, force, forget)
    check_arguments(arguments)
    return run_with_service(lambda service: run(service, arguments, as_json=as_json))


def delete(
    collection: Annotated[str, typer.Option(help="the collection")],
    document: Annotated[str | None, typer.Option(help="id of one document (default: the whole collection)")] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> int:
    """Delete documents and everything derived from them."""

    async def run(service: "Service") -> int:
        from agent.serve.cli import output

        count = await service.delete(collection, document, tenant=tenant)
        if document is not None and not count:
            raise BadRequest(f'collection "{collection}" holds no document "{document}"', where="document")
        if as_json:
            output.write_json({"collection": collection, "deleted": count})
        else:
            print(f"{collection}: {count:,} document{'s' if count != 1 else ''} deleted")
        return DONE

    return run_with_service(run)


def jobs(
    action: Annotated[
        str | None,
        typer.Argument(help="`show`, `retry` or `cancel` a job (default: list jobs)", metavar="[show|retry|cancel]"),
    ] = None,
    id: Annotated[str | None, typer.Argument(help="job_id of the job", metavar="[ID]")] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> int:
    """List, show, retry or cancel jobs.

    `show` lists a job's failed documents with the reasons; `cancel` ends a reembed, a rebuild or a sync.
    """
    from agent.serve.cli.jobs import check_arguments, run

    check_arguments(action, id)
    return run_with_service(
        lambda service: run(service, action, id, viewer=service.viewer(tenant, principals_or_all()), as_json=as_json)
    )


def reembed(
    collection: Collection,
    embedder: Annotated[str, typer.Option(help="the new embedder, written as in the setting EMBEDDER")],
    wait: Wait = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> int:
    """Give a collection another embedder.

    Questions use the old vectors until all new ones are stored.
    """
    from agent.serve.cli.maintenance import rebuild_collection

    return run_with_service(
        lambda service: rebuild_collection(
            service,
            collection,
            embedder,
            viewer=service.viewer(tenant, principals_or_all()),
            wait=wait,
            as_json=as_json,
        )
    )


def rebuild(collection: Collection, wait: Wait = False, tenant: Tenant = None, as_json: AsJson = False) -> int:
    """Rebuild a collection from its stored documents.

    They are split, analysed and indexed again, as this version does.
    """
    from agent.serve.cli.maintenance import rebuild_collection

    return run_with_service(
        lambda service: rebuild_collection(
            service, collection, None, viewer=service.viewer(tenant, principals_or_all()), wait=wait, as_json=as_json
        )
    )


def check(
    collection: Annotated[str | None, typer.Argument(help="the collection (default: all collections)")] = None,
    mend: Annotated[bool, typer.Option("--mend", help="repair the faults that are found")] = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> int:
    """Compare stored data with the documents.

    Checks passages, vectors, BM25, counts and indexes.
    """
    from agent.serve.cli.maintenance import check_collections

    return run_with_service(
        lambda service: check_collections(
            service, collection, viewer=service.viewer(tenant, principals_or_all()), mend=mend, as_json=as_json
        )
    )
