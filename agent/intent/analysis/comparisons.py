"""Find comparisons of amounts in a question, before their field is known: "at least 5", "20 to 30", "500 or less"."""

import re
from dataclasses import dataclass, replace
from functools import cache

from agent.intent.analysis.sentence import ENDS, Sentence
from agent.intent.language import lexicon
from agent.intent.language.amounts import Amount, find_amounts
from agent.intent.language.text import has_chinese
from agent.intent.words import word_table

Span = tuple[int, int]
_REACH = 40
"""Number of characters before and after an amount in which comparing words are looked for."""
_REACH_ZH = 16
_REACHED = 10
"""Maximum words between a negation ("not") and the comparison that it denies."""
_SIGNS = {"more": r"[>＞](?!=)", "least": r">=|=>|[≥⩾]", "less": r"[<＜](?!=)", "most": r"<=|=<|[≤⩽]", "exactly": "="}
_OPPOSITE = {"more": "most", "least": "less", "less": "least", "most": "more"}
_INCLUDING = re.compile(r"\s*[（(]\s*(?P<not>不)?(?:含|包含|包括)[^）)]{0,8}[）)]")
_WORD = re.compile(r"[\s-]+([a-z]+)", re.IGNORECASE)
_BETWEEN_ZH = re.compile(r"\s*(?:之间|间|以内的区间)")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition on a number at characters [start, end): from `low` to `high`, or one of `values`.

    Attributes:
        is_bare: True if no word compares the number, which may be a level then: "2 bed", "severity 1".
        negated: True if `values` are denied: "not 3 stars".
        dimension: "speed" for "faster", "age" for "older" and their opposites, which mean more for some fields and less
            for others; else "".
    """

    start: int
    end: int
    low: Amount | None = None
    high: Amount | None = None
    low_included: bool = True
    high_included: bool = True
    values: tuple[Amount, ...] = ()
    is_bare: bool = False
    negated: bool = False
    dimension: str = ""

    @property
    def amounts(self) -> tuple[Amount, ...]:
        return tuple(one for one in (self.low, self.high, *self.values) if one is not None)

    @property
    def kinds(self) -> frozenset[str]:
        """The possible kinds of unit of the amounts, such as "time"; empty without units."""
        readings = (reading for amount in self.amounts for reading in amount.readings)
        return frozenset(reading.unit.kind for reading in readings if reading.unit is not None)

    @property
    def is_open(self) -> bool:
        """Whether it has exactly one bound."""
        return (self.low is None) != (self.high is None) and not self.values


def swap_bounds(one: Comparison) -> Comparison:
    """Return the condition with its bounds swapped, for a field in which "faster" or "older" mean the opposite.

    "faster than 100" is first read as less than 100, as for a duration; for a speed it means more.
    """
    return replace(
        one, low=one.high, high=one.low, low_included=one.high_included, high_included=one.low_included, dimension=""
    )


def read_comparison(sentence: Sentence, one: Amount) -> Comparison | None:
    """Return the condition on an amount, as if the question stated no other amount; None if this is unclear."""
    return _read_one(sentence, 0, one, len(sentence.text))


def find_comparisons(sentence: Sentence) -> tuple[list[Comparison], list[Span]]:
    """Return the comparisons outside of dates, in order, and the characters [start, end) of unclear ones."""
    text = sentence.text
    amounts = [
        one
        for one in find_amounts(text)
        if not any(one.start < last and first < one.end for first, last in sentence.used_spans)
    ]
    found: list[Comparison] = []
    unclear: list[Span] = []
    place, since = 0, 0  # words before the character `since` belong to the previous comparison
    while place < len(amounts):
        following = amounts[place + 1] if place + 1 < len(amounts) else None
        count = 1 if following is None or not _belong_together(text, since, amounts[place], following) else 2
        if following is not None and count == 2:
            made = _read_two(sentence, since, amounts[place], following)
        else:
            until = following.start if following is not None else len(text)
            made = _read_one(sentence, since, amounts[place], until)
        if made is None:
            unclear.append((_comparison_start(text, since, amounts[place]), amounts[place + count - 1].end))
        else:
            found.append(made)
        since = max(amounts[place + count - 1].end, made.end if made else 0)
        place += count
    return found, unclear


def _comparison_start(text: str, since: int, one: Amount) -> int:
    """Return the position at which the comparing words before an amount begin, or the amount if there are none."""
    before = _before(text, since, one) or _between(text, since, one)
    return before.start() if before is not None else one.start


def _before(text: str, since: int, one: Amount) -> re.Match[str] | None:
    """Return the comparing words before an amount, directly or with a noun between ("min. rating 4"); or None.

    Args:
        since: where the previous comparison ends; words before this character belong to it.
    """
    near = max(since, one.start - _REACH)
    return _patterns()["before"].search(text, near, one.start) or _patterns()["named"].search(text, near, one.start)


def _words_before_name(sentence: Sentence, since: int, one: Amount) -> tuple[str, int] | None:
    """Return kind and start of comparing words before a field's name and the amount ("[beyond] page 150"), or None."""
    place = sentence.index_from(one.start) - 1
    if place < 1 or not sentence.cue_fields(place) or sentence.mention_at(place) is not None:
        return None
    start = sentence.tokens[place].start
    before = _patterns()["before"].search(sentence.text, max(since, start - _REACH), start)
    return (_kind(before)[0], before.start()) if before is not None else None


def _belong_together(text: str, since: int, first: Amount, second: Amount) -> bool:
    """Return whether two amounts form a range or a choice: "between 5 and 10", "5-10 km", 5到10之间, "2 or 3"."""
    joiner = _patterns()["joiner"].fullmatch(text, first.end, second.start)
    if joiner is None:
        return False
    if joiner["choosing"]:
        compared = _read_words(text, since, first, second.end, len(text))
        return compared is not None and not compared[0]
    is_within = _between(text, since, first) is not None or _BETWEEN_ZH.match(text, second.end) is not None
    return (not joiner["and"] or is_within) and first.with_unit_of_next(second).readings[0].size <= second.readings[
        0
    ].size


def _between(text: str, since: int, first: Amount) -> re.Match[str] | None:
    return _patterns()["between"].search(text, max(since, first.start - _REACH), first.start)


def _read_two(sentence: Sentence, since: int, first: Amount, second: Amount) -> Comparison | None:
    """Return the condition on two amounts that form a range or a choice; None if the condition is unclear."""
    text = sentence.text
    joiner = _patterns()["joiner"].fullmatch(text, first.end, second.start)
    before, behind = _between(text, since, first), _BETWEEN_ZH.match(text, second.end)
    one, other = first.with_unit_of_next(second), second.with_unit_of_previous(first)
    if joiner is not None and joiner["choosing"]:
        return Comparison(one.start, other.end, values=(one, other), is_bare=True) if before is None else None
    start = before.start() if before is not None else one.start
    if _is_vague(text, one.start, other.end) or _is_denied(sentence, start) is not False:
        return None
    return Comparison(start, behind.end() if behind is not None else other.end, one, other)


def _read_one(sentence: Sentence, since: int, one: Amount, until: int) -> Comparison | None:
    """Return the condition on an amount; None if unclear. The next amount begins at the character `until`."""
    text = sentence.text
    compared = _read_words(text, since, one, one.end, until)
    if compared is None or _is_vague(text, one.start, one.end):
        return None
    kind, start, end, dimension = compared
    if not kind and (over := _words_before_name(sentence, since, one)) is not None:
        kind, start = over
    denied = _is_denied(sentence, start)
    if denied is None:
        return None
    if not kind or kind == "exactly":
        first = start if denied is False else denied
        return Comparison(first, end, values=(one,), is_bare=not kind, negated=denied is not False)
    if denied is not False:
        kind, start = _OPPOSITE[kind], denied
    included = kind in ("least", "most")
    if (including := _INCLUDING.match(text, end)) is not None:
        included, end = including["not"] is None, including.end()
    if kind in ("more", "least"):
        return Comparison(start, end, low=one, low_included=included, dimension=dimension)
    return Comparison(start, end, high=one, high_included=included, dimension=dimension)


def _read_words(text: str, since: int, one: Amount, last: int, until: int) -> tuple[str, int, int, str] | None:
    """Return kind, start, end and `Comparison.dimension` of an amount's comparison.

    The kind is "more", "least", "less", "most", "exactly", or "" without comparing words. The result is None if the
    words before and after the amount contradict each other.

    Args:
        since: where the previous comparison ends.
        last: end of the amount, or of the second amount of a choice.
        until: where the next amount begins; words directly before it belong to that amount.
    """
    before = _before(text, since, one)
    behind = _patterns()["behind"].match(text[: min(until, last + _REACH)] + ("\0" if until < len(text) else ""), last)
    kinds = [_kind(match) for match in (before, behind) if match is not None]
    if behind is not None and len(set(kinds)) > 1 and (word := _WORD.match(behind[0])) and not _compares(word[1]):
        behind, kinds = None, kinds[:1]  # "up" compares nothing: "under 10 m that ended up severe"
    if before is not None and before[0].startswith("比"):
        return (kinds[-1][0], before.start(), behind.end(), "") if behind and kinds[-1][1] == "than" else None
    if kinds and kinds[-1][1] == "than":
        behind, kinds = None, kinds[:-1]
    if len({kind for kind, _ in kinds}) > 1 and not any(kind == "exactly" for kind, _ in kinds):
        return None
    kind, dimension = kinds[0] if kinds else ("", "")
    return kind, before.start() if before else one.start, behind.end() if behind else last, dimension


def _compares(word: str) -> bool:
    """Return whether an English word after an amount may begin its comparison: "or" in "or more"."""
    return word.casefold() in comparison_words() | {"or", "and"}


def _kind(match: re.Match[str]) -> tuple[str, str]:
    """Return the kind and `Comparison.dimension` of a match, see `_read_words`: ("less", "speed") for "faster than"."""
    kind, _, dimension = (match.lastgroup or "").partition("_by_")
    return kind, dimension


def _is_vague(text: str, start: int, end: int) -> bool:
    """Return whether the number is approximate, so that it makes no condition: "about 5", 5左右."""
    patterns = _patterns()
    before = patterns["vague"].search(text, max(0, start - _REACH), start)
    behind = text[end : end + _REACH].lstrip().casefold()  # "or worse": less for a score, more for a severity
    return before is not None or behind.startswith(("左右", "or worse"))


def _is_denied(sentence: Sentence, start: int) -> int | bool | None:
    """Return where the negation of the comparison at `start` begins; False without a negation, None if unclear."""
    text = sentence.text
    chinese = _patterns()["denying_zh"].search(text, max(0, start - _REACH_ZH), start)
    if chinese is not None and not chinese["asking"]:
        if chinese["strange"] and not all(
            sentence.cue_fields(place) or sentence.folded(place) in _skippable_words()
            for place in range(sentence.index_from(chinese.start("strange")), sentence.index_from(start))
        ):
            return False if _names(sentence, chinese.start(), start) else None
        return chinese.start()
    strange = 0
    for place in range(sentence.index_from(start) - 1, max(sentence.index_from(start) - 1 - _REACHED, -1), -1):
        token = sentence.tokens[place]
        if token.text in ENDS or sentence.mention_at(place) is not None or token.folded in _OTHERS:
            return False
        if _denies(sentence, place):
            return None if strange else _first_of_denial(sentence, place)
        is_reached = token.folded in _skippable_words() or sentence.cue_fields(place) or sentence.is_noun(place)
        if not is_reached and token.kind == "word":
            strange += 1
    return False


def _names(sentence: Sentence, start: int, end: int) -> bool:
    """Return whether the characters [start, end) name a value; a negation before them then denies the value."""
    places = range(sentence.index_from(start), sentence.index_from(end))
    return any(sentence.mention_at(place) is not None for place in places)


_OTHERS = frozenset(["and", "but", "or", "why", "if", "because"])


def _denies(sentence: Sentence, place: int) -> bool:
    word = sentence.folded(place)
    if word == "t":
        return sentence.folded(place - 1) in ("'", "’")
    if f"{sentence.folded(place - 1)} {word}" in word_table("numbers", "en")["denying_pairs"]:
        return True
    return word in _denying() or (word in lexicon.AUXILIARIES and word.endswith("nt"))


def _first_of_denial(sentence: Sentence, place: int) -> int:
    """Return the character at which a negation begins; "don't" has three tokens, of which "t" is found first."""
    first = place - 2 if sentence.folded(place) == "t" else place
    return sentence.tokens[max(first, 0)].start


@cache
def _denying() -> frozenset[str]:
    return frozenset(word_table("numbers", "en")["denying"].split())


@cache
def _skippable_words() -> frozenset[str]:
    return frozenset(word_table("numbers")["reached"])


def _words(*names: str, language: str | None = None) -> str:
    """Return a regular expression of the words in lists of the word table "numbers"; `language` None means all."""
    known = word_table("numbers", language)
    given = (known.get(name, []) for name in names)
    words = [word for one in given for word in (one.split() if isinstance(one, str) else one)]
    return "|".join(
        re.escape(word) if has_chinese(word) or not word[0].isalnum() else rf"\b{re.escape(word)}(?!\w)"
        for word in sorted(words, key=len, reverse=True)
    ).replace(r"\ ", r"\s")


@cache
def comparison_words() -> frozenset[str]:
    """Return the words that occur in comparisons after an amount: "more", "upwards", "least"."""
    known = word_table("numbers")
    classes = ("least_behind", "most_behind", "more_behind", "rising", "falling")
    listed = (one for name in known if name.startswith(classes) for one in known[name])
    return frozenset(word for one in listed for word in one.split())


def _behind_zh(name: str) -> str:
    """Return a pattern of Chinese comparing words, those in the list `name`, after an amount: 4学分[以上] ("or more").

    A counted noun of up to three characters may stand between. A word of one character must not be followed by another
    character, of which it would be a part.
    """
    words = word_table("numbers", "zh")[name]
    longer, shorter = ("|".join(one for one in words if (len(one) > 1) == is_long) for is_long in (True, False))
    return rf"[\u4e00-\u9fff]{{0,3}}?(?:{longer})" + (rf"|(?:{shorter})(?![\u4e00-\u9fff])" if shorter else "")


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    than = r"(?:\s[a-z]+)?\sthan\b"
    before = {
        "more": rf"{_words('more')}|(?:{_words('rising', language='en')}){than}",
        "least": _words("least"),
        "less": rf"{_words('less')}|(?:{_words('falling', language='en')}){than}",
        "most": _words("most"),
        "exactly": _words("exactly"),
        **{
            f"{kind}_by_{dimension}": rf"(?:{_words(f'{way}_by_{dimension}')}){than}"
            for kind, way in (("more", "rising"), ("less", "falling"))
            for dimension in ("speed", "age")
        },
    }
    # What may stand between an amount and the comparing words after it: "20 [places] at most".
    beside = r"(?:[\s-]+[a-z]+){0,2}?\s*"
    either = r"\b(?:or|and)\s+(?:even\s+)?"
    behind = {
        "least": rf"\+(?!\w)|{beside}(?:{either}(?:{_words('rising', language='en')})|"
        rf"{_words('least_behind', language='en')})|{_behind_zh('least_behind')}",
        "most": rf"{beside}(?:{either}(?:{_words('falling', language='en')})|{_words('most_behind', language='en')})"
        rf"|{_behind_zh('most_behind')}",
        "more": _behind_zh("more_behind"),
        **{
            f"{kind}_by_{dimension}": rf"{beside}{either}(?:{_words(f'{way}_by_{dimension}')})"
            for kind, way in (("least", "rising"), ("most", "falling"))
            for dimension in ("speed", "age")
        },
        "more_by_than": rf"(?:还要?|更)?(?:{_words('rising', language='zh')})",
        "less_by_than": rf"(?:还要?|更)?(?:{_words('falling', language='zh')})",
    }
    reached = "|".join(word_table("numbers", "zh")["reached"].split())
    affirming = "|".join(word_table("numbers", "zh")["affirming"])
    joining, choosing = _words("joining"), _words("choosing")
    made = {
        "before": "|".join(rf"(?P<{kind}>{words}|{_SIGNS.get(kind, '(?!)')})" for kind, words in before.items()),
        "behind": "|".join(rf"(?P<{kind}>{words})" for kind, words in behind.items()),
        "between": rf"(?:{_words('between')})\s*(?:the\s)?$",
        "joiner": rf"\s*(?:(?P<and>and|和|与)|(?P<choosing>{choosing})|(?:{joining}))\s*",
        "vague": rf"(?:{_words('vague')})\s*(?:the\s|an?\s)?$",
        "denying_zh": rf"(?:(?P<asking>([会能要可是想])不\2|可不可以|应不应该|有没有)|(?!{affirming})"
        rf"(?:{_words('denying', language='zh')}))(?:{reached})*(?P<strange>[^\W\d的和且但或而]{{1,8}})?\s*$",
    }
    # "min. rating 4", "maximum price: 300"
    named = "|".join(rf"(?P<{kind}_by_name>{_words(f'{kind}_of')})" for kind in ("least", "most"))
    made["named"] = rf"(?:{named})(?:\s+(?!(?:of|from)\b)[a-z]+){{1,2}}:?\s*$"
    made["before"] = rf"(?:\ban?\s)?(?:{made['before']}|比)\s*(?:of\s)?(?:the\s|an?\s)?\s*$"
    made["behind"] = rf"\s*(?:{made['behind']})(?!\s+(?:than|to)\b)(?!\s*\0)"
    return {name: re.compile(pattern, re.IGNORECASE) for name, pattern in made.items()}
