"""Read back and check the runs that `eval run` wrote."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evals.metrics import NAMES
from retrievers.core import filters
from retrievers.core.errors import BadRequest

FORMAT = 2
"""Version of the run file; raise it if a reader of an earlier version would misread the file."""
HEADLINE = (
    "nDCG@10", "R@100", "filter_exact", "route_accuracy", "answer_accuracy", "answer_in_hits", "answer_match", "judged",
    "supported", "refused_right",
)  # fmt: skip
"""The measures that decide whether a run is worse: for ranking, filter, sources, values, and text of the answer."""
VERDICTS = ("right", "none", "partial", "missing", "wrong", "invented")
"""Verdicts on filters, from good to bad, see `evals.reading.filter_verdict`."""

Json = dict[str, Any]
_LONGEST_FILTER = 500


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class HitRow(_Stored):
    """A document of an answer, as shown to a reader."""

    document: str
    title: str = ""
    relevance: float | None = None


class StageRow(_Stored):
    """A stage's result: the ranks of the relevant documents from 1, and nDCG@10."""

    ranks: tuple[int, ...]
    ndcg: float = Field(alias="nDCG@10")


class StatedRow(_Stored):
    """A condition read from the question, its probability, and whether the gold filter has it."""

    filter: Json
    probability: float
    right: bool | None = None


class GradeRow(_Stored):
    """A model's grade of an answer, see `evals.grading.GradedAnswer`."""

    score: float | None = None
    why: str = ""


class QuestionRow(_Stored):
    """One question of a run, as `evals.run` writes it."""

    id: str
    text: str
    klass: str | None = Field(None, alias="class")
    language: str
    collection: str
    history: tuple[Json, ...] = ()
    now: str | None = None
    gold_filter: Json | None = None
    other_filters: tuple[Json | None, ...] = ()
    gold_sources: tuple[str, ...] = ()
    relevant: dict[str, int] = {}
    answer: Any = None
    answerable: bool = True
    text_answer: str | None = None
    model: str | None = None
    cited: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None
    grade: GradeRow | None = None
    intent_by: str | None = None
    intent_filter: Json | None = None
    soft_filter: Json | None = None
    rejected: tuple[str, ...] = ()
    relaxed: tuple[Json, ...] = ()
    sources: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    hits: tuple[HitRow, ...] = ()
    table: tuple[tuple[Any, ...], ...] | None = None
    status: str
    error: str | None = None
    degraded: tuple[str, ...] = ()
    trace_id: str | None = None
    latency_ms: float
    stages: dict[str, StageRow] = {}
    elapsed_ms: dict[str, float] = {}
    stated: tuple[StatedRow, ...] = ()
    metrics: dict[str, float | None]
    filter_verdict: str | None = None

    def labels(self) -> tuple[Any, ...]:
        """Return the dataset's labels of the question, comparable with `==`."""
        wanted = sorted(json.dumps(one, sort_keys=True) for one in (self.gold_filter, *self.other_filters))
        answer = json.dumps(self.answer, sort_keys=True)
        return (self.relevant, wanted, sorted(self.gold_sources), answer, self.answerable)


class RunFile(_Stored):
    """A run as `eval run` writes it."""

    dataset: str
    form: str
    split: str
    tenant: str
    collections: tuple[str, ...]
    filters: str
    answers: bool = False
    judge: bool = False
    at_once: int = 1
    usage: dict[str, float | None] = {}
    degraded: dict[str, int] = {}
    metrics: dict[str, float | None]
    latency_ms: dict[str, float]
    questions: tuple[QuestionRow, ...] = Field(min_length=1)
    documents: int
    chunks: int
    settings: Json
    prompts: dict[str, str]
    versions: dict[str, str]
    started_at: str

    @property
    def verdicts(self) -> dict[str, int]:
        """The number of filters by verdict; {} if no filter is judged."""
        counts = Counter(row.filter_verdict for row in self.questions)
        return {name: counts[name] for name in VERDICTS} if any(counts[name] for name in VERDICTS) else {}

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures that apply to at least one question, in the order of `NAMES`."""
        return tuple(name for name in NAMES if self.metrics.get(name) is not None)


def load_run(path: Path) -> RunFile:
    """Read a run.

    Raises:
        BadRequest: the file cannot be read, is no run, or has another format version.
    """
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRequest(f"{path}: the file cannot be read: {error.strerror}", where="run") from error
    except (ValueError, RecursionError):
        raise BadRequest(
            f"{path}: this is not a run of `signalbox eval run --out`: the file is not JSON", where="run"
        ) from None
    if not isinstance(held, dict) or "questions" not in held or "metrics" not in held:
        raise BadRequest(f"{path}: this is not a run of `signalbox eval run --out`", where="run")
    if held.get("format", 1) != FORMAT:
        raise BadRequest(
            f"{path}: the run has format {str(held.get('format', 1))[:20]}, this version reads {FORMAT}: run it again",
            where="run",
        )
    try:
        return RunFile.model_validate(held)
    except (ValidationError, RecursionError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": "too deeply nested"}
        where = ".".join(map(str, first["loc"]))
        raise BadRequest(f"{path}: the run is damaged: {where}: {first['msg']}", where="run") from None


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return (value before, value after) of each key whose values differ, sorted by key; None for a missing key."""
    keys = sorted({*before, *after})
    return {key: (before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)}


def groups_of(rows: Sequence[QuestionRow]) -> dict[str, dict[str, list[QuestionRow]]]:
    """Return the rows by `class` and by `language`, groups sorted by name; rows without a class are in no class."""
    found: dict[str, dict[str, list[QuestionRow]]] = {"class": {}, "language": {}}
    for row in rows:
        if row.klass is not None:
            found["class"].setdefault(row.klass, []).append(row)
        found["language"].setdefault(row.language, []).append(row)
    return {kind: {name: some[name] for name in sorted(some)} for kind, some in found.items()}


def in_words(wanted: Json | None) -> str:
    """Describe a filter of a run in words; a malformed filter expression is shown as JSON."""
    if wanted is None:
        return "none"
    try:
        return filters.describe_filter(wanted)
    except (KeyError, TypeError, AttributeError, RecursionError):
        return json.dumps(wanted, ensure_ascii=False)[:_LONGEST_FILTER]
