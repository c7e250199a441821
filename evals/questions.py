"""Load labelled questions from one CSV or JSON Lines file, for a collection that is already stored."""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from evals.datasets import (
    EVERY_SPLIT,
    Dataset,
    LabelledQuestion,
    check_unanswerable,
    history_of,
    lines,
    load,
    read_text,
)
from retrievers.core.errors import BadRequest, join_names
from retrievers.text.languages import detect_language

COLUMNS = (
    "question", "document", "answer", "answerable", "filter", "filters", "history", "collection", "class", "lang",
    "now", "id",
)  # fmt: skip
_JSON_COLUMNS = ("filter", "filters", "history")
_DELIMITERS = (",", ";", "\t")
_JSON_LINES = frozenset({".jsonl", ".ndjson"})
_FILES = _JSON_LINES | {".csv", ".tsv"}
_ID_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class QuestionFile:
    """The questions of a file, and its unused columns."""

    dataset: Dataset
    unused: tuple[str, ...]


def load_questions(path: Path, split: str, collection: str | None, note: Callable[[str], None]) -> Dataset:
    """Load the questions of a folder's split, or those of a file.

    Args:
        note: receives a message about unused columns of a file.
    Raises:
        BadRequest: as `load` and `load_file`; or a split of a file is asked for.
    """
    if not path.is_file():
        if path.suffix.casefold() in _FILES and not path.is_dir():
            raise BadRequest(f"{path}: the file does not exist", where="dataset")
        return load(path, split)
    if split not in ("test", EVERY_SPLIT):
        raise BadRequest(f"{path.name}: a file of questions has no splits", where="split")
    read = load_file(path, collection)
    if read.unused:
        note(f"{path.name}: unused columns: {join_names(read.unused)}")
    return read.dataset


def load_file(path: Path, collection: str | None = None) -> QuestionFile:
    """Read questions from a CSV file with a header (commas, semicolons or tabs), or from `.jsonl` with the same keys.

    A line has `question`, and `document` (ids, separated by `;` or as a JSON list) or `answer` or both; or `answerable`
    is false. Optional are `filter` (the gold filter as JSON; `null` for no constraint, empty if it is not judged) or
    `filters` (a JSON list of filters of which each is right), `history` (a JSON list of {"role", "content"}),
    `collection`, `class`, `lang`, `now` and `id`.

    Args:
        collection: the collection of the questions whose line has no `collection`.
    Raises:
        BadRequest: the file or a line is malformed; the message names the file and the line.
    """
    path = path.expanduser().absolute()
    found = list(lines(path) if path.suffix.casefold() in _JSON_LINES else _rows(path))
    questions: dict[str, LabelledQuestion] = {}
    for where, line in found:
        question = _question(where, line, collection)
        if question.id in questions:
            _fail(where, f'the question "{question.text[:60]}" occurs twice')
        questions[question.id] = question
    unused = {key: None for _, line in found for key in line if key not in COLUMNS}
    dataset = Dataset(path.stem, path, "file", EVERY_SPLIT, (), tuple(questions.values()))
    return QuestionFile(dataset, tuple(unused))


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the lines of a CSV file as cells by column, each with its place ("questions.csv:3")."""
    text = read_text(path)
    header = text.split("\n", 1)[0]
    delimiter = next((one for one in _DELIMITERS if "question" in _names(header.split(one))), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    columns: list[str] = []
    empty, last = True, 0
    while True:
        where = f"{path.name}:{last + 1}"
        try:
            cells = next(reader, None)
        except csv.Error as error:
            _fail(where, f"malformed CSV: {error}")
        last = reader.line_num
        if cells is None:
            break
        if not columns:
            columns = _names(cells)
            if "question" not in columns:
                _fail(
                    where, f'the first line must name the columns, including "question"; valid: {join_names(COLUMNS)}'
                )
        elif any(cell.strip() for cell in cells):
            if len(cells) > len(columns):
                _fail(where, f"{len(cells)} cells for {len(columns)} columns; quote cells that contain the delimiter")
            empty = False
            yield where, _cells(where, dict(zip(columns, cells, strict=False)))
    if empty:
        raise BadRequest(f"{path}: the file has no questions", where="dataset")


def _names(cells: list[str]) -> list[str]:
    return [cell.strip().strip('"').casefold() for cell in cells]


def _cells(where: str, cells: Mapping[str, str]) -> dict[str, Any]:
    """Parse the cells of a line into texts, lists and JSON values; empty cells are left out."""
    values: dict[str, Any] = {name: cell.strip() for name, cell in cells.items() if cell.strip()}
    for name in _JSON_COLUMNS:
        if name in values:
            try:
                values[name] = json.loads(values[name])
            except (ValueError, RecursionError):
                _fail(where, f'"{name}" is not JSON: {values[name][:60]}')
    if values.get("answerable", "").casefold() in ("true", "false"):
        values["answerable"] = values["answerable"].casefold() == "true"
    documents = values.get("document", "")
    if documents.startswith("["):
        try:
            values["document"] = json.loads(documents)
        except (ValueError, RecursionError):
            _fail(where, f'"document" starts like a JSON list but is not JSON: {documents[:60]}')
    elif documents:
        values["document"] = [part.strip() for part in documents.split(";") if part.strip()]
    if "answer" in values:
        # "42" and "[1, 2]" are values; a cell that is no JSON ("3 days", "007") is a text.
        with suppress(ValueError, RecursionError):
            values["answer"] = json.loads(values["answer"], parse_constant=_refuse_constant)
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _question(where: str, line: Mapping[str, Any], collection: str | None) -> LabelledQuestion:
    text = _text(where, line, "question")
    if text is None:
        _fail(where, '"question" is missing')
    documents, answer, answerable = _documents(where, line), line.get("answer"), line.get("answerable", True)
    if not isinstance(answerable, bool):
        _fail(where, '"answerable" must be true or false')
    check_unanswerable(where, answerable, documents, answer)
    if answerable and not documents and answer in (None, ""):
        _fail(where, 'give "document" or "answer", so that the result can be judged; or "answerable" false')
    filters = _filters(where, line)
    history = history_of(where, line)
    named = _text(where, line, "collection") or collection
    if named is None:
        _fail(where, "the collection is missing: give --collection NAME or a column `collection`")
    said = f"{named}\n{text}" + "".join(f"\n{turn['role']}\n{turn['content']}" for turn in history)
    digest = hashlib.sha256(said.encode(errors="replace")).hexdigest()
    return LabelledQuestion(
        id=_text(where, line, "id") or f"q-{digest[:_ID_CHARACTERS]}",
        text=text,
        language=_text(where, line, "lang") or detect_language(text),
        history=history,
        filter=filters[0] if filters else None,
        other_filters=tuple(filters[1:]),
        judges_filter=bool(filters),
        relevant=dict.fromkeys(documents, 1),
        answer=None if answer == "" else answer,
        answerable=answerable,
        klass=_text(where, line, "class"),
        split=EVERY_SPLIT,
        now=_text(where, line, "now"),
        collection=named,
        where=where,
    )


def _filters(where: str, line: Mapping[str, Any]) -> list[Mapping[str, Any] | None]:
    """Return the gold filters of a line; [None] means no constraint, [] that the filter is not judged."""
    if "filter" in line and "filters" in line:
        _fail(where, 'give "filter" or "filters", not both')
    given = line.get("filters", [line["filter"]] if "filter" in line else [])
    if not isinstance(given, list) or ("filters" in line and not given):
        _fail(where, '"filters" must be a list of filter expressions')
    name = "filters" if "filters" in line else "filter"
    for wanted in given:
        if wanted is not None and (not isinstance(wanted, dict) or not wanted):
            what = 'a filter expression such as {"type": "eq", "key": "team", "value": "x"}, or null'
            _fail(where, f'"{name}" must be {what}' if name == "filter" else f'each of "filters" must be {what}')
    return given


def _documents(where: str, line: Mapping[str, Any]) -> list[str]:
    given = line.get("document")
    documents = [] if given is None else [given] if isinstance(given, str) else given
    if not isinstance(documents, list) or not all(isinstance(id, str) for id in documents):
        _fail(where, '"document" must be an id or a list of ids')
    return [id for id in documents if id]


def _text(where: str, line: Mapping[str, Any], key: str) -> str | None:
    value = line.get(key)
    if value is not None and not isinstance(value, str):
        _fail(where, f'"{key}" must be text')
    return (value or "").strip() or None


def _fail(where: str, reason: str) -> NoReturn:
    raise BadRequest(f"{where}: {reason}", where="dataset")
