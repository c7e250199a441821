"""Names of the countries that a field holds as codes: Canada and Canadian for CA."""

from collections.abc import Collection, Mapping
from functools import cache

from babel import Locale

from agent.intent.language import lexicon

_FIELDS = frozenset("country countries ctry cntry nation nationality citizenship 国家 国籍 国别 guojia guoji".split())
"""Words in names of fields that hold countries. Codes alone prove nothing: IT may be a department, IN a state."""
_NO_COUNTRIES = frozenset("EU EZ UN QO XA XB XK ZZ".split())


def country_names(field: str, codes: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Return {code: names and adjectives of the country} in English and Chinese: CA -> Canada, Canadian.

    The result is {} unless the field's name says that it holds countries and all its values are ISO 3166 codes in
    capitals.
    """
    if _FIELDS.isdisjoint((field.casefold(), *lexicon.name_words(field))):
        return {}
    known = _names()
    return {code: known[code] for code in codes} if all(map(known.get, codes)) else {}


def _is_country(code: str) -> bool:
    return len(code) == 2 and code.isupper() and code not in _NO_COUNTRIES


@cache
def _names() -> Mapping[str, tuple[str, ...]]:
    english, chinese = (Locale(language).territories for language in ("en", "zh"))
    named = {code: (name, chinese.get(code, "")) for code, name in english.items() if _is_country(code)}
    return {code: (*names, *lexicon.place_names().get(names[0].lower(), ())) for code, names in named.items()}
