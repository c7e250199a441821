"""Choose a minimum relevance on some questions, and verify on others that it leaves out no relevant document."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evals.significance import paired_difference

MOST_LOST = 0.01
"""Maximum share of the found relevant documents that a minimum may leave out, as the mean over the tuning questions."""
MOST_LOST_SURELY = 0.02
"""Maximum share at the worse end of the 95 % interval over the verification questions."""

LEAST_QUESTIONS = 20
"""Minimum number of questions in each part: a minimum from fewer would leave out relevant hits of other questions."""

_FIRST = 10
_STEPS = tuple(round(0.05 * step, 2) for step in range(1, 20))


@dataclass(frozen=True, slots=True)
class JudgedHits:
    """The first hits of one question.

    Attributes:
        relevance: of each hit, 0 to 1; 1 if it could not be judged, as such a hit is never left out.
        right: whether the hit's document is relevant.
    """

    relevance: Sequence[float]
    right: Sequence[bool]

    @classmethod
    def of(cls, hits: Sequence[tuple[str, float | None]], relevant: Sequence[str]) -> "JudgedHits":
        """Return the first hits, given as document id and relevance."""
        first = hits[:_FIRST]
        return cls([1.0 if one is None else one for _, one in first], [id in relevant for id, _ in first])

    def kept(self, minimum: float) -> float:
        """Return the share of the relevant hits that a minimum keeps; 1 if there are none."""
        held = [one >= minimum for one, right in zip(self.relevance, self.right, strict=True) if right]
        return sum(held) / len(held) if held else 1.0

    def precision(self, minimum: float) -> float:
        """Return the share of relevant hits among those that a minimum keeps; 0 if it keeps none."""
        held = [right for one, right in zip(self.relevance, self.right, strict=True) if one >= minimum]
        return sum(held) / len(held) if held else 0.0

    def count(self, minimum: float) -> int:
        return sum(one >= minimum for one in self.relevance)


def tune_threshold(known: Sequence[JudgedHits], unknown: Sequence[JudgedHits], current: float | None) -> dict[str, Any]:
    """Return the highest minimum relevance that leaves out at most the share `MOST_LOST` of relevant hits.

    Args:
        known: questions to tune on.
        unknown: questions to verify with.
        current: the minimum in force; None for none.
    Returns:
        JSON values: `before` and `after` with `min_relevance` and per part `kept`, `precision` and `hits` (means of the
            first ten hits); `difference` of precision and `lost` of kept hits on the verification questions; `helps`.
            With fewer than `LEAST_QUESTIONS` in a part only `helps` (false) and the `reason`.
    """
    if (least := min(len(known), len(unknown))) < LEAST_QUESTIONS:
        return {"helps": False, "reason": f"{least} questions in a part; at least {LEAST_QUESTIONS} are needed"}
    before = current or 0.0
    fitting = [one for one in _STEPS if _mean([hits.kept(one) for hits in known]) >= 1 - MOST_LOST]
    after = max(fitting, default=before)
    gained = paired_difference([one.precision(before) for one in unknown], [one.precision(after) for one in unknown])
    lost = paired_difference([one.kept(0.0) for one in unknown], [one.kept(after) for one in unknown])
    return {
        "before": _described(before, current, known, unknown),
        "after": _described(after, after or None, known, unknown),
        "difference": gained,
        "lost": lost,
        "helps": after != before and gained["low"] > 0 and lost["low"] >= -MOST_LOST_SURELY,
    }


def _described(
    minimum: float, named: float | None, known: Sequence[JudgedHits], unknown: Sequence[JudgedHits]
) -> dict[str, Any]:
    parts = {"tuned_on": known, "verified_on": unknown}
    return {"min_relevance": named} | {
        name: {
            "kept": _mean([one.kept(minimum) for one in part]),
            "precision": _mean([one.precision(minimum) for one in part]),
            "hits": _mean([one.count(minimum) for one in part]),
        }
        for name, part in parts.items()
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
