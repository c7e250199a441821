"""Decide which field each comparison of a question is about, for all comparisons together.

A field is scored for a comparison by a matching unit, a nearby word for the field, a word for the quantity ("cheaper",
重 "heavy"), and whether the amount lies in the field's range. The clearest pair is assigned first; its word and its
field serve no other comparison. If two fields fit equally well, none is assigned.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from agent.intent.analysis.comparisons import Comparison
from agent.intent.analysis.field_linking import FieldIndex
from agent.intent.analysis.sentence import ENDS, Sentence
from agent.intent.analysis.word_classes import has_or_between
from agent.intent.conditions.counted_nouns import HAVING, counts_noun, may_count_noun, may_identify_field
from agent.intent.conditions.document_numbers import MAX_LEVELS, describes_documents, holds_years, is_key_field
from agent.intent.language.amounts import AmountReading
from agent.intent.language.units import CURRENCIES, Measure, Unit
from agent.intent.values.field_words import concepts_of
from agent.intent.values.measures import unit_multiplier
from agent.intent.words import word_table

_WORD = {5.0: 4.0, 4.0: 3.5, 3.0: 3.0, 2.0: 2.5, 1.0: 1.0}
"""Weight of a word that points at a field, by its `Column.strength`."""
_UNIT, _MONEY, _SPEAKING, _INSIDE, _OUTSIDE = 2.5, 2.0, 2.0, 0.5, -1.5
_FRACTION = 1.0
"""Penalty for a fraction compared with a field that has whole numbers only."""
_ORDER = 10
"""Maximum factor between an amount and a field's range if only the unit points at the field."""
_BY_CHARACTER = 0.08
"""Reduction of a word's weight per character between it and the amount."""
_NEAR, _BESIDE = 28, 4
"""Maximum characters between an amount and a word for its field; the second if another noun follows ("5 people")."""
_ELSEWHERE = 1.5
"""Reduction of the weight of a quantity word in another clause: "too dear. under 300?"."""
_MARGIN = 0.6
"""Minimum lead of the best field over any other."""
_LINKS = frozenset("of is = : ： was at 为 是 等 于".split())
_JOINING = frozenset("and but yet , 、 ， 且 但 并".split())
NO_CHOICE = "alternative numbers are not supported, so it was not used as a filter"
_MONEY_KINDS = CURRENCIES | {"money"}


@dataclass(frozen=True, slots=True)
class AssignedComparison:
    """A comparison with its field. `numbers` are its amounts in the field's unit; `unit` is that unit if stated."""

    comparison: Comparison
    field: str
    numbers: tuple[float, ...]
    unit: Unit | None


@dataclass(frozen=True, slots=True)
class FieldWord:
    """A word at characters [start, end) that points at fields; if `elsewhere`, also for amounts in other clauses."""

    start: int
    end: int
    fields: tuple[str, ...]
    weight: float
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class _Fit:
    """The score of a field for the comparison at index `place`; `word` points at the field, None if no word does."""

    score: float
    place: int
    field: str
    word: FieldWord | None


def assign_fields(
    sentence: Sentence, columns: FieldIndex, comparisons: Sequence[Comparison]
) -> tuple[list[AssignedComparison], Mapping[int, str]]:
    """Return the comparisons whose field is clear, and by index in `comparisons` the reasons why others are unclear."""
    words = list(field_words(sentence, columns, comparisons)) if comparisons else []
    fits = [
        fit
        for place, one in enumerate(comparisons)
        for name in columns.measures
        if (fit := _score_field(sentence, columns, one, place, name, words)) is not None
    ]
    made: dict[int, AssignedComparison] = {}
    unclear: dict[int, str] = {}
    _assign_clearest(columns, comparisons, [fit for fit in fits if fit.score], made, unclear)
    for place, one in enumerate(comparisons):
        for beside in (place - 1, place + 1):
            if place not in made and place not in unclear and beside in made:
                _assign_second_bound(sentence, columns, made, place, one, made[beside])
    # Comparisons with no other evidence are assigned by the size of the amount.
    left = {fit.place for fit in fits} - {fit.place for fit in fits if fit.score} - made.keys()
    taken = {one.field for one in made.values()}
    unscored = [fit for fit in fits if fit.place in left and fit.field not in taken]
    _assign_clearest(columns, comparisons, unscored, made, unclear)
    for place in range(1, len(comparisons)):
        is_made = place in made or place - 1 in made
        # "under 50 or over 100" is a choice.
        if is_made and has_or_between(sentence, comparisons[place - 1].end, comparisons[place].start):
            unclear |= dict.fromkeys((place - 1, place), NO_CHOICE)
    return [made[place] for place in sorted(made.keys() - unclear.keys())], unclear


def _assign_clearest(
    columns: FieldIndex,
    comparisons: Sequence[Comparison],
    fits: list[_Fit],
    made: dict[int, AssignedComparison],
    unclear: dict[int, str],
) -> None:
    """Assign the fields of `fits` to comparisons, the clearest first.

    An assigned comparison is written to `made`, the reason against an unclear one to `unclear`, each by its index.
    """
    fits.sort(key=lambda fit: (-fit.score, fit.place, fit.field))
    while fits:
        # Clear pairs come first: the word that they use may make another pair clear.
        best = next((fit for fit in fits if not _rivals(fit, fits)), fits[0])
        if rivals := _rivals(best, fits):
            fields = ", ".join(sorted({best.field, *rivals}))
            unclear[best.place] = f"it may mean {fields}, so it was not used as a filter"
            fits = [fit for fit in fits if fit.place != best.place]
            continue
        stated = comparisons[best.place]
        numbers = convert_amounts(columns, stated, best.field)
        if numbers is not None:
            if stated.is_bare and best.word is not None:  # "level 4" includes the word
                start, end = min(stated.start, best.word.start), max(stated.end, best.word.end)
                stated = replace(stated, start=start, end=end)
            made[best.place] = AssignedComparison(stated, best.field, *numbers)
        fits = [
            fit
            for fit in fits
            if fit.place != best.place
            and (numbers is None or fit.field != best.field)
            and (best.word is None or fit.word is not best.word)
        ]


def _rivals(best: _Fit, fits: Sequence[_Fit]) -> list[str]:
    """Return the other fields that fit the comparison of `best` better, or worse by less than `_MARGIN`."""
    return [
        fit.field
        for fit in fits
        if fit.place == best.place and fit.field != best.field and best.score - fit.score < _MARGIN
    ]


def _assign_second_bound(
    sentence: Sentence, columns: FieldIndex, made: dict[int, AssignedComparison], place: int, one: Comparison,
    beside: AssignedComparison,
) -> None:  # fmt: skip
    """Assign the bound `one` to the field of the opposite bound `beside` it: "over 100 [and under 200 euros]".

    The bound is written to `made`, under its index `place`.
    """
    other = beside.comparison
    first, last = (one, other) if one.start < other.start else (other, one)
    between = range(sentence.index_from(first.end), sentence.index_from(last.start))
    if (one.low is None) == (other.low is None) or not (one.is_open and other.is_open):
        return
    if not one.kinds & other.kinds and not all(sentence.folded(index) in _JOINING for index in between):
        return
    amount = one.amounts[0]
    shared = amount if amount.has_unit else amount.with_unit_of_previous(other.amounts[0])
    changed = replace(one, low=shared if one.low else None, high=shared if one.high else None)
    numbers = convert_amounts(columns, changed, beside.field)
    if numbers is None or not is_in_field_range(columns, beside.field, [numbers[0]]):
        return
    low, high = (numbers[0][0], beside.numbers[0]) if one.low else (beside.numbers[0], numbers[0][0])
    if low <= high:
        made[place] = AssignedComparison(changed, beside.field, *numbers)


def _score_field(
    sentence: Sentence, columns: FieldIndex, one: Comparison, place: int, name: str, words: Sequence[FieldWord]
) -> _Fit | None:
    """Return how well the field `name` fits the comparison `one`, at index `place`; None if it does not fit."""
    measure = columns.measures[name]
    numbers = possible_values(columns, one, name)
    if not numbers:
        return None
    near = [(weight, word) for word in words if name in word.fields and (weight := weigh(sentence, one, word)) > 0]
    best = max(near, key=lambda pair: pair[0], default=(0.0, None))
    is_named = best[1] is not None and (best[1].weight >= _WORD[5.0] or best[1].fields == (name,))
    if is_key_field(sentence.vocabulary, name) and not is_named:
        return None
    if one.is_bare and describes_documents(sentence, columns, one, name):
        return _Fit(_UNIT + _INSIDE, place, name, None) if is_in_field_range(columns, name, numbers) else None
    if one.is_bare:
        return _score_level(sentence, columns, one, place, name, best[1])
    of_unit = 0.0
    if one.kinds & {unit.kind for unit in measure.units}:
        of_unit = _UNIT
    elif one.kinds & CURRENCIES or _is_in_thousands(sentence, columns, one, name, numbers):
        of_unit = _MONEY
    # "degrees" measure angles or heat.
    is_likely = is_in_field_range if len(one.kinds - CURRENCIES) > 1 else _is_near_range
    if of_unit and best[1] is None and not is_likely(columns, name, numbers):
        return None
    if _is_of_other_rate(one, measure) and not is_in_field_range(columns, name, numbers):
        return None
    score = best[0] + of_unit
    if score and has_unexpected_fraction(columns, name, numbers):
        score = max(score - _FRACTION, 0.1)
    lies_inside = is_in_field_range(columns, name, numbers)
    if score <= 0:
        alone = lies_inside and not holds_years(sentence.vocabulary, name) and may_identify_field(sentence, one)
        return _Fit(0.0, place, name, None) if alone else None
    score += _INSIDE if lies_inside else _OUTSIDE
    return _Fit(score, place, name, best[1]) if score > 0 else None


def _is_of_other_rate(one: Comparison, measure: Measure) -> bool:
    """Return whether the amount is money per something, such as euros an hour, and the field holds no such rate."""
    rates = {kind for kind in one.kinds if "/" in kind}
    return any(kind.partition("/")[0] in CURRENCIES for kind in rates) and not rates & {u.kind for u in measure.units}


def _is_near_range(columns: FieldIndex, name: str, numbers: Sequence[Sequence[float]]) -> bool:
    """Return whether one of the `possible_values` numbers lies in the field's range, or within ten times its ends."""
    low, high = field_range(columns, name)
    if low is None or high is None:
        return False
    return any(low / _ORDER <= one <= high * _ORDER for values in numbers for one in values)


def _is_in_thousands(
    sentence: Sentence, columns: FieldIndex, one: Comparison, name: str, numbers: Sequence[Sequence[float]]
) -> bool:
    """Return whether an amount such as 100k fits a field in thousands of money: "loans under 100k" for amount_keur."""
    is_large = all(reading.magnitude >= 1000 for amount in one.amounts for reading in amount.readings[:1])
    if not is_large or columns.measures[name].money_size < 1000 or not is_in_field_range(columns, name, numbers):
        return False
    return not may_count_noun(sentence, one)


def _score_level(
    sentence: Sentence, columns: FieldIndex, one: Comparison, place: int, name: str, word: FieldWord | None
) -> _Fit | None:
    """Return the fit of a number directly beside a word for a field of few numbers: "2 bed", "5-star"; else None."""
    known, measure = columns.vocabulary.catalogue.fields[name], columns.measures[name]
    is_level = not measure.units and known.distinct <= MAX_LEVELS and not is_key_field(sentence.vocabulary, name)
    if word is None or word.elsewhere or not is_level:
        return None
    numbers = convert_amounts(columns, one, name)
    low, high = field_range(columns, name)
    if numbers is None or low is None or high is None or not all(low <= number <= high for number in numbers[0]):
        return None
    between = range(sentence.index_from(min(one.end, word.end)), sentence.index_from(max(one.start, word.start)))
    if word.start >= one.end:
        beside = all(sentence.folded(index) in ("-", "个") for index in between)
        stated = beside and _states_level(sentence, one, word)
    else:
        following = sentence.folded(sentence.index_from(one.end))
        beside = all(sentence.folded(index) in _LINKS for index in between)
        stated = beside and following not in ("or", "and", "to", "-", "+", "%", "或", "及", "以")
        stated = stated and not any(amount.is_worded for amount in one.amounts)
    return _Fit(word.weight, place, name, word) if stated else None


def _states_level(sentence: Sentence, one: Comparison, word: FieldWord) -> bool:
    """Return whether a number before a word selects documents: "2 bed flats", "with 3 beds"; not "the 2 beds"."""
    before = sentence.index_from(one.amounts[0].start) - 1
    first, following = sentence.token(before), sentence.token(sentence.index_from(word.end))
    if not sentence.text[word.start : word.end].isascii():
        return False
    is_plural = sentence.text[word.start : word.end].casefold().endswith("s")
    is_attribute = not is_plural and following is not None and following.kind == "word"
    return first is None or first.kind == "mark" or is_attribute or first.folded in HAVING


def weigh(sentence: Sentence, one: Comparison, word: FieldWord) -> float:
    """Return the weight of a word for a comparison: less with distance, little or none in another clause."""
    if word.start >= one.start and word.end <= one.end:
        return word.weight
    is_before = word.end <= one.start
    first, last = (word.end, one.start) if is_before else (one.end, word.start)
    marks = ENDS - {":", "："} if is_before else ENDS  # "prep time: at most 15 min"
    gap = last - first
    if gap > _NEAR or not marks.isdisjoint(sentence.text[first:last]):
        return max(word.weight - _ELSEWHERE, 0.0) if word.elsewhere else 0.0
    is_near = gap <= _BESIDE if is_before else word.start - one.amounts[-1].end <= 1
    if not is_near and counts_noun(sentence, one):
        return 0.0  # "a budget for more than 5 people"
    return word.weight - gap * _BY_CHARACTER


def field_words(sentence: Sentence, columns: FieldIndex, comparisons: Sequence[Comparison]) -> Iterator[FieldWord]:
    """Yield the words outside amounts that point at fields, by name ("price") or by the quantity ("cheaper")."""
    amounts = [(amount.start, amount.end) for one in comparisons for amount in one.amounts]
    behind = 0
    for index, token in enumerate(sentence.tokens):
        if token.kind == "mark" or any(start < token.end and token.start < end for start, end in amounts):
            continue
        if index >= behind and (column := columns.match_at(sentence, index)) is not None:
            behind = column.last
            names = tuple(name for name in column.fields if name in columns.measures)
            end = sentence.tokens[column.last - 1].end
            if names and not any(start < end and token.start < last for start, last in amounts):
                yield FieldWord(token.start, end, names, _WORD.get(column.strength, 1.0))
        kinds = _quantity_words().get(token.folded) or _quantity_words().get(sentence.text[token.start : token.end + 1])
        if kinds:
            names = tuple(name for name, measure in columns.measures.items() if _measures_kind(name, measure, kinds))
            yield FieldWord(token.start, token.end, names, _SPEAKING, elsewhere=True)


def _measures_kind(name: str, measure: Measure, kinds: frozenset[str]) -> bool:
    """Return whether a field measures one of these kinds of quantity."""
    return not kinds.isdisjoint({*(unit.kind for unit in measure.units), *concepts_of(name)})


@cache
def _quantity_words() -> Mapping[str, frozenset[str]]:
    """Map each word for a quantity to kinds of units: "heavier" to weight, "cheaper" to money and all currencies."""
    found: dict[str, frozenset[str]] = {}
    for one in word_table("numbers")["speaking"]:
        kinds = frozenset(one["kinds"].split())
        for word in one["words"].split():
            found[word] = found.get(word, frozenset()) | kinds | (_MONEY_KINDS if "money" in kinds else frozenset())
    return found


def possible_values(columns: FieldIndex, one: Comparison, name: str) -> list[tuple[float, ...]]:
    """Return each amount's possible values in the unit of field `name`, ascending; [] if an amount has another unit."""
    measure = columns.measures[name]
    found: list[tuple[float, ...]] = []
    for amount in one.amounts:
        values = {
            reading.value * scale
            for reading in amount.readings
            if (scale := _scale(columns, measure, name, reading)) is not None
        }
        if not values:
            return []
        found.append(tuple(sorted(values)))
    return found


def _scale(columns: FieldIndex, measure: Measure, name: str, reading: AmountReading) -> float | None:
    known, unit = columns.vocabulary.catalogue.fields[name], reading.unit
    size = measure.money_size if measure.units else unit_multiplier(name)
    if unit is None and size > 1:
        low, high = field_range(columns, name)
        is_whole = low is not None and high is not None and low <= reading.value / size <= high < reading.value
        if is_whole or (measure.units and reading.magnitude >= 1000):
            return 1 / size
        return 1.0 if measure.units or high is None or reading.value <= high else None  # "100 words", not 100,000
    if unit is not None and unit.kind == "share" and not measure.units and isinstance(known.high, int | float):
        return 0.01 if known.high <= 1 else 1.0 if known.high <= 100 else None
    return measure.scale(unit, money="money" in concepts_of(name))


def convert_amounts(columns: FieldIndex, one: Comparison, name: str) -> tuple[tuple[float, ...], Unit | None] | None:
    """Return the amounts in the unit of field `name`, and this unit if one was stated; None if an amount is unclear.

    An amount with several readings is clear if exactly one of them lies in the field's range.
    """
    low, high = field_range(columns, name)
    numbers: list[float] = []
    for values in possible_values(columns, one, name):
        inside = [value for value in values if low is not None and high is not None and low <= value <= high]
        if len(values) > 1 and len(inside) != 1:
            return None
        numbers.append(inside[0] if len(values) > 1 else values[0])
    if one.low is not None and one.high is not None and numbers[0] > numbers[1]:
        return None
    units = columns.measures[name].units
    if not one.kinds and len(units) > len({unit.kind for unit in units}):
        return None  # 300 is ambiguous if some values are in MB and some in kB
    return tuple(numbers), next((unit for unit in units if unit.kind in one.kinds), None)


def field_range(columns: FieldIndex, name: str) -> tuple[float | None, float | None]:
    """Return the least and the largest number of a field; (None, None) if they are unknown."""
    if numbers := columns.measures[name].numbers:
        return min(numbers), max(numbers)
    known = columns.vocabulary.catalogue.fields[name]
    if isinstance(known.low, int | float) and isinstance(known.high, int | float):
        return known.low, known.high
    return None, None


def has_unexpected_fraction(columns: FieldIndex, name: str, numbers: Sequence[Sequence[float]]) -> bool:
    """Return whether a number has a fraction although the field has, as far as is known, whole numbers only."""
    (low, high), texts = field_range(columns, name), columns.measures[name].texts
    known = columns.measures[name].numbers if texts else [one for one in (low, high) if one is not None]
    is_whole = all(one == int(one) for one in known)
    if not texts and low is not None and high is not None:
        is_whole = is_whole and columns.vocabulary.catalogue.fields[name].distinct <= high - low + 1
    return is_whole and any(one != int(one) for values in numbers for one in values)


def is_in_field_range(columns: FieldIndex, name: str, numbers: Sequence[Sequence[float]]) -> bool:
    low, high = field_range(columns, name)
    return low is not None and high is not None and any(low <= one <= high for values in numbers for one in values)
