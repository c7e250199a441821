"""Find which numbers a field holds and in what unit, including numbers written as text: "EUR 1,200.00", "1:02:30"."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from agent.intent.language import lexicon
from agent.intent.language.amounts import AmountReading, find_amounts
from agent.intent.language.numerals import parse_chinese
from agent.intent.language.text import has_chinese, stem, tokenize
from agent.intent.language.units import (
    CURRENCIES,
    MORE_SIZES,
    Measure,
    Unit,
    field_name_units,
    rate_unit,
    unit_names,
    unit_of,
    unit_pattern,
    units_of,
)
from agent.intent.words import word_table
from retrievers.core.errors import BadRequest
from retrievers.core.metadata import Field
from retrievers.core.types import FieldValues

_EMPTY = frozenset(["", "-", "–", "—", "n/a", "na", "none", "?", "null", "unknown", "无", "未知"])
"""Texts that stand for a missing number."""
_LEAST_NUMBERS = 0.6
"""Minimum share of a field's texts that must be numbers; the others must be empty."""
_YEARS = range(1800, 2101)
_CLOCK = re.compile(r"(\d{1,3}):([0-5]\d)(?::([0-5]\d))?")
_HOURS = 24
_LONGEST = 15
_TWICE = re.compile(
    r"(?P<one>\d[\d,]*(?:\.\d+)?)\s?[^\W\d]{0,5}[²2]?\s?\((?P<two>\d[\d,]*(?:\.\d+)?)\s?[^\d()]{0,8}[²2]?\)"
)
"""Matches an amount with the same amount in another unit behind it: "149.0 km (92.6 mi)"."""
_LEAST_PAIRS, _ROUNDED = 4, 0.03
_SPENT = frozenset("cost costs price prices".split())
"""Words for amounts of money that are the same: what a thing costs is its price."""
_MINUTES_TO = frozenset("to from until till before after since at".split())
"""Words after "min" at the beginning of a field's name that make it minutes."""
_RATES = {
    *(("money", per) for per in ("area", "weight", "volume", "length", "time", "months", "energy")),
    *(("length", "time"), ("weight", "volume"), ("volume", "time"), ("weight", "area"), ("size", "time")),
    ("energy", "area"), ("weight", "weight"),
}  # fmt: skip
"""Kinds of units of usual rates, the first for each of the second: money per area."""
_PER = re.compile(r"([a-z]{1,2})p([a-z]{1,2})")
"""Matches a rate in one word: `lps`, litres per second."""
_AMOUNTS = _SPENT.union(lexicon.CONCEPTS["money"][0]) - {"amount", "value"} - CURRENCIES
"""Words for amounts of money in names of fields. Two of them mean different amounts unless both are in `_SPENT`."""


def measure_of(values: FieldValues) -> Measure | None:
    """Return what numbers a field holds and in which units; None if it holds something else."""
    words = lexicon.name_words(values.field.name)
    if values.field.item == "number" and values.field.type != "list":
        named, in_name = _unit_in_name(words)
        declared = values.field.unit
        if declared is not None and unit_of(declared) is None:
            # No amount can be converted to this unit, but questions say its name: "over 300 parsecs".
            return Measure(words=in_name, noun=_stems(declared))
        unit = unit_of(declared or "") or named or _unit_in_description(values.field.description)
        return Measure((unit,) if unit else (), in_name)
    if values.field.type != "string" or values.distinct > len(values.values) or not values.values:
        return None
    found = _parse_texts(values)
    if found is None:
        return None
    texts, noun = found
    units: dict[Unit, int] = {}
    for text, (_, unit) in texts.items():
        if unit is not None:
            units[unit] = units.get(unit, 0) + values.values[text]
    named, in_name = _unit_in_name(words)
    if _are_converted(list(texts)):
        named = None  # the name may hold both units
    given = unit_of(values.field.unit or "") or named
    ordered = tuple(sorted(units, key=lambda unit: -units[unit])) or ((given,) if given else ())
    plain = all(_first_number(text) == number for text, (number, _) in texts.items())
    return Measure(ordered, in_name, noun, plain, MappingProxyType(texts))


def unit_multiplier(name: str) -> float:
    """Return what 1 in a field stands for by the field's name: 1000.0 for `words_k` and `dosesThousand`, else 1.0."""
    return 1000.0 if lexicon.name_words(name)[-1:] in (("k",), ("thousand",), ("thousands",)) else 1.0


def check_units(schema: Mapping[str, Field]) -> None:
    """Check that questions can state each declared unit: it is in the word lists, or a word of its own ("parsecs").

    Raises:
        BadRequest: an amount in a unit would be read as something else ("km/h" as km) or not at all ("#").
    """
    for name, field in schema.items():
        if field.unit is not None and not _is_sayable(field.unit):
            raise BadRequest(
                f'schema field "{name}": an amount in the unit "{field.unit}" cannot be read in a question; leave the '
                f'unit out, name it with words, such as "parsecs", or use one of {", ".join(unit_names())}',
                where="schema",
            )


def _is_sayable(unit: str) -> bool:
    if unit_of(unit) is not None:
        return True
    amounts, tokens = find_amounts(f"1 {unit}"), tokenize(unit)
    begins_with_word = bool(tokens) and tokens[0].kind in ("word", "cjk")
    return begins_with_word and len(amounts) == 1 and amounts[0].end == 1


def _stems(text: str) -> str:
    """Return the stems of a text's words, separated by blanks."""
    return " ".join(token.stem for token in tokenize(text))


def _first_number(text: str) -> float | None:
    """Return the first number of a text as the aggregates read it, or None."""
    found = re.search(r"-?\d[\d,]*(?:\.\d+)?", text)
    return float(found[0].replace(",", "")) if found is not None else None


def _parse_texts(values: FieldValues) -> tuple[dict[str, tuple[float, Unit | None]], str] | None:
    """Return ({text: (number, unit)}, stem of the noun after all numbers): "page" for "120 pages", "" without a noun.

    None if a text is no number, if the texts may be years, versions, ids or times of day, or if more than 40 % stand
    for a missing number, such as "n/a". Other texts for a missing number are left out.
    """
    texts = [text for text in values.values if text.casefold().strip() not in _EMPTY]
    first = _first_of_two if _are_converted(texts) else str.strip
    if len(texts) < _LEAST_NUMBERS * len(values.values) or not texts:
        return None
    if any(_CLOCK.fullmatch(text.strip()) for text in texts):
        clocks = _parse_durations(texts)
        return (clocks, "") if clocks is not None else None
    read = {text: _parse_text(first(text)) for text in texts}
    nouns = {one[1] for one in read.values() if one is not None}
    if None in read.values() or len(nouns) > 1:
        return None
    # A dot separates thousands if any text has a decimal comma, as in "1.234,50".
    with_comma = any(re.search(r"\d,\d{1,2}(?!\d)", text) for text in texts)
    found = {text: _choose_reading(one[0], with_comma) for text, one in read.items() if one is not None}
    numbers = list(found.values())
    if all(unit is None and number in _YEARS for number, unit in numbers) and nouns == {""}:
        return None
    if "." in "".join(found) and all(unit is None for _, unit in numbers) and _are_versions(found):
        return None
    return found, nouns.pop()


def _are_converted(texts: Sequence[str]) -> bool:
    """Return whether each text holds an amount and the same in another unit: "144 (56)", "149.0 km (92.6 mi)".

    In all texts the second number must be the first times the same factor. Scores such as "3 (1)" have no such factor.
    """
    pairs = [_TWICE.fullmatch(text.strip()) for text in texts]
    numbers = [tuple(float(one.replace(",", "")) for one in pair.group("one", "two")) for pair in pairs if pair]
    if len(numbers) < max(len(texts), _LEAST_PAIRS):
        return False
    total = sum(one for one, _ in numbers)
    factor = sum(two for _, two in numbers) / total if total else 0.0
    rounding = max(1.0, (1 + factor) / 2)
    return factor not in (0.0, 1.0) and all(
        abs(one * factor - two) <= max(rounding, _ROUNDED * two) for one, two in numbers
    )


def _first_of_two(text: str) -> str:
    return text.partition("(")[0].strip()


def _choose_reading(readings: tuple[AmountReading, ...], with_comma: bool) -> tuple[float, Unit | None]:
    one = readings[0] if with_comma or len(readings) == 1 else min(readings, key=lambda reading: reading.value)
    return one.value, one.unit


def _are_versions(texts: Mapping[str, object]) -> bool:
    """Return whether texts may be versions: all have one dot, with a varying number of digits after it."""
    behind = {len(text.partition(".")[2]) for text in texts}
    return all(text.count(".") == 1 for text in texts) and len(behind) > 1


def _parse_text(text: str) -> tuple[tuple[AmountReading, ...], str] | None:
    """Return (readings of the number in a text, stem of the noun after it or ""); None if the text is anything else."""
    text = text.strip()
    amounts = find_amounts(text)
    if len(amounts) != 1 or amounts[0].start != 0 or amounts[0].is_worded or re.match(r"\D*0\d", text):
        return None
    behind = text[amounts[0].end :].strip()
    if behind and (not behind.isalpha() or len(behind) > _LONGEST):
        return None
    return amounts[0].readings, stem(behind.casefold())


def _parse_durations(texts: list[str]) -> dict[str, tuple[float, Unit | None]] | None:
    """Return (seconds, unit) by text for durations such as "1:02:30"; None if they may be times of day."""
    parts = [match.groups() for text in texts if (match := _CLOCK.fullmatch(text.strip())) is not None]
    if len(parts) < len(texts) or (all(last is None for *_, last in parts) and max(int(p[0]) for p in parts) < _HOURS):
        return None
    found = {}
    for text, (first, second, third) in zip(texts, parts, strict=True):
        numbers = [int(one) for one in (first, second, third) if one is not None]
        seconds = sum(number * 60**place for place, number in enumerate(reversed(numbers)))
        found[text] = float(seconds), unit_of("seconds")
    return found


def _unit_in_name(words: tuple[str, ...]) -> tuple[Unit | None, frozenset[str]]:
    """Return (unit in a field's name or None, words of the name that state the unit).

    The unit is at the end ("size_kb", "area_m2", "nitrate_mg_l", 预算万元), else the first word of several letters for
    a unit counts. "min" at the beginning means minimum, but minutes before words such as "to": "min_to_scene".
    """
    named = field_name_units()
    if (per := _rate_in_name(words)) is not None:
        return per
    if "per" in words[-3:-1]:
        return None, frozenset()  # price_per_kg
    for end in (words[-2:], words[-1:]):
        if len(words) > len(end) and (unit := named.get("".join(end))) is not None:
            return unit, frozenset(end)
    if len(words) > 1 and words[-1] in MORE_SIZES and words[-1] != "m" and _is_money(words):
        return Unit("money", MORE_SIZES[words[-1]]), frozenset(words[-1:])
    if words and (large := _large_zh().search(words[-1])) is not None:
        unit = named[large["unit"]]
        return replace(unit, of=unit.of * (parse_chinese(f"一{large['size']}") or 1)), frozenset()
    if words[:1] == ("min",) and words[1:2] and words[1] in _MINUTES_TO:
        return named["min"], frozenset(["min"])
    unit = next((named[word] for word in words[words[:1] == ("min",) :] if len(word) > 1 and word in named), None)
    return unit, frozenset()


def _rate_in_name(words: tuple[str, ...]) -> tuple[Unit, frozenset[str]] | None:
    """Return (unit of a rate at the end of a field's name, its words): nitrate_mg_l, flow_lps, price_eur_per_m2.

    None if there is none. Without "per" the two units must be a usual pair, such as length and time, and "min" does not
    count: it means minimum in "height_m_min".
    """
    named = field_name_units()
    pair = _PER.fullmatch(words[-1]) if len(words) > 1 and words[-1] not in named else None
    if pair is not None and (of_pair := _rate_in_name((*words[:-1], *pair.groups()))) is not None:
        # "kb" is kilobytes in other names, but kilobits in "kbps".
        return None if of_pair[0].kind.startswith("size") else (of_pair[0], frozenset(words[-1:]))
    size = 2 if words[-1:] in (("2",), ("3",)) else 1  # m2 is two words
    is_said = words[-size - 1 : -size] == ("per",)
    front, last = words[: -size - is_said], "".join(words[-size:])
    if len(front) + is_said < 2 or front[-1] not in named or last not in named:
        return None
    unit, per = named[front[-1]], named[last]
    kinds = ("money" if unit.kind in CURRENCIES else unit.kind, per.kind)
    if not is_said and (kinds not in _RATES or "min" in (front[-1], last)):
        return None
    return rate_unit(unit, per), frozenset(words[len(front) - 1 :])


def _is_money(words: tuple[str, ...]) -> bool:
    """Return whether a word of a field's name, maybe abbreviated, means money: `amt` (amount) in amt_k."""
    written_out = word_table("link", "en")["abbreviations"]
    said = {other for word in words for other in (word, *written_out.get(word, "").split())}
    return not said.isdisjoint(lexicon.CONCEPTS["money"][0])


@cache
def _large_zh() -> re.Pattern[str]:
    """Return a pattern of a Chinese unit with a magnitude at the end of a field's name: 预算[万元]."""
    units = sorted(filter(has_chinese, field_name_units()), key=len, reverse=True)
    return re.compile(rf"(?P<size>[百千]?[万亿])(?P<unit>{'|'.join(units)})$")


def _unit_in_description(text: str) -> Unit | None:
    """Return the only unit that a description names, or None: "length of the outage in minutes"."""
    found = re.findall(rf"(?<![^\W_])(?:{unit_pattern()})", text.casefold())
    named = {unit for word in found if len(word) > 1 or not word.isalpha() for unit in units_of(word)[:1]}
    return next(iter(named)) if len(named) == 1 else None


def are_different_amounts(own: Collection[str], said: Collection[str]) -> bool:
    """Return whether words `own` of a field's name and `said` of a question mean other amounts: "budget", "cost"."""
    named, meant = _AMOUNTS.intersection(own), _AMOUNTS.intersection(said)
    return bool(named and meant) and named.isdisjoint(meant) and not (named | meant) <= _SPENT


@cache
def implied_kinds(sorts: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    """Return the kinds of quantities by the words that imply them: {"expensive": {"money"}}.

    Args:
        sorts: the word lists to read: "ends" for words of an order ("longest"), "nouns" for words of a quantity.
    """
    kinds: dict[str, frozenset[str]] = {}
    for one in (one for sort in sorts for one in word_table("implied")[sort]):
        kinds |= {word: kinds.get(word, frozenset()) | frozenset(one["kinds"]) for word in one["words"]}
    return kinds
