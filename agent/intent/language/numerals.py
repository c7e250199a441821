"""Numbers written as words, in English and Chinese."""

import math
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
GREAT = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "dozen": 12}
ENGLISH_NUMERALS = (*_ENGLISH,)
"""Single words for numbers below 100."""
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
"""A pattern of exact numbers, without "a few"."""
CHINESE_WORDS = r"[零〇一二两俩三四五六七八九十百千]{1,8}"
COUNT = rf"(?:\d{{1,3}}|{ENGLISH_WORDS})"
CHINESE_COUNT = rf"(?:(?<!\d)\d{{1,3}}|{CHINESE_WORDS})"


def in_chinese(digit: int) -> str:
    """Return the Chinese character for a number from 0 to 9."""
    return "零一二三四五六七八九"[digit]


def parse_exact(text: str) -> int | None:
    """Parse a number in digits, also with commas, or any text that `parse_count` reads; None for other texts."""
    digits = text.replace(",", "")
    return int(digits) if digits.isascii() and digits.isdigit() else parse_count(text)


def parse_count(text: str) -> int | None:
    """Parse a number in digits or in words, also vague ones ("a few" is 3); None for other texts."""
    cleaned = " ".join(text.casefold().replace("-", " ").split())
    if cleaned.isascii() and cleaned.isdigit():
        return int(cleaned)
    if cleaned in _LOOSE:
        return _LOOSE[cleaned]
    return parse_english(cleaned) if cleaned.isascii() else parse_chinese(cleaned)


def parse_english(text: str) -> int | None:
    """Parse a number in English words, or return None: "twenty-five", "a hundred and ten", "two hundred thousand"."""
    words = [word for word in text.casefold().replace("-", " ").split() if word != "and"]
    total, part, last = 0, 0, None
    for word in words:
        small, great = _ENGLISH.get(word), GREAT.get(word)
        if word in ("a", "an") and last is None:
            small = 1
        if small is not None and (last is None or last in GREAT or (last in _TENS and 0 < small < 10)):
            part += small
        elif great is not None and last is not None and (great > 100 or part < 100):
            part = part * great
            if great > 100:
                total, part = total + part, 0
        else:
            return None
        last = word
    return None if last in (None, "a", "an") else total + part


def parse_chinese(text: str) -> int | None:
    """Parse a number in Chinese words: 二十三, 一千五 (1500), 三万, 二〇二四; None for 两三 ("two or three")."""
    if all(c in _DIGITS for c in text):
        digits = "".join(str(_DIGITS[c]) for c in text)
        return int(digits) if len(digits) in (1, 3, 4) or "0" in digits[1:] else None
    if text in ("百", "千", *_BIG):
        return None
    total, section, digit, unit = 0, 0, None, 1
    for character in text:
        if character in _DIGITS:
            if digit:
                return None
            digit = _DIGITS[character]
            unit = 1 if digit == 0 else unit
        elif character in _CHINESE_UNITS:
            unit = _CHINESE_UNITS[character]
            section, digit = section + (1 if digit is None else digit) * unit, None
        elif character in _BIG:
            unit = _BIG[character]
            total, section, digit = (total + section + (digit or 0)) * unit, 0, None
        else:
            return None
    # 一千五 is 1500, 一千零五 is 1005.
    return total + section + (digit or 0) * (unit // 10 if unit > 10 else 1)


def parse_amount(text: str) -> float | int | None:
    """Parse a number with thousands separators, currency sign or magnitude, or return None: "$1.5 million", "30万"."""
    found = re.fullmatch(
        r"(?:[$€£¥]\s?)?(\d[\d,_]*(?:\.\d+)?)\s*([a-z]+|[百千]?[万亿]|[百千])?", text.strip().casefold()
    )
    if not found:
        return parse_chinese(text.strip())
    value = float(found[1].replace(",", "").replace("_", ""))
    if not math.isfinite(value):
        return None
    for magnitude in [found[2]] if (found[2] or "") in _MAGNITUDES else list(found[2] or ""):
        if magnitude not in _MAGNITUDES:
            return None
        value *= _MAGNITUDES[magnitude]
    return int(value) if value.is_integer() else value
