"""Find conditions on the length of a list: "five or more authors", a "single-author" report."""

import re

from agent.intent.analysis.sentence import Sentence
from agent.intent.language.numerals import CHINESE_COUNT, EXACT, parse_exact

LengthCondition = tuple[str, str, int, int, int]
"""(field, operator of the filter grammar, number, start, end): a condition stated at characters [start, end)."""

_REACH = 48
"""Maximum characters before the word for a list field in which the condition may stand."""
_LISTS = frozenset(["person", "tag", "version", "label"])
_COMPARING = {
    "gte": r"at\s+least|no[t]?\s+(?:fewer|less)\s+than|minimum\s+of|至少|不少于|不低于",
    "gt": r"more\s+than|over|above|超过|多于|不止|大于",
    "lt": r"fewer\s+than|less\s+than|under|below|少于|不到|不足",
    "lte": r"at\s+most|up\s+to|no[t]?\s+more\s+than|最多|至多|不超过",
    "eq": r"exactly|only|just|precisely|恰好|正好|刚好|只有|仅有?|唯一",
}
_FOLLOWING = {"gte": r"or\s+more|and\s+more|\+|及?以上|或更多", "lte": r"or\s+(?:fewer|less)|及?以下|或更少"}
_STATING = r"with|ha(?:ve|s|d|ving)|lists?|names?|by|carry|carries|show|got|有|由|带"
_NO_CONDITION = re.compile(r"(?:\b(?:top|the|first|last|which|these|those|what|many)|前|哪|第)\s*$", re.IGNORECASE)
_DENIED = re.compile(
    r"(?:(?:\b(?:not|never|no|without|cannot)|n['’]t)\b|没有?|未|不)[^,.;，。；]{0,16}$", re.IGNORECASE
)


def _named_groups(kinds: dict[str, str], suffix: str) -> str:
    return "|".join(f"(?P<{kind}{suffix}>{words})" for kind, words in kinds.items())


_BEFORE = re.compile(
    rf"(?:(?:{_named_groups(_COMPARING, '')})\s*|(?P<stated>\b(?:{_STATING})\s*))?(?:有\s*)?"
    rf"(?:(?P<n>\b{EXACT}|{CHINESE_COUNT})\s*)(?:(?:{_named_groups(_FOLLOWING, '_behind')})\s*)?(?:[个名位种人]\s*)?"
    rf"(?:(?:{_named_groups(_FOLLOWING, '_later')})\s*)?(?:(?:different|distinct|co)[\s-]+|不同的?|的)*$",
    re.IGNORECASE,
)
# 标签[超过两个]的文件: "files with [more than two] tags"
_AFTER_ZH = re.compile(
    rf"\s*(?:数量?|个数|人数)?\s*(?:{_named_groups(_COMPARING, '')})\s*(?P<n>\d+|{CHINESE_COUNT})\s*[个名位种人]",
    re.IGNORECASE,
)
_SINGLE = re.compile(r"(?:\b(?:(?:single|sole|lone)[\s-]+|one-\s*)|(?:唯一|单一|单独)的?\s*)$", re.IGNORECASE)

# "did she write [alone]", but not "in 2021 alone".
_ALONE = re.compile(
    r"(?<![\d\s])\s+(?:(?:all\s+)?alone|solo|single-handed(?:ly)?|on\s+(?:his|her|their)\s+own|by\s+(?:him|her)self|"
    r"by\s+themselves)\b|(?:独立|独自|单独|一个?人)地?(?:撰写|编写|写|署名|完成|起草|创作|负责|提交|发表)",
    re.IGNORECASE,
)


def read_length_conditions(sentence: Sentence) -> list[LengthCondition]:
    """Return the conditions on the number of values in list fields: "with [five or more authors]"."""
    found: list[LengthCondition] = _single_author_conditions(sentence)
    for index, token in enumerate(sentence.tokens):
        if sentence.mention_at(index) is not None or any(
            first <= token.start < last for first, last in sentence.used_spans
        ):
            continue
        fields, behind = sentence.cue(index)
        known = sentence.vocabulary.catalogue.fields
        name = next((one for one in fields if known[one].field.type == "list"), None) if fields else None
        if name is None or sentence.vocabulary.roles.get(name) not in _LISTS:
            continue
        near = max(0, token.start - _REACH)
        made = _condition_before(sentence.text[near : token.start])
        if made is not None:
            operator, number, start = made
            found.append((name, operator, number, near + start, sentence.tokens[behind - 1].end))
            continue
        after = _AFTER_ZH.match(sentence.text, sentence.tokens[behind - 1].end) if token.kind == "cjk" else None
        if after is not None:
            operator = next(kind for kind in _COMPARING if after[kind])
            found.append((name, operator, parse_exact(after["n"]) or 0, token.start, after.end()))
    return found


def _single_author_conditions(sentence: Sentence) -> list[LengthCondition]:
    """Return the condition that a list of people has one element, if a named person "wrote alone"; else []."""
    known, roles = sentence.vocabulary.catalogue.fields, sentence.vocabulary.roles
    named = dict.fromkeys(one.field for mention in sentence.mentions for one in mention.matches)
    people = [name for name in named if roles.get(name) == "person" and known[name].field.type == "list"]
    match = _ALONE.search(sentence.text) if people else None
    return [(people[0], "eq", 1, match.start(), match.end())] if match is not None else []


def _condition_before(text: str) -> tuple[str, int, int] | None:
    """Return (operator, number, start) of the condition that ends a text, or None: "at least two " -> ("gte", 2, 0)."""
    single = _SINGLE.search(text)
    if single is not None and not _NO_CONDITION.search(text[: single.start()]):
        return "eq", 1, single.start()
    match = _BEFORE.search(text)
    number = parse_exact(match["n"]) if match is not None else None
    if match is None or number is None or _NO_CONDITION.search(text[: match.start()]):
        return None
    named = [
        name.partition("_")[0] for name, value in match.groupdict().items() if value and name not in ("n", "stated")
    ]
    if (not named and not match["stated"]) or _DENIED.search(text[: match.start()]):
        return None  # "the three authors" is no condition, and a denied one is left to calculations
    return (named[0] if named else "eq"), number, match.start()
