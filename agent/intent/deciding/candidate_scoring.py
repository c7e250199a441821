"""Estimate the probability that a value which a question names is meant as a constraint.

Two ensembles of trees are learned (`weights.json`, made by `evals/train_deciding.py`). The first judges a candidate by
its own features (`features`). The second judges it by the first's results for it, for the name's other fields and for
the other names: a constraint is likelier beside sure constraints, and in a short question with many names.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from operator import attrgetter
from typing import NamedTuple

from agent.intent.analysis.sentence import Sentence
from agent.intent.deciding.best_match import closest_values
from agent.intent.deciding.decision_trees import TreeEnsemble, parse_trees, sigmoid
from agent.intent.deciding.false_matches import is_false_match
from agent.intent.deciding.features import Candidate, cued_fields_beside, extract_features
from agent.intent.values.person_mentions import has_person_cue
from agent.intent.values.value_linking import Mention
from agent.intent.values.value_match import DISTANT

_NONE = -9.0
"""The logit that is used where there is no rival or no other name."""


class ScoringModels(NamedTuple):
    """The trees that judge a candidate by its own features, and those that judge it among all (`joint_features`)."""

    individual: TreeEnsemble
    joint: TreeEnsemble


class ScoredCandidate(NamedTuple):
    """A candidate, the probability that it is a constraint, and that probability by its own features alone."""

    candidate: Candidate
    probability: float
    own_probability: float


@cache
def scoring_models() -> ScoringModels:
    """Return the learned trees that are shipped with the package; cached."""
    stored = json.loads((files("agent.intent") / "weights.json").read_text(encoding="utf-8"))
    return ScoringModels(parse_trees(stored["alone"]), parse_trees(stored["among"]))


def score_candidates(sentence: Sentence) -> dict[int, list[ScoredCandidate]]:
    """Return the candidates of each mention, the likeliest first, by the mention's first token.

    Mentions within dates and numbers are left out.
    """
    models = scoring_models()
    logits = {
        mention.first: [
            (models.individual.logit(extract_features(sentence, one)), one)
            for one in field_candidates(sentence, mention)
        ]
        for mention in sentence.mentions
        if not any(first < mention.end and mention.start < last for first, last in sentence.used_spans)
    }
    only = {first: [logit for logit, _ in named] for first, named in logits.items()}
    found = {}
    for first, named in logits.items():
        judged = []
        for place, (logit, one) in enumerate(named):
            features = joint_features(only, first, place, len(sentence.tokens))
            judged.append(ScoredCandidate(one, models.joint.probability(features), sigmoid(logit)))
        found[first] = sorted(judged, key=attrgetter("probability"), reverse=True)
    return found


def joint_features(logits: Mapping[int, Sequence[float]], first: int, place: int, tokens: int) -> dict[str, float]:
    """Return {name of a feature: number} for the features by which the second trees judge a candidate.

    Args:
        logits: the first trees' logits of the candidates of each mention, by the mention's first token.
        first, place: the mention's first token, and the candidate's index in its list.
        tokens: number of tokens of the question.
    """
    own = logits[first]
    others = [max(named) for other, named in logits.items() if other != first and named]
    return {
        "own": own[place],
        "rival": _highest(logit for other, logit in enumerate(own) if other != place),
        "other": _highest(others),
        "tokens": float(tokens),
        "tokens per name": tokens / (1 + len(others)),
    }


def _highest(logits: Iterable[float]) -> float:
    return max(logits, default=_NONE)


def field_candidates(sentence: Sentence, mention: Mention) -> list[Candidate]:
    """Return a candidate for each field in which a name may be a constraint, the one with the most documents first."""
    found = []
    for field in dict.fromkeys(one.field for one in mention.matches):
        known = closest_values(sentence, mention.matches_in(field))
        is_named = sentence.vocabulary.roles.get(field) not in (None, "number", "date", "boolean")
        if known and is_named and not is_false_match(sentence, mention, known[0]):
            found.append(Candidate(mention, field, known))
    if any(one.matches[0].kind not in DISTANT for one in found):
        # The whole value "sensors" is likelier than a part of a company's name; but any word may be a surname.
        beside = cued_fields_beside(sentence, mention, before=True)
        found = [one for one in found if one.matches[0].kind not in DISTANT or _is_person(sentence, one, beside)]
    found.sort(key=lambda one: (-one.documents, one.field))
    return [replace(one, field_count=len(found), rank=place) for place, one in enumerate(found)]


def _is_person(sentence: Sentence, one: Candidate, beside: set[str]) -> bool:
    """Return whether words beside a name say that it means a person of the candidate's field: "by Rose"."""
    known, tokens = sentence.vocabulary, sentence.tokens
    is_said = known.roles[one.field] == "person" and has_person_cue(one.field, tokens, one.mention.first, known)
    return is_said or one.field in beside
