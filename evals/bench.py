"""Compare latency, throughput and ingestion of the service with plain SQL, and on demand with peers, in one run.

Every question is asked in each way in turn, with each way first equally often, so that other load on the machine
affects all alike. Ratios are valid within a run; times of different machines cannot be compared.
"""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from agent.intent.reading import question_language
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from evals import provenance
from evals.corpus import TENANT, Note, documents, store_corpus
from evals.datasets import Dataset, LabelledQuestion
from evals.peer_comparison import PeerOptions, compare_peers
from evals.rawsql import (
    EF_SEARCH,
    LIMIT,
    RawSearches,
    prepared_bm25,
    raw_searches,
    text_search_configuration,
)
from evals.run import WARM_UP, variant, warm_up
from evals.timing import median, summary
from retrievers.core.types import Collection, Scope
from retrievers.ingest.documents import Document
from retrievers.ingest.preparation import prepare

TOP_K = 10
CONCURRENCY = (1, 4, 16)
INGESTED_DOCUMENTS = 500

SERVICE = "service"
VECTOR, VECTOR_SQL = "raw_vector", "raw_vector_without_embedding"
TS_RANK_CD, BM25 = "raw_ts_rank_cd", "raw_bm25"
_PAIRS = ((VECTOR, TS_RANK_CD), (VECTOR, BM25))
"""The two searches that someone without the service would run, in sequence or in parallel."""


@dataclass(slots=True)
class Times:
    """Milliseconds per question, by way of asking. A way that does not apply to a question is left out."""

    per_question: list[dict[str, float]] = field(default_factory=list)

    def of(self, way: str) -> list[float]:
        """Return the times of one way, in ms."""
        return [times[way] for times in self.per_question if way in times]

    def latency_ms(self) -> dict[str, dict[str, float]]:
        """Return p50, p95, p99 and mean of every way."""
        return {way: summary(self.of(way)) for way in (SERVICE, VECTOR, VECTOR_SQL, TS_RANK_CD, BM25) if self.of(way)}

    def ratios_of_medians(self) -> dict[str, float]:
        """Return the service's median divided by each other way's, and by the slower median of each pair."""
        return _ratios({way: found["p50"] for way, found in self.latency_ms().items()})

    def paired_ratios(self) -> dict[str, float]:
        """Return the median over questions of the service's time divided by each other way's time."""
        collected: dict[str, list[float]] = {}
        for times in self.per_question:
            for name, ratio in _ratios(times).items():
                collected.setdefault(name, []).append(ratio)
        return {name: round(median(ratios), 3) for name, ratios in collected.items()}


def _ratios(times: Mapping[str, float]) -> dict[str, float]:
    """Return the service's time divided by every other time, and by the slower of each pair."""
    others = {way: value for way, value in times.items() if way != SERVICE}
    others |= {
        f"slower_of_{one}_and_{other}": max(times[one], times[other])
        for one, other in _PAIRS
        if one in times and other in times
    }
    return {name: round(times[SERVICE] / value, 3) for name, value in others.items()}


async def bench(
    dataset: Dataset, settings: Settings, note: Note, *, limit: int = 300, peers: PeerOptions | None = None
) -> dict[str, Any]:
    """Ingest the dataset and measure.

    Args:
        limit: maximum number of questions, from the start of the split.
        peers: the peers to compare with; None for plain SQL alone.
    Returns:
        JSON values; a name ends in its unit, ratios have none. `beside`, with peers only: `evals.peer_comparison`.
    Raises:
        Unavailable: a dependency is down, or the database's owner may not create a schema.
    """
    questions = dataset.questions[:limit]
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    async with open_service(settings.model_copy(update={"chat_days": 0})) as service:
        collection = await store_corpus(service, dataset, note)
        language = Counter(question.language for question in questions).most_common(1)[0][0]
        note("filling the tables for plain SQL")
        async with raw_searches(service, collection, language) as raw:
            await warm_up(service, dataset, questions)
            times = await _paired(service, raw, collection, questions, note)
            configuration = raw.configuration
        throughput = {}
        for number, concurrency in enumerate(CONCURRENCY, 3):
            throughput[str(concurrency)] = await _throughput(service, dataset, questions, concurrency, number)
            note(f"{concurrency} concurrent requests: {throughput[str(concurrency)]:.0f} questions per second")
        ingestion = await _ingestion(service, dataset, note)
        beside = {}
        if peers is not None:
            configuration = text_search_configuration(language)
            found = await compare_peers(service, collection, dataset, questions, peers, configuration, note)
            beside = {"beside": found}
        versions = await provenance.versions(service.database)
    return {
        "dataset": dataset.name,
        "questions": len(questions),
        "documents": collection.documents,
        "chunks": collection.chunks,
        "latency_ms": times.latency_ms(),
        "ratios_of_medians": times.ratios_of_medians(),
        "paired_ratios": times.paired_ratios(),
        "queries_per_s": throughput,
        "ingestion": ingestion,
        **beside,
        "parameters": {
            "service_top_k": TOP_K,
            "raw_limit": LIMIT,
            "raw_hnsw_ef_search": EF_SEARCH,
            "raw_text_search_configuration": configuration,
        },
        "settings": provenance.public_settings(settings),
        "versions": versions,
        "started_at": started_at,
    }


async def _paired(
    service: Service, raw: RawSearches, collection: Collection, questions: Sequence[LabelledQuestion], note: Note
) -> Times:
    """Time every question in every way; the order of the ways rotates by one per question."""
    scope = Scope(TENANT, (collection,))
    prepared = [
        await prepared_bm25(service, collection, one.text, question_language(one.text, scope)) for one in questions
    ]
    for question, bound in list(zip(questions, prepared, strict=True))[:WARM_UP]:
        await raw.vector(await service.embedder.embed_query(variant(question.text, 1)))
        await raw.ts_rank_cd(question.text)
        if bound is not None:
            await raw.bm25(bound)
    times = Times()
    for number, (question, bound) in enumerate(zip(questions, prepared, strict=True)):
        found: dict[str, float] = {}
        ways = [
            partial(_time, found, SERVICE, _ask, service, collection.name, question.text),
            partial(_time_vector, found, service, raw, question.text),
            partial(_time, found, TS_RANK_CD, raw.ts_rank_cd, question.text),
        ]
        if bound is not None:
            ways.append(partial(_time, found, BM25, raw.bm25, bound))
        turn = number % len(ways)
        for way in (*ways[turn:], *ways[:turn]):
            await way()
        times.per_question.append(found)
    note(f"{len(questions):,} questions asked in each way")
    return times


async def _time(found: dict[str, float], way: str, ask: Callable[..., Awaitable[Any]], *values: Any) -> None:
    started = time.perf_counter()
    await ask(*values)
    found[way] = (time.perf_counter() - started) * 1000


async def _ask(service: Service, collection: str, text: str) -> None:
    await service.retrieve(text, tenant=TENANT, collection=collection, top_k=TOP_K)


async def _time_vector(found: dict[str, float], service: Service, raw: RawSearches, text: str) -> None:
    """Write to `found` the milliseconds of embedding and statement together, and of the statement alone."""
    text = variant(text, 2)  # the service has not embedded this variant, so no cache has its vector
    started = time.perf_counter()
    vector = await service.embedder.embed_query(text)
    embedded = time.perf_counter()
    await raw.vector(vector)
    ended = time.perf_counter()
    found[VECTOR], found[VECTOR_SQL] = (ended - started) * 1000, (ended - embedded) * 1000


async def _throughput(
    service: Service, dataset: Dataset, questions: Sequence[LabelledQuestion], concurrency: int, number: int
) -> float:
    """Return the questions answered per second with `concurrency` callers that each ask without a pause.

    Args:
        number: variant of the texts, so that every question is embedded again.
    """
    waiting = iter([variant(question.text, number) for question in questions])

    async def ask() -> None:
        for text in waiting:
            await _ask(service, dataset.name, text)

    started = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(concurrency)))
    return round(len(questions) / (time.perf_counter() - started), 1)


async def _ingestion(service: Service, dataset: Dataset, note: Note) -> dict[str, float]:
    """Time the embedding of some documents' passages alone, and the complete ingestion of the same documents."""
    some: list[Document] = []
    for item in documents(dataset):
        if isinstance(item, Document):
            some.append(item)
        if len(some) == INGESTED_DOCUMENTS:
            break
    texts = {passage.digest: passage.embedded for one in some for passage in prepare(one, {}, b"").passages}
    started = time.perf_counter()
    await service.embedder.embed(list(texts.values()))
    embedding_s = time.perf_counter() - started
    note(f"{len(some):,} documents embedded in {embedding_s:.1f} s, now ingested")
    scratch = f"bench-{uuid.uuid4().hex[:12]}"
    try:
        started = time.perf_counter()
        report = await service.ingest(some, scratch, tenant=TENANT)
        ingest_s = time.perf_counter() - started
    finally:
        await service.delete(scratch, tenant=TENANT)
    return {
        "documents": report.inserted,
        "chunks": report.chunks,
        "embedding_s": round(embedding_s, 3),
        "ingest_s": round(ingest_s, 3),
        "ratio": round(ingest_s / embedding_s, 3),
        "documents_per_s": round(report.inserted / ingest_s, 1),
    }


def described(figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the results of `bench` as rows of (name, value with unit)."""
    rows = [
        (f"latency, {way}", "  ".join(f"{name} {value:.2f}" for name, value in found.items()) + " ms")
        for way, found in figures["latency_ms"].items()
    ]
    rows += [(f"service / {name}, medians", f"{value:.2f} x") for name, value in figures["ratios_of_medians"].items()]
    rows += [(f"service / {name}, per question", f"{value:.2f} x") for name, value in figures["paired_ratios"].items()]
    rows += [
        (f"throughput, {count} at a time", f"{value:.1f} questions/s")
        for count, value in figures["queries_per_s"].items()
    ]
    ingestion = figures["ingestion"]
    rows += [
        (f"embedding {ingestion['documents']} documents", f"{ingestion['embedding_s']:.2f} s"),
        (f"ingesting {ingestion['documents']} documents", f"{ingestion['ingest_s']:.2f} s"),
        ("ingesting / embedding alone", f"{ingestion['ratio']:.2f} x"),
    ]
    return rows
