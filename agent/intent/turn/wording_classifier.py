"""Classify a turn by its wording with learned weights; `evals/train_turn.py` makes them."""

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from agent.intent.language.text import has_chinese
from agent.intent.topic.term_coverage import CODE, LATIN_WORDS
from retrievers.embed import Embedder, Vectors
from retrievers.embed.factory import open_embedder
from retrievers.text import chinese_dictionary, chinese_segmentation

_OF_NAMES = 0.3
"""Scale of the name signs relative to an embedding of length 1."""
_PIECES = re.compile(r"[a-z]+(?:['’-][a-z]+)*|\d+|[\u4e00-\u9fff]")


async def wording_vector(text: str, embedder: Embedder) -> Vectors:
    """Return the vector that the wording weights apply to, shape (389,): the question's embedding and the name signs.

    The packaged model makes the embedding; Chinese is embedded by its glosses.
    """
    await chinese_dictionary.load_word_lists()
    model = embedder if embedder.name == "minilm" else _packaged()
    vector = await model.embed_query(gloss_chinese(text))
    return np.concatenate([vector, _OF_NAMES * name_features(text)])


def gloss_chinese(text: str) -> str:
    """Return the question with Chinese replaced by its glosses."""
    return (chinese_dictionary.translate_words(text) or text) if has_chinese(text) else text


def name_features(text: str) -> Vectors:
    """Return five signs, each 0 or 1: a well-known name, two of them, another name, no name, a code ("INC-22")."""
    known = chinese_dictionary.read_word_lists().names
    words = [word.removesuffix("'s") for word in LATIN_WORDS.findall(text)]
    held = sum(word.casefold() in known for word in words)
    if has_chinese(text):
        held += sum(len(word) > 1 and word in known for word in chinese_segmentation.words(text))
    others = [word for word in words[1:] if word[0].isupper()]
    strange = any(word.casefold() not in known for word in others)
    world_features = (held > 0, held > 1, strange, not held and not others, CODE.search(text) is not None)
    return np.array(world_features, dtype=np.float32)


@cache
def _packaged() -> Embedder:
    return open_embedder("minilm")


def wording_features(text: str) -> frozenset[str]:
    """Return the features of a text by which it is classified: words, pairs of words, and "^" with the first word.

    For Chinese also runs of three characters, and word classes such as "/n". Every number is "0".
    """
    pieces = ["0" if piece.isdigit() else piece for piece in _PIECES.findall(text.casefold())]
    found = {*pieces, *(f"{one} {other}" for one, other in pairwise(pieces)), *(f"^{piece}" for piece in pieces[:1])}
    if has_chinese(text):
        runs = zip(pieces, pieces[1:], pieces[2:], strict=False)
        found |= {"".join(run) for run in runs if all(map(has_chinese, run))}
        found |= {f"/{kind}" for _, kind in chinese_segmentation.tagged_words(text)}
    return frozenset(found)


def wording_logit(kind: str, text: str, vector: Vectors) -> float:
    """Return the logit of the probability that a turn is of a kind, by its wording alone.

    Args:
        kind: "world", a question about the world; "talk", addressed to the assistant.
        vector: see `wording_vector`.
    """
    learned = _learned()[kind, "zh" if has_chinese(text) else "en"]
    return _of_text(text, learned) + learned.bias + float(np.dot(learned.vector, vector))


def _of_text(text: str, learned: "_Weights") -> float:
    """Return the sum of the weights of known features, divided by the square root of their number."""
    known = [learned.words[one] for one in wording_features(text) if one in learned.words]
    return math.fsum(known) / math.sqrt(max(len(known), 1))


class _Weights(NamedTuple):
    """Weights for one language: by feature, by dimension of the vector, and the bias."""

    words: Mapping[str, float]
    vector: Vectors
    bias: float


@cache
def _stored() -> Mapping[str, Any]:
    stored: Mapping[str, Any] = json.loads((files("agent.intent") / "words" / "turn.json").read_text(encoding="utf-8"))
    return stored


@cache
def _learned() -> dict[tuple[str, str], _Weights]:
    """Return the weights by (kind, language), such as ("world", "en")."""
    return {
        (kind, language): _Weights(one["words"], np.array(one["vector"], dtype=np.float32), one["bias"])
        for kind in ("world", "talk")
        for language, one in _stored()[kind].items()
    }


@cache
def world_weights() -> Vectors:
    """Return the weights of the inputs that `outside_sources.world_features` returns, and last the bias."""
    return np.array(_stored()["signs"])
