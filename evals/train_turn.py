"""Train agent/intent/words/turn.json: `python -m evals.train_turn [FOLDER...]`, from the checkout, nine minutes with
evals/data/reading-more/*.

Three logistic regressions. The first judges the wording alone: from words and vectors it separates questions about the
world from private questions. It learns from `evals/data/turn`, tests/agent/intent_data and the development collections,
but leaves out questions to archives that sound like the world, because their label says nothing about the wording. The
second combines that judgement (made without the question itself) with what a collection knows of the question's words.
It learns from the development collections' questions (and those of further folders), each asked of its own collection,
and from lines of `evals/data/turn` asked of any. The third recognises turns addressed to the assistant (`talk`, and the
turns without a source). Prints the accuracy on questions and collections left out.
"""

import asyncio
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from agent.intent.conditions.question_parser import parse_question
from agent.intent.language.text import has_chinese, readable
from agent.intent.topic.catalogue_overlap import CatalogueOverlap, measure_overlap
from agent.intent.topic.small_talk import strip_greeting
from agent.intent.topic.term_coverage import TermCoverage, measure_term_coverage
from agent.intent.turn.outside_sources import WEB_FROM, world_features
from agent.intent.turn.wording_classifier import wording_features, wording_vector
from agent.intent.values import vocabulary
from evals.reading_data import corpus_reading_data, question_time
from evals.train_deciding import READING
from retrievers.core.types import Collection, Scope
from retrievers.embed.factory import open_embedder
from retrievers.ingest.documents import Document
from retrievers.ingest.readers.file_input import read_paths
from retrievers.text.analysis import analyse
from retrievers.text.languages import detect_language

ROOT = Path(__file__).parent.parent
LINES = ROOT / "evals" / "data" / "turn"
OWN = {LINES: 9.0, LINES / "more": 3.0}
"""Folders of lines, and the weight of a line relative to a question of a collection. The second has four times as many
lines, by other writers; with equal weights the lines of the first would hardly count.
"""
MORE = ROOT / "tests" / "agent" / "intent_data"
TARGET = ROOT / "agent" / "intent" / "words" / "turn.json"
FILES = ("turns", "city", "hospital", "peps")

_LEAST = 3
"""Minimum number of questions with a feature for the feature to be used."""
_DECAY = 3e-4
_WORDS, _VECTOR = 3.0, 5.0
"""Scales of the word and vector features; a larger scale is trusted more."""
_OF_TALK = 3.0
"""Weight of a turn that is addressed to the assistant, relative to a question of a collection."""
_FOLDS = 5
_LINES = 120
"""Number of lines of each kind of `evals/data/turn` asked of a collection."""
_OF_COLLECTION = 3.0
"""Weight of a question to its own collection, relative to one of those lines."""
_DECAY_OF_SIGNS = 1e-3
_LONGEST_TALK = 60
_GIVEN = re.compile(r"[\d:：“\"]")
"""Sums, and a task before a text to work on, which other code recognises."""
_SMALLEST = 0.08


Numbers = NDArray[np.float64]


class TurnExample(NamedTuple):
    """A question, whether it is for the web, and whether it is a line of `OWN`; `weight` is used in learning."""

    text: str
    world: bool
    own: bool
    collection: str = ""
    weight: float = 1.0


class TurnQuestion(NamedTuple):
    """A question to a collection, with what the collection's documents and catalogue know of it."""

    example: TurnExample
    collection: str
    coverage: TermCoverage
    catalogue: CatalogueOverlap


class Learned(NamedTuple):
    """Feature names, their weights, the vector's weights and the bias."""

    names: dict[str, int]
    words: Numbers
    vector: Numbers
    bias: float


def examples() -> list[TurnExample]:
    """Return every question without history, each once."""
    found = {}
    for (folder, weight), kind, language in product(OWN.items(), ("world", "private"), ("en", "zh")):
        for line in (folder / f"{kind}.{language}.txt").read_text(encoding="utf-8").splitlines():
            found[line] = TurnExample(strip_greeting(line), kind == "world", True, weight=weight)
    for name in FILES:
        for line in (MORE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            label = one.get("label") or one["class"]
            if label != "none" and not one.get("history"):
                found.setdefault(one["text"], TurnExample(strip_greeting(one["text"]), label == "web", False))
    return list(found.values())


def talk() -> Iterator[TurnExample]:
    """Yield turns addressed to the assistant that ask nothing."""
    for language in ("en", "zh"):
        for line in (LINES / f"talk.{language}.txt").read_text(encoding="utf-8").splitlines():
            yield TurnExample(line, True, True, weight=_OF_TALK)
    for line in (MORE / "turns.jsonl").read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        if one["label"] == "none" and len(one["text"]) < _LONGEST_TALK and not _GIVEN.search(one["text"]):
            yield TurnExample(one["text"], True, True, weight=_OF_TALK)


def questions(folder: Path) -> Iterator[TurnExample]:
    """Yield the questions of a folder that have no history."""
    for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        if one["class"] != "smalltalk" and not one.get("history"):
            name = one.get("collection") or folder.name
            yield TurnExample(strip_greeting(readable(one["text"])), one["class"] == "world", False, name)


async def vectors(given: Sequence[TurnExample]) -> Numbers:
    """Return the questions' vectors, shape (questions, 389); see `wording_classifier.wording_vector`."""
    embedder = open_embedder("minilm")
    return np.array([await wording_vector(one.text, embedder) for one in given], dtype=np.float64)


def fit(given: Sequence[TurnExample], meant: Numbers) -> Learned:
    """Learn the weights that separate the two classes."""
    held = [wording_features(one.text) for one in given]
    counts = Counter(name for each in held for name in each)
    names = {name: place for place, name in enumerate(sorted(n for n, count in counts.items() if count >= _LEAST))}
    inputs = sparse.hstack([_matrix(held, names) * _WORDS, sparse.csr_matrix(meant * _VECTOR)]).tocsr()
    wanted = np.array([float(one.world) for one in given])
    weights = _regression(inputs, wanted, np.array([one.weight for one in given]), _DECAY)
    return Learned(names, weights[: len(names)] * _WORDS, weights[len(names) : -1] * _VECTOR, float(weights[-1]))


def _regression(inputs: Any, wanted: Numbers, share: Numbers, decay: float) -> Numbers:
    """Return the weights of a logistic regression, the bias last."""
    share = share / share.sum()

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        logits = inputs @ weights[:-1] + weights[-1]
        error = share * (1 / (1 + np.exp(-logits)) - wanted)
        slope = decay * weights[:-1]
        value = (share * (np.logaddexp(0, logits) - wanted * logits)).sum() + slope @ weights[:-1] / 2
        return value, np.r_[inputs.T @ error + slope, error.sum()]

    start = np.zeros(inputs.shape[1] + 1)
    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x)


def scores(given: Sequence[TurnExample], meant: Numbers, learned: Learned) -> Numbers:
    """Return the logit of each question."""
    words = _matrix([wording_features(one.text) for one in given], learned.names) @ learned.words
    return np.asarray(words + meant @ learned.vector + learned.bias)


def _matrix(held: Sequence[frozenset[str]], names: dict[str, int]) -> sparse.csr_matrix:
    rows, columns, values = [], [], []
    for row, each in enumerate(held):
        own = [names[name] for name in each if name in names]
        rows += [row] * len(own)
        columns += own
        values += [max(len(own), 1) ** -0.5] * len(own)
    return sparse.csr_matrix((values, (rows, columns)), shape=(len(held), len(names)))


def told_apart(given: Sequence[TurnExample], meant: Numbers) -> tuple[list[TurnExample], Numbers]:
    """Return the questions without those to archives that sound like the world."""
    own = [place for place, one in enumerate(given) if one.own]
    sounds = scores(given, meant, fit([given[place] for place in own], meant[own]))
    kept = [place for place, one in enumerate(given) if one.own or one.world or one.collection or sounds[place] < 0]
    return [given[place] for place in kept], meant[kept]


def left_out(given: Sequence[TurnExample], meant: Numbers) -> Numbers:
    """Return each question's logit by weights learned without its collection, or without its fold of lines."""
    names = {one.collection: 0 for one in given if one.collection}
    fold = np.array([-1 if one.collection else 0 for one in given])
    fold[fold == 0] = np.arange((fold == 0).sum()) * _FOLDS * 4 // (fold == 0).sum() % _FOLDS
    for number, name in enumerate(names, _FOLDS):
        fold[[one.collection == name for one in given]] = number
    found = np.zeros(len(given))
    for number in range(_FOLDS + len(names)):
        rest, test = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        if len(test):
            learned = fit([given[int(place)] for place in rest], meant[rest])
            found[test] = scores([given[int(place)] for place in test], meant[test], learned)
    return found


class _Counts:
    """Document frequencies of the terms of a corpus, and the matching scope."""

    def __init__(self, path: Path) -> None:
        self._counts: Counter[str] = Counter()
        languages: Counter[str] = Counter()
        for one in read_paths([path]):
            if isinstance(one, Document):
                text = f"{one.title}\n{one.text}"
                language = detect_language(text, None)
                languages[language] += 1
                self._counts.update({term.text for term in analyse(text, language)})
        self.scope = Scope("", (Collection(1, "", path.parent.name, chunks=languages.total(), languages=languages),))

    async def term_counts(self, _: Scope, terms: Sequence[str], /) -> Mapping[int, Mapping[str, int]]:
        return {1: {term: self._counts[term] for term in terms if self._counts[term]}}


async def asked(folder: Path, given: Sequence[TurnExample]) -> list[TurnQuestion]:
    """Return the questions with a collection's evidence, without those whose stated constraints already decide."""
    ground, counts = corpus_reading_data(folder / "corpus.jsonl"), _Counts(folder / "corpus.jsonl")
    known = vocabulary.build_vocabulary(ground.catalogue)
    kept = []
    for one in given:
        context = ground.context(one.text, question_time(None))
        found = parse_question(
            one.text, known, ground.nouns, context.calendar, context.now, frequencies=context.frequencies
        )
        catalogue = measure_overlap(found)
        if catalogue is not None:
            kept.append(
                TurnQuestion(one, folder.name, await measure_term_coverage(one.text, counts.scope, counts), catalogue)
            )
    return kept


def weigh(given: Sequence[TurnQuestion], wording: Mapping[str, float], counts: Mapping[str, int]) -> Numbers:
    """Learn the weights of `agent.intent.turn.outside_sources.world_features`, the bias last, and print their accuracy.

    Args:
        counts: number of each collection's questions that are not for the web, for the printed error counts.
    """
    inputs = np.array([world_features(wording[one.example.text], one.coverage, one.catalogue) for one in given])
    wanted = np.array([float(one.example.world) for one in given])
    share = np.array([1.0 if one.example.own else _OF_COLLECTION for one in given])
    names = np.array([one.collection for one in given])
    logits = np.zeros(len(given))
    for name in counts:
        test = names == name
        weights = _regression(inputs[~test], wanted[~test], share[~test], _DECAY_OF_SIGNS)
        logits[test] = inputs[test] @ weights[:-1] + weights[-1]
    own = np.array([not one.example.own for one in given])
    for least in (0.5, 0.7, WEB_FROM, 0.9):
        sent = own & (logits >= np.log(least / (1 - least)))
        leaks = int((sent & (wanted == 0)).sum())
        print(
            f"held-out collections, threshold {least}: {int((sent & (wanted > 0)).sum())} questions for the web found, "
            f"{leaks} of {sum(counts.values())} other questions wrongly sent",
            file=sys.stderr,
        )
    return _regression(inputs, wanted, share, _DECAY_OF_SIGNS)


def _rounded(learned: Learned) -> dict[str, Any]:
    words = {name: round(float(learned.words[place]), 2) for name, place in learned.names.items()}
    return {
        "bias": round(learned.bias, 3),
        "vector": [round(one, 2) for one in learned.vector.tolist()],
        "words": {name: weight for name, weight in words.items() if abs(weight) >= _SMALLEST},
    }


def main() -> None:
    """Train and write the weights, and print their accuracy on folds and collections left out."""
    stored: dict[str, Any] = {"world": {}, "talk": {}}
    spoken = list(talk())
    wording: dict[str, float] = {}
    asking = {one.parent for one in READING.glob("*/queries.jsonl")}
    folders = [
        *sorted(one.parent for one in READING.glob("*/corpus.jsonl") if one.parent in asking),
        *map(Path, sys.argv[1:]),
    ]
    of_collections = {folder: list(questions(folder)) for folder in folders}
    for one in (*questions(READING / "turns"), *questions(READING / "negations")):
        of_collections[READING / one.collection].append(one)
    every = [*examples(), *(one for each in of_collections.values() for one in each)]
    for language in ("en", "zh"):
        given = [one for one in every if has_chinese(one.text) == (language == "zh")]
        meant = asyncio.run(vectors(given))
        said = [one for one in spoken if has_chinese(one.text) == (language == "zh")]
        every_turn = [*said, *(one._replace(world=False, own=False, collection="") for one in given)]
        stored["talk"][language] = _rounded(fit(every_turn, np.r_[asyncio.run(vectors(said)), meant]))
        given, meant = told_apart(given, meant)
        logits, world = left_out(given, meant), np.array([one.world for one in given])
        wording |= {one.text: float(logit) for one, logit in zip(given, logits, strict=True)}
        sent = logits > 0
        print(
            f"{language}, wording only, {len(given)} held-out questions: {sent[world].mean():.3f} of those for the web "
            f"are found, {sent[~world].mean():.4f} of the others are wrongly sent",
            file=sys.stderr,
        )
        stored["world"][language] = _rounded(fit(given, meant))
    lines = [one for one in every if one.own]
    rows: list[TurnQuestion] = []
    for place, (folder, own) in enumerate(of_collections.items()):
        rows += asyncio.run(asked(folder, [*own, *random.Random(place).sample(lines, 2 * _LINES)]))
    counts = {folder.name: sum(not one.world for one in own) for folder, own in of_collections.items()}
    stored["signs"] = [round(float(one), 3) for one in weigh(rows, wording, counts)]
    TARGET.write_text(json.dumps(stored, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
