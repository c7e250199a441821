"""The review file: candidate questions, one JSON object a line, for a person to accept, correct or reject."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evals.datasets import LabelledQuestion, lines, routed_question
from retrievers.core.errors import BadRequest

Json = dict[str, Any]

_ID_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class CandidateQuestion:
    """A question with proposed labels.

    Attributes:
        accept: the person's decision; None while they have not decided.
        check: tells the person what to correct; "" if nothing is known to be wrong.
        hits: documents that may be relevant, best first, each {"document", "title"}.
        origin: where the question comes from: traces with their feedback, or the document it was made of.
    """

    question: LabelledQuestion
    accept: bool | None = None
    check: str = ""
    hits: Sequence[Mapping[str, Any]] = ()
    origin: Sequence[Mapping[str, Any]] = ()


def question_id(collection: str, text: str, history: Sequence[Mapping[str, str]] = ()) -> str:
    """Return the id of a question: a digest of collection, text and history, whatever the text's case and spacing."""
    said = [folded(text), *(f"{turn['role']}\n{turn['content']}" for turn in history)]
    digest = hashlib.sha256(json.dumps([collection, *said]).encode(errors="replace")).hexdigest()
    return f"q-{digest[:_ID_CHARACTERS]}"


def folded(text: str) -> str:
    """Return a text without differences of case and spacing."""
    return " ".join(text.casefold().split())


def question_line(question: LabelledQuestion) -> Json:
    """Return a question as a line of `queries.jsonl` in routed form."""
    line: Json = {
        "id": question.id,
        "text": question.text,
        "lang": question.language,
        "now": question.now,
        "class": question.klass,
        "split": question.split,
        "history": [dict(turn) for turn in question.history],
        "filter": question.filter,
        "sources": list(question.sources),
        "relevant": dict(question.relevant),
        "answer": question.answer,
    }
    line |= {} if question.judges_filter else {"filter_judged": False}
    return line if question.answerable else line | {"answerable": False}


def write_review(path: Path, candidates: Iterable[CandidateQuestion]) -> None:
    """Write a review file. It must not exist: it may hold a person's decisions.

    Raises:
        BadRequest: the file exists or cannot be written.
    """
    text = "".join(json.dumps(_line(one), ensure_ascii=False) + "\n" for one in candidates)
    try:
        with path.open("x", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        raise BadRequest(f"--out {path}: the file cannot be written: {error.strerror}", where="--out") from error


def check_new(path: Path) -> None:
    """Raise BadRequest if a review file cannot be written at this place."""
    if path.exists():
        raise BadRequest(f"--out {path}: the file exists and may hold decisions; name another", where="--out")
    if not path.absolute().parent.is_dir():
        raise BadRequest(f"--out {path}: there is no folder {path.absolute().parent}", where="--out")


def read_review(path: Path) -> list[CandidateQuestion]:
    """Read a review file.

    Raises:
        BadRequest: the file cannot be read, or a line is malformed; the message names the line.
    """
    candidates = []
    seen: dict[str, str] = {}
    for where, line in lines(path):
        candidate = _candidate(where, line)
        first = seen.setdefault(candidate.question.id, where)
        if first != where:
            raise BadRequest(f'{where}: the id "{candidate.question.id[:60]}" is also that of {first}', where="review")
        candidates.append(candidate)
    return candidates


def _line(candidate: CandidateQuestion) -> Json:
    question = question_line(candidate.question)
    del question["split"], question["sources"]
    head = {"id": question.pop("id"), "accept": candidate.accept, "check": candidate.check}
    if not candidate.check:
        del head["check"]
    more = {"collection": candidate.question.collection, "hits": candidate.hits, "from": candidate.origin}
    return {**head, **question, **more}


def _candidate(where: str, line: Mapping[str, Any]) -> CandidateQuestion:
    accept = line.get("accept")
    if accept is not None and not isinstance(accept, bool):
        raise BadRequest(f'{where}: "accept" must be true, false or null', where="review")
    collection = line.get("collection")
    if not isinstance(collection, str) or not collection:
        raise BadRequest(f'{where}: "collection" is missing or not text', where="review")
    question = replace(routed_question(where, line), collection=collection, where=where)
    return CandidateQuestion(question, accept)
