"""Whether a value is what is not wanted: "not yet accepted", "anyone but Ann", 除了已撤回的.

A negation reaches forward over words that mean nothing of their own, over the field's words and over other values of
the field. Where another word stops it right before a value it is not clear what is denied, and the value is not read.
"""

import re
from collections.abc import Container
from functools import cache

from agent.intent import lexicon
from agent.intent.linking import Mention
from agent.intent.sentence import ENDS, Sentence
from agent.intent.text import has_chinese, stem
from agent.intent.words import table

_REACH = 14
_NEAR = 3
"""Words between a negation and a value that it may or may not be about."""
_NEAR_ZH = 3
_DENIAL = re.compile(
    r"(?:(?:\b(?:not|never|cannot)|n['’]t)(?P<between>(?:\s+[a-z]+){0,4})|(?:不是|并非|非|不在))\s*$", re.IGNORECASE
)
_BEFORE_BOUND = frozenset(
    """
    a an any be been being had have having in is are was were of on from during dated made written that the those ones
    """.split()
)
_OF_BOUNDS = frozenset("matter more less fewer later".split())
_ONLY = frozenset(["only", "just", "merely", "necessarily"])
_CLAUSE_ZH = re.compile(r"[，。；？！,;?!：:]")
_LISTED = re.compile(r"[\s（(]*(?:和|与|或者?|、|及|以及|跟|,|，)?[已经被由 \s]*")
_EXPLAINED = re.compile(r"[^\W\d的了除]{2,6}[（(]\s*$", re.IGNORECASE)


_DONE_BY_NOBODY = re.compile(r"(?:未|没有?)(?:经过?|由|被)\s*$")


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(table("negation", "en")[name].split())


@cache
def _pattern(name: str) -> str:
    words = sorted(table("negation", "zh")[name].split(), key=len, reverse=True)
    return "|".join(map(re.escape, words))


def is_negated(sentence: Sentence, mention: Mention) -> bool | None:
    """Whether the value is what is not wanted; None where that cannot be told."""
    before, after = _english_before(sentence, mention), _english_after(sentence, mention)
    found = _chinese(sentence, mention) if before is False and not after else True if after else before
    return None if found is False and _is_deed_denied(sentence, mention) else found


@cache
def _not_done() -> re.Pattern[str]:
    acting = "|".join(sorted(table("link", "zh")["acting"].split(), key=len, reverse=True))
    return re.compile(
        rf"\s+(?:\w+n['’]t|(?:\w+\s+)?(?:not|never))\b|\s*(?:从来?|并|还|也)?(?:没有?|未)(?:{acting})", re.IGNORECASE
    )


def _is_deed_denied(sentence: Sentence, mention: Mention) -> bool:
    """ "surveys Li Wei didn't approve", 李伟没有批准的, 未经李伟批准: what somebody has not done."""
    if not any(sentence.vocabulary.roles.get(one.field) == "person" for one in mention.known):
        return False
    return bool(
        _not_done().match(sentence.text, mention.end) or _DONE_BY_NOBODY.search(_clause_before(sentence, mention))
    )


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


def _english_before(sentence: Sentence, mention: Mention) -> bool | None:
    fields = {one.field for one in mention.known}
    stopped: int | None = None
    for place in range(mention.first - 1, max(mention.first - _REACH, 0) - 1, -1):
        if (
            sentence.token(place) is not None
            and sentence.tokens[place].text in ENDS
            and not _is_list(sentence, place, fields)
        ):
            return False
        if _begins(sentence, place):
            if stopped is None:
                return True
            gap = stopped - place
            return None if gap <= _NEAR and mention.first - stopped <= _NEAR else False
        if stopped is None and not _is_reached(sentence, place, mention, fields):
            over = sentence.mention_at(place)
            if over is not None and not fields & {one.field for one in over.known}:
                return False  # "non-final packaging PEPs" denies one of the two
            stopped = place
    return False


def _is_list(sentence: Sentence, place: int, fields: set[str]) -> bool:
    """Whether a comma stands behind another value of the field."""
    other = sentence.mention_at(place - 1)
    return sentence.folded(place) == "," and other is not None and bool(fields & {one.field for one in other.known})


def _begins(sentence: Sentence, place: int) -> bool:
    """Whether a negation stands here."""
    word, following = sentence.folded(place), sentence.folded(place + 1)
    if sentence.mention_at(place) is not None:
        return False
    if word == "but":
        earlier = {sentence.folded(one) for one in range(max(place - _NEAR, 0), place)}
        return following != "not" and not _words("whole").isdisjoint(earlier)
    if word == "t":
        return sentence.folded(place - 1) in ("'", "’")
    if word in _words("than"):
        return following == "than"
    if word in _words("from"):
        return following == "from"
    if word in _words("out"):
        return following in ("out", "aside")
    if word in ("no", "not") and (following in _OF_BOUNDS or sentence.folded(place - 1) in ("or", "why")):
        return False
    return (word in _words("not") and following not in _ONLY) or word in _words("skipping") or word.endswith("n't")


def _is_reached(sentence: Sentence, place: int, mention: Mention, fields: set[str]) -> bool:
    """Whether a negation reaches over what stands here."""
    word = sentence.folded(place)
    over = sentence.mention_at(place)
    if over is not None:
        return bool(fields & {one.field for one in over.known})
    token = sentence.tokens[place]
    is_name = token.kind == "cjk" or (token.is_capital and place > 0)
    return (
        token.kind == "mark" or is_name or word in _words("reaches") or sentence.is_noun(place)
        or not fields.isdisjoint(sentence.cue_fields(place)) or stem(word) in _acting()
    )  # fmt: skip


@cache
def _acting() -> frozenset[str]:
    return frozenset(table("link", "en")["acting"].split())


def _english_after(sentence: Sentence, mention: Mention) -> bool:
    """ "which the network team did [not] handle", "drafts excluded"."""
    place = mention.last
    while sentence.cue_fields(place) and place < mention.last + 2:
        place += 1
    if sentence.folded(place) in ("excluded", "excepted", "aside"):
        return True
    if sentence.folded(place) not in lexicon.AUXILIARIES:
        return False
    word, following = sentence.folded(place + 1), sentence.folded(place + 2)
    denied = (
        word in ("not", "never") or (word in ("'", "’") and following == "t") or sentence.folded(place)[-2:] == "nt"
    )
    related = any(
        sentence.folded(one) in ("that", "which", "whom", "whose", "who", "what") or sentence.is_noun(one)
        for one in range(mention.first)
    )
    # "which infra tasks have not been marked [done]" denies the other value.
    stated = any(sentence.mention_at(one) for one in range(place + 2, min(place + 2 + _NEAR, len(sentence.tokens))))
    return denied and related and not stated


def _chinese(sentence: Sentence, mention: Mention) -> bool | None:
    before = _clause_before(sentence, mention)
    fields = {one.field for one in mention.known}
    cues = "|".join(
        re.escape("".join(cue)) for cue, named in sentence.vocabulary.cues.items() if fields & set(named) and cue
    )
    fillers = rf"(?:{_pattern('fillers')}{'|' + cues if cues else ''}|[\s“\"‘'「『《（(-])*"
    found = re.search(rf"(?P<not>{_pattern('before')}){fillers}$", before)
    if found is not None:
        return not re.search(rf"(?:{_pattern('asks')})$", before[: found.end("not")])
    after = sentence.text[mention.end :]
    acting = "|".join(sorted(table("link", "zh")["acting"].split(), key=len, reverse=True))
    nouns = "|".join(map(re.escape, (*lexicon.CHINESE_DOCUMENT_NOUNS, *filter(has_chinese, sentence.nouns))))
    between = rf"{cues or '的'}|{acting}|{nouns}|的|那些|一律|就|都|全|也|请"
    if re.match(rf"[\s”\"’'」』》）)]*(?:{between})*(?:{_pattern('after')})", after):
        return True
    near = re.search(rf"(?:{_pattern('before')})[^的\W]{{1,{_NEAR_ZH}}}$", before)
    if near is None or re.search(rf"(?:{_pattern('asks')})", near[0]):
        return False
    return None


def _clause_before(sentence: Sentence, mention: Mention) -> str:
    """The clause up to a value, or up to the list of values that it continues: 除了已被取代和[已撤回]."""
    start = mention.start
    fields = {one.field for one in mention.known}
    for other in reversed(sentence.mentions):
        same = bool(fields & {one.field for one in other.known})
        if same and other.end <= start and _LISTED.fullmatch(sentence.text[other.end : start]):
            start = other.start
    text = _EXPLAINED.sub("", sentence.text[:start])
    return _CLAUSE_ZH.split(text)[-1]
