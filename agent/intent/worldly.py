"""How much a question sounds as if the world had to answer it, learned from examples of many domains.

The score is logistic in the question's words and word pairs, and in runs of up to three Chinese characters.
`evals/train_worldly.py` makes the weights from questions that were written for this project; the collection's
own words decide beside it (`agent.intent.outside`).
"""

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import pairwise

_PIECES = re.compile(r"[a-z]+(?:['’-][a-z]+)*|\d+|[\u4e00-\u9fff]")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def worldly(question: str) -> float:
    """Probability in [0, 1]."""
    weights, bias = _learned()
    return probability(features(question), weights, bias)


def features(text: str) -> frozenset[str]:
    """Words, pairs of words and runs of three Chinese characters, numbers being all alike, and the first word."""
    pieces = ["0" if piece.isdigit() else piece for piece in _PIECES.findall(text.casefold())]
    found = {*pieces, *(f"{one} {other}" for one, other in pairwise(pieces))}
    runs = zip(pieces, pieces[1:], pieces[2:], strict=False)
    found |= {"".join(run) for run in runs if all(map(_CHINESE.match, run))}
    return frozenset(found | {f"^{pieces[0]}"} if pieces else found)


def probability(held: frozenset[str], weights: Mapping[str, float], bias: float) -> float:
    """The logistic function of the weights of what a text holds; a long text's count less each.

    Args:
        weights: by feature; what is not among them is not known and does not count.
    """
    known = [weights[one] for one in held if one in weights]
    return 1 / (1 + math.exp(-(math.fsum(known) / math.sqrt(max(len(known), 1)) + bias)))


@cache
def _learned() -> tuple[dict[str, float], float]:
    stored = json.loads((files("agent.intent") / "worldly.json").read_text(encoding="utf-8"))
    return stored["weights"], stored["bias"]
