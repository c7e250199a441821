"""Read conditions on the numbers that identify documents ("PEP 703", "cases 200-300"), and on years kept as numbers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent.intent.analysis.comparisons import Comparison, read_comparison, swap_bounds
from agent.intent.analysis.field_linking import FieldIndex, field_index_of
from agent.intent.analysis.negation import is_negated
from agent.intent.analysis.sentence import ENDS, Sentence
from agent.intent.language import lexicon
from agent.intent.language.amounts import Amount, AmountReading
from agent.intent.language.numerals import parse_amount
from agent.intent.time.run_reader import DateRange
from agent.intent.values.field_words import concepts_of
from agent.intent.values.vocabulary import Vocabulary
from agent.intent.words import word_table

# Words that relate a numbered document to others, so that its number is no constraint ("what replaced PEP 386").
_RELATION = re.compile(
    r"\b(?:than|like|similar\s+to|instead\s+of|replac\w*|supersed\w*|follow\w*\s+(?:up\s+)?(?:on|to)?|"
    r"buil[dt]\w*\s+(?:up)?on|depend\w*|before|after|compared?|differ\w*|inspired|based\s+on|refer\w*|cit\w*|"
    r"amend\w*|updat\w*|extend\w*|grow|grew|grown)\b|取代|替代|引用|基于|之前|之后|类似|不同|相比",
    re.IGNORECASE,
)
_UNIQUE = 0.98
"""Minimum share of documents with a unique number at which a numeric field is a key."""
_YEARS = (1000, 2100)
MAX_LEVELS = 20
"""Maximum distinct numbers of a field that is a level rather than an amount: "2 bed", "severity 1"."""
_APART = frozenset(["", ",", "，", "、", ";", "；"])
"""Tokens around an amount that stands alone in a list of properties."""
_NEAR = 24
"""Maximum characters between a year and the word for its field."""


@dataclass(frozen=True, slots=True)
class NumberCondition:
    """A condition on a numeric field: from `low` to `high`, or one of `values`, stated at characters [start, end).

    Attributes:
        low, high: the bounds; None if there is none.
        low_included, high_included: whether the bound itself satisfies the condition.
        negated: True if `values` are denied.
        texts: for numbers kept as text, the texts that satisfy the condition.
        probability: that the question states the condition.
    """

    field: str
    start: int
    end: int
    low: float | int | None = None
    high: float | int | None = None
    low_included: bool = True
    high_included: bool = True
    values: tuple[float | int, ...] = ()
    negated: bool = False
    texts: tuple[str, ...] | None = None
    probability: float = 1.0


_YEAR_WORDS = frozenset(["year", "yr"])
_LONG_AGO = 20
"""Minimum years between the end of a period and the first date in date fields that make it a year of another field."""


def year_conditions(sentence: Sentence, dates: Sequence[DateRange]) -> list[NumberCondition]:
    """Return the condition on years kept as numbers: "of the 2013 vintage", or "in 2013" if all dates are much later.

    The list is empty if there is none, or more than one.

    Args:
        dates: the periods that the question states.
    """
    vocabulary = sentence.vocabulary
    fields = [name for name in vocabulary.of_role("number") if holds_years(vocabulary, name)]
    called = [name for name in fields if not _YEAR_WORDS.isdisjoint(lexicon.name_words(name)) or "年" in name]
    named = called if vocabulary.of_role("date") else called or fields
    made = []
    for one in dates if fields else ():
        low, high = one.period.low, one.period.high
        name = _year_named_near(sentence, one, fields)
        if name is None and len(named) == 1 and _is_long_before_dates(vocabulary, one):
            name = named[0]
        is_whole = all(bound is None or (bound.month, bound.day) == (1, 1) for bound in (low, high))
        if name is None or not is_whole or not any(c.isdigit() for c in sentence.text[one.start : one.end]):
            continue  # "the last year they played" is no calendar year
        is_one = low is not None and high is not None and high.year - low.year == 1
        denied = is_negated(sentence, one.start, one.end, (name,))
        if denied is None or (denied and not is_one):
            continue
        if denied and low is not None:
            made.append(NumberCondition(name, one.start, one.end, values=(low.year,), negated=True))
        elif is_one and low is not None:
            made.append(_year_condition(sentence, one, name, low.year))
        else:
            first, last = low.year if low else None, high.year if high else None
            made.append(NumberCondition(name, one.start, one.end, low=first, high=last, high_included=False))
    return made if len(made) == 1 else []


def _is_long_before_dates(vocabulary: Vocabulary, one: DateRange) -> bool:
    """Return whether a period ended 20 years before the first day of all date fields; True without a date field."""
    lows = [str(vocabulary.catalogue.fields[name].low)[:4] for name in vocabulary.of_role("date")]
    high = one.period.high
    return all(low.isdecimal() and high is not None and high.year + _LONG_AGO <= int(low) for low in lows)


def _year_condition(sentence: Sentence, one: DateRange, name: str, year: int) -> NumberCondition:
    """Return the condition that the field `name` is `year`, or compares with it as in "2015 or older"."""
    stated = read_comparison(sentence, Amount(one.start, one.end, (AmountReading(year),)))
    if stated is None or not stated.is_open:
        return NumberCondition(name, one.start, one.end, values=(year,))
    if stated.dimension == "age":  # older means a smaller year
        stated = swap_bounds(stated)
    low, high = (None if side is None else year for side in (stated.low, stated.high))
    return NumberCondition(name, stated.start, stated.end, low, high, stated.low_included, stated.high_included)


def _year_named_near(sentence: Sentence, one: DateRange, fields: Sequence[str]) -> str | None:
    """Return the one of `fields`, which hold years, that is named nearest to the year in the year's clause.

    None if none is named there, if several are equally near, or if a date field is nearer.
    """
    columns = field_index_of(sentence.vocabulary)
    known = {*fields, *sentence.vocabulary.of_role("date")}
    near: list[tuple[int, str]] = []
    for index, token in enumerate(sentence.tokens):
        gap = token.start - one.end if token.start >= one.end else one.start - token.end
        column = columns.match_at(sentence, index) if 0 <= gap < _NEAR and token.kind != "mark" else None
        first, last = min(token.end, one.end), max(token.start, one.start)
        if column is not None and ENDS.isdisjoint(sentence.text[first:last]):
            near += [(gap, name) for name in column.fields if name in known]
    nearest = [name for gap, name in near if gap == min(near)[0]]
    return nearest[0] if len(nearest) == 1 and nearest[0] in fields else None


def holds_years(vocabulary: Vocabulary, name: str) -> bool:
    low, high = vocabulary.catalogue.fields[name].low, vocabulary.catalogue.fields[name].high
    return isinstance(low, int | float) and isinstance(high, int | float) and _YEARS[0] <= low and high <= _YEARS[1]


def is_key_field(vocabulary: Vocabulary, name: str) -> bool:
    """Return whether a numeric field identifies documents, such as the number of a ticket or standard."""
    values = vocabulary.catalogue.fields[name]
    is_unique = values.distinct >= _UNIQUE * max(values.documents, 1)
    return is_unique and "number" in concepts_of(name)


def _in_range(sentence: Sentence, name: str, text: str) -> bool:
    """Return whether the number in `text` lies between the least and the largest number of the field `name`."""
    values, number = sentence.vocabulary.catalogue.fields[name], parse_amount(text)
    low, high = values.low, values.high
    return (
        number is not None and isinstance(low, int | float) and isinstance(high, int | float) and low <= number <= high
    )


def _key_field(sentence: Sentence) -> str | None:
    return next(
        (name for name in sentence.vocabulary.of_role("number") if is_key_field(sentence.vocabulary, name)), None
    )


def document_number_nouns(sentence: Sentence, key: str) -> frozenset[str]:
    """Return the words that may stand before a document's number: "case" in "case 12".

    These are the collection's own nouns for documents, and the words of the field's name, also with "s", without those
    that mean "number": "case" and "cases" of `case_number`.

    Args:
        key: the field with the documents' numbers.
    """
    own = {word for word in lexicon.name_words(key) if word not in lexicon.CONCEPTS["number"][0]}
    return frozenset(sentence.nouns | own | {f"{word}s" for word in own})


def document_number_ranges(sentence: Sentence, comparisons: Sequence[Comparison]) -> list[NumberCondition]:
    """Return the ranges of document numbers: "between PEP 3100 and PEP 3120", "PEPs above 8100", "PEPs in the 600s"."""
    key = _key_field(sentence)
    nouns = document_number_nouns(sentence, key) if key else None
    if key is None or not nouns:
        return []
    noun = "(?:" + "|".join(sorted(map(re.escape, nouns), key=len, reverse=True)) + r")s?[\s#-]*"
    found = []
    span = (
        rf"(?P<from>\b(?:between|from)\s+|从|介于)?\b{noun}(?P<a>\d+)\s*"
        rf"(?P<to>and|to|through|[-–—~]|到|至)\s*(?:{noun})?(?P<b>\d+)(?:\s*之间)?"
    )
    for match in re.finditer(span, sentence.text, re.IGNORECASE):
        low, high = int(match["a"]), int(match["b"])
        # "PEP 8 and 20" names two documents.
        is_span = match["from"] or match["to"].casefold() != "and"
        if low < high and is_span and _in_range(sentence, key, match["a"]):
            found.append(NumberCondition(key, match.start(), match.end(), low=low, high=high))
    for match in re.finditer(r"\b(?:in\s+)?the\s+(?P<a>[1-9]\d*00)s\b", sentence.text, re.IGNORECASE):
        if _in_range(sentence, key, match["a"]):
            low, zeros = int(match["a"]), len(match["a"]) - len(match["a"].rstrip("0"))
            found.append(NumberCondition(key, *match.span(), low=low, high=low + 10**zeros, high_included=False))
    for one in comparisons:
        # "reports older than 5 years" compares no document numbers.
        before = re.search(rf"\b{noun}(?:numbered\s+)?$", sentence.text[: one.start], re.IGNORECASE)
        amounts = [amount for amount in (one.low, one.high) if amount is not None]
        if before is None or len(amounts) != 1 or amounts[0].has_unit or one.values or _counts_next_noun(sentence, one):
            continue
        bound = amounts[0].readings[0].value
        if _in_range(sentence, key, str(int(bound))):
            first, last = (None if side is None else int(bound) for side in (one.low, one.high))
            found.append(
                NumberCondition(key, before.start(), one.end, first, last, one.low_included, one.high_included)
            )
    return found


def _counts_next_noun(sentence: Sentence, one: Comparison) -> bool:
    """Return whether a noun after a comparison says what is counted: "reports over 100 [pages]"."""
    token = sentence.token(sentence.index_from(one.end))
    if token is None or token.kind != "word":
        return False
    return token.folded not in lexicon.STOP_WORDS and token.folded not in word_table("link", "en")["acting"].split()


def documents_by_number(sentence: Sentence, found: Sequence[NumberCondition]) -> list[NumberCondition]:
    """Return the condition on documents named by number ("PEP 703"), as a list; [] if there is none.

    Args:
        found: conditions read before; numbers inside them do not count.
    """
    key = _key_field(sentence)
    if key is None:
        return []
    nouns = document_number_nouns(sentence, key)
    values: list[float | int] = []
    start, end = len(sentence.text), 0
    for index, token in enumerate(sentence.tokens[1:], 1):
        if token.kind != "number" or any(one.start <= token.start < one.end for one in found):
            continue
        place = index - 1
        while sentence.folded(place) in ("-", "#", "no", ".", "number", "号", "第"):
            place -= 1
        if sentence.folded(place) in nouns and _in_range(sentence, key, token.folded):
            number = parse_amount(token.folded)
            if number is not None:
                values.append(number)
                start, end = min(start, sentence.tokens[place].start), max(end, token.end)
    around = sentence.text[:start] + " " + sentence.text[end:] if values else ""
    if not values or _RELATION.search(around):
        return []
    return [NumberCondition(key, start, end, values=tuple(dict.fromkeys(values)))]


def describes_documents(sentence: Sentence, columns: FieldIndex, one: Comparison, name: str) -> bool:
    """Return whether the amount in `one` has a unit of the field `name` and belongs to the documents or a field's word.

    Examples: "loans of 45 days", "medium, mobile, 60t" for a field with few numbers, 240页的档案 ("240-page file").
    """
    if not one.kinds & {unit.kind for unit in columns.measures[name].units}:
        return False
    before, behind = sentence.index_from(one.start) - 1, sentence.index_from(one.end)
    beside = {sentence.folded(before), sentence.folded(behind)}
    if beside <= _APART and beside != {""}:
        measure = columns.measures[name]
        own = {reading.unit for reading in one.amounts[0].readings}.intersection(measure.units)
        return (
            bool(own) and not measure.texts and columns.vocabulary.catalogue.fields[name].distinct <= MAX_LEVELS
        )  # "medium, mobile, 60t"
    if sentence.folded(before) == "of":
        column = columns.match_at(sentence, before - 1)
        return sentence.is_noun(before - 1) or (column is not None and name in column.fields)
    return sentence.folded(behind) == "的" and sentence.is_noun(behind + 1)
