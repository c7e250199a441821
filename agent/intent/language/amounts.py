"""Find the amounts in a text: numbers in digits or words with magnitude and unit: "1.5 million euros", 3万元."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from agent.intent.language.numerals import ENGLISH_NUMERALS, GREAT, parse_chinese, parse_english
from agent.intent.language.units import CURRENCIES, DIGITS_ONLY, Unit, rate_unit, unit_pattern, units_of
from agent.intent.words import word_table
from retrievers.text.folding import plain_letters

_DIGITS = (
    r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:\.\d{3})+(?:,\d{1,2})?(?!\d)|\d{1,3}(?:[ '’\u00a0]\d{3})+(?!\d)|"
    r"\d{1,9}(?:_\d{3})+|\d{1,3}:[0-5]\d|\d{1,15}(?:[.,]\d{1,9})?)"
)
_LETTERS = {"k": 10**3, "m": 10**6, "mn": 10**6, "mio": 10**6, "bn": 10**9}
_CHINESE_MAGNITUDES = {"百": 100, "千": 1000, "万": 10**4, "亿": 10**8}
_MAGNITUDE = (
    rf"(?:{'|'.join(GREAT)})\b|(?:{'|'.join(sorted(_LETTERS, reverse=True))})(?![^\W\d_]*[A-Za-z])|[百千]?[万亿]|[百千]"
)
_CHINESE_NUMBER = r"(?<![第几数哪多每零〇一二两俩三四五六七八九十百千万亿])[零〇一二两俩三四五六七八九十百千万亿]{1,12}"
_EMPTY_ZH = re.compile("[一十]|[百千万亿]+")
"""Numerals that are mostly parts of other words. They are numbers only with a unit, a measure word or 半 ("half")."""
_PARTS_ZH = frozenset("百千万亿点几")
_LATE_ZH = re.compile("[早晚]点")
"""Words whose 点 is no decimal point: 晚点一小时 ("an hour late")."""
_MEASURE_ZH = re.compile(r"\s*[个名位种人家间次项条篇份本件天层室居星分页]")
_IN_CODE = re.compile(r"[A-Za-z_][\w-]*[-_]$")
_CODE = 24
"""Maximum characters before a number that may belong to the same code: INC-2024-[05]."""
_LARGEST = 1e100
"""Larger numbers are not read, so that every product with magnitudes and units stays finite."""
_HALF_MORE = re.compile(r"\s+and\s+a\s+half\b", re.IGNORECASE)
_PART = "hal(?:f|ves)|quarters?|thirds?|fifths?|sixths?|sevenths?|eighths?|ninths?|tenths?|hundredths?|thousandths?"
_FRACTION_OF = re.compile(
    rf"(?:\b(?:{_PART}|part|fraction|couple|dozens|hundreds|thousands)\s+of|(?:\d/\d+|[½⅓⅔¼¾])(?:\s+of)?)$",
    re.IGNORECASE,
)
"""Words before an amount that multiply or divide it, so that it is not read: "two fifths of [a million]"."""
_GOES_ON = re.compile(rf"(?:\s\d{{1,2}})?/\d|\s?[½⅓⅔¼¾]|[\s-](?:{_PART})\s+of\s+(?:an?\s|\d)", re.IGNORECASE)
"""Text after a number that continues it and cannot be read, so that neither is: [2] 1/2, [two] fifths of a million."""
_LONGEST_FRACTION = 20
_PARTS = {"half": 0.5, "quarter": 0.25, "third": 1 / 3, "three": 0.75, "two": 2 / 3}
_AND_PART = re.compile(r"half|quarter|three", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AmountReading:
    """A possible meaning of an amount: `number` times `magnitude`, in `unit`, which is None if no unit is stated."""

    number: float
    magnitude: float = 1.0
    unit: Unit | None = None

    @property
    def value(self) -> float:
        return self.number * self.magnitude

    @property
    def size(self) -> float:
        """The value in the base unit of its kind, such as metres for km; the plain value without a unit."""
        return self.value * (self.unit.of if self.unit is not None else 1.0)


@dataclass(frozen=True, slots=True)
class Amount:
    """A number stated at characters [start, end) of a text.

    Attributes:
        readings: its possible meanings: "2m" is two million or two metres, "4.500" is 4500 or 4.5.
        is_worded: True if it is written in words without a unit; such a word is less surely a number.
    """

    start: int
    end: int
    readings: tuple[AmountReading, ...]
    is_worded: bool = False

    @property
    def has_unit(self) -> bool:
        return any(one.unit is not None for one in self.readings)

    def with_unit_of_next(self, other: "Amount") -> "Amount":
        """Return this amount with the unit and magnitude of the next amount, `other`, if they are stated once for both.

        In "1 to 3 million dollars", 1 becomes 1 million dollars.
        """
        made = []
        for mine, its in itertools.product(self.readings, other.readings):
            unit = mine.unit or its.unit
            grown = mine.number * its.magnitude
            fits = (mine.magnitude == 1 and mine.unit in (None, its.unit)) or (
                unit is not None and unit.kind in CURRENCIES
            )
            magnitude = its.magnitude if mine.magnitude == 1 and fits and grown <= its.value else mine.magnitude
            made.append(replace(mine, magnitude=magnitude, unit=unit))
        return replace(self, readings=tuple(dict.fromkeys(made)))

    def with_unit_of_previous(self, first: "Amount") -> "Amount":
        """Return this amount with the unit of the amount before it, if it has none: in "$1 to 3", 3 becomes $3."""
        if self.has_unit or not first.has_unit:
            return self
        units = dict.fromkeys(one.unit for one in first.readings)
        return replace(self, readings=tuple(replace(one, unit=unit) for one in self.readings for unit in units))


@cache
def _amount_pattern() -> re.Pattern[str]:
    money = "|".join(
        re.escape(word)
        for one in sorted(word_table("numbers")["units"], key=lambda one: -len(one["words"]))
        for word in sorted(one["words"].replace("_", " ").split(), key=len, reverse=True)
        if (one["kind"] in CURRENCIES and (word.isascii() or not word.isalpha())) or word == "百分之"
    )
    numeral = "|".join(sorted(ENGLISH_NUMERALS, key=len, reverse=True))
    great = "|".join(GREAT)
    worded = rf"(?:an?\s+(?=(?:{great})\b))?\b(?:{numeral}|{great})\b"
    worded += rf"(?:[\s-]+(?:and\s+(?!a\s))?(?:{numeral}|{great})\b)*"
    parts = r"(?:an?\s+|one[\s-])?(?:half|quarter)|(?:a\s+|one[\s-])third|three[\s-]quarters|two[\s-]thirds"
    fraction = rf"(?P<part>{parts})(?:\s+(?:of\s+)?(?:an?\s+)?|-)"
    more = r"\s+and\s+(?:a\s+(?:half|quarter)|three[\s-]quarters)\b"
    unit = unit_pattern()
    half = rf"(?<![个一二两三四五六七八九十])半(?=个?(?:{unit}|[百千]?[万亿]))"
    return re.compile(
        rf"(?:(?<![A-Za-z\d_])(?P<sign>{money})\s?)?"
        rf"(?:(?P<minus>(?<![\w.,%)])[-−])?(?P<digits>(?<![A-Za-z\d_.,#/:])(?<![A-Za-z_]-){_DIGITS})"
        rf"|(?P<chinese>{_CHINESE_NUMBER}|{half})"
        rf"|\b{fraction}(?=(?:{great})\b|{unit})|\b(?P<english>{worded})|\b(?P<one>an?)\s+(?={unit}))"
        rf"(?:(?:\s?|个)(?P<magnitude>{_MAGNITUDE}))?(?P<half>个半|(?<=[一二两三四五六七八九十百千万亿])半)?(?P<more>{more})?"
        rf"(?:(?:(?<=[a-z])\s|(?<=半))(?P<scaled>(?:{great})\b|[百千]?[万亿]))?"
        rf"(?:\s?(?P<vague>[多来几余]))?(?:\s?-?\s?个?(?P<unit>{unit})(?P<tail>(?<=[\u4e00-\u9fff])半)?)?"
        r"(?![A-Za-z\d_²³])(?![.:,]\d)",
        re.IGNORECASE,
    )


@cache
def _rate_pattern() -> re.Pattern[str]:
    """Return a pattern of the unit that an amount is divided by: 40 mg[/l], 30 hours [a week], 5毫克[每升] ("/l")."""
    return re.compile(
        rf"(?:\s?/\s?|\s(?:per|an?)\s|每)(?P<unit>{unit_pattern()})(?!\s+(?:ago|before|after|later|earlier)\b)",
        re.IGNORECASE,
    )


def find_amounts(text: str) -> list[Amount]:
    """Return the amounts of a text in order; two adjacent amounts of time are one: "2 hours 30 minutes"."""
    text = plain_letters(text)
    found: list[Amount] = []
    place = 0
    while (match := _amount_pattern().search(text, place)) is not None:
        one = _amount_of_match(match, text)
        place = one.end if one is not None else match.end()
        if one is None or _IN_CODE.search(text, max(0, one.start - _CODE), one.start):
            continue
        last = found[-1] if found else None
        joined = _join_durations(last, one, text) if last is not None else None
        if joined is not None:
            found[-1] = joined
        else:
            found.append(one)
    return found


def _amount_of_match(match: re.Match[str], text: str) -> Amount | None:
    said = match.groupdict()
    beside = text[match.start() - 1 : match.start()] + text[match.end() : match.end() + 1]
    if _LATE_ZH.search(text, max(0, match.start() - 2), match.start()):
        beside = beside[1:]
    if said["vague"] or not _PARTS_ZH.isdisjoint(beside):
        return None  # vague, as 三百多 ("over 300") and 十几 ("10 to 20"), or cut out of 1千5百 (1500)
    end = match.end()
    if said["unit"] in DIGITS_ONLY and not said["digits"]:
        end, said["unit"] = match.start("unit"), None
    before = text[max(0, match.start() - _LONGEST_FRACTION) : match.start()].rstrip()
    plain_end = max(match.end("english"), match.end("digits"))
    if _is_of_fraction(before, match[0]) or (plain_end > 0 and _GOES_ON.match(text, plain_end)):
        return None
    english = said["english"] or ""
    if english and parse_english(english) is None and " and " in english:
        # "between [one hundred] and two hundred": the numeral ends before "and".
        said["english"] = english = english[: english.index(" and ")]
        end = match.start("english") + len(english)
    numbers = list(_numbers(said))
    if (
        said["chinese"]
        and _EMPTY_ZH.fullmatch(said["chinese"])
        and not (said["unit"] or said["half"] or _MEASURE_ZH.match(text, end))
    ):
        return None
    numbers = [number + _added_fraction(said) for number in numbers]
    units: list[Unit | None] = [*units_of(said["unit"] or ""), *units_of(said["sign"] or "")]
    if said["one"] and (more := _HALF_MORE.match(text, end)):
        numbers, end = [1.5], more.end()
    if said["digits"] and ":" in said["digits"]:
        units = [*units_of("seconds")]
    magnitude, scale = _magnitude(said["magnitude"]), _magnitude(said["scaled"])
    if magnitude is None or scale is None:
        return None
    magnitude *= scale
    if said["chinese"] and magnitude == 1 and said["chinese"][-1] in "万亿":
        magnitude = float(_CHINESE_MAGNITUDES[said["chinese"][-1]])  # 一千万 (ten million) is 1000 times 万 (10,000)
        numbers = [number / magnitude for number in numbers]
    if units and all(unit is not None and unit.kind in CURRENCIES for unit in units):
        numbers = numbers[:1]  # money has no three decimals: "1.500 euros" is 1500
    numbers = [number for number in numbers if abs(number) <= _LARGEST]
    in_metres = units_of("m") if said["magnitude"] in ("m", "M") and not units else ()
    if (units or in_metres) and (per := _rate_pattern().match(text, end)) is not None:
        others = units_of(per["unit"])
        # "900 euros a month" also fits a field in plain euros: a field of rents does not say that they are monthly.
        plain = [
            one for one in units if one and one.kind in CURRENCIES and {"time", "months"} & {o.kind for o in others}
        ]
        units = [*(rate_unit(unit, other) for unit in (*units, *in_metres) if unit for other in others), *plain]
        magnitude, in_metres, end = 1.0 if in_metres else magnitude, (), per.end()
    made = [AmountReading(number, magnitude, unit) for number in numbers for unit in units or [None]]
    made += [AmountReading(number, 1.0, unit) for number in numbers for unit in in_metres]
    is_worded = not said["digits"] and not made[0].unit if made else False
    return Amount(match.start(), end, tuple(made), is_worded) if made else None


def _numbers(said: dict[str, str | None]) -> Iterable[float]:
    """Return the numbers that an amount may mean, from the groups of its match: several if ambiguous, [] if none."""
    if said["digits"]:
        return _parse_digits(said["digits"], -1.0 if said["minus"] else 1.0)
    if said["one"]:
        return [1.0]
    if said["part"]:
        words = re.split(r"[\s-]+", said["part"].casefold())
        return [_PARTS[words[1] if words[0] in ("a", "an", "one") else words[0]]]
    if said["chinese"] == "半":
        return [0.5]
    number = parse_chinese(said["chinese"]) if said["chinese"] else parse_english(said["english"] or "")
    return [] if number is None else [float(number)]


def _added_fraction(said: Mapping[str, str | None]) -> float:
    """Return what "and a half" adds: 0.5 in "two and a half", 500,000 in "a million and a half", 0 if it is missing."""
    if not (said["half"] or said["more"] or said["tail"]):
        return 0.0
    part = _AND_PART.search(said["more"] or "half")
    assert part is not None
    last = (said["english"] or "").casefold().split()[-1:]
    whole = float(GREAT.get(last[0], 1)) if last and not said["scaled"] and not said["magnitude"] else 1.0
    if said["chinese"] and not said["magnitude"]:
        whole = float(_CHINESE_MAGNITUDES.get(said["chinese"][-1], 1))
    return _PARTS[part[0].casefold()] * whole


def _is_of_fraction(before: str, said: str) -> bool:
    """Return whether the text `before` an amount multiplies or divides the amount `said`, see `_FRACTION_OF`."""
    if re.match(r"an?\b", said, re.IGNORECASE):
        before = f"{before.removesuffix(' of')} of"  # "of" may be missing: "a fifth a million"
    return _FRACTION_OF.search(before) is not None


def _parse_digits(text: str, sign: float) -> Iterator[float]:
    """Yield the numbers that digits may mean, times `sign`: 1500 and 1.5 for "1.500", 90 and 5400 seconds for "1:30".

    Yield nothing for text that is no number. A very long number is infinite.
    """
    if ":" in text:  # minutes and seconds, or hours and minutes
        first, last = map(int, text.split(":"))
        yield from (60.0 * first + last, 3600.0 * first + 60 * last)
        return
    grouped = re.fullmatch(r"\d{1,3}(?:([.,' ’_\u00a0])\d{3})+(?:[.,]\d+)?|\d+(?:_\d{3})+", text)
    if grouped is not None and not text.startswith("0"):
        mark = grouped[1] or "_"
        whole = text.replace(mark, "").replace(",", ".")
        yield sign * float(whole)
        if mark == "." and text.count(".") == 1 and "," not in text:
            yield sign * float(text)
    else:
        with suppress(ValueError):  # "0 800 555" is a telephone number
            yield sign * float(text.replace(",", "."))


def _magnitude(text: str | None) -> float | None:
    """Return the factor of "million" or 百万, 1 for no text; None for an unknown word."""
    if not text:
        return 1.0
    word = text.casefold()
    if word in GREAT or word in _LETTERS:
        return float(GREAT.get(word) or _LETTERS[word])
    if not set(word) <= _CHINESE_MAGNITUDES.keys():
        return None
    return float(math.prod(_CHINESE_MAGNITUDES[character] for character in word))


def _join_durations(first: Amount, second: Amount, text: str) -> Amount | None:
    """Return adjacent amounts of time as one, the larger unit first: "2 hours 30 minutes" is 2.5 hours; else None."""
    one, other = first.readings[0], second.readings[0]
    if one.unit is None or other.unit is None or one.unit.kind != other.unit.kind or one.unit.of <= other.unit.of:
        return None
    if text[first.end : second.start].strip() or one.unit.kind != "time":
        return None
    number = one.value + other.value * other.unit.of / one.unit.of
    return Amount(first.start, second.end, (AmountReading(number, 1.0, one.unit),))
