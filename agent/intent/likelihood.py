"""Estimate how likely each value that a question names is meant as a constraint.

Two ensembles of trees are learned (`weights.json`, made by `evals/train_deciding.py`). The first judges a candidate by
its own signs (`evidence`). The second judges it by the first's results for it, for the name's other fields and for the
other names: a constraint is likelier beside sure constraints, and in a short question with many names.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from operator import attrgetter
from typing import NamedTuple

from agent.intent.best_match import values_of
from agent.intent.catalogue import DISTANT
from agent.intent.evidence import Candidate, evidence, fields_beside
from agent.intent.linking import Mention
from agent.intent.lookalikes import is_lookalike
from agent.intent.sentence import Sentence
from agent.intent.surnames import says_person
from agent.intent.trees import Trees, share_of, trees_of

_NONE = -9.0
"""The logit that is used where there is no rival or no other name."""


class Weights(NamedTuple):
    """The trees that judge a candidate by its own evidence, and those that then judge it among all (`signs_among`)."""

    alone: Trees
    among: Trees


class Likely(NamedTuple):
    """A candidate, the probability that it is a constraint, and `alone`, that probability by its own evidence only."""

    candidate: Candidate
    probability: float
    alone: float


@cache
def learned() -> Weights:
    """Return the weights shipped with the package."""
    stored = json.loads((files("agent.intent") / "weights.json").read_text(encoding="utf-8"))
    return Weights(trees_of(stored["alone"]), trees_of(stored["among"]))


def likelihoods(sentence: Sentence) -> dict[int, list[Likely]]:
    """Return the candidates of each mention, the likeliest first, by the mention's first token.

    Mentions within dates and numbers are left out.
    """
    weights = learned()
    logits = {
        mention.first: [(weights.alone.logit(evidence(sentence, one)), one) for one in candidates(sentence, mention)]
        for mention in sentence.mentions
        if not any(first < mention.end and mention.start < last for first, last in sentence.taken)
    }
    only = {first: [logit for logit, _ in named] for first, named in logits.items()}
    found = {}
    for first, named in logits.items():
        judged = []
        for place, (logit, one) in enumerate(named):
            signs = signs_among(only, first, place, len(sentence.tokens))
            judged.append(Likely(one, weights.among.probability(signs), share_of(logit)))
        found[first] = sorted(judged, key=attrgetter("probability"), reverse=True)
    return found


def signs_among(logits: Mapping[int, Sequence[float]], first: int, place: int, tokens: int) -> dict[str, float]:
    """Return the signs by which the second trees judge a candidate, by the names of the signs.

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


def candidates(sentence: Sentence, mention: Mention) -> list[Candidate]:
    """Return a candidate for each field in which a name may be a constraint, the one with the most documents first."""
    found = []
    for field in dict.fromkeys(one.field for one in mention.known):
        known = values_of(sentence, mention.of(field))
        is_named = sentence.vocabulary.roles.get(field) not in (None, "number", "date", "boolean")
        if known and is_named and not is_lookalike(sentence, mention, known[0]):
            found.append(Candidate(mention, field, known))
    if any(one.known[0].how not in DISTANT for one in found):
        # The whole value "sensors" is likelier than a part of a company's name; but any word may be a surname.
        beside = fields_beside(sentence, mention, before=True)
        found = [one for one in found if one.known[0].how not in DISTANT or _is_person(sentence, one, beside)]
    found.sort(key=lambda one: (-one.documents, one.field))
    return [replace(one, fields=len(found), place=place) for place, one in enumerate(found)]


def _is_person(sentence: Sentence, one: Candidate, beside: set[str]) -> bool:
    """Return whether words beside a name say that it means a person of the candidate's field: "by Rose"."""
    known, tokens = sentence.vocabulary, sentence.tokens
    is_said = known.roles[one.field] == "person" and says_person(one.field, tokens, one.mention.first, known)
    return is_said or one.field in beside
