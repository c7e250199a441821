"""Split a text into tokens and give each the date categories it may have, from `words/LANGUAGE.toml` beside this
module."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from retrievers.text.folding import plain_letters

LANGUAGES = ("en", "zh")
_CJK = r"\u3400-\u9fff\uf900-\ufaff"
_DIGITS = "零一二三四五六七八九"
_PLACES = {"十": 10, "百": 100, "千": 1000}
_NUMERAL = re.compile(r"[〇零一二两俩三四五六七八九十百千]+")
_TOKEN = re.compile(rf"\d{{1,3}}(?:,\d{{3}})+(?!\d)|\d+(?:\.\d+)+|\d+|[^\W\d_{_CJK}]+|[^\s]")
_PAIR = re.compile(r"(?<![\w/.-])(?P<a>\d{1,2})[-/](?P<b>\d{1,2})(?!\d)")
_MARKED = re.compile(r"\w[-/.]\w")
"""A mark between two characters, which every date in digits contains."""
_MONTHS, _LONGEST_MONTH = 12, 31
_ARTICLES = frozenset(["a", "an", "the"])
_COMPACT = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])", re.ASCII)
_BEFORE_OLD = ("since", "before", "between", "yearword", "during")
_FIRST_YEAR, _LAST_YEAR = 1000, 2199
_NUMBER_CATEGORIES = frozenset(
    """
    MONTHNAME WDAY REL COMING ROLL YREL DAYREL O OONES ONES TEENS TENS FEW SEASON DECADE HALFYEAR HALFORD ERA FIRST
    SOME OTHERUNIT UNKNOWN
    """.split()
)
"""Categories whose keys in the data are integers."""


class ChartItem(NamedTuple):
    """A reading of the tokens [start, end).

    Attributes:
        category: a category of the grammar; joining words have one in lower case.
        value: the meaning, for example a number or a `Period`; None for joining words.
        cost: how far-fetched the reading is; of the longest readings the cheapest is taken.
    """

    category: str
    value: Any
    start: int
    end: int
    cost: int = 0


@dataclass(frozen=True, slots=True)
class DateToken:
    """A token at characters [start, end), with the readings that begin at it."""

    text: str
    start: int
    end: int
    items: list[ChartItem] = field(default_factory=list)

    @property
    def is_chinese(self) -> bool:
        return re.match(f"[{_CJK}]", self.text) is not None


@dataclass(frozen=True, slots=True)
class DateWords:
    """The words of all languages.

    Attributes:
        phrases: by the first token of a phrase: (its other tokens, category, value).
        variants: the normal form of a character, by code point.
        orders: for each language, the first number of 5/6/2019 and of 5/6 ("day" or "month"), and the marks of dates
            that begin with a two-digit year.
        months: month numbers by name.
        ambiguous_months: names of months and short names of weekdays that are also other words: "may", "sun".
        person_months: names of months that are also first names.
        numeric: matches a date of digits and marks, with or without a month's name: 5/6/2019, 5-Jun-2019.
    """

    phrases: dict[str, list[tuple[tuple[str, ...], str, Any]]]
    variants: dict[int, str]
    orders: dict[str, tuple[str, str, str]]
    months: dict[str, int]
    ambiguous_months: frozenset[str]
    person_months: frozenset[str]
    numeric: re.Pattern[str]


@lru_cache(maxsize=1)
def load_date_words() -> DateWords:
    """Read the words from the data files."""
    phrases: dict[str, list[tuple[tuple[str, ...], str, Any]]] = {}
    variants: dict[int, str] = {}
    orders: dict[str, tuple[str, str, str]] = {}
    months: dict[str, int] = {}
    verbal: set[str] = set()
    people: set[str] = set()
    for language in LANGUAGES:
        data = tomllib.loads((files("agent.intent.time") / "words" / f"{language}.toml").read_text(encoding="utf-8"))
        pairs = data.get("variants", "")
        variants |= {ord(old): new for old, new in zip(pairs[::2], pairs[1::2], strict=True)}
        orders[language] = (data["first_number"], data["first_without_year"], data["marks_after_year"])
        verbal.update(data.get("not_before_months", ()))
        people.update(data.get("first_names", ()))
        data["function"]["skipped"] = data["skipped"]
        for category, value, phrase in _entries(data):
            first, *rest = _TOKEN.findall(phrase)
            phrases.setdefault(first, []).append((tuple(rest), category, value))
            if category == "MONTHNAME" and phrase.isalpha():
                months[phrase] = value
    part = rf"(?:\d{{1,4}}|{'|'.join(sorted(months, key=len, reverse=True))})"
    # A date may begin after a Chinese character, or after two dots that mean "to".
    start = rf"(?<![^\W{_CJK}])(?<![$€£#])(?:(?<=\.\.)|(?<!\.))"
    numeric = re.compile(
        rf"{start}(?P<a>{part})(?P<mark>[-/.])(?P<b>{part})(?:(?P=mark)(?P<c>{part}))?(?!(?P=mark)?(?!t\d\d:)\w)|"
        rf"{start}(?P<d>{part})(?P<other>[-/.])(?P<e>{part})(?P=other)(?P<f>{part})(?=[{_CJK}])|"
        rf"{start}(?P<g>{part})(?P<third>[-/])(?P<i>{part})(?=[{_CJK}])",
        re.IGNORECASE,
    )
    return DateWords(phrases, variants, orders, months, frozenset(verbal), frozenset(people), numeric)


def _entries(data: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield (category, value, phrase) for every phrase in the data of a language."""
    for category, table in data.items():
        if not isinstance(table, dict):
            continue
        for key, phrases in table.items():
            if category == "function":
                yield from ((key, None, phrase) for phrase in phrases)
            else:
                value = int(key) if category in _NUMBER_CATEGORIES else key
                yield from ((category, value, phrase) for phrase in phrases)
                if category in ("UNIT", "UNITS"):
                    yield from ((f"{key}{category.lower()}", None, phrase) for phrase in phrases)


def read_date_tokens(text: str) -> list[DateToken]:
    """Return the tokens of a text, each with the readings of the words or phrases that begin with it."""
    words = load_date_words()
    folded = plain_letters(text).translate(words.variants).lower()
    tokens = list(_tokens(folded, words))
    spelled = [token.text for token in tokens]
    closed = 0
    inside: set[int] = set()
    for place, token in enumerate(tokens):
        named = [one for one in words.phrases.get(token.text, ()) if not one[0] or _spells(spelled, place, one[0])]
        ends = {category: place + 1 + len(rest) for rest, category, _ in named}
        if "ordinary_alone" in ends and not (place and _is_number(spelled[place - 1])):
            ends["ordinary"] = ends["ordinary_alone"]  # 月报 ("monthly report"), but not 12月报修
        within, closed = place < closed, max(closed, ends.get("ordinary", 0), ends.get("closed", 0))
        inside.update(range(place + 1, ends.get("ordinary", 0)))
        if token.items or within or "ordinary" in ends:
            continue  # a date in digits, or inside an ordinary word: 后 ("after") of 后端 ("back end")
        for rest, category, value in named:
            token.items.append(ChartItem(category, value, place, place + 1 + len(rest)))
        token.items.extend(_numbers(folded, tokens, place))
    for token in tokens if inside else ():
        token.items[:] = [item for item in token.items if item.end not in inside]
    return tokens


def _is_number(text: str) -> bool:
    return text.isdecimal() or _NUMERAL.fullmatch(text) is not None


def is_day_month_ambiguous(phrase: str, text: str) -> bool:
    """Return whether a phrase can be day/month or month/day (3/4/2024), and no other date of the text shows which."""
    pairs = [(int(one["a"]), int(one["b"])) for one in _PAIR.finditer(text)]
    is_told = any(_MONTHS < max(pair) <= _LONGEST_MONTH for pair in pairs)
    return not is_told and any(one["a"] != one["b"] for one in _PAIR.finditer(phrase))


def _spells(spelled: list[str], place: int, rest: tuple[str, ...]) -> bool:
    """Return whether the tokens after the one at `place` are those of `rest`."""
    return tuple(spelled[place + 1 : place + 1 + len(rest)]) == rest


def _tokens(text: str, words: DateWords) -> Iterator[DateToken]:
    """Yield the tokens of a text; a date in digits is one token and has its readings already."""
    order = _DayMonthOrder.of(text, words)
    place = count = 0
    is_marked = _MARKED.search(text) is not None
    while place < len(text):
        dated = words.numeric.match(text, place) if is_marked else None
        if dated:
            mark = dated["mark"] or dated["other"] or dated["third"]
            parts = [part for name in "abcdefgi" if (part := dated[name])]
            items = order.read(parts, mark, count) if text[place - 1 : place] != mark or not place else []
            if items:
                yield DateToken(dated[0], dated.start(), dated.end(), items)
                place, count = dated.end(), count + 1
                continue
        match = _TOKEN.match(text, place)
        if match is None:
            place += 1
            continue
        yield DateToken(match[0], match.start(), match.end())
        place, count = match.end(), count + 1


@dataclass(frozen=True, slots=True)
class _DayMonthOrder:
    """The order of day and month in dates in digits: by language, unless a date such as 31/5/2019 shows it."""

    months: dict[str, int]
    first: str
    first_without_year: str
    marks_after_year: str

    @classmethod
    def of(cls, text: str, words: DateWords) -> "_DayMonthOrder":
        first, without, marks = words.orders["zh" if re.search(f"[{_CJK}]", text) else "en"]
        for one in words.numeric.finditer(text) if _MARKED.search(text) else ():
            parts = [one[name] for name in "abc"]
            if all(part and part.isdigit() for part in parts) and len(parts[2]) == 4 and 12 < int(parts[0]) <= 31:
                first = "day"
        return cls(words.months, first, without, marks)

    def read(self, parts: list[str], mark: str, place: int) -> list[ChartItem]:
        """Return the only reading of a date in digits and marks, in a list; [] if the parts are no date.

        Its value is (year, month, day) for "DATE"; (year, month) for "YM", and for "YM1" with a month of one digit
        (2019-7); (month, day) for "MDN", and for "MD" with a month's name; the first year for "SPLITYEAR" (2025/26).

        Args:
            parts: the numbers and names of months between the marks.
            place: index of the token.
        """
        if not all(part.isdecimal() or part in self.months for part in parts):
            return []
        years = [part for part in parts if len(part) == 4 and part.isdigit()]
        named = [self.months[part] for part in parts if part in self.months]
        numbers = [int(part) for part in parts if part.isdigit() and part not in years]
        if len(years) > 1 or len(named) > 1 or any(number > 99 for number in numbers):
            return []
        if len(parts) == 2:
            return self._of_two(parts, mark, years, named, numbers, place)
        year: int | str
        if years:
            year = int(years[0])
        elif len(parts[0]) == 2 and mark in tuple(self.marks_after_year):
            year, numbers = parts[0], numbers[1:]
        elif len(parts[-1]) == 2 and parts[-1].isdigit() and mark != ".":
            year, numbers = parts[-1], numbers[:-1]
        else:
            return []
        if named:
            return [ChartItem("DATE", (year, named[0], numbers[0]), place, place + 1)] if len(numbers) == 1 else []
        leading = parts[0] in years or mark in tuple(self.marks_after_year)
        first = "month" if leading else "day" if mark == "." else self.first
        pair = _month_and_day(numbers, first)
        return [ChartItem("DATE", (year, *pair), place, place + 1)] if pair else []

    def _of_two(
        self, parts: list[str], mark: str, years: list[str], named: list[int], numbers: list[int], place: int
    ) -> list[ChartItem]:
        if parts[0] in years and mark in "-/" and numbers and numbers[0] == (int(years[0]) + 1) % 100 > _MONTHS:
            return [ChartItem("SPLITYEAR", int(years[0]), place, place + 1)]
        if years and (named or mark == "/" or (mark == "-" and parts[0] in years)):
            month = named[0] if named else numbers[0]
            category = "YM1" if mark == "-" and not named and len(parts[1]) == 1 else "YM"
            return [ChartItem(category, (int(years[0]), month), place, place + 1)] if 1 <= month <= 12 else []
        if years or (not named and mark != "/"):
            return []
        pair = (named[0], numbers[0]) if named and numbers else _month_and_day(numbers, self.first_without_year)
        return [ChartItem("MD" if named else "MDN", pair, place, place + 1)] if pair and pair[1] <= 31 else []


def _month_and_day(numbers: list[int], first: str) -> tuple[int, int] | None:
    """Return (month, day) from two numbers, or None if they are no date.

    Args:
        first: "month" or "day", what the first number is; if only the other order is possible, that is taken.
    """
    if len(numbers) != 2:
        return None
    month, day = numbers if first == "month" else reversed(numbers)
    if month > 12:
        month, day = day, month
    return (month, day) if 1 <= month <= 12 and 1 <= day <= 31 else None


def _numbers(text: str, tokens: list[DateToken], place: int) -> Iterator[ChartItem]:
    """Yield the readings of the digits or Chinese numerals at the token `place`: number, year, ordinal or date."""
    token = tokens[place]
    numeral = _NUMERAL.match(text, token.start)
    if numeral:
        if place and _NUMERAL.fullmatch(tokens[place - 1].text):
            return  # inside a numeral that began earlier
        yield from _chinese_numerals(numeral[0], place)
    elif token.text.isdecimal() and token.text.isascii() and len(token.text) <= 4 and not _is_code(text, tokens, place):
        number = int(token.text)
        yield ChartItem("NUM", number, place, place + 1)
        if len(token.text) == 4 and _FIRST_YEAR <= number <= _LAST_YEAR and _may_be_year(tokens, place, number):
            yield ChartItem("YEAR", number, place, place + 1)
        elif len(token.text) == 2:
            yield ChartItem("TWO", number, place, place + 1)
        following = tokens[place + 1] if place + 1 < len(tokens) else None
        if following and following.start == token.end and following.text in ("st", "nd", "rd", "th"):
            yield ChartItem("O", number, place, place + 2)
    elif _COMPACT.fullmatch(token.text):
        yield ChartItem("COMPACT", (int(token.text[:4]), int(token.text[4:6]), int(token.text[6:])), place, place + 1)


def _may_be_year(tokens: list[DateToken], place: int, number: int) -> bool:
    """Return whether the number of the token `place` may be a year: 1900 to 2099, or after a word such as "April"."""
    if 1900 <= number < 2100:
        return True
    before = tokens[place - 1] if place else None
    following = tokens[place + 1].text if place + 1 < len(tokens) else ""
    placed = before is not None and any(item.category in ("MONTHNAME", *_BEFORE_OLD) for item in before.items)
    return placed or following == "年"


def _is_code(text: str, tokens: list[DateToken], place: int) -> bool:
    """Return whether a number belongs to a name, a price or an amount: PEP-8, $2000, 2000 km, v2."""
    token = tokens[place]
    before = text[max(token.start - 2, 0) : token.start]
    if re.search(r"[$€£¥#_]$", before):
        return True
    if re.match(r"/\d|[-.:]\d{1,2}(?!\d)|[-./][^\W\d_]+\d", text[token.end :]) and len(token.text) == 4:
        return text[token.end] != "-" or re.match(r"-(?:[qh][1-4]|w\d)", text[token.end :]) is None
    words = load_date_words()
    previous = tokens[place - 1] if place else None
    glued = previous is not None and previous.end == token.start
    if glued and previous and previous.text[-1] in "-/" and place > 1 and tokens[place - 2].end == previous.start:
        return not tokens[place - 2].items
    if glued and previous and re.search(r"[^\W\d_]$", previous.text) and not previous.is_chinese:
        return not previous.items or previous.text in _ARTICLES
    following = tokens[place + 1] if place + 1 < len(tokens) else None
    if following is None or len(token.text) < 4:
        return following is not None and following.text in ("%", "€", "$", "£")
    return any(category == "amount" for _, category, _ in words.phrases.get(following.text, ()))


def _chinese_numerals(run: str, place: int) -> Iterator[ChartItem]:
    """Yield the readings of a run of Chinese numerals: 二十一 as a number, 二〇一六 and 零八 as digits of a year."""
    plain = run.translate({ord("〇"): "零", ord("两"): "二", ord("俩"): "二"})
    end = place + len(run)
    if all(c in _DIGITS for c in plain):
        digits = "".join(str(_DIGITS.index(c)) for c in plain)
        if len(digits) == 4 and _FIRST_YEAR <= int(digits) <= _LAST_YEAR:
            yield ChartItem("YEAR", int(digits), place, end)
        elif len(digits) == 2:
            yield ChartItem("TWO", int(digits), place, end)
            if digits[0] != "0" and int(digits[0]) + 1 == int(digits[1]):
                yield ChartItem("PAIR", (int(digits[0]), int(digits[1])), place, end)  # 三四季度 ("quarters 3 and 4")
        if len(digits) == 1:
            yield ChartItem("N", int(digits), place, end)
        return
    total = digit = 0
    for c in plain:
        if c in _DIGITS:
            if digit:
                return  # 八九十年代 ("the eighties and nineties") is no single number
            digit = _DIGITS.index(c)
        else:
            total, digit = total + (digit or 1) * _PLACES[c], 0
    yield ChartItem("N", total + digit, place, end)
