"""Drop short Chinese names of values that are only a part of another word, such as 一 ("one") in 一共 ("total")."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from agent.intent.language import lexicon
from agent.intent.language.text import Token, chinese_words, has_chinese
from agent.intent.values.value_match import ValueMatch
from retrievers.text.chinese_dictionary import term_translations

if TYPE_CHECKING:
    from agent.intent.values.value_linking import Mention
    from agent.intent.values.vocabulary import Vocabulary

_NUMERALS = frozenset("零〇一二两俩三四五六七八九十百千万亿几多第半")
_ROOT = 5
_COUNTING = _NUMERALS | {"少"}
_JOINING = frozenset("、,，和与或及到至-~—")


def without_word_parts(
    tokens: Sequence[Token], found: Sequence["Mention"], vocabulary: "Vocabulary"
) -> list["Mention"]:
    """Return the mentions without numerals that only count, and without single characters of longer words.

    A mention loses the values that it cannot mean there; without values it is left out.
    """
    kept = []
    words = _words_at(tokens) if any(mention.end - mention.start == 1 for mention in found) else {}
    for place, mention in enumerate(found):
        said = "".join(token.text for token in tokens[mention.first : mention.last])
        known = mention.matches
        if said and _NUMERALS.issuperset(said):
            beside = _fields_joined(tokens, found, place)
            known = tuple(one for one in known if one.field in beside)
        elif len(said) == 1 and has_chinese(said):
            word = words.get(mention.start, said)
            is_measure = mention.first > 0 and tokens[mention.first - 1].text in _COUNTING  # 多少[元]: "how many yuan"
            known = tuple(
                one
                for one in known
                if _is_composed(word, said, one, vocabulary) and not (is_measure and one.kind != "exact")
            )
        if known:
            kept.append(replace(mention, matches=known))
    return kept


def _fields_joined(tokens: Sequence[Token], found: Sequence["Mention"], place: int) -> set[str]:
    """Return the fields of names listed with the name `found[place]`: of 二级 ("level 2") for 一 in 一、二级."""
    fields: set[str] = set()
    for step in (-1, 1):
        one, other = place, place + step
        while 0 <= other < len(found):
            low, high = sorted((found[one], found[other]), key=lambda mention: mention.first)
            if not all(token.text in _JOINING for token in tokens[low.last : high.first]):
                break
            said = "".join(token.text for token in tokens[found[other].first : found[other].last])
            if not _NUMERALS.issuperset(said):
                fields |= {known.field for known in found[other].matches}
                break
            one, other = other, other + step
    return fields


def _words_at(tokens: Sequence[Token]) -> dict[int, str]:
    """Map the position of each character in a Chinese dictionary word to the word."""
    text = ""
    for token in tokens:
        text = text.ljust(token.start) + token.text
    words = ((start, text[start:end]) for start, end in chinese_words(text).items())
    return {start + step: word for start, word in words if term_translations(word) for step in range(len(word))}


def _is_composed(word: str, said: str, one: ValueMatch, vocabulary: "Vocabulary") -> bool:
    """Return whether `word`, which contains the name `said`, still means the value.

    It does if its other characters are words for the field or names of its values: 明代 ("Ming dynasty"), 明清 ("Ming
    and Qing"). It also does if `word` and the value mean the same: 女生 ("girl student") for 女 ("female"), 兰花 for
    兰科 (both "orchid").
    """
    field = one.field
    rest = [character for character in word if character != said]
    own = {character for part in lexicon.name_words(field) for character in part}
    shared = {value[-1] for value in vocabulary.catalogue.fields[field].values if len(value) > 1}
    names = {other for other in rest if any(known.field == field for known in vocabulary.names.get((other,), ()))}
    if own.union(shared, names, _NUMERALS).issuperset(rest):
        return True
    own_meaning = _roots_of(one.value) | _english().get(said, frozenset())
    return not own_meaning.isdisjoint(_roots_of(word))


def _roots_of(word: str) -> frozenset[str]:
    """Return the first five letters of the English meanings of a Chinese word: equal for orchid and Orchidaceae."""
    return frozenset(part[:_ROOT] for sense in term_translations(word) for part in sense)


@cache
def _english() -> dict[str, frozenset[str]]:
    """Map Chinese words to the first five letters of each word in their English names, from the general word list."""
    found: dict[str, set[str]] = {}
    for phrase, others in lexicon.bilingual_synonyms().items():
        for other in filter(has_chinese, others):
            found.setdefault(other, set()).update(word[:_ROOT] for word in phrase.split())
    return {chinese: frozenset(words) for chinese, words in found.items()}
