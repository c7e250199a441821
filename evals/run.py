"""Run one evaluation: ask the service every question of a split and judge each answer."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from evals import metrics, provenance
from evals.corpus import TENANT, Note, store_corpus
from evals.datasets import Dataset, LabelledQuestion
from evals.filter_judge import FilterJudge, check_documents, stored_corpus
from evals.question_runner import HITS, QuestionRunOptions, QuestionTarget, ask_questions
from evals.row_columns import usage_of
from evals.run_checkpoint import (
    RunCheckpoint,
    check_no_checkpoint,
    comparable_settings,
    dataset_digest,
    open_checkpoint,
)
from evals.run_files import FORMAT
from evals.timing import summary
from retrievers.core.errors import BadRequest
from retrievers.core.types import Scope

Json = dict[str, Any]

WARM_UP = 5


async def run(
    dataset: Dataset,
    settings: Settings,
    note: Note,
    *,
    options: QuestionRunOptions = HITS,
    limit: int | None = None,
    collection: str | None = None,
    out: Path | None = None,
    resume: bool = False,
) -> Json:
    """Ingest the corpus, ask the questions, and judge the answers.

    The questions of a file, and those of a folder if `collection` is given, are put to the stored collection under the
    tenant of the settings; nothing is ingested then.

    Args:
        note: receives progress messages.
        options: how to ask. With gold filters the run measures retrieval as if the question had been understood; the
            filter metrics are None then.
        limit: maximum number of questions, from the split's start.
        collection: a stored collection of the tenant, in place of the dataset's corpus.
        out: the run's file, which the caller writes; its rows are kept beside it while the run is under way.
        resume: ask only the questions that a stopped run with this `out` has not answered.
    Returns:
        The run as JSON values, which `evals.run_files.RunFile` reads back: `metrics`, `by_class`, `by_language` in
            [0, 1] or None, `latency_ms`, one row per question in the dataset's order, and its settings, prompts and
            versions.
    Raises:
        BadRequest: the dataset cannot be used with these settings, or the rows are of another run.
        Unavailable: a dependency is down, or no question could be answered.
    """
    metrics.require_ir_measures()
    if options.judge and not settings.llm:
        raise BadRequest("--judge needs a model: set LLM", where="--judge")
    if out is not None:
        check_no_checkpoint(out, resume=resume)
    questions = addressed(dataset.questions[:limit], collection or dataset.name)
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    async with open_service(settings.model_copy(update={"chat_days": 0})) as service:
        is_stored = dataset.form == "file" or collection is not None
        target = await (_stored(service, questions, note) if is_stored else ingested(service, dataset, note))
        judge = await filter_judge(service, target, questions if options.filters == "none" else ())
        head = {**_head(dataset, target, options), **await _origin(service, settings)}
        with _kept(out, dataset, head, resume=resume) as kept:
            if kept is not None and kept.rows:
                note(f"{len(kept.rows):,} questions of the stopped run are not asked again")
            await warm_up(service, dataset, questions, tenant=target.tenant)
            try:
                rows = await ask_questions(service, target, dataset, questions, judge, note, options=options, kept=kept)
            except asyncio.CancelledError:
                if kept is not None:
                    note(f"{len(kept.rows):,} of {len(questions):,} answers are in {kept.path}: go on with --resume")
                raise
    return {**head, **_figures(rows), "started_at": started_at}


def _head(dataset: Dataset, target: QuestionTarget, options: QuestionRunOptions) -> Json:
    """Return the values of a run that state the questions, the collections and how the questions are asked."""
    return {
        "format": FORMAT,
        "dataset": dataset.name,
        "form": dataset.form,
        "split": dataset.split,
        "tenant": target.tenant,
        "collections": sorted(target.scopes),
        **asdict(options),
        "documents": target.documents,
        "chunks": target.chunks,
    }


async def _origin(service: Service, settings: Settings) -> Json:
    """Return the settings, prompt digests and versions of the service that answers."""
    return {
        "settings": provenance.public_settings(settings),
        "prompts": provenance.prompt_digests(service.pipeline.templates),
        "versions": await provenance.versions(service.database),
    }


@contextmanager
def _kept(out: Path | None, dataset: Dataset, head: Json, *, resume: bool) -> Iterator[RunCheckpoint | None]:
    """Open the file that keeps the rows of a run; None if the run is not written."""
    if out is None:
        yield None
        return
    equal = {**head, "settings": comparable_settings(head["settings"]), "digest": dataset_digest(dataset)}
    with open_checkpoint(out, equal, resume=resume) as kept:
        yield kept


def addressed(questions: Iterable[LabelledQuestion], collection: str) -> list[LabelledQuestion]:
    """Return the questions, each with a collection: its own, or else `collection`."""
    return [replace(one, collection=one.collection or collection) for one in questions]


def _figures(rows: Sequence[Json]) -> Json:
    """Return the rows with their averages and totals."""
    return {
        "metrics": metrics.averages(row["metrics"] for row in rows),
        "by_class": metrics.averages_by((row["class"], row["metrics"]) for row in rows),
        "by_language": metrics.averages_by((row["language"], row["metrics"]) for row in rows),
        "latency_ms": summary([row["latency_ms"] for row in rows]),
        "usage": usage_of(rows),
        "degraded": dict(sorted(Counter(one for row in rows for one in row["degraded"]).items())),
        "questions": rows,
    }


async def ingested(service: Service, dataset: Dataset, note: Note) -> QuestionTarget:
    """Store the dataset's corpus in a collection with the dataset's name; return it as the target of the questions."""
    await store_corpus(service, dataset, note)
    return QuestionTarget(TENANT, {dataset.name: await service.catalogue.scope(TENANT, dataset.name, fresh=True)})


async def _stored(service: Service, questions: Sequence[LabelledQuestion], note: Note) -> QuestionTarget:
    """Return the stored collections that the questions name, after checking that they have the expected documents."""
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
    """Return the text with `number` question marks added: its meaning is the same, but no cache by text has it."""
    return f"{text} {'?' * number}"
