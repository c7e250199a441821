"""Read labelled questions over a corpus from a folder in BEIR or routed form; `evals.questions` reads single files."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from retrievers.core.errors import BadRequest, join_names
from retrievers.text.languages import detect_language

Form = Literal["beir", "routed", "file"]

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
EVERY_SPLIT = "all"
_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """One question with its gold labels.

    Attributes:
        language: ISO 639-1 code.
        history: earlier turns, oldest first, each {"role", "content"}.
        filter: the gold filter expression; None for no constraint (and in BEIR form, where filters are not judged).
        other_filters: further gold filters; the service's filter is right if it equals `filter` or any of these.
        sources: the sources a good router would use; empty if not judged.
        relevant: document id to grade, > 0; missing documents are not relevant.
        answer: the gold value; None if there is no single value.
        answerable: False if the documents do not hold the answer, so that the service must say so.
        klass: kind of question; None if the dataset does not say.
        now: ISO date or time at which the question is asked.
        judges_filter: whether `filter` is a label; False for BEIR.
        collection: the collection to ask; None for the collection named like the dataset.
        where: file and line of the question, for error messages; None if the user did not write the file.
    """

    id: str
    text: str
    language: str
    history: tuple[Mapping[str, str], ...] = ()
    filter: Mapping[str, Any] | None = None
    other_filters: tuple[Mapping[str, Any] | None, ...] = ()
    sources: tuple[str, ...] = ()
    relevant: Mapping[str, int] = field(default_factory=dict)
    answer: Any = None
    answerable: bool = True
    klass: str | None = None
    split: str = "test"
    now: str | None = None
    judges_filter: bool = True
    collection: str | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Dataset:
    """A corpus and the questions of one split.

    Attributes:
        name: the folder's name, also used for the collection of the corpus.
        folder: the folder, or the file if the questions come from one file.
        corpus: the files with the documents; empty if the questions come from one file.
    """

    name: str
    folder: Path
    form: Form
    split: str
    corpus: tuple[Path, ...]
    questions: tuple[LabelledQuestion, ...]


def load(folder: Path, split: str = "test") -> Dataset:
    """Read a dataset folder.

    BEIR form: `corpus.jsonl`, `queries.jsonl` (`_id`, `text`) and `qrels/SPLIT.tsv`; questions without a judgement are
    skipped. Routed form: no `qrels`; the labels are in `queries.jsonl`, and `split` selects the lines ("all" for every
    line). `"filter_judged": false` in a line says that its filter is no label, `"answerable": false` that the documents
    do not hold the answer.

    Raises:
        BadRequest: the folder, a file or a line is missing or malformed; the message names the line.
    """
    folder = folder.expanduser().absolute()
    if not folder.is_dir():
        raise BadRequest(f"{folder}: there is no such dataset folder", where="dataset")
    for name in (CORPUS, QUERIES):
        if not (folder / name).is_file():
            raise BadRequest(
                f"{folder}: no {name}; a dataset has {CORPUS} and {QUERIES}, and in BEIR form {QRELS}/test.tsv",
                where="dataset",
            )
    beir = (folder / QRELS).is_dir()
    questions = _beir(folder, split) if beir else _routed(folder, split)
    return Dataset(
        folder.resolve().name, folder, "beir" if beir else "routed", split, (folder / CORPUS,), tuple(questions)
    )


def splits(folder: Path) -> tuple[str, ...]:
    """Return the splits of a dataset folder, sorted by name.

    Raises:
        BadRequest: as `load`.
    """
    folder = folder.expanduser().absolute()
    if (folder / QRELS).is_dir():
        return tuple(sorted(file.stem for file in (folder / QRELS).glob("*.tsv")))
    return tuple(sorted({question.split for question in load(folder, EVERY_SPLIT).questions}))


def _beir(folder: Path, split: str) -> list[LabelledQuestion]:
    judged = _judgements(folder, split)
    questions = []
    seen: set[str] = set()
    for where, line in lines(folder / QUERIES):
        id, text = _text(where, line, "_id"), _text(where, line, "text")
        _once(where, id, seen)
        if id in judged:
            # BEIR does not state the language, and a single sentence only reveals the script reliably.
            questions.append(
                LabelledQuestion(
                    id,
                    text,
                    detect_language(text, {"en", "zh"}),
                    relevant=judged.pop(id),
                    split=split,
                    judges_filter=False,
                )
            )
    if judged:
        raise BadRequest(
            f"{QRELS}/{split}.tsv: these judged questions are not in {QUERIES}: {join_names(judged, 3)}",
            where="dataset",
        )
    return questions


def _judgements(folder: Path, split: str) -> dict[str, dict[str, int]]:
    """Return the grades of the relevant documents by question id, read from lines of question, document, grade."""
    path = folder / QRELS / f"{split}.tsv"
    known = {file.stem for file in (folder / QRELS).glob("*.tsv")}
    if split not in known:
        _no_split(folder / QRELS, split, known)
    judged: dict[str, dict[str, int]] = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        where = f"{QRELS}/{path.name}:{number}"
        cells = line.split("\t")
        if not line.strip() or (number == 1 and cells[0].strip() in ("query-id", "query_id", "qid")):
            continue
        if len(cells) != 3 or not cells[0] or not cells[1]:
            raise BadRequest(
                f"{where}: a line needs question id, document id and grade, separated by tabs", where="dataset"
            )
        try:
            grade = int(cells[2])
        except ValueError:
            raise BadRequest(f'{where}: the grade "{cells[2][:40]}" is not a whole number', where="dataset") from None
        relevant = judged.setdefault(cells[0], {})
        if grade > 0:
            relevant[cells[1]] = grade
    if not judged:
        raise BadRequest(f"{path}: the file has no judgements", where="dataset")
    return judged


def _routed(folder: Path, split: str) -> list[LabelledQuestion]:
    questions = []
    splits: set[str] = set()
    seen: set[str] = set()
    for where, line in lines(folder / QUERIES):
        question = routed_question(where, line)
        _once(where, question.id, seen)
        splits.add(question.split)
        if split in (question.split, EVERY_SPLIT):
            questions.append(question)
    if not questions:
        _no_split(folder / QUERIES, split, {*splits, EVERY_SPLIT})
    return questions


def _no_split(path: Path, split: str, known: Iterable[str]) -> NoReturn:
    raise BadRequest(
        f'{path}: there is no split "{split}"; there are: {join_names(known)}', where="split", valid=sorted(known)
    )


def routed_question(where: str, line: Mapping[str, Any]) -> LabelledQuestion:
    """Read a question with its labels from a line of the routed form.

    Raises:
        BadRequest: a key is missing or has another type; the message begins with `where`.
    """
    answerable = _flag(where, line, "answerable")
    if "relevant" not in line and answerable:
        hint = f"; in a BEIR dataset the judgements are in {QRELS}/test.tsv" if "_id" in line else ""
        raise BadRequest(f'{where}: "relevant" is missing{hint}', where="dataset")
    text = _text(where, line, "text")
    relevant, answer = _relevant(where, line), line.get("answer")
    check_unanswerable(where, answerable, relevant, answer)
    return LabelledQuestion(
        id=_text(where, line, "id"),
        text=text,
        language=_optional(where, line, "lang") or detect_language(text),
        history=history_of(where, line),
        filter=_filter(where, line),
        sources=_sources(where, line),
        relevant=relevant,
        answer=answer,
        answerable=answerable,
        klass=_optional(where, line, "class"),
        split=_optional(where, line, "split") or "test",
        now=_optional(where, line, "now"),
        judges_filter=_flag(where, line, "filter_judged"),
    )


def check_unanswerable(where: str, answerable: bool, relevant: Iterable[str], answer: Any) -> None:
    """Raise BadRequest if a question without an answer in the documents has a right document or answer."""
    if not answerable and (list(relevant) or answer not in (None, "")):
        raise BadRequest(f'{where}: "answerable" is false, but there is a right document or answer', where="dataset")


def history_of(where: str, line: Mapping[str, Any]) -> tuple[Mapping[str, str], ...]:
    """Return the earlier turns of a line.

    Raises:
        BadRequest: they are malformed; the message begins with `where`.
    """
    turns = line.get("history") or []
    good = isinstance(turns, list) and all(
        isinstance(turn, dict) and turn.get("role") in _ROLES and isinstance(turn.get("content"), str) for turn in turns
    )
    if not good:
        raise BadRequest(f'{where}: "history" must be a list of {{"role", "content"}}', where="dataset")
    return tuple({"role": turn["role"], "content": turn["content"]} for turn in turns)


def _filter(where: str, line: Mapping[str, Any]) -> Mapping[str, Any] | None:
    wanted = line.get("filter")
    if wanted is not None and not isinstance(wanted, dict):
        raise BadRequest(f'{where}: "filter" must be an object or null', where="dataset")
    return wanted


def _sources(where: str, line: Mapping[str, Any]) -> tuple[str, ...]:
    sources = line.get("sources") or []
    if not isinstance(sources, list) or not all(isinstance(name, str) for name in sources):
        raise BadRequest(f'{where}: "sources" must be a list of names', where="dataset")
    return tuple(sources)


def _relevant(where: str, line: Mapping[str, Any]) -> Mapping[str, int]:
    relevant = line.get("relevant", {})
    if not isinstance(relevant, dict) or not all(type(grade) is int for grade in relevant.values()):
        raise BadRequest(f'{where}: "relevant" must be an object of document id to a whole grade', where="dataset")
    return {id: grade for id, grade in relevant.items() if grade > 0}


def _text(where: str, line: Mapping[str, Any], key: str) -> str:
    value = line.get(key)
    if not isinstance(value, str) or not value.strip():
        raise BadRequest(f'{where}: "{key}" is missing or not text', where="dataset")
    return value


def _optional(where: str, line: Mapping[str, Any], key: str) -> str | None:
    value = line.get(key)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f'{where}: "{key}" must be text or null', where="dataset")
    return value or None


def _flag(where: str, line: Mapping[str, Any], key: str) -> bool:
    value = line.get(key, True)
    if not isinstance(value, bool):
        raise BadRequest(f'{where}: "{key}" must be true or false', where="dataset")
    return value


def _once(where: str, id: str, seen: set[str]) -> None:
    if id in seen:
        raise BadRequest(f'{where}: the question id "{id[:60]}" occurs twice', where="dataset")
    seen.add(id)


def lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects of a JSON Lines file, each with its position ("queries.jsonl:17")."""
    empty = True
    for number, text in enumerate(read_text(path).split("\n"), 1):
        if not text.strip():
            continue
        where, empty = f"{path.name}:{number}", False
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", "") or "it cannot be decoded"
            raise BadRequest(f"{where}: malformed JSON: {reason}", where="dataset") from None
        if not isinstance(line, dict):
            raise BadRequest(f"{where}: every line must be a JSON object", where="dataset")
        yield where, line
    if empty:
        raise BadRequest(f"{path}: the file is empty", where="dataset")


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file.

    Raises:
        BadRequest: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{path}: not UTF-8 at byte {error.start}", where="dataset") from None
    except OSError as error:
        raise BadRequest(f"{path}: the file cannot be read: {error.strerror}", where="dataset") from error
