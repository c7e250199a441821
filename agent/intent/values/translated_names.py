"""Names of values in another language or script than the value itself.

Chinese values get names in English and in Pinyin. English values are found by the stems of their words, also from the
English meanings of a question's Chinese words, which a dictionary gives.
"""

import re
from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING

from agent.intent.language import lexicon
from agent.intent.language.text import Token, has_chinese, stem, words_of
from agent.intent.values.value_match import ValueMatch
from agent.intent.values.value_names import NameIndex
from retrievers.text.chinese_dictionary import (
    composed_translations,
    find_dictionary_words,
    pinyin_of,
    term_translations,
)

if TYPE_CHECKING:
    from agent.intent.values.vocabulary import Vocabulary

MOST_GLOSSED = 3
"""Maximum words of an English value that are looked up in the dictionary."""
_ROOT = 5
_LONGEST_PINYIN = 4
_LONGEST_PERSON = 3
_LONGEST_PHRASE = 5
_ASPECT = re.compile(r"(?<=^.)[过了着](?=.$)")
"""Particles between a verb and its object, which are ignored: 投[了]流."""
_SHORTEST_WORD = 4
"""Minimum letters of a word that may stand for a value with an English name of several words."""
_STATE = re.compile(r"^[已被正]+(?=..)|(?<=..)[中了]$")
"""Affixes that turn a verb into a state: [已]结束, 筹备[中]."""
_MOST_SENSES = 6
_OF_A_KIND = 0.6
"""The share of a value if the Chinese word also says its kind: 鸡肉 ("chicken meat") for "chicken"."""
_GOES_ON = 0.5
"""Factor on the share of a value if another word stands directly before it and may include it."""
_OPENS = tuple("的和与或在由被是为有含及于讲除按把对给让比、已经被没未还个份次起篇条项")
"""Words after which a new word begins, at the end of the text before a value."""
# A new word also begins after words of time: 2020 年以来[打包]主题的 ("on [packaging] since 2020").
_AFTER_DATE = re.compile(
    r"(?:^[年月]|[去今前明本][年周月]|[一二三四五六七八九十]月|以来|[之以]?[前后]|期间|季度|半年|年代)$"
)
_OF_TIME = frozenset("同期 同时 当时 期间 时期 时间".split())


def english_index(names: NameIndex, fields: Collection[str]) -> dict[tuple[str, ...], tuple[ValueMatch, ...]]:
    """Return {`english_key` of a name: values} for the values of these fields named by one to three English words."""
    found: dict[tuple[str, ...], list[ValueMatch]] = {}
    for words, known in names.items():
        given = [one for one in known.values() if one.field in fields and (one.kind == "exact" or _is_end_of_path(one))]
        plain = [word for word in words if word not in lexicon.STOP_WORDS]
        if given and 1 <= len(plain) <= MOST_GLOSSED and all(word.isascii() and len(word) > 3 for word in plain):
            found.setdefault(english_key(plain), []).extend(given)
    return {key: tuple(known) for key, known in found.items()}


def _is_end_of_path(one: ValueMatch) -> bool:
    """Return whether a name is the last part of a path: "pond" for E/pond."""
    return one.kind == "part" and ("/" in one.value or "::" in one.value)


def english_key(words: Sequence[str]) -> tuple[str, ...]:
    """Return a key that words of the same meaning share: the stem of one word, or the sorted roots of several.

    A root is the beginning of a stem: a literal translation says "to demolish" for "demolition". The words are sorted
    because it may say "violation notice" for "notice of violation". One root alone would match too many words.
    """
    return (stem(words[0]),) if len(words) == 1 else tuple(sorted(stem(word)[:_ROOT] for word in words))


def add_pinyin_names(names: NameIndex, roles: Mapping[str, str]) -> None:
    """Add names in Pinyin to Chinese values: "Sun Lijuan" for 孙丽娟, "Chengdu" for 成都.

    A surname or given name alone is added if only one value of the field has it.
    """
    parts: dict[tuple[str, str], list[ValueMatch]] = {}
    for words, known in list(names.items()):
        given = [one for one in known.values() if one.kind in ("exact", "short") and len(words) <= _LONGEST_PINYIN]
        if not given or not all(map(has_chinese, words)):
            continue
        syllables = pinyin_of("".join(words))
        for one in given if syllables else ():
            meant = replace(one, kind="form")
            names.add(("".join(syllables),), meant)
            if roles[one.field] == "person" and len(syllables) > 1:
                first, given_name = syllables[0], "".join(syllables[1:])
                names.add((first, given_name), meant)
                names.add((given_name, first), meant)
                for part in (first, given_name) if len(syllables) <= _LONGEST_PERSON else ():
                    share = round(len(part) / len("".join(syllables)), 2)
                    parts.setdefault((one.field, part), []).append(replace(one, kind="part", share=share))
    for (_, part), owners in parts.items():
        if len({one.value for one in owners}) == 1:
            names.add((part,), owners[0])


def add_english_names(
    names: NameIndex, stems: NameIndex, fields: Collection[str], cues: Container[tuple[str, ...]]
) -> None:
    """Add English names to the Chinese values of some fields: "law school" for 法学院, "finished" for 已结束.

    A word that only one value of the field has is a name too: "symphony" for a symphony concert.

    Args:
        names: all names; single words are added here.
        stems: names of stems; whole names are added here.
        cues: words that point at fields, and therefore at no value.
    """
    words_alone: dict[tuple[str, str], dict[str, ValueMatch]] = {}
    own = ("exact", "short")
    ends = Counter(
        (one.field, words[-1]) for words, known in names.items() for one in known.values() if one.kind in own
    )
    for words, known in names.items():
        given = [one for one in known.values() if one.field in fields and one.kind in own]
        if not given or not all(map(has_chinese, words)):
            continue
        value = "".join(words)
        for sense in _senses(value, is_compound=_is_compound(value) or ends[given[0].field, value[-1]] > 1):
            for one in given:
                meant = replace(one, kind="translated")
                stems.add(tuple(map(stem, sense)), meant)
                for word in sense[:-1]:
                    if _may_stand_alone(word) and (word,) not in cues:
                        share = round(len(word) / len("".join(sense)), 2)
                        words_alone.setdefault((one.field, word), {})[one.value] = replace(meant, share=share)
    for (_, word), owners in words_alone.items():
        for said in (word, f"{word}s") if len(owners) == 1 else ():
            names.add((said,), *owners.values())


def _is_compound(value: str) -> bool:
    """Guess whether a Chinese value consists of words, as 印度菜 ("Indian food"), and is no foreign name, as 艾灵顿.

    True for one character, for more than three, and if the first two characters together have a translation.
    """
    return len(value) == 1 or len(value) > _LONGEST_PERSON or bool(term_translations(value[:2]))


def _senses(value: str, *, is_compound: bool) -> Iterator[Sequence[str]]:
    composed = composed_translations(value) if is_compound else ()
    for sense in term_translations(value) or term_translations(_STATE.sub("", value)) or composed:
        yield tuple(part for word in sense for part in word.split("-") if part)


def _may_stand_alone(word: str) -> bool:
    plain = word.isalpha() and len(word) >= _SHORTEST_WORD
    return plain and word not in lexicon.STOP_WORDS and word not in lexicon.DOCUMENT_NOUNS


def translated_values(
    tokens: Sequence[Token], vocabulary: "Vocabulary", taken: set[int]
) -> Iterator[tuple[int, int, ValueMatch]]:
    """Yield (first, last, value) for Chinese tokens [first, last) whose English meaning is a value: 石棉 is asbestos.

    Args:
        taken: indices of tokens that belong to other names.
    """
    for run in chinese_runs(tokens, taken) if vocabulary.english_values else ():
        text = "".join(tokens[index].text for index in run)
        words = [(start, word) for start, word, _ in find_dictionary_words(text)]
        place = 0
        while place < len(words):
            size, known = next(_english_values(words, place, text, vocabulary), (1, ()))
            if known:
                best = max(known, key=lambda one: (one.share, one.documents))
                meant = replace(best, kind="translated")
                start, end = words[place][0], words[place + size - 1][0] + len(words[place + size - 1][1])
                yield run[start], run[end - 1] + 1, meant
            place += size


def translated_cues(
    tokens: Sequence[Token], vocabulary: "Vocabulary", pinyin_phrases: Mapping[str, tuple[str, ...]]
) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return {characters of a Chinese word: fields} for words whose English meaning names fields: 公司 for `company`.

    Args:
        pinyin_phrases: see `find_pinyin_phrases`.
    """
    cues: dict[tuple[str, ...], tuple[str, ...]] = {}
    for run in chinese_runs(tokens, set()):
        for _, word, english in find_dictionary_words("".join(tokens[index].text for index in run)):
            known = vocabulary.fields_in_english
            fields = dict.fromkeys(field for gloss in english[:3] for field in known.get(stem(gloss), ()))
            if fields and words_of(word) not in vocabulary.cues:
                cues[words_of(word)] = tuple(fields)
    return cues | {
        tuple(phrase): fields for phrase, fields in pinyin_phrases.items() if tuple(phrase) not in vocabulary.cues
    }


def find_pinyin_phrases(tokens: Sequence[Token], vocabulary: "Vocabulary") -> dict[str, tuple[str, ...]]:
    """Return {Chinese phrase of a question: fields that its Pinyin names}: 投流 and 投了流 -> `touliu`.

    A phrase consists of whole words and is no name of a value. A field's name may also be the first letters of the
    syllables: ja_rq for 结案日期.
    """
    found: dict[str, tuple[str, ...]] = {}
    for run in chinese_runs(tokens, set()) if vocabulary.pinyin_fields else ():
        text = "".join(tokens[index].text for index in run)
        inside = {
            edge for start, word, _ in find_dictionary_words(text) for edge in range(start + 1, start + len(word))
        }
        for first, size in product(range(len(text)), range(2, _LONGEST_PHRASE + 1)):
            phrase, last = text[first : first + size], first + size
            if last > len(text) or first in inside or last in inside or tuple(phrase) in vocabulary.names:
                continue
            syllables = pinyin_of(_ASPECT.sub("", phrase))
            fields = vocabulary.pinyin_fields.get("".join(syllables)) or vocabulary.pinyin_fields.get(
                "".join(s[0] for s in syllables)
            )
            if fields and len(syllables) > 1:
                found[phrase] = fields
    return found


def _english_values(
    words: Sequence[tuple[int, str]], place: int, text: str, vocabulary: "Vocabulary"
) -> Iterator[tuple[int, tuple[ValueMatch, ...]]]:
    """Yield (number of words from `place` on, values that they name in English), most words first.

    Args:
        words: (start in `text`, word) in order.
    """
    start, first = words[place]
    # A single word that continues another is hardly a value: 进程 ("process") in 子进程 ("child process").
    before = text[:start]
    opens = not before or before.endswith(_OPENS) or _AFTER_DATE.search(before) is not None
    is_other = first in _OF_TIME or words_of(first) in vocabulary.cues
    for size in range(min(MOST_GLOSSED, len(words) - place), is_other, -1):
        together = words[place : place + size]
        if any(one[0] + len(one[1]) != other[0] for one, other in pairwise(together)):
            continue
        senses = [term_translations(word)[:_MOST_SENSES] for _, word in together]
        said = dict.fromkeys(tuple(word for sense in each for word in sense) for each in product(*senses))
        known = tuple(one for each in said for one in vocabulary.english_values.get(english_key(each), ()))
        if not known and size == 1:
            # 鸡肉 is "chicken meat": a value and the word for its kind.
            heads = [english_key(each[:1]) for each in said] if all(len(each) == 2 for each in said) else []
            kinds = (one for key in heads for one in vocabulary.english_values.get(key, ()) if one.kind == "exact")
            known = tuple(replace(one, share=_OF_A_KIND) for one in kinds)
        if known:
            yield size, known if opens or size > 1 else tuple(replace(one, share=one.share * _GOES_ON) for one in known)


def chinese_runs(tokens: Sequence[Token], taken: set[int]) -> list[list[int]]:
    """Return runs of adjacent Chinese tokens outside `taken`, each as the list of their indices."""
    runs: list[list[int]] = []
    for index, token in enumerate(tokens):
        if token.kind != "cjk" or index in taken:
            continue
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs
