"""Numbers that a question states about a metadata field: comparisons, ranges, and documents by their number."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agent.intent import lexicon
from agent.intent.negation import is_denied
from agent.intent.numerals import AMOUNT, EXACT, parse_amount, parse_exact
from agent.intent.sentence import Sentence
from agent.intent.vocabulary import Vocabulary, concepts_of

Comparison = Literal["exactly", "between", "more", "least", "less", "most", "thousands"]


@dataclass(frozen=True, slots=True)
class NumberRange:
    """A condition on a number: `low` to `high`, each with whether it is included, or one of `values`.

    Characters [start, end) of the question state it.
    """

    field: str
    start: int
    end: int
    low: float | int | None = None
    high: float | int | None = None
    low_included: bool = True
    high_included: bool = True
    values: tuple[float | int, ...] = ()


_MORE = (
    r"(?:above|over|more\s+than|greater\s+than|higher\s+than|larger\s+than|exceeding|beyond|longer\s+than|taller\s+than|"
    r"bigger\s+than|>(?!=)|超过|大于|高于|多于|不止|逾)"
)
_LEAST = r"(?:at\s+least|no\s+less\s+than|not\s+less\s+than|minimum(?:\s+of)?|>=|≥|不少于|至少|不低于|不小于)"
_LESS = (
    r"(?:under|below|less\s+than|fewer\s+than|lower\s+than|smaller\s+than|shorter\s+than|cheaper\s+than|<(?!=)|"
    r"低于|少于|小于|不到|不足)"
)
_MOST = (
    r"(?:at\s+most|up\s+to|no\s+more\s+than|not\s+more\s+than|maximum(?:\s+of)?|<=|≤|不超过|至多|最多|不高于|不大于)"
)
# In words only of a time: "more than two documents" counts them.
_OF_TIME = r"\s+(?:second|minute|hour|day|week)s?\b"
_NUMBER = rf"(?:{AMOUNT}|\b{EXACT}(?=(?:\s+(?:and|to)\s+{EXACT})?{_OF_TIME}))"
_A = rf"(?P<a>{_NUMBER})"


def _pattern(*parts: str) -> re.Pattern[str]:
    return re.compile("".join(parts), re.IGNORECASE)


_PATTERNS: tuple[tuple[Comparison, re.Pattern[str]], ...] = (
    (
        "between",
        _pattern(
            rf"(?:between|from|介于|在)?\s*{_A}\s*(?:and|to|[-–—~～]|到|至|和)\s*(?P<b>{_NUMBER})(?P<end>\s*之间)?"
        ),
    ),
    ("exactly", _pattern(rf"(?:exactly|precisely|恰好|正好|刚好)\s*{_A}")),
    ("most", _pattern(rf"{_MOST}\s*{_A}")),
    ("least", _pattern(rf"{_LEAST}\s*{_A}")),
    ("more", _pattern(rf"{_MORE}\s*{_A}")),
    ("less", _pattern(rf"{_LESS}\s*{_A}")),
    (
        "least",
        _pattern(
            rf"{_A}\s*(?:[a-z]+\s+)?(?:or\s+(?:more|above|higher|greater)\b|and\s+(?:above|up)\b|\+(?!\w)|",
            r"(?:\w{0,3}?)(?:及以上|以上|或更多|起))",
        ),
    ),
    (
        "most",
        _pattern(
            rf"{_A}\s*(?:[a-z]+\s+)?(?:or\s+(?:less|fewer|below|lower)\b|",
            r"(?:\w{0,3}?)(?:及以下|以下|以内))",
        ),
    ),
    # "the 600s" of numbered documents
    ("thousands", _pattern(r"\b(?:in\s+)?the\s+(?P<a>[1-9]\d*00)s\b")),
)
# What relates one numbered document to others: then the number is no constraint ("what replaced PEP 386").
_RELATION = re.compile(
    r"\b(?:than|like|similar\s+to|instead\s+of|replac\w*|supersed\w*|follow\w*\s+(?:up\s+)?(?:on|to)?|"
    r"buil[dt]\w*\s+(?:up)?on|depend\w*|before|after|compared?|differ\w*|inspired|based\s+on|refer\w*|cit\w*|"
    r"amend\w*|updat\w*|extend\w*|grow|grew|grown)\b|取代|替代|引用|基于|之前|之后|类似|不同|相比",
    re.IGNORECASE,
)
_MAGNITUDE = re.compile(r"\b(k|m|bn|thousand|million|billion)\b|[百千]?[万亿]", re.IGNORECASE)
_CURRENCY = re.compile(r"[$€£¥]")
_CLAUSE_MARKS = frozenset(",;:?!，；：？！。、")
_NEAR = 24
"""Characters between a number and the word for its field."""
_FEW = 20
"""Most numbers of a field that is a level rather than an amount."""
_LINKS = frozenset("of is = : ： was at 为 是 等 于".split())
_UNIQUE = 0.98
"""Share of the documents that have a number of their own where the number tells them apart."""


def find_quantities(sentence: Sentence) -> list[NumberRange]:
    """Conditions on number fields, not overlapping what dates were read from."""
    fields = sentence.vocabulary.of_role("number")
    if not fields:
        return []
    found = _key_ranges(sentence)
    for comparison, pattern in _PATTERNS:
        for match in pattern.finditer(sentence.text):
            taken = (*sentence.taken, *((one.start, one.end) for one in found))
            if any(match.start() < last and first < match.end() for first, last in taken):
                continue
            if _OF_DOCUMENTS_ZH.match(sentence.text, match.end()) and sentence.ends_with_noun(match.start()):
                continue  # 提案超过 40 个 counts them
            field = _key_of(sentence, match) if comparison == "thousands" else _field(sentence, match, fields)
            field = field or _timed(sentence, match, fields)
            made = None if field is None else _in_its_unit(_range(comparison, match, field), match)
            if made is not None and is_denied(sentence, made.start, (made.field,)):
                made = _opposite(made)
            found += [made] if made else []
    found += _by_level(sentence, found)
    return [*found, *_by_number(sentence, found)]


# Seconds of each, by the words for it in a question or in the name of a field.
_TIMES = {
    1: "second seconds sec secs 秒 秒钟",
    60: "minute minutes mins 分钟",
    3600: "hour hours hr hrs 小时 个小时 钟头 个钟头",
    86400: "day days 天",
    604800: "week weeks 周 星期 个星期",
}
_SECONDS = {word: seconds for seconds, words in _TIMES.items() for word in words.split()}
_TIME = re.compile(rf"\s*-?({'|'.join(sorted(_SECONDS, key=len, reverse=True))})(?![a-z])", re.IGNORECASE)


def _time_said(match: re.Match[str]) -> re.Match[str] | None:
    """The unit of time behind the number: "two [hours]"."""
    return _TIME.match(match.string, match.end("b" if match.groupdict().get("b") else "a"))


def _seconds_of(field: str) -> int | None:
    """Of the unit of time that a field's name says: "minutes_down"."""
    return next((_SECONDS[word] for word in lexicon.name_words(field) if word in _SECONDS), None)


def _timed(sentence: Sentence, match: re.Match[str], fields: Sequence[str]) -> str | None:
    """ "incidents that lasted more than two hours": the one field of a length of time, where nothing names another."""
    if _time_said(match) is None:
        return None
    timed = [name for name in fields if _seconds_of(name)]
    return timed[0] if len(timed) == 1 else None


def _in_its_unit(made: NumberRange | None, match: re.Match[str]) -> NumberRange | None:
    """The condition in the field's unit of time, where the question says another."""
    unit, own = _time_said(match), _seconds_of(made.field) if made else None
    if made is None or unit is None or own is None:
        return made
    said = _SECONDS[unit[1].casefold()]

    def scaled(number: float | int) -> float | int:
        exact = number * said / own
        return int(exact) if exact == int(exact) else round(exact, 6)

    return replace(
        made,
        end=max(made.end, unit.end()),
        low=None if made.low is None else scaled(made.low),
        high=None if made.high is None else scaled(made.high),
        values=tuple(map(scaled, made.values)),
    )


_OF_DOCUMENTS_ZH = re.compile(r"\s*[个篇份条](?!月|季|小时|星期)")


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
    if comparison == "exactly":
        return NumberRange(field, *place, values=(first,))
    if comparison == "more":
        return NumberRange(field, *place, low=first, low_included=False)
    if comparison == "least":
        return NumberRange(field, *place, low=first)
    if comparison == "less":
        return NumberRange(field, *place, high=first, high_included=False)
    return NumberRange(field, *place, high=first)


def _parsed(text: str) -> float | int | None:
    return parse_exact(text.casefold()) if text[0].isalpha() and text.isascii() else parse_amount(text)


def _field(sentence: Sentence, match: re.Match[str], fields: Sequence[str]) -> str | None:
    """The number field that a word in the same clause points at; the nearest one wins."""
    if _CURRENCY.search(match[0]):
        money = [name for name in fields if "money" in concepts_of(name)]
        if money:
            return money[0]
    nearest: tuple[int, str] | None = None
    for index, token in enumerate(sentence.tokens):
        if token.kind == "mark" or (match.start() < token.end <= match.end() and token.kind == "number"):
            continue
        gap = token.start - match.end() if token.start >= match.end() - 1 else match.start() - token.end
        if gap > _NEAR or _is_other_clause(sentence.text, token.start, match):
            continue
        for name in sentence.cue_fields(index):
            if name in fields and (nearest is None or abs(gap) < nearest[0]):
                nearest = (abs(gap), name)
    return nearest[1] if nearest else None


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
    comparisons: tuple[tuple[Comparison, str], ...] = (
        ("more", _MORE), ("least", _LEAST), ("less", _LESS), ("most", _MOST)
    )  # fmt: skip
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
