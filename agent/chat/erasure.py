"""Erasure: delete what one user asked, or what was asked in one conversation, with everything derived from it.

This covers records of questions and answers, turns and summaries of conversations, traces, and feedback. Ingestion jobs
hold documents, never questions.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from retrievers.core.types import Viewer, unrestricted_viewer
from retrievers.postgres.connections.database import Database

# Committed first, in its own transaction: any process that writes a record from then on sees it and skips erased
# questions.
_NOTE = """
    INSERT INTO signalbox.erasure (tenant, subject, principals, at)
    VALUES (%(tenant)s, signalbox.erasure_subject(%(kind)s, %(name)s), %(own)s, %(at)s) RETURNING id
"""
_EXPIRE = "DELETE FROM signalbox.erasure WHERE expires_at <= now()"
# The ids of traces come from three tables, since an answer of the user may have been replayed, and feedback, which is
# deleted by these ids, may outlive its trace.
_TRACES = """
    SELECT id FROM signalbox.trace
    WHERE (asker = %(user)s OR conversation = %(conversation)s) AND signalbox.erases(%(own)s, principals)
    UNION
    SELECT trace FROM signalbox.exchange
    WHERE (asker = %(user)s OR conversation = %(conversation)s) AND signalbox.erases(%(own)s, principals)
      AND trace IS NOT NULL
    UNION
    SELECT trace FROM signalbox.feedback
    WHERE (asker = %(user)s OR conversation = %(conversation)s) AND signalbox.erases(%(own)s, '{*}')
"""
_FEEDBACK = "DELETE FROM signalbox.feedback WHERE trace = ANY (%(traces)s)"
_TRACE = "DELETE FROM signalbox.trace WHERE id = ANY (%(traces)s)"
# The trace of a question contains the earlier turns, so other users' later traces may repeat what this user said.
_QUOTING = """
    WITH taken_part (conversation, since) AS (
        SELECT conversation, min(created_at) FROM (
            SELECT conversation, created_at FROM signalbox.exchange WHERE asker = %(user)s
            UNION ALL SELECT conversation, created_at FROM signalbox.trace WHERE asker = %(user)s
            UNION ALL
            SELECT split_part(conversation, E'\n', 1), created_at FROM signalbox.message WHERE asker = %(user)s
        ) said WHERE conversation IS NOT NULL GROUP BY conversation)
    DELETE FROM signalbox.trace t USING taken_part p
    WHERE t.conversation = p.conversation AND t.created_at >= p.since AND signalbox.erases(%(own)s, t.principals)
"""
_RECORDS = """
    DELETE FROM signalbox.exchange
    WHERE (asker = %(user)s OR conversation = %(conversation)s) AND signalbox.erases(%(own)s, principals)
"""
# A stored id is the conversation's id followed by its principals. Lock the row first, as writers of turns do.
_CONVERSATIONS = """
    SELECT id FROM signalbox.conversation c
    WHERE signalbox.erases(%(own)s, principals)
      AND (split_part(id, E'\n', 1) = %(conversation)s OR id IN (
          SELECT m.conversation FROM signalbox.message m WHERE m.tenant = c.tenant AND m.asker = %(user)s))
    ORDER BY id FOR UPDATE
"""
_TURNS = """
    DELETE FROM signalbox.message
    WHERE conversation = ANY (%(conversations)s) AND (asker = %(user)s OR %(user)s::text IS NULL)
"""
# The summary covers erased turns, so it is dropped; the remaining turns are summarised again.
_SUMMARIES = """
    UPDATE signalbox.conversation SET summary = NULL, summarised = 0, erased = erased + 1
    WHERE id = ANY (%(conversations)s)
"""
_EMPTY = """
    DELETE FROM signalbox.conversation c
    WHERE id = ANY (%(conversations)s)
      AND NOT EXISTS (SELECT FROM signalbox.message m WHERE m.tenant = c.tenant AND m.conversation = c.id)
"""


@dataclass(frozen=True, slots=True)
class ErasureCounts:
    """Numbers of erased items; all 0 if there was nothing to erase.

    Attributes:
        traces: including other users' traces of the same conversation that repeat this user's turns.
        conversations: only those that have no turn left.
        feedback: feedback on the answers.
    """

    records: int
    traces: int
    turns: int
    conversations: int
    feedback: int


async def record_erasure(database: Database, viewer: Viewer, *, user: str | None, conversation: str | None) -> None:
    """Store a note of the erasure, so that questions that arrived before it and are still running are not stored later.

    The note outlasts any request.

    Raises:
        Unavailable: the database cannot be reached.
    """
    kind, name = ("user", user) if user is not None else ("conversation", conversation)
    values = {"tenant": viewer.tenant, "kind": kind, "name": name, "own": list(viewer.principals)}
    await database.fetch(unrestricted_viewer(viewer.tenant), _NOTE, values | {"at": datetime.now(UTC)})


async def erase(database: Database, viewer: Viewer, *, user: str | None, conversation: str | None) -> ErasureCounts:
    """Erase what one user asked, or what was asked in one conversation; the other argument is None.

    Args:
        viewer: only questions whose principals the viewer has too are erased, see `erases` in the schema. Records that
            the viewer can no longer see, because a document's readers changed, are erased too.
    Raises:
        Unavailable: the database cannot be reached; nothing is erased.
    """
    values: dict[str, object] = {"user": user, "conversation": conversation, "own": list(viewer.principals)}
    async with database.transaction(unrestricted_viewer(viewer.tenant)) as connection:

        async def ids(statement: str) -> list[object]:
            return [row[0] for row in await (await connection.execute(statement, values)).fetchall()]

        async def count(statement: str) -> int:
            return (await connection.execute(statement, values)).rowcount

        await count(_EXPIRE)
        values["conversations"] = await ids(_CONVERSATIONS)
        values["traces"] = await ids(_TRACES)
        quoting = await count(_QUOTING) if user is not None else 0
        turns = await count(_TURNS)
        await count(_SUMMARIES)
        return ErasureCounts(
            records=await count(_RECORDS),
            traces=quoting + await count(_TRACE),
            turns=turns,
            conversations=await count(_EMPTY),
            feedback=await count(_FEEDBACK),
        )
