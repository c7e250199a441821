"""Names of the countries that a field holds as codes: Canada and Canadian for CA."""

from collections.abc import Collection, Mapping
from functools import cache

from babel import Locale

from agent.intent import lexicon

_FEW = 3
"""Minimum values that show by themselves that a field holds country codes."""


def country_names(codes: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Return names and adjectives by code, in English and Chinese; {} unless all values are ISO 3166 codes in capitals.

    Two or fewer values show nothing: "IN" and "NO" may be anything.
    """
    known = _names()
    return {code: known[code] for code in codes} if len(codes) >= _FEW and all(map(known.get, codes)) else {}


@cache
def _names() -> Mapping[str, tuple[str, ...]]:
    english, chinese = (Locale(language).territories for language in ("en", "zh"))
    named = {code: (name, chinese.get(code, "")) for code, name in english.items() if len(code) == 2 and code.isupper()}
    return {code: (*names, *lexicon.places().get(names[0].lower(), ())) for code, names in named.items()}
