"""Extract the features by which it is judged whether a comparison in a question is a condition on a numeric field.

A feature is a pair of a name and a number, as in `agent.intent.deciding.features`: how the number is compared and
written, what stands beside it, which word points at the field, and whether the number lies among the field's numbers.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.intent.analysis.comparisons import Comparison
from agent.intent.analysis.field_linking import FieldIndex
from agent.intent.analysis.sentence import ENDS, Sentence
from agent.intent.analysis.word_classes import word_class_after, word_class_before
from agent.intent.conditions.counted_nouns import (
    HAVING,
    counts_noun,
    may_count_noun,
    may_identify_field,
    names_quantity,
)
from agent.intent.conditions.document_numbers import describes_documents, holds_years, is_key_field
from agent.intent.conditions.field_assignment import (
    AssignedComparison,
    FieldWord,
    assign_fields,
    convert_amounts,
    field_range,
    field_words,
    has_unexpected_fraction,
    is_in_field_range,
    possible_values,
    weigh,
)
from agent.intent.deciding.features import is_content_word
from agent.intent.language import lexicon
from agent.intent.language.units import CURRENCIES, Unit
from agent.intent.values.field_words import concepts_of

_YEARS = (1900, 2100)
_CLASSES = {"by": 1.0, "in": 2.0, "of": 3.0, "for": 4.0, "with": 5.0, "being": 6.0, "about": 7.0, "join": 8.0}
_PLURAL = re.compile(r"[a-z]{3,}s")
_BESIDE = 2
_MOST_COUNTED = 30
_FEW = 20


@dataclass(frozen=True, slots=True)
class NumberCandidate:
    """A comparison of a question, read as a condition on one numeric field.

    Attributes:
        place: index of the comparison.
        numbers: its amounts in the field's unit, as many as the comparison has.
        unit: this unit, if the question states it.
        word: the word that points at the field; None if there is none.
        is_assigned: whether `assign_fields` assigns this field.
    """

    comparison: Comparison
    place: int
    field: str
    numbers: tuple[float, ...]
    unit: Unit | None
    word: FieldWord | None
    is_assigned: bool = False


def number_candidates(
    sentence: Sentence, columns: FieldIndex, comparisons: Sequence[Comparison]
) -> tuple[list[tuple[NumberCandidate, dict[str, float]]], Mapping[int, str]]:
    """Return a candidate for each comparison and each field that has such numbers, with its features.

    Returns:
        The candidates with their features, and by index of the comparison why `assign_fields` assigns no field.
    """
    assigned, unclear = assign_fields(sentence, columns, comparisons)
    by_place = {place: made for place, one in enumerate(comparisons) for made in assigned if _is_of(made, one)}
    words = list(field_words(sentence, columns, comparisons)) if comparisons else []
    made = []
    for place, one in enumerate(comparisons):
        context = dict(_context_features(sentence, one, len(comparisons)))
        of_field = {
            name: (converted, _nearest_word(sentence, one, name, words))
            for name in columns.measures
            if possible_values(columns, one, name) and (converted := convert_amounts(columns, one, name)) is not None
        }
        evidence = {
            name: dict(_field_features(sentence, columns, one, name, *found)) for name, found in of_field.items()
        }
        choice = by_place.get(place)
        if choice is not None and choice.field not in of_field:
            # It is the second bound of a range, with the unit of the first.
            found = (choice.numbers, choice.unit), _nearest_word(sentence, one, choice.field, words)
            of_field[choice.field] = found
            evidence[choice.field] = dict(_field_features(sentence, columns, choice.comparison, choice.field, *found))
        for name, ((numbers, unit), (_, word)) in of_field.items():
            is_assigned = choice is not None and choice.field == name
            if is_key_field(columns.vocabulary, name) and not is_assigned:
                continue  # see `document_numbers`
            stated = choice.comparison if choice is not None and is_assigned else one
            others = [held for other, held in evidence.items() if other != name]
            features = {**context, **evidence[name], **dict(_rival_features(evidence[name], others))}
            features["assigned"] = float(is_assigned)
            features["assigned other"] = float(choice is not None and not is_assigned)
            features["unclear"] = float(place in unclear)
            features["other word"] = max(
                (weigh(sentence, one, each) for each in words if name not in each.fields), default=0.0
            )
            if choice is not None and is_assigned:
                numbers, unit = choice.numbers, choice.unit
            made.append((NumberCandidate(stated, place, name, numbers, unit, word, is_assigned), features))
    return made, unclear


def _is_of(made: AssignedComparison, one: Comparison) -> bool:
    """Return whether an assigned comparison is `one`; it may have more words or another unit."""
    own, other = made.comparison.amounts, one.amounts
    return [(each.start, each.end) for each in own] == [(each.start, each.end) for each in other]


def _nearest_word(
    sentence: Sentence, one: Comparison, name: str, words: Sequence[FieldWord]
) -> tuple[float, FieldWord | None]:
    """Return the weight of the word that points most clearly at a field, and this word."""
    near = [(weight, word) for word in words if name in word.fields and (weight := weigh(sentence, one, word)) > 0]
    return max(near, key=lambda pair: pair[0], default=(0.0, None))


def _context_features(sentence: Sentence, one: Comparison, comparisons: int) -> Iterator[tuple[str, float]]:
    amounts, text = one.amounts, sentence.text
    first, last = sentence.index_from(one.start), sentence.index_from(one.end)
    yield "bare", float(one.is_bare)
    yield "low", float(one.low is not None)
    yield "high", float(one.high is not None)
    yield "values", float(len(one.values))
    yield "negated", float(one.negated)
    yield "by speed", float(one.dimension == "speed")
    yield "by age", float(one.dimension == "age")
    yield "worded", float(any(amount.is_worded for amount in amounts))
    yield "unit stated", float(any(amount.has_unit for amount in amounts))
    value = amounts[0].readings[0].value
    yield "size", math.log10(1 + abs(value))
    yield "whole", float(value == int(value))
    yield "like a year", float(value == int(value) and _YEARS[0] <= value <= _YEARS[1])
    yield "round", float(value >= _BESIDE and value % 10 == 0)
    yield "comparisons", float(comparisons)
    yield "counts noun", float(counts_noun(sentence, one))
    yield "may count noun", float(may_count_noun(sentence, one))
    yield "names quantity", float(names_quantity(sentence, first - 1))
    yield "may identify", float(may_identify_field(sentence, one))
    before, after = sentence.token(first - 1), sentence.token(last)
    yield "starts", float(before is None)
    yield "ends", float(after is None)
    for side, token, place in (("before", before, first - 1), ("after", after, last)):
        if token is None:
            continue
        yield f"mark {side}", float(token.text in ENDS)
        yield f"comma {side}", float(token.kind == "mark" and token.text in ",，、;；")
        yield f"other mark {side}", float(token.kind == "mark" and token.text not in ",，、;；")
        yield f"capital {side}", float(token.is_capital)
        yield f"number {side}", float(token.kind == "number")
        yield f"noun {side}", float(sentence.is_noun(place))
        yield f"value {side}", float(sentence.mention_at(place) is not None)
        yield f"cue {side}", float(bool(sentence.cue_fields(place)))
        yield f"stop word {side}", float(token.folded in lexicon.STOP_WORDS)
        yield f"plural {side}", float(_PLURAL.fullmatch(token.folded) is not None)
        yield f"content {side}", float(is_content_word(sentence, place))
        yield f"having {side}", float(token.folded in HAVING)
        yield f"joined {side}", float(_is_joined(text, one, side))
    yield "class before", _CLASSES.get(word_class_before(sentence, first - 1, one.start), 0.0)
    if after is not None:
        yield "class after", _CLASSES.get(word_class_after(sentence, last), 0.0)
    covering = [mention for mention in sentence.mentions if mention.start < one.end and one.start < mention.end]
    yield "named", float(bool(covering))
    yield "named longer", float(any(mention.last - mention.first > last - first for mention in covering))
    outside = [place for place in range(min(len(sentence.tokens), _MOST_COUNTED)) if not first <= place < last]
    yield "tokens", float(len(sentence.tokens))
    yield "content words", float(sum(is_content_word(sentence, place) for place in outside))
    yield "values around", float(len({sentence.mention_at(place) for place in outside} - {None}))
    yield "nouns", float(sum(sentence.is_noun(place) for place in outside))
    yield "question mark", float(text.rstrip().endswith(("?", "？")))
    yield "calculation", float(sentence.has_calculation_word)
    yield "counting", float(sentence.counts_documents)
    yield "in topic", float(sentence.is_in_topic(one.start))
    yield "dates", float(sentence.has_dates)
    yield "quoted", float(text[one.start - 1 : one.start] in ("'", '"', "“", "「") and one.start > 0)


def _is_joined(text: str, one: Comparison, side: str) -> bool:
    """Return whether no blank separates the number from the word beside it: "sev2", "8mm"."""
    edge = text[one.start - 1 : one.start] if side == "before" else text[one.end : one.end + 1]
    return edge.isalpha() and edge.isascii()


def _field_features(
    sentence: Sentence,
    columns: FieldIndex,
    one: Comparison,
    name: str,
    converted: tuple[tuple[float, ...], Unit | None],
    nearest: tuple[float, FieldWord | None],
) -> Iterator[tuple[str, float]]:
    numbers, _ = converted
    weight, word = nearest
    vocabulary, measure = columns.vocabulary, columns.measures[name]
    known, possible = vocabulary.catalogue.fields[name], possible_values(columns, one, name)
    low, high = field_range(columns, name)
    kinds = {unit.kind for unit in measure.units}
    yield "word", weight
    if word is not None:
        yield "word strength", word.weight
        yield "word alone", float(word.fields == (name,))
        yield "word fields", float(len(word.fields))
        yield "word elsewhere", float(word.elsewhere)
        gap = one.start - word.end if word.end <= one.start else word.start - one.end
        yield "word gap", float(max(gap, 0))
        yield "word before", float(word.end <= one.start)
        yield "word inside", float(one.start <= word.start and word.end <= one.end)
        yield "word plural", float(_PLURAL.fullmatch(sentence.text[word.start : word.end].casefold()) is not None)
    yield "unit", float(bool(one.kinds & kinds))
    yield "money", float(bool(one.kinds & CURRENCIES) and "money" in concepts_of(name))
    yield "other unit", float(bool(one.kinds) and not one.kinds & kinds)
    yield "rate", float(any("/" in kind for kind in one.kinds))
    yield "field unit", float(bool(measure.units))
    yield "field money", float(bool(kinds & CURRENCIES) or "money" in concepts_of(name))
    yield "field count", float(bool(measure.noun))
    yield "field text", float(bool(measure.texts))
    yield "field years", float(holds_years(vocabulary, name))
    yield "field key", float(is_key_field(vocabulary, name))
    yield "field distinct", float(min(known.distinct, 100))
    yield "field few", float(known.distinct <= _FEW)
    yield "field share", known.distinct / max(known.documents, 1)
    yield "field documents", known.documents / max(vocabulary.catalogue.documents, 1)
    yield "fields", float(len(columns.measures))
    yield "describes", float(one.is_bare and describes_documents(sentence, columns, one, name))
    yield "fraction", float(has_unexpected_fraction(columns, name, possible))
    yield "readings", float(max(map(len, possible), default=0))
    yield "scaled", float(not one.kinds and numbers[0] != one.amounts[0].readings[0].value)
    if low is not None and high is not None:
        yield "inside", float(is_in_field_range(columns, name, possible))
        yield "all inside", float(all(low <= number <= high for number in numbers))
        yield "at low", float(numbers[0] == low)
        yield "at high", float(numbers[-1] == high)
        yield "place", max(-2.0, min(2.0, (numbers[0] - low) / (high - low))) if high > low else 0.0
        yield "off", _distance(numbers[0], low, high)
        yield "field size", math.log10(1 + abs(high))
        yield "field whole", float(low == int(low) and high == int(high))
        yield "field from zero", float(low == 0)
        yield "field flag", float((low, high) == (0, 1) and known.distinct == 2)


def _distance(number: float, low: float, high: float) -> float:
    """Return how far a number lies outside of a range, as the logarithm of a factor; 0 inside."""
    if low <= number <= high:
        return 0.0
    near = high if number > high else low
    return min(abs(math.log10((1 + abs(number)) / (1 + abs(near)))), 6.0)


def _rival_features(own: dict[str, float], others: Sequence[dict[str, float]]) -> Iterator[tuple[str, float]]:
    """Yield how the evidence of a field compares with that of the other fields of the same comparison."""
    yield "rivals", float(len(others))
    yield "rivals inside", float(sum(one.get("all inside", 0.0) for one in others))
    yield "rivals with unit", float(sum(one["unit"] for one in others))
    yield "rivals few", float(sum(one["field few"] and one.get("all inside", 0.0) for one in others))
    best = max((one["word"] for one in others), default=0.0)
    yield "rival word", best
    yield "word lead", own["word"] - best
    yield "only inside", float(own.get("all inside", 0.0) > 0 and not any(one.get("all inside", 0.0) for one in others))
    yield "only unit", float(own["unit"] > 0 and not any(one["unit"] for one in others))
