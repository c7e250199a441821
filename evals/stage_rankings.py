"""Extract the rankings of an answer's stages from its decision record, and judge them."""

from collections.abc import Mapping, Sequence
from typing import Any

from evals import metrics
from retrievers.core.types import ChunkId

Json = dict[str, Any]

FUSED, FINAL = "fused", "final"


def extract_rankings(record: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return document ids, best first, by stage: each source that the first round searched, and `FUSED`.

    If several searches of one source found a document, its best rank counts. A record has at most the first 100
    passages of each search.

    Args:
        record: as returned by `agent.records.trace.Trace.record`.
    """
    prefixes = [str(ChunkId(one["tenant"], one["name"], "", 0))[: -len("#0")] for one in record["scope"]]
    sources: dict[str, dict[str, int]] = {}
    for step, answer in zip(record["plan"], record["answers"], strict=True):
        if step["step"] != 1:
            continue
        best = sources.setdefault(step["source"], {})
        for rank, document in enumerate(_documents(answer["hits"], prefixes)):
            best[document] = min(rank, best.get(document, rank))
    made = {source: sorted(best, key=best.__getitem__) for source, best in sources.items()}
    return {**made, FUSED: _documents(record["ranking"], prefixes)}


def _documents(hits: Sequence[Sequence[Any]], prefixes: Sequence[str]) -> list[str]:
    return metrics.documents_of(_document(id, prefixes) for id, _ in hits)


def _document(id: str, prefixes: Sequence[str]) -> str:
    """Return the document id of a passage id: `"collection/document#7" -> "document"`.

    Args:
        prefixes: what precedes the document id, for each collection that was searched, such as "collection/".
    """
    name = id.rpartition("#")[0]
    return next((name[len(one) :] for one in prefixes if name.startswith(one)), name)


def score_stages(made: Mapping[str, Sequence[str]], relevant: Mapping[str, int]) -> Json:
    """Return by stage the `ranks` (from 1) of the relevant documents that it found, and its nDCG@10.

    The result is {} if no document is relevant.

    Args:
        made: rankings as returned by `extract_rankings`.
        relevant: document id to grade.
    """
    if not relevant:
        return {}
    scores = metrics.ranking_scores(made, dict.fromkeys(made, relevant))
    return {
        name: {
            "ranks": [rank for rank, id in enumerate(documents, 1) if id in relevant],
            "nDCG@10": scores[name]["nDCG@10"],
        }
        for name, documents in made.items()
    }
