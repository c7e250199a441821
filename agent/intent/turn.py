"""Whether a question is for the documents or for the world outside of them.

The world is asked only when
nothing of the catalogue and nothing rare of the documents is mentioned, nobody's "our" is said, and a learned judgement
of the wording is sure (`judge`). Its weights are made by `evals/train_turn.py`.
"""

import asyncio
import calendar
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import rjieba

from agent.intent import lexicon, smalltalk
from agent.intent.text import has_chinese, stem
from agent.types import SourceChoice
from retrievers.core.errors import RetrievalError
from retrievers.core.types import Card, Scope
from retrievers.embed import Embedder, Vectors
from retrievers.embed.factory import open_embedder
from retrievers.text import glosses
from retrievers.text.analysis import analyse
from retrievers.text.languages import STOP_WORDS

if TYPE_CHECKING:
    from agent.intent.found import Found
    from agent.intent.rules import RulesReading

SURE = 0.9
"""Probability from which on a question is put to the world."""
_RARE = 0.1
"""A name in no more of the passages is something that the documents tell of; one in more of them is everywhere."""
_LIKE, _NEARER = 0.6, 0.1
"""Cosine of a question to an example of a source that is meant, and how much less to those of all others."""
_LONGEST_QUESTION = 300
_MOST_NAMES = 12
_OF_NAMES = 0.3
"""Scale of the signs of names beside a vector of length 1."""

_PIECES = re.compile(r"[a-z]+(?:['’-][a-z]+)*|\d+|[\u4e00-\u9fff]")
_MONTHS = "|".join((*calendar.day_name, *calendar.month_name[1:]))
_LATIN = re.compile(r"[A-Za-z][A-Za-z'-]+")
# A word by itself asks for what the documents say of it: "ERR_CONN_4711".
_CODE_ALONE = re.compile(r"\W*[\w.:/-]+\W*", re.ASCII)
# Of several codes the one: "SEV1s".
_JOINED = re.compile(r"([A-Za-z]+(?:[-_.][A-Za-z0-9]+)+|[A-Za-z]+\d(?:\w*\w(?<!s))?)s?")
_CAPITALS = re.compile(rf"\b(?!(?:{_MONTHS})\b)[A-Z][\w'&]+(?: [A-Z][\w'&]+)*")
_CODE = re.compile(r"[A-Za-z]+-?\d")
_CALENDAR = frozenset(one.casefold() for one in (*calendar.day_name, *calendar.month_name))
_NAMES_ZH = frozenset({"nr", "ns", "nt", "nz"})


class TermCounts(Protocol):
    """The part of a catalogue that tells how often words occur."""

    async def term_counts(self, scope: Scope, terms: Sequence[str], /) -> Mapping[int, Mapping[str, int]]:
        """In how many passages each term occurs, by the number of its collection."""
        ...


def is_of_others(found: "Found") -> bool:
    """Whether a question mentions nothing of the catalogue, nor what is the asker's own."""
    sentence = found.sentence
    if smalltalk.is_own(sentence.text) or _CODE_ALONE.fullmatch(sentence.text):
        return False
    dates = sentence.vocabulary.of_role("date")
    if found.lengths or any(
        piece.field not in dates and _means_something(sentence.text[piece.start : piece.end]) for piece in found.pieces
    ):
        return False
    if any(_means_something(sentence.text[one.start : one.end]) for one in sentence.mentions):
        return False
    if any((match[1].casefold(),) in sentence.vocabulary.names for match in _JOINED.finditer(sentence.text)):
        return False
    names = {word for field in sentence.vocabulary.catalogue.fields for word in lexicon.name_words(field)}
    return not any(
        token.folded in sentence.nouns or (token.folded in names and _means_something(token.text))
        for token in sentence.tokens
    )


def _means_something(name: str) -> bool:
    """Whether a name is more than a function word or a single Chinese character: 是 is "yes", and "is" as well."""
    return len(name) > 1 and name.casefold() not in STOP_WORDS["en"]


async def judge(
    reading: "RulesReading",
    scope: Scope,
    catalogue: TermCounts,
    cards: Mapping[str, Card],
    embedder: Embedder,
    language: str,
) -> "RulesReading":
    """The reading, put to the world when it is surely nothing for the documents; these are searched all the same.

    Args:
        catalogue: says how often terms occur, see `Catalogue.term_counts`.
        embedder: of the service; a source outside is also chosen when the question is like its examples.
        language: the question's.
    """
    if not reading.is_of_others or len(reading.question) > _LONGEST_QUESTION:
        return reading
    liked = await _like_examples(reading, cards, embedder, language)
    if liked is not None:
        return replace(reading, sources=(liked,), confidence=liked.confidence)
    text = smalltalk.without_greeting(reading.question)
    if await _tells_of(text, scope, catalogue):
        return reading
    try:
        probability = worldly(text, await meaning(text, embedder))
    except RetrievalError:
        return reading
    if probability < SURE:
        return reading
    web = SourceChoice(name="web", confidence=round(probability, 2), reason="it asks about the world")
    return replace(reading, sources=(web, *reading.sources), pieces=(), confidence=web.confidence, complete=False)


async def _tells_of(text: str, scope: Scope, catalogue: TermCounts) -> bool:
    """Whether few of the documents hold a name or an unusual word of the question, or some hold half of its words."""
    await asyncio.get_running_loop().run_in_executor(glosses.reader, glosses.words)
    names, others = subjects(text)
    # Documents in English are asked about in Chinese too.
    english = re.findall(r"[a-z]{3,}", glosses.gloss_for(text, [one.languages for one in scope.all]))
    terms = {
        word: [term.text for term in analyse(word, "zh" if has_chinese(word) else "en") if not term.extra]
        for word in (*names, *others, *english)
    }
    counts = await catalogue.term_counts(scope, list(dict.fromkeys(term for one in terms.values() for term in one)))
    chunks = max(sum(one.chunks for one in scope.collections), 1)
    shares = {
        word: min((sum(known.get(term, 0) for known in counts.values()) for term in one), default=0) / chunks
        for word, one in terms.items()
    }
    if any(0 < shares[word] <= _RARE and (word in names or not _is_usual(word)) for word in shares):
        return True
    if english and all(shares[word] for word in english):
        return True
    if any(not shares[name] or shares[name] > _RARE for name in names):
        return False  # a name of elsewhere, or one that is everywhere
    known = sum(shares[word] > 0 for word in others)
    return 2 * known >= max(len(others), 1)


def _is_usual(word: str) -> bool:
    """Whether a word says little about what is asked: it explains many others, or the weights were learned with it."""
    if has_chinese(word):
        return (" ".join(word) if len(word) == 2 else word) in _learned()["zh"].words
    folded = word.casefold()
    return not {folded, stem(folded)}.isdisjoint(glosses.words().usual)


def subjects(text: str) -> tuple[list[str], list[str]]:
    """The names in a question, and its other words of weight.

    A name is written with a capital inside a sentence, with a digit or a hyphen, in Latin among Chinese, or is one by
    the Chinese dictionary; side by side capitals are one name: "Stack Overflow".
    """
    names: dict[str, None] = dict.fromkeys(match[1] for match in _JOINED.finditer(text))
    others: dict[str, None] = {}
    chinese = has_chinese(text)
    rest = _JOINED.sub(lambda match: "," * len(match[0]), text)
    for match in _CAPITALS.finditer(rest):
        if chinese or rest[: match.start()].rstrip()[-1:] not in ("", ".", "?", "!"):
            names[match[0]] = None
            rest = rest.replace(match[0], "," * len(match[0]))
    for word in _LATIN.findall(rest):
        if word.casefold() not in STOP_WORDS["en"] and word.casefold() not in _CALENDAR:
            (names if chinese else others)[word] = None
    if chinese:
        for word, kind in rjieba.tag(text):
            if len(word) > 1 and has_chinese(word):
                (names if kind in _NAMES_ZH else others)[word] = None
    return list(names)[:_MOST_NAMES], list(others)[:_MOST_NAMES]


async def meaning(text: str, embedder: Embedder) -> Vectors:
    """What the weights are for, shape (389,): the vector of a question by the packaged model, and signs of names.

    Chinese is embedded by its glosses.
    """
    await asyncio.get_running_loop().run_in_executor(glosses.reader, glosses.words)
    model = embedder if embedder.name == "minilm" else _packaged()
    vector = await model.embed_query(in_english(text))
    return np.concatenate([vector, _OF_NAMES * signs_of_names(text)])


def in_english(text: str) -> str:
    """The question, Chinese by its glosses."""
    return (glosses.in_english(text) or text) if has_chinese(text) else text


def signs_of_names(text: str) -> Vectors:
    """Whether a question has a name that the world knows, two of them, another name, none, and a code: "INC-22"."""
    known = glosses.words().names
    words = [word.removesuffix("'s") for word in _LATIN.findall(text)]
    held = sum(word.casefold() in known for word in words)
    if has_chinese(text):
        held += sum(len(word) > 1 and word in known for word in rjieba.cut(text))
    others = [word for word in words[1:] if word[0].isupper()]
    strange = any(word.casefold() not in known for word in others)
    signs = (held > 0, held > 1, strange, not held and not others, _CODE.search(text) is not None)
    return np.array(signs, dtype=np.float32)


@cache
def _packaged() -> Embedder:
    return open_embedder("minilm")


def features(text: str) -> frozenset[str]:
    """Words, pairs of words and the first word; of Chinese also runs of three characters and kinds of words."""
    pieces = ["0" if piece.isdigit() else piece for piece in _PIECES.findall(text.casefold())]
    found = {*pieces, *(f"{one} {other}" for one, other in pairwise(pieces)), *(f"^{piece}" for piece in pieces[:1])}
    if has_chinese(text):
        runs = zip(pieces, pieces[1:], pieces[2:], strict=False)
        found |= {"".join(run) for run in runs if all(map(has_chinese, run))}
        found |= {f"/{kind}" for _, kind in rjieba.tag(text)}
    return frozenset(found)


def worldly(text: str, vector: Vectors) -> float:
    """Probability in [0, 1] that a question is for the world.

    Args:
        vector: see `meaning`.
    """
    learned = _weights(text)
    return _logistic(_of_words(text, learned) + learned.bias + float(np.dot(learned.vector, vector)))


def _of_words(text: str, learned: "_Weights") -> float:
    """The weights of the words that are known; of many each counts less."""
    known = [learned.words[one] for one in features(text) if one in learned.words]
    return math.fsum(known) / math.sqrt(max(len(known), 1))


def _logistic(logit: float) -> float:
    return 1 / (1 + math.exp(-max(min(logit, 500.0), -500.0)))


class _Weights(NamedTuple):
    """Of one language: by feature, by dimension of the vector, and the bias."""

    words: Mapping[str, float]
    vector: Vectors
    bias: float


def _weights(text: str) -> _Weights:
    return _learned()["zh" if has_chinese(text) else "en"]


@cache
def _learned() -> dict[str, _Weights]:
    stored = json.loads((files("agent.intent") / "words" / "turn.json").read_text(encoding="utf-8"))
    return {
        language: _Weights(one["words"], np.array(one["vector"], dtype=np.float32), one["bias"])
        for language, one in stored.items()
    }


async def _like_examples(
    reading: "RulesReading", cards: Mapping[str, Card], embedder: Embedder, language: str
) -> SourceChoice | None:
    """A source outside whose examples the question is like, and like no other's."""
    outside = [name for name, card in cards.items() if card.kind == "outside" and card.examples]
    if not outside or (embedder.languages is not None and language not in embedder.languages):
        return None
    try:
        scores = {
            name: await _likeness(reading.question, card, embedder) for name, card in cards.items() if card.examples
        }
    except RetrievalError:
        return None
    best = max(outside, key=lambda name: (scores[name], name))
    others = max((score for name, score in scores.items() if name != best), default=0.0)
    if scores[best] < _LIKE or scores[best] - others < _NEARER:
        return None
    return SourceChoice(name=best, confidence=round(scores[best], 2), reason="the question is like its examples")


async def _likeness(question: str, card: Card, embedder: Embedder) -> float:
    """Cosine of the question and the nearest example."""
    asked = await embedder.embed_query(question)
    examples = [await embedder.embed_query(example) for example in card.examples]
    return max(float(np.dot(asked, example)) for example in examples)
