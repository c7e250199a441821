"""Recognise turns that need no search: every word of them is in the lists of `words/*.toml`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from agent.intent.language.text import has_chinese
from agent.intent.words import LANGUAGES, word_table

_WORD = re.compile(r"[\u3400-\u9fff]|\d+(?:[.,]\d+)*|[^\W\d_\u3400-\u9fff]+(?:['’-][^\W\d_\u3400-\u9fff]+)*")
_KEYBOARD_RUN = re.compile(r"\W*(?:asdf|qwer|zxcv|hjkl|dfgh)\w{0,12}\W*", re.IGNORECASE)
_DATE = re.compile(r"\W*\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4}\W*")
# A text supplied by the turn, after a colon or in quotes.
_GIVEN = re.compile(r"(?:[:：→]|->)\s*\S.{3,}|[\"“‘「][^\"”’」]{6,}[\"”’」]|(?<!\w)'[^']{20,}'", re.DOTALL)
_ANSWERS = re.compile(r"\b(?:explain|answer|reply|respond)\b|回答|回复", re.IGNORECASE)
_YEAR_ZH = re.compile(r"(?<!\d)(?:19|20)\d\d\s*年")
_RECKONS_ZH = re.compile(r"[等是合换折加减乘除算]|分之")
_NUMERAL = re.compile(r"[\d一二三四五六七八九十百千万两半]")
_OPERATOR = re.compile(r"[-+*/×÷^%=]")
_LEADS = frozenset("and but so then also now just".split())
_LONGEST = 200

Phrases = Mapping[str, tuple[tuple[str, ...], ...]]


class _ListedWord(NamedTuple):
    """A word or Chinese character of a turn, folded, with its position."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _PhraseLists:
    """The lists of all languages: phrases by first word, the longest first; "_" in a phrase stands for any word.

    Attributes:
        talk: phrases addressed to the assistant, such as greetings and thanks.
        play: requests to make something up, such as a joke.
        doing, manner: words of a request about the answer ("translate"), and words allowed beside them ("please").
        own: words for the asker's own things ("our"), and for documents pointed at ("those").
        sums, units: words of arithmetic, and units of measure.
    """

    talk: Phrases
    play: Phrases
    doing: Phrases
    manner: Phrases
    own: Phrases
    sums: Phrases
    units: Phrases


@cache
def _lists() -> _PhraseLists:
    return _PhraseLists(**{name: _by_first(_phrases(name)) for name in _PhraseLists.__dataclass_fields__})


def _phrases(name: str) -> Iterable[tuple[str, ...]]:
    for language in LANGUAGES:
        for phrase in re.split(r"[,\n]", word_table("turn", language).get(name, "")):
            words = tuple("_" if word == "_" else _plain(word) for word in re.findall(rf"_|{_WORD.pattern}", phrase))
            if words:
                yield words


def _by_first(phrases: Iterable[tuple[str, ...]]) -> dict[str, tuple[tuple[str, ...], ...]]:
    found: dict[str, list[tuple[str, ...]]] = {}
    for words in dict.fromkeys(phrases):
        found.setdefault(words[0], []).append(words)
    return {first: tuple(sorted(each, key=len, reverse=True)) for first, each in found.items()}


def _plain(word: str) -> str:
    return word.casefold().replace("'", "").replace("’", "")


def _words_of_turn(text: str) -> list[_ListedWord]:
    return [_ListedWord(_plain(match[0]), match.start(), match.end()) for match in _WORD.finditer(text)]


def _phrase_ends(words: Sequence[_ListedWord], *lists: Phrases) -> list[bool]:
    """Return len(words) + 1 flags; flag i tells whether the first i words are a sequence of phrases from the lists."""
    reached = [True] + [False] * len(words)
    for place in range(len(words)):
        if not reached[place]:
            continue
        for phrases in lists:
            for phrase in phrases.get(words[place].text, ()):
                end = place + len(phrase)
                if end <= len(words) and all(
                    wanted in ("_", one.text) for wanted, one in zip(phrase, words[place:end], strict=True)
                ):
                    reached[end] = True
    return reached


def _contains_phrase(words: Sequence[_ListedWord], phrases: Phrases) -> bool:
    """Return whether a phrase from the list, of up to four words, occurs anywhere in `words`."""
    return any(any(_phrase_ends(words[place : place + 4], phrases)[1:]) for place in range(len(words)))


def is_small_talk(text: str) -> bool:
    """Return whether a turn needs no search: a greeting, thanks, arithmetic, a request about the answer, or no word.

    "???" has no word. A blank turn is not small talk.
    """
    plain = text.strip()
    words = _words_of_turn(plain[: _LONGEST + 1])
    if not plain or len(plain) > _LONGEST or _DATE.fullmatch(plain):
        return False
    if not words or _KEYBOARD_RUN.fullmatch(plain):
        return True
    lists = _lists()
    if _phrase_ends(words, lists.talk)[-1] or _is_creative_request(words, lists) or _is_style_request(words, lists):
        return True
    return _is_arithmetic(plain, words, lists)


def _is_creative_request(words: Sequence[_ListedWord], lists: _PhraseLists) -> bool:
    """Return whether a turn asks for something made up about a subject: "write a haiku about rain"."""
    return any(
        reached and place > 1 and words[place].text in ("about", "on", "for")
        for place, reached in enumerate(_phrase_ends(words, lists.play)[:-1])
    )


def _is_style_request(words: Sequence[_ListedWord], lists: _PhraseLists) -> bool:
    """Return whether a turn only says how to answer: "shorter, please", 以后用英文回答 ("in English from now on")."""
    return _phrase_ends(words, lists.doing, lists.manner, lists.talk)[-1] and _contains_phrase(words, lists.doing)


def _is_arithmetic(text: str, words: Sequence[_ListedWord], lists: _PhraseLists) -> bool:
    """Return whether a turn has only numbers, signs and units: "17 * 23", "how many km is 5 miles"."""
    numbers = [one for one in words if one.text[0].isdigit()]
    rest = [one for one in words if not one.text[0].isdigit()]
    if not _phrase_ends(rest, lists.units, lists.sums)[-1]:
        return False
    if has_chinese(text):
        if len(numbers) == 1 and _YEAR_ZH.search(text):
            return False  # 换成 2020 年的呢 ("and for 2020?") is about documents
        return _RECKONS_ZH.search(text) is not None and _NUMERAL.search(text) is not None
    units = sum(any(_phrase_ends([one], lists.units)[1:]) for one in rest)
    operators = _OPERATOR.search(text) is not None or _contains_phrase(rest, lists.sums)
    return (len(numbers) > 1 and operators) or units > 1 or (len(rest) > 1 and "%" in text and bool(numbers))


def is_text_task(text: str) -> bool:
    """Return whether a turn supplies a text to work on: "fix the grammar: ...", 帮我润色这句话：... ("polish: ...").

    A turn with words in none of the lists asks about documents: 'summarise the report "Water quality in 2024"'.
    """
    given = _GIVEN.search(text)
    if given is None or given.start() > _LONGEST:
        return False
    behind = text[given.end() :]
    if _ANSWERS.search(text[: given.start()]):
        return False  # what follows is a question: "explain it like I'm five: what does the clause mean?"
    return len(behind) <= _LONGEST and _is_style_request(_words_of_turn(f"{text[: given.start()]} {behind}"), _lists())


def strip_greeting(text: str) -> str:
    """Return a turn without small talk at its beginning: "Hi! Who owns ledger-sync?" -> "Who owns ledger-sync?"."""
    words = _words_of_turn(text[:_LONGEST])
    reached = _phrase_ends(words, _lists().talk)
    for place in range(len(words) - 1, 0, -1):
        between = text[words[place - 1].end : words[place].start]
        if reached[place] and re.search(r"[^\s'’]", between) and not (words[place - 1].text[0].isdigit()):
            # Skip the "and" of "ok thanks, and who is it?".
            while place < len(words) - 1 and words[place].text in _LEADS:
                place += 1
            return text[words[place].start :]
    return text


def refers_to_own_documents(text: str) -> bool:
    """Return whether a turn has a word for the asker's own things ("our") or points at documents ("the ones due")."""
    # Split "we're", so that its "we" counts.
    return _contains_phrase(_words_of_turn(re.sub("['’]", " ", text)), _lists().own)
