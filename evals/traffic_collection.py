"""Collect candidate questions from traffic: rated answers, opened documents and corrected filters."""

import time
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from agent.service.service import Service
from evals.collection_export import document_values
from evals.corpus import Note
from evals.review import CandidateQuestion, question_id
from evals.traffic import TrafficQuestion, merge_traces, question_and_history, read_trace
from retrievers.core.errors import BadRequest
from retrievers.core.filters import matches_filter, parse_filter
from retrievers.core.types import Scope, Viewer
from retrievers.postgres.catalogue.value_merging import filterable_fields

Json = dict[str, Any]

SINCE = timedelta(hours=1)
"""If a caller repeats a question with another filter within this time, the filter counts as a correction."""

_BATCH = 500
_DETAILED = 50
_LINE_EVERY_S = 5.0
_REMEMBERED = 10_000
_FIRST = uuid.UUID(int=0)

_SCAN = """
    SELECT t.expires_at, t.id, t.created_at, t.asker, t.conversation, t.request, f.trace IS NOT NULL
    FROM signalbox.trace t LEFT JOIN signalbox.feedback f ON (f.tenant, f.trace) = (t.tenant, t.id)
    WHERE t.expires_at > now() AND (t.expires_at, t.id) > (%(after)s, %(id)s)
      AND (%(since)s::timestamptz IS NULL OR t.created_at >= %(since)s)
    ORDER BY t.expires_at, t.id LIMIT %(most)s
"""
_DETAILS = """
    SELECT t.id, t.created_at, t.request, t.record, f.score, f.comment, l.document_ids, l.filter
    FROM signalbox.trace t
    LEFT JOIN signalbox.feedback f ON (f.tenant, f.trace) = (t.tenant, t.id)
    LEFT JOIN signalbox.feedback_label l ON (l.tenant, l.id) = (t.tenant, t.id)
    WHERE t.id = ANY (%(ids)s) AND t.record ->> 'replay_of' IS NULL
    ORDER BY t.created_at, t.id
"""


@dataclass(frozen=True, slots=True)
class CollectedCandidates:
    """The candidates of a collection, with counts.

    Attributes:
        questions: number of traces read.
        unknown: number of documents that are relevant according to feedback but not stored in the collection.
    """

    candidates: list[CandidateQuestion]
    questions: int
    unknown: int


async def collect(
    service: Service, collection: str, note: Note, *, viewer: Viewer, since: datetime | None = None
) -> CollectedCandidates:
    """Return the candidate questions to a collection, oldest first; all traces of one question give one candidate.

    Args:
        since: only questions asked from this time on; None for all that are kept.
    Raises:
        BadRequest: there is no such collection.
        Unavailable: the database cannot be reached.
    """
    scope = await service.catalogue.scope(viewer, collection)
    scan = _Scan(collection)
    await scan.read(service, viewer, since, note)
    found: OrderedDict[str, list[TrafficQuestion]] = OrderedDict()
    for start in range(0, len(scan.wanted), _DETAILED):
        ids = scan.wanted[start : start + _DETAILED]
        for id, at, request, record, *opinion in await service.database.fetch(viewer, _DETAILS, {"ids": ids}):
            seen = read_trace(id.hex, at, request, record, opinion, corrected=id in scan.corrected)
            if collection in seen.collections:
                key = question_id(collection, seen.text, seen.history)
                found.setdefault(key, []).append(seen)
    candidates = [merge_traces(id, collection, seen) for id, seen in found.items()]
    checked, unknown = await _checked(service, scope, candidates)
    return CollectedCandidates(checked, scan.count, unknown)


@dataclass(slots=True)
class _Scan:
    """Finds the traces with feedback or a corrected filter. It reads no decision records, because they are large.

    Attributes:
        wanted: ids of these traces.
        corrected: ids of the traces with a corrected filter.
        count: number of traces read.
    """

    collection: str
    wanted: list[uuid.UUID] = field(default_factory=list)
    corrected: set[uuid.UUID] = field(default_factory=set)
    count: int = 0
    _asked: OrderedDict[tuple[Any, ...], tuple[datetime, Any]] = field(default_factory=OrderedDict)

    async def read(self, service: Service, viewer: Viewer, since: datetime | None, note: Note) -> None:
        values: Json = {"after": datetime.fromisoformat("0001-01-02T00:00+00:00"), "id": _FIRST, "since": since}
        last = time.monotonic()
        while rows := await service.database.fetch(viewer, _SCAN, values | {"most": _BATCH}):
            for _, id, at, asker, conversation, request, is_judged in rows:
                self._see(id, at, (asker, conversation), request, is_judged)
            values |= {"after": rows[-1][0], "id": rows[-1][1]}
            if time.monotonic() - last >= _LINE_EVERY_S:
                last = time.monotonic()
                note(f"{self.count:,} traces read, {len(self.wanted):,} of them with feedback or a correction")

    def _see(self, id: uuid.UUID, at: datetime, who: tuple[Any, ...], request: Json, is_judged: bool) -> None:
        if request.get("collection") not in (None, self.collection):
            return
        self.count += 1
        key = (*who, question_id(self.collection, *question_and_history(request)))
        before, wanted = self._asked.pop(key, None), request.get("filter")
        # The first filter of a question is a choice of the caller; a filter set afterwards corrects the first result.
        is_correction = bool(request.get("ignore")) or (
            wanted is not None and before is not None and at - before[0] <= SINCE and before[1] != wanted
        )
        self._asked[key] = at, wanted
        if len(self._asked) > _REMEMBERED:
            self._asked.popitem(last=False)
        if is_correction:
            self.corrected.add(id)
        if is_correction or is_judged:
            self.wanted.append(id)


async def _checked(
    service: Service, scope: Scope, candidates: Sequence[CandidateQuestion]
) -> tuple[list[CandidateQuestion], int]:
    """Drop documents that are not stored, and add to `check` what a person must correct.

    Returns:
        The candidates, and the number of relevant documents that are not stored.
    """
    named = {id for one in candidates for id in (*one.question.relevant, *(hit["document"] for hit in one.hits))}
    held = await document_values(service, scope, named)
    fields = filterable_fields(scope)
    unknown = {id for one in candidates for id in one.question.relevant if id not in held}

    def fitting(one: CandidateQuestion) -> CandidateQuestion:
        question = one.question
        relevant = {id: grade for id, grade in question.relevant.items() if id in held}
        checks = [one.check] if one.check else []
        try:
            wanted = parse_filter(question.filter, fields) if question.filter is not None else None
        except BadRequest as error:
            checks.append(f"the filter does not fit the collection any more: {error}")
            wanted = None
        outside = [id for id in relevant if wanted is not None and not matches_filter(wanted, held[id])]
        if outside:
            checks.append(f"the filter excludes {', '.join(outside)}: correct `filter` or `relevant`")
        if not relevant and question.answer is None and not one.check:
            checks.append("no relevant document is known: fill in `relevant`")
        hits = [hit for hit in one.hits if hit["document"] in held]
        return replace(one, question=replace(question, relevant=relevant), check="; ".join(checks), hits=hits)

    return [fitting(one) for one in candidates], len(unknown)
