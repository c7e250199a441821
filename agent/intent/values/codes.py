"""Codes as values: which words a code such as TRV, LV or CNP may stand for."""

from collections.abc import Iterator, Mapping

from agent.intent.language.text import stem
from agent.intent.values.value_match import ValueMatch
from agent.intent.values.value_names import LONGEST_CODE, NameIndex
from agent.intent.words import word_frequencies
from retrievers.core.types import FieldValues

_SHORTEST_CODE, _MOST_CODES = 3, 30
_RARE = 2
"""Maximum frequency class (see `words.word_frequencies`) of a code as a word."""


def abbreviation_codes(name: str, values: FieldValues) -> Iterator[tuple[str, ValueMatch]]:
    """Yield (folded code, value) for the values of field `name` that may abbreviate a word: "trv" for travel."""
    for value, documents in values.values.items() if values.distinct <= _MOST_CODES else ():
        code = value.casefold()
        is_short = _SHORTEST_CODE <= len(value) <= LONGEST_CODE and value.isascii() and value.isalpha()
        if is_short and (value.isupper() or word_frequencies().get(stem(code), 0) <= _RARE):
            yield code, ValueMatch(name, value, "code", documents)


def initial_codes(fields: Mapping[str, FieldValues], names: NameIndex) -> dict[str, tuple[ValueMatch, ...]]:
    """Return the values in capitals that may be initials of words, by the code in lower case.

    A code whose meaning is known, as that of a country is, stands for no other words.
    """
    known_codes = {key for known in names.values() for key, one in known.items() if one.kind in ("alias", "translated")}
    found: dict[str, tuple[ValueMatch, ...]] = {}
    for name, one in fields.items():
        for value, documents in one.values.items():
            is_code = value.isascii() and value.isalpha() and value.isupper()
            is_code &= 2 <= len(value) <= LONGEST_CODE
            if is_code and (name, value) not in known_codes:
                known = ValueMatch(name, value, "code", documents)
                found[value.casefold()] = (*found.get(value.casefold(), ()), known)
    return found
