"""The row of one question in a run: the labels of the dataset and the answer of the service."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from agent.types import Answer, RankedHit, Result
from evals import metrics
from evals.answer_scores import cited_documents
from evals.datasets import LabelledQuestion

Json = dict[str, Any]
Filters = Literal["none", "gold"]
_SHOWN_HITS = 5
_TITLE_CHARACTERS = 160
_PASSAGES_WITH_ANSWER = 10


def label_columns(question: LabelledQuestion, filters: Filters) -> Json:
    """Return the dataset's labels of a question."""
    return {
        "id": question.id,
        "text": question.text,
        "class": question.klass,
        "language": question.language,
        "collection": question.collection,
        "history": [dict(turn) for turn in question.history],
        "now": question.now,
        "filter": question.filter if filters == "gold" else None,
        "gold_filter": question.filter,
        "other_filters": list(question.other_filters),
        "gold_sources": list(question.sources),
        "relevant": dict(question.relevant),
        "answer": question.answer,
        "answerable": question.answerable,
    }


def answer_columns(result: Result) -> Json:
    """Return the service's answer to a question."""
    text = text_columns(result) if isinstance(result, Answer) else {}
    return text | {
        "intent_by": result.intent.by,
        "intent_filter": result.intent.filter,
        "soft_filter": result.intent.soft_filter,
        "rejected": [one.what for one in result.intent.rejected],
        "relaxed": [one.dropped for one in result.relaxed],
        "sources": _chosen(result),
        "documents": metrics.documents_of(hit.document_id for hit in result.hits),
        "hits": _shown(result.hits),
        "table": [list(row) for row in result.table.rows] if result.table else None,
        "status": result.status,
        "degraded": list(result.degraded),
        "trace_id": result.trace_id,
        "stages": {},
        "elapsed_ms": {},
        "stated": [],
    }


def text_columns(answer: Answer) -> Json:
    """Return the text of an answer, what it cites, and the tokens of all model calls of its request."""
    return {
        "text_answer": answer.answer,
        "model": answer.model,
        "cited": cited_documents(answer),
        "unsupported": [one.text for one in answer.sentences if one.supported is False],
        **answer.usage.model_dump(),
    }


def error_columns(error: Exception, latency_ms: float) -> Json:
    """Return the columns of an answer for a question that failed."""
    nothing: Json = {name: [] for name in ("rejected", "relaxed", "sources", "documents", "hits", "degraded", "stated")}
    nothing |= dict.fromkeys(("intent_by", "intent_filter", "soft_filter", "table", "trace_id"))
    return {
        **nothing,
        "status": "error",
        "error": str(error),
        "latency_ms": round(latency_ms, 3),
        "stages": {},
        "elapsed_ms": {},
    }


def _shown(hits: Sequence[RankedHit]) -> list[Json]:
    """Return the first distinct documents with title and relevance."""
    first: dict[str, RankedHit] = {}
    for hit in hits:
        first.setdefault(hit.document_id, hit)
        if len(first) == _SHOWN_HITS:
            break
    return [
        {"document": id, "title": hit.title[:_TITLE_CHARACTERS], "relevance": hit.relevance}
        for id, hit in first.items()
    ]


def passage_texts(result: Result | None) -> list[str]:
    """Return the passages that may contain the expected answer; [] for a question that failed."""
    return [hit.text for hit in result.hits[:_PASSAGES_WITH_ANSWER]] if result is not None else []


def usage_of(rows: Iterable[Json]) -> Json:
    """Return the tokens and the cost in US dollars of all answers, and those of their grading; None if unknown."""
    rows = list(rows)
    grades = [row["grade"] for row in rows if row["grade"] is not None]
    figures = ("prompt_tokens", "completion_tokens", "cost")
    return {name: _sum(row.get(name) for row in rows) for name in figures} | {
        f"judge_{name}": _sum(one[name] for one in grades) for name in figures
    }


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _chosen(result: Result) -> list[str]:
    """Return the sources that the service chose; ["none"] if it decided to retrieve nothing."""
    if result.intent.kind == "none" or result.status == "no_retrieval_needed":
        return ["none"]
    named = [choice.name for choice in result.intent.sources]
    return named or list(dict.fromkeys(step.source for step in result.plan if step.step == 1))
