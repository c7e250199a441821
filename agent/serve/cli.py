"""The command line `signalbox`. Everything heavy is imported by the command that needs it."""

import asyncio
import io
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from agent.serve import keys, tenants
from retrievers.core.errors import BadRequest, RetrievalError, Unavailable
from retrievers.core.extras import install_command
from retrievers.ingest.clean import one_line

if TYPE_CHECKING:
    from agent.app import Service

DONE, FAILED, BAD_INPUT, UNAVAILABLE = 0, 1, 2, 3
_INTERRUPTED = 130

Returned = TypeVar("Returned")

app = typer.Typer(
    name="signalbox",
    help="One question in, one cited prompt out: retrieval over documents with metadata, on stock PostgreSQL.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"signalbox {version('signalbox-retrieval')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="show the version", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    pass


Question = Annotated[str, typer.Argument(help="the question")]
Tenant = Annotated[str | None, typer.Option(help="whose documents; the setting TENANT when left out")]
Principal = Annotated[
    list[str] | None,
    typer.Option(
        "--principal", help="read as this user or group, such as user:7; may be repeated; everything when left out"
    ),
]
OneCollection = Annotated[str | None, typer.Option("--collection", help="one collection; all when left out")]
FilterJson = Annotated[str | None, typer.Option("--filter", help="a filter expression as JSON")]
TopK = Annotated[
    int | None, typer.Option(help="how many hits, 1 to 100; 10 when left out, or all that a question for all asks for")
]
PerDocument = Annotated[
    int | None,
    typer.Option(help="most passages of one document while others are relevant; the setting when left out"),
]
Complete = Annotated[
    bool | None,
    typer.Option(
        "--complete/--no-complete",
        help="every document that satisfies the filter, or the best hits alone; as the question asks when left out",
    ),
]
Page = Annotated[int, typer.Option(help="which page of hits, from 1")]
Sources = Annotated[list[str] | None, typer.Option("--source", help="ask this source only; may be repeated")]
IntentMode = Annotated[str | None, typer.Option("--intent", help="auto, rules, llm or off; the setting when left out")]
ContextName = Annotated[
    str | None, typer.Option("--context", help="passage, window or section; the setting when left out")
]
RerankerName = Annotated[
    str | None,
    typer.Option("--reranker", help="none, hybrid or the one of the settings, which serves when left out"),
]
FusionName = Annotated[
    str | None, typer.Option("--fusion", help="convex, rrf or weighted_sum; the setting when left out")
]
LexicalWeight = Annotated[
    float | None, typer.Option(help="share of full text in convex, 0 to 1; by question when left out")
]
Depth = Annotated[int | None, typer.Option(help="hits asked of each source, 10 to 1000; the setting when left out")]
RankFeatures = Annotated[
    str | None, typer.Option(help="what else ranks hits, such as recency:created/365=0.1; the setting when left out")
]
Now = Annotated[str | None, typer.Option(help="ask as of this day or moment, ISO 8601; today when left out")]
Fallback = Annotated[
    str | None,
    typer.Option(help="ordered_backoff, do_not_route, route_to_all or fail; the setting when left out"),
]
MinRelevance = Annotated[
    float | None, typer.Option(help="leave out hits of a lower relevance, 0 to 1; the setting when left out")
]
User = Annotated[
    str | None, typer.Option("--user", help="who asks, for records, traces, advisors and routes; opens nothing")
]
MetadataJson = Annotated[
    str | None, typer.Option("--metadata", help="what else is said of the request, a JSON object; opens nothing")
]
ConversationId = Annotated[
    str | None, typer.Option("--conversation", help="a conversation, whose turns are remembered")
]
AdvisorJson = Annotated[
    list[str] | None,
    typer.Option("--advisor", help='an advisor with parameters, {"name": "guard", "words": [...]}; may be repeated'),
]
TraceId = Annotated[str, typer.Argument(help="the trace_id of an answer", metavar="TRACE_ID")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON document on stdout and nothing else")]


@app.command()
def ingest(
    paths: Annotated[list[str], typer.Argument(help="files or folders; - reads JSONL from stdin", metavar="PATH...")],
    collection: Annotated[str, typer.Option(help="where the documents go; made when missing")],
    tenant: Tenant = None,
    schema: Annotated[Path | None, typer.Option(help="JSON file with field types; inferred when left out")] = None,
    description: Annotated[
        str | None, typer.Option(help="what the collection holds; a draft is made of its documents when left out")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Store documents: JSONL, CSV, Markdown, HTML, text, PDF, DOCX, PPTX, XLSX and e-mail files or folders.

    Unchanged documents cost nothing, changed ones are replaced, one bad document loses nobody else.
    """
    from agent.serve import ingesting

    return _with_service(
        lambda service: ingesting.run(
            service, paths, collection, tenant=tenant, schema=schema, description=description, as_json=as_json
        )
    )


@app.command()
def sync(
    source: Annotated[
        str | None,
        typer.Argument(
            help="a folder or file, git:CHECKOUT, s3://BUCKET/PREFIX, the address of a sitemap or list, or of a "
            "database; or NAME of a table [sync.NAME] of the settings; what follows which when left out",
            metavar="[SOURCE]",
        ),
    ] = None,
    collection: Annotated[str | None, typer.Option(help="what follows the source; made when missing")] = None,
    tenant: Tenant = None,
    table: Annotated[str | None, typer.Option(help="of a database: a table, maybe with its schema")] = None,
    query: Annotated[str | None, typer.Option(help="of a database: a SELECT in place of a table")] = None,
    updated_at: Annotated[
        str | None, typer.Option(help="of a database: the column that changes with every change of a row")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would change, and change nothing")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="delete whatever the source has no more, be it more than SYNC_MAX_DELETE")
    ] = False,
    forget: Annotated[
        str | None,
        typer.Option(
            help="follow a source no more that was moved or named otherwise; its documents stay",
            metavar="COLLECTION|ID",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Have a collection follow a source: what is new is added, what has changed replaced, what is gone deleted."""
    from agent.serve import syncing

    asked = syncing.Asked(source, collection, tenant, table, query, updated_at, dry_run, force, forget)
    syncing.check_arguments(asked)
    return _with_service(lambda service: syncing.run(service, asked, as_json=as_json))


@app.command()
def retrieve(
    question: Question,
    collection: OneCollection = None,
    filter: FilterJson = None,
    top_k: TopK = None,
    per_document: PerDocument = None,
    complete: Complete = None,
    page: Page = 1,
    sources: Sources = None,
    intent: IntentMode = None,
    reranker: RerankerName = None,
    fusion: FusionName = None,
    lexical_weight: LexicalWeight = None,
    depth: Depth = None,
    rank_features: RankFeatures = None,
    now: Now = None,
    fallback: Fallback = None,
    min_relevance: MinRelevance = None,
    tenant: Tenant = None,
    principal: Principal = None,
    user: User = None,
    metadata: MetadataJson = None,
    conversation: ConversationId = None,
    advisor: AdvisorJson = None,
    explain: Annotated[bool, typer.Option("--explain", help="also show how the hits were found")] = False,
    as_json: AsJson = False,
) -> int:
    """Ranked hits for a question."""

    async def run(service: "Service") -> int:
        from agent.serve import asked_by, output

        given = _read_json("--filter", filter)
        result = await service.retrieve(
            question,
            tenant=tenant,
            principals=_principals(principal),
            **asked_by.options(user, metadata, conversation, advisor),
            collection=collection,
            filter=given,
            **_said(top_k=top_k),
            per_document=per_document,
            complete=complete,
            page=page,
            sources=tuple(sources) if sources else None,
            intent=intent,
            reranker=reranker,
            fusion=fusion,
            lexical_weight=lexical_weight,
            depth=depth,
            rank_features=rank_features,
            now=now,
            fallback=fallback,
            min_relevance=min_relevance,
            explain=explain,
        )
        if as_json:
            output.write_json(result.model_dump(mode="json"))
        else:
            output.show_result(result, explain=explain, given=given)
            output.note_trace(service.traces, result.trace_id, tenant)
        return DONE

    return _with_service(run)


@app.command()
def augment(
    question: Question,
    collection: OneCollection = None,
    filter: FilterJson = None,
    top_k: TopK = None,
    per_document: PerDocument = None,
    complete: Complete = None,
    sources: Sources = None,
    intent: IntentMode = None,
    reranker: RerankerName = None,
    fusion: FusionName = None,
    lexical_weight: LexicalWeight = None,
    depth: Depth = None,
    rank_features: RankFeatures = None,
    now: Now = None,
    fallback: Fallback = None,
    min_relevance: MinRelevance = None,
    tenant: Tenant = None,
    principal: Principal = None,
    user: User = None,
    metadata: MetadataJson = None,
    conversation: ConversationId = None,
    advisor: AdvisorJson = None,
    template: Annotated[str | None, typer.Option(help="prompt template, answer when left out")] = None,
    budget_tokens: Annotated[int, typer.Option(help="most tokens of passages")] = 3000,
    context: ContextName = None,
    as_json: AsJson = False,
) -> int:
    """The single prompt with numbered citations."""

    async def run(service: "Service") -> int:
        from agent.serve import asked_by, output

        given = _read_json("--filter", filter)
        prompt = await service.augment(
            question,
            tenant=tenant,
            principals=_principals(principal),
            **asked_by.options(user, metadata, conversation, advisor),
            collection=collection,
            filter=given,
            **_said(top_k=top_k),
            per_document=per_document,
            complete=complete,
            sources=tuple(sources) if sources else None,
            intent=intent,
            reranker=reranker,
            fusion=fusion,
            lexical_weight=lexical_weight,
            depth=depth,
            rank_features=rank_features,
            now=now,
            fallback=fallback,
            min_relevance=min_relevance,
            template=template,
            budget_tokens=budget_tokens,
            context=context,
        )
        if as_json:
            output.write_json(prompt.model_dump(mode="json"))
        else:
            output.show_prompt(prompt, given=given)
            output.note_trace(service.traces, prompt.trace_id, tenant)
        return DONE

    return _with_service(run)


@app.command()
def ask(
    question: Question,
    collection: OneCollection = None,
    filter: FilterJson = None,
    top_k: TopK = None,
    per_document: PerDocument = None,
    complete: Complete = None,
    sources: Sources = None,
    intent: IntentMode = None,
    reranker: RerankerName = None,
    fusion: FusionName = None,
    lexical_weight: LexicalWeight = None,
    depth: Depth = None,
    rank_features: RankFeatures = None,
    now: Now = None,
    fallback: Fallback = None,
    min_relevance: MinRelevance = None,
    tenant: Tenant = None,
    principal: Principal = None,
    user: User = None,
    metadata: MetadataJson = None,
    conversation: ConversationId = None,
    advisor: AdvisorJson = None,
    template: Annotated[str | None, typer.Option(help="prompt template, answer when left out")] = None,
    budget_tokens: Annotated[int, typer.Option(help="most tokens of passages")] = 3000,
    context: ContextName = None,
    history: Annotated[
        Path | None, typer.Option(help="the conversation before: JSON list or JSONL of {role, content}")
    ] = None,
    judge: Annotated[str | None, typer.Option(help="off, or llm: a model also checks the answer")] = None,
    mode: Annotated[str, typer.Option(help="retrieve, or tool: the model searches itself")] = "retrieve",
    as_json: AsJson = False,
) -> int:
    """The answer, streamed, with the passages it cites; without a model: the passages."""
    from agent.serve import asked_by, asking

    async def run(service: "Service") -> int:
        return await asking.run(
            service,
            question,
            tenant=tenant,
            principals=_principals(principal),
            **asked_by.options(user, metadata, conversation, advisor),
            as_json=as_json,
            messages=asking.read_history(history) if history else None,
            collection=collection,
            filter=_read_json("--filter", filter),
            **_said(top_k=top_k),
            per_document=per_document,
            complete=complete,
            sources=tuple(sources) if sources else None,
            intent=intent,
            reranker=reranker,
            fusion=fusion,
            lexical_weight=lexical_weight,
            depth=depth,
            rank_features=rank_features,
            now=now,
            fallback=fallback,
            min_relevance=min_relevance,
            template=template,
            budget_tokens=budget_tokens,
            context=context,
            judge=judge,
            mode=mode,
        )

    return _with_service(run)


@app.command()
def explain(trace_id: TraceId, tenant: Tenant = None, principal: Principal = None, as_json: AsJson = False) -> int:
    """How an answer came about: what was understood, asked, found, ranked and left out."""
    from agent.serve import explaining

    return _with_service(
        lambda service: explaining.explain(
            service, trace_id, viewer=service.viewer(tenant, _principals(principal)), as_json=as_json
        )
    )


@app.command()
def replay(
    trace_id: TraceId,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="a setting that differs; may be repeated")
    ] = None,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: AsJson = False,
) -> int:
    """The same request again, with other settings and without calling a model; shows what is different."""
    from agent.serve import explaining

    return _with_service(
        lambda service: explaining.replay(
            service, trace_id, changes or (), viewer=service.viewer(tenant, _principals(principal)), as_json=as_json
        )
    )


@app.command()
def collections(
    action: Annotated[
        str | None, typer.Argument(help="`show` or `describe` one collection", metavar="[list|show|describe]")
    ] = None,
    name: Annotated[str | None, typer.Argument(help="its name", metavar="[NAME]")] = None,
    text: Annotated[
        str | None, typer.Argument(help='what it holds; "" for a draft made of its documents', metavar="[TEXT]")
    ] = None,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: AsJson = False,
) -> int:
    """The collections; with `show NAME` one of them; with `describe NAME TEXT` questions find it by the text."""
    given = 1 + (name is not None) + (text is not None)
    if {None: 1, "list": 1, "show": 2, "describe": 3}.get(action) != given:
        usage = "say `signalbox collections`, `signalbox collections show NAME` or `... describe NAME TEXT`"
        raise BadRequest(usage, where="collections")

    async def run(service: "Service") -> int:
        from agent.serve import output

        viewer = service.viewer(tenant, _principals(principal))
        if name is None:
            found = await service.collections(tenant=viewer)
            output.show_collections(found, as_json=as_json)
            return DONE
        described = await service.describe(name, tenant=viewer)
        if text is not None:
            described = await service.declare(name, {"description": text}, tenant=viewer)
        output.show_fields(described, as_json=as_json)
        return DONE

    return _with_service(run)


@app.command()
def sources(tenant: Tenant = None, principal: Principal = None, as_json: AsJson = False) -> int:
    """The sources that questions may be put to, those of `signalbox.toml` by their names."""

    async def run(service: "Service") -> int:
        from agent.serve import output

        found = await service.sources(tenant=service.viewer(tenant, _principals(principal)))
        output.show_sources(found, as_json=as_json)
        return DONE

    return _with_service(run)


@app.command()
def delete(
    collection: Annotated[str, typer.Option(help="the collection")],
    document: Annotated[str | None, typer.Option(help="one document's id; the whole collection when left out")] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> int:
    """Delete documents and everything derived from them."""

    async def run(service: "Service") -> int:
        from agent.serve import output

        count = await service.delete(collection, document, tenant=tenant)
        if document is not None and not count:
            raise BadRequest(f'collection "{collection}" holds no document "{document}"', where="document")
        if as_json:
            output.write_json({"collection": collection, "deleted": count})
        else:
            print(f"{collection}: {count:,} document{'s' if count != 1 else ''} deleted")
        return DONE

    return _with_service(run)


@app.command()
def jobs(
    action: Annotated[
        str | None,
        typer.Argument(help="`show` what failed of one, `retry` it or `cancel` it", metavar="[show|retry|cancel]"),
    ] = None,
    id: Annotated[str | None, typer.Argument(help="its job_id", metavar="[ID]")] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> int:
    """The jobs, or one of them with the documents that failed and why; `cancel` ends a reembed or rebuild."""
    from agent.serve import jobscommand

    jobscommand.check_arguments(action, id)
    return _with_service(
        lambda service: jobscommand.run(
            service, action, id, viewer=service.viewer(tenant, _principals(None)), as_json=as_json
        )
    )


@app.command()
def records(
    user: Annotated[str | None, typer.Option(help="what this user asked, as callers named them")] = None,
    conversation: Annotated[str | None, typer.Option(help="what was asked in this conversation")] = None,
    erase: Annotated[
        bool, typer.Option("--erase", help="erase it, with traces, turns of conversations and feedback")
    ] = False,
    limit: Annotated[int, typer.Option(help="how many are listed, the newest first", min=1, max=10_000)] = 50,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: AsJson = False,
) -> int:
    """What was asked, by whom and with what answer; with `--erase` one user's or one conversation's is erased."""
    from agent.serve import recordscommand

    recordscommand.check_arguments(user=user, conversation=conversation, erase=erase)
    return _with_service(
        lambda service: recordscommand.run(
            service,
            viewer=service.viewer(tenant, _principals(principal)),
            user=user,
            conversation=conversation,
            limit=limit,
            erase=erase,
            as_json=as_json,
        )
    )


@app.command()
def reembed(
    collection: Annotated[str, typer.Argument(help="the collection")],
    embedder: Annotated[str, typer.Option(help="the one it is to have, as of the setting EMBEDDER")],
    wait: Annotated[bool, typer.Option("--wait", help="work on it here, until it is done")] = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> int:
    """Give a collection vectors of another embedder; questions have the old ones until all of the new are there."""
    from agent.serve import rebuilding

    return _with_service(
        lambda service: rebuilding.make_anew(
            service, collection, embedder, viewer=service.viewer(tenant, _principals(None)), wait=wait, as_json=as_json
        )
    )


@app.command()
def rebuild(
    collection: Annotated[str, typer.Argument(help="the collection")],
    wait: Annotated[bool, typer.Option("--wait", help="work on it here, until it is done")] = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> int:
    """Split, analyse and index the stored documents of a collection anew, as this version does."""
    from agent.serve import rebuilding

    return _with_service(
        lambda service: rebuilding.make_anew(
            service, collection, None, viewer=service.viewer(tenant, _principals(None)), wait=wait, as_json=as_json
        )
    )


@app.command()
def check(
    collection: Annotated[str | None, typer.Argument(help="the collection; all of them when left out")] = None,
    mend: Annotated[bool, typer.Option("--mend", help="put right what is wrong")] = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> int:
    """Compare all that is stored with what the documents make of it: passages, vectors, BM25, counts, indexes."""
    from agent.serve import rebuilding

    return _with_service(
        lambda service: rebuilding.check(
            service, collection, viewer=service.viewer(tenant, _principals(None)), mend=mend, as_json=as_json
        )
    )


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(help="one SELECT; - reads a JSON string per line from stdin")],
    collection: Annotated[str, typer.Option(help="the collection behind the view documents")],
    check: Annotated[bool, typer.Option("--check", help="judge only, do not run")] = False,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: AsJson = False,
) -> int:
    """A guarded read-only SELECT over a collection's view `documents`: one row per document, a column per field."""
    from agent.serve import sqlcommand

    async def run(service: "Service") -> int:
        viewer = service.viewer(tenant, _principals(principal))
        return await sqlcommand.run(service, statement, collection, check=check, as_json=as_json, viewer=viewer)

    return _with_service(run)


@app.command()
def fetch(
    url: Annotated[str, typer.Argument(help="http or https, of the public internet", metavar="URL")],
    check: Annotated[bool, typer.Option("--check", help="judge only, do not connect")] = False,
    as_json: AsJson = False,
) -> int:
    """One page of the web as text, through the guarded fetcher: addresses inside the network are refused."""
    from agent.serve import fetching

    return asyncio.run(fetching.run(url, check=check, as_json=as_json))


@app.command()
def mcp(tenant: Tenant = None, principal: Principal = None) -> int:
    """MCP server over stdio: tools and collections for an agent, until its input ends."""

    async def run(service: "Service") -> int:
        from agent.serve.mcp_stdio import serve_stdio

        await serve_stdio(service, service.viewer(tenant, _principals(principal)))
        return DONE

    return _with_service(run)


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="the address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="the port to listen on; 0 for a free one", min=0, max=65535)] = 8000,
    processes: Annotated[
        int | None, typer.Option(help="how many answer; the setting PROCESSES when left out", min=1, max=64)
    ] = None,
) -> int:
    """The HTTP API, the console page and MCP over HTTP, until it is stopped."""
    from agent.serve import supervisor

    # Until the server handles it: what was begun is ended in order, and who waits to be accepted is answered.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    return asyncio.run(supervisor.serve(host, port, processes))


@app.command()
def worker(
    at_once: Annotated[
        int | None, typer.Option(help="how many jobs at once; the setting WORKERS when left out", min=1, max=16)
    ] = None,
) -> int:
    """The jobs of `serve` alone, ingestion and scheduled syncs, until it is stopped; on any number of machines."""
    from agent.serve import working

    return asyncio.run(working.run(at_once))


@app.command()
def migrate(as_json: AsJson = False) -> int:
    """Bring the schema up to date and make the service's login; needed only where the service may not do so itself."""
    from agent.opening import database_addresses
    from agent.serve import output
    from agent.settings import load_settings
    from retrievers.postgres import migrate as migrating

    with database_addresses(load_settings()) as (owner, service):
        applied = migrating.migrate(owner)
        if service is None:
            migrating.service_address(owner)
    names = [f"{one.version:04} {one.name}" for one in applied]
    if as_json:
        output.write_json({"applied": names})
    else:
        if applied and applied[0].version > 1:
            output.note("processes of an earlier version go on answering, but may take no jobs: restart them")
        print("\n".join(f"applied {name}" for name in names) or "the schema is up to date")
    return DONE


@app.command()
def doctor(as_json: AsJson = False) -> int:
    """Check the database, the embedder, the settings and the disk; says how to mend each."""
    from agent.serve import doctor as checks
    from agent.serve import output

    found = asyncio.run(checks.examine())
    output.show_checks(found, as_json=as_json)
    if all(check.ok for check in found):
        return DONE
    return BAD_INPUT if found[0].name == "settings" and not found[0].ok else UNAVAILABLE


app.add_typer(keys.app, name="keys")
app.add_typer(tenants.app, name="tenants")


def _principals(said: list[str] | None) -> tuple[str, ...]:
    """On whose behalf is read: whoever holds the database reads everything, unless they say as whom."""
    return tuple(said) if said else ("*",)


def _with_service(action: Callable[["Service"], Awaitable[Returned]]) -> Returned:
    """Run one action with the service open around it."""
    from agent.opening import open_service

    async def run() -> Returned:
        async with open_service() as service:
            return await action(service)

    return asyncio.run(run())


def _said(**options: object) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def _read_json(where: str, text: str | None) -> Any:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        reason = str(error)[:200] if isinstance(error, ValueError) else "nested too deeply"
        raise BadRequest(f"{where} is not valid JSON: {reason}", where=where) from None
    if not isinstance(value, dict):
        raise BadRequest(f'{where} must be an object like {{"type": "eq", "key": "team", "value": "infrastructure"}}')
    return value


def _check_encoding(arguments: Sequence[str]) -> None:
    for number, argument in enumerate(arguments, 1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise BadRequest(f"argument {number} is not valid UTF-8") from None
        if "\0" in argument:
            raise BadRequest(f"argument {number} holds a NUL character")


def _note_unknown_variables() -> None:
    """Say in a line which variables of the environment are taken for settings in vain; nothing fails for it."""
    if not any(name.startswith("SIGNALBOX_") for name in os.environ):
        return
    from agent.serve import output
    from agent.settings import unknown_variables

    if unknown := unknown_variables():
        output.note("; ".join(unknown))


def _commands(arguments: Sequence[str]) -> Any:
    """The command line; packages above this one add theirs by an entry point, so none is imported here.

    They are loaded when one of them, or the list of all commands, is asked for.

    Raises:
        Unavailable: the one that is asked for cannot be loaded.
    """
    asked = next((argument for argument in arguments if not argument.startswith("-")), None)
    known = {group.name for group in app.registered_groups}
    for command in entry_points(group="signalbox.commands"):
        if command.name in known or asked not in (None, command.name):
            continue
        try:
            app.add_typer(command.load(), name=command.name)
        except ImportError as error:
            if asked is not None:
                reason = f"{error}; install all it needs: {install_command(command.name)}"
                raise Unavailable(f"the command {command.name}", reason) from error
    return typer.main.get_command(app)


def run(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code of the contract."""
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        _check_encoding(arguments)
        _note_unknown_variables()
        code = _commands(arguments).main(args=list(arguments), prog_name="signalbox", standalone_mode=False)
    except typer.TyperException as error:  # bad usage: an unknown option, a missing argument
        message = error.format_message()
        if message.startswith("Usage: "):  # the help, in place of a command that was not given
            print(message, file=sys.stderr if arguments else sys.stdout)
            return BAD_INPUT if arguments else DONE
        return _complain(message, BAD_INPUT)
    except (typer.Abort, KeyboardInterrupt):
        return _complain("stopped; what was written before stays", _INTERRUPTED)
    except BrokenPipeError:
        # The reader went away (`| head`): nothing is wrong, and nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _complain(described(error), exit_code(error))
    return code if isinstance(code, int) else DONE


def exit_code(error: Exception) -> int:
    """The exit code of the contract for an error."""
    if isinstance(error, BadRequest):
        return BAD_INPUT
    return UNAVAILABLE if isinstance(error, Unavailable) else FAILED


def described(error: Exception) -> str:
    """An error in a line, for who ran the command."""
    text = " ".join(str(error).split())[:600]
    if isinstance(error, RetrievalError) or exit_code(error) == BAD_INPUT:
        return text
    return f"unexpected {type(error).__name__}: {text} (run again with --debug for the traceback)"


def _complain(message: str, code: int) -> int:
    print(f"signalbox: {one_line(message)}", file=sys.stderr)
    return code


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal of another character set shows a question mark where it lacks a character.
            stream.reconfigure(errors="replace")
    # A polite end is an end like any other: what was started is stopped, the embedded server too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # The driver reports every lost connection by itself; what matters comes as one error.
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
