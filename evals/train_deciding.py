"""Train agent/intent/weights.json: `python -m evals.train_deciding [FOLDER...]`, from the checkout, three minutes.

Boosted trees learn from the evidence of every candidate, which is a value that a question of the development
collections may state as a condition. A candidate is right if every gold filter has it, and wrong if none has. Second
trees then learn from the scores that the first trees give to a candidate and to the other candidates of its question.
These scores, the evaluation and the calibration of the probabilities use trees that were trained without the
candidate's collection: a third of the collections is left out at a time. The collections of evals/data/deciding are
used for nothing else. Each FOLDER is a further collection in the form of those in evals/data/reading.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import lightgbm
import numpy as np
from numpy.typing import NDArray

from agent.intent.conditions.flags import flag_candidates
from agent.intent.conditions.question_parser import parse_question
from agent.intent.deciding.candidate_scoring import field_candidates, joint_features
from agent.intent.deciding.cooccurrence_features import COOCCURRENCE_FEATURES
from agent.intent.deciding.features import extract_features
from agent.intent.language import calculation_patterns
from agent.intent.reading import BOOSTS_FROM, FILTERS_FROM
from agent.intent.topic.question_parts import split_questions
from agent.intent.values import vocabulary
from evals.reading import calibration_error
from evals.reading_data import ReadingData, catalogue_reading_data, corpus_reading_data, question_time

ROOT = Path(__file__).parent.parent
DATA = ROOT / "evals" / "data"
READING, MORE, DECIDING, SAMPLE = (DATA / name for name in ("reading", "reading-more", "deciding", "sample"))
INVENTED = ROOT / "tests" / "agent" / "intent_data"
SHARED = ROOT.parent / "shared" / "data"
TARGET = ROOT / "agent" / "intent" / "weights.json"
_SETTINGS: Mapping[str, Any] = {
    "objective": "binary", "learning_rate": 0.06, "min_data_in_leaf": 5, "lambda_l2": 4.0, "num_iterations": 300,
    "feature_fraction": 0.3, "bagging_fraction": 0.7, "bagging_freq": 1, "verbose": -1, "seed": 7, "num_threads": 1,
    "deterministic": True,
}  # fmt: skip
_KINDS: Sequence[Mapping[str, Any]] = ({"num_leaves": 31}, {"num_leaves": 63, "extra_trees": True})
"""Two kinds of trees: best-fitting splits, and larger trees with random splits.

On collections left out, both together are more accurate than either alone.
"""
_AMONG: Sequence[Mapping[str, Any]] = (
    {"num_leaves": 8, "min_data_in_leaf": 40, "learning_rate": 0.03, "feature_fraction": 0.7, "num_iterations": 200},
)
_PARTS = 3
_LEAST, _LEAST_COLLECTIONS = 20, 12
"""Minimum number of examples, and of collections, in which a feature must occur."""
Numbers = NDArray[np.float64]
Json = dict[str, Any]


@dataclass(frozen=True)
class MentionExample:
    """One candidate of a question with its extract_features, and whether the question states it as a condition.

    Attributes:
        group: the collection.
        held: the features: number by name.
        right: whether every gold filter has the candidate.
        question: identifies the question within the group.
        first: index of the first token of the candidate's words in the question.
        is_flag: whether the candidate is a true/false field; only the first trees judge such candidates.
        tokens: number of tokens of the question.
        documents: whether it has evidence from documents, see `with_and_without`; None if there is no such evidence.
    """

    group: str
    held: Mapping[str, float]
    right: bool
    weight: float
    question: str
    first: int
    is_flag: bool
    tokens: int
    documents: bool | None = None


class Example(Protocol):
    """What trees learn from: the features of a candidate, whether it is right, its collection and its weight."""

    @property
    def group(self) -> str: ...
    @property
    def held(self) -> Mapping[str, float]: ...
    @property
    def right(self) -> bool: ...
    @property
    def weight(self) -> float: ...


def leaves_of(wanted: Json | None) -> set[tuple[str, str]]:
    """Return the (field, value) pairs of a filter."""
    if wanted is None:
        return set()
    inner = wanted.get("filters") or ([wanted["filter"]] if "filter" in wanted else None)
    if inner is not None:
        return set().union(*map(leaves_of, inner))
    value = wanted["value"]
    values = value if isinstance(value, list) else [value]
    return {(wanted["key"], str(one).casefold() if isinstance(one, bool) else str(one)) for one in values}


def examples_of(group: str, ground: ReadingData, questions: Sequence[Json], weight: float) -> Iterator[MentionExample]:
    """Yield the candidates of questions without earlier turns; those that only some gold filters have are left out."""
    known = vocabulary.build_vocabulary(ground.catalogue)
    for number, question in enumerate(questions):
        golds = [leaves_of(one) for one in question["filters"]]
        every, some = set.intersection(*golds), set.union(*golds)
        context = ground.context(question["text"], question_time(question.get("now")))
        for counted in (False, True) if question.get("answer") is not None or question.get("aggregate") else (False,):
            sentence = parse_question(
                question["text"], known, ground.nouns, context.calendar, context.now, (), counts_documents=counted,
                frequencies=context.frequencies,
            ).sentence  # fmt: skip
            named = [
                (one, extract_features(sentence, one))
                for each in sentence.mentions
                for one in field_candidates(sentence, each)
            ]
            named += [(one.candidate, held) for one, held in flag_candidates(sentence)]
            for one, held in named:
                if one.matches[0].kind == "flag":  # a negated flag is also a condition: that the field is false
                    pairs = {pair for pair in some if pair[0] == one.field}
                    right = all(any(pair in gold for pair in pairs) for gold in golds)
                else:
                    pairs = {(one.field, value.value) for value in one.matches}
                    right = bool(pairs & every)
                if right or not pairs & some:
                    what = f"{question['text']} {number} {counted}"
                    is_flag = one.matches[0].kind == "flag"
                    tokens = len(sentence.tokens)
                    yield MentionExample(group, held, right, weight, what, one.mention.first, is_flag, tokens)


def with_and_without(examples: Iterable[MentionExample]) -> Iterator[MentionExample]:
    """Yield each example; those with evidence from documents twice, with and without it, each at half the weight.

    Otherwise trees would learn that a candidate without this evidence is less probable. But a scope may have too many
    documents to compute it, and a person may ask for two values that never occur together.
    """
    for one in examples:
        without = {name: value for name, value in one.held.items() if name not in COOCCURRENCE_FEATURES}
        if len(without) == len(one.held):
            yield one
        else:
            yield replace(one, weight=one.weight / 2, documents=True)
            yield replace(one, weight=one.weight / 2, documents=False, held=without)


def _lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _labelled(path: Path, split: str = "") -> list[Json]:
    kept = [
        one
        for one in _lines(path)
        if not one.get("history")
        and one.get("filters") != []
        # With a share ("how many of ..."), some conditions are not a filter; with two questions in one, the conditions
        # of each do not apply to both.
        and not calculation_patterns.SHARE.search(one["text"])
        and len(split_questions(one["text"])) == 1
        and one.get("class") not in ("web", "world", "smalltalk")
        and (not split or one.get("split") == split)
    ]
    return [{**one, "filters": one.get("filters", [one.get("filter")])} for one in kept]


def _of_folder(folder: Path) -> Iterator[tuple[str, ReadingData, list[Json], float]]:
    """Yield the sets of a folder, one for each collection that its questions name; the default is the folder's own.

    The items are those of `sets`.
    """
    by_name: dict[str, list[Json]] = {}
    for one in _labelled(folder / "queries.jsonl"):
        by_name.setdefault(one.get("collection") or folder.name, []).append(one)
    for name, questions in by_name.items():
        own = folder / "corpus.jsonl"
        yield name, corpus_reading_data(own if own.is_file() else folder.parent / name / "corpus.jsonl"), questions, 3.0


def sets(folders: Sequence[Path]) -> Iterator[tuple[str, ReadingData, list[Json], float]]:
    """Yield every development set: (group, data to read its questions against, questions, weight per candidate)."""
    written = (sorted(one.parent for one in kind.glob("*/queries.jsonl")) for kind in (READING, DECIDING))
    for folder in (*chain.from_iterable(written), *folders):
        yield from _of_folder(folder)
    for domain in ("city", "hospital", "food", "venues", "apps", "flats", "freight"):
        ground = catalogue_reading_data(INVENTED / f"{domain}.catalogue.json")
        for path in (INVENTED / f"{domain}{part}.jsonl" for part in ("", "_more", "_forms")):
            if path.is_file():
                yield domain, ground, _labelled(path), 1.0
    yield "sample", corpus_reading_data(SAMPLE / "corpus.jsonl"), _labelled(SAMPLE / "queries.jsonl"), 1.0
    if SHARED.is_dir():
        peps = corpus_reading_data(SHARED / "peps" / "corpus.jsonl")
        yield "peps", peps, _labelled(SHARED / "peps" / "queries.jsonl", "dev"), 12.0
        for name in ("peps", "peps_more", "peps_blind", "peps_forms", "peps_spoken"):
            yield "peps", peps, _labelled(INVENTED / f"{name}.jsonl"), 10.0
        named = [one for one in _lines(SHARED / "named-sources" / "questions.jsonl") if one["id"][-1] in "02468ace"]
        questions = [{**one, "filters": [{"type": "in", "key": "source", "value": one["sources"]}]} for one in named]
        yield "named-sources", corpus_reading_data(SHARED / "named-sources" / "corpus.jsonl"), questions, 4.0
    for folder in sorted(one.parent for one in MORE.glob("*/queries.jsonl")):
        yield from _of_folder(folder)


def known_features(examples: Sequence[Example]) -> list[str]:
    """Return the features that occur in at least `_LEAST` examples and `_LEAST_COLLECTIONS` collections, sorted."""
    counts: Counter[str] = Counter()
    groups: dict[str, set[str]] = {}
    for one in examples:
        for name, value in one.held.items():
            if value:
                counts[name] += 1
                groups.setdefault(name, set()).add(one.group)
    return sorted(name for name, count in counts.items() if count >= _LEAST and len(groups[name]) >= _LEAST_COLLECTIONS)


def matrix(held: Iterable[Mapping[str, float]], features: Sequence[str]) -> Numbers:
    """Return features as a matrix with a row per candidate and a column per feature; 0 if a candidate lacks it."""
    return np.array([[one.get(name, 0.0) for name in features] for one in held])


def among(examples: Sequence[MentionExample], logits: Sequence[float]) -> list[dict[str, float]]:
    """Return for each example the features of `joint_features`, by which the second trees judge it.

    Args:
        logits: the first trees' logit of each example.
    """
    questions: dict[tuple[str, str, bool], dict[int, list[int]]] = {}
    for place, one in enumerate(examples):
        for documents in (True, False) if one.documents is None else (one.documents,):
            names = questions.setdefault((one.group, one.question, documents), {})
            names.setdefault(one.first, []).append(place)
    found = []
    for place, one in enumerate(examples):
        names = questions[one.group, one.question, one.documents is not False]
        said = {first: [logits[each] for each in places] for first, places in names.items()}
        found.append(joint_features(said, one.first, names[one.first].index(place), one.tokens))
    return found


def fit(rows: Numbers, examples: Sequence[Example], kinds: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return boosted trees, one model for each of `kinds`, which are settings of LightGBM."""
    right, weights = [one.right for one in examples], [one.weight for one in examples]
    return [lightgbm.train({**_SETTINGS, **kind}, lightgbm.Dataset(rows, right, weight=weights)) for kind in kinds]


def scores_of(trees: Sequence[Any], rows: Numbers) -> Numbers:
    """Return for each row the mean of the models' raw scores."""
    scores: Numbers = np.mean([kind.predict(rows, raw_score=True) for kind in trees], axis=0)
    return scores


def left_out(rows: Numbers, examples: Sequence[Example], kinds: Sequence[Mapping[str, Any]]) -> Numbers:
    """Return the raw score of each example by trees trained without its collection."""
    scores = np.zeros(len(examples))
    groups = sorted({one.group for one in examples})
    for part in (set(groups[first::_PARTS]) for first in range(_PARTS)):
        inside = np.array([one.group in part for one in examples])
        trees = fit(rows[~inside], [one for one in examples if one.group not in part], kinds)
        scores[inside] = scores_of(trees, rows[inside])
    return scores


def learn(
    held: Sequence[Mapping[str, float]],
    examples: Sequence[Example],
    features: Sequence[str],
    kinds: Sequence[Mapping[str, Any]],
    *,
    by_weight: bool = False,
) -> tuple[Json, Numbers]:
    """Return trees as `parse_trees` reads them, and each example's logit by trees trained without its collection.

    Args:
        by_weight: whether the probabilities are calibrated by the weights of the examples, or by their number.
    """
    rows = matrix(held, features)
    scores = left_out(rows, examples, kinds)
    weights = np.array([one.weight if by_weight else 1.0 for one in examples])
    scale, shift = fitted(scores, np.array([one.right for one in examples], float), weights).tolist()
    trees = fit(rows, examples, kinds)
    made = {
        "signs": features,
        "trees": [stored(tree["tree_structure"]) for kind in trees for tree in kind.dump_model()["tree_info"]],
        "scale": round(scale / len(kinds), 3),
        "shift": round(shift, 3),
    }
    return made, scale * scores + shift


def fitted(inputs: Numbers, wanted: Numbers, weights: Numbers) -> Numbers:
    """Return the factors of a logistic regression on the columns and a constant, by Newton's method.

    Args:
        weights: of the rows.
    """
    inputs = np.c_[inputs, np.ones(len(inputs))]
    found = np.zeros(inputs.shape[1])
    found[0] = 1.0
    for _ in range(30):
        guess = 1 / (1 + np.exp(-(inputs @ found)))
        curve = (inputs.T * (guess * (1 - guess) * weights)) @ inputs + 1e-3 * np.eye(len(found))
        found = found - np.linalg.solve(curve, inputs.T @ ((guess - wanted) * weights))
    return found


def stored(node: Json) -> Any:
    """Return a tree in the form that `decision_trees.parse_trees` reads."""
    if "leaf_value" in node:
        return round(node["leaf_value"], 4)
    bound = round(node["threshold"], 4)
    return [node["split_feature"], bound, stored(node["left_child"]), stored(node["right_child"])]


def report(examples: Sequence[Example], chances: Numbers) -> None:
    """Print accuracy and calibration of the held-out probabilities, by collection."""
    for group in [*dict.fromkeys(one.group for one in examples), ""]:
        places = [place for place, one in enumerate(examples) if group in ("", one.group)]
        right = np.array([examples[place].right for place in places])
        chance = chances[places]
        sure = chance >= FILTERS_FROM
        print(
            f"{group or 'all':14} {len(places):5} candidates, {right.sum():4} meant: "
            f"accuracy {np.mean((chance >= BOOSTS_FROM) == right):.3f}, recall of sure {np.mean(sure[right]):.3f}, "
            f"wrong among sure {np.mean(~right[sure]) if sure.any() else 0:.3f}, "
            f"calibration error {calibration_error(zip(chance.tolist(), right.tolist(), strict=True))}",
            file=sys.stderr,
        )


def main() -> None:
    """Train and write the weights, and print their accuracy on collections left out."""
    folders = [Path(one) for one in sys.argv[1:]]
    examples = list(with_and_without(one for each in sets(folders) for one in examples_of(*each)))
    alone, logits = learn([one.held for one in examples], examples, known_features(examples), _KINDS)
    names = [one for one in examples if not one.is_flag]
    held = among(names, [logit for logit, one in zip(logits.tolist(), examples, strict=True) if not one.is_flag])
    others, logits = learn(held, names, sorted(held[0]), _AMONG)
    report(names, 1 / (1 + np.exp(-logits)))
    TARGET.write_text(json.dumps({"alone": alone, "among": others}, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
