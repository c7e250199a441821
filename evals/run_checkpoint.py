"""The rows of a run under way, kept in `FILE.partial` beside its `--out FILE`, so that a stopped run can go on.

The first line holds everything that must be equal when the run goes on; every further line is the row of a question.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from evals.datasets import Dataset
from evals.run_files import changed
from retrievers.core.errors import BadRequest, join_names

Json = dict[str, Any]
_REPLAY = "replay:"
_SHOWN_VALUE = 40


def checkpoint_path(out: Path) -> Path:
    """Return the file that keeps the rows of the run that will be written to `out`."""
    return out.with_name(f"{out.name}.partial")


def check_no_checkpoint(out: Path, *, resume: bool) -> None:
    """Refuse to overwrite the rows of a stopped run.

    Raises:
        BadRequest: the run is not resumed, and there are rows; or the file is damaged.
    """
    path = checkpoint_path(out)
    if not resume and path.exists() and _read(path)[1]:
        raise BadRequest(
            f"{path} holds the answers of a run that was stopped: go on with --resume, or delete the file",
            where="--resume",
        )


@dataclasses.dataclass(frozen=True, slots=True)
class RunCheckpoint:
    """A run under way.

    Attributes:
        rows: the rows kept so far, by question id.
    """

    path: Path
    rows: dict[str, Json]
    _file: BinaryIO

    def add(self, row: Json) -> None:
        """Append the row of a question that was answered.

        Raises:
            BadRequest: the file cannot be written.
        """
        self.rows[row["id"]] = row
        _append(self.path, self._file, row)


@contextmanager
def open_checkpoint(out: Path, head: Mapping[str, Any], *, resume: bool) -> Iterator[RunCheckpoint]:
    """Open the file of `checkpoint_path`; the file remains after the `with` block.

    Args:
        head: JSON values that must be equal to those of the stopped run.
        resume: continue with the rows that are in the file, if there is one.
    Raises:
        BadRequest: the file is damaged or cannot be written, or is of another run; the message says what differs.
    """
    path = checkpoint_path(out)
    rows: dict[str, Json] = {}
    end = 0
    if resume and path.exists():
        held, lines, end = _read(path)
        if held is not None:
            _check_equal(path, held, json.loads(json.dumps(head)))
        rows = {row["id"]: row for row in lines}
    try:
        file = path.open("r+b" if end else "wb")
    except OSError as error:
        _not_written(path, error)
    with file:
        # A line that was cut when the run was stopped is overwritten.
        file.truncate(end)
        file.seek(end)
        if not end:
            _append(path, file, head)
        yield RunCheckpoint(path, rows, file)


def _append(path: Path, file: BinaryIO, line: Mapping[str, Any]) -> None:
    try:
        # In ASCII: a model may write half of a surrogate pair, which UTF-8 cannot encode.
        file.write(json.dumps(line, allow_nan=False).encode("ascii") + b"\n")
        file.flush()
    except OSError as error:
        _not_written(path, error)


def _not_written(path: Path, error: OSError) -> NoReturn:
    raise BadRequest(f"{path}: the file cannot be written: {error.strerror}", where="--out") from error


def _read(path: Path) -> tuple[Json | None, list[Json], int]:
    """Return the head, the rows, and the offset behind the last whole line; (None, [], 0) without a whole line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadRequest(f"{path}: the file cannot be read: {error.strerror}", where="--resume") from error
    end = data.rfind(b"\n") + 1
    try:
        head, *rows = [json.loads(line) for line in data[:end].splitlines()] or [None]
        is_good = end == 0 or (isinstance(head, dict) and all(isinstance(row["id"], str) for row in rows))
    except (ValueError, KeyError, TypeError, RecursionError):
        is_good = False
    if not is_good:
        raise BadRequest(f"{path}: the file is damaged: delete it", where="--resume")
    return head, rows, end


def _check_equal(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    differences = [one for name, (old, new) in changed(before, now).items() for one in _differences(name, old, new)]
    if differences:
        what = f"{path} is of another run, and its answers cannot be used: {join_names(differences, 5)}"
        raise BadRequest(f"{what}; give the same settings, or delete the file", where="--resume")


def _differences(name: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key, (one, two) in changed(old, new).items():
            yield f"{name} {key}: {_shown(one)} then, {_shown(two)} now"
    elif name == "digest":
        yield "the dataset has changed"
    else:
        yield f"{name}: {_shown(old)} then, {_shown(new)} now"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}…"


def dataset_digest(dataset: Dataset) -> str:
    """Return the SHA-256 of the questions with their labels, and of the corpus files.

    Raises:
        BadRequest: a file cannot be read.
    """
    digest = hashlib.sha256()
    for question in dataset.questions:
        labels = dataclasses.asdict(dataclasses.replace(question, where=None))
        digest.update(json.dumps(labels, sort_keys=True, default=str).encode())
    for path in dataset.corpus:
        digest.update(_file_digest(path).encode())
    return digest.hexdigest()


def comparable_settings(settings: Json) -> Json:
    """Return the settings with a recording's file name replaced by its digest, because its file may be temporary."""
    llm = settings.get("llm")
    if not isinstance(llm, str) or not llm.startswith(_REPLAY):
        return settings
    return {**settings, "llm": f"{_REPLAY}{_file_digest(Path(llm.removeprefix(_REPLAY)).expanduser())}"}


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadRequest(f"{path}: the file cannot be read: {error.strerror}", where="dataset") from error
