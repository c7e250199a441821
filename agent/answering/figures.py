"""Extract the numbers and dates of a text, each with every way to write it, to compare two texts."""

import re
from collections.abc import Iterator

from agent.intent.numerals import parse_amount, parse_count

Ways = frozenset[str]
"""One number in every form in which a text may write it, such as {"7", "07"}."""

_AMOUNT = re.compile(
    r"(?<![A-Za-z0-9_.])(?P<number>\d[\d,，]{0,30}(?:\.\d{1,30}){0,4})(?:\s?(?P<unit>thousand|million|billion|[百千]?[万亿]))?",
    re.IGNORECASE,
)
_NUMBER_WORD = re.compile(
    r"\b(?:(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:-(?:one|two|three|four|five|six|seven|eight|nine))?"
    r"|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen)\b",
    re.IGNORECASE,
)
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


def numbers_in(text: str) -> frozenset[Ways]:
    """Return the text's numbers in digits, months beside numbers, and dates."""
    found: set[Ways] = set()
    years = {
        one.start("last"): one["century"] + one["last"] for one in _YEARS.finditer(text) if one["last"] > one["first"]
    }
    for amount in _AMOUNT.finditer(text):
        digits = re.sub("[,，]", "", amount["number"])
        ways = {digits.lstrip("0") or "0", digits}
        if amount["unit"] and (value := parse_amount(f"{digits} {amount['unit']}".lower())) is not None:
            ways = {str(int(value)) if value == int(value) else str(value)}
        found.add(frozenset(ways | {years[amount.start()]} if amount.start() in years else ways))
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


def number_words(text: str) -> Iterator[tuple[Ways, int]]:
    """Yield (spellings, end offset) of each English number word from two on."""
    for word in _NUMBER_WORD.finditer(text):
        yield frozenset({str(parse_count(word[0]))}), word.end()


def without_number_words(text: str) -> str:
    """Return the text without English number words from two on."""
    return _NUMBER_WORD.sub(" ", text)


def plain_numbers(text: str) -> Iterator[tuple[Ways, int]]:
    """Yield (spellings, end offset) of each number in digits."""
    for amount in _AMOUNT.finditer(text):
        digits = re.sub("[,，]", "", amount["number"])
        yield frozenset({digits.lstrip("0") or "0", digits}), amount.end()


def spelled_numbers(text: str) -> frozenset[Ways]:
    """Return English ordinals and numbers in Chinese characters.

    They confirm a number but are not required, because they are too common in other uses.
    """
    values = [parse_count(found[0]) for found in _CHINESE_NUMBER.finditer(text)]
    values += [_ORDINALS.index(found[0].lower()) + 2 for found in _ORDINAL.finditer(text)]
    return frozenset(frozenset({str(value)}) for value in values if value is not None)


def _month(name: str) -> str:
    return str(_MONTHS.index(name[:3].lower()) + 1)
