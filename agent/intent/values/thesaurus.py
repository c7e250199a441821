"""Other words for the values of a field, from a general list: "on hold" and 暂停 for paused, "fall" for Sturz."""

from collections.abc import Collection, Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from agent.intent.language.text import stem, words_of
from retrievers.text.folding import fold

_ASKED = ("en", "zh")
"""The languages of questions. A value in any language of the list has names in these."""
_SHORTEST = 2


class _Thesaurus(NamedTuple):
    """The meanings, each with its words by language; and by language the meanings that a word has."""

    meanings: list[dict[str, list[str]]]
    by_word: dict[str, dict[str, list[int]]]


def other_names(values: Collection[str], fields: Collection[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (value, words) for the other English and Chinese names of a field's values.

    The values are taken to be in the language in which the list has most of them, so that `chat` beside `chien` is a
    cat. Words that name another value of the field are left out, and meanings that a field is named by: beside a
    field `submitted`, "handed in" is no other name of the status "submitted".

    Args:
        fields: the words in the names of all fields of the collection.
    """
    meanings, by_word = _thesaurus()
    keys = {value: _key(value) for value in values}
    language = max(by_word, key=lambda one: sum(key in by_word[one] for key in keys.values()))
    own = {*keys.values(), *map(fold, values)}
    taken = {number for word in fields for number in by_word["en"].get(_key(word), ())}
    for value, key in keys.items():
        for number in (one for one in by_word[language].get(key, ()) if one not in taken):
            for asked in _ASKED:
                for name in meanings[number].get(asked, ()):
                    if _key(name) not in own and len(name) >= _SHORTEST:
                        yield value, words_of(name)


def _key(name: str) -> str:
    """Return the form in which words are compared: folded, and English ones without their inflections."""
    return " ".join(map(stem, fold(name).split()))


@cache
def _thesaurus() -> _Thesaurus:
    meanings: list[dict[str, list[str]]] = []
    by_word: dict[str, dict[str, list[int]]] = {}
    text = (files("agent.intent.words") / "thesaurus.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        meanings.append(dict(_column(one) for one in line.split(" ; ")))
        for language, names in meanings[-1].items():
            known = by_word.setdefault(language, {})
            for key in dict.fromkeys(map(_key, names)):
                known.setdefault(key, []).append(len(meanings) - 1)
    return _Thesaurus(meanings, by_word)


def _column(text: str) -> tuple[str, list[str]]:
    language, _, names = text.partition(" ")
    return language, names.split(", ")
