"""Turn the traces of one question, with their feedback, into a candidate with proposed labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evals.datasets import LabelledQuestion
from evals.review import CandidateQuestion
from retrievers.text.languages import detect_language

Json = dict[str, Any]

GOOD, BAD = 7, 3
"""An answer with at least the score `GOOD` counts as right, with at most `BAD` as wrong."""

_SHOWN_HITS = 5
_SHOWN_TRACES = 10
_MOST_ANSWER_ROWS = 20


@dataclass(frozen=True, slots=True)
class TrafficQuestion:
    """One trace with its feedback.

    Attributes:
        day: the day as of which the question was asked, ISO 8601.
        filter: the correct filter that the feedback states, else the filter that was used.
        collections: the one that was searched; empty if it is not certain which.
        opened: documents that the user opened or found right.
        cited: documents that the answer cites, or that of the first hit if it cites none.
        value: the calculated answer; None if nothing was calculated.
        corrected: whether the user changed or stated the filter.
    """

    trace_id: str
    at: datetime
    day: str
    text: str
    history: tuple[Mapping[str, str], ...]
    filter: Mapping[str, Any] | None
    collections: frozenset[str]
    hits: tuple[Json, ...]
    cited: tuple[str, ...]
    value: Any
    corrected: bool
    score: int | None
    comment: str | None
    opened: tuple[str, ...]

    @property
    def relevant(self) -> tuple[str, ...]:
        """The documents that are relevant according to the feedback."""
        if self.opened or self.score is None or self.score < GOOD:
            return self.opened
        return () if self.value is not None else self.cited

    @property
    def weight(self) -> tuple[bool, bool, datetime]:
        """The sort key of a question's traces: first a corrected filter, then a good rating, then the time."""
        is_good = bool(self.opened) or (self.score is not None and self.score >= GOOD)
        return self.corrected, is_good, self.at


def question_and_history(request: Mapping[str, Any]) -> tuple[str, tuple[Mapping[str, str], ...]]:
    """Return the question of a stored request and the turns before it; "" and all turns if the user has none."""
    turns = [{"role": turn["role"], "content": turn["content"]} for turn in request.get("messages") or ()]
    if request.get("query") is not None:
        return request["query"], tuple(turns)
    last = max((place for place, turn in enumerate(turns) if turn["role"] == "user"), default=None)
    return ("", tuple(turns)) if last is None else (turns[last]["content"], tuple(turns[:last]))


def read_trace(
    trace_id: str, at: datetime, request: Json, record: Json, opinion: Sequence[Any], *, corrected: bool
) -> TrafficQuestion:
    """Read a stored trace.

    Args:
        opinion: score, comment, document ids and filter of the feedback; None for each that was not given.
        corrected: whether the caller corrected the filter of an earlier result with this request.
    """
    score, comment, opened, right = opinion
    text, history = question_and_history(request)
    used = record["intent"].get("filter") if right is None else (right or None)
    return TrafficQuestion(
        trace_id=trace_id,
        at=at,
        day=str(request.get("now") or at.isoformat())[:10],
        text=text,
        history=history,
        filter=used,
        collections=_searched(request, record),
        hits=tuple(_shown(record["hits"])),
        cited=_cited(record),
        value=table_value(record.get("table")),
        corrected=corrected or right is not None,
        score=score,
        comment=comment,
        opened=tuple(opened or ()),
    )


def merge_traces(id: str, collection: str, seen: Sequence[TrafficQuestion]) -> CandidateQuestion:
    """Return one candidate for all traces of a question. The surest trace gives its filter and day.

    Its relevant documents are those of all traces that were asked with the same filter or on the same day.
    """
    first = max(seen, key=lambda one: one.weight)
    alike = [one for one in seen if one.filter == first.filter or one.day == first.day]
    relevant = dict.fromkeys((document for one in alike for document in one.relevant), 1)
    is_right = any(one.score is not None and one.score >= GOOD and one.value == first.value for one in alike)
    bad = [one.score for one in seen if one.score is not None and one.score <= BAD]
    check = f"rated {min(bad)} of 10: correct `relevant` and `filter`" if bad else ""
    hits = {hit["document"]: hit for one in (first, *alike) for hit in one.hits}
    question = LabelledQuestion(
        id=id,
        text=first.text,
        language=detect_language(first.text),
        history=first.history,
        filter=first.filter,
        relevant=relevant,
        answer=first.value if is_right else None,
        klass=_class(seen),
        now=first.day,
        collection=collection,
    )
    return CandidateQuestion(
        question, check=check, hits=list(hits.values()), origin=[_origin(one) for one in seen[-_SHOWN_TRACES:]]
    )


def table_value(table: Mapping[str, Any] | None) -> Any:
    """Return a calculated table as an answer label: one value, a list, or an object of two columns.

    None without a table, and for a table that is none of these.
    """
    rows = (table or {}).get("rows") or []
    if table is None or not rows or len(rows) > _MOST_ANSWER_ROWS or table.get("count") != len(rows):
        return None
    if len(rows) == 1:
        return rows[0][0] if len(rows[0]) == 1 else rows[0]
    if len(rows[0]) == 1:
        return [row[0] for row in rows]
    return {str(row[0]): row[1] for row in rows} if len(rows[0]) == 2 else None


def _class(seen: Sequence[TrafficQuestion]) -> str:
    if any(one.corrected for one in seen):
        return "corrected"
    return "opened" if any(one.opened for one in seen) else "rated"


def _origin(seen: TrafficQuestion) -> Json:
    said = {"score": seen.score, "comment": seen.comment}
    given = {name: value for name, value in said.items() if value is not None}
    return {"trace": seen.trace_id, "at": seen.at.isoformat(timespec="seconds"), **given}


def _searched(request: Mapping[str, Any], record: Mapping[str, Any]) -> frozenset[str]:
    if request.get("collection"):
        return frozenset((request["collection"],))
    chosen = record["intent"].get("collections") or [one["name"] for one in record["scope"]]
    return frozenset(chosen) if len(set(chosen)) == 1 else frozenset()


def _shown(hits: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Return the first distinct documents of the hits, each {"document", "title"}."""
    first: dict[str, Json] = {}
    for hit in hits:
        first.setdefault(hit["document_id"], {"document": hit["document_id"], "title": hit["title"]})
    return list(first.values())[:_SHOWN_HITS]


def _cited(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the documents that the sentences of the answer cite, else the first hit's."""
    citations = (record.get("prompt") or {}).get("citations") or []
    numbers = {n for sentence in (record.get("answer") or {}).get("sentences") or () for n in sentence["citations"]}
    chosen = [one["document_id"] for one in citations if one["n"] in numbers]
    first = [hit["document_id"] for hit in record["hits"][:1]]
    return tuple(dict.fromkeys(chosen or first))
