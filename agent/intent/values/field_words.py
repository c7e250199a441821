"""The words by which a question can mean a field: those of its name, of what it is about, and of its values."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from agent.intent.language import lexicon
from agent.intent.language.text import has_chinese, stem, words_of
from agent.intent.values import value_names
from agent.intent.words import word_frequencies, word_table
from retrievers.core.types import FieldCatalogue, FieldValues
from retrievers.text.chinese_dictionary import term_translations, words_with_pinyin

_PINYIN = re.compile(r"(?:(?:[zcs]h|[b-df-hj-np-tw-z])?[aeiouv]{1,3}(?:ng|n|r)?){2,}")
_LEAST_INITIALS, _LONGEST_INITIALS = 4, 4
"""A field's name may be initials of Pinyin if it has at least 4 letters, in words of less than 4: `ja_rq`."""
_FEW = 2
"""Maximum Chinese words with the same Pinyin that may all be meant."""
_SHORTEST_VERB = 2
_GENERIC_WORDS = frozenset("name type date number count code value status kind level group public language".split())
_AGENT = re.compile(r"(?<=\w{3})(?:ers?|ors?)$")


@lru_cache(maxsize=4096)
def concepts_of(name: str) -> frozenset[str]:
    """Return the general concepts that a field's name belongs to: "status" for `stage`. See `lexicon.CONCEPTS`."""
    written_out = word_table("link", "en")["abbreviations"]
    own = {other for word in lexicon.name_words(name) for other in (word, *written_out.get(word, "").split())}
    if lexicon.name_words(name)[-1:] == ("to",) and "valid" in own:
        own.add("until")
    chinese = {*chinese_field_words(name), *filter(has_chinese, own)}
    words = {stem(word) for word in own} | own | chinese
    return frozenset(
        concept for concept, (names, cues) in lexicon.CONCEPTS.items()
        if words & {*names, *map(stem, names)} or chinese & {*cues}
    )  # fmt: skip


@lru_cache(maxsize=4096)
def chinese_field_words(name: str) -> tuple[str, ...]:
    """Return the Chinese words that a field's name spells in Pinyin: 状态 ("status") for zhuangtai."""
    return tuple(chinese for word in _pinyin_words(name) for chinese in words_with_pinyin(word))


def _pinyin_words(name: str) -> list[str]:
    return [one for one in lexicon.name_words(name) if _PINYIN.fullmatch(one) and stem(one) not in word_frequencies()]


def field_cues(catalogue: FieldCatalogue) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return the fields by the words that mean them: words of their names, and general words for their concepts."""
    cues: dict[tuple[str, ...], list[str]] = {}
    for name in catalogue.fields:
        words = [word for word in lexicon.name_words(name) if len(word) > 1]
        own: list[tuple[str, ...]] = [tuple(words)] if words else []
        own += [(word,) for word in words] + [(stem(word),) for word in words]
        own += [words_of(phrase) for concept in concepts_of(name) for phrase in lexicon.CONCEPTS[concept][1]]
        for chinese in lexicon.bilingual_synonyms().get(" ".join(words), ()):
            own.append(words_of(chinese))
        own += [words_of(word) for word in _further_field_words(name, words, catalogue.fields[name])]
        for cue in dict.fromkeys(own):
            cues.setdefault(cue, []).append(name)
    for name in catalogue.fields:
        # "inspected" points at `inspector`, unless the verb points at another field already: "created".
        for deed in map(agent_verb, lexicon.name_words(name)):
            if deed and (deed,) not in cues and (stem(deed),) not in cues:
                cues[deed,] = [name]
    return {cue: tuple(dict.fromkeys(names)) for cue, names in cues.items() if cue}


def _further_field_words(name: str, words: Sequence[str], values: FieldValues) -> Iterable[str]:
    """Yield further words for a field: abbreviations in full, Chinese in English, and a word that most values share."""
    written_out = word_table("link", "en")["abbreviations"]
    for word in words:
        yield from written_out.get(word, "").split()
    spelt, chinese = chinese_field_words(name), [word for word in words if has_chinese(word)]
    deeds = list(filter(None, map(_chinese_verb, (*chinese, *spelt))))
    yield from (*spelt, *deeds)
    for word in (*chinese, *deeds, *(spelt if len(spelt) <= _FEW else ())):
        for sense in term_translations(word):
            yield from (sense[0], stem(sense[0])) if len(sense) == 1 else ()
    for shared in value_names.shared_words(values.values):
        yield shared
        if has_chinese(shared):
            yield from (sense[0] for sense in term_translations(shared) if len(sense) == 1)


def _chinese_verb(word: str) -> str:
    """Return the verb in a Chinese name of a field of people or dates: 审核 ("review") of 审核人; "" if it has none."""
    end = next((end for end in _agent_suffixes() if word.endswith(end)), "")
    return word.removesuffix(end) if end and len(word) - len(end) >= _SHORTEST_VERB else ""


@lru_cache(maxsize=1)
def _agent_suffixes() -> tuple[str, ...]:
    return tuple(f"{word_table('link', 'zh')['agents']} {word_table('link', 'zh')['dates']}".split())


def agent_verb(agent: str) -> str:
    """Return what the person of a field did, "inspected" for `inspector`; "" if the word names nobody who acts."""
    return _AGENT.sub("ed", agent) if _AGENT.search(agent) else ""


def pinyin_index(catalogue: FieldCatalogue) -> dict[str, tuple[str, ...]]:
    """Return fields by the Pinyin in their names: "touliu" for `touliu`, or the initials "jarq" for `ja_rq`."""
    found: dict[str, list[str]] = {}
    for name in catalogue.fields:
        words = lexicon.name_words(name)
        is_initials = len(words) > 1 and all(len(word) < _LONGEST_INITIALS and word.isascii() for word in words)
        spelt = _pinyin_words(name)
        if spelt or (is_initials and len("".join(words)) >= _LEAST_INITIALS):
            spelt.append("".join(words))  # `shouhuo_ren` is one word: 收货人 ("consignee")
        for word in dict.fromkeys(spelt):
            found.setdefault(word, []).append(name)
    return {word: tuple(names) for word, names in found.items()}


def fields_in_english(catalogue: FieldCatalogue) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name in catalogue.fields:
        for word in lexicon.name_words(name):
            if word.isascii() and len(word) > 3 and word not in _GENERIC_WORDS:
                found.setdefault(stem(word), []).append(name)
    return {word: tuple(names) for word, names in found.items()}
