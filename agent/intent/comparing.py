"""Numbers that a question states about a field: comparisons, ranges, years, and documents by their number."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from agent.intent import lexicon
from agent.intent.columns import Columns, columns_of
from agent.intent.negation import is_negated
from agent.intent.numbers import CURRENCIES, Unit, unit_of, unit_pattern
from agent.intent.numerals import AMOUNT, EXACT, parse_amount, parse_exact
from agent.intent.sentence import Sentence
from agent.intent.time.dates import DateRange
from agent.intent.vocabulary import Vocabulary, concepts_of
from agent.intent.words import table

Comparison = Literal["exactly", "between", "more", "least", "less", "most", "thousands"]


@dataclass(frozen=True, slots=True)
class NumberRange:
    """A condition on a number: `low` to `high`, each with whether it is included, or one of `values`.

    Characters [start, end) of the question state it.

    Attributes:
        texts: of numbers that are kept as text those that satisfy the condition.
    """

    field: str
    start: int
    end: int
    low: float | int | None = None
    high: float | int | None = None
    low_included: bool = True
    high_included: bool = True
    values: tuple[float | int, ...] = ()
    texts: tuple[str, ...] | None = None


# In words only right before what they count: "at least two gold medals", "more than a hundred citations".
_WORDED = rf"(?:\ban?\s+(?:hundred|thousand|million)\b|\b{EXACT}(?![\w.,]*\d)\b)"
_NUMBER = rf"(?:{AMOUNT}|{_WORDED})"
_HUNDREDS = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
# What relates one numbered document to others: then the number is no constraint ("what replaced PEP 386").
_RELATION = re.compile(
    r"\b(?:than|like|similar\s+to|instead\s+of|replac\w*|supersed\w*|follow\w*\s+(?:up\s+)?(?:on|to)?|"
    r"buil[dt]\w*\s+(?:up)?on|depend\w*|before|after|compared?|differ\w*|inspired|based\s+on|refer\w*|cit\w*|"
    r"amend\w*|updat\w*|extend\w*|grow|grew|grown)\b|取代|替代|引用|基于|之前|之后|类似|不同|相比",
    re.IGNORECASE,
)
_MAGNITUDE = re.compile(r"\b(k|m|bn|thousand|million|billion)\b|[百千]?[万亿]", re.IGNORECASE)
_CURRENCY = re.compile(r"[$€£¥]")
_OF_DOCUMENTS_ZH = re.compile(r"\s*[个篇份条](?!月|季|小时|星期|钟头)")
_CLAUSE_MARKS = frozenset(",;:?!，；：？！。、")
_NEAR = 24
"""Characters between a number and the word for its field."""
_FEW = 20
"""Most numbers of a field that is a level rather than an amount."""
_LINKS = frozenset("of is = : ： was at 为 是 等 于".split())
_UNIQUE = 0.98
"""Share of the documents that have a number of their own where the number tells them apart."""
_YEARS = (1000, 2100)
_HOLDS: Mapping[bool, Callable[[float, float], bool]] = {True: operator.le, False: operator.lt}


def _alternatives(kind: str) -> str:
    """The words of a class as alternatives, the longest first."""
    words = sorted(table("numbers")[kind], key=len, reverse=True)
    return "|".join(
        rf"\b{re.escape(one)}\b".replace(r"\ ", r"\s+") if one.isascii() else re.escape(one) for one in words
    )


@cache
def _patterns() -> tuple[tuple[Comparison, re.Pattern[str]], ...]:
    """A number `a` (and `b`) with its comparison, the surest wording first."""
    unit = rf"(?:\s*-?(?P<unit>{unit_pattern()}))?"
    before = rf"(?:(?P<sign>{unit_pattern()})\s*)?"
    one, other = rf"(?P<a>{_NUMBER})", rf"(?P<b>{_NUMBER})"
    made: list[tuple[Comparison, str]] = [
        (
            "between",
            rf"(?:between|from|介于|在)?\s*{before}{one}\s*(?:and|to|[-–—~～]|到|至|和)\s*{other}{unit}(?:\s*之间)?",
        )
    ]
    kinds: tuple[tuple[Comparison, str], ...] = (
        ("exactly", r"="), ("most", "<=|≤"), ("least", ">=|≥"), ("more", ">(?!=)"), ("less", "<(?!=)")
    )  # fmt: skip
    made += [(kind, rf"(?:{_alternatives(kind)}|{signs})\s*{before}{one}{unit}") for kind, signs in kinds]
    beside = r"(?:\s*[a-z]+(?:\s+[a-z]+)?)?\s*"
    stated = f"{before}{one}{unit}"
    more, fewer = _alternatives("least_behind"), _alternatives("most_behind")
    made += [
        ("least", rf"{stated}(?:{beside}(?:{more})|\s*\w{{0,3}}?(?:及以上|以上)|\s*\+(?!\w))"),
        ("most", rf"{stated}(?:{beside}(?:{fewer})|\s*\w{{0,3}}?(?:及以下|以下|以内))"),
        ("thousands", r"\b(?:in\s+)?the\s+(?P<a>[1-9]\d*00)s\b"),
    ]
    return tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in made)


def find_quantities(sentence: Sentence) -> list[NumberRange]:
    """Conditions on number fields, not overlapping what dates were read from."""
    columns = columns_of(sentence.vocabulary)
    if not columns.measures:
        return []
    found = _key_ranges(sentence)
    for comparison, pattern in _patterns():
        for match in pattern.finditer(sentence.text):
            taken = (*sentence.taken, *((one.start, one.end) for one in found))
            if any(match.start() < last and first < match.end() for first, last in taken):
                continue
            if _OF_DOCUMENTS_ZH.match(sentence.text, match.end()) and sentence.ends_with_noun(match.start()):
                continue  # 提案超过 40 个 counts them
            made = _condition(sentence, columns, comparison, match)
            denied = made is not None and is_negated(sentence, made.start, made.end, (made.field,))
            if denied is None:
                continue  # nobody knows what is denied
            if made is not None and denied:
                made = _opposite(made)
            found += [_of_texts(made, columns, _unit_said(match))] if made else []
    found += _by_level(sentence, found)
    return [*found, *_by_number(sentence, found)]


def year_ranges(sentence: Sentence, dates: Sequence[DateRange]) -> list[NumberRange]:
    """Whole years that are stated of documents whose year is a number: "in 2013", "before 2004"."""
    vocabulary = sentence.vocabulary
    if vocabulary.of_role("date"):
        return []
    fields = [name for name in vocabulary.of_role("number") if _holds_years(vocabulary, name)]
    named = [name for name in fields if "year" in lexicon.name_words(name) or "年" in name] or fields
    bounds = [bound for one in dates for bound in (one.period.low, one.period.high) if bound is not None]
    if len(named) != 1 or not bounds or any((bound.month, bound.day) != (1, 1) for bound in bounds):
        return []
    made = []
    for one in dates:
        low, high = one.period.low, one.period.high
        if not any(c.isdigit() for c in sentence.text[one.start : one.end]):
            continue  # "the last year they played" is no year of the calendar
        if low is not None and high is not None and high.year - low.year == 1:
            made.append(NumberRange(named[0], one.start, one.end, values=(low.year,)))
        else:
            first, last = low.year if low else None, high.year if high else None
            made.append(NumberRange(named[0], one.start, one.end, low=first, high=last, high_included=False))
    return made if len(made) == 1 else []


def _holds_years(vocabulary: Vocabulary, name: str) -> bool:
    low, high = vocabulary.catalogue.fields[name].low, vocabulary.catalogue.fields[name].high
    return isinstance(low, int | float) and isinstance(high, int | float) and _YEARS[0] <= low and high <= _YEARS[1]


def _condition(
    sentence: Sentence, columns: Columns, comparison: Comparison, match: re.Match[str]
) -> NumberRange | None:
    """The condition that a comparison states of a field, in the field's unit; None where field or unit is unclear."""
    if comparison == "thousands":
        field = _key_of(sentence, match)
        return None if field is None else _range(comparison, match, field)
    unit = _unit_said(match)
    field = _field(sentence, columns, match, unit)
    if field is None:
        return None
    scale = columns.measures[field].scale(unit, money="money" in concepts_of(field))
    made = _range(comparison, match, field)
    return None if made is None or scale is None else _scaled(made, scale)


def _unit_said(match: re.Match[str]) -> Unit | None:
    """The unit beside a number, or the sign of a currency within it."""
    said = match.groupdict()
    sign = _CURRENCY.search(match[0])
    text = said.get("unit") or said.get("sign") or (sign[0] if sign else None)
    return unit_of(text) if text else None


def _field(sentence: Sentence, columns: Columns, match: re.Match[str], unit: Unit | None) -> str | None:
    """The number field that a word in the same clause points at, the nearest one first; else the one of such a unit."""
    fitting = [name for name, one in columns.measures.items() if unit is None or _fits(columns, name, unit)]
    worded = match["a"][:1].isalpha() and match["a"].isascii()
    start, end = match.start("a"), match.end("b" if match.groupdict().get("b") else "a")
    near: list[tuple[float, int, tuple[str, ...]]] = []
    index, behind = -1, 0
    for token in sentence.tokens:
        index += 1
        if index < behind or token.kind == "mark" or start < token.end <= end:
            continue
        gap = token.start - end if token.start >= end - 1 else start - token.end
        if gap > (1 if worded and unit is None else _NEAR) or _is_other_clause(sentence.text, token.start, match):
            continue
        column = columns.at(sentence, index)
        behind = column.last if column is not None else index + 1
        names = tuple(name for name in column.fields if name in fitting) if column is not None else ()
        if column is not None and names and not (worded and token.start < match.start()):
            near.append((-(column.strength >= 2), abs(gap), names))
    if near:
        names = min(near)[2]
        said = {name for _, _, others in near for name in others}
        return names[0] if len(names) == 1 or len(said) > 1 else (names[0] if unit is None and min(near)[0] else None)
    if unit is None:
        return None
    own = [name for name in fitting if unit.kind in {one.kind for one in columns.measures[name].units}] or fitting
    return own[0] if len(own) == 1 else None


def _fits(columns: Columns, name: str, unit: Unit) -> bool:
    """Whether a field may hold amounts of a unit."""
    units = columns.measures[name].units
    if not units:
        return unit.kind in CURRENCIES and "money" in concepts_of(name)
    return unit.kind in {one.kind for one in units}


def _scaled(made: NumberRange, scale: float) -> NumberRange:
    def of(number: float | int) -> float | int:
        exact = number * scale
        return int(exact) if exact == int(exact) else round(exact, 6)

    low, high = (None if one is None else of(one) for one in (made.low, made.high))
    return replace(made, low=low, high=high, values=tuple(map(of, made.values)))


def _of_texts(made: NumberRange, columns: Columns, said: Unit | None) -> NumberRange:
    """The condition as the texts that satisfy it, where numbers are kept as text."""
    measure = columns.measures.get(made.field)
    if measure is None or not measure.texts:
        return made
    said = next((unit for unit in measure.units if said is not None and unit.kind == said.kind), None)

    def holds(number: float, unit: Unit | None) -> bool:
        if said is not None and unit not in (None, said):
            return False
        if made.values:
            return number in made.values
        above = made.low is None or _HOLDS[made.low_included](made.low, number)
        return above and (made.high is None or _HOLDS[made.high_included](number, made.high))

    return replace(made, texts=tuple(text for text, (number, unit) in measure.texts.items() if holds(number, unit)))


def _opposite(made: NumberRange) -> NumberRange | None:
    """What is left when a bound is denied; None of what has two."""
    if made.values or (made.low is None) == (made.high is None):
        return None
    return replace(
        made,
        low=made.high,
        high=made.low,
        low_included=not made.high_included,
        high_included=not made.low_included,
    )


def _by_level(sentence: Sentence, found: Sequence[NumberRange]) -> list[NumberRange]:
    """ "severity 1 incidents", 严重程度为 2: the word for a field of few numbers, and one of them."""
    made: list[NumberRange] = []
    fields = sentence.vocabulary.catalogue.fields
    for index in range(len(sentence.tokens)):
        named, place = sentence.cue(index)
        name = next((one for one in named if sentence.vocabulary.roles.get(one) == "number"), None)
        if name is None or is_key(sentence.vocabulary, name) or fields[name].distinct > _FEW:
            continue
        while sentence.folded(place) in _LINKS:
            place += 1
        token, following = sentence.token(place), sentence.folded(place + 1)
        if token is None or token.kind != "number" or following in ("or", "and", "to", "-", "+", "%", "或", "及", "以"):
            continue
        number = parse_amount(token.folded)
        if number is not None and not any(one.start <= token.start < one.end for one in found):
            made.append(NumberRange(name, sentence.tokens[index].start, token.end, values=(number,)))
    return made


def _range(comparison: Comparison, match: re.Match[str], field: str) -> NumberRange | None:
    """The condition that a comparison states; None for what is no number, or an empty range."""
    first = _parsed(match["a"])
    if first is None:
        return None
    place = (match.start(), match.end())
    if comparison == "between":
        second = _parsed(match["b"])
        scale = _MAGNITUDE.search(match["b"])
        if scale and match["a"].strip().isdigit():
            # "between 1 and 3 million": the magnitude is said once.
            first = parse_amount(f"{match['a'].strip()} {scale[0]}") or first
        return NumberRange(field, *place, low=first, high=second) if second is not None and first <= second else None
    if comparison == "thousands":
        step = 10 ** (len(str(int(first))) - len(str(int(first)).rstrip("0")))
        return NumberRange(field, *place, low=first, high=first + step, high_included=False)
    made: dict[str, NumberRange] = {
        "exactly": NumberRange(field, *place, values=(first,)),
        "more": NumberRange(field, *place, low=first, low_included=False),
        "least": NumberRange(field, *place, low=first),
        "less": NumberRange(field, *place, high=first, high_included=False),
        "most": NumberRange(field, *place, high=first),
    }
    return made[comparison]


def _parsed(text: str) -> float | int | None:
    """A number in digits or words: "1.5 million", "two", "a hundred", 二十."""
    words = text.casefold().split()
    if len(words) == 2 and words[1] in _HUNDREDS and words[0] in ("a", "an"):
        return _HUNDREDS[words[1]]
    return parse_exact(text.casefold()) if text[0].isalpha() and text.isascii() else parse_amount(text)


def _key_of(sentence: Sentence, match: re.Match[str]) -> str | None:
    """The numbers of documents, if some document has a number like this."""
    keys = (name for name in sentence.vocabulary.of_role("number") if is_key(sentence.vocabulary, name))
    return next((name for name in keys if _in_range(sentence, name, match["a"])), None)


def _is_other_clause(text: str, place: int, match: re.Match[str]) -> bool:
    between = text[place : match.start()] if place < match.start() else text[match.end() : place]
    return not _CLAUSE_MARKS.isdisjoint(between)


def is_key(vocabulary: Vocabulary, name: str) -> bool:
    """Whether a number tells documents apart, as a ticket's or a standard's does."""
    values = vocabulary.catalogue.fields[name]
    is_unique = values.distinct >= _UNIQUE * max(values.documents, 1)
    return is_unique and "number" in concepts_of(name)


def _in_range(sentence: Sentence, name: str, text: str) -> bool:
    """Whether a number lies between the least and the largest of a field."""
    values, number = sentence.vocabulary.catalogue.fields[name], parse_amount(text)
    low, high = values.low, values.high
    return (
        number is not None and isinstance(low, int | float) and isinstance(high, int | float) and low <= number <= high
    )


def _key(sentence: Sentence) -> str | None:
    return next((name for name in sentence.vocabulary.of_role("number") if is_key(sentence.vocabulary, name)), None)


def number_nouns(sentence: Sentence, key: str) -> frozenset[str]:
    """Words before a document's number: those for the documents, and the field's own ("case" of case_number)."""
    own = {word for word in lexicon.name_words(key) if word not in lexicon.CONCEPTS["number"][0]}
    return frozenset(sentence.nouns | own | {f"{word}s" for word in own})


def _key_ranges(sentence: Sentence) -> list[NumberRange]:
    """ "between PEP 3100 and PEP 3120", "PEPs 600-650", "PEPs above 8100"."""
    key = _key(sentence)
    nouns = number_nouns(sentence, key) if key else None
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
        # "PEP 8 and 20" are two.
        is_span = match["from"] or match["to"].casefold() != "and"
        if low < high and is_span and _in_range(sentence, key, match["a"]):
            found.append(NumberRange(key, match.start(), match.end(), low=low, high=high))
    kinds: tuple[Comparison, ...] = ("more", "least", "less", "most")
    comparisons = tuple((kind, f"(?:{_alternatives(kind)})") for kind in kinds)
    for comparison, words in comparisons:
        # "reports older than 5 years" compares no number of a document.
        bound = (
            rf"\b{noun}(?:numbered\s+)?{words}\s*(?P<a>\d+)\b(?!\s*(?:years?|months?|days?|weeks?|[年月天个篇份条]))"
        )
        for match in re.finditer(bound, sentence.text, re.IGNORECASE):
            made = _range(comparison, match, key) if _in_range(sentence, key, match["a"]) else None
            found += [made] if made else []
    return found


def _by_number(sentence: Sentence, found: Sequence[NumberRange]) -> list[NumberRange]:
    """ "PEP 703": a word for the collection's documents with a number that one of them has."""
    key = _key(sentence)
    if key is None:
        return []
    nouns = number_nouns(sentence, key)
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
    return [NumberRange(key, start, end, values=tuple(dict.fromkeys(values)))]
