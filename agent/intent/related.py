"""Names of values by a word of the same family: "Parisian" for Paris, "climbers" for climbing."""

from collections.abc import Collection, Mapping
from itertools import takewhile

from agent.intent.catalogue import Known, Names

_FIRST = 4
"""Number of first letters that words of one family share at least."""
_LEAST_SHARE = 0.6
"""Minimum share of the longer word's letters that both begin with."""
_OWN_NAMES = ("exact", "short", "part")

ByFirstLetters = Mapping[str, tuple[tuple[str, Known], ...]]


def by_first_letters(names: Names, fields: Collection[str]) -> ByFirstLetters:
    """Return the names of one word that values of the fields have, by their first letters."""
    found: dict[str, list[tuple[str, Known]]] = {}
    for words, known in names.items():
        if len(words) == 1 and len(words[0]) >= _FIRST and words[0].isascii() and words[0].isalpha():
            given = [one for one in known.values() if one.field in fields and one.how in _OWN_NAMES]
            found.setdefault(words[0][:_FIRST], []).extend((words[0], one) for one in given)
    return {first: tuple(each) for first, each in found.items()}


def related_values(word: str, kin: ByFirstLetters) -> tuple[Known, ...]:
    """Return the value of each field that is most alike to a word; none if two are. `share` says how alike."""
    best: dict[str, list[Known]] = {}
    for other, known in kin.get(word[:_FIRST], ()):
        share = _shared_letters(word.removesuffix("s"), other.removesuffix("s"))
        if share < _LEAST_SHARE:
            continue
        held = best.setdefault(known.field, [])
        if held and share > held[0].share:
            held.clear()
        if not held or share == held[0].share:
            held.append(Known(known.field, known.value, "kin", known.documents, share))
    return tuple(held[0] for held in best.values() if len({one.value for one in held}) == 1)


def _shared_letters(one: str, other: str) -> float:
    """Return the share of the longer word's letters with which both begin."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    return round(same / max(len(one), len(other)), 2)
