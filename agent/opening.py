"""Building the service: the one place where settings become parts."""

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
from functools import cache
from typing import Any

from agent.advisors.base import Advisor
from agent.advisors.guard import Guard
from agent.advisors.log import Log
from agent.advisors.memory import Remember
from agent.advisors.record import Record
from agent.answer import Answerer
from agent.app import Service
from agent.chat import Chat
from agent.errors import BadSetting
from agent.following import scheduled
from agent.intent.reader import Cascade
from agent.intent.scope import Chooser
from agent.llm import open_model
from agent.memory import Memory
from agent.metering import Metering
from agent.observe.observer import Observers
from agent.pipeline import Pipeline
from agent.records import Records
from agent.rerank import open_reranker
from agent.settings import Settings, load_settings
from agent.trace import TraceStore
from prompts import BadTemplate, Library, open_library
from retrievers import named, registry
from retrievers.core.errors import Unavailable
from retrievers.core.types import Closing, Retriever
from retrievers.embed import Embedder
from retrievers.embed.factory import open_embedders, parse_pairs
from retrievers.embed.pool import Embedders
from retrievers.ingest.documents import Document, Rejected
from retrievers.ingest.jobs import Jobs, Lease, Work
from retrievers.ingest.read import SCANS
from retrievers.ingest.rebuild import Rebuilding
from retrievers.ingest.run import Progress, Report, Written, ingest
from retrievers.ingest.worker import Worker
from retrievers.postgres.catalogue import Catalogue
from retrievers.postgres.database import Database
from retrievers.postgres.embedded import EmbeddedServer
from retrievers.postgres.keys import Keys
from retrievers.postgres.migrate import SERVICE_ROLE
from retrievers.sync.guard import Limits
from retrievers.sync.mirror import mirroring
from retrievers.sync.schedule import Schedules

_log = logging.getLogger(__name__)
_OBJECTS_BETWEEN_PASSES = 20_000
_WATCH_S = 1.0
"""How often the embedded server is looked after."""


@asynccontextmanager
async def open_service(
    settings: Settings | None = None,
    *,
    advisors: Sequence[Advisor] = (),
    cores: int | None = None,
    **changes: Any,
) -> AsyncIterator[Service]:
    """The service, open inside `async with`: database up and migrated, pool open.

    Args:
        settings: all of them; read from the environment and `signalbox.toml` when None.
        advisors: of the caller's own, around every question; see `agent.advisors.base`.
        cores: how many the models that run in this process may keep busy; all of them when None.
        changes: single settings that win over those.
    Raises:
        BadSetting: a setting that cannot be used.
        Unavailable: the database cannot be reached or prepared.
    """
    if settings is None:
        settings = load_settings(changes)
    templates = _templates(settings)
    SCANS.languages = settings.ocr
    model = open_model(settings.llm, base_url=settings.llm_base_url, api_key=settings.llm_api_key)
    embedder = _embedders(settings, cores)
    reranker = open_reranker(settings, model, cores=cores)
    try:
        for name in parse_pairs(settings.embedders):
            await embedder.named(name)  # now, and not while the first question waits for it
        with _embedded(settings) as server:
            owner, service = _addresses(settings, server)
            async with _watched(server), Database(owner, service, size=settings.pool_size) as database:
                catalogue = Catalogue(database)
                options = settings.model_dump()
                resources = registry.Resources(database, embedder, catalogue, options)
                sources = _sources(settings, resources)
                cards = {name: one.card for name, one in sources.items()}
                columns = getattr(sources.get("sql"), "columns", None)
                reader = Cascade(settings, catalogue, cards, embedder, model, columns, templates=templates)
                chooser = Chooser(catalogue, embedder, sources) if settings.choose_collections else None
                pipeline = Pipeline(
                    settings, catalogue, sources, embedder, reader, chooser, reranker,
                    model=model, model_breaker=reader.breaker, templates=templates,
                )  # fmt: skip
                answerer = Answerer(settings, embedder, model, reader.breaker)
                memory, records = None, None
                async with AsyncExitStack() as stack:
                    await stack.enter_async_context(_closing(sources.values()))
                    metering = await stack.enter_async_context(Metering(database, settings.time_zone))
                    traces = await stack.enter_async_context(TraceStore(database, days=settings.trace_days))
                    around: list[Advisor] = [Log(), Guard(settings.guard)]
                    around += advisors
                    if days := settings.chat_days:
                        memory = Memory(
                            database, days=days, model=model, breaker=reader.breaker, spent=metering.spent,
                            templates=templates,
                        )  # fmt: skip
                        await stack.enter_async_context(memory)
                        records = await stack.enter_async_context(Records(database, days))
                        around += [Record(records), Remember(memory)]
                    chats = await stack.enter_async_context(Chat(answerer, around))
                    _settle_heap()
                    keys, worker = Keys(database), worker_over(settings, database, embedder, catalogue)
                    yield Service(
                        settings, database, embedder, catalogue, pipeline, answerer, traces, worker, keys, chats,
                        metering, memory, records, Observers(),
                    )  # fmt: skip
    finally:
        await embedder.aclose()
        if reranker is not None:
            await reranker.aclose()
        if model is not None:
            await model.aclose()


def _templates(settings: Settings) -> Library:
    """The prompt templates in force."""
    try:
        return open_library(settings.prompts)
    except BadTemplate as error:
        raise BadSetting(f"setting PROMPTS: {error}", where="prompts") from error


def _sources(settings: Settings, resources: registry.Resources) -> dict[str, Retriever]:
    """Every source of the settings, in the order of preference: those of the database and the short forms first."""
    built = {name: registry.build(name, resources) for name in registry.names()}
    sources = {name: source for name, source in built.items() if source is not None}
    for name, one in settings.sources.items():
        sources[name] = named.build(one.stated(name), resources, sources, timeout_s=settings.source_timeout_s)
    return sources


def _embedders(settings: Settings, cores: int | None) -> Embedders:
    return open_embedders(
        settings.embedder,
        base_url=settings.embedder_base_url,
        api_key=settings.embedder_api_key,
        others=parse_pairs(settings.embedders),
        keys={name: key for name, key in parse_pairs(settings.embedder_keys).items() if key},
        cores=cores,
    )


def worker_over(settings: Settings, database: Database, embedder: Embedder, catalogue: Catalogue) -> Worker:
    """What carries out jobs, runs of the settings' schedules among them: what it has written, questions of this process
    find at once.
    """

    async def stored(
        tenant: str,
        collection: str,
        items: Sequence[Document | Rejected],
        *,
        delivery: int,
        written: Written,
        progress: Progress,
    ) -> Report:
        try:
            return await ingest(
                database, embedder, tenant, collection, items, delivery=delivery, written=written, progress=progress
            )
        finally:
            # What was written is found at once by this process.
            catalogue.forget(tenant)

    jobs = Jobs(database, most_of_tenant=settings.tenant_jobs)
    rebuilding = Rebuilding(database, embedder, jobs)

    async def rebuilt(lease: Lease, work: Work, progress: Callable[[int], None]) -> bool:
        try:
            return await rebuilding.carry_on(lease, work, progress)
        finally:
            catalogue.forget(lease.tenant)

    own = scheduled(settings, database)
    limits = Limits(settings.sync_max_delete)
    mirrors = {one.mirror.manifest.sync: mirroring(one.mirror, jobs, stored, limits) for one in own}
    schedules = Schedules(database, jobs, own)
    return Worker(
        jobs, stored, at_once=settings.workers, rebuild=rebuilt, mirrors=mirrors, schedule=schedules.write_due
    )


@asynccontextmanager
async def _closing(sources: Iterable[Retriever]) -> AsyncIterator[None]:
    """Sources that hold connections or work of their own let go of them."""
    try:
        yield
    finally:
        for source in sources:
            if isinstance(source, Closing):
                await source.aclose()


@cache
def _settle_heap() -> None:
    """Keep what is loaded by now out of garbage collection, and make passes rarer, once for the process.

    A full pass over it takes 50 ms, amid some answer: the 99th percentile of a question fell from 60 to 30 ms. It
    stays where it is until the process ends.

    A question makes some 1,400 objects that a pass counts, so by default there is one for every half a question, which
    looks in vain at all that other questions are using meanwhile: 14 % of the processor time under load.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_PASSES, 20, 20)


@contextmanager
def database_addresses(settings: Settings) -> Iterator[tuple[str, str | None]]:
    """Connection strings of the owner and the service; the embedded server runs meanwhile when none is set."""
    with _embedded(settings) as server:
        yield _addresses(settings, server)


@contextmanager
def _embedded(settings: Settings) -> Iterator[EmbeddedServer | None]:
    """The embedded server, running; None where there is a database of the user's own."""
    if settings.database_url:
        yield None
        return
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
    """The embedded server is started again when it is killed: whoever killed it did not mean the service."""

    async def watch(server: EmbeddedServer) -> None:
        while True:
            await asyncio.sleep(_WATCH_S)
            try:
                if await asyncio.to_thread(server.revive):
                    _log.warning("the embedded PostgreSQL was gone and has been started again")
            except Unavailable as error:
                _log.warning("the embedded PostgreSQL is gone and cannot be started: %s", error)

    task = asyncio.create_task(watch(server)) if server is not None else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
