"""How much a question sounds as if the world had to answer it, learned from examples of many domains.

The score is logistic in the question's vector. `evals/train_worldly.py` makes the weights from questions that
were written for this project; the collection's own words decide beside it (`agent.intent.outside`).
"""

import json
import re
from functools import cache
from importlib.resources import files

import numpy as np

from retrievers.core.errors import RetrievalError
from retrievers.embed import Embedder, Vectors
from retrievers.text.glosses import glosses, is_chinese

EMBEDDER = "minilm"
"""Whose vectors the weights are for."""

# Most texts that ask nothing and say nothing of now need no vector for this.
_MAY_ASK = re.compile(
    r"[?？]|\b(?:who|what|when|where|which|how|is|are|has|have|did|does|do|any|latest|newest|new|current(?:ly)?|"
    r"now|today|tonight|tomorrow|yesterday|yet|still|this|last|next|week\w*|month|price|cost|rate|news|weather|"
    r"version|release)\b|[吗呢几谁哪]|什么|多少|怎么|最新|最近|现在|目前|今[年天日晚]|这[周月]|上[周月]|明天|昨天",
    re.IGNORECASE,
)


async def worldly(question: str, embedder: Embedder) -> float:
    """Probability in [0, 1]; 0 where it is not known: with another embedder, or when that fails.

    An English question without constraints is searched for with the same vector, which is computed once.
    """
    if embedder.name != EMBEDDER or not _MAY_ASK.search(question):
        return 0.0
    try:
        vector = await embedder.embed_query(as_english(question))
    except RetrievalError:
        return 0.0
    return float(probabilities(vector[None, :], _weights())[0])


def as_english(question: str) -> str:
    """The question, a Chinese one by the English glosses of its words."""
    if not is_chinese(question):
        return question
    latin = re.findall(r"[A-Za-z0-9][\w.+#-]*", question, re.ASCII)
    return " ".join([*latin, *glosses(question)]) or question


def probabilities(vectors: Vectors, weights: Vectors) -> Vectors:
    """One for each vector.

    Args:
        vectors: (n, d), of length 1.
        weights: (d + 1,), the last one the bias.
    """
    result: Vectors = 1 / (1 + np.exp(-(vectors @ weights[:-1] + weights[-1])))
    return result


@cache
def _weights() -> Vectors:
    text = (files("agent.intent") / "worldly.json").read_text(encoding="utf-8")
    return np.asarray(json.loads(text)["weights"], dtype=np.float32)
