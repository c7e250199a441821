"""Traces: the decision record of each answer as JSON, enough to explain it and to run it again.

A trace holds ids and scores of passages, never their texts, and only those settings that decide what is found: no
address and no key.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Any

from pydantic_core import from_json

from agent.answering import answer as answering
from agent.answering import prompt_builder
from agent.answering.decision_record import DecisionRecord
from agent.records.encoding import Json, encode_json, pack_ranking, unpack_rankings
from agent.retrieval.plan_execution import StepResult
from agent.retrieval.rerank.reordering import RerankRecord
from agent.settings import Settings
from agent.types import Answer, AugmentRequest, Prompt, RankedHit, Request, Result
from prompts import ANSWER
from retrievers import vector
from retrievers.core.credentials import mask_credentials
from retrievers.core.types import ChunkId, Collection, Viewer

MOST_HITS = 100
"""Maximum hits stored per source answer and for the fused ranking."""
_MOST_ROWS = 100
_LONGEST_TITLE = 200

REPLAYABLE = (
    "intent", "transforms", "fusion", "fusion_weights", "lexical_weight", "depth", "per_document", "rank_features",
    "reranker", "rerank_min_score", "rerank_blend", "min_relevance", "context", "prompt_fields", "fallback",
    "timeout_s", "source_timeout_s", "max_rounds", "loop_calls", "loop_tokens", "loop_share", "time_zone", "week_start",
    "fiscal_year_start", "language", "llm", "judge",
)  # fmt: skip
"""Settings that decide what is found and that a replay may change. Only these and the embedder are recorded."""

_QUERY = re.compile(r"\?\S*")


@dataclass(frozen=True, slots=True)
class Trace:
    """One answer with its decision, not yet encoded as a record; that is done in the background.

    Attributes:
        settings: the settings in force.
        embedder: name of the embedder of the question.
        at: when the request arrived.
        clocked: True if the current time of the request was read from the clock; False if the caller gave it.
        replay_of: id of the trace that was replayed; None if this is not a replay.
        changes: settings changed for the replay.
    """

    settings: Settings
    embedder: str
    result: Result
    decision: DecisionRecord
    at: datetime
    clocked: bool = True
    replay_of: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.result.trace_id

    @property
    def tenant(self) -> str:
        return self.decision.tenant

    def is_visible_to(self, viewer: Viewer, narrowed: int) -> bool:
        """Return whether the viewer may see all documents of the trace. Row security has this rule for stored traces.

        Args:
            narrowed: number of the last change that hid a document from some readers; 0 for a viewer that sees all
                documents. A trace older than that change is not shown.
        """
        scope = self.decision.scope
        return viewer.sees_all_of(scope.principals) and scope.changed >= narrowed

    def request(self) -> Json:
        """Return the request with its `kind`, without None, as `agent.records.replay.replay_request` reads it."""
        request = self.decision.request
        # In a replay, every value given here counts as set by the caller. A default `top_k` would then shorten a
        # complete list.
        left_out = {name for name in ("top_k", "metadata", "advisors") if name not in request.model_fields_set}
        return {"kind": request.kind, **request.model_dump(exclude_none=True, exclude=left_out)}

    def record(self) -> Json:
        """Return the record that is stored beside the request, for `encode_json`; its rankings are `pack_ranking`."""
        result, searches = self.result, self.decision.tool_searches
        decision = self.decision if searches is None else searches.complete_record(self.decision)
        names = _Names()
        readings = [decision.first_intent, *([decision.model_intent] if decision.model_intent is not None else [])]
        return {
            "at": self.at,
            "clocked": self.clocked,
            "replay_of": self.replay_of,
            "changes": dict(self.changes),
            "settings": replayable_settings(self.settings),
            "versions": {"signalbox": _version(), "embedder": self.embedder},
            "scope": [_collection(one) for one in decision.scope.all_collections],
            "principals": decision.scope.principals,
            "query": result.query,
            "intent": result.intent.model_dump(),
            "readings": [reading.model_dump() for reading in readings],
            "stated": [
                {"filter": one.filter, "confidence": one.confidence, "firm": one.firm, "why": one.why}
                for one in decision.stated
            ],
            "plan": [step.model_dump() for step in result.plan],
            "outcomes": [outcome.model_dump() for outcome in result.outcomes],
            "answers": [_step_result(answer, names) for answer in decision.step_results],
            "rounds": [one.to_json() for one in decision.rounds],
            "lookups": [one.to_json() for one in searches.records] if searches is not None else [],
            "lexical_weights": dict(decision.lexical_weights),
            "ranked": len(decision.ranking),
            "reranking": _reranking(decision.reranking),
            # Fused scores; the scores of each source are in "answers".
            "ranking": pack_ranking([(names[one.id], one.fused_score) for one in decision.ranking[:MOST_HITS]]),
            "hits": [_hit(hit) for hit in result.hits],
            "table": _table(result),
            "relaxed": [one.model_dump() for one in result.relaxed],
            "degraded": list(result.degraded),
            "status": result.status,
            "total": result.total,
            "complete": result.complete,
            "took_ms": result.took_ms,
            "elapsed_ms": dict(decision.elapsed_ms),
            "calls": decision.calls.to_json(),
            "prompt": _prompt(result, decision.request),
            "answer": _answer(result),
            "prompts": self._digests(),
        }

    def json(self) -> Json:
        """Return trace id, request and record in one object, as `TraceStore.load` returns them, but without times."""
        request, record = from_json(encode_json(self.request())), from_json(encode_json(self.record()))
        return {"trace_id": self.id, "request": request, **unpack_rankings(record)}

    def _digests(self) -> dict[str, str]:
        """Return the digests of the prompt templates used, by template name."""
        # A stage is named like its template, except the answer: the request names its template, which is added below.
        used = [call.stage for call in self.decision.calls.records if call.stage != answering.STAGE]
        request = self.decision.request
        if self.decision.tool_searches is not None:
            used += [prompt_builder.TOOL_SYSTEM_TEMPLATE, prompt_builder.TOOL_TEMPLATE]
        elif isinstance(self.result, Prompt) and isinstance(request, AugmentRequest):
            looked = self.result.status != "no_retrieval_needed"
            empty = prompt_builder.EMPTY_TEMPLATE if looked else prompt_builder.DIRECT_TEMPLATE
            used += [prompt_builder.SYSTEM_TEMPLATE, (request.template or ANSWER) if self.result.citations else empty]
        templates = self.decision.templates
        stages = {name.rpartition("/")[0] for name in templates.names()} if used else set()
        loaded = [templates.load(one) for one in dict.fromkeys(used) if one in stages or "/" in one]
        return {one.name: one.digest for one in loaded}


def _is_approximate(answer: StepResult) -> bool:
    """Return whether the same search may find other hits later although no document has changed.

    True for vector searches that may use an index, which is approximate.
    """
    source, query = answer.step.source, answer.query
    return source == vector.CARD.name and query is not None and vector.may_use_index(query)


class _Names(dict[ChunkId, str]):
    """Caches ids as text, since most passages occur in several rankings of a record."""

    def __missing__(self, id: ChunkId) -> str:
        name = self[id] = str(id)
        return name


def replayable_settings(settings: Settings) -> Json:
    """Return the settings in `REPLAYABLE` and the embedder, without credentials and without the queries of URLs."""
    names = ("embedder", *REPLAYABLE)
    values = ((name, getattr(settings, name)) for name in names)
    return {
        name: _QUERY.sub("", mask_credentials(value)) if isinstance(value, str) else value for name, value in values
    }


def _collection(collection: Collection) -> Json:
    version = collection.version + sum(version for _, version in collection.parts)
    return {
        "tenant": collection.tenant,
        "name": collection.name,
        "version": version,
        "chunks": collection.chunks,
    }


def _step_result(answer: StepResult, names: _Names) -> Json:
    return {
        "count": len(answer.hits),
        "approximate": _is_approximate(answer),
        "hits": pack_ranking([(names[hit.id], hit.score) for hit in answer.hits[:MOST_HITS]]),
    }


def _hit(hit: RankedHit) -> Json:
    return {
        "rank": hit.rank,
        "id": hit.id,
        "document_id": hit.document_id,
        "title": hit.title[:_LONGEST_TITLE],
        "url": hit.url,
        "score": hit.score,
        "scores": dict(hit.scores),
        "ranks": hit.ranks,
        "relevance": hit.relevance,
    }


def _table(result: Result) -> Json | None:
    if result.table is None:
        return None
    rows = [list(row) for row in islice(result.table.rows, _MOST_ROWS)]
    return {"columns": result.table.columns, "rows": rows, "count": len(result.table.rows), "sql": result.table.sql}


def _reranking(done: RerankRecord | None) -> Json | None:
    if done is None:
        return None
    names = ("by", "question", "comparable", "error", "minimum", "left_out")
    return {name: getattr(done, name) for name in names} | {
        "scores": [[str(id), score] for id, score in done.scores.items()]
    }


def _prompt(result: Result, request: Request) -> Json | None:
    """Return the citations of the prompt, and a digest to compare prompts by; None if there is no prompt."""
    if not isinstance(result, Prompt) or not isinstance(request, AugmentRequest):
        return None
    text = "\n".join(f"{turn.role}\n{turn.content}" for turn in result.messages)
    return {
        "template": request.template,
        "digest": hashlib.sha256(text.encode(errors="replace")).hexdigest(),
        "tokens": result.tokens,
        "citations": [
            {**citation.model_dump(), "title": citation.title[:_LONGEST_TITLE]} for citation in result.citations
        ],
    }


def _answer(result: Result) -> Json | None:
    """Return the model's answer and its check; None if no answer was asked for.

    The text is None if no model wrote it: passages that are shown in place of an answer are not stored.
    """
    if not isinstance(result, Answer):
        return None
    kept = result.model_dump(include={"answered", "faithfulness", "checked_by", "model", "usage"})
    sentences = [one.model_dump(exclude={"text"}) for one in result.sentences]
    return {**kept, "text": result.answer if result.model else None, "sentences": sentences}


@cache
def _version() -> str:
    try:
        return version("signalbox-retrieval")
    except PackageNotFoundError:  # run from a checkout
        return "unknown"
