"""Whether a condition is what is not wanted: "not yet accepted", "anyone but Ann", "minus 2025", 除了已撤回的.

A negation reaches forward over words that mean nothing of their own, over the field's words and over other values of
the field. Where another word stops it, it is not clear what is denied: neither the condition nor its opposite is read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from agent.intent import lexicon
from agent.intent.linking import Mention
from agent.intent.sentence import ENDS, Sentence
from agent.intent.text import Token, has_chinese, stem, tokenize
from agent.intent.words import LANGUAGES, table

_REACH = 24
_UNCLEAR = 3
"""Words between a negation and a condition that it may or may not be about."""
_KINDS = ("harmless", "also", "prefix", "not", "lacking", "excluding", "but")
_APOSTROPHES = frozenset(["'", "’"])
_JOINING = frozenset("and or nor 和 或 及".split())
_ASKED = frozenset("i you we they he she it there".split())
_RELATIVE = frozenset("that which whom who what".split())
_DOING = frozenset("do does did don doesn didn has hasn have haven had hadn could couldn would wouldn will won".split())


@dataclass(frozen=True, slots=True)
class Negator:
    """A word of negation, tokens [first, last).

    Attributes:
        kind: "prefix" denies the next word, "not" a predicate, "lacking" that something is there, "excluding" takes
            documents away, "also" says that something is not all: "not only".
    """

    first: int
    last: int
    kind: str


@cache
def _phrases(kind: str) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """The phrases of a kind by their first word, the longest first."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for phrase in table("negation")[kind]:
        words = tuple(token.folded for token in tokenize(phrase.replace("’", "'")))
        found.setdefault(words[0], []).append(words)
    return {word: tuple(sorted(ways, key=len, reverse=True)) for word, ways in found.items()}


@cache
def _words(kind: str) -> frozenset[str]:
    return frozenset(table("negation")[kind])


@cache
def _acting() -> tuple[frozenset[str], tuple[str, ...]]:
    """The stems of verbs in English, and the verbs in Chinese."""
    english, chinese = (table("link", language)["acting"].split() for language in LANGUAGES)
    return frozenset(english), tuple(chinese)


def _phrase(sentence: Sentence, place: int, kind: str) -> int:
    """The place behind a phrase of a kind that begins here; the place itself where there is none."""
    for words in _phrases(kind).get(sentence.folded(place), ()):
        said = (sentence.folded(place + n) for n in range(len(words)))
        over = sentence.mention_at(place + len(words) - 1)
        if over is not None and over.first > place:
            continue  # 不[含早餐]
        if all(one == word or (one == "’" and word == "'") for one, word in zip(said, words, strict=True)):
            return place + len(words)
    return place


def find_negators(sentence: Sentence) -> dict[int, Negator]:
    """The words of negation of a question, by the place behind each."""
    found: dict[int, Negator] = {}
    place = 0
    while place < len(sentence.tokens):
        kind, last = max(
            ((kind, _phrase(sentence, place, kind)) for kind in _KINDS),
            key=lambda pair: (pair[1], -_KINDS.index(pair[0])),
        )
        if last == place and _is_contracted(sentence, place):
            kind, last = "not", place + 1
        covered = sentence.mention_at(place)
        if covered is not None and covered.last >= last:
            last = place  # a part of a name
        elif kind == "but" and _words("whole").isdisjoint({sentence.folded(place - n) for n in (1, 2, 3)}):
            last = place
        if last > place and kind != "harmless":
            found[last] = Negator(place, last, "excluding" if kind == "but" else kind)
        place = max(last, place + 1)
    return found


def _is_contracted(sentence: Sentence, place: int) -> bool:
    """The t of "isn't", unless it asks: "don't we have contracts with them?"."""
    if sentence.folded(place) != "t" or sentence.folded(place - 1) not in _APOSTROPHES:
        return False
    auxiliary, following = sentence.folded(place - 2), sentence.folded(place + 1)
    asks = place == 2 and (following in _ASKED or not auxiliary.startswith("do"))
    return auxiliary.endswith(("n", "ca")) and not asks


def is_negated(sentence: Sentence, start: int, end: int, fields: Collection[str]) -> bool | None:
    """Whether a condition on one of some fields is denied; None where that cannot be told.

    Args:
        start, end: the characters that state it.
    """
    first, last = sentence.index_from(start), sentence.index_from(end)
    before = _before(sentence, first, last, fields)
    places = list(_over_behind(sentence, last, fields))
    around = next((one for place in places if (one := _phrase(sentence, place, "around")) > place), None)
    if around is not None:
        before, places = True, list(_over_behind(sentence, around, fields))  # 除了[草稿]以外, and alone as well
    behind = _is_taken_away(sentence, last, places, fields)
    if not behind and around is None:
        behind = _is_deed_denied(sentence, first, last, fields)
    if behind and before:
        return False if around is not None else None  # 除了这些以外的都不要, 别把草稿排除
    return None if before is None else before or behind


def negator_of(sentence: Sentence, start: int, fields: Collection[str]) -> Negator | None:
    """The word of negation that reaches a condition from before it."""
    return _reaching(sentence, sentence.index_from(start), fields)[0]


def _before(sentence: Sentence, first: int, last: int, fields: Collection[str]) -> bool | None:
    negator, unclear, crosses = _reaching(sentence, first, fields)
    if negator is None:
        return False
    if sentence.folded(0) == "why":  # of what was not done the day is still asked for
        return False if all(sentence.vocabulary.roles.get(name) == "date" for name in fields) else None
    if negator.kind == "also":
        return None
    if negator.kind in ("not", "prefix") and crosses:
        return False
    if negator.kind not in ("not", "prefix") and _is_of_documents(sentence, negator, first, last):
        if crosses or _is_followed_by_other(sentence, last, fields):
            return None  # "except the drafts of Ann": neither all drafts nor all of hers
    elif crosses:
        return False
    if unclear:
        return None if unclear <= _UNCLEAR or negator.kind == "excluding" else False
    return None if _is_doubly_denied(sentence, negator) is None else not _is_doubly_denied(sentence, negator)


def _is_doubly_denied(sentence: Sentence, negator: Negator) -> bool | None:
    """ "nobody but Ann", "nothing other than drafts": one negation that another one takes back."""
    if negator.kind in ("not", "prefix"):
        return False
    place = negator.first - 1
    while place >= 0 and (sentence.is_noun(place) or sentence.folded(place) in _words("reaches")):
        if place + 1 in sentence.negators:
            break
        place -= 1
    outer = sentence.negators.get(place + 1)
    return outer is not None and outer.first < negator.first and outer.kind != "excluding"


def _reaching(sentence: Sentence, first: int, fields: Collection[str]) -> tuple[Negator | None, int, bool]:
    """The negator before a place, how many words stand between that it may be about, and whether another condition."""
    place, unclear, crosses, closed = first, 0, False, False
    for _ in range(_REACH):
        negator = sentence.negators.get(place)
        if negator is not None and (negator.kind != "prefix" or first - place <= 1):
            return (None, 0, False) if closed else (negator, unclear, crosses)
        if place <= 0 or _ends(sentence, place - 1, fields):
            break
        step, what = _step(sentence, place - 1, fields)
        if what == "clause":
            closed = True  # 不能登录的[紧急]工单: the denied clause describes the documents
        elif what == "value":
            closed = False
        elif what == "other":
            crosses, closed = True, False
        elif what == "word":
            unclear += 1
        place = step
    return None, 0, False


def _step(sentence: Sentence, place: int, fields: Collection[str]) -> tuple[int, str]:
    """The place before what ends at a place, and what that is to a negation that comes from further before."""
    token, over = sentence.tokens[place], sentence.mention_at(place)
    if over is not None and any(one.field in fields for one in over.known):
        return over.first, "value"
    cued = next((one for one in range(place, max(place - 4, -1), -1) if sentence.cue(one)[1] == place + 1), None)
    if cued is not None and not set(sentence.cue_fields(cued)).isdisjoint(fields):
        return cued, "over"
    if over is not None:
        return over.first, "other"
    if any(low <= token.start < high for low, high in sentence.taken):
        first = next(low for low, high in sentence.taken if low <= token.start < high)
        return sentence.index_from(first), "other"
    if token.kind == "cjk":
        return _step_zh(sentence, place)
    is_name = token.is_capital and place > 0
    over_it = (
        token.kind == "mark" or is_name or token.folded in _words("reaches") or sentence.is_noun(place)
        or stem(token.folded) in _acting()[0] or token.folded.endswith("ed")
    )  # fmt: skip
    return place, "over" if over_it else "word"


def _step_zh(sentence: Sentence, place: int) -> tuple[int, str]:
    text = sentence.text[: sentence.tokens[place].end]
    words = (*_words("reaches"), *_acting()[1], *lexicon.CHINESE_DOCUMENT_NOUNS, *filter(has_chinese, sentence.nouns))
    longest = max((word for word in words if has_chinese(word) and text.endswith(word)), key=len, default="")
    if longest:
        return place - len(longest) + 1, "over"
    return place, "clause" if text.endswith("的") else "word"


def _ends(sentence: Sentence, place: int, fields: Collection[str]) -> bool:
    """Whether a clause ends at a place; a comma behind another value of the field does not end it."""
    token = sentence.tokens[place]
    if token.kind == "cjk":
        text = sentence.text[: token.end]
        return any(has_chinese(word) and text.endswith(word) for word in _words("restarts"))
    if token.text in ENDS:
        other = sentence.mention_at(place - 1)
        listed = other is not None and any(one.field in fields for one in other.known)
        following = sentence.mention_at(place + 1)
        goes_on = following is not None and any(one.field in fields for one in following.known)
        return not (listed and token.text in ",，" and (goes_on or sentence.folded(place + 1) in _JOINING))
    is_in_negation = place in sentence.negators or place + 1 in sentence.negators  # "dropping only the drafts"
    return token.folded in _words("restarts") and not is_in_negation


def _is_of_documents(sentence: Sentence, negator: Negator, first: int, last: int) -> bool:
    """Whether what is denied has a word for documents of its own: "except those from [Lyon]", "no [urgent] mails"."""

    def is_head(place: int) -> bool:
        return sentence.folded(place) in _words("heads") or (
            sentence.is_noun(place) and sentence.mention_at(place) is None
        )

    return is_head(last) or any(is_head(place) for place in range(negator.last, first))


def _is_followed_by_other(sentence: Sentence, last: int, fields: Collection[str]) -> bool:
    """Whether a condition on another field follows in the clause."""
    for place in range(last, len(sentence.tokens)):
        token, over = sentence.tokens[place], sentence.mention_at(place)
        if over is None and _ends(sentence, place, fields):
            return False
        if over is not None and not any(one.field in fields for one in over.known):
            return True
        if any(low <= token.start < high for low, high in sentence.taken):
            return True
    return False


def _is_taken_away(sentence: Sentence, last: int, places: Sequence[int], fields: Collection[str]) -> bool:
    """ "drafts excluded", 草稿就不要了, 他写的也不看; not 某组的工单，去掉草稿."""
    for place in places:
        behind = _phrase(sentence, place, "behind")
        if sentence.folded(place) in _words("left") and _is_leaving(sentence, place):
            return True
        if behind > place:
            return not _is_followed_by_other(sentence, behind, fields) and _next_name(sentence, behind) is None
    for place in range(places[-1], min(places[-1] + 2 * _UNCLEAR, len(sentence.tokens))):
        ended = any(sentence.tokens[one].text in ENDS for one in range(last, place + 1))
        if ended or sentence.mention_at(place) is not None:
            return False
        behind = max(_phrase(sentence, place, kind) for kind in ("behind", "excluding"))
        if behind > place and _closes(sentence, behind):
            return place > last  # those of Ann you can skip
    return False


def _closes(sentence: Sentence, place: int) -> bool:
    """Whether nothing follows in the clause but particles."""
    token = sentence.token(place)
    while token is not None and (step := _spoken(sentence, token, "ending")):
        place += step
        token = sentence.token(place)
    return token is None or token.text in ENDS


def _is_leaving(sentence: Sentence, place: int) -> bool:
    """Whether a verb that leaves out stands before in the clause."""
    for before in range(place - 1, max(place - _REACH, -1), -1):
        if sentence.tokens[before].text in ENDS:
            return False
        if sentence.folded(before) in _words("leaving"):
            return True
    return False


def _next_name(sentence: Sentence, place: int) -> Mention | None:
    """The name of a value that follows within a few words of the clause."""
    for index in range(place, min(place + _UNCLEAR, len(sentence.tokens))):
        if sentence.tokens[index].text in ENDS:
            return None
        if (over := sentence.mention_at(index)) is not None:
            return over
    return None


def _over_behind(sentence: Sentence, place: int, fields: Collection[str]) -> Iterator[int]:
    """The places behind a value and what belongs to it: other values of the field, its words, words for documents."""
    for _ in range(_REACH):
        yield place
        token, over = sentence.token(place), sentence.mention_at(place)
        if token is None:
            return
        if over is not None and any(one.field in fields for one in over.known):
            place = over.last
        elif over is None and not set(sentence.cue_fields(place)).isdisjoint(fields):
            place = sentence.cue(place)[1]
        elif token.kind == "cjk" and (said := _said_between(sentence, token)):
            place += said
        elif _is_over_behind(sentence, place):
            place += 1
        else:
            return


def _is_over_behind(sentence: Sentence, place: int) -> bool:
    token = sentence.tokens[place]
    joins = token.kind == "mark" and (token.text not in ENDS or token.text in ",，")
    return joins or sentence.is_noun(place) or token.folded in _words("between")


def _said_between(sentence: Sentence, token: Token) -> int:
    """Characters of a word that may stand between a value and what takes it away."""
    nouns = max(
        (len(word) for word in _nouns_zh(sentence, token) if sentence.text.startswith(word, token.start)), default=0
    )
    return max(nouns, _spoken(sentence, token, "between"))


def _spoken(sentence: Sentence, token: Token, kind: str) -> int:
    """Characters of the longest word of a kind that begins at a Chinese token."""
    return max((len(word) for word in _words(kind) if sentence.text.startswith(word, token.start)), default=0)


def _nouns_zh(sentence: Sentence, token: Token) -> tuple[str, ...]:
    if token.kind != "cjk":
        return ()
    return (*lexicon.CHINESE_DOCUMENT_NOUNS, *filter(has_chinese, sentence.nouns), *_acting()[1])


def _is_deed_denied(sentence: Sentence, first: int, last: int, fields: Collection[str]) -> bool:
    """What somebody has not done: "that Ann didn't approve", 李伟没有批准的; not "those from Lyon are not closed"."""
    named, behind = sentence.cue(last)
    place = behind if not set(named).isdisjoint(fields) else last
    token = sentence.token(place)
    following = (one for one in sentence.negators.values() if place <= one.first <= place + _UNCLEAR)
    negator = min(following, key=lambda one: one.first, default=None)
    if token is None or token.text in ENDS or negator is None or negator.kind not in ("not", "lacking"):
        return False
    if any(sentence.folded(one) in _RELATIVE for one in range(place, negator.first)):
        return False  # "what Ann sent that nobody answered"
    roles, concepts = sentence.vocabulary.roles, sentence.vocabulary.concepts
    acts = any(roles.get(name) == "person" or "group" in concepts.get(name, ()) for name in fields)
    if token.kind == "cjk":
        text = sentence.text[sentence.tokens[negator.last - 1].end :]
        of_other = sentence.mention_at(negator.last) is not None
        return acts and negator.first == place and not of_other and text.startswith(_acting()[1])
    before = first - 1
    while before >= 0 and sentence.folded(before) in ("the", "a", "an"):
        before -= 1
    related = sentence.folded(before) in _RELATIVE
    word = sentence.token(before)
    plain = word is not None and word.kind == "word" and word.folded not in lexicon.STOP_WORDS
    subject = related or (plain and sentence.mention_at(before) is None)
    if negator.first == place or not subject or not (acts or related):
        return False
    return related or sentence.folded(place) in _DOING or negator.kind == "lacking"


def is_denied_mention(sentence: Sentence, mention: Mention) -> bool | None:
    """Whether a named value is what is not wanted; None where that cannot be told."""
    return is_negated(sentence, mention.start, mention.end, {one.field for one in mention.known})
