"""Whether a value is what is not wanted: "not yet accepted", "excluding drafts", 除了已撤回的."""

import re
from collections.abc import Container

from agent.intent.mentions import Mention
from agent.intent.sentence import Sentence
from agent.intent.vocabulary import concepts_of

_NEGATIONS = frozenset(
    """
    not no non excluding exclude except excepting without minus isn't aren't wasn't weren't never
    neither nor unlike leaving omitting ignoring barring apart
    """.split()
)
# A negation reaches over these to its value: "not [written by the] infrastructure team".
_REACHES_OVER = frozenset(
    """
    or and , anything those ones that are were is was been the any all by from of than come written in have / a an
    to belong t ' ’ - get gets got become end ended up yet already still ever be marked about on concerning
    regarding out aside counting including
    """.split()
)
_EVERYTHING = frozenset("anything everything all nothing".split())
_REACH = 9
_NEGATIONS_ZH = tuple(
    """
    除了 除 不在 不来自 没在 没 不是 并非 非 排除 去掉 不包括 不含 不算 不计 不要 没有 未 不属于 剔除 不
    """.split()
)
_NEGATION_ENDS_ZH = ("以外", "之外", "外")
_NOT_WANTED_ZH = re.compile(r"[”\"’'」]?的?(?:不要|除外|不算|去掉|剔除|排除)")
_FILLERS_ZH = "“\"‘'「 的了已经被由"
_EXPLAINED = re.compile(r"(?<!不)(?!除|排除|没有)[\u4e00-\u9fff]{2,4}[（(]\s*$")
_DENIAL = re.compile(
    r"(?:(?:\b(?:not|never|cannot)|n['’]t)(?P<between>(?:\s+[a-z]+){0,4})|(?:不是|并非|非|不在))\s*$", re.IGNORECASE
)
_BEFORE_BOUND = frozenset(
    """
    a an any be been being had have having in is are was were of on from during dated made written that the those ones
    """.split()
)
_LISTED = re.compile(r"[^，。；,;]{0,2}(?:和|与|或|、|及|以及|或者)[已经被由 ]*")


def is_negated(sentence: Sentence, mention: Mention) -> bool:
    """Whether the value is what is not wanted; a negation reaches over the values it is followed by."""
    said = _is_negated_english(sentence, mention)
    return _is_negated_chinese(sentence, mention) if said is None else said


def is_denied(sentence: Sentence, start: int, fields: Container[str]) -> bool:
    """Whether a bound that begins at a character is denied: "not published [in 2025]", "doesn't cost [more than 5]".

    Args:
        fields: whose words may stand between.
    """
    denial = _DENIAL.search(sentence.text[:start])
    if denial is None or sentence.folded(0) == "why":
        return False
    if denial["between"] is None:
        return True
    places = range(sentence.index_from(denial.start("between")), sentence.index_from(start))
    return all(
        sentence.folded(place) in _BEFORE_BOUND
        or (sentence.mention_at(place) is None and any(name in fields for name in sentence.cue_fields(place)))
        for place in places
    )


def _is_negated_english(sentence: Sentence, mention: Mention) -> bool | None:
    """None when no word before the value decides."""
    for steps in range(_REACH):
        place = mention.first - 1 - steps
        if place < 0:
            return None
        word, following = sentence.folded(place), sentence.folded(place + 1)
        if word in ("leaving", "apart") and following not in ("out", "aside", "from"):
            return None
        if word in _NEGATIONS or (word in ("other", "rather") and following == "than"):
            return not (word == "not" and following in ("only", "just"))
        if word == "but" and following not in ("not",) and sentence.folded(place - 1) in _EVERYTHING:
            return True
        if word == "outside" and steps < 3 and _is_place(mention):
            return True
        if word == "t" and sentence.folded(place - 1) in ("'", "’"):
            # "permits that haven't been closed"; "why wasn't it accepted" says nothing of documents.
            return any(sentence.is_noun(earlier) for earlier in range(place))
        if word in ("did", "do", "does") and following in ("not", "t"):
            return True
        over = sentence.mention_at(place)
        if over is not None and not {one.field for one in over.known} & {one.field for one in mention.known}:
            return None  # "non-final packaging PEPs" denies one of the two
        passive = word.endswith("ed") and following in ("by", "in", "as", "to", "with")
        if word not in _REACHES_OVER and over is None and not passive:
            return None
    return None


def _is_place(mention: Mention) -> bool:
    return any("place" in concepts_of(one.field) for one in mention.known)


def _is_negated_chinese(sentence: Sentence, mention: Mention) -> bool:
    before = _before_list(sentence, mention).rstrip(_FILLERS_ZH)
    after = sentence.text[mention.end : mention.end + 8]
    if any(end in after for end in _NEGATION_ENDS_ZH) and "除" in before[-12:]:
        return True
    if _NOT_WANTED_ZH.match(after):
        return True
    # 是不是 and 有没有 ask, they deny nothing.
    return before.endswith(_NEGATIONS_ZH) and not before.endswith(("是不", "有没有"))


def _before_list(sentence: Sentence, mention: Mention) -> str:
    """The text before a value, or before the list of values that it continues: 除了已被取代和[已撤回]."""
    # 除了已结案（[Closed]）
    before = _EXPLAINED.sub("", sentence.text[: mention.start])
    for other in reversed(sentence.mentions):
        if other.end <= len(before) and _LISTED.fullmatch(before[other.end :]):
            before = sentence.text[: other.start]
    return before
