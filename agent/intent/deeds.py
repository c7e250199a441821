"""What somebody has not done, or is not: "that Ann didn't approve", 李伟没有批准的, "with Bo not as the reviewer"."""

from collections.abc import Collection
from functools import cache

from agent.intent import lexicon
from agent.intent.linking import Mention
from agent.intent.sentence import ENDS, Sentence
from agent.intent.words import LANGUAGES, table

UNCLEAR = 3
"""Words between a negation and a condition that it may or may not be about."""
JOINING = frozenset("and or nor 和 或 及 跟".split())
_BEING = frozenset("is are was were be been being as the a an their its his her".split())
_ALL_ZH = frozenset("都均也全皆还从并")
_RELATIVE = frozenset("that which whom who what".split())
_DOING = frozenset("do does did don doesn didn has hasn have haven had hadn could couldn would wouldn will won".split())


@cache
def acting_words() -> tuple[frozenset[str], tuple[str, ...]]:
    """The stems of verbs in English, and the verbs in Chinese."""
    english, chinese = (table("link", language)["acting"].split() for language in LANGUAGES)
    return frozenset(english), tuple(chinese)


def is_deed_denied(sentence: Sentence, first: int, last: int, fields: Collection[str]) -> bool | None:
    """What somebody has not done: "that Ann didn't approve", 李伟没有批准的; not "those from Lyon are not closed"."""
    first, last = _listed(sentence, first, last, fields)
    if _is_role_denied(sentence, last, fields):
        return True
    named, behind = sentence.cue(last)
    place = behind if not set(named).isdisjoint(fields) else last
    token = sentence.token(place)
    if token is None or token.text in ENDS:
        return False
    if token.kind == "cjk":
        return _is_deed_denied_zh(sentence, first, place, fields)
    following = (one for one in sentence.negators.values() if place <= one.first <= place + UNCLEAR)
    negator = min(following, key=lambda one: one.first, default=None)
    if negator is None or negator.kind not in ("not", "lacking"):
        return False
    if any(sentence.folded(one) in _RELATIVE for one in range(place, negator.first)):
        return False  # "what Ann sent that nobody answered"
    acts = _are_acting(sentence, fields)
    before = first - 1
    while before >= 0 and sentence.folded(before) in ("the", "a", "an"):
        before -= 1
    # "which infra tasks have not": there the name describes what is asked for.
    related = sentence.folded(before) in _RELATIVE and (before > 0 or acts)
    word = sentence.token(before)
    plain = word is not None and word.kind == "word" and word.folded not in lexicon.STOP_WORDS
    subject = related or (plain and sentence.mention_at(before) is None)
    if negator.first == place or not subject or not (acts or related):
        return False
    return related or sentence.folded(place) in _DOING or negator.kind == "lacking"


def _is_deed_denied_zh(sentence: Sentence, first: int, place: int, fields: Collection[str]) -> bool | None:
    """李伟没有批准的, 李伟和王芳都没参加的; None where what was not done is no verb that is known."""
    while sentence.folded(place) in _ALL_ZH:
        place += 1
    negator = next((one for one in sentence.negators.values() if one.first == place), None)
    if negator is None or negator.kind not in ("not", "lacking") or sentence.mention_at(negator.last) is not None:
        return False
    text = sentence.text[sentence.tokens[negator.last - 1].end :]
    acts, several = _are_acting(sentence, fields), sentence.folded(place - 1) in _ALL_ZH
    if acts and text.startswith(acting_words()[1]):
        return True
    return None if acts or several else False


def _are_acting(sentence: Sentence, fields: Collection[str]) -> bool:
    """Whether values of one of some fields are people or groups, who do something."""
    roles, concepts = sentence.vocabulary.roles, sentence.vocabulary.concepts
    return any(roles.get(name) == "person" or "group" in concepts.get(name, ()) for name in fields)


def _listed(sentence: Sentence, first: int, last: int, fields: Collection[str]) -> tuple[int, int]:
    """The tokens of a list of values of a field that a value at some tokens is of: "Ann, Bo and Cy"."""

    def beside(place: int, step: int) -> Mention | None:
        other = sentence.mention_at(place + step)
        joined = sentence.folded(place) in JOINING or sentence.folded(place) in (",", "，", "、")
        return other if joined and other is not None and any(one.field in fields for one in other.known) else None

    while (other := beside(last, 1)) is not None:
        last = other.last
    while (other := beside(first - 1, -1)) is not None:
        first = other.first
    return first, last


def _is_role_denied(sentence: Sentence, last: int, fields: Collection[str]) -> bool:
    """ "with Ann not as the reviewer", "Ann neither author nor reviewer": the field's word behind a negation."""
    place = last
    while sentence.folded(place) in _BEING:
        place += 1
    negator = next((one for one in sentence.negators.values() if one.first == place), None)
    if negator is None or negator.kind != "not":
        return False
    place = negator.last
    while sentence.folded(place) in _BEING:
        place += 1
    cued = set(sentence.cue_fields(place)) & set(fields)
    if not cued or sentence.mention_at(place) is not None:
        return False
    others = range(place, min(place + 2 * UNCLEAR, len(sentence.tokens)))
    return not any((over := sentence.mention_at(one)) is not None and over.of(*cued) for one in others)
