"""Chinese words of a question in English, by the dictionary: what of a collection they name."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product

from agent.intent.catalogue import Known
from agent.intent.foreign import MOST_GLOSSED, english_key
from agent.intent.text import Token, stem, words_of
from agent.intent.vocabulary import Vocabulary
from retrievers.text.glosses import glossed_words, senses_of

_MOST_SENSES = 6
_OF_A_KIND = 0.6
"""The share of a value in a Chinese word that names its kind as well."""
_GOES_ON = 0.5
"""What the share of a value is worth where another word stands before it in one breath."""
_OPENS = tuple("的和与或在由被是为有含及于讲除按把对给让比、已经被没未还个份次起篇条项")
# As the words of a time do: 2020 年以来[打包]主题的.
_AFTER_DATE = re.compile(
    r"(?:^[年月]|[去今前明本][年周月]|[一二三四五六七八九十]月|以来|[之以]?[前后]|期间|季度|半年|年代)$"
)
_OF_TIME = frozenset("同期 同时 当时 期间 时期 时间".split())


def translated_values(
    tokens: Sequence[Token], vocabulary: Vocabulary, taken: set[int]
) -> Iterator[tuple[int, int, Known]]:
    """Tokens [first, last) whose English is a value: 石棉 is asbestos, 检查报告 an inspection report."""
    for run in chinese_runs(tokens, taken) if vocabulary.english else ():
        text = "".join(tokens[index].text for index in run)
        words = [(start, word) for start, word, _ in glossed_words(text)]
        place = 0
        while place < len(words):
            size, known = next(_english_values(words, place, text, vocabulary), (1, ()))
            if known:
                best = max(known, key=lambda one: (one.share, one.documents))
                meant = replace(best, how="translated")
                start, end = words[place][0], words[place + size - 1][0] + len(words[place + size - 1][1])
                yield run[start], run[end - 1] + 1, meant
            place += size


def translated_cues(tokens: Sequence[Token], vocabulary: Vocabulary) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Chinese words of a question whose English is a field's name: 公司 points at "company"."""
    cues: dict[tuple[str, ...], tuple[str, ...]] = {}
    for run in chinese_runs(tokens, set()):
        for _, word, english in glossed_words("".join(tokens[index].text for index in run)):
            known = vocabulary.fields_in_english
            fields = dict.fromkeys(field for gloss in english[:3] for field in known.get(stem(gloss), ()))
            if fields and words_of(word) not in vocabulary.cues:
                cues[words_of(word)] = tuple(fields)
    return cues


def _english_values(
    words: Sequence[tuple[int, str]], place: int, text: str, vocabulary: Vocabulary
) -> Iterator[tuple[int, tuple[Known, ...]]]:
    """How many words from a place on are a value in English, and which, the longest first."""
    start, first = words[place]
    # What goes on from another word is hardly a value: 子进程 is no process; several words may be: 电梯[检查报告].
    before = text[:start]
    opens = not before or before.endswith(_OPENS) or _AFTER_DATE.search(before) is not None
    is_other = first in _OF_TIME or words_of(first) in vocabulary.cues
    for size in range(min(MOST_GLOSSED, len(words) - place), is_other, -1):
        together = words[place : place + size]
        if any(one[0] + len(one[1]) != other[0] for one, other in pairwise(together)):
            continue
        senses = [senses_of(word)[:_MOST_SENSES] for _, word in together]
        said = dict.fromkeys(tuple(word for sense in each for word in sense) for each in product(*senses))
        known = tuple(one for each in said for one in vocabulary.english.get(english_key(each), ()))
        if not known and size == 1:
            # 鸡肉 is chicken meat: a value and a word for its kind.
            heads = [english_key(each[:1]) for each in said] if all(len(each) == 2 for each in said) else []
            kinds = (one for key in heads for one in vocabulary.english.get(key, ()) if one.how == "exact")
            known = tuple(replace(one, share=_OF_A_KIND) for one in kinds)
        if known:
            yield size, known if opens or size > 1 else tuple(replace(one, share=one.share * _GOES_ON) for one in known)


def chinese_runs(tokens: Sequence[Token], taken: set[int]) -> list[list[int]]:
    """Places of Chinese characters that stand side by side and name nothing yet."""
    runs: list[list[int]] = []
    for index, token in enumerate(tokens):
        if token.kind != "cjk" or index in taken:
            continue
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs
