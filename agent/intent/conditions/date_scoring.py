"""Estimate the probability that a date in a question is a condition on a date field of the documents.

The trees (`date_weights.json`, made by `evals/train_dates.py`) judge every date with every date field.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from operator import attrgetter
from statistics import fmean

from agent.intent.analysis.sentence import Sentence
from agent.intent.conditions.date_features import DateCandidate, date_candidates, features_of, listed_ranges
from agent.intent.conditions.date_fields import is_main_date_unclear, main_date_field, part_in
from agent.intent.deciding.decision_trees import TreeEnsemble, parse_trees, sigmoid
from agent.intent.language import lexicon
from agent.intent.reading import BOOSTS_FROM, FILTERS_FROM
from agent.intent.time.run_reader import DateRange, DateReading
from agent.intent.words import word_table


@dataclass(frozen=True, slots=True)
class StatedDate(DateRange):
    """A range of days in a question, and the date field that it is most probably a condition on.

    Attributes:
        is_possible: whether its words may also be a name or a topic, see `DateReading.possible`.
        field: None if the documents have no date.
        meant: the range; if it names no year, the occurrence that is meant for this field.
        probability: that it is a condition on the field, 0 to 1.
        rival: the probability of the most probable other field; 0 without another date field.
    """

    is_possible: bool
    field: str | None
    meant: DateRange
    probability: float
    rival: float


_ON = re.compile(r"on\b|about\b", re.IGNORECASE)
_BESIDE = 0.6
"""Minimum nearness of a word for a field that stands beside a date, at most with a short word between."""
_NAMED = 2.2
"""Minimum logit, for a probability of 0.9, of a date beside a word for the field."""
_COUNTED = 0.3
"""Minimum probability that a date is a condition on any field at which it is one in a calculation."""


@cache
def date_model() -> TreeEnsemble:
    """Return the learned trees that are shipped with the package; cached."""
    return parse_trees(json.loads((files("agent.intent") / "date_weights.json").read_text(encoding="utf-8")))


def score_dates(sentence: Sentence, reading: DateReading, today: date) -> list[StatedDate]:
    """Return each range of a question with its most probable field, in the order of the question.

    The ranges of a list ("in May or June") have the same field and probability, that of the mean of their logits: a
    list is a condition as a whole or not at all. Where documents are counted, no text is searched, so that a date that
    may be a condition is one, and only its field is in doubt. A date is also one beside a word for its field, and, if
    there is only one date field, beside a noun for documents. Without a date field, the result has the ranges that are
    a date in every text.
    """
    vocabulary = sentence.vocabulary
    if not vocabulary.of_role("date"):
        return [_stated(one, False, None, one, (1.0, 0.0)) for one in reading.ranges]
    candidates = date_candidates(sentence, reading.ranges, reading.possible, today)
    judged: dict[int, dict[str, tuple[float, DateCandidate]]] = {}
    for one, features in zip(candidates, features_of(sentence, candidates, today), strict=True):
        logit = date_model().logit(features)
        is_named = features["cue near"] >= _BESIDE and features["other cue near"] < features["cue near"]
        is_of_noun = features["date fields"] == 1 and _is_beside_noun(sentence, one, today)
        if (is_named or is_of_noun) and not one.is_possible:
            logit = max(logit, _NAMED)
        judged.setdefault(id(one.stated), {})[one.field] = logit, one
    made = []
    for listed in listed_ranges(sentence.text, sorted([*reading.ranges, *reading.possible], key=attrgetter("start"))):
        options = [judged[id(one)] for one in listed]
        of_field = {name: sigmoid(fmean(option[name][0] for option in options)) for name in options[0]}
        field = max(of_field, key=lambda name: of_field[name])
        probability = of_field[field]
        if sentence.counts_documents and (total := sum(of_field.values())) >= _COUNTED:
            probability /= max(total, probability)
        elif _is_only_date(sentence, listed):
            main = main_date_field(vocabulary) or field
            is_clear = not is_main_date_unclear(vocabulary) and _may_be_meant(
                sentence, [one[main][1] for one in options]
            )
            field = main if is_clear else field
            probability = max(probability, FILTERS_FROM if is_clear else BOOSTS_FROM)
        rival = max((each for name, each in of_field.items() if name != field), default=0.0)
        for stated, option in zip(listed, options, strict=True):
            candidate = option[field][1]
            made.append(_stated(stated, candidate.is_possible, field, candidate.meant, (probability, rival)))
    return made


def _stated(
    one: DateRange, is_possible: bool, field: str | None, meant: DateRange, probabilities: tuple[float, float]
) -> StatedDate:
    return StatedDate(one.period, one.start, one.end, one.phrase, is_possible, field, meant, *probabilities)


def _is_beside_noun(sentence: Sentence, candidate: DateCandidate, today: date) -> bool:
    """Return whether a noun for documents stands beside a range: "complaints in May", 五月的投诉.

    A topic ("articles on the 1980s") and a time ahead of all documents ("close the ticket tomorrow") are not meant.
    """
    one, values = candidate.stated, sentence.vocabulary.catalogue.fields[candidate.field]
    is_ahead = candidate.meant.period.low is not None and candidate.meant.period.low > today
    is_topic = _ON.match(one.phrase) is not None and not (one.period.is_bounded and one.period.days == 1)
    if is_topic or sentence.is_in_topic(one.start) or (is_ahead and part_in(candidate.meant.period, values) == "none"):
        return False
    first, last = sentence.index_from(one.start), sentence.index_from(one.end)
    after = last + (sentence.folded(last) == "的")
    return sentence.is_noun(first - 1) or sentence.is_noun(after)


def _is_only_date(sentence: Sentence, listed: Sequence[DateRange]) -> bool:
    """Return whether a question has no other content than the dates of a list: "the same for 2021", 那 2021 年的呢？"""
    fillers = {*lexicon.STOP_WORDS, *word_table("dated")["fillers"]}
    outside = (one for one in sentence.tokens if one.end <= listed[0].start or one.start >= listed[-1].end)
    return all(one.kind == "mark" or one.folded in fillers for one in outside)


def _may_be_meant(sentence: Sentence, listed: Sequence[DateCandidate]) -> bool:
    """Return whether the ranges of a list are no values ("1984" is a title), and some dates of the field lie in one."""
    values = sentence.vocabulary.catalogue.fields[listed[0].field]
    is_held = any(part_in(one.meant.period, values) != "none" for one in listed)
    names = [one for one in sentence.mentions if listed[0].stated.start < one.end and one.start < listed[-1].stated.end]
    return is_held and not names and not any(one.is_possible for one in listed)
