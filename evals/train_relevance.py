"""Train agent/retrieval/relevance.json: `python -m evals.train_relevance FOLDER...`, from the checkout.

Each FOLDER is a dataset in a form of `evals.datasets`. Each collection gets its own questions and questions it cannot
answer: those of the other folders and of `evals/data/unanswerable`. For each kind of evidence, one logistic regression
on the first hits learns which questions the collection answers; another, on the resulting number, learns which hits are
relevant. Each collection is evaluated with coefficients learned from the other collections and with unanswerable
questions not used for training.
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
from agent.retrieval.relevance import SearchScores
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import load_settings
from agent.types import Request
from evals.corpus import TENANT, store_corpus
from evals.datasets import EVERY_SPLIT, Dataset, LabelledQuestion, load
from evals.reading import calibration_error
from retrievers.core.errors import RetrievalError
from retrievers.core.types import ChunkId
from retrievers.embed.embedders import Embedders

ROOT = Path(__file__).parent.parent
UNANSWERABLE = ROOT / "evals" / "data" / "unanswerable"
TARGET = ROOT / "agent" / "retrieval" / "relevance.json"

HITS = 10
"""Number of hits used per question."""
OWN, OF_OTHERS = 300, 60
"""Maximum number of a dataset's questions asked of its own collection, and of each other collection."""
_NO_SEARCH = ("none", "web")
_DECAY = 1e-5
_LOST = 0.02
"""Maximum share of answerable questions that the threshold may call weak."""

Numbers = NDArray[np.float64]
Row = list[float]
Learned = dict[str, Row]


class JudgedHit(NamedTuple):
    """A hit with the features of its strongest search, and whether it is relevant."""

    kind: str
    row: Row
    relevant: bool


@dataclass(frozen=True, slots=True)
class RelevanceExample:
    """One question and its search result.

    Attributes:
        held_out: for an unanswerable question: whether it only evaluates coefficients that are learned without it.
        answerable: whether the collection holds the answer.
        decided: relevance of the best hit if it does not depend on coefficients, else None.
        hits: the first `HITS` hits.
    """

    collection: str
    id: str
    held_out: bool
    answerable: bool
    decided: float | None
    hits: Sequence[JudgedHit]


async def examples_of(datasets: Sequence[Dataset]) -> list[RelevanceExample]:
    """Ask every dataset's questions, and questions it cannot answer, and return the results."""
    made: list[RelevanceExample] = []
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


def unanswerable() -> Iterator[LabelledQuestion]:
    """Yield questions that no collection here can answer: nonsense, and questions in other languages."""
    for file in sorted(UNANSWERABLE.glob("*.txt")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
            yield LabelledQuestion(f"{file.stem}/{number}", line, "en")


async def _asked(
    service: Service, collection: str, question: LabelledQuestion, answerable: bool, *, held_out: bool
) -> RelevanceExample | None:
    """Ask a question; return its example, or None if nothing was searched or the search failed."""
    turns = (*question.history, {"role": "user", "content": question.text}) if answerable else None
    request = Request.model_validate(
        {"collection": collection, "now": question.now or datetime.now(UTC)}
        | ({"messages": turns} if turns else {"query": question.text})
    )
    pipeline = service.pipeline
    try:
        result, decision = await pipeline.retrieve_with_record(TENANT, request)
    except RetrievalError as error:
        _note(f"question {question.id}: {error}")
        return None
    if result.intent.kind == "none" or decision.search_results is None:
        return None
    found = decision.search_results
    decided = 1.0 if result.table is not None or any(hit.relevance == 1.0 for hit in result.hits) else None
    texts = [one for one in found.answers if one.query is not None and one.step.source in ("fulltext", "vector")]
    evidence = await relevance.collect_search_scores(
        texts, result.intent, decision.scope, pipeline.catalogue, pipeline.sources, Embedders.of(pipeline.embedder),
        satisfied=relevance.satisfies_constraints(found),
    )  # fmt: skip
    relevant = question.relevant if answerable else {}
    hits = [
        JudgedHit(kind, row, hit.id.document_id in relevant)
        for hit in decision.ranking[:HITS]
        for kind, row in _strongest(evidence, hit.id)
    ]
    return RelevanceExample(collection, question.id, held_out, answerable, decided, hits)


def _strongest(evidence: Sequence[SearchScores], id: ChunkId) -> list[tuple[str, Row]]:
    """Return [(kind, features)] of the search with the strongest evidence for a hit; [] without evidence."""
    rows = [(one.kind, relevance.score_features(one, [id])[0].tolist()) for one in evidence if one.kind]
    return [max(rows, key=lambda one: sum(one[1]))] if rows else []


def fit(examples: Sequence[RelevanceExample]) -> Learned:
    """Learn the coefficients of each kind of evidence from the first hit of every question.

    The feature weights separate the questions a collection answers from the others, because that is what `weak` states
    and because not every relevant document has been judged. The sum is then scaled to the share of relevant hits. All
    collections have equal weight, and within each the answerable and the unanswerable questions have equal weight.

    Returns:
        Coefficients by kind of evidence, the constant last.
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


def _by_meaning(example: RelevanceExample) -> RelevanceExample:
    """Return the example as if only the vector search had run; the datasets have few such questions."""
    hits = [JudgedHit("near", hit.row[1:], hit.relevant) for hit in example.hits if hit.kind == "words+near"]
    return replace(example, hits=hits)


def _regression(inputs: Numbers, labels: Sequence[bool], groups: Sequence[tuple[str, bool]]) -> Numbers:
    """Return the coefficients of a logistic regression; the last column of `inputs` must be 1, for the constant.

    Args:
        groups: the group of each row; every group has the same total weight.
    """
    wanted = np.array(labels, dtype=float)
    sizes = Counter(groups)
    share = np.array([1 / sizes[group] / len(sizes) for group in groups])

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        told = inputs @ weights
        size = np.append(weights[:-1], 0.0)
        slope = inputs.T @ (share * (1 / (1 + np.exp(-told)) - wanted))
        return float(share @ (np.logaddexp(0, told) - wanted * told) + _DECAY * size @ size), slope + 2 * _DECAY * size

    return np.asarray(minimize(loss, np.zeros(inputs.shape[1]), jac=True, method="L-BFGS-B").x)


def predicted_relevances(
    example: RelevanceExample, coefficients: Learned, most: int = HITS
) -> list[tuple[float, bool]]:
    """Return for each of the first hits its predicted relevance, in [0, 1], and whether it is relevant.

    Hits whose kind of evidence has no coefficients are left out.

    Args:
        most: maximum number of hits.
    """
    known = [hit for hit in example.hits[:most] if hit.kind in coefficients]
    return [
        (float(relevance.predict_relevance(np.array([hit.row]), coefficients[hit.kind])[0]), hit.relevant)
        for hit in known
    ]


def best(example: RelevanceExample, coefficients: Learned) -> float:
    """Return the highest predicted relevance of the hits; 0 without hits."""
    if example.decided is not None:
        return example.decided
    return max((one for one, _ in predicted_relevances(example, coefficients)), default=0.0)


def threshold(examples: Sequence[RelevanceExample], coefficients: Learned) -> float:
    """Return the highest threshold that calls at most the share `_LOST` of the answerable questions weak.

    A question is weak if its best hit is below the threshold. All collections have equal weight.
    """
    known = sorted((best(one, coefficients), one.collection) for one in examples if one.answerable)
    sizes = Counter(name for _, name in known)
    lost = 0.0
    for score, name in known:
        lost += 1 / sizes[name] / len(sizes)
        if lost > _LOST:
            return score
    return 0.0


def report(examples: Sequence[RelevanceExample]) -> None:
    """Print, for each collection, the accuracy of coefficients and threshold learned from the others."""
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
        error = calibration_error([pair for one in here for pair in predicted_relevances(one, coefficients, 1)])
        shares = "".join(f"{np.mean(weak[kind]):>12.3f} of{len(weak[kind]):>4}" for kind in (False, True))
        print(f"{name:<14}{least:>10.3f}{shares}{error or 0:>20.3f}")
        every += [(kind, one) for kind in weak for one in weak[kind]]
    for kind, said in ((False, "unanswerable"), (True, "own")):
        print(f"weak of all {said}: {np.mean([weak for one, weak in every if one is kind]):.3f}")


def main(folders: Sequence[str]) -> None:
    """Ask the questions, print the evaluation and write the coefficients."""
    datasets = [load(Path(one), EVERY_SPLIT if not (Path(one) / "qrels").is_dir() else "test") for one in folders]
    examples = asyncio.run(examples_of(datasets))
    report(examples)
    write(examples)


def write(examples: Sequence[RelevanceExample]) -> None:
    """Learn the coefficients from all examples and write them with the threshold."""
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
