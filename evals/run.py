"""Run one evaluation: ask the service every question of a split and judge each answer."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from agent.service.opening import open_service
from agent.service.service import Service
from agent.settings import Settings
from agent.types import MAX_TOP_K, Result
from evals import metrics, provenance, stages
from evals.corpus import TENANT, Note, store_corpus
from evals.datasets import Dataset, LabelledQuestion
from evals.judge import FilterJudge, check_documents, stored_corpus
from evals.row import Filters, answer_columns, error_columns, label_columns, passage_texts
from evals.timing import summary
from retrievers.core.errors import BadRequest, RetrievalError, Unavailable
from retrievers.core.types import Scope

Json = dict[str, Any]

FORMAT = 2
"""Version of the run file; raise it if a reader of an earlier version would misread the file."""
WARM_UP = 5
_LINE_EVERY_S = 5.0
_SHOWN_ROWS = 5


@dataclass(frozen=True, slots=True)
class QuestionTarget:
    """The collections of one tenant that questions are put to, by name."""

    tenant: str
    scopes: Mapping[str, Scope]

    @property
    def documents(self) -> int:
        return sum(one.documents for scope in self.scopes.values() for one in scope.collections)

    @property
    def chunks(self) -> int:
        return sum(one.chunks for scope in self.scopes.values() for one in scope.collections)


async def run(
    dataset: Dataset,
    settings: Settings,
    note: Note,
    *,
    filters: Filters = "none",
    limit: int | None = None,
    collection: str | None = None,
) -> Json:
    """Ingest the corpus, ask every question in turn, and judge the answers.

    The questions of a file, and those of a folder if `collection` is given, are put to the stored collection under the
    tenant of the settings; nothing is ingested then.

    Args:
        note: receives progress messages.
        filters: "gold" sends each question's gold filter with the request. This measures retrieval as if the question
            had been understood; the filter metrics are None then.
        limit: maximum number of questions, from the split's start.
        collection: a stored collection of the tenant, in place of the dataset's corpus.
    Returns:
        The run as JSON values, which `evals.runs.RunFile` reads back: `metrics`, `by_class`, `by_language` in [0, 1] or
            None, `latency_ms`, one row per question in the dataset's order, and its settings, prompts and versions.
    Raises:
        BadRequest: the dataset cannot be used with these settings.
        Unavailable: a dependency is down, or no question could be answered.
    """
    metrics.require_ir_measures()
    questions = addressed(dataset.questions[:limit], collection or dataset.name)
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    async with open_service(settings.model_copy(update={"chat_days": 0})) as service:
        is_stored = dataset.form == "file" or collection is not None
        target = await (_stored(service, questions, note) if is_stored else ingested(service, dataset, note))
        judge = await filter_judge(service, target, questions if filters == "none" else ())
        await warm_up(service, dataset, questions, tenant=target.tenant)
        rows = await ask(service, target, dataset, questions, judge, note, filters=filters)
        versions = await provenance.versions(service.database)
        templates = service.pipeline.templates
    return {
        "format": FORMAT,
        "dataset": dataset.name,
        "form": dataset.form,
        "split": dataset.split,
        "tenant": target.tenant,
        "collections": sorted(target.scopes),
        "filters": filters,
        **_figures(rows),
        "documents": target.documents,
        "chunks": target.chunks,
        "settings": provenance.public_settings(settings),
        "prompts": provenance.prompt_digests(templates),
        "versions": versions,
        "started_at": started_at,
    }


def addressed(questions: Iterable[LabelledQuestion], collection: str) -> list[LabelledQuestion]:
    """Return the questions, each with a collection: its own, or else this one."""
    return [replace(one, collection=one.collection or collection) for one in questions]


def _figures(rows: Sequence[Json]) -> Json:
    """Return the rows with their averages."""
    return {
        "metrics": metrics.averages(row["metrics"] for row in rows),
        "by_class": metrics.averages_by((row["class"], row["metrics"]) for row in rows),
        "by_language": metrics.averages_by((row["language"], row["metrics"]) for row in rows),
        "latency_ms": summary([row["latency_ms"] for row in rows]),
        "questions": rows,
    }


async def ingested(service: Service, dataset: Dataset, note: Note) -> QuestionTarget:
    """Store the dataset's corpus in a collection of its own."""
    await store_corpus(service, dataset, note)
    return QuestionTarget(TENANT, {dataset.name: await service.catalogue.scope(TENANT, dataset.name, fresh=True)})


async def _stored(service: Service, questions: Sequence[LabelledQuestion], note: Note) -> QuestionTarget:
    """Return the stored collections that the questions name, after checking that they hold the expected documents."""
    tenant = service.settings.tenant
    scopes: dict[str, Scope] = {}
    for name, some in _by_collection(questions).items():
        try:
            scopes[name] = await service.catalogue.scope(tenant, name)
        except BadRequest as error:
            where = f"{some[0].where}: " if some[0].where else ""
            raise BadRequest(f"{where}{error}", where="collection") from error
        await check_documents(service, scopes[name], some)
        note(f"collection {name}: {sum(one.documents for one in scopes[name].collections):,} documents")
    return QuestionTarget(tenant, scopes)


def _by_collection(questions: Sequence[LabelledQuestion]) -> dict[str, list[LabelledQuestion]]:
    named: dict[str, list[LabelledQuestion]] = {}
    for question in questions:
        named.setdefault(question.collection or "", []).append(question)
    return named


async def filter_judge(service: Service, target: QuestionTarget, questions: Sequence[LabelledQuestion]) -> FilterJudge:
    """Return the judge of the filters of the labelled questions.

    Raises:
        BadRequest: a label does not fit the documents.
    """
    labelled = _by_collection([question for question in questions if question.judges_filter])
    return FilterJudge({name: await stored_corpus(service, target.scopes[name]) for name in labelled}, labelled)


async def warm_up(
    service: Service, dataset: Dataset, questions: Sequence[LabelledQuestion], *, tenant: str = TENANT
) -> None:
    """Load the models and open connections, with texts that no measured question repeats."""
    for question in questions[:WARM_UP]:
        with suppress(BadRequest):  # a faulty question is reported when its turn comes
            collection = question.collection or dataset.name
            await service.retrieve(variant(question.text, 1), tenant=tenant, collection=collection)


def variant(text: str, number: int) -> str:
    """Return the question with other spelling and the same meaning, which caches by text do not know."""
    return f"{text} {'?' * number}"


async def ask(
    service: Service,
    target: QuestionTarget,
    dataset: Dataset,
    questions: Sequence[LabelledQuestion],
    judge: FilterJudge,
    note: Note,
    *,
    filters: Filters = "none",
) -> list[Json]:
    """Put the questions to the stored collections and judge the answers.

    Returns:
        One row per question, in their order, with its `metrics`, each in [0, 1] or None.
    Raises:
        BadRequest, Unavailable: no question could be answered; the first error.
    """
    rows = await _Asking(service, target, judge, filters, note).ask_all(questions)
    _score(dataset, questions, rows, judge)
    return rows


@dataclass(frozen=True, slots=True)
class _Asking:
    """Asks the service questions and records the answers."""

    service: Service
    target: QuestionTarget
    judge: FilterJudge
    filters: Filters
    note: Note

    async def ask_all(self, questions: Sequence[LabelledQuestion]) -> list[Json]:
        """Return a row per question.

        Raises:
            BadRequest, Unavailable: no question was answered; the first error.
        """
        rows: list[Json] = []
        errors: list[RetrievalError] = []
        started = last = time.monotonic()
        for question in questions:
            try:
                answer = await self._ask(question)
            except _NotAnswered as failed:
                # A refused or abandoned question counts as missed; the others are still asked.
                answer = failed.row
                errors.append(failed.error)
                self.note(f"question {question.id}: {failed.error}")
            rows.append(label_columns(question, self.filters) | answer)
            now = time.monotonic()
            if now - last >= _LINE_EVERY_S:
                last, left_s = now, (now - started) / len(rows) * (len(questions) - len(rows))
                self.note(f"{len(rows):,} of {len(questions):,} questions asked, about {left_s:.0f} s left")
        if len(errors) == len(rows):
            raise errors[0]
        return rows

    async def _ask(self, question: LabelledQuestion) -> Json:
        wanted = question.filter if self.filters == "gold" else None
        request = request_for(question, question.collection or "", wanted)
        started = time.perf_counter()
        try:
            result = await self.service.retrieve(tenant=self.target.tenant, **request)
        except (BadRequest, Unavailable) as error:
            raise _NotAnswered(error, error_columns(error, (time.perf_counter() - started) * 1000)) from error
        latency_ms = round((time.perf_counter() - started) * 1000, 3)
        answer = answer_columns(result) | {"latency_ms": latency_ms, "texts": passage_texts(question, result)}
        return answer | await self._decided(question, result)

    async def _decided(self, question: LabelledQuestion, result: Result) -> Json:
        """Return the parts of the row that come from the decision record; {} if no record is kept."""
        if not self.service.traces.days or not result.trace_id:
            return {}
        try:
            record = await self.service.explain(result.trace_id, tenant=self.target.tenant)
        except (BadRequest, Unavailable):
            return {}
        made = stages.rankings(record)
        made[stages.FINAL] = metrics.documents_of(hit.document_id for hit in result.hits)
        stated = [
            {
                "filter": one["filter"],
                "probability": one["confidence"],
                "right": self.judge.is_asked_for(question.id, one["filter"]),
            }
            for one in record["stated"]
        ]
        return {"stages": stages.judge(made, question.relevant), "elapsed_ms": record["elapsed_ms"], "stated": stated}


class _NotAnswered(Exception):
    """The service refused or gave up a question; holds its row."""

    def __init__(self, error: BadRequest | Unavailable, row: Json) -> None:
        super().__init__(str(error))
        self.error, self.row = error, row


def request_for(question: LabelledQuestion, collection: str, wanted: Mapping[str, Any] | None = None) -> Json:
    """Return the request for a question; the keys are those of `agent.types.Request`."""
    request: Json = {"collection": question.collection or collection, "top_k": MAX_TOP_K, "filter": wanted}
    if question.history:
        request["messages"] = [*question.history, {"role": "user", "content": question.text}]
    else:
        request["query"] = question.text
    # A date without a time begins in the time zone of the setting TIME_ZONE.
    request["now"] = question.now
    return request


def _score(dataset: Dataset, questions: Sequence[LabelledQuestion], rows: Sequence[Json], judge: FilterJudge) -> None:
    """Add the scores and the verdict on the filter to every row."""
    ranking = metrics.ranking_scores(
        {row["id"]: row["documents"] for row in rows}, {question.id: question.relevant for question in questions}
    )
    for question, row in zip(questions, rows, strict=True):
        table, texts = row.pop("table"), row.pop("texts")
        is_missed = row["status"] == "error"
        scores: dict[str, float | None] = dict.fromkeys(metrics.NAMES)
        scores |= ranking.get(question.id, {})
        scores |= judge.missed(question.id) if is_missed else judge.scores(question.id, row["intent_filter"])
        scores["route_accuracy"] = metrics.route_accuracy(question.sources, row["sources"])
        # A file does not say how an answer is found: a text is searched in the hits, any other value must be
        # calculated.
        if dataset.form == "file" and isinstance(question.answer, str):
            scores["answer_in_hits"] = metrics.answer_in_hits(question.answer, texts, table)
        else:
            scores["answer_accuracy"] = metrics.answer_accuracy(question.answer, table)
        row["metrics"] = scores
        row["filter_verdict"] = None if is_missed else judge.verdict(question.id, row["intent_filter"])
        row["table"] = [[_json(cell) for cell in line] for line in table[:_SHOWN_ROWS]] if table is not None else None


def _json(cell: Any) -> Any:
    """Return a cell of a table as a JSON value."""
    is_plain = isinstance(cell, str | int | bool | None) or (isinstance(cell, float) and math.isfinite(cell))
    return cell if is_plain else str(cell)
