"""Classify the words beside a name in a question: "in", "at" and "inside" are of the class "in"."""

from collections.abc import Mapping
from functools import cache

from agent.intent.analysis.sentence import Sentence
from agent.intent.words import LANGUAGES, word_table

_LONGEST_BEFORE = 4
_OR = frozenset(["or", "或", "或者"])


@cache
def _classes(where: str, language: str) -> Mapping[str, str]:
    return {word: name for name, words in word_table("link", language)[where].items() for word in words.split()}


@cache
def action_stems() -> frozenset[str]:
    """Return the stems of English verbs for what people do with documents: to write, propose, approve."""
    return frozenset(word_table("link", "en")["acting"].split())


def is_action_verb(sentence: Sentence, place: int) -> bool:
    """Return whether a verb for what people do with documents stands at the token `place`, English or Chinese."""
    token = sentence.tokens[place]
    if token.kind == "cjk":
        return sentence.text.startswith(tuple(word_table("link", "zh")["acting"].split()), token.start)
    return token.stem in action_stems()


def has_or_between(sentence: Sentence, start: int, end: int) -> bool:
    """Return whether "or" or 或 stands between the characters `start` and `end`."""
    between = range(sentence.index_from(start), sentence.index_from(end))
    return any(sentence.folded(place) in _OR for place in between)


def word_class_before(sentence: Sentence, place: int, end: int) -> str:
    """Return the class of the word before a name, such as "in" for "at"; "" if the word has none.

    Args:
        place: index of the word's token, the last one of a Chinese word.
        end: character at which the name begins.
    """
    token = sentence.token(place)
    if token is None:
        return ""
    if token.kind != "cjk" and token.folded not in "、":
        return _classes("before", "en").get(token.folded, "")
    text = sentence.text[:end].rstrip()
    words = _classes("before", "zh")
    return next((words[text[-n:]] for n in range(_LONGEST_BEFORE, 0, -1) if text[-n:] in words), "")


def is_preposition(sentence: Sentence, first: int, last: int) -> bool:
    """Return whether the tokens [first, last) only introduce a value, like "by" and 关于 ("about")."""
    tokens = sentence.tokens[first:last]
    said = sentence.text[tokens[0].start : tokens[-1].end].casefold() if tokens else ""
    return any(_classes("before", language).get(said) in ("by", "for", "in", "of", "about") for language in LANGUAGES)


def word_class_after(sentence: Sentence, place: int) -> str:
    """Return the class of the word that begins at the token `place`, after a name: "in" for "at"; "" without one."""
    token = sentence.tokens[place]
    if token.kind != "cjk" and token.folded not in "、":
        return _classes("after", "en").get(token.folded, "")
    words = _classes("after", "zh")
    text = sentence.text[token.start : token.start + _LONGEST_BEFORE]
    return next((words[text[:n]] for n in range(_LONGEST_BEFORE, 0, -1) if text[:n] in words), "")
