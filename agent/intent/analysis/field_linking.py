"""Field linking: find the fields that the words of a question name, by a field's words, abbreviations or concepts."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType

from agent.intent.analysis.sentence import Sentence
from agent.intent.analysis.word_classes import is_preposition
from agent.intent.language import lexicon
from agent.intent.language.abbreviations import VOWELS, has_same_root, is_abbreviation, is_short_form, singular_of
from agent.intent.language.text import chinese_words, has_chinese, stem
from agent.intent.language.units import CURRENCIES, Measure
from agent.intent.values.measures import are_different_amounts, implied_kinds, measure_of
from agent.intent.values.person_names import looks_like_person
from agent.intent.values.value_names import boolean_texts
from agent.intent.values.vocabulary import PERSON_CONCEPTS, Vocabulary
from retrievers.text.chinese_dictionary import pinyin_of, term_translations

_ByLetter = dict[str, list[tuple[str, str, bool]]]
_LONGEST, _LONGEST_QUANTITY = 5, 4
_SENSES = 2
_FULL, _PART, SHORTENED, _GENERAL, _ROOT = 5.0, 4.0, 3.0, 2.0, 1.0
_NAMES = 0.6
"""Minimum share of a field's values that look like names of people."""
_REPEATED = 0.5
"""Maximum distinct values of a field that groups documents, as a share of the documents."""
_SHORT = 60
"""Maximum characters of a text that can name a document."""
_YEARS = (1000, 2100)
_SHARED = 0.6
"""Minimum share of a field's values that contain a word, at which the word does not tell them apart."""
_RANKS = frozenset("rank ranking position pos place grid seed 名次 排名 最终排名".split())
_PLAIN = frozenset("of in the to and or by a no is at on name type date number value id with was".split())
_GROUPING = frozenset("per by each every".split())
_NUMBER_OF = re.compile(r"(?:number of|(?:no|num|nr|n)(?: of)?) (?P<what>.+)|(?P<counted>.+) (?:count|cnt|qty)")
_ENDINGS = frozenset("name nm no nr num number id cd code ref key".split())
"""Last words of a field name that say nothing about its content."""
GROUPS = frozenset(["label", "tag", "person", "version", "boolean", "language", "text"])
"""Roles of fields whose values can be counted, or by which documents can be grouped."""


@dataclass(frozen=True, slots=True)
class FieldMatch:
    """The fields that a phrase of a question may name.

    Attributes:
        last: index of the token after the phrase.
        strength: how surely it points at them, from 1 for a word of the same root to 5 for a field's full name.
    """

    fields: tuple[str, ...]
    last: int
    strength: float


@dataclass(frozen=True, slots=True)
class FieldIndex:
    """The fields of a vocabulary by the words of their names.

    Attributes:
        name_stems: the stemmed words of each field's name, without its unit.
        name_words: the same words unstemmed; they may be abbreviations.
        measures: the fields that hold numbers, including numbers written as text.
        counted_nouns: the stems of what a field counts: "page" for texts like "120 pages", or a declared unit.
        key_fields: text fields with a different value in (almost) every document.
        fields_by_name: the fields by their stems and by their nouns.
        fields_by_name_part: the fields by each run of adjacent stems of their names.
        words_by_letter, stems_by_letter: (field, word, whether it is the last of the name) by the word's first letter.
        longest: number of words in the longest name of a field, at most 5.
    """

    vocabulary: Vocabulary
    name_stems: Mapping[str, tuple[str, ...]]
    name_words: Mapping[str, tuple[str, ...]]
    measures: Mapping[str, Measure]
    counted_nouns: Mapping[str, tuple[str, ...]]
    key_fields: frozenset[str]
    fields_by_name: Mapping[tuple[str, ...], tuple[str, ...]]
    fields_by_name_part: Mapping[tuple[str, ...], tuple[str, ...]]
    words_by_letter: _ByLetter
    stems_by_letter: _ByLetter
    longest: int

    def match_at(self, sentence: Sentence, index: int) -> FieldMatch | None:
        """Return the fields that the phrase starting at the token `index` points at, or None; cached."""
        known: dict[int, FieldMatch | None] = sentence.cached_for_words(("columns", id(self.vocabulary)), dict)
        if index not in known:
            known[index] = self._at(sentence, index)
        return known[index]

    def _at(self, sentence: Sentence, index: int) -> FieldMatch | None:
        own = self._match_name(sentence, index) or self._match_noun(sentence, index)
        cued, behind = sentence.cue(index)
        if own is not None and (own.last >= behind or own.strength >= _PART):
            return own
        cued = self._meant_cues(sentence, index, behind, cued) if cued else ()
        if cued and not (behind == index + 1 and sentence.folded(index) in _PLAIN):
            known = tuple(name for name in cued if name in self.vocabulary.roles)
            return FieldMatch(known, behind, _GENERAL) if known else None
        return own or self._match_quantity(sentence, index) or self._match_translation(sentence, index)

    def _meant_cues(self, sentence: Sentence, index: int, behind: int, cued: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of the fields `cued` that the phrase at the tokens [index, behind) can mean.

        The result is () for a preposition ("by") and for a part that cannot stand for a field, see `_may_mean`. "cost"
        does not mean a field of budgets.
        """
        said = sentence.tokens[index:behind]
        stems, texts = [token.stem for token in said], [token.folded for token in said]
        of_name = (name for name in cued if _has_run(self.name_stems.get(name, ()), stems))
        if is_preposition(sentence, index, behind) or any(not self._may_mean(name, stems, texts) for name in of_name):
            return ()
        return tuple(
            name
            for name in cued
            if name not in self.measures or not are_different_amounts(self.name_words[name], texts)
        )

    def implied_fields(self, words: Collection[str], *sorts: str) -> tuple[str, ...]:
        """Return the numeric fields that words imply: prices for "expensive" and 多少钱 ("how much"), or durations.

        Args:
            sorts: the word lists to use: "ends" for words of an order ("longest"), "nouns" for words of a quantity.
        """
        listed = implied_kinds(sorts)
        said = [listed[word] for word in words if word in listed]
        if not said:
            return ()
        kinds = set[str]().union(*said)
        kinds |= CURRENCIES if "money" in kinds else set()
        of_unit = tuple(name for name, one in self.measures.items() if {unit.kind for unit in one.units} & kinds)
        of_unit = of_unit or tuple(name for name in self.measures if self.vocabulary.concepts[name] & kinds)
        return of_unit or tuple(name for name in self.measures if any(self.has_head_noun(name, kind) for kind in kinds))

    def _match_quantity(self, sentence: Sentence, index: int) -> FieldMatch | None:
        if not self.measures:
            return None
        tokens = sentence.tokens[index : index + _LONGEST_QUANTITY]
        for size in range(len(tokens), 0, -1):
            word = sentence.text[tokens[0].start : tokens[size - 1].end].casefold()
            if word == "people" and self.person_fields():
                continue  # the people of the records, such as mayors, rather than those who live somewhere
            names = self.implied_fields([word], "nouns")
            if names:
                return FieldMatch(names, index + size, _GENERAL)
        return None

    def _match_translation(self, sentence: Sentence, index: int) -> FieldMatch | None:
        """Return fields named by the last word of a Chinese word's first English senses: 房价 is a "house price"."""
        start = sentence.tokens[index].start
        end = chinese_words(sentence.text).get(start)
        if end is None:
            return None
        heads = {sense[-1] for sense in term_translations(sentence.text[start:end])[:_SENSES]} - lexicon.STOP_WORDS
        names = {
            name for name, words in self.name_stems.items() for one in words for head in heads
            if one == stem(head) or is_abbreviation(one, head) or has_same_root(stem(one), head)
        }  # fmt: skip
        return FieldMatch(tuple(sorted(names)), sentence.index_from(end), _ROOT) if names else None

    def _match_name(self, sentence: Sentence, index: int) -> FieldMatch | None:
        """Return the fields whose own name, or the longest part of it, starts at this token; None if there are none."""
        said: list[str] = []
        for token in sentence.tokens[index : index + self.longest]:
            if token.kind not in ("word", "number"):
                break
            said.append(token.stem)
        for size in range(len(said), 0, -1):
            run = tuple(said[:size])
            if full := self.fields_by_name.get(run):
                return FieldMatch(full, index + size, _FULL)
            texts = [token.folded for token in sentence.tokens[index : index + size]]
            short = tuple(one for one, words in self.name_words.items() if size > 1 and _abbreviate(words, run, texts))
            if short:
                return FieldMatch(short, index + size, _PART)
            part = tuple(name for name in self.fields_by_name_part.get(run, ()) if self._may_mean(name, run, texts))
            plain = size == 1 and (run[0] in _PLAIN or run[0].isdigit())
            if plain and sentence.folded(index - 1) in _GROUPING:
                # "per type" for a field ClaimType
                part = tuple(name for name in part if len(part) == 1 and self.name_stems[name][-1] == run[0])
                plain = not part
            if part and not plain:
                return FieldMatch(part, index + size, _PART)
        return self._match_short(sentence, index)

    def _match_noun(self, sentence: Sentence, index: int) -> FieldMatch | None:
        """Return the fields whose noun (see `counted_nouns`) starts at this token, None if there are none."""
        stems = tuple(token.stem for token in sentence.tokens[index : index + _LONGEST]) if self.counted_nouns else ()
        said = {name: len(noun) for name, noun in self.counted_nouns.items() if stems[: len(noun)] == noun}
        return FieldMatch(tuple(said), index + max(said.values()), _FULL) if said else None

    def _match_short(self, sentence: Sentence, index: int) -> FieldMatch | None:
        """Return the fields whose name abbreviates the token or shares its root, `sev` for "severity"; or None."""
        token = sentence.token(index)
        if token is not None and token.kind == "cjk":
            return self._match_initials(sentence, index)
        if token is None or token.kind != "word" or len(token.folded) < 4 or token.folded in lexicon.STOP_WORDS:
            return None
        singular = singular_of(token.folded)
        forms, is_plural = {token.folded, singular}, singular != token.folded
        # An abbreviation and a word of the same root begin with the same letter.
        for judge, known, strength in (
            (is_short_form, self.words_by_letter, SHORTENED), (has_same_root, self.stems_by_letter, _ROOT),
        ):  # fmt: skip
            found = tuple(dict.fromkeys(
                name for name, word, is_last in known.get(token.folded[0], ())
                # A plural abbreviates only the last word of a numeric field's name.
                if (is_last or not is_plural or name not in self.measures) and any(judge(word, one) for one in forms)
            ))  # fmt: skip
            whole = tuple(name for name in found if len(self.name_stems[name]) == 1)
            if found:
                return FieldMatch(whole or found, index + 1, strength)
        return None

    def _may_mean(self, name: str, run: Sequence[str], texts: Sequence[str]) -> bool:
        """Return whether a part of a field's name may stand for it: "novelty" for noveltyScore.

        For a numeric field the part must contain the last word, or be written as in the name: "units" does not mean
        unit_price. `run` is the part as stems, `texts` as the question writes it.
        """
        words = self.name_stems[name]
        return name not in self.measures or words[-len(run) :] == tuple(run) or _has_run(self.name_words[name], texts)

    def _match_initials(self, sentence: Sentence, index: int) -> FieldMatch | None:
        """Return fields whose names are the Pinyin initials of Chinese words: xf for 学分 (xuefen, "credits")."""
        for name, words in self.name_stems.items():
            size = len(words[0]) if len(words) == 1 and not VOWELS.search(words[0]) else 0
            tokens = sentence.tokens[index : index + size]
            if size > 1 and len(tokens) == size and all(token.kind == "cjk" for token in tokens):
                syllables = pinyin_of("".join(token.text for token in tokens))
                if "".join(one[0] for one in syllables) == words[0]:
                    return FieldMatch((name,), index + size, SHORTENED)
        return None

    def title_fields(self) -> list[str]:
        """Return at most two fields whose short texts name single documents, such as titles or codes."""
        fields = self.vocabulary.catalogue.fields
        keys = sorted(self.key_fields - self.vocabulary.date_units.keys())
        return [name for name in keys if all(len(text) <= _SHORT for text in fields[name].values)][:2]

    def person_fields(self) -> tuple[str, ...]:
        """Return the fields of people: by their role; if none has it, those whose values look like names of people."""
        known = self.vocabulary.of_role("person")
        named = tuple(name for name in known if PERSON_CONCEPTS & self.vocabulary.concepts[name])
        if known:
            return named or known
        return tuple(name for name in self.vocabulary.roles if self._holds_names(name))

    def _holds_names(self, name: str) -> bool:
        values = self.vocabulary.catalogue.fields[name].values
        return len(values) > 2 and sum(map(looks_like_person, values)) >= _NAMES * len(values)

    def date_fields(self) -> tuple[str, ...]:
        """Return the date fields, those in most documents first."""
        return self.vocabulary.of_role("date")

    def is_list(self, name: str) -> bool:
        """Return whether a document may hold several values of a field."""
        return self.vocabulary.catalogue.fields[name].field.type == "list"

    def is_groupable(self, name: str) -> bool:
        """Return whether documents can be grouped by the values of a field."""
        known = self.vocabulary
        return (known.roles.get(name) in GROUPS or name in known.date_units) and name not in self.measures

    def has_repeated_values(self, name: str) -> bool:
        """Return whether the values of a field stand for groups of documents, not for single documents."""
        one = self.vocabulary.catalogue.fields[name]
        return one.field.type == "list" or one.distinct <= _REPEATED * max(one.documents, 1)

    def is_serial_number(self, name: str) -> bool:
        """Return whether a numeric field only numbers the documents (1, 2, 3 ...), so that its sum means nothing."""
        one = self.vocabulary.catalogue.fields[name]
        if not isinstance(one.low, int | float) or not isinstance(one.high, int | float):
            return False
        return one.distinct == one.documents == one.high - one.low + 1 and one.documents > 2

    def has_head_noun(self, name: str, word: str) -> bool:
        """Return whether a word is the head noun of a field's name: "state" of vacancyState, "customer" of cust_nm."""
        own = [one for one in self.name_words[name] if one not in _ENDINGS] or list(self.name_words[name])
        said = singular_of(word.casefold())
        return bool(own) and (stem(own[-1]) == stem(said) or is_short_form(own[-1], said))

    def is_year(self, name: str) -> bool:
        """Return whether a numeric field holds years, so that its sum means nothing."""
        one = self.vocabulary.catalogue.fields[name]
        bounds = [bound for bound in (one.low, one.high) if isinstance(bound, int | float)]
        return len(bounds) == 2 and bounds[0] >= _YEARS[0] and bounds[1] <= _YEARS[1]

    def resembles_label(self, noun: str) -> bool:
        """Return whether an unknown noun may mean a label: "apartments" for `apt`, 选修课 if labels contain 选修."""
        word = noun.casefold().removesuffix("s")
        parts = {word[place : place + 2] for place in range(len(word) - 1)} if has_chinese(word) else {f" {word}"}
        for name in self.vocabulary.of_role("label"):
            texts = [f" {value.casefold()}" for value in self.vocabulary.catalogue.fields[name].values]
            ends = sum(text.endswith(part) or (part in text and part[0] != " ") for text in texts for part in parts)
            if 0 < ends < _SHARED * len(texts) or any(len(one) > 3 and is_abbreviation(one[1:], word) for one in texts):
                return True
        return False

    def is_rank(self, name: str) -> bool:
        """Return whether a numeric field holds ranks, of which 1 is the best."""
        return not _RANKS.isdisjoint(lexicon.name_words(name))

    def is_in_every_document(self, name: str) -> bool:
        """Return whether every document has the field."""
        catalogue = self.vocabulary.catalogue
        return catalogue.fields[name].documents >= catalogue.documents


def _has_run(words: Sequence[str], run: Sequence[str]) -> bool:
    return any(tuple(words[place : place + len(run)]) == tuple(run) for place in range(len(words) - len(run) + 1))


def _abbreviate(words: Sequence[str], run: Sequence[str], texts: Sequence[str]) -> bool:
    """Return whether a field's `words` are a run of a question, some abbreviated: alt_supp, "alternative supplier".

    `run` holds the stems of the question's words, `texts` the words.
    """
    if len(words) != len(run):
        return False
    said = zip(words, run, texts, strict=True)
    return all(stem(one) == stemmed or is_short_form(one, text) for one, stemmed, text in said)


def field_index_of(vocabulary: Vocabulary) -> FieldIndex:
    """Return the fields of a vocabulary by the words of their names; cached for each catalogue."""
    known = vocabulary.catalogue.memo.get("field index", lambda: _build_index(vocabulary))
    return known if known.vocabulary is vocabulary else replace(known, vocabulary=vocabulary)


def field_matches(sentence: Sentence) -> Mapping[int, FieldMatch]:
    """Map the index of the first token of each phrase that points at fields to the phrase's fields."""
    columns = field_index_of(sentence.vocabulary)

    def point() -> dict[int, FieldMatch]:
        found = ((place, columns.match_at(sentence, place)) for place in range(len(sentence.tokens)))
        return {place: one for place, one in found if one is not None}

    return sentence.cached_for_words(("field matches", id(sentence.vocabulary)), point)


def _build_index(vocabulary: Vocabulary) -> FieldIndex:
    fields = vocabulary.catalogue.fields
    measures = {
        name: found for name, values in fields.items()
        if name not in vocabulary.date_units and boolean_texts(values) is None
        and (found := measure_of(values)) is not None
    }  # fmt: skip
    words = {name: _own_words(name, measures.get(name)) for name in fields}
    stems = {name: tuple(stem(word) for word in own) for name, own in words.items()}
    nouns = {name: tuple(one.noun.split()) for name, one in measures.items() if one.noun}
    keys = frozenset(
        name
        for name, one in fields.items()
        if one.field.type == "string" and name not in measures and one.distinct > 2 and one.distinct >= one.documents
    )
    called: dict[tuple[str, ...], tuple[str, ...]] = {}
    parts: dict[tuple[str, ...], tuple[str, ...]] = {}
    for name, own in stems.items():
        for run in {own, nouns.get(name, own)}:
            called[run] = (*called.get(run, ()), name)
        for run in {own[first:last] for first, last in combinations(range(len(own) + 1), 2)}:
            parts[run] = (*parts.get(run, ()), name)
    return FieldIndex(
        vocabulary, MappingProxyType(stems), MappingProxyType(words), MappingProxyType(measures),
        MappingProxyType(nouns), keys, called, parts, _by_letter(words), _by_letter(stems),
        min(_LONGEST, max(map(len, stems.values()), default=1) or 1),
    )  # fmt: skip


def _by_letter(known: Mapping[str, tuple[str, ...]]) -> _ByLetter:
    found: _ByLetter = {}
    for name, words in known.items():
        for place, word in enumerate(words):
            found.setdefault(word[:1], []).append((name, word, place == len(words) - 1))
    return found


def _own_words(name: str, measure: Measure | None) -> tuple[str, ...]:
    """Return the words of a field's name without unit and "number of": "price" of price_eur, "pages" of num_pages."""
    words = tuple(word for word in lexicon.name_words(name) if not has_chinese(word))
    unit = measure.words if measure is not None else frozenset()
    own = tuple(word for word in words if word not in unit) or words
    counted = _NUMBER_OF.fullmatch(" ".join(own)) if measure is not None else None
    return tuple((counted["what"] or counted["counted"]).split()) if counted is not None else own
