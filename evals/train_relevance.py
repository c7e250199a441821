"""Makes agent/retrieval/relevance.json: `python -m evals.train_relevance FOLDER...`, from the checkout.

Each FOLDER is a dataset in one of the forms of `evals.datasets`. Its questions are asked of its own collection, and
questions that it cannot answer: those of the other folders, and of `evals/data/unanswerable`. For each kind of evidence
a logistic regression of the first hits learns which questions the collection answers, and another, of that one number,
which hits are judged relevant. What this is worth is told for every collection by coefficients that were learned from
the others, over unanswerable questions that they have not seen.
"""

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from agent.retrieval import relevance
from agent.retrieval.relevance import SearchEvidence
from agent.service.opening import open_service
from agent.service.service import Service
from agent.settings import load_settings
from agent.types import Request
from evals.corpus import TENANT, store_corpus
from evals.datasets import EVERY_SPLIT, Dataset, Question, load
from evals.reading import calibration_error
from retrievers.core.errors import RetrievalError
from retrievers.core.types import ChunkId
from retrievers.embed.pool import Embedders

ROOT = Path(__file__).parent.parent
UNANSWERABLE = ROOT / "evals" / "data" / "unanswerable"
TARGET = ROOT / "agent" / "retrieval" / "relevance.json"

HITS = 10
"""Hits of a question that are learned from."""
OWN, OF_OTHERS = 300, 60
"""Most questions of a dataset that are asked of its own collection, and of another."""
_NO_SEARCH = ("none", "web")
_DECAY = 1e-5
_LOST = 0.02
"""Share of the answerable questions that the threshold may lose."""

Numbers = NDArray[np.float64]
Row = list[float]
Learned = dict[str, Row]


class Seen(NamedTuple):
    """A hit as the search that speaks most for it sees it, and whether it is judged relevant."""

    kind: str
    row: Row
    relevant: bool


@dataclass(frozen=True, slots=True)
class Example:
    """One question as it was answered.

    Attributes:
        held_out: whether figures are of it: no coefficient is learned from it for them.
        answerable: whether the collection has what was asked for.
        decided: the relevance of the best hit where that does not depend on coefficients, else None.
        hits: the first ones.
    """

    collection: str
    id: str
    held_out: bool
    answerable: bool
    decided: float | None
    hits: Sequence[Seen]


async def examples_of(datasets: Sequence[Dataset]) -> list[Example]:
    """The questions of every dataset, and what its collection cannot answer, asked."""
    made: list[Example] = []
    async with open_service(load_settings({})) as service:
        for dataset in datasets:
            await store_corpus(service, dataset, _note)
            chosen = random.Random(1)
            own = chosen.sample(dataset.questions, min(len(dataset.questions), OWN))
            asked = [(one, True) for one in own if one.relevant and one.klass not in _NO_SEARCH]
            for other in datasets:
                if other.name != dataset.name:
                    known = [one for one in other.questions if one.klass in (None, "semantic", "keyword")]
                    asked += [(one, False) for one in chosen.sample(known, min(len(known), OF_OTHERS))]
            asked += [(one, False) for one in unanswerable()]
            for place, (question, answerable) in enumerate(asked):
                example = await _asked(service, dataset.name, question, answerable, held_out=place % 2 == 1)
                made += [example] if example is not None else []
            _note(f"{dataset.name}: {len(asked)} questions asked")
    return made


def unanswerable() -> Iterator[Question]:
    """Questions that no collection here can answer: nonsense, and those in other languages."""
    for file in sorted(UNANSWERABLE.glob("*.txt")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
            yield Question(f"{file.stem}/{number}", line, "en")


async def _asked(
    service: Service, collection: str, question: Question, answerable: bool, *, held_out: bool
) -> Example | None:
    """The question as answered; None where nothing was searched for."""
    turns = (*question.history, {"role": "user", "content": question.text}) if answerable else None
    request = Request.model_validate(
        {"collection": collection, "now": question.now or datetime.now(UTC)}
        | ({"messages": turns} if turns else {"query": question.text})
    )
    pipeline = service.pipeline
    try:
        result, decision = await pipeline.decide(TENANT, request)
    except RetrievalError as error:
        _note(f"question {question.id}: {error}")
        return None
    if result.intent.kind == "none" or decision.found is None:
        return None
    found = decision.found
    decided = 1.0 if result.table is not None or any(hit.relevance == 1.0 for hit in result.hits) else None
    texts = [one for one in found.answers if one.query is not None and one.step.source in ("fulltext", "vector")]
    evidence = await relevance.gather(
        texts, result.intent, decision.scope, pipeline.catalogue, pipeline.sources, Embedders.of(pipeline.embedder),
        satisfied=relevance.satisfies(found),
    )  # fmt: skip
    relevant = question.relevant if answerable else {}
    hits = [
        Seen(kind, row, hit.id.document_id in relevant)
        for hit in decision.ranking[:HITS]
        for kind, row in _strongest(evidence, hit.id)
    ]
    return Example(collection, question.id, held_out, answerable, decided, hits)


def _strongest(evidence: Sequence[SearchEvidence], id: ChunkId) -> list[tuple[str, Row]]:
    """The evidence of the search that speaks most for a hit."""
    rows = [(one.kind, relevance.features(one, [id])[0].tolist()) for one in evidence if one.kind]
    return [max(rows, key=lambda one: sum(one[1]))] if rows else []


def fit(examples: Sequence[Example]) -> Learned:
    """The coefficients for each kind of evidence, learned from the first hit of every question.

    What tells the questions that a collection answers from all others weighs the features: `weak` says no more, and not
    every relevant document has been judged. The sum is then brought to the share of relevant hits. Every collection
    counts the same, and in it what it can answer as much as the rest.
    """
    firsts = [(hit, one) for one in [*examples, *map(_by_meaning, examples)] for hit in one.hits[:1]]
    coefficients = {}
    for kind in sorted({hit.kind for hit, _ in firsts}):
        known = [(hit, one) for hit, one in firsts if hit.kind == kind and one.decided is None]
        groups = [(one.collection, one.answerable) for _, one in known]
        if {one.answerable for _, one in known} == {True, False}:
            rows = np.array([hit.row for hit, _ in known])
            weights = _regression(rows, [one.answerable for _, one in known], groups)
            sums = np.stack([rows @ weights, np.ones(len(rows))], axis=1)
            slope, start = _regression(sums, [hit.relevant for hit, _ in known], groups)
            weights *= slope
            weights[-1] += start
            coefficients[kind] = [round(one, 3) for one in weights.tolist()]
    return coefficients


def _by_meaning(example: Example) -> Example:
    """The question as if nobody had searched by words: few questions of the datasets are asked so."""
    hits = [Seen("near", hit.row[1:], hit.relevant) for hit in example.hits if hit.kind == "words+near"]
    return replace(example, hits=hits)


def _regression(inputs: Numbers, labels: Sequence[bool], groups: Sequence[tuple[str, bool]]) -> Numbers:
    """Coefficients of the columns, the last a constant; the rows of one group count together as those of any."""
    wanted = np.array(labels, dtype=float)
    sizes = Counter(groups)
    share = np.array([1 / sizes[group] / len(sizes) for group in groups])

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        told = inputs @ weights
        size = np.append(weights[:-1], 0.0)
        slope = inputs.T @ (share * (1 / (1 + np.exp(-told)) - wanted))
        return float(share @ (np.logaddexp(0, told) - wanted * told) + _DECAY * size @ size), slope + 2 * _DECAY * size

    return np.asarray(minimize(loss, np.zeros(inputs.shape[1]), jac=True, method="L-BFGS-B").x)


def told(example: Example, coefficients: Learned, most: int = HITS) -> list[tuple[float, bool]]:
    """The relevance of the first hits, and whether each is relevant."""
    known = [hit for hit in example.hits[:most] if hit.kind in coefficients]
    return [(float(relevance.weighed(np.array([hit.row]), coefficients[hit.kind])[0]), hit.relevant) for hit in known]


def best(example: Example, coefficients: Learned) -> float:
    """The relevance of the most relevant hit."""
    if example.decided is not None:
        return example.decided
    return max((one for one, _ in told(example, coefficients)), default=0.0)


def threshold(examples: Sequence[Example], coefficients: Learned) -> float:
    """The highest at which no more than `_LOST` of the answerable questions are weak; collections count the same."""
    known = sorted((best(one, coefficients), one.collection) for one in examples if one.answerable)
    sizes = Counter(name for _, name in known)
    lost = 0.0
    for score, name in known:
        lost += 1 / sizes[name] / len(sizes)
        if lost > _LOST:
            return score
    return 0.0


def report(examples: Sequence[Example]) -> None:
    """What coefficients and threshold learned from the other collections are worth on each."""
    every: list[tuple[bool, bool]] = []
    print(f"{'collection':<14}{'threshold':>10}{'unanswerable, weak':>20}{'own, weak':>18}{'calibration error':>20}")
    for name in dict.fromkeys(one.collection for one in examples):
        others = [one for one in examples if one.collection != name and (one.answerable or not one.held_out)]
        coefficients = fit(others)
        least = threshold(others, coefficients)
        here = [one for one in examples if one.collection == name and (one.answerable or one.held_out)]
        weak = {
            kind: [best(one, coefficients) < least for one in here if one.answerable is kind] for kind in (True, False)
        }
        error = calibration_error([pair for one in here for pair in told(one, coefficients, 1)])
        shares = "".join(f"{np.mean(weak[kind]):>12.3f} of{len(weak[kind]):>4}" for kind in (False, True))
        print(f"{name:<14}{least:>10.3f}{shares}{error or 0:>20.3f}")
        every += [(kind, one) for kind in weak for one in weak[kind]]
    for kind, said in ((False, "unanswerable"), (True, "own")):
        print(f"weak of all {said}: {np.mean([weak for one, weak in every if one is kind]):.3f}")


def main(folders: Sequence[str]) -> None:
    """Ask, fit, report and write."""
    datasets = [load(Path(one), EVERY_SPLIT if not (Path(one) / "qrels").is_dir() else "test") for one in folders]
    examples = asyncio.run(examples_of(datasets))
    report(examples)
    write(examples)


def write(examples: Sequence[Example]) -> None:
    """The coefficients learned from all."""
    coefficients = fit(examples)
    made = {
        "found": round(threshold(examples, coefficients), 3),
        "coefficients": coefficients,
    }
    TARGET.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def _note(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
