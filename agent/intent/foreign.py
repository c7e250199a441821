"""Names of values in another language or script: Chinese ones in English and in Latin letters, English by stems."""

import re
from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import replace

from agent.intent import lexicon
from agent.intent.catalogue import Known, Names
from agent.intent.text import has_chinese, stem
from retrievers.text.glosses import composed_senses, pinyin_of, senses_of

MOST_GLOSSED = 3
"""Words of an English value that a dictionary is asked for."""
_ROOT = 5
_LONGEST_PINYIN = 4
_LONGEST_PERSON = 3
_SHORTEST_WORD = 4
"""Letters of a word that may name a value alone, of the several words that the value is called in English."""
_STATE = re.compile(r"^[已被正]+(?=..)|(?<=..)[中了]$")
"""What makes a deed a state: [已]结束, 筹备[中]."""


def english_names(names: Names, fields: Collection[str]) -> dict[tuple[str, ...], tuple[Known, ...]]:
    """Labels and tags of a few English words by the stems of these: "and", "of" and the like count for nothing."""
    found: dict[tuple[str, ...], list[Known]] = {}
    for words, known in names.items():
        given = [one for one in known.values() if one.field in fields and (one.how == "exact" or _is_end_of_path(one))]
        plain = [word for word in words if word not in lexicon.STOP_WORDS]
        if given and 1 <= len(plain) <= MOST_GLOSSED and all(word.isascii() and len(word) > 3 for word in plain):
            found.setdefault(english_key(plain), []).extend(given)
    return {key: tuple(known) for key, known in found.items()}


def _is_end_of_path(one: Known) -> bool:
    """Whether a name is the part that tells of a path: the pond of E/pond."""
    return one.how == "part" and ("/" in one.value or "::" in one.value)


def english_key(words: Sequence[str]) -> tuple[str, ...]:
    """What words that say the same have in common: the stem of one; of several the roots, in any order.

    Whoever translates word by word says "to demolish" for a demolition, and puts a notice of violation the other way
    round; with two words that agree it is hardly another thing.
    """
    return (stem(words[0]),) if len(words) == 1 else tuple(sorted(stem(word)[:_ROOT] for word in words))


def add_latin_names(names: Names, roles: Mapping[str, str]) -> None:
    """Chinese names in Latin letters: 孙丽娟 is Sun Lijuan, 成都 is Chengdu; Ms Sun, where no other is called so."""
    parts: dict[tuple[str, str], list[Known]] = {}
    for words, known in list(names.items()):
        given = [one for one in known.values() if one.how in ("exact", "short") and len(words) <= _LONGEST_PINYIN]
        if not given or not all(map(has_chinese, words)):
            continue
        syllables = pinyin_of("".join(words))
        for one in given if syllables else ():
            meant = replace(one, how="form")
            names.add(("".join(syllables),), meant)
            if roles[one.field] == "person" and len(syllables) > 1:
                first, given_name = syllables[0], "".join(syllables[1:])
                names.add((first, given_name), meant)
                names.add((given_name, first), meant)
                for part in (first, given_name) if len(syllables) <= _LONGEST_PERSON else ():
                    share = round(len(part) / len("".join(syllables)), 2)
                    parts.setdefault((one.field, part), []).append(replace(one, how="part", share=share))
    for (_, part), owners in parts.items():
        if len({one.value for one in owners}) == 1:
            names.add((part,), owners[0])


def add_english_names(names: Names, stems: Names, fields: Collection[str], cues: Container[tuple[str, ...]]) -> None:
    """Chinese labels and tags by what they may be called in English: 法学院 is a law school, 已结束 finished.

    So does what tells a kind from the others of the field: "symphony" of a symphony concert.

    Args:
        cues: words that point at fields, and so at no value.
    """
    words_alone: dict[tuple[str, str], dict[str, Known]] = {}
    ends = Counter((one.field, words[-1]) for words, known in names.items() for one in known.values())
    for words, known in names.items():
        given = [one for one in known.values() if one.field in fields and one.how in ("exact", "short")]
        if not given or not all(map(has_chinese, words)):
            continue
        value = "".join(words)
        for sense in _senses(value, is_compound=_is_compound(value) or ends[given[0].field, value[-1]] > 1):
            for one in given:
                meant = replace(one, how="translated")
                stems.add(tuple(map(stem, sense)), meant)
                for word in sense[:-1]:
                    if _may_stand_alone(word) and (word,) not in cues:
                        share = round(len(word) / len("".join(sense)), 2)
                        words_alone.setdefault((one.field, word), {})[one.value] = replace(meant, share=share)
    for (_, word), owners in words_alone.items():
        for said in (word, f"{word}s") if len(owners) == 1 else ():
            names.add((said,), *owners.values())


def _is_compound(value: str) -> bool:
    """Whether a term is made of words, as a foreign name is not: 印度菜, but not 艾灵顿."""
    return len(value) == 1 or len(value) > _LONGEST_PERSON or bool(senses_of(value[:2]))


def _senses(value: str, *, is_compound: bool) -> Iterator[Sequence[str]]:
    composed = composed_senses(value) if is_compound else ()
    for sense in senses_of(value) or senses_of(_STATE.sub("", value)) or composed:
        yield tuple(part for word in sense for part in word.split("-") if part)


def _may_stand_alone(word: str) -> bool:
    plain = word.isalpha() and len(word) >= _SHORTEST_WORD
    return plain and word not in lexicon.STOP_WORDS and word not in lexicon.DOCUMENT_NOUNS
