"""Extract the numbers and dates of a text, each with every way to write it, to compare two texts.

Two numbers are equal if they share a way to write them: {"2.5", "2.50"} and {"2.5"}.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from agent.intent.language.numerals import ENGLISH_NUMERALS, GREAT, parse_amount, parse_count, parse_english
from retrievers.text.folding import plain_letters

NumberForms = frozenset[str]
"""One number in every form in which a text may write it, such as {"7", "07"}."""

_MINUS = r"(?:(?P<minus>(?<![\w.,)−–—-])[-−]|\b(?:minus|negative)\s|负|零下)[$€£¥]?)"
"""A minus sign, or a word for it, before a number. The dash of a range, as in "10-15", does not match."""
_SUBTRACTED = re.compile(r"\d\s?")
_AMOUNT = re.compile(
    rf"(?:{_MINUS}|(?<![A-Za-z0-9_.]))"
    r"(?P<number>\d[\d,，]{0,30}(?:\.\d{1,30}){0,4})(?:\s?(?P<unit>thousand|million|billion|[百千]?[万亿]))?",
    re.IGNORECASE,
)
_NO_VERSION = re.compile(r"\s?(?:%|per\s?cent\b)", re.IGNORECASE)
_NUMERAL, _GREAT = "|".join(sorted(ENGLISH_NUMERALS, key=len, reverse=True)), "|".join(GREAT)
_PART = rf"(?:(?:{_GREAT})(?:\s+and(?=\s+(?:{_NUMERAL})\b))?|{_NUMERAL})\b"
_NUMBER_WORDS = re.compile(rf"\b(?:an?\s+(?=(?:{_GREAT})\b))?{_PART}(?:[\s-]+{_PART})*", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z]+")
_MOST_WORDS = 20
"""Maximum number of words of a number."""
_CHINESE_NUMBER = re.compile(r"[零〇一二两三四五六七八九十百千]{1,8}")
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH_NAME = rf"(?:{'|'.join(_MONTHS)})[a-z]{{0,6}}"
MONTH = re.compile(
    rf"\b{_MONTH_NAME}\.?(?=,?\s(?:of\s)?\d)|(?<=\d\s){_MONTH_NAME}\b|(?<=\d-){_MONTH_NAME}(?=-\d)", re.IGNORECASE
)
"""The name of a month beside a number."""
_DATE = re.compile(
    r"(?<!\d)(?P<year>\d{4})(?:-(?P<month>1[0-2]|0?[1-9])(?!\d)(?:-(?P<day>\d{1,2})(?!\d))?"
    r"|年(?P<month_zh>\d{1,2})月(?:(?P<day_zh>\d{1,2})日)?)"
    rf"|\b(?P<name>{_MONTH_NAME})\.?\s(?:(?P<day_en>\d{{1,2}})(?:st|nd|rd|th)?,?\s)?(?:of\s)?(?P<year_en>\d{{4}})"
    rf"|\b(?P<day_eu>\d{{1,2}})(?:st|nd|rd|th)?[\s-](?P<name_eu>{_MONTH_NAME})\.?,?[\s-](?P<year_eu>\d{{4}})",
    re.IGNORECASE,
)
_YEARS = re.compile(r"(?<!\d)(?P<century>\d\d)(?P<first>\d\d)\s?(?:-{1,2}|–|—)\s?(?P<last>\d\d)(?!\d|-\d)")
"""A range whose last year has two digits: "2007-11"."""
_ORDINALS = """
    second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth
    sixteenth seventeenth eighteenth nineteenth twentieth
    """.split()
_ORDINAL = re.compile(rf"\b(?:{'|'.join(_ORDINALS)})\b", re.IGNORECASE)


def extract_numbers(text: str) -> frozenset[NumberForms]:
    """Return the text's numbers in digits, months beside numbers, and dates, each as the set of ways to write it.

    "3 May 2019" -> {"3"}, {"5"}, {"2019"}, {"2019-5"}, {"2019-5-3"}. "2007-11" may be a month or a range of years.
    """
    text = plain_letters(text)
    found: set[NumberForms] = set()
    years = {
        one.start("last"): one["century"] + one["last"] for one in _YEARS.finditer(text) if one["last"] > one["first"]
    }
    for amount in _AMOUNT.finditer(text):
        ways, start = _with_unit(amount), amount.start("number")
        found.add(ways | {years[start]} if start in years else ways)
    for month in MONTH.finditer(text):
        found.add(frozenset({_month(month[0])}))
    for date in _DATE.finditer(text):
        part = {name.partition("_")[0]: value for name, value in date.groupdict().items() if value}
        month_of = f"{part['year']}-{_month(part['name']) if 'name' in part else int(part['month'])}"
        last = years.get(date.start("month"))
        found.add(frozenset({month_of, last} if last else {month_of}))
        if "day" in part:  # a text that states the day also states the month, but not vice versa
            found.add(frozenset({f"{month_of}-{int(part['day'])}"}))
    return frozenset(found)


def extract_amounts(text: str) -> Iterator[NumberForms]:
    """Yield each number in digits, or in English words if it is at least two. Of a date only the year counts.

    "3 May 2019, two cats, one dog" -> {"2019"}, {"2"}.
    """
    text = plain_letters(text)
    text = _DATE.sub(lambda date: f" {date['year'] or date['year_en'] or date['year_eu']} ", text)
    for amount in _AMOUNT.finditer(text):
        yield _with_unit(amount)
    for ways, _ in number_words(text):
        yield ways


def _with_unit(amount: re.Match[str]) -> NumberForms:
    """Return the ways to write a number, with its unit applied: "3 million" -> {"3000000"}."""
    if amount["unit"] and (value := parse_amount(f"{_digits(amount)} {amount['unit']}".lower())) is not None:
        return _signed(amount, [str(int(value)) if value == int(value) else str(value)])
    return _ways(amount)


def _digits(amount: re.Match[str]) -> str:
    return re.sub("[,，]", "", amount["number"])


def _ways(amount: re.Match[str]) -> NumberForms:
    """Return the number with and without leading zeros, and also without decimals if these are zeros.

    Before "%" or after a currency sign, 2.50 is also 2.5. Elsewhere these may be two versions of a program.
    """
    digits = _digits(amount)
    ways = [digits.lstrip("0") or "0", digits]
    if digits.count(".") == 1:
        whole, _, decimals = digits.partition(".")
        is_money = amount.string[: amount.start("number")].endswith(("$", "€", "£", "¥"))
        if not decimals.strip("0"):
            ways.append(whole.lstrip("0") or "0")
        elif is_money or _NO_VERSION.match(amount.string, amount.end("number")):
            ways += [way.rstrip("0") for way in ways]
    return _signed(amount, ways)


def _signed(amount: re.Match[str], ways: Iterable[str]) -> NumberForms:
    """Return the ways to write a number with its sign.

    If the sign may be the dash between two numbers, also those without it: the 5 of "3 -5" -> {"-5", "5"}.
    """
    if not amount["minus"]:
        return frozenset(ways)
    negative = frozenset(f"-{way}" for way in ways)
    between = _SUBTRACTED.fullmatch(amount.string, max(0, amount.start() - 2), amount.start())
    return negative | frozenset(ways) if between else negative


def number_words(text: str) -> Iterator[tuple[NumberForms, int]]:
    """Yield (ways to write it, end offset) of each number in English words that is at least two."""
    for number, _, end in _worded(plain_letters(text)):
        yield frozenset({str(number)}), end


def without_number_words(text: str) -> str:
    """Return the text without the numbers in English words that are at least two."""
    kept: list[str] = []
    place = 0
    for _, start, end in _worded(plain_letters(text)):
        kept.append(text[place:start])
        place = end
    return " ".join([*kept, text[place:]])


def _worded(text: str) -> Iterator[tuple[int, int, int]]:
    """Yield (number, start, end) of each number in English words that is at least two.

    Words that do not form one number are several: "one hundred and two hundred" -> 100 and 200.
    """
    for run in _NUMBER_WORDS.finditer(text):
        places = list(_WORD.finditer(text, run.start(), run.end()))
        words = [place[0].lower() for place in places]
        first = 0
        while first < len(words):
            number, length = _longest(words[first : first + _MOST_WORDS])
            if number is not None and number > 1:
                yield number, places[first].start(), places[first + length - 1].end()
            first += length


def _longest(words: Sequence[str]) -> tuple[int | None, int]:
    """Return the number that the longest beginning of `words` forms, and how many words that is.

    "two hundred cats" -> (200, 2). (None, 1) if no number begins with the first word.
    """
    ends = (n for n, word in enumerate(words) if word not in ("a", "an") and _number(words[: n + 1]) is None)
    end = next(ends, len(words))
    if end < len(words) and words[end] in GREAT and "and" in words[:end]:
        # In "one hundred and two hundred" the "two" belongs to the second number.
        end = max(n for n in range(end) if words[n] == "and")
    number = _number(words[:end])
    return (number, end) if number is not None else (None, 1)


def _number(words: Sequence[str]) -> int | None:
    return parse_english(" ".join(words))


def plain_numbers(text: str) -> Iterator[tuple[NumberForms, int]]:
    """Yield (ways to write it, end offset) of each number in digits."""
    for amount in _AMOUNT.finditer(text):
        yield _ways(amount), amount.end()


def spelled_numbers(text: str) -> frozenset[NumberForms]:
    """Return the English ordinals and the numbers in Chinese characters: "the third" -> {"3"}, 三十 -> {"30"}.

    In a passage they can confirm a number of an answer. In an answer they are not checked, because they are too common
    in other uses.
    """
    text = plain_letters(text)
    values = [parse_count(found[0]) for found in _CHINESE_NUMBER.finditer(text)]
    values += [_ORDINALS.index(found[0].lower()) + 2 for found in _ORDINAL.finditer(text)]
    return frozenset(frozenset({str(value)}) for value in values if value is not None)


def _month(name: str) -> str:
    return str(_MONTHS.index(name[:3].lower()) + 1)
