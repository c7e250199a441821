"""One evaluation: every question of a split through the service, judged one by one."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

from agent.app import Service
from agent.opening import open_service
from agent.settings import Settings
from agent.types import MAX_TOP_K, Result
from evals import metrics, provenance
from evals.corpus import TENANT, Note, documents, store_corpus
from evals.datasets import Dataset, Question
from evals.filters import Corpus, corpus_of
from evals.timing import summary
from retrievers.core.errors import BadRequest, RetrievalError, Unavailable
from retrievers.core.filters import Filter
from retrievers.core.types import Collection, Scope
from retrievers.ingest.documents import Document
from retrievers.postgres.catalogue import filterable

Filters = Literal["none", "gold"]

WARM_UP = 5
_LINE_EVERY_S = 5.0


async def run(
    dataset: Dataset,
    settings: Settings,
    note: Note,
    *,
    filters: Filters = "none",
    limit: int | None = None,
) -> dict[str, Any]:
    """Ingest the corpus, ask every question in turn, and judge the answers.

    Args:
        note: is told of the progress.
        filters: "gold" gives each question's gold filter as the caller's, which measures retrieval as if
            the question had been understood; the filter metrics then say nothing and are None.
        limit: only the first questions of the split.
    Returns:
        The run as JSON values: `metrics`, `by_class`, `by_language` in [0, 1] or None, `latency_ms`, one
        row per question in the dataset's order, and what it was made with.
    Raises:
        BadRequest: the dataset cannot be used with these settings.
        Unavailable: a dependency is down, or no question could be answered.
    """
    metrics.require_ir_measures()
    questions = dataset.questions[:limit]
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    async with open_service(settings.model_copy(update={"chat_days": 0})) as service:
        collection = await store_corpus(service, dataset, note)
        judge = filter_judge(dataset, questions, collection) if filters == "none" else None
        await warm_up(service, dataset, questions)
        rows = await ask(service, dataset, questions, judge, note, filters=filters)
        versions = await provenance.versions(service.database)
        templates = service.pipeline.templates
    return {
        "dataset": dataset.name,
        "form": dataset.form,
        "split": dataset.split,
        "filters": filters,
        "metrics": metrics.averages(row["metrics"] for row in rows),
        "by_class": metrics.averages_by((row["class"], row["metrics"]) for row in rows),
        "by_language": metrics.averages_by((row["language"], row["metrics"]) for row in rows),
        "latency_ms": summary([row["latency_ms"] for row in rows]),
        "questions": rows,
        "documents": collection.documents,
        "chunks": collection.chunks,
        "settings": provenance.public_settings(settings),
        "prompts": provenance.prompt_digests(templates),
        "versions": versions,
        "started_at": started_at,
    }


async def warm_up(service: Service, dataset: Dataset, questions: Sequence[Question]) -> None:
    """Load the model and open connections, with texts that no measured question repeats."""
    for question in questions[:WARM_UP]:
        with suppress(BadRequest):  # what is wrong with the question is said when its turn comes
            await service.retrieve(variant(question.text, 1), tenant=TENANT, collection=dataset.name)


def variant(text: str, number: int) -> str:
    """The question with another spelling of the same meaning: caches by text do not know it."""
    return f"{text} {'?' * number}"


async def ask(
    service: Service,
    dataset: Dataset,
    questions: Sequence[Question],
    judge: "FilterJudge | None",
    note: Note,
    *,
    filters: Filters = "none",
) -> list[dict[str, Any]]:
    """One row per question, in their order, with its `metrics`, each in [0, 1] or None. The corpus is stored already.

    Args:
        judge: of the filters read from questions; without one they are not judged.
    Raises:
        BadRequest, Unavailable: no question could be answered; the first error.
    """
    rows = await _ask_all(service, dataset, questions, filters, note)
    scores = metrics.ranking_scores(
        {row["id"]: row["documents"] for row in rows}, {question.id: question.relevant for question in questions}
    )
    for question, row in zip(questions, rows, strict=True):
        row["metrics"] = _scores(question, row, scores.get(question.id, {}), judge)
        del row["table"]
    return rows


async def _ask_all(
    service: Service, dataset: Dataset, questions: Sequence[Question], filters: Filters, note: Note
) -> list[dict[str, Any]]:
    rows = []
    errors: list[RetrievalError] = []
    last = time.monotonic()
    for question in questions:
        wanted = question.filter if filters == "gold" else None
        row: dict[str, Any] = {
            "id": question.id,
            "text": question.text,
            "class": question.klass,
            "language": question.language,
            "filter": wanted,
        }
        started = time.perf_counter()
        try:
            result = await service.retrieve(tenant=TENANT, **request_for(question, dataset.name, wanted))
            latency_ms = (time.perf_counter() - started) * 1000
            row |= _answered(result)
        except (BadRequest, Unavailable) as error:
            # One question the service refuses or gives up counts as missed; the others are asked.
            latency_ms = (time.perf_counter() - started) * 1000
            row |= {"intent_by": None, "intent_filter": None, "sources": [], "documents": [], "table": None}
            row |= {"status": "error", "degraded": [], "error": str(error)}
            errors.append(error)
            note(f"question {question.id}: {error}")
        rows.append({**row, "latency_ms": round(latency_ms, 3)})
        if time.monotonic() - last >= _LINE_EVERY_S:
            last = time.monotonic()
            note(f"{len(rows):,} of {len(questions):,} questions asked")
    if len(errors) == len(rows):
        raise errors[0]
    return rows


def request_for(question: Question, collection: str, wanted: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The request for a question; the keys are those of `agent.types.Request`."""
    request: dict[str, Any] = {"collection": collection, "top_k": MAX_TOP_K, "filter": wanted}
    if question.history:
        request["messages"] = [*question.history, {"role": "user", "content": question.text}]
    else:
        request["query"] = question.text
    # A day without a time: it begins where the setting TIME_ZONE says.
    request["now"] = question.now
    return request


def _answered(result: Result) -> dict[str, Any]:
    return {
        "intent_by": result.intent.by,
        "intent_filter": result.intent.filter,
        "sources": _chosen(result),
        "documents": metrics.documents_of(hit.document_id for hit in result.hits),
        "table": result.table.rows if result.table else None,
        "status": result.status,
        "degraded": list(result.degraded),
    }


def _chosen(result: Result) -> list[str]:
    """The sources the service chose; "none" when it saw nothing to retrieve."""
    if result.intent.kind == "none" or result.status == "no_retrieval_needed":
        return ["none"]
    named = [choice.name for choice in result.intent.sources]
    return named or list(dict.fromkeys(step.source for step in result.plan if step.step == 1))


class FilterJudge:
    """Compares the filters that the service read from questions with the gold ones."""

    def __init__(self, dataset: Dataset, questions: Sequence[Question], collection: Collection) -> None:
        fields = filterable(Scope(TENANT, (collection,)))
        self._corpus: Corpus = corpus_of((item for item in documents(dataset) if isinstance(item, Document)), fields)
        self._gold: dict[str, Filter | None] = {}
        for question in questions:
            try:
                self._gold[question.id] = self._corpus.read(question.filter)
            except BadRequest as error:
                raise BadRequest(f"question {question.id}: its gold filter does not fit the corpus: {error}") from error

    def scores(self, id: str, found: Mapping[str, Any] | None) -> dict[str, float]:
        gold, read = self._gold[id], self._corpus.read(found)
        return {"filter_exact": self._corpus.exact(gold, read), "filter_f1": self._corpus.f1(gold, read)}


def filter_judge(dataset: Dataset, questions: Sequence[Question], collection: Collection) -> FilterJudge | None:
    """The judge of a dataset's filters; None for the BEIR form, which has none.

    Raises:
        BadRequest: a gold filter does not fit the corpus.
    """
    return FilterJudge(dataset, questions, collection) if dataset.form == "routed" else None


def _scores(
    question: Question, row: Mapping[str, Any], ranking: Mapping[str, float], judge: FilterJudge | None
) -> dict[str, float | None]:
    scores: dict[str, float | None] = dict.fromkeys(metrics.NAMES)
    scores |= ranking
    if judge is not None and row["status"] == "error":
        scores |= {"filter_exact": 0.0, "filter_f1": 0.0}
    elif judge is not None:
        scores |= judge.scores(question.id, row["intent_filter"])
    scores["route_accuracy"] = metrics.route_accuracy(question.sources, row["sources"])
    scores["answer_accuracy"] = metrics.answer_accuracy(question.answer, row["table"])
    return scores
