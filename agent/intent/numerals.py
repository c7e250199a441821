"""Numbers written as words, English and Chinese."""

import re

_UNITS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen
    """.split()
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ENGLISH = {word: number for number, word in enumerate(_UNITS)} | {
    word: 10 * number for number, word in enumerate(_TENS, 2)
}
_LOOSE = {
    "a": 1,
    "an": 1,
    "a couple of": 2,
    "couple of": 2,
    "a couple": 2,
    "a few": 3,
    "few": 3,
    "several": 3,
    "a dozen": 12,
}
_DIGITS = {character: number for number, character in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "俩": 2}
_CHINESE_UNITS = {"十": 10, "百": 100, "千": 1000}
_BIG = {"万": 10**4, "亿": 10**8}
_MAGNITUDES = (
    {"k": 10**3, "thousand": 10**3, "m": 10**6, "million": 10**6, "bn": 10**9, "billion": 10**9}
    | _BIG
    | {"千": 1000, "百": 100}
)

ENGLISH_WORDS = (
    rf"(?:(?:{'|'.join(_TENS)})(?:[- ](?:{'|'.join(_UNITS[1:10])}))?|{'|'.join(reversed(_UNITS))}|"
    r"an?\ couple(?:\ of)?|couple\ of|an?\ few|an?\ dozen|several|few|an?)"
)
EXACT = rf"(?:\d[\d,]{{0,20}}|(?:{'|'.join(_TENS)})(?:[- ](?:{'|'.join(_UNITS[1:10])}))?|{'|'.join(reversed(_UNITS))})"
"""A number that says how many: no "a few"."""
CHINESE_WORDS = r"[零〇一二两俩三四五六七八九十百千]{1,8}"
COUNT = rf"(?:\d{{1,3}}|{ENGLISH_WORDS})"
CHINESE_COUNT = rf"(?:(?<!\d)\d{{1,3}}|{CHINESE_WORDS})"
AMOUNT = (
    r"(?:(?:[$€£¥]\s?)?(?<![\d,_])\d(?:[\d,_]{0,14}\d)?(?:\.\d{1,6})?\s{0,2}(?:k|m|bn|thousand|million|billion|[百千]?[万亿]|[百千])?(?![A-Za-z])|"
    r"(?<![一二两三四五六七八九十百千])[一二两三四五六七八九十百千]{1,8}(?:[百千]?[万亿])?)"
)


def in_english(digit: int) -> str:
    """The English word of a number from 0 to 19."""
    return _UNITS[digit]


def in_chinese(digit: int) -> str:
    """The Chinese character of a number from 0 to 9."""
    return "零一二三四五六七八九"[digit]


def parse_exact(text: str) -> int | None:
    """A number written as `EXACT` or in Chinese."""
    digits = text.replace(",", "")
    return int(digits) if digits.isascii() and digits.isdigit() else parse_count(text)


def parse_count(text: str) -> int | None:
    """A count written as digits or words; None for what is none."""
    cleaned = " ".join(text.casefold().replace("-", " ").split())
    if cleaned.isascii() and cleaned.isdigit():
        return int(cleaned)
    if cleaned in _LOOSE:
        return _LOOSE[cleaned]
    if cleaned in _ENGLISH:
        return _ENGLISH[cleaned]
    tens, _, unit = cleaned.partition(" ")
    if tens in _TENS and unit in _UNITS[1:10]:
        return _ENGLISH[tens] + _ENGLISH[unit]
    return _chinese(cleaned)


def _chinese(text: str) -> int | None:
    if not text or any(c not in _DIGITS and c not in _CHINESE_UNITS for c in text):
        return None
    if all(c in _DIGITS for c in text):
        return int("".join(str(_DIGITS[c]) for c in text))
    total, digit = 0, 0
    for character in text:
        if character in _DIGITS:
            digit = _DIGITS[character]
        else:
            total += (digit or 1) * _CHINESE_UNITS[character]
            digit = 0
    return total + digit


def parse_amount(text: str) -> float | int | None:
    """A number with thousands separators, a currency sign or a magnitude: "$1.5 million", "30万"."""
    found = re.fullmatch(
        r"(?:[$€£¥]\s?)?(\d[\d,_]*(?:\.\d+)?)\s*([a-z]+|[百千]?[万亿]|[百千])?", text.strip().casefold()
    )
    if not found:
        return _chinese_amount(text.strip())
    value = float(found[1].replace(",", "").replace("_", ""))
    for magnitude in [found[2]] if (found[2] or "") in _MAGNITUDES else list(found[2] or ""):
        if magnitude not in _MAGNITUDES:
            return None
        value *= _MAGNITUDES[magnitude]
    return int(value) if value.is_integer() else value


def _chinese_amount(text: str) -> int | None:
    """ "一百万", "二十"."""
    big = _BIG.get(text[-1:], 1)
    value = _chinese(text[:-1] if big > 1 else text)
    return None if value is None else value * big
