"""Decide whether a question is for the documents or for the world outside them.

The web is asked only if the question says nothing like "our", states no value of the catalogue, has hardly a word that
the documents contain, and a classifier (`judge`) is sure. The classifier uses the wording and how much of it the
catalogue and the documents know; `evals/train_turn.py` makes its weights.
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
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import rjieba

from agent.intent import lexicon, smalltalk
from agent.intent.reading import LIKELY
from agent.intent.sources import cheapest_world
from agent.intent.text import has_chinese, stem, words_of
from agent.intent.topic import plain_of
from agent.intent.words import ordinary
from agent.types import SourceChoice
from retrievers.core.errors import RetrievalError
from retrievers.core.types import Card, ChunkId, Scope
from retrievers.embed import Embedder, Vectors
from retrievers.embed.factory import open_embedder
from retrievers.text import glosses
from retrievers.text.analysis import analyse
from retrievers.text.ids import first_passages, may_be_ids
from retrievers.text.languages import STOP_WORDS

if TYPE_CHECKING:
    from agent.intent.found import Found
    from agent.intent.rules import RulesReading

SURE = 0.8
"""Minimum probability at which a question is sent to the web; 1 % of the questions to held-out collections reach it."""
_TALKS = 4.5
"""Minimum logit at which a turn is addressed to the assistant and asks nothing."""
_MOST_KNOWN = 0.7
"""Minimum weighted share of known words at which the documents know the subject of a question."""
_MOST_NAMED = 0.25
"""Minimum share of a question's letters in named values at which it is about these values."""
_COMMONEST = 9
_MOST_TOLD = 3.0
"""Maximum total weight of known words; more of them add no evidence."""
_FARTHEST = 4.0
"""Maximum absolute logit of the wording."""
_LIKE, _NEARER = 0.6, 0.1
"""Minimum cosine of a question to an example of a source, and its minimum lead over all other sources."""
_LONGEST_QUESTION = 300
_MOST_NAMES = 12
_OF_NAMES = 0.3
"""Scale of the name signs relative to an embedding of length 1."""

_PIECES = re.compile(r"[a-z]+(?:['’-][a-z]+)*|\d+|[\u4e00-\u9fff]")
_MONTHS = "|".join((*calendar.day_name, *calendar.month_name[1:]))
_LATIN = re.compile(r"[A-Za-z][A-Za-z'-]+")
# A word alone asks what the documents say about it: "ERR_CONN_4711".
_CODE_ALONE = re.compile(r"\W*[\w.:/-]+\W*", re.ASCII)
# A plural names the code itself: "SEV1s".
_JOINED = re.compile(r"([A-Za-z]+(?:[-_.][A-Za-z0-9]+)+|[A-Za-z]+\d(?:\w*\w(?<!s))?)s?")
_CAPITALS = re.compile(rf"\b(?!(?:{_MONTHS})\b)[A-Z][\w'&]+(?: [A-Z][\w'&]+)*")
_CODE = re.compile(r"[A-Za-z]+-?\d")
_CALENDAR = frozenset(one.casefold() for one in (*calendar.day_name, *calendar.month_name))
_EMPTY = _CALENDAR | STOP_WORDS["en"] | lexicon.STOP_WORDS | plain_of("en", "words")
_EMPTY_ZH = plain_of("zh", "words")
# rjieba tags of pronouns, adverbs, conjunctions, numerals, times and other grammatical words.
_EMPTY_KINDS_ZH = frozenset("rdcmtupyfq")
# The question asks for documents: "which reports name the capital of Mongolia?".
_ASKED = frozenset("which what many all any".split())
_NAMES_ZH = frozenset({"nr", "ns", "nt", "nz"})


class TermCounts(Protocol):
    """The part of a catalogue that counts terms."""

    async def term_counts(self, scope: Scope, terms: Sequence[str], /) -> Mapping[int, Mapping[str, int]]:
        """Return the number of passages that contain each term, by collection number."""
        ...


class DocumentIndex(TermCounts, Protocol):
    """The part of a catalogue that counts terms and finds documents by their ids."""

    async def load(self, scope: Scope, ids: Sequence[ChunkId], /) -> Mapping[ChunkId, object]:
        """Return the passages with these ids that the viewer may see."""
        ...


class Mentioned(NamedTuple):
    """How much of a question names parts of the catalogue, each in [0, 1].

    Attributes:
        values, fields: share of the letters that name values, or fields.
        noun: 1 if the question has a word for the documents, else 0.
    """

    values: float
    fields: float
    noun: float


def mentioned(found: "Found") -> Mentioned | None:
    """Return how much of a question names parts of the catalogue; None if it is certainly for the documents."""
    sentence = found.sentence
    if smalltalk.is_own(sentence.text) or _CODE_ALONE.fullmatch(sentence.text):
        return None
    dates = sentence.vocabulary.of_role("date")
    if found.lengths or any(
        piece.field not in dates
        and piece.confidence >= LIKELY
        and _means_something(sentence.text[piece.start : piece.end])
        for piece in found.pieces
    ):
        return None
    if any((match[1].casefold(),) in sentence.vocabulary.names for match in _JOINED.finditer(sentence.text)):
        return None
    nouns = [place for place, token in enumerate(sentence.tokens) if token.folded in sentence.nouns]
    if any(sentence.folded(place - 1) in _ASKED for place in nouns):
        return None
    letters = sum(len(token.text) for token in sentence.tokens if token.kind != "mark") or 1
    values = (sentence.text[one.start : one.end] for one in sentence.mentions)
    return Mentioned(
        min(sum(len(one) for one in values if _means_something(one)) / letters, 1.0),
        min(sum(len(sentence.tokens[place].text) for place, _ in sentence.cued) / letters, 1.0),
        float(bool(nouns)),
    )


def _means_something(name: str) -> bool:
    """Return whether a name is more than a function word or a single Chinese character: 是 is both "yes" and "is"."""
    return len(name) > 1 and name.casefold() not in STOP_WORDS["en"]


async def judge(
    reading: "RulesReading",
    scope: Scope,
    catalogue: DocumentIndex,
    cards: Mapping[str, Card],
    embedder: Embedder,
    language: str,
) -> "RulesReading":
    """Return the reading, sent to the web if surely not for the documents, which are searched as well.

    A question like a source's examples goes to that source; small talk goes nowhere.

    Args:
        catalogue: see `Catalogue.term_counts` and `Catalogue.load`.
        embedder: the service's; compares the question with examples.
    """
    example = _example_of(reading.question, cards)
    if example is not None:
        return replace(
            reading, kind="retrieve", searches=(reading.question,), sources=(example,), aggregate=None,
            confidence=example.confidence,
        )  # fmt: skip
    if reading.mentioned is None or len(reading.question) > _LONGEST_QUESTION:
        return reading
    if reading.mentioned.values >= _MOST_NAMED:
        return reading
    liked = await _like_examples(reading, cards, embedder, language) if not any(reading.mentioned) else None
    if liked is not None:
        return replace(reading, sources=(liked,), confidence=liked.confidence)
    text = smalltalk.without_greeting(reading.question)
    told = await look_up(text, scope, catalogue)
    if told.known_share >= _MOST_KNOWN or told.only_code:
        return reading
    if any(reading.mentioned) and _probability(_FARTHEST, told, reading.mentioned) < SURE:
        return reading  # No wording could make it sure.
    try:
        whole = await meaning(reading.question, embedder)
        vector = await meaning(text, embedder) if text != reading.question else whole
    except RetrievalError:
        return reading
    if not any(reading.mentioned) and by_wording("talk", reading.question, whole) >= _TALKS:
        none = SourceChoice(name="none", confidence=0.95, reason="small talk")
        return replace(reading, kind="none", searches=(), sources=(none,), confidence=none.confidence, complete=True)
    wording = by_wording("world", text, vector)
    probability = _probability(wording, told, reading.mentioned)
    if probability < SURE or await _names_a_document(text, scope, catalogue):
        return reading
    web = SourceChoice(name=cheapest_world(cards), confidence=round(probability, 2), reason="it asks about the world")
    return replace(reading, sources=(web, *reading.sources), pieces=(), confidence=web.confidence, complete=False)


async def _names_a_document(text: str, scope: Scope, catalogue: DocumentIndex) -> bool:
    """Return whether a word of the question is the id of a document; an id need not occur in any text."""
    ids = first_passages(may_be_ids(text)[0], scope.collections)
    return bool(ids and await catalogue.load(scope, ids))


def _probability(wording: float, told: "Told", catalogue: Mentioned) -> float:
    weights = _learned_of_all()
    return _logistic(float(np.dot(weights[:-1], signs(wording, told, catalogue)) + weights[-1]))


class Told(NamedTuple):
    """What the documents know of a question's words, each weighted by how unusual it is.

    Attributes:
        known, unknown: weight of the words that occur in the documents, and of the others.
        foreign: True for Chinese with mostly other documents, so that words are looked up by glosses.
        stranger: True if a name occurs in no document.
        only_code: True if all words are names with digits; then the documents are meant.
    """

    known: float
    unknown: float
    foreign: bool
    stranger: bool
    only_code: bool

    @property
    def known_share(self) -> float:
        return self.known / (self.known + self.unknown) if self.known else 0.0


async def look_up(text: str, scope: Scope, catalogue: TermCounts) -> Told:
    """Look up a question's words in the documents; Chinese words also by their English glosses."""
    await glosses.known_words()
    names, others = subjects(text)
    english = {word: each for _, word, each in glosses.glossed_words(text)} if has_chinese(text) else {}
    meant = {
        word: [word, *(one for part, each in english.items() if part in word or word in part for one in each)]
        for word in (*names, *others)
    }
    terms = {
        word: [term.text for term in analyse(word, "zh" if has_chinese(word) else "en") if not term.extra]
        for word in dict.fromkeys(one for each in meant.values() for one in each)
    }
    counts = await catalogue.term_counts(scope, list(dict.fromkeys(term for one in terms.values() for term in one)))
    held = {term for known in counts.values() for term in known}
    known = {word for word, each in meant.items() if any(terms[one] and held.issuperset(terms[one]) for one in each)}
    weights = {word: _unusualness(word, each[1:]) for word, each in meant.items()}
    documents = sum(sum(one.languages.values()) for one in scope.all)
    chinese = sum(one.languages.get("zh", 0) for one in scope.all)
    return Told(
        sum(weights[word] for word in known),
        sum(weights[word] for word in meant if word not in known),
        has_chinese(text) and chinese < glosses.LEAST_CHINESE * documents,
        any(name not in known for name in names),
        bool(names) and not others and all(map(_CODE.search, names)),
    )


def _unusualness(word: str, english: Sequence[str]) -> float:
    """Return 1 for a word that is not in everyday use, down to 0; a Chinese word counts by its most common gloss."""
    common = ordinary()
    words = english if has_chinese(word) else word.casefold().split()[:1]
    return 1 - max((common.get(stem(one), 0) for one in words), default=0) / _COMMONEST


def signs(wording: float, told: Told, catalogue: Mentioned) -> Vectors:
    """Return the inputs of the classifier, shape (8,); `wording` is the logit of `by_wording` for the world."""
    return np.array(
        [
            max(min(wording, _FARTHEST), -_FARTHEST),
            min(told.known, _MOST_TOLD),
            math.log1p(told.unknown),
            told.foreign,
            told.stranger,
            *catalogue,
        ]
    )


def subjects(text: str) -> tuple[list[str], list[str]]:
    """Return the names in a question, and its other content words, at most 12 of each.

    A name has a capital inside a sentence, a digit or a hyphen, is in Latin letters among Chinese, or is a name in the
    Chinese dictionary. Adjacent capitalised words are one name: "Stack Overflow".
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
        if word.casefold() not in _EMPTY:
            (names if chinese else others)[word] = None
    if chinese:
        for word, kind in rjieba.tag(text):
            if len(word) > 1 and has_chinese(word) and kind[0] not in _EMPTY_KINDS_ZH and word not in _EMPTY_ZH:
                (names if kind in _NAMES_ZH else others)[word] = None
    return list(names)[:_MOST_NAMES], list(others)[:_MOST_NAMES]


async def meaning(text: str, embedder: Embedder) -> Vectors:
    """Return the vector that the wording weights apply to, shape (389,): the question's embedding and the name signs.

    The packaged model makes the embedding; Chinese is embedded by its glosses.
    """
    await glosses.known_words()
    model = embedder if embedder.name == "minilm" else _packaged()
    vector = await model.embed_query(in_english(text))
    return np.concatenate([vector, _OF_NAMES * signs_of_names(text)])


def in_english(text: str) -> str:
    """Return the question with Chinese replaced by its glosses."""
    return (glosses.in_english(text) or text) if has_chinese(text) else text


def signs_of_names(text: str) -> Vectors:
    """Return five signs, each 0 or 1: a well-known name, two of them, another name, no name, a code ("INC-22")."""
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
    """Return words, pairs of words and the first word; for Chinese also runs of three characters and word classes."""
    pieces = ["0" if piece.isdigit() else piece for piece in _PIECES.findall(text.casefold())]
    found = {*pieces, *(f"{one} {other}" for one, other in pairwise(pieces)), *(f"^{piece}" for piece in pieces[:1])}
    if has_chinese(text):
        runs = zip(pieces, pieces[1:], pieces[2:], strict=False)
        found |= {"".join(run) for run in runs if all(map(has_chinese, run))}
        found |= {f"/{kind}" for _, kind in rjieba.tag(text)}
    return frozenset(found)


def by_wording(kind: str, text: str, vector: Vectors) -> float:
    """Return the logit of the probability that a turn is of a kind, by its wording alone.

    Args:
        kind: "world", a question about the world; "talk", addressed to the assistant.
        vector: see `meaning`.
    """
    learned = _learned()[kind, "zh" if has_chinese(text) else "en"]
    return _of_words(text, learned) + learned.bias + float(np.dot(learned.vector, vector))


def _of_words(text: str, learned: "_Weights") -> float:
    """Return the sum of the weights of known features, divided by the square root of their number."""
    known = [learned.words[one] for one in features(text) if one in learned.words]
    return math.fsum(known) / math.sqrt(max(len(known), 1))


def _logistic(logit: float) -> float:
    return 1 / (1 + math.exp(-max(min(logit, 500.0), -500.0)))


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
    """Return the weights by kind and language."""
    return {
        (kind, language): _Weights(one["words"], np.array(one["vector"], dtype=np.float32), one["bias"])
        for kind in ("world", "talk")
        for language, one in _stored()[kind].items()
    }


@cache
def _learned_of_all() -> Vectors:
    """Return the weights of `signs`, the bias last."""
    return np.array(_stored()["signs"])


def _example_of(question: str, cards: Mapping[str, Card]) -> SourceChoice | None:
    """Return the only named source that has the question, word for word, among its examples; else None."""
    said = words_of(question)
    names = [name for name, card in cards.items() if card.named and any(words_of(one) == said for one in card.examples)]
    return SourceChoice(name=names[0], confidence=1.0, reason="it is one of its examples") if len(names) == 1 else None


async def _like_examples(
    reading: "RulesReading", cards: Mapping[str, Card], embedder: Embedder, language: str
) -> SourceChoice | None:
    """Return the outside or named source whose examples or description the question clearly resembles most, or None."""
    told = {name: (*card.examples, *((card.good_for,) if card.named else ())) for name, card in cards.items()}
    told = {name: texts for name, texts in told.items() if texts}
    may_be = [name for name in told if cards[name].kind == "outside" or cards[name].named]
    if not may_be or (embedder.languages is not None and language not in embedder.languages):
        return None
    try:
        scores = {name: await _likeness(reading.question, texts, embedder) for name, texts in told.items()}
    except RetrievalError:
        return None
    best = max(may_be, key=lambda name: (scores[name], name))
    others = max((score for name, score in scores.items() if name != best), default=0.0)
    if scores[best] < _LIKE or scores[best] - others < _NEARER:
        return None
    return SourceChoice(name=best, confidence=round(scores[best], 2), reason="the question is like its examples")


async def _likeness(question: str, texts: Sequence[str], embedder: Embedder) -> float:
    """Return the cosine of the question and the nearest of the texts."""
    asked, *told = await asyncio.gather(*map(embedder.embed_query, (question, *texts)))
    return max(float(np.dot(asked, one)) for one in told)
