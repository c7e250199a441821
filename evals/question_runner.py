"""Ask the service the questions of a run, several at a time if wanted, and judge each answer as it arrives."""

import asyncio
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.service.service import Service
from agent.types import MAX_TOP_K, Answer, AskRequest, Result
from evals import answer_scores, metrics, stage_rankings
from evals.corpus import Note
from evals.datasets import Dataset, LabelledQuestion
from evals.filter_judge import FilterJudge
from evals.grading import GradedAnswer, grade
from evals.row_columns import Filters, answer_columns, error_columns, label_columns, passage_texts
from evals.run_checkpoint import RunCheckpoint
from retrievers.core.errors import BadRequest, RetrievalError, Unavailable
from retrievers.core.types import Scope

Json = dict[str, Any]

_LINE_EVERY_S = 5.0
_SHOWN_ROWS = 5
_ANSWER_TOP_K: int = AskRequest.model_fields["top_k"].default
_BEYOND_AN_ANSWER = ("R@100", "AP@100")
"""Measures over more hits than an answer has; they are None if answers are asked for."""


@dataclass(frozen=True, slots=True)
class QuestionRunOptions:
    """How the questions are asked.

    Attributes:
        filters: "gold" sends each question's gold filter with the request.
        answers: ask for answers, each from the default number of hits, instead of for `MAX_TOP_K` hits.
        judge: let the model of the setting LLM grade each answer; only with `answers`.
        at_once: maximum number of questions under way at a time, >= 1.
    """

    filters: Filters = "none"
    answers: bool = False
    judge: bool = False
    at_once: int = 1


HITS = QuestionRunOptions()
"""Ask for hits, one question after the other."""


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


async def ask_questions(
    service: Service,
    target: QuestionTarget,
    dataset: Dataset,
    questions: Sequence[LabelledQuestion],
    judge: FilterJudge,
    note: Note,
    *,
    options: QuestionRunOptions = HITS,
    kept: RunCheckpoint | None = None,
) -> list[Json]:
    """Put the questions to the stored collections and judge the answers.

    Args:
        kept: the rows of a stopped run, whose questions are not asked again; each new row is added. The row of a failed
            question is not added, so that the question is asked again when the run is resumed.
    Returns:
        One row per question, in their order, with its `metrics`, each in [0, 1] or None.
    Raises:
        BadRequest, Unavailable: no question could be answered; the first error.
    """
    return await _QuestionRunner(service, target, dataset.form == "file", judge, note, options, kept).ask_all(questions)


@dataclass(frozen=True, slots=True)
class _QuestionRunner:
    """Asks the service questions and records the judged answers.

    Attributes:
        from_file: whether the questions come from one file, which does not say whether an answer is to be calculated.
        errors: the errors of the questions that failed.
    """

    service: Service
    target: QuestionTarget
    from_file: bool
    judge: FilterJudge
    note: Note
    options: QuestionRunOptions
    kept: RunCheckpoint | None
    errors: list[RetrievalError] = field(default_factory=list)

    async def ask_all(self, questions: Sequence[LabelledQuestion]) -> list[Json]:
        """Return a row per question.

        Raises:
            BadRequest, Unavailable: no question was answered; the first error.
        """
        rows = {one.id: self.kept.rows[one.id] for one in questions if self.kept and one.id in self.kept.rows}
        left = [one for one in questions if one.id not in rows]
        progress, waiting = _Progress(len(left), self.note), iter(left)
        workers = [
            asyncio.create_task(self._work(waiting, rows, progress))
            for _ in range(min(self.options.at_once, len(left)))
        ]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        if len(self.errors) == len(questions):
            raise self.errors[0]
        return [rows[one.id] for one in questions]

    async def _work(self, waiting: Iterator[LabelledQuestion], rows: dict[str, Json], progress: "_Progress") -> None:
        """Ask the waiting questions one after the other; other workers take from the same iterator."""
        for question in waiting:
            row = rows[question.id] = await self._row(question)
            if self.kept is not None and row["status"] != "error":
                self.kept.add(row)
            progress.done()

    async def _row(self, question: LabelledQuestion) -> Json:
        """Return the judged row of a question."""
        labels = label_columns(question, self.options.filters)
        wanted = question.filter if self.options.filters == "gold" else None
        top_k = _ANSWER_TOP_K if self.options.answers else MAX_TOP_K
        request = request_for(question, question.collection or "", wanted, top_k=top_k)
        started = time.perf_counter()
        try:
            asked = self.service.ask if self.options.answers else self.service.retrieve
            result = await asked(tenant=self.target.tenant, **request)
        except (BadRequest, Unavailable) as error:
            # A refused or abandoned question counts as missed; the others are still asked.
            self.errors.append(error)
            self.note(f"question {question.id}: {error}")
            row = labels | error_columns(error, (time.perf_counter() - started) * 1000)
            self._score(question, row, None, None)
            return row
        latency_ms = round((time.perf_counter() - started) * 1000, 3)
        row = labels | answer_columns(result) | {"latency_ms": latency_ms} | await self._decided(question, result)
        graded = await self._graded(question, result)
        self._score(question, row, result, graded)
        return row

    async def _decided(self, question: LabelledQuestion, result: Result) -> Json:
        """Return the columns of the row that come from the decision record; {} if no record is kept."""
        if not self.service.traces.days or not result.trace_id:
            return {}
        try:
            record = await self.service.explain(result.trace_id, tenant=self.target.tenant)
        except (BadRequest, Unavailable):
            return {}
        made = stage_rankings.extract_rankings(record)
        made[stage_rankings.FINAL] = metrics.documents_of(hit.document_id for hit in result.hits)
        stated = [
            {
                "filter": one["filter"],
                "probability": one["confidence"],
                "right": self.judge.is_asked_for(question.id, one["filter"]),
            }
            for one in record["stated"]
        ]
        return {
            "stages": stage_rankings.score_stages(made, question.relevant),
            "elapsed_ms": record["elapsed_ms"],
            "stated": stated,
        }

    async def _graded(self, question: LabelledQuestion, result: Result) -> GradedAnswer | None:
        """Return the model's grade of an answer; None if it is not wanted or there is nothing to compare with."""
        model, templates = self.service.pipeline.model, self.service.pipeline.templates
        if not self.options.judge or model is None or not isinstance(result, Answer) or not question.answerable:
            return None
        graded = await grade(model, question, result, templates=templates)
        if graded is not None and graded.score is None:
            self.note(f"question {question.id}: the answer is not judged: {graded.why}")
        return graded

    def _score(self, question: LabelledQuestion, row: Json, result: Result | None, graded: GradedAnswer | None) -> None:
        """Add the scores and the verdict on the filter to a row; `result` is None for a question that failed."""
        id, table = question.id, row["table"]
        is_missed = result is None
        scores: dict[str, float | None] = dict.fromkeys(metrics.NAMES)
        scores |= metrics.ranking_scores({id: row["documents"]}, {id: question.relevant}).get(id, {})
        scores |= self.judge.missed(id) if is_missed else self.judge.scores(id, row["intent_filter"])
        scores["route_accuracy"] = metrics.route_accuracy(question.sources, row["sources"])
        # A file does not say whether an answer is to be calculated: a text is searched in the hits, any other value
        # must be calculated.
        if self.from_file and isinstance(question.answer, str):
            scores["answer_in_hits"] = metrics.answer_in_hits(question.answer, passage_texts(result), table)
        else:
            scores["answer_accuracy"] = metrics.answer_accuracy(question.answer, table)
        if self.options.answers:
            scores |= self._answer_scores(question, result, graded)
        scores["refused_right"] = answer_scores.refused_right(result, question.answerable)
        row["metrics"] = scores
        row["filter_verdict"] = None if is_missed else self.judge.verdict(id, row["intent_filter"])
        row["grade"] = graded.to_json() if graded is not None else None
        row["table"] = [[_json(cell) for cell in line] for line in table[:_SHOWN_ROWS]] if table is not None else None

    def _answer_scores(
        self, question: LabelledQuestion, result: Result | None, graded: GradedAnswer | None
    ) -> dict[str, float | None]:
        scores: dict[str, float | None] = dict.fromkeys(_BEYOND_AN_ANSWER)
        if isinstance(result, Answer):
            scores |= answer_scores.score_answer(result, gold=question.answer, relevant=question.relevant)
            scores["judged"] = graded.score if graded is not None else None
            return scores
        scores |= answer_scores.missing_answer_scores(gold=question.answer)
        if self.options.judge and (question.answer is not None or question.relevant):
            scores["judged"] = 0.0
        return scores


@dataclass(slots=True)
class _Progress:
    """Reports at most every `_LINE_EVERY_S` seconds how many questions were asked."""

    questions: int
    note: Note
    asked: int = 0
    started: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)

    def done(self) -> None:
        self.asked += 1
        now = time.monotonic()
        if now - self.last >= _LINE_EVERY_S:
            self.last, left_s = now, (now - self.started) / self.asked * (self.questions - self.asked)
            self.note(f"{self.asked:,} of {self.questions:,} questions asked, about {left_s:.0f} s left")


def request_for(
    question: LabelledQuestion, collection: str, wanted: Mapping[str, Any] | None = None, *, top_k: int = MAX_TOP_K
) -> Json:
    """Return the request for a question; the keys are those of `agent.types.Request`."""
    request: Json = {"collection": question.collection or collection, "top_k": top_k, "filter": wanted}
    if question.history:
        request["messages"] = [*question.history, {"role": "user", "content": question.text}]
    else:
        request["query"] = question.text
    # A date without a time begins in the time zone of the setting TIME_ZONE.
    request["now"] = question.now
    return request


def _json(cell: Any) -> Any:
    """Return a cell of a table as a JSON value."""
    is_plain = isinstance(cell, str | int | bool | None) or (isinstance(cell, float) and math.isfinite(cell))
    return cell if is_plain else str(cell)
