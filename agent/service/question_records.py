"""Records of a tenant's questions: traces, questions, feedback and their erasure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from agent.chat import erasure
from agent.chat.erasure import ErasureCounts
from agent.chat.exchanges import Exchange, ExchangeStore
from agent.pipeline import Pipeline
from agent.records.trace_store import TraceStore
from agent.retrieval.scope_resolver import ScopeResolver
from agent.service.documents import DocumentService
from agent.service.time_limit import with_time_limit
from agent.types import Request
from retrievers.core.errors import BadRequest, UnknownCollection, join_names
from retrievers.core.filters import filter_to_json
from retrievers.core.types import ChunkId, Viewer, unrestricted_viewer
from retrievers.ingest.readers.record import MAX_ID_CHARACTERS
from retrievers.ingest.readers.text_cleaning import printable
from retrievers.postgres.accounts import feedback
from retrievers.postgres.accounts.feedback import Opinion
from retrievers.postgres.documents.stored import existing_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRecordService(DocumentService):
    """Shows and erases the records of questions, and stores feedback; arguments as for `DocumentService`.

    Attributes:
        records: questions with their answers; None if CHAT_DAYS is 0.
    """

    pipeline: Pipeline
    traces: TraceStore
    records: ExchangeStore | None = None

    @with_time_limit
    async def recorded_questions(
        self,
        *,
        tenant: str | Viewer | None = None,
        conversation: str | None = None,
        user: str | None = None,
        limit: int = 50,
    ) -> list[Exchange]:
        """Return recorded questions, newest first, with answers and feedback; empty if CHAT_DAYS is 0."""
        if self.records is None:
            return []
        return await self.records.recent(self.viewer(tenant), conversation=conversation, asker=user, limit=limit)

    @with_time_limit
    async def erase(
        self, *, user: str | None = None, conversation: str | None = None, tenant: str | Viewer | None = None
    ) -> ErasureCounts:
        """Erase the questions of one user or of one conversation, with everything derived from them.

        A question that is being answered during the call is not stored either. Repeating the call is harmless.

        Args:
            tenant: a name erases questions whatever principals they were asked with; a `Viewer`, only questions that
                it may erase, see `Viewer.may_erase`.
        Returns:
            The number of erased items of each kind.
        Raises:
            BadRequest: not exactly one of user and conversation is given.
            Unavailable: the database cannot be reached.
        """
        if (user is None) == (conversation is None):
            raise BadRequest("give either `user` or `conversation`: the questions to erase", where="user")
        who = tenant if isinstance(tenant, Viewer) else unrestricted_viewer(self.viewer(tenant).tenant)
        subject = {"user": user, "conversation": conversation}
        await erasure.record_erasure(self.database, who, **subject)
        self.traces.forget(who, **subject)
        if self.records is not None:
            await self.records.wait_until_idle()
        return await erasure.erase(self.database, who, **subject)

    @with_time_limit
    async def explain(self, trace_id: str, *, tenant: str | Viewer | None = None) -> dict[str, Any]:
        """Return the trace of an answer: `agent.records.trace.Trace.record`, with `trace_id` and `request`.

        Raises:
            NotFound: the tenant has no such trace, or it has expired.
            Unavailable: the database cannot be reached.
        """
        return await self.traces.load(self.viewer(tenant), trace_id)

    @with_time_limit
    async def recent_traces(self, limit: int = 50, *, tenant: str | Viewer | None = None) -> list[dict[str, Any]]:
        """Return summaries of the latest traces, newest first, see `agent.records.trace_store.TraceStore.recent`."""
        return await self.traces.recent(self.viewer(tenant), limit)

    @with_time_limit
    async def feedback(
        self,
        trace_id: str,
        score: int | None = None,
        comment: str | None = None,
        *,
        document_ids: Sequence[str] = (),
        filter: Mapping[str, Any] | None = None,
        tenant: str | Viewer | None = None,
    ) -> None:
        """Store feedback on an answer.

        The rank feature `feedback` learns from the scores. `signalbox eval collect` makes labelled questions from
        scores, documents and filters.

        Args:
            score: 0 (useless) to 10 (just right). A new score for the same answer replaces the old one.
            document_ids: documents that the user opened or found right; added to those given earlier.
            filter: the filter that would have been right for the question; {} if no filter would. A new filter
                replaces the old one.
        Raises:
            BadRequest: a value is not valid, or score, documents and filter are all missing. Or a document is neither
                in the answer nor visible to the viewer in the collections that were searched. Nothing is stored then.
            NotFound: the tenant has no such trace, or the viewer may not see it.
            Unavailable: the database cannot be reached.
        """
        viewer = self.viewer(tenant)
        opinion = _parse_feedback(score, comment, document_ids, filter)
        # Load the trace with all rights: nothing of it is returned, and a viewer who may not read all its documents any
        # more may still rate the answer.
        trace = await self.traces.load(unrestricted_viewer(viewer.tenant), trace_id)
        if not viewer.sees_all_of(trace.get("principals", ())):
            raise self.traces.not_found_error(trace_id)
        if opinion.filter:
            recorded_questions = Request(collection=trace["request"].get("collection"), filter=dict(opinion.filter))
            visibility = ScopeResolver(self.catalogue, self.pipeline.sources)
            _, wanted = await visibility.resolve_scope_and_filter(viewer, recorded_questions)
            opinion = replace(opinion, filter=filter_to_json(wanted) if wanted is not None else {})
        await self._check_documents(viewer, trace, opinion.document_ids)
        await feedback.store_opinion(
            self.database,
            viewer.tenant,
            trace["trace_id"],
            opinion,
            await self._documents_of(viewer.tenant, trace) if score is not None else [],
            expires_at=datetime.fromisoformat(trace["expires_at"]),
            asker=trace["request"].get("user"),
            conversation=trace["request"].get("conversation"),
        )

    async def _check_documents(self, viewer: Viewer, trace: Mapping[str, Any], ids: Sequence[str]) -> None:
        """Check that each document is in the answer, or is visible to the viewer in the collections that were searched.

        Raises:
            BadRequest: some are neither; the message names them.
        """
        shown = [*trace["hits"], *((trace["prompt"] or {}).get("citations", ()))]
        missing = set(ids).difference(one["document_id"] for one in shown)
        if missing:
            try:
                scope = await self.catalogue.scope(viewer, trace["request"].get("collection"), fresh=True)
            except UnknownCollection:
                pass  # the collection has been deleted, or all hits come from external sources
            else:
                missing -= await existing_ids(self.database.reads, scope, missing)
        if missing:
            first = next(place for place, id in enumerate(ids) if id in missing)
            raise BadRequest(
                f"there is no document {join_names(missing)}: give the `document_id` of a hit or of a citation",
                where=f"document_ids.{first}",
            )

    async def _documents_of(self, tenant: str, trace: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Return (collection number, document id) of each stored hit of an answer, best first.

        Hits from external sources are left out.
        """
        try:
            scope = await self.catalogue.scope(unrestricted_viewer(tenant), None, fresh=True)
        except UnknownCollection:
            return []  # all hits come from external sources
        collections = {str(ChunkId(one.tenant, one.name, "", 0))[:-3]: one for one in scope.collections}
        documents = []
        for hit in trace["hits"]:
            # "policies/leave.pdf#3" -> "policies". For an external source this is not the name of a collection.
            name = hit["id"][: hit["id"].rindex("#") - len(hit["document_id"]) - 1]
            if name in collections:
                documents.append((collections[name].number, hit["document_id"]))
        return documents


def _parse_feedback(
    score: int | None, comment: str | None, document_ids: Sequence[str], filter: Mapping[str, Any] | None
) -> Opinion:
    """Return the feedback as an `Opinion`. Its filter is not yet checked against the fields of the collection.

    Raises:
        BadRequest: a value is not valid, or score, documents and filter are all missing.
    """
    if score is not None and (isinstance(score, bool) or not isinstance(score, int) or not 0 <= score <= 10):
        raise BadRequest("a score is a whole number from 0 to 10", where="score")
    if isinstance(document_ids, str) or len(document_ids) > feedback.MOST_DOCUMENTS:
        raise BadRequest(f"document_ids is a list of at most {feedback.MOST_DOCUMENTS} ids", where="document_ids")
    if not all(isinstance(id, str) and 0 < len(id) <= MAX_ID_CHARACTERS for id in document_ids):
        raise BadRequest(f"an id in document_ids is text of 1 to {MAX_ID_CHARACTERS} characters", where="document_ids")
    if filter is not None and not isinstance(filter, Mapping):
        raise BadRequest("filter must be a filter expression, or {} if no filter is right", where="filter")
    if score is None and not document_ids and filter is None:
        raise BadRequest("give a score, document_ids or a filter", where="score")
    return Opinion(score, comment, tuple(map(printable, document_ids)), filter)
