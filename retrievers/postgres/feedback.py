"""Store feedback on answers, and derive scores of the documents in them."""

import math
import uuid
from collections.abc import Collection, Mapping, Sequence

from retrievers.core.types import Scope
from retrievers.ingest.clean import printable
from retrievers.postgres.database import Database
from retrievers.postgres.reads import Reads

MOST_COMMENT = 4000
# A neutral weight added to the judgements, so that a single one moves a document by a quarter at most.
_PRIOR = 3.0

Document = tuple[str, str, str]
"""Owner, collection and id of a document."""


async def record(
    database: Database,
    tenant: str,
    trace_id: str,
    score: int,
    comment: str | None,
    documents: Sequence[tuple[int, str]],
    *,
    asker: str | None = None,
    conversation: str | None = None,
) -> None:
    """Store a judgement of an answer. A later judgement of the same answer replaces it.

    Args:
        score: 0 to 10; 5 is neutral.
        documents: collection number and id of the answer's hits, best first. Only the first hit of a document counts.
        asker, conversation: of the question, so that the judgement can be erased with them.
    """
    trace = uuid.UUID(trace_id)
    shares: dict[tuple[int, str], float] = {}
    for rank, document in enumerate(documents, 1):
        shares.setdefault(document, 1 / math.log2(rank + 1))
    said = printable(comment)[:MOST_COMMENT] if comment else None
    async with database.transaction(tenant) as connection:
        # The judgement comes first: its row lock serialises concurrent judgements of the same answer.
        await connection.execute(_RECORD, (tenant, trace, score, said, asker, conversation))
        await connection.execute(_FORGET_DOCUMENTS, (trace,))
        rows = [(tenant, number, document, trace, share) for (number, document), share in shares.items()]
        await connection.cursor().executemany(_ATTRIBUTE, rows)
    database.reads.wrote(tenant)


async def of_documents(reads: Reads, scope: Scope, documents: Collection[Document]) -> Mapping[Document, float]:
    """Return the tenant's feedback on documents: -1 (always bad) to 1 (always good), near 0 while there is little."""
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
    INSERT INTO signalbox.feedback (tenant, trace, score, comment, asker, conversation) VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT (tenant, trace) DO UPDATE
    SET score = excluded.score, comment = excluded.comment, created_at = excluded.created_at,
        asker = coalesce(excluded.asker, feedback.asker),
        conversation = coalesce(excluded.conversation, feedback.conversation)
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
