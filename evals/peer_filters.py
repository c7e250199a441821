"""Compare the filters that the service and peers apply for the same recorded readings of a model.

    python -m evals.peer_filters DATASET --replies FILE --peers PYTHON

Each peer's own retriever gets the recorded filter in the form that it asks models for, and runs it over the metadata as
the service stores it. A filter is right if it selects the same documents as the label.
"""

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from agent.serve.cli.output import print_note as to_terminal
from agent.serve.cli.output import write_json
from agent.service.factory import open_service
from agent.settings import Settings, load_settings
from evals import datasets
from evals.corpus import Note, documents
from evals.datasets import Dataset
from evals.filter_equality import FilterCorpus, corpus_of
from evals.peer_database import PeerDatabase
from evals.peer_process import PeerError, PeerQuestionError, encoded, first_peer
from evals.peer_replies import langchain_reply, llamaindex_reply
from evals.reply_recording import read_replies, write_recording
from evals.run import run
from retrievers.core.errors import BadRequest
from retrievers.core.metadata import RESERVED
from retrievers.ingest.documents import Document
from retrievers.ingest.readers.schema_file import read_schema_file, schema_of

OWN = "signalbox"
_FOLDER = Path(__file__).parent / "peers"
ReplyForm = Callable[[str, Mapping[str, Any] | None, Mapping[str, str]], str]
"""Writes query and filter in a peer's form, given the fields' types."""
PEERS: Mapping[str, tuple[Path, ReplyForm]] = {
    "LangChain self-query": (_FOLDER / "langchain_self_query.py", langchain_reply),
    "LlamaIndex auto-retriever": (_FOLDER / "llamaindex_auto.py", llamaindex_reply),
}
_VECTOR = np.array([1.0, 0.0], np.float32)
_REASONS = 5


@dataclass(frozen=True, slots=True)
class _FilterTask:
    """A question's recorded reading (`query` and `filter`), and its label.

    Attributes:
        wanted: ids of the documents that the labelled filter allows.
        is_stated: whether the label is a filter; False if it says that there is none.
    """

    id: str
    query: str
    filter: Mapping[str, Any] | None
    wanted: frozenset[str]
    is_stated: bool


async def measure(
    dataset: Dataset,
    replies: Path,
    settings: Settings,
    pythons: Sequence[Path],
    note: Note,
    adapters: Mapping[str, tuple[Path, ReplyForm]] = PEERS,
) -> dict[str, Any]:
    """Judge the service and every peer on the questions that have a recorded reading and a labelled filter.

    Args:
        replies: JSON lines, each with the `id` of a question and the keys of the reply, see `prompts/intent`.
    Returns:
        JSON values: shares in [0, 1] by contender, over all questions and over those whose label is a filter.
    Raises:
        BadRequest: the dataset or the replies cannot be used.
        Unavailable: a dependency is down, or the database's owner may not create databases.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    held = [one for one in documents(dataset) if isinstance(one, Document)]
    path = schema_of(dataset.folder)
    corpus = corpus_of(held, read_schema_file(path) if path else None)
    tasks = _tasks(dataset, corpus, read_replies(replies))
    with tempfile.TemporaryDirectory(prefix="signalbox-") as name:
        recording = Path(name) / "recording.jsonl"
        write_recording(dataset, replies, recording, note)
        replaying = settings.model_copy(update={"llm": f"replay:{recording}"})
        rows = (await run(dataset, replaying, note))["questions"]
        own = {row["id"]: row["metrics"]["filter_f1"] == 1.0 for row in rows}
        contenders = {OWN: _share(tasks, own, Counter())}
        passages = Path(name) / "passages.jsonl"
        _write(held, corpus, passages)
        left_out = {}
        async with open_service(settings) as service:
            for peer, (adapter, form) in adapters.items():
                owner = service.database.owner
                try:
                    contenders[peer] = await _judge(owner, pythons, adapter, form, corpus, passages, tasks)
                except PeerError as error:
                    left_out[peer] = str(error)
                    note(f"{peer} is left out: {error}")
    stated = sum(one.is_stated for one in tasks)
    return {
        "dataset": dataset.name, "split": dataset.split, "questions": len(tasks), "with_filter": stated,
        "contenders": contenders, "left_out": left_out, "started_at": started_at,
    }  # fmt: skip


def _tasks(dataset: Dataset, corpus: FilterCorpus, replies: Mapping[str, Mapping[str, Any]]) -> list[_FilterTask]:
    tasks = []
    for one in dataset.questions:
        if one.judges_filter and one.id in replies:
            reply = replies[one.id]
            query, wanted = reply.get("question") or one.text, corpus.allowed(corpus.read(one.filter))
            tasks.append(_FilterTask(one.id, query, reply.get("filter"), wanted, one.filter is not None))
    if not tasks:
        raise BadRequest("no question of this split has a recorded reply and a labelled filter", where="--replies")
    return tasks


def _write(held: Sequence[Document], corpus: FilterCorpus, path: Path) -> None:
    """Write one passage per document with the metadata that the service stores; only filters count, not vectors."""
    vector = encoded(_VECTOR)
    with path.open("w", encoding="utf-8") as file:
        for one in held:
            values = {key: value for key, value in corpus.documents.get(one.id, {}).items() if key not in RESERVED}
            line = {"document": one.id, "text": one.title, "key": "", "vector": vector, "metadata": values}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


async def _judge(
    owner: str,
    pythons: Sequence[Path],
    adapter: Path,
    form: ReplyForm,
    corpus: FilterCorpus,
    passages: Path,
    tasks: Sequence[_FilterTask],
) -> dict[str, Any]:
    """Let one peer apply every recorded filter; return its entry in `contenders`.

    Raises:
        PeerError: it cannot be used.
    """
    fields = {name: one.type for name, one in corpus.fields.items() if name not in RESERVED}
    right: dict[str, bool] = {}
    reasons: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(first_peer(pythons, adapter))
        database = await stack.enter_async_context(PeerDatabase(owner))
        await process.connect(
            database=database.address, dimension=len(_VECTOR), depth=len(corpus.documents), language="simple",
            connections=2, options={"fields": fields},
        )  # fmt: skip
        await process.ingest(passages)
        for one in tasks:
            try:
                reply = form(one.query, one.filter, fields)
                found, _ = await process.search(reply, _VECTOR, len(corpus.documents))
            except (PeerQuestionError, ValueError) as error:
                right[one.id] = False
                reasons[str(error)[:120]] += 1
            else:
                right[one.id] = frozenset(found) == one.wanted
        await process.close()
        return _share(tasks, right, reasons) | {"packages": dict(process.packages)}


def _share(tasks: Sequence[_FilterTask], right: Mapping[str, bool], reasons: Counter[str]) -> dict[str, Any]:
    stated = [right[one.id] for one in tasks if one.is_stated]
    return {
        "right": round(sum(right[one.id] for one in tasks) / len(tasks), 4),
        "right_with_filter": round(sum(stated) / len(stated), 4) if stated else None,
        "failed_questions": reasons.total(),
        "reasons": dict(reasons.most_common(_REASONS)),
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description="compare filters for a model's recorded readings with those of peers")
    parser.add_argument("dataset", metavar="DATASET", type=Path, help="folder in routed form")
    parser.add_argument("--replies", type=Path, required=True, help="JSONL file of recorded replies by question id")
    parser.add_argument("--peers", type=Path, action="append", required=True, help="interpreter; may be repeated")
    parser.add_argument("--split", default=datasets.EVERY_SPLIT, help="split of the questions to use")
    given = parser.parse_args()
    try:
        loaded = datasets.load(given.dataset, given.split)
        found = asyncio.run(measure(loaded, given.replies, load_settings(), given.peers, to_terminal))
    except BadRequest as error:
        parser.error(str(error))
    write_json(found)


if __name__ == "__main__":
    main()
