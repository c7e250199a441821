"""Make a dataset of the questions of a review file that a person has accepted."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.service.service import Service
from evals.collection_export import export_corpus, schema_of_scope
from evals.corpus import Note
from evals.datasets import CORPUS, EVERY_SPLIT, QUERIES, LabelledQuestion, load
from evals.filter_judge import FilterJudge, check_documents, stored_corpus
from evals.review import CandidateQuestion, folded, question_line
from retrievers.core.errors import BadRequest
from retrievers.core.types import Viewer
from retrievers.ingest.readers.schema_file import NAME as SCHEMA

Json = dict[str, Any]

ORIGIN = "collected.json"
"""Name of the file that marks a folder as written by this module; it states the collection of the documents."""
LEAST_QUESTIONS = 20
"""Minimum number of questions that are divided into `dev` and `test`; fewer are all `test`."""


@dataclass(frozen=True, slots=True)
class AcceptedFile:
    """Counts of what `accept` did with the lines of a review file.

    Attributes:
        undecided: lines with `accept` null, which are left out.
        merged: accepted lines that ask the same question as another line.
        unlabelled: accepted questions with neither a relevant document nor an answer, so that only their filter is
            judged.
        questions, documents: size of the dataset after the call.
        splits: number of questions by split.
    """

    accepted: int
    rejected: int
    undecided: int
    merged: int
    unlabelled: int
    questions: int
    documents: int
    splits: Mapping[str, int]


async def accept(
    service: Service, candidates: Sequence[CandidateQuestion], folder: Path, note: Note, *, viewer: Viewer
) -> AcceptedFile:
    """Write the accepted questions and the documents of their collection as a dataset folder in routed form.

    A folder of an earlier call is brought up to date: accepted questions replace those of the same id, rejected ones
    are removed, all others stay.

    Raises:
        BadRequest: nothing is accepted, the lines name several collections, a label does not fit the collection, or
            the folder contains other files than those of an earlier call.
        Unavailable: the database cannot be reached.
    """
    collection = _collection(candidates)
    chosen = [one.question for one in candidates if one.accept]
    rejected = {one.question.id for one in candidates if one.accept is False}
    kept = _earlier(folder, collection)
    if not chosen and not rejected & kept.keys():
        raise BadRequest('no question is accepted: set "accept" to true in the review file', where="--accept")
    _check_labels(chosen)
    scope = await service.catalogue.scope(viewer, collection)
    await check_documents(service, scope, chosen)
    judged = [one for one in chosen if one.judges_filter]
    if judged:
        FilterJudge({collection: await stored_corpus(service, scope)}, {collection: judged})
    distinct = _merged(chosen)
    questions = {id: one for id, one in (kept | {one.id: one for one in distinct}).items() if id not in rejected}
    divided = _divided(list(questions.values()))
    documents = await _write(service, folder, collection, divided, note, viewer)
    return AcceptedFile(
        accepted=len(chosen),
        rejected=sum(one.accept is False for one in candidates),
        undecided=sum(one.accept is None for one in candidates),
        merged=len(chosen) - len(distinct),
        unlabelled=sum(not one.relevant and one.answer is None for one in distinct),
        questions=len(divided),
        documents=documents,
        splits={name: sum(one.split == name for one in divided) for name in ("dev", "test")},
    )


def _collection(candidates: Sequence[CandidateQuestion]) -> str:
    """Return the collection that all lines name; raise BadRequest if they name several."""
    names = {one.question.collection: one.question.where for one in candidates}
    if len(names) > 1:
        (first, _), (other, where) = list(names.items())[:2]
        raise BadRequest(
            f'{where}: the collection is "{other}", but "{first}" before: accept each alone', where="review"
        )
    return str(next(iter(names)))


def _check_labels(questions: Sequence[LabelledQuestion]) -> None:
    for one in questions:
        if not one.relevant and one.answer is None and not one.judges_filter and one.answerable:
            raise BadRequest(
                f"{one.where}: nothing can be judged: give `relevant`, `answer` or `filter`", where="review"
            )


def _merged(questions: Sequence[LabelledQuestion]) -> list[LabelledQuestion]:
    """Merge questions of equal wording and history into one, with the relevant documents of all of them.

    Raises:
        BadRequest: their filters or answers differ.
    """
    found: dict[tuple[str, str], LabelledQuestion] = {}
    for one in questions:
        key = folded(one.text), json.dumps([dict(turn) for turn in one.history])
        same = found.setdefault(key, one)
        if (same.filter, same.answer, same.answerable) != (one.filter, one.answer, one.answerable):
            raise BadRequest(f"{one.where}: the same question as {same.where} with another filter or answer: "
                             "accept only one of them", where="review")  # fmt: skip
        found[key] = replace(same, relevant={**one.relevant, **same.relevant})
    return list(found.values())


def _divided(questions: Sequence[LabelledQuestion]) -> list[LabelledQuestion]:
    """Assign each question to `dev` or `test` by a hash of its id, so that it stays there when others are added."""

    def split(id: str) -> str:
        is_dev = len(questions) >= LEAST_QUESTIONS and hashlib.sha256(id.encode()).digest()[0] % 2
        return "dev" if is_dev else "test"

    return [replace(one, split=split(one.id)) for one in questions]


def _earlier(folder: Path, collection: str) -> dict[str, LabelledQuestion]:
    """Return the questions of an earlier call by id; {} for a new or empty folder.

    Raises:
        BadRequest: the folder was not written by `accept`, or is for another collection.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return {}
    try:
        origin = json.loads((folder / ORIGIN).read_text(encoding="utf-8"))
        of = origin["collection"]
    except (OSError, ValueError, KeyError, TypeError):
        raise BadRequest(
            f"--dataset {folder}: it exists and was not written by `eval collect`; name another", where="--dataset"
        ) from None
    if of != collection:
        raise BadRequest(f'--dataset {folder}: its questions are put to the collection "{of}"', where="--dataset")
    if not (folder / QUERIES).is_file():
        return {}
    return {one.id: one for one in load(folder, EVERY_SPLIT).questions}


async def _write(
    service: Service, folder: Path, collection: str, questions: Sequence[LabelledQuestion], note: Note, viewer: Viewer
) -> int:
    """Write the files of the dataset; return the number of documents."""
    scope = await service.catalogue.scope(viewer, collection, fresh=True)
    copy = folder / f".{CORPUS}"
    with _named_errors(folder):
        _write_lines(folder / ORIGIN, [{"collection": collection, "tenant": viewer.tenant}])
    documents = await export_corpus(service, scope, copy, note)
    with _named_errors(folder):
        copy.replace(folder / CORPUS)
        _write_lines(folder / SCHEMA, [schema_of_scope(scope)])
        _write_lines(folder / QUERIES, [question_line(one) for one in questions])
    return documents


def _write_lines(path: Path, values: Sequence[Json]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in values), encoding="utf-8")


@contextmanager
def _named_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadRequest(f"--dataset {folder}: it cannot be written: {error.strerror}", where="--dataset") from error
