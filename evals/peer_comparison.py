"""Compare the service with other retrieval libraries: same server, passages, vectors and questions, in one run.

Every contender runs in a process of its own and stores the same passages in a database of its own, which is dropped
afterwards. Each is given the vectors of passages and questions; only "signalbox, embedding" computes those of the
questions itself. Every question is asked of every contender in turn, and each is first equally often, so that other
load on the machine affects all alike.
"""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agent.service.service import Service
from evals import metrics, provenance
from evals.corpus import TENANT, Note
from evals.datasets import Dataset, LabelledQuestion
from evals.peer_database import PeerDatabase
from evals.peer_process import PeerError, PeerProcess, PeerQuestionError, encoded, first_peer
from evals.run import WARM_UP, variant
from evals.timing import summary
from retrievers.core.types import Collection
from retrievers.embed import Vectors
from retrievers.ingest.readers.schema_file import schema_of

CLIENTS = (1, 4, 16)
DEPTH = 100
"""Passages of each of a peer's two searches, as many as the service asks of each source."""
LIMIT = 10
MEASURES = ("nDCG@10", "R@10")
OWN, OWN_EMBEDDING, OWN_SQL = "signalbox", "signalbox, embedding", "SQL by hand, RRF"
_FOLDER = Path(__file__).parent / "peers"
_OWN_ADAPTERS = {OWN: _FOLDER / "own_service.py", OWN_SQL: _FOLDER / "sql_hybrid.py"}
PEERS: Mapping[str, Path] = {
    "LangChain hybrid": _FOLDER / "langchain_hybrid.py",
    "LangChain ensemble": _FOLDER / "langchain_ensemble.py",
    "LlamaIndex fusion": _FOLDER / "llamaindex_fusion.py",
    "Haystack hybrid": _FOLDER / "haystack_hybrid.py",
}
_BLOCKS = 3
_PASSAGES = """
    SELECT c.document_id, d.title, c.heading, c.body, encode(c.digest, 'hex'), c.embedding::real[]
    FROM signalbox.chunk c
    JOIN signalbox.document d ON d.tenant = c.tenant AND d.collection = c.collection AND d.id = c.document_id
    WHERE c.tenant = %s AND c.collection = %s AND c.embedding IS NOT NULL
    ORDER BY c.document_id, c.ordinal
"""


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """Which peers to compare with.

    Args:
        pythons: interpreters; each adapter runs in the first that has its packages.
        adapters: files of adapters by name.
        depth: passages of each of a peer's two searches.
        changes: settings that the command line changed, as text by key.
    """

    pythons: Sequence[Path]
    adapters: Mapping[str, Path] = field(default_factory=lambda: PEERS)
    depth: int = DEPTH
    changes: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Contender:
    """A way of asking that takes part in the comparison, with its figures; two ways may share a process.

    Attributes:
        embeds: whether it computes the vectors of questions itself.
        found: document ids, best first, by question id.
    """

    name: str
    process: PeerProcess
    embeds: bool = False
    figures: dict[str, Any] = field(default_factory=dict)
    times_ms: list[float] = field(default_factory=list)
    found: dict[str, list[str]] = field(default_factory=dict)
    failed: int = 0

    def vector(self, vector: Vectors) -> Vectors | None:
        return None if self.embeds else vector


class _Comparison:
    """The contenders that still answer, and the reasons why others do not."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self.contenders: list[_Contender] = []
        self.left_out: dict[str, str] = {}

    async def leave_out(self, contender: _Contender, error: PeerError) -> None:
        """Stop the contender's process and drop all contenders that share it."""
        await contender.process.stop()
        for one in [one for one in self.contenders if one.process is contender.process]:
            self.contenders.remove(one)
            self.drop(one.name, str(error))

    def drop(self, name: str, reason: str) -> None:
        self.left_out[name] = reason
        self._note(f"{name} is left out: {reason}")

    def rotated(self, turn: int) -> list[_Contender]:
        """Return the contenders, a different one first each turn."""
        start = turn % max(len(self.contenders), 1)
        return [*self.contenders[start:], *self.contenders[:start]]


async def compare_peers(
    service: Service,
    collection: Collection,
    dataset: Dataset,
    questions: Sequence[LabelledQuestion],
    options: PeerOptions,
    configuration: str,
    note: Note,
) -> dict[str, Any]:
    """Store the collection's passages with every contender and ask each all questions.

    Args:
        collection: the dataset's collection, from which passages and vectors are read.
        configuration: PostgreSQL's text search configuration for the peers.
    Returns:
        JSON values: `contenders` with figures by name, `left_out` with reasons by name, and the conditions.
    Raises:
        Unavailable: the database's owner may not create databases.
    """
    metrics.require_ir_measures()
    asked = [(one, await service.embedder.embed_query(one.text)) for one in questions]
    schema = schema_of(dataset.folder)
    given = {
        "dimension": len(asked[0][1]),
        "depth": options.depth,
        "language": configuration,
        "connections": service.settings.pool_size,
        "options": {
            "corpus": [str(one) for one in dataset.corpus],
            "schema": str(schema) if schema else None,
            "changes": dict(options.changes),
        },
    }
    comparison = _Comparison(note)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="signalbox-")))
        passages = await _write_passages(service, collection, folder / "passages.jsonl")
        for name, process in await _started(options, comparison, stack):
            contender = _Contender(name, process)
            comparison.contenders.append(contender)
            database = await stack.enter_async_context(PeerDatabase(service.database.owner))
            await _ingest(contender, database, folder / "passages.jsonl", passages, given, comparison, note)
        _add_embedding(comparison)
        await _ask(comparison, asked, note)
        await _load(comparison, asked, note)
        await _close(comparison)
    return {
        "contenders": {one.name: _figures(one, questions) for one in comparison.contenders},
        "left_out": comparison.left_out,
        "passages": passages,
        "limit": LIMIT,
        "depth": options.depth,
        "text_search_configuration": configuration,
        "connections": given["connections"],
        "machine": provenance.machine(),
    }


async def _started(
    options: PeerOptions, comparison: _Comparison, stack: AsyncExitStack
) -> list[tuple[str, PeerProcess]]:
    """Start a process for each adapter whose packages an interpreter has; return (name, process) of each."""
    started = []
    for name, adapter in _OWN_ADAPTERS.items():
        process = PeerProcess(Path(sys.executable), adapter, own=True)
        try:
            started.append((name, await stack.enter_async_context(process)))
        except PeerError as error:
            comparison.drop(name, str(error))
    for name, adapter in options.adapters.items():
        try:
            started.append((name, await stack.enter_async_context(first_peer(options.pythons, adapter))))
        except PeerError as error:
            comparison.drop(name, str(error))
    return started


async def _write_passages(service: Service, collection: Collection, path: Path) -> int:
    """Write the collection's passages with their vectors as JSON lines; return their number."""
    rows = await service.database.fetch(TENANT, _PASSAGES, (TENANT, collection.number))
    with path.open("w", encoding="utf-8") as file:
        for document, title, heading, body, digest, embedding in rows:
            context = [part for part in (title, heading) if part and not body.startswith(part)]
            vector = encoded(np.array(embedding, np.float32))
            line = {"document": document, "text": "\n".join([*context, body]), "key": digest, "vector": vector}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return len(rows)


async def _ingest(
    contender: _Contender,
    database: PeerDatabase,
    path: Path,
    passages: int,
    given: Mapping[str, Any],
    comparison: _Comparison,
    note: Note,
) -> None:
    try:
        await contender.process.connect(database=database.address, **given)
        before = await database.size()
        seconds = await contender.process.ingest(path)
    except PeerError as error:
        await comparison.leave_out(contender, error)
        return
    await database.analyse()
    contender.figures |= {
        "packages": dict(contender.process.packages),
        "ingest_s": round(seconds, 3),
        "passages_per_s": round(passages / max(seconds, 1e-6), 1),
        "growth_mb": round((await database.size() - before) / 1e6, 2),
    }
    note(f"{contender.name}: {passages:,} passages stored in {seconds:.1f} s")


def _add_embedding(comparison: _Comparison) -> None:
    """Add a contender that asks the service without passing the questions' vectors."""
    for number, one in enumerate(comparison.contenders):
        if one.name == OWN:
            embedding = _Contender(OWN_EMBEDDING, one.process, embeds=True, figures=dict(one.figures))
            comparison.contenders.insert(number + 1, embedding)
            return


async def _ask(comparison: _Comparison, asked: Sequence[tuple[LabelledQuestion, Vectors]], note: Note) -> None:
    """Ask every question of every contender in turn, after some questions that are not measured."""
    for question, vector in asked[:WARM_UP]:
        for contender in list(comparison.contenders):
            await _search(comparison, contender, variant(question.text, 1), vector)
    for turn, (question, vector) in enumerate(asked):
        for contender in comparison.rotated(turn):
            # Both ways of asking the service share a cache of vectors. So the way that passes the vectors varies the
            # wording: otherwise the other way would find its vector in the cache.
            text = variant(question.text, 2) if contender.name == OWN else question.text
            answer = await _search(comparison, contender, text, vector)
            if answer is None:
                contender.failed += 1
            else:
                contender.found[question.id], took_ms = answer
                contender.times_ms.append(took_ms)
    note(f"{len(asked):,} questions asked of {len(comparison.contenders)} contenders")


async def _search(
    comparison: _Comparison, contender: _Contender, text: str, vector: Vectors
) -> tuple[list[str], float] | None:
    """Return (document ids, milliseconds), or None after a failure or if the contender was left out."""
    if contender not in comparison.contenders:
        return None
    try:
        return await contender.process.search(text, contender.vector(vector), LIMIT)
    except PeerQuestionError:
        return None
    except PeerError as error:
        await comparison.leave_out(contender, error)
        return None


async def _load(comparison: _Comparison, asked: Sequence[tuple[LabelledQuestion, Vectors]], note: Note) -> None:
    """Measure the answers per second at each number of clients; contenders take turns at each block of questions."""
    for number, clients in enumerate(CLIENTS, 3):
        seconds: dict[str, float] = {}
        answered: dict[str, int] = {}
        for block in range(_BLOCKS):
            part = asked[block::_BLOCKS]
            if not part:
                continue
            for contender in comparison.rotated(block):
                texts = [
                    (variant(one.text, number + len(CLIENTS) * contender.embeds), contender.vector(vector))
                    for one, vector in part
                ]
                try:
                    took_s, failed = await contender.process.throughput(texts, clients, LIMIT)
                except PeerError as error:
                    await comparison.leave_out(contender, error)
                    continue
                seconds[contender.name] = seconds.get(contender.name, 0.0) + took_s
                answered[contender.name] = answered.get(contender.name, 0) + len(part) - failed
        for contender in comparison.contenders:
            rate = round(answered[contender.name] / seconds[contender.name], 1)
            contender.figures.setdefault("queries_per_s", {})[str(clients)] = rate
        note(f"{clients} clients: all contenders asked")


async def _close(comparison: _Comparison) -> None:
    for contender in [one for one in comparison.contenders if not one.embeds]:
        try:
            peak_mb = await contender.process.close()
        except PeerError as error:
            await comparison.leave_out(contender, error)
            continue
        for one in comparison.contenders:
            if one.process is contender.process:
                one.figures["peak_rss_mb"] = peak_mb


def _figures(contender: _Contender, questions: Sequence[LabelledQuestion]) -> dict[str, Any]:
    """Return all figures of a contender; failed questions have no time and score 0."""
    scores = metrics.ranking_scores(contender.found, {one.id: one.relevant for one in questions})
    means = {name: sum(one[name] for one in scores.values()) / len(scores) for name in MEASURES} if scores else {}
    return {
        "metrics": {name: round(value, 4) for name, value in means.items()},
        "latency_ms": summary(contender.times_ms) if contender.times_ms else {},
        "failed_questions": contender.failed,
        **contender.figures,
    }
