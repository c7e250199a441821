"""Replay reranker: return the scores of an earlier run without calling a reranker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.retrieval.fusion import FusedHit
from retrievers.core.errors import Unavailable


@dataclass(frozen=True, slots=True)
class ReplayReranker:
    """Returns the recorded scores; raises Unavailable for another question or other passages.

    Args:
        name: name of the reranker that is replaced.
        recorded: the "reranking" object of a trace; empty if nothing was reranked.
    """

    name: str
    recorded: Mapping[str, Any]
    is_remote: bool = False

    @property
    def is_comparable(self) -> bool:
        """The recorded value of `comparable`, see `Reranker.is_comparable`."""
        return bool(self.recorded.get("comparable"))

    async def rerank(self, question: str, language: str, pool: Sequence[FusedHit], *, deadline: float) -> list[float]:
        """Return the recorded scores, see `Reranker.rerank`."""
        scores: dict[str, float] = dict(self.recorded.get("scores") or ())
        ids = [str(hit.id) for hit in pool]
        if self.recorded.get("by") != self.name or not scores:
            raise Unavailable(
                self._source, self.recorded.get("error") or "a replay calls no server, and the trace has no scores"
            )
        if self.recorded.get("question") != question or scores.keys() != set(ids):
            raise Unavailable(
                self._source, "a replay calls no server, and the trace has scores for other passages only"
            )
        return [scores[id] for id in ids]

    @property
    def _source(self) -> str:
        return f"the reranker {self.name}"

    async def aclose(self) -> None:
        """Do nothing: there are no resources to release."""
