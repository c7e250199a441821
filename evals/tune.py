"""Find fusion settings, a ranker and a minimum relevance on some questions of a collection; verify them on others.

Every question is searched once; all comparisons reuse these searches.
"""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.answering.decision_record import DecisionRecord
from agent.errors import BadSetting
from agent.pipeline import Pipeline
from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank import ltr
from agent.retrieval.rerank.ltr_features import NAMES, compute_ltr_features
from agent.retrieval.rerank.stage import RERANK_POOL
from agent.retrieval.search_stage import SearchResults
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from agent.types import Request
from evals import metrics, ranker_fitting
from evals.corpus import TENANT, Note, store_corpus
from evals.datasets import Dataset, LabelledQuestion, load, splits
from evals.question_runner import request_for
from evals.ranker_fitting import METRIC, RankingExample
from evals.significance import PairedDifference, paired_difference
from evals.threshold import JudgedHits, tune_threshold
from retrievers.core.errors import BadRequest, RetrievalError

MOST_QUESTIONS = 1000
"""Maximum number of questions of each part, so that a large dataset does not take hours."""

_DEPTHS = (50, 100, 200)
_WEIGHTS = tuple(round(0.05 * step, 2) for step in range(21))
_LEAST_QUESTIONS = 2
_SEED = 20261120
_LINE_EVERY_S = 5.0
# A long timeout: truncated results would be learned from.
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class QuestionSplits:
    """The questions to tune on and those to verify with, and the origin of each part."""

    dataset: Dataset
    tune: Sequence[LabelledQuestion]
    verify: Sequence[LabelledQuestion]
    tune_from: str
    verify_from: str


@dataclass(frozen=True, slots=True)
class _Searched:
    question: LabelledQuestion
    decision: DecisionRecord
    found: SearchResults
    hits: JudgedHits


def split_questions(folder: Path, *, limit: int = MOST_QUESTIONS) -> QuestionSplits:
    """Return the labelled questions of a folder in two parts: `train` or `dev`, and `test`.

    If either part is missing, the questions are split into two random halves, always the same way. Questions without a
    relevant document are left out.

    Args:
        limit: maximum number of questions of each part, drawn at random.
    Raises:
        BadRequest: the folder is no dataset, or has too few labelled questions.
    """
    known = splits(folder)
    first = next((split for split in ("train", "dev") if split in known), None)
    if first is not None and "test" in known:
        dataset = load(folder, "test")
        tune, verify = _labelled(load(folder, first)), _labelled(dataset)
        names = (f"split {first}", "split test")
    else:
        dataset = load(folder, "test" if "test" in known or not known else known[0])
        shuffled = random.Random(_SEED).sample(every := _labelled(dataset), len(every))
        tune, verify = shuffled[: len(every) // 2], shuffled[len(every) // 2 :]
        names = (f"a random half of split {dataset.split}", "the other half")
    if min(len(tune), len(verify)) < _LEAST_QUESTIONS:
        raise BadRequest(
            f"{folder}: {len(tune)} questions to tune on ({names[0]}) and {len(verify)} to verify with ({names[1]}): "
            f"each part needs at least {_LEAST_QUESTIONS} with relevant documents",
            where="dataset",
        )
    drawn = random.Random(_SEED)
    tune, verify = (drawn.sample(part, min(limit, len(part))) for part in (tune, verify))
    return QuestionSplits(dataset, tune, verify, *names)


def _labelled(dataset: Dataset) -> list[LabelledQuestion]:
    return [question for question in dataset.questions if question.relevant]


async def tune(given: QuestionSplits, settings: Settings, note: Note, *, out: Path) -> dict[str, Any]:
    """Find fusion settings, a ranker and a minimum relevance on one part of the questions; verify them on the other.

    A change is recommended only if the 95 % confidence interval of its gain on unseen questions lies above zero. The
    ranker is written only if it is recommended. For a fusion, the unseen questions are those of `given.verify`. For the
    ranker, those of `given.tune` are added, each ranked by a ranker that cross-validation trained without it; and the
    ranker must gain on both parts.

    Args:
        settings: the baseline; settings that are not tuned keep these values.
        out: file of the ranker.
    Returns:
        JSON values: `fusion` and `ltr`, each with `before` and `after` (nDCG@10 of both parts), `difference` on the
            part to verify with, and `helps`; for `ltr` also `pooled`, the difference on all questions, or only the
            `reason` if no ranker was trained; `threshold`, see `evals.threshold`; and `settings`, the recommended
            changes.
    Raises:
        BadRequest: the dataset cannot be used with these settings.
        Unavailable: a dependency is down, or no question could be answered.
    """
    metrics.require_ir_measures()
    slow: dict[str, Any] = {
        "timeout_s": _TIMEOUT_S,
        "source_timeout_s": _TIMEOUT_S,
        "depth": max(*_DEPTHS, settings.depth),
    }
    # The results of a further round depend on the ranking that is being tuned.
    slow["max_rounds"] = 1
    # Stages after the fusion are not used here; they may cost money, or read the very file that is to be written.
    slow |= {
        "reranker": "none",
        "reranker_model": None,
        "rerank_min_score": None,
        "rerank_blend": 0.0,
        "rank_features": "",
        "min_relevance": None,
        "chat_days": 0,
    }
    async with open_service(settings.model_copy(update=slow)) as service:
        await store_corpus(service, given.dataset, note)
        known = await _search(service, given.dataset, given.tune, note)
        unknown = await _search(service, given.dataset, given.verify, note)
        pipeline = service.pipeline
        fusion = _tune_fusion(pipeline, settings, known, unknown, note)
        chosen = settings.model_copy(update=fusion["after"]["settings"] if fusion["helps"] else {})
        ranker = await _train_ranker(service, chosen, known, unknown, note, out)
    threshold = tune_threshold([one.hits for one in known], [one.hits for one in unknown], settings.min_relevance)
    changed = {key.upper(): value for key, value in fusion["after"]["settings"].items()} if fusion["helps"] else {}
    if ranker["helps"]:
        changed["RERANKER"] = f"ltr:{out}"
    if threshold["helps"]:
        changed["MIN_RELEVANCE"] = threshold["after"]["min_relevance"]
    return {
        "dataset": given.dataset.name,
        "metric": METRIC,
        "tuned_on": {"from": given.tune_from, "questions": len(known)},
        "verified_on": {"from": given.verify_from, "questions": len(unknown)},
        "fusion": fusion,
        "ltr": ranker,
        "threshold": threshold,
        "settings": changed,
    }


async def _search(
    service: Service, dataset: Dataset, questions: Sequence[LabelledQuestion], note: Note
) -> list[_Searched]:
    """Search every question once; report and leave out those that fail."""
    searched: list[_Searched] = []
    errors: list[RetrievalError] = []
    last = time.monotonic()
    for number, question in enumerate(questions, 1):
        request = Request.model_validate(request_for(question, dataset.name))
        try:
            result, decision = await service.pipeline.retrieve_with_record(TENANT, request)
        except RetrievalError as error:
            errors.append(error)
            note(f"question {question.id}: {error}")
            continue
        assert decision.search_results is not None
        hits = JudgedHits.of([(hit.document_id, hit.relevance) for hit in result.hits], list(question.relevant))
        searched.append(_Searched(question, decision, decision.search_results, hits))
        if time.monotonic() - last >= _LINE_EVERY_S:
            last = time.monotonic()
            note(f"{number:,} of {len(questions):,} questions asked")
    if not searched:
        raise errors[0]
    return searched


def _tune_fusion(
    pipeline: Pipeline, settings: Settings, known: Sequence[_Searched], unknown: Sequence[_Searched], note: Note
) -> dict[str, Any]:
    """Return the entry `fusion` of `tune`: compare all methods at the current depth, then the best at other depths."""

    def tried(changes: Mapping[str, Any], searched: Sequence[_Searched]) -> list[float]:
        return _judge(pipeline, settings.model_copy(update=changes), searched)

    def mean(changes: Mapping[str, Any]) -> float:
        return _mean(tried(changes, known))

    before = {name: getattr(settings, name) for name in ("fusion", "lexical_weight", "depth")}
    convex: list[dict[str, Any]] = [{"fusion": "convex", "lexical_weight": weight} for weight in (None, *_WEIGHTS)]
    methods = [{**one, "depth": settings.depth} for one in (*convex, {"fusion": "rrf"}, {"fusion": "weighted_sum"})]
    scored: list[tuple[float, dict[str, Any]]] = [(mean(before), before)]
    scored += [(mean(one), one) for one in methods if one != before]
    best = _best(scored)
    deeper = [{**best, "depth": depth} for depth in _DEPTHS if depth != best["depth"]]
    scored += [(mean(one), one) for one in deeper]
    best = _best(scored)
    note(f"{len(scored)} fusion settings compared on {len(known)} questions")
    old, new = tried(before, unknown), tried(best, unknown)
    gained = paired_difference(old, new)
    return {
        "before": {"settings": before, "tuned_on": scored[0][0], "verified_on": _mean(old)},
        "after": {"settings": best, "tuned_on": mean(best), "verified_on": _mean(new)},
        "difference": gained,
        "helps": best != before and _above_zero(gained),
        "tried": [{"settings": changes, METRIC: score} for score, changes in scored],
    }


def _best(scored: Sequence[tuple[float, dict[str, Any]]]) -> dict[str, Any]:
    """Return the settings with the highest score, of equal scores the first: those in force stay unless others win.

    Args:
        scored: (score, settings), the settings in force first.
    """
    return max(scored, key=lambda one: one[0])[1]


def _judge(pipeline: Pipeline, settings: Settings, searched: Sequence[_Searched]) -> list[float]:
    """Return nDCG@10 of each question's ranking, fused with these settings."""
    rankings = {
        one.question.id: metrics.documents_of(hit.id.document_id for hit in _ranking(pipeline, settings, one.found))
        for one in searched
    }
    found = metrics.ranking_scores(rankings, {one.question.id: one.question.relevant for one in searched})
    return [found[one.question.id][METRIC] for one in searched]


def _ranking(pipeline: Pipeline, settings: Settings, found: SearchResults) -> list[FusedHit]:
    """Return the ranking that these settings make of the results of a search."""
    cut = tuple(replace(answer, hits=answer.hits[: settings.depth]) for answer in found.used_answers)
    return replace(pipeline, settings=settings).fusion_stage.fuse(replace(found, used_answers=cut))[0]


async def _train_ranker(
    service: Service,
    settings: Settings,
    known: Sequence[_Searched],
    unknown: Sequence[_Searched],
    note: Note,
    out: Path,
) -> dict[str, Any]:
    """Train a ranker on the candidates that these settings would rerank; write it to `out` if it helps.

    Returns:
        The entry `ltr` of `tune`.
    """
    try:
        ltr.import_lightgbm()
    except BadSetting as error:
        note(f"no ranker is trained: {error}")
        return {"helps": False, "file": None, "reason": str(error)}
    note("loading the passages of the pools")
    learned, held_out = [await _examples(service, settings, part, note) for part in (known, unknown)]
    usable = len(ranker_fitting.usable_examples(learned))
    if usable < ranker_fitting.LEAST_QUESTIONS:
        reason = f"{usable} questions are usable for training; at least {ranker_fitting.LEAST_QUESTIONS} are needed"
        return {"helps": False, "file": None, "reason": reason}
    note(f"training on {usable} questions")
    model, gains = ranker_fitting.train_ranker(learned)
    old, new = ranker_fitting.score_ranker(held_out), ranker_fitting.score_ranker(held_out, model.booster)
    gained, apart = paired_difference(old, new), gains[model.trained_on["trees"]]
    # Every question counts once, judged by a ranker that has not seen it.
    pooled = paired_difference([0.0] * len(apart) + old, apart + new)
    helps = _above_zero(pooled) and min(gained["mean"], _mean(apart)) > 0
    if helps:
        _save(model, out)
        note(f"the ranker is in {out}")
    fused = _mean(ranker_fitting.score_ranker(learned))
    weight = dict(zip(NAMES, model.booster.feature_importance("gain"), strict=True))
    total = sum(weight.values()) or 1.0
    return {
        "before": {"tuned_on": fused, "verified_on": _mean(old)},
        # On the training questions only the cross-validated gain is meaningful.
        "after": {"tuned_on": fused + _mean(apart), "verified_on": _mean(new)},
        "difference": gained,
        "pooled": pooled,
        "helps": helps,
        "file": str(out) if helps else None,
        "trees": model.trained_on["trees"],
        "gain_by_trees": {trees: _mean(each) for trees, each in gains.items()},
        "importance": {name: share / total for name, share in sorted(weight.items(), key=lambda one: -one[1])},
    }


def _save(model: ltr.LtrModel, path: Path) -> None:
    try:
        ltr.save_model(model, path)
    except OSError as error:
        raise BadRequest(f"{path}: the file cannot be written: {error.strerror}", where="--out") from error


async def _examples(
    service: Service, settings: Settings, searched: Sequence[_Searched], note: Note
) -> list[RankingExample]:
    """Return for each question the first `RERANK_POOL` candidates of its fused ranking, with their features."""
    examples = []
    last = time.monotonic()
    for one in searched:
        ranking = _ranking(service.pipeline, settings, one.found)
        wanted = [hit.id for hit in ranking[:RERANK_POOL] if hit.chunk is None]
        chunks = await service.catalogue.load(one.decision.scope, wanted)
        read = (hit._replace(chunk=hit.chunk or chunks.get(hit.id)) for hit in ranking[:RERANK_POOL])
        pool = [hit for hit in read if hit.chunk is not None]
        intent = one.found.planned.intent
        examples.append(
            RankingExample(
                id=one.question.id,
                rows=compute_ltr_features(intent.question, intent.language, pool),
                pool=[hit.id.document_id for hit in pool],
                rest=[hit.id.document_id for hit in ranking[RERANK_POOL:]],
                relevant=one.question.relevant,
            )
        )
        if time.monotonic() - last >= _LINE_EVERY_S:
            last = time.monotonic()
            note(f"{len(examples):,} of {len(searched):,} pools loaded")
    return examples


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _above_zero(gained: PairedDifference) -> bool:
    return gained["low"] > 0
