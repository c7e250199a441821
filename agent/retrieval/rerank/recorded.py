"""The scores of an earlier run, for its replay: nobody is asked again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.retrieval.fusion import Fused
from retrievers.core.errors import Unavailable


@dataclass(frozen=True, slots=True)
class RecordedReranker:
    """Answers the same question over the same passages, and no other.

    Args:
        name: of the reranker that is stood in for.
        recorded: what a trace holds under "reranking"; empty when nothing was reranked.
    """

    name: str
    recorded: Mapping[str, Any]
    remote: bool = False

    @property
    def comparable(self) -> bool:
        """As it was recorded."""
        return bool(self.recorded.get("comparable"))

    async def rerank(self, question: str, language: str, pool: Sequence[Fused], *, deadline: float) -> list[float]:
        """The recorded scores, see `Reranker.rerank`."""
        scores: dict[str, float] = dict(self.recorded.get("scores") or ())
        ids = [str(hit.id) for hit in pool]
        if self.recorded.get("by") != self.name or not scores:
            raise Unavailable(
                self._source, self.recorded.get("error") or "a replay asks no server, and no score is kept"
            )
        if self.recorded.get("question") != question or scores.keys() != set(ids):
            raise Unavailable(self._source, "a replay asks no server, and its scores are of other passages")
        return [scores[id] for id in ids]

    @property
    def _source(self) -> str:
        return f"the reranker {self.name}"

    async def aclose(self) -> None:
        """There is nothing to let go of."""
