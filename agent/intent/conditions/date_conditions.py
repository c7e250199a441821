"""Turn the dates of a question into conditions on date fields."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from agent.intent.analysis.negation import is_negated
from agent.intent.analysis.sentence import ENDS, Sentence
from agent.intent.conditions.date_features import event_words, field_events
from agent.intent.conditions.date_fields import is_about_asker, is_of_another_date, named_date_field
from agent.intent.conditions.date_scoring import StatedDate
from agent.intent.conditions.filter_json import all_of, any_of, date_filter, negate_range
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.reading import BOOSTS_FROM, FILTERS_FROM
from agent.intent.time.run_reader import DateRange

_LONGEST_PHRASE = 60
DATES_FILTER_FROM = 0.8
"""Minimum probability at which a date filters. Of the dates between 0.8 and 0.9 in unseen questions 87 % are meant."""
_INCIDENTAL = 0.55
"""Maximum probability of a date that may be no condition, see `_is_incidental`; a calculation uses none below 0.6."""
_SURELY_DATE = 0.97
"""Minimum probability at which words that may be a name or topic filter as a date: "Q1 loans", but no "H1 boiler"."""
_BESIDE = 2
"""Maximum characters between a verb and the date that it belongs to."""
_RIVAL = 0.1
"""Minimum probability of another date field at which it is in doubt which field is meant."""
_GENERAL_VERBS = frozenset("do does can could may should would".split())


def date_conditions(sentence: Sentence, dates: Sequence[StatedDate], now: datetime) -> list[StatedCondition]:
    """Return the conditions that the dates of a question make: one for each date field that they are about.

    Several ranges of a field are alternatives, but overlapping open ones ("after 2001", "before 2024") apply together.
    A condition is as probable as its least probable range: at most 0.55 if this may be incidental, and at least 0.9
    from `DATES_FILTER_FROM` on.
    """
    zone = now.tzinfo
    assert zone is not None
    by_field: dict[str, list[StatedDate]] = {}
    for one in dates:
        if one.field is not None:
            by_field.setdefault(one.field, []).append(one)
    conditions = []
    for name, ranges in by_field.items():
        denied = {is_negated(sentence, one.start, one.end, [name]) for one in ranges}
        if len(denied) > 1 or None in denied:
            continue  # the meaning is unclear
        values, units = sentence.vocabulary.catalogue.fields[name], sentence.vocabulary.date_units.get(name)
        filters = [date_filter(one, values, zone, units) for one in _without_gaps(one.meant for one in ranges)]
        made = [one for one in filters if one is not None]
        if len(made) < len(filters):
            continue  # a range of days in a field of months
        if denied == {True}:
            made = [negate_range(any_of(made))] if len(made) == 1 else [{"type": "not", "filter": any_of(made)}]
        filter = all_of(made) if _apply_together(ranges) else any_of(made)
        start, end = min(one.start for one in ranges), max(one.end for one in ranges)
        if end - start >= _LONGEST_PHRASE:
            # The ranges are too far apart for one phrase; the words between them are not about dates.
            start, end = ranges[0].start, ranges[0].end
        probability = round(min(one.probability for one in ranges), 2)
        if any(_is_incidental(sentence, one) for one in ranges):
            probability = min(probability, _INCIDENTAL)
        if probability >= DATES_FILTER_FROM:
            probability = max(probability, FILTERS_FROM)
        elif any(one.rival >= _RIVAL for one in ranges):
            probability = BOOSTS_FROM  # a follow-up does not settle which field is meant
        conditions.append(StatedCondition(name, filter, start, end, probability))
    return conditions


def _is_incidental(sentence: Sentence, one: StatedDate) -> bool:
    """Return whether a date may be no condition, whatever its probability.

    Its words may be a name or topic, or it stands in a clause about the asker, in a question about what happens every
    year ("does ice form in January?"), or beside a verb that means no date field.
    """
    is_yearly = one.period.next_occurrence is not None and sentence.folded(0) in _GENERAL_VERBS
    has_noun = any(sentence.is_noun(place) for place in range(len(sentence.tokens)))
    is_doubtful = one.is_possible and one.probability < _SURELY_DATE and not _is_set_off(sentence, one)
    is_general = is_doubtful or (is_yearly and not has_noun)
    return is_general or is_about_asker(sentence, one) or _is_of_other_event(sentence, one)


def _is_set_off(sentence: Sentence, one: StatedDate) -> bool:
    """Return whether a date stands alone between marks: "Q1, north depot"."""
    before, after = sentence.text[: one.start].rstrip()[-1:], sentence.text[one.end :].lstrip()[:1]
    return (not before or before in ENDS) and (not after or after in ENDS)


def _is_of_other_event(sentence: Sentence, one: StatedDate) -> bool:
    """Return whether a verb beside a date is about an event that the date's field does not name: "arrived in May"."""
    fields = sentence.vocabulary.of_role("date")
    if len(fields) < 2 or one.field is None or not is_of_another_date(sentence, one):
        return False
    is_meant = any(
        events & field_events(one.field) and 0 <= one.start - end <= _BESIDE for _, end, events in event_words(sentence)
    )
    return not is_meant and named_date_field(sentence, one, fields, by_noun=False) != one.field


def _without_gaps(ranges: Iterable[DateRange]) -> list[DateRange]:
    """Return the ranges, those that follow each other without a gap as one: "yesterday or today"."""
    given = list(ranges)
    if not all(one.period.is_bounded for one in given):
        return given
    made: list[DateRange] = []
    for one in sorted(given, key=lambda each: each.period.begin):
        if made and one.period.begin <= made[-1].period.end and one.period.until is None:
            last = made.pop()
            high = max(last.period.end, one.period.end)
            one = replace(last, period=replace(last.period, high=high))
        made.append(one)
    return made


def _apply_together(ranges: Sequence[DateRange]) -> bool:
    """Return whether open ranges limit each other: "after 2001", "before 2024", but not "before 2001", "after 2024"."""
    lows = [one.period.low for one in ranges if one.period.low is not None]
    highs = [one.period.high for one in ranges if one.period.high is not None]
    is_open = len(lows) < len(ranges) and len(highs) < len(ranges)
    return is_open and bool(lows) and bool(highs) and max(lows) < min(highs)
