"""Store feedback on answers, and derive from it a score for each document that an answer was based on."""

import json
import math
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retrievers.core.types import Scope
from retrievers.ingest.readers.text_cleaning import printable
from retrievers.postgres.connections.database import Database
from retrievers.postgres.connections.read_routing import ReadRouter

MOST_COMMENT = 4000
MOST_DOCUMENTS = 100
"""Maximum number of document ids kept for one answer."""
# Weight of neutral feedback that is added to the scores, so that a single score moves a document by at most a quarter.
_PRIOR = 3.0

Document = tuple[str, str, str]
"""Tenant, collection name and id of a document."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """A person's feedback on one answer.

    Attributes:
        score: 0 to 10, where 5 is neutral; None if not given.
        document_ids: documents that the person opened or found right.
        filter: the filter that would have been right for the question; {} for no filter; None if not given.
    """

    score: int | None = None
    comment: str | None = None
    document_ids: tuple[str, ...] = ()
    filter: Mapping[str, Any] | None = None


async def store_opinion(
    database: Database,
    tenant: str,
    trace_id: str,
    opinion: Opinion,
    documents: Sequence[tuple[int, str]],
    *,
    expires_at: datetime,
    asker: str | None = None,
    conversation: str | None = None,
) -> None:
    """Store an opinion on an answer.

    The score, comment or filter of a later opinion replaces the earlier one. A later score without a comment also
    removes the earlier comment. Document ids are added to the earlier ids, up to `MOST_DOCUMENTS`.

    Args:
        trace_id: the answer's trace id.
        documents: (collection number, document id) of the answer's hits, best first. The score counts for these
            documents, less for later ones; of several hits of a document, the first decides.
        expires_at: when the answer's trace, and the document ids and the filter of the opinion, expire.
        asker, conversation: user and conversation of the question. If their data is erased, so is the opinion.
    """
    trace = uuid.UUID(trace_id)
    shares: dict[tuple[int, str], float] = {}
    for rank, document in enumerate(documents, 1):
        shares.setdefault(document, 1 / math.log2(rank + 1))
    values = {
        "tenant": tenant,
        "trace": trace,
        "score": opinion.score,
        "comment": printable(opinion.comment)[:MOST_COMMENT] if opinion.comment else None,
        "documents": list(dict.fromkeys(opinion.document_ids))[:MOST_DOCUMENTS],
        "filter": json.dumps(opinion.filter) if opinion.filter is not None else None,
        "asker": asker,
        "conversation": conversation,
        "most": MOST_DOCUMENTS,
        "expires": expires_at,
    }
    async with database.transaction(tenant) as connection:
        # The opinion comes first: its row lock serialises concurrent opinions on the same answer.
        await connection.execute(_RECORD, values)
        if opinion.document_ids or opinion.filter is not None:
            await connection.execute(_LABEL, values)
        if opinion.score is not None:
            await connection.execute(_FORGET_DOCUMENTS, (trace,))
            rows = [(tenant, number, document, trace, share) for (number, document), share in shares.items()]
            await connection.cursor().executemany(_ATTRIBUTE, rows)
    database.reads.note_write(tenant)


async def document_scores(reads: ReadRouter, scope: Scope, documents: Collection[Document]) -> Mapping[Document, float]:
    """Return the tenant's feedback on documents, from -1 (always bad) to 1 (always good), near 0 if there is little.

    Documents without feedback or outside the scope are left out.
    """
    numbers = {(one.tenant, one.name): one.number for one in scope.collections}
    asked = {(numbers[one[:2]], one[2]): one for one in documents if one[:2] in numbers}
    if not asked:
        return {}
    among, ids = zip(*asked, strict=True)
    rows = await reads.fetch(scope.viewer, _SUMS, {"among": list(among), "documents": list(ids)})
    return {
        asked[number, document]: float(weighted) / (float(shares) + _PRIOR)
        for number, document, weighted, shares in rows
    }


_RECORD = """
    INSERT INTO signalbox.feedback (tenant, trace, score, comment, asker, conversation)
    VALUES (%(tenant)s, %(trace)s, %(score)s, %(comment)s, %(asker)s, %(conversation)s)
    ON CONFLICT (tenant, trace) DO UPDATE
    SET score = coalesce(excluded.score, feedback.score),
        comment = CASE WHEN excluded.score IS NULL AND excluded.comment IS NULL THEN feedback.comment
                       ELSE excluded.comment END,
        created_at = excluded.created_at,
        asker = coalesce(excluded.asker, feedback.asker),
        conversation = coalesce(excluded.conversation, feedback.conversation)
"""
_LABEL = """
    INSERT INTO signalbox.feedback_label AS old (tenant, id, document_ids, filter, expires_at)
    VALUES (%(tenant)s, %(trace)s, %(documents)s, %(filter)s::jsonb, %(expires)s)
    ON CONFLICT (tenant, id) DO UPDATE
    SET document_ids = (old.document_ids || ARRAY(
            SELECT new FROM unnest(excluded.document_ids) AS new WHERE new <> ALL (old.document_ids)
        ))[1:%(most)s],
        filter = coalesce(excluded.filter, old.filter)
"""
_FORGET_DOCUMENTS = "DELETE FROM signalbox.feedback_document WHERE trace = %s"
_ATTRIBUTE = """
    INSERT INTO signalbox.feedback_document (tenant, collection, document_id, trace, share) VALUES (%s, %s, %s, %s, %s)
"""
_SUMS = """
    SELECT d.collection, d.document_id, sum(d.share * (f.score - 5) / 5.0), sum(d.share)
    FROM unnest(%(among)s::integer[], %(documents)s::text[]) AS wanted (collection, document_id)
    JOIN signalbox.feedback_document d USING (collection, document_id)
    JOIN signalbox.feedback f USING (tenant, trace)
    GROUP BY 1, 2
"""
