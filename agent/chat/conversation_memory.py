"""Conversation memory in PostgreSQL: the newest turns, and a summary of the turns before them.

Summaries are made in the background after an answer and used for later turns; no answer waits for a summary.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from types import TracebackType
from typing import Literal, Self

import prompts
from agent.answering.answer import MOST_HISTORY_TOKENS
from agent.answering.sentences import without_citations
from agent.llm.model import Model, ModelFailed
from agent.llm.reply_json import strip_reasoning
from agent.llm.token_estimates import estimate_tokens
from agent.records.encoding import storable_value
from agent.types import Message
from retrievers.core.circuit_breakers import CircuitBreaker
from retrievers.core.errors import Unavailable
from retrievers.core.log_filter import RepetitionFilter
from retrievers.core.types import Viewer
from retrievers.postgres.connections.database import Database

WINDOW = 20
"""Maximum number of newest messages returned verbatim. Once more than these are not in a summary, one is made."""
KEPT = 10
"""Number of newest messages that a summary leaves out."""
STAGE = "summary"
_MOST_SUMMARISED = 40
"""Maximum number of messages per summary; the next summary continues after them."""
_LONGEST_TURN = 2000
_LONGEST_SUMMARY = 2000
_SUMMARY_S = 30.0
_DRAIN_S = 3.0
_SWEEP_BATCH = 100

_log = logging.getLogger(__name__)
_log.addFilter(RepetitionFilter())

_READ = """
    SELECT CASE WHEN c.as_of >= signalbox.narrowed() THEN c.summary END, m.role, m.content
    FROM signalbox.conversation c LEFT JOIN LATERAL (
        SELECT number, role, content FROM signalbox.message
        WHERE tenant = c.tenant AND conversation = c.id AND number > c.summarised ORDER BY number DESC LIMIT %s
    ) m ON true
    WHERE c.id = %s AND c.expires_at > now() ORDER BY m.number
"""
_ERASED = "SELECT signalbox.erased(%s, %s, %s, %s)"
_EXPIRE = "DELETE FROM signalbox.conversation WHERE id = %s AND expires_at <= now()"
_SWEEP = """
    DELETE FROM signalbox.conversation WHERE (tenant, id) IN (
        SELECT tenant, id FROM signalbox.conversation WHERE expires_at <= now() ORDER BY expires_at LIMIT %s
        FOR UPDATE SKIP LOCKED)
"""
_BEGIN = """
    INSERT INTO signalbox.conversation (tenant, id, principals, expires_at)
    VALUES (%s, %s, %s, now() + make_interval(days => %s))
    ON CONFLICT (tenant, id) DO UPDATE SET expires_at = excluded.expires_at RETURNING messages, summarised
"""
_ADD = """
    INSERT INTO signalbox.message (tenant, conversation, number, role, content, as_of, asker)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_COUNT = "UPDATE signalbox.conversation SET messages = %s WHERE id = %s"
_OLDER = """
    SELECT CASE WHEN c.as_of >= signalbox.narrowed() THEN c.summary END, c.summarised, m.number, m.role, m.content,
           coalesce((SELECT changed FROM signalbox.access), 0), c.erased
    FROM signalbox.conversation c JOIN signalbox.message m ON (m.tenant, m.conversation) = (c.tenant, c.id)
    WHERE c.id = %s AND m.number > c.summarised AND m.number <= c.messages - %s ORDER BY m.number LIMIT %s
"""
# Fails if another process made the same summary, or if turns it covers were erased meanwhile.
_SUMMARISE = """
    UPDATE signalbox.conversation SET summary = %s, summarised = %s, as_of = %s
    WHERE id = %s AND summarised = %s AND erased = %s
"""


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """One stored turn of a conversation."""

    role: Literal["user", "assistant"]
    content: str


class ConversationMemory:
    """Stores and returns the conversations of all tenants. Open inside `async with`.

    Args:
        days: days that a conversation is kept after its last turn, > 0.
        model: writes summaries; without a model only the newest turns are remembered.
        breaker: the model's circuit breaker, shared with all other callers of the model.
        count_tokens: called with a tenant and the tokens that a summary took.
        templates: prompt templates; None means the packaged ones.
    """

    def __init__(
        self,
        database: Database,
        *,
        days: int,
        model: Model | None = None,
        breaker: CircuitBreaker | None = None,
        count_tokens: Callable[[str, int], None] | None = None,
        templates: prompts.TemplateLibrary | None = None,
    ) -> None:
        self._database, self._days, self._count_tokens = database, days, count_tokens
        self._model, self._breaker = model, breaker or CircuitBreaker()
        self._templates = templates or prompts.packaged_templates()
        self._summarising: dict[tuple[Viewer, str], asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait a few seconds for running summaries, then cancel them; a later turn makes them."""
        if tasks := set(self._summarising.values()):
            _, late = await asyncio.wait(tasks, timeout=_DRAIN_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def read(self, who: str | Viewer, conversation: str, window: int | None = None) -> tuple[Message, ...]:
        """Return the summary, as an assistant turn, and the newest turns, oldest first; empty if nothing is stored.

        The oldest turns are left out if all exceed `MOST_HISTORY_TOKENS`. Otherwise the prompt would leave out the
        summary, which comes first.

        Args:
            window: return at most this many of the newest messages and no summary.
        Raises:
            Unavailable: the database cannot be reached.
        """
        rows = await self._database.fetch(who, _READ, (window or WINDOW, stored_id(who, conversation)))
        summary = str(rows[0][0]) if rows and rows[0][0] and window is None else ""
        head = [Message(role="assistant", content=f"Notes on the conversation so far: {summary}")] if summary else []
        left = MOST_HISTORY_TOKENS - sum(estimate_tokens(one.content) for one in head)
        turns: list[Message] = []
        for _, role, content in reversed([row for row in rows if row[1] is not None]):
            left -= estimate_tokens(content)
            if left < 0:
                break
            turns.insert(0, Message.model_construct(role=role, content=content))
        return (*head, *turns)

    async def add(
        self,
        who: str | Viewer,
        conversation: str,
        turns: Sequence[StoredTurn],
        *,
        before: Sequence[StoredTurn] = (),
        as_of: int = 0,
        asker: str | None = None,
        at: datetime | None = None,
    ) -> None:
        """Add turns to a conversation, with consecutive numbers; all of them or none.

        Args:
            who: the tenant, or a viewer whose principals the conversation belongs to.
            before: earlier turns that the caller sent; stored only if the conversation is new.
            as_of: number of changes to the readers of documents (`Scope.changed`) before the question was answered.
                When a later change takes any document from a reader, only viewers that see all documents still get the
                turns, because they may quote that document.
            asker: user whose turns these are, for erasure.
            at: when the question arrived. If an erasure came later, the turns are not stored.
        Raises:
            Unavailable: the database cannot be reached.
        """
        viewer = Viewer.of(who)
        id = stored_id(viewer, conversation)
        async with self._database.transaction(viewer) as connection:
            cursor = await connection.execute(_ERASED, (asker, conversation, list(viewer.principals), at))
            if (row := await cursor.fetchone()) and row[0]:
                return
            await connection.execute(_EXPIRE, (id,))
            cursor = await connection.execute(_BEGIN, (viewer.tenant, id, list(viewer.principals), self._days))
            row = await cursor.fetchone()
            assert row is not None
            count, summarised = int(row[0]), int(row[1])
            added = [*before, *turns] if count == 0 else list(turns)
            rows = [
                (viewer.tenant, id, number, turn.role, storable_value(turn.content), as_of, asker)
                for number, turn in enumerate(added, count + 1)
            ]
            await connection.cursor().executemany(_ADD, rows)
            count += len(added)
            await connection.execute(_COUNT, (count, id))
            await connection.execute(_SWEEP, (_SWEEP_BATCH,))
        if self._model is not None and count - summarised > WINDOW:
            self._summarise_soon(self._model, viewer, id)

    async def wait_until_idle(self) -> None:
        """Wait until all running summaries are done or have failed."""
        await asyncio.gather(*self._summarising.values())

    def _summarise_soon(self, model: Model, viewer: Viewer, id: str) -> None:
        key = viewer, id
        if key in self._summarising:
            return
        self._summarising[key] = task = asyncio.create_task(self._summarise(model, viewer, id))
        task.add_done_callback(lambda _: self._summarising.pop(key, None))

    async def _summarise(self, model: Model, viewer: Viewer, id: str) -> None:
        """Store a summary of all turns but the newest `KEPT`; if this fails, it is tried again after the next turn."""
        if not self._breaker.admit():
            return
        works: bool | None = None
        try:
            rows = await self._database.fetch(viewer, _OLDER, (id, KEPT, _MOST_SUMMARISED))
            if not rows:
                return
            (before, summarised, *_, as_of, erased), last = rows[0], rows[-1][2]
            before = before or ""
            said = "\n".join(f"{row[3]}: {without_citations(row[4])[:_LONGEST_TURN]}" for row in rows)
            values = {"summary": before, "turns": said, "fence": prompts.fence(before, said)}
            key = {"summary": before, "turns": said}
            deadline = time.monotonic() + _SUMMARY_S
            messages = self._templates.for_tenant(viewer.tenant).load(STAGE).messages(values)
            reply = await model.complete(messages, stage=STAGE, deadline=deadline, key=key)
            works = True
            if self._count_tokens is not None:
                self._count_tokens(viewer.tenant, reply.usage.prompt_tokens + reply.usage.completion_tokens)
            text = storable_value(strip_reasoning(reply.text))[:_LONGEST_SUMMARY]
            async with self._database.transaction(viewer) as connection:
                await connection.execute(_SUMMARISE, (text, last, as_of, id, summarised, erased))
        except ModelFailed as error:
            works = False if error.fault == "down" else None
            _log.warning("a conversation was not summarised: %s", error.reason)
        except Unavailable as error:
            _log.warning("a conversation was not summarised: %s", error)
        finally:
            self._breaker.record_outcome(works)


def stored_id(who: str | Viewer, conversation: str) -> str:
    """Return the id under which a conversation is stored: the caller's id, then each principal on a line of its own.

    So callers with different principals never share a conversation, even under the same id.
    """
    return "\n".join((conversation, *Viewer.of(who).principals))


def merge_turns(stored: Sequence[Message], sent: Sequence[Message]) -> tuple[Message, ...]:
    """Return the stored turns followed by the turns that the caller sends, without repeating common turns.

    From the longest run of common turns on, the caller's turns replace the stored turns, so a caller can go back and
    ask differently. The caller's system turns come first.
    """
    system = [turn for turn in sent if turn.role == "system"]
    said = [turn for turn in sent if turn.role != "system"]
    matcher = SequenceMatcher(None, [_same(turn) for turn in stored], [_same(turn) for turn in said], autojunk=False)
    found = matcher.find_longest_match()
    # If the caller sends turns before the common run, these replace the stored ones before it.
    older = stored[: found.a] if found.size and found.b == 0 else () if found.size else stored
    return (*system, *older, *said)


def _same(turn: Message) -> tuple[str, str]:
    """Return a key that is equal for two copies of a turn, also if a client trimmed it or removed its citations."""
    return turn.role, "".join(without_citations(turn.content).split())
