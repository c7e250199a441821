"""Records of a tenant's questions: traces, questions, feedback and their erasure."""

from dataclasses import dataclass
from typing import Any

from agent.chat import erasure
from agent.chat.erasure import Erased
from agent.chat.exchanges import Exchange, ExchangeStore
from agent.records.trace_store import TraceStore
from agent.service.documents import DocumentService
from agent.service.time_limit import in_time
from retrievers.core.errors import BadRequest
from retrievers.core.types import ChunkId, Viewer, whole
from retrievers.postgres import feedback


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordService(DocumentService):
    """Shows and erases what is recorded of questions; arguments as for `DocumentService`.

    Attributes:
        records: None if CHAT_DAYS is 0.
    """

    traces: TraceStore
    records: ExchangeStore | None = None

    @in_time
    async def asked(
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
        return await self.records.newest(self.viewer(tenant), conversation=conversation, asker=user, limit=limit)

    @in_time
    async def erase(
        self, *, user: str | None = None, conversation: str | None = None, tenant: str | Viewer | None = None
    ) -> Erased:
        """Erase what one user asked, or what was asked in one conversation, with everything derived from it.

        Questions that are being answered meanwhile are not stored either. Repeating the call is harmless.

        Args:
            tenant: a name erases what anybody asked of the tenant; a `Viewer`, only what was asked with its principals.
        Returns:
            The numbers of erased items.
        Raises:
            BadRequest: not exactly one of user and conversation is given.
            Unavailable: the database cannot be reached.
        """
        if (user is None) == (conversation is None):
            raise BadRequest("give either `user` or `conversation`: the questions to erase", where="user")
        who = tenant if isinstance(tenant, Viewer) else whole(self.viewer(tenant).tenant)
        subject = {"user": user, "conversation": conversation}
        await erasure.note(self.database, who, **subject)
        self.traces.forget(who, **subject)
        if self.records is not None:
            await self.records.settled()
        return await erasure.erase(self.database, who, **subject)

    @in_time
    async def explain(self, trace_id: str, *, tenant: str | Viewer | None = None) -> dict[str, Any]:
        """Return the trace of an answer: `agent.records.trace.Trace.record`, with `trace_id` and `request`.

        Raises:
            NotFound: the tenant has no such trace, or it has expired.
            Unavailable: the database cannot be reached.
        """
        return await self.traces.load(self.viewer(tenant), trace_id)

    @in_time
    async def recent_traces(self, limit: int = 50, *, tenant: str | Viewer | None = None) -> list[dict[str, Any]]:
        """Return summaries of the latest traces, newest first, see `agent.records.trace_store.TraceStore.recent`."""
        return await self.traces.recent(self.viewer(tenant), limit)

    @in_time
    async def feedback(
        self, trace_id: str, score: int, comment: str | None = None, *, tenant: str | Viewer | None = None
    ) -> None:
        """Store feedback on an answer; the rank feature `feedback` learns from it.

        Args:
            score: 0 (useless) to 10 (just right). New feedback on the same answer replaces the old.
        Raises:
            BadRequest: the tenant has no such trace, or the score is not valid.
            Unavailable: the database cannot be reached.
        """
        viewer = self.viewer(tenant)
        who = viewer.tenant
        if isinstance(score, bool) or not isinstance(score, int) or not 0 <= score <= 10:
            raise BadRequest("a score is a whole number from 0 to 10", where="score")
        # Load it without the viewer's restrictions: nothing of it is returned, and feedback on hidden answers is
        # welcome.
        trace = await self.traces.load(whole(who), trace_id)
        if not viewer.sees_all_of(trace.get("principals", ())):
            raise self.traces.unknown(trace_id)
        scope = await self.catalogue.scope(whole(who), None, fresh=True)
        collections = {str(ChunkId(one.tenant, one.name, "", 0))[:-3]: one for one in scope.collections}
        documents = []
        for hit in trace["hits"]:
            # The part of the hit's id before the document's id; for a source outside it is not the name of a
            # collection.
            name = hit["id"][: hit["id"].rindex("#") - len(hit["document_id"]) - 1]
            if name in collections:
                documents.append((collections[name].number, hit["document_id"]))
        asked_by = {"asker": trace["request"].get("user"), "conversation": trace["request"].get("conversation")}
        await feedback.record(self.database, who, trace["trace_id"], score, comment, documents, **asked_by)
