"""Names of the countries and languages that a field holds as codes: Canada and Canadian for CA, German for DE."""

import re
from collections.abc import Collection, Mapping
from functools import cache

from babel import Locale

from agent.intent.language import lexicon

_FIELDS = frozenset("country countries ctry cntry nation nationality citizenship 国家 国籍 国别 guojia guoji".split())
"""Words in names of fields that hold countries. Codes alone prove nothing: IT may be a department, IN a state."""
_STATES = frozenset("state states province region bundesland provinz 省 州 sheng".split())
"""Words in names of fields whose codes are parts of a country: CA is California."""
_NO_COUNTRIES = frozenset("EU EZ UN QO XA XB XK ZZ".split())
_ENOUGH = 4
"""Minimum codes of countries that prove that a field holds countries, whatever its name."""
_LANGUAGES_OF_VALUES = ("de", "fr", "es", "it", "nl", "pt")


def country_names(field: str, codes: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Return {code: names and adjectives of the country} in English and Chinese: CA -> Canada, Canadian.

    The result is {} unless all values are ISO 3166 codes in capitals, or UK, and the field's name says that it holds
    countries or there are several codes.
    """
    own = {field.casefold(), *lexicon.name_words(field)}
    if _FIELDS.isdisjoint(own) and (len(codes) < _ENOUGH or not _STATES.isdisjoint(own)):
        return {}
    known = _names()
    return {code: known[code] for code in codes} if all(map(known.get, codes)) else {}


def language_code(value: str) -> str:
    """Return the code of a language that a value names by code or name: "de" for DE, de-AT and Deutsch; else ""."""
    code = re.split("[-_]", value.casefold())[0]
    return code if code in lexicon.LANGUAGE_NAMES else _language_codes().get(value.casefold(), "")


@cache
def _language_codes() -> Mapping[str, str]:
    """Return the codes of languages by their names, in lower case: "de" for Deutsch and allemand."""
    return {
        name.casefold(): code
        for language in _LANGUAGES_OF_VALUES
        for code, name in Locale(language).languages.items()
        if code in lexicon.LANGUAGE_NAMES
    }


def _is_country(code: str) -> bool:
    return len(code) == 2 and code.isupper() and code not in _NO_COUNTRIES


@cache
def _names() -> Mapping[str, tuple[str, ...]]:
    english, chinese = (Locale(language).territories for language in ("en", "zh"))
    named = {code: (name, chinese.get(code, "")) for code, name in english.items() if _is_country(code)}
    known = {code: (*names, *lexicon.place_names().get(names[0].lower(), ())) for code, names in named.items()}
    return {**known, "UK": known["GB"]}
