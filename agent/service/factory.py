"""Build the service and everything that it consists of from the settings. No other module does this."""

import asyncio
import gc
import logging
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import cache, partial
from typing import Any

from agent.answering.answer import Answerer
from agent.chat.advisors.advisor import Advisor
from agent.chat.advisors.guard import GuardAdvisor
from agent.chat.advisors.log import LogAdvisor
from agent.chat.advisors.memory import MemoryAdvisor
from agent.chat.advisors.record import RecordAdvisor
from agent.chat.chat import Chat
from agent.chat.conversation_memory import ConversationMemory
from agent.chat.exchanges import ExchangeStore
from agent.errors import BadSetting
from agent.intent.collection_choice import CollectionChooser
from agent.intent.reader import CascadeReader
from agent.llm.model import Model
from agent.llm.model_factory import open_model
from agent.pipeline import Pipeline
from agent.records.trace_store import TraceStore
from agent.retrieval.rerank import open_reranker
from agent.retrieval.rerank.reranker import Reranker
from agent.service.metering import Metering
from agent.service.service import Service
from agent.service.sync_schedules import sync_schedules
from agent.settings import Settings, load_settings
from prompts import BadTemplate, TemplateLibrary, open_library
from retrievers import configured_sources, registry
from retrievers.core import process_memory
from retrievers.core.errors import Unavailable
from retrievers.core.log_filter import RepetitionFilter
from retrievers.core.types import Closeable, Retriever
from retrievers.embed import Embedder
from retrievers.embed.embedders import Embedders
from retrievers.embed.factory import open_embedders, parse_name_value_pairs
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.jobs.delivery_queues import WriteLocks
from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.ingest.jobs.job_types import JobContent, Lease
from retrievers.ingest.jobs.worker import Worker
from retrievers.ingest.passage_weights import reweigh_pending
from retrievers.ingest.readers.file_input import TEXT_RECOGNITION
from retrievers.ingest.rebuild import CollectionRebuilder
from retrievers.ingest.report import IngestReport, OnWrite, Progress
from retrievers.ingest.run import ingest
from retrievers.postgres.accounts.api_keys import ApiKeyStore
from retrievers.postgres.catalogue.catalogue import Catalogue
from retrievers.postgres.connections.database import Database
from retrievers.postgres.server.embedded import EmbeddedServer
from retrievers.postgres.server.schema_migrations import SERVICE_ROLE
from retrievers.sync.deletion_guard import DeletionLimits
from retrievers.sync.mirror_run import bind_run
from retrievers.sync.schedule import MirrorScheduler

_log = logging.getLogger(__name__)
_log.addFilter(RepetitionFilter())
_OBJECTS_BETWEEN_PASSES = 20_000
_WATCH_S = 1.0
"""Seconds between checks that the embedded server is running."""


@asynccontextmanager
async def open_service(
    settings: Settings | None = None,
    *,
    advisors: Sequence[Advisor] = (),
    cores: int | None = None,
    **changes: Any,
) -> AsyncIterator[Service]:
    """Open the service for an `async with` block: database started and migrated, connection pool open.

    Args:
        settings: all settings; None reads them from the environment and `signalbox.toml`.
        advisors: your own advisors, see `agent.chat.advisors.advisor`.
        cores: maximum number of CPU cores for models that run in this process; None means all.
        changes: settings by name, which override the environment and the file; only allowed without `settings`.
    Raises:
        TypeError: both `settings` and `changes` are given.
        BadSetting: a setting cannot be used.
        Unavailable: the database cannot be reached or prepared.
    """
    if settings is None:
        settings = load_settings(changes)
    elif changes:
        raise TypeError(f"give either `settings` or single settings, not both: {', '.join(changes)}")
    templates = _templates(settings)
    before, TEXT_RECOGNITION.languages = TEXT_RECOGNITION.languages, settings.ocr
    model = open_model(settings.llm, base_url=settings.llm_base_url, api_key=settings.llm_api_key)
    embedder = _embedders(settings, cores)
    reranker = open_reranker(settings, model, cores=cores)
    try:
        for name in parse_name_value_pairs(settings.embedders):
            await embedder.get(name)  # load it now; otherwise the first question that needs it waits for seconds
        with _embedded(settings) as server:
            owner, login = _addresses(settings, server)
            opened = Database(
                owner, login, size=settings.pool_size, standbys=settings.read_urls, max_lag_s=settings.max_lag_s,
                prepares=server is not None,  # other servers may be behind a pooler, where prepared statements fail
            )  # fmt: skip
            async with _watched(server), opened as database, AsyncExitStack() as stack:
                pipeline = _pipeline(settings, database, embedder, model, reranker, templates)
                await stack.enter_async_context(_closing(pipeline.sources.values()))
                service = await _service(settings, database, embedder, pipeline, advisors, stack)
                _settle_heap()
                yield service
    finally:
        TEXT_RECOGNITION.languages = before
        await embedder.aclose()
        if reranker is not None:
            await reranker.aclose()
        if model is not None:
            await model.aclose()


def _pipeline(
    settings: Settings,
    database: Database,
    embedder: Embedders,
    model: Model | None,
    reranker: Reranker | None,
    templates: TemplateLibrary,
) -> Pipeline:
    """Return the pipeline over all configured sources."""
    catalogue = Catalogue(database)
    sources = _sources(settings, registry.Resources(database, embedder, catalogue, settings.model_dump()))
    cards = {name: source.card for name, source in sources.items()}
    columns = getattr(sources.get("sql"), "columns", None)
    reader = CascadeReader(settings, catalogue, cards, embedder, model, columns, templates=templates)
    chooser = CollectionChooser(catalogue, embedder, sources) if settings.choose_collections else None
    return Pipeline(
        settings, catalogue, sources, embedder, reader, chooser, reranker,
        model=model, model_breaker=reader.breaker, templates=templates,
    )  # fmt: skip


async def _service(
    settings: Settings,
    database: Database,
    embedder: Embedders,
    pipeline: Pipeline,
    advisors: Sequence[Advisor],
    stack: AsyncExitStack,
) -> Service:
    """Return the service around a pipeline.

    Args:
        advisors: the caller's own advisors, in addition to the built-in ones.
        stack: receives the objects that write in the background; closing it ends them.
    """
    model, breaker, templates = pipeline.model, pipeline.model_breaker, pipeline.templates
    answerer = Answerer(settings, embedder, model, breaker)
    metering = await stack.enter_async_context(Metering(database, settings.time_zone))
    traces = await stack.enter_async_context(TraceStore(database, days=settings.trace_days))
    memory, records = None, None
    around: list[Advisor] = [LogAdvisor(), GuardAdvisor(settings.guard), *advisors]
    if days := settings.chat_days:
        memory = ConversationMemory(
            database, days=days, model=model, breaker=breaker, count_tokens=metering.count_tokens, templates=templates
        )
        await stack.enter_async_context(memory)
        records = await stack.enter_async_context(ExchangeStore(database, days))
        around += [RecordAdvisor(records), MemoryAdvisor(memory)]
    chats = await stack.enter_async_context(Chat(answerer, around))
    return Service(
        settings=settings,
        database=database,
        embedder=embedder,
        catalogue=pipeline.catalogue,
        worker=build_worker(settings, database, embedder, pipeline.catalogue),
        pipeline=pipeline,
        answerer=answerer,
        traces=traces,
        keys=ApiKeyStore(database),
        chats=chats,
        metering=metering,
        memory=memory,
        records=records,
    )


def _templates(settings: Settings) -> TemplateLibrary:
    """Return the prompt templates in force; raise BadSetting if the folder cannot be used."""
    try:
        return open_library(settings.prompts)
    except BadTemplate as error:
        raise BadSetting(f"setting PROMPTS: {error}", where="prompts") from error


def _sources(settings: Settings, resources: registry.Resources) -> dict[str, Retriever]:
    """Return all sources by name: those of the database and of LOCAL, WEB_PROVIDER and CLOUD, then `[sources.NAME]`."""
    built = {name: registry.build(name, resources) for name in registry.names()}
    sources = {name: source for name, source in built.items() if source is not None}
    for name, one in settings.sources.items():
        sources[name] = configured_sources.build(
            one.to_definition(name), resources, sources, timeout_s=settings.source_timeout_s
        )
    return sources


def _embedders(settings: Settings, cores: int | None) -> Embedders:
    return open_embedders(
        settings.embedder,
        base_url=settings.embedder_base_url,
        api_key=settings.embedder_api_key,
        others=parse_name_value_pairs(settings.embedders),
        keys={name: key for name, key in parse_name_value_pairs(settings.embedder_keys).items() if key},
        cores=cores,
    )


def build_worker(settings: Settings, database: Database, embedder: Embedder, catalogue: Catalogue) -> Worker:
    """Return the worker that runs jobs and scheduled syncs.

    After each job it clears the catalogue's cache, so that questions in this process find the new documents at once.
    """

    async def stored(
        tenant: str,
        collection: str,
        items: Iterable[Document | RejectedItem],
        *,
        delivery: int,
        on_write: OnWrite,
        progress: Progress,
        write_locks: WriteLocks | None = None,
    ) -> IngestReport:
        try:
            return await ingest(
                database,
                embedder,
                tenant,
                collection,
                items,
                reads_in_thread=True,
                reweighs=not worker.is_polling,
                delivery=delivery,
                on_write=on_write,
                progress=progress,
                write_locks=write_locks,
            )
        finally:
            catalogue.invalidate(tenant)

    jobs = JobQueue(database, most_of_tenant=settings.tenant_jobs)
    rebuilding = CollectionRebuilder(database, embedder, jobs)

    async def rebuilt(lease: Lease, work: JobContent, progress: Callable[[int], None]) -> bool:
        try:
            return await rebuilding.run_turn(lease, work, progress)
        finally:
            catalogue.invalidate(lease.tenant)

    own = sync_schedules(settings, database)
    limits = DeletionLimits(settings.sync_max_delete)
    mirrors = {one.mirror.manifest.sync: bind_run(one.mirror, jobs, stored, limits) for one in own}
    schedules = MirrorScheduler(database, jobs, own)
    worker = Worker(
        jobs, stored, at_once=settings.workers, rebuild=rebuilt, mirrors=mirrors, schedule=schedules.queue_due_runs,
        reweigh=partial(reweigh_pending, database),
    )  # fmt: skip
    return worker


@asynccontextmanager
async def _closing(sources: Iterable[Retriever]) -> AsyncIterator[None]:
    """Close all sources that hold connections or background tasks."""
    try:
        yield
    finally:
        for source in sources:
            if isinstance(source, Closeable):
                await source.aclose()


@cache
def _settle_heap() -> None:
    """Exclude all objects that exist now from garbage collection, and make collections rarer. Runs once per process.

    Otherwise a full collection scans these objects for 50 ms and delays the answer in progress. Excluding them lowered
    the 99th percentile of a question's duration from 60 to 30 ms.

    A question allocates about 1,400 tracked objects. By default, Python would collect twice per question and each time
    scan the objects of all other running questions, which takes 14 % of the CPU time under load.
    """
    process_memory.freeze_objects()
    gc.set_threshold(_OBJECTS_BETWEEN_PASSES, 20, 20)


@contextmanager
def database_addresses(settings: Settings) -> Iterator[tuple[str, str | None]]:
    """Yield the connection strings of the database's owner and of the service's login.

    The second is None if SERVICE_URL is unset. Without DATABASE_URL, the embedded server runs inside the block.
    """
    with _embedded(settings) as server:
        yield _addresses(settings, server)


@contextmanager
def _embedded(settings: Settings) -> Iterator[EmbeddedServer | None]:
    """Run the embedded PostgreSQL server inside the block and yield it; yield None if DATABASE_URL is set."""
    if settings.database_url:
        yield None
        return
    if settings.read_urls:
        what = "setting READ_URLS: set DATABASE_URL too, the address of the primary of these standbys"
        raise BadSetting(what, where="read_urls")
    server = EmbeddedServer(settings.home)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _addresses(settings: Settings, server: EmbeddedServer | None) -> tuple[str, str | None]:
    if server is not None:
        return server.conninfo(), server.conninfo(user=SERVICE_ROLE)
    assert settings.database_url is not None
    return settings.database_url, settings.service_url


@asynccontextmanager
async def _watched(server: EmbeddedServer | None) -> AsyncIterator[None]:
    """Inside the block, restart the embedded server whenever it has stopped. Do nothing if there is none."""

    async def watch(server: EmbeddedServer) -> None:
        while True:
            await asyncio.sleep(_WATCH_S)
            try:
                if await asyncio.to_thread(server.revive):
                    _log.warning("the embedded PostgreSQL had stopped and was started again")
            except Exception as error:
                # No error may end this loop, because nobody would notice.
                reason = error if isinstance(error, Unavailable) else repr(error)
                _log.warning("the embedded PostgreSQL has stopped and cannot be started again: %s", reason)

    task = asyncio.create_task(watch(server)) if server is not None else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
