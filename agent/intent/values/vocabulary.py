"""The words by which a question can name the values and fields of a collection's documents.

A vocabulary is built once for each state of the field catalogue; a question only looks words up in it.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from rapidfuzz import fuzz, process

from agent.intent.language import lexicon
from agent.intent.language.countries import country_names, language_code
from agent.intent.language.text import has_chinese, stem, words_of
from agent.intent.values import account_names, codes, field_words, thesaurus, translated_names, value_names
from agent.intent.values.date_units import DateUnits, date_units_of, with_day_ranges
from agent.intent.values.person_names import is_person_field, looks_like_person
from agent.intent.values.value_match import ValueMatch
from agent.intent.words import word_frequencies
from retrievers.core.types import FieldCatalogue, FieldValues

FieldRole = Literal["person", "label", "tag", "version", "number", "date", "boolean", "language", "text"]
LANGUAGE_FIELD = "language"
"""The field added by ingestion: the detected language."""
PERSON_CONCEPTS = frozenset({"person", "sponsor", "reviewer"})
_VERSION = re.compile(r"v?\d+(?:\.\d+){1,3}(?:[a-z]+\d*)?")
_MOST_LABELS = 200
_SAME_PEOPLE = 0.8
_FUZZY_CUTOFF = 89
_FUZZY_MARGIN = 4
_LEAST_FUZZY_CHARACTERS = 6
_Names = Mapping[tuple[str, ...], tuple[ValueMatch, ...]]
_Fuzzy = tuple[tuple[str, ...], tuple[tuple[ValueMatch, ...], ...]]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names by which questions can name the values and fields of a catalogue, for lookups by token.

    Attributes:
        roles: what kind of values each field has.
        names: values by the tokens of a name.
        stems: values of labels and tags by the stems of a name.
        cues: fields by the tokens of a word or phrase that points at them.
        longest: tokens of the longest name.
        document_kinds: Chinese names of kinds of documents, such as 报告 ("report").
        fields_in_english: fields by the stem of an English word in their name.
        pinyin_fields: fields by the Pinyin of a Chinese phrase in their name, or by the initials of its syllables.
        english_values: labels and tags of one to three English words by `english_key`, for lookups by dictionary.
        concepts: what each field is about, see `field_words.concepts_of`.
        ordinary_share: by field, the share of its values that consist of ordinary words only.
        spelling_variants: by field, the different spellings of its values, see `value_names.spelling_variants`.
        abbreviations: (folded value, value) for labels that abbreviate a word: `trv` for "travel".
        initials: labels that are codes in capitals, by the code in lower case: `lv` for "low voltage".
        date_units: by field whose texts are days, months, quarters or years: what the texts stand for.
        fields_by_frequency: all fields, the most frequent first.
    """

    catalogue: FieldCatalogue
    roles: Mapping[str, FieldRole]
    names: _Names
    stems: _Names
    cues: Mapping[tuple[str, ...], tuple[str, ...]]
    longest: int
    english_values: _Names
    document_kinds: tuple[str, ...]
    fields_in_english: Mapping[str, tuple[str, ...]]
    concepts: Mapping[str, frozenset[str]]
    ordinary_share: Mapping[str, float]
    spelling_variants: Mapping[str, Mapping[str, tuple[str, ...]]]
    pinyin_fields: Mapping[str, tuple[str, ...]]
    abbreviations: tuple[tuple[str, ValueMatch], ...] = ()
    initials: Mapping[str, tuple[ValueMatch, ...]] = field(default_factory=dict)
    date_units: Mapping[str, DateUnits] = field(default_factory=dict)
    fields_by_frequency: tuple[str, ...] = ()
    _people: _Fuzzy = field(default=((), ()))
    _labels: _Fuzzy = field(default=((), ()))

    def of_role(self, *roles: FieldRole) -> tuple[str, ...]:
        """Return the fields with these roles, the most frequent first."""
        return tuple(name for name in self.fields_by_frequency if self.roles[name] in roles)

    def comparison_count(self, words: Sequence[str], *, person: bool) -> int:
        """Return how many names `misspelt_values` compares with the words; 0 if it compares none."""
        text = " ".join(words)
        if len(text) < _LEAST_FUZZY_CHARACTERS or has_chinese(text):
            return 0
        return len((self._people if person else self._labels)[0])

    def misspelt_values(self, words: Sequence[str], *, person: bool) -> tuple[ValueMatch, ...]:
        """Return the values of the name that the words misspell; () if no name is close, or no single one the closest.

        Args:
            person: compare with names of people, rather than with labels, tags and surnames.
        """
        text = " ".join(words)
        choices, known = self._people if person else self._labels
        if not self.comparison_count(words, person=person):
            return ()
        best = process.extract(text, choices, scorer=fuzz.ratio, score_cutoff=_FUZZY_CUTOFF - _FUZZY_MARGIN, limit=2)
        is_close = bool(best) and best[0][1] >= _FUZZY_CUTOFF and best[0][0][:1] == text[:1]
        if not is_close or (len(best) > 1 and best[0][1] - best[1][1] < _FUZZY_MARGIN):
            return ()
        return tuple(ValueMatch(one.field, one.value, "fuzzy", one.documents) for one in known[best[0][2]])

    def restricted_to(self, catalogue: FieldCatalogue) -> "Vocabulary":
        """Return the vocabulary of a catalogue with fewer values, in a tenth of the time that building it takes.

        Fields keep their roles, and a name that meant several values gets no further ones.
        """
        units = {}
        for name, one in self.date_units.items():
            texts = {day: text for day, text in one.texts.items() if text in catalogue.fields[name].values}
            if texts:
                units[name] = replace(one, texts=texts)
        untimed = self.date_units.keys() - units.keys()

        def held(known: Iterable[ValueMatch]) -> tuple[ValueMatch, ...]:
            return tuple(one for one in known if one.value in catalogue.fields[one.field].values)

        def held_names(index: _Names) -> _Names:
            return {words: left for words, known in index.items() if (left := held(known))}

        def held_texts(fuzzy: _Fuzzy) -> _Fuzzy:
            left = [(text, same) for text, known in zip(*fuzzy, strict=True) if (same := held(known))]
            return tuple(text for text, _ in left), tuple(same for _, same in left)

        return replace(
            self,
            catalogue=with_day_ranges(catalogue, units),
            roles={**self.roles, **{name: field_role(catalogue.fields[name]) for name in untimed}},
            names=held_names(self.names),
            stems=held_names(self.stems),
            english_values=held_names(self.english_values),
            spelling_variants={
                name: {value: tuple(one for one in same if one in catalogue.fields[name].values)
                       for value, same in variants.items() if value in catalogue.fields[name].values}
                for name, variants in self.spelling_variants.items()
            },
            abbreviations=tuple((code, one) for code, one in self.abbreviations if held([one])),
            initials={code: left for code, known in self.initials.items() if (left := held(known))},
            date_units=units,
            _people=held_texts(self._people),
            _labels=held_texts(self._labels),
        )  # fmt: skip


def field_role(values: FieldValues) -> FieldRole:
    """Return what kind of values a field has, judged by its name and values."""
    one = values.field
    if one.name == LANGUAGE_FIELD or _holds_languages(values):
        return "language"
    if one.item in ("number", "date", "boolean"):
        return one.item
    texts = list(values.values)
    if texts and sum(_VERSION.fullmatch(text.strip()) is not None for text in texts) > 0.6 * len(texts):
        return "version"
    named = bool(PERSON_CONCEPTS & field_words.concepts_of(one.name))
    if texts and all(account_names.is_email(text) for text in texts):
        return "person"
    if account_names.are_account_names(texts) and (
        named or (any(map(account_names.is_marked_account, texts)) and len(texts) > 2)
    ):
        return "person"
    are_names = named and texts and sum(map(looks_like_person, texts)) >= 0.5 * len(texts)
    if are_names or (not field_words.concepts_of(one.name) and is_person_field(one.name, texts)):
        return "person"
    if one.name in ("id", "title") or any(len(text) > 80 for text in texts):
        return "text"
    if one.type == "list":
        return "tag"
    repeated = values.distinct * 2 <= max(values.documents, 1) or values.distinct <= 12
    return "label" if values.distinct <= _MOST_LABELS and repeated else "text"


def _holds_languages(values: FieldValues) -> bool:
    """Return whether a field holds several language codes and nothing else."""
    is_of_all = values.distinct > 1 and all(map(language_code, values.values))
    return bool(values.values) and is_of_all and "place" not in field_words.concepts_of(values.field.name)


def build_vocabulary(catalogue: FieldCatalogue) -> Vocabulary:
    """Return the vocabulary of a field catalogue, cached. One thread builds it, others that need it wait."""
    return catalogue.memo.get("vocabulary", lambda: _build_vocabulary(catalogue))


def narrowed_catalogue(catalogue: FieldCatalogue, fields: Mapping[str, FieldValues]) -> FieldCatalogue:
    """Return a catalogue whose `fields` have some of the values of `catalogue`, with its vocabulary."""
    narrowed = replace(catalogue, fields=fields)
    narrowed.memo.get("vocabulary", lambda: build_vocabulary(catalogue).restricted_to(narrowed))
    return narrowed


def _build_vocabulary(catalogue: FieldCatalogue) -> Vocabulary:
    units = {name: found for name, values in catalogue.fields.items() if (found := date_units_of(values)) is not None}
    catalogue = with_day_ranges(catalogue, units)
    roles = {name: field_role(values) for name, values in catalogue.fields.items()}
    roles |= dict.fromkeys(units, "date")
    roles |= dict.fromkeys(_shared_person_fields(catalogue, roles), "person")
    names, stems = value_names.NameIndex(), value_names.NameIndex()
    own = {lexicon.name_words(name) for name in catalogue.fields}
    own |= {lexicon.name_words(name)[:1] for name, role in roles.items() if role == "number"}
    cues = field_words.field_cues(catalogue)
    # If a collection has a language field of its own, names of languages mean that field, not the detected language.
    unnamed = {LANGUAGE_FIELD} if _has_language(catalogue, roles) else set()
    known = {name: one for name, one in catalogue.fields.items() if name not in unnamed}
    named = {name: one for name, one in known.items() if _is_named(roles[name], one, catalogue.documents)}
    # The first name added for a value wins: as written, then aliases, then general words.
    for name, values in named.items():
        value_names.add_exact_names(name, roles[name], values, names, stems, own)
    for name, values in known.items():
        if value_names.boolean_texts(values) is None:
            _add_general_names(name, roles[name], values, names, stems, own)
    for name, values in named.items():
        value_names.add_variant_names(name, roles[name], values, names, stems, cues)
    translated_names.add_pinyin_names(names, roles)
    labels = {name for name, role in roles.items() if role in ("label", "tag")}
    translated_names.add_english_names(names, stems, labels, cues)
    chosen = {role: {name for name, one in roles.items() if one == role} for role in ("person", "label", "tag")}
    kinds = (
        "".join(words)
        for words, known in names.items()
        if has_chinese(words[0]) and any("kind" in field_words.concepts_of(field) for field, _ in known)
    )
    return Vocabulary(
        catalogue,
        roles,
        names.by_words(),
        stems.by_words(),
        cues,
        max((len(words) for words in (*names, *stems)), default=1),
        translated_names.english_index(names, chosen["label"] | chosen["tag"]),
        tuple(kinds),
        field_words.fields_in_english(catalogue),
        {name: field_words.concepts_of(name) for name in catalogue.fields},
        {name: _ordinary_share(values) for name, values in catalogue.fields.items()},
        {name: value_names.spelling_variants(values.values) for name, values in catalogue.fields.items()},
        field_words.pinyin_index(catalogue),
        tuple(code for one in chosen["label"] for code in codes.abbreviation_codes(one, catalogue.fields[one])),
        codes.initial_codes({name: catalogue.fields[name] for name in labels}, names),
        units,
        tuple(sorted(roles, key=lambda name: (-catalogue.fields[name].documents, name))),
        _fuzzy_index(names, chosen["person"]),
        _fuzzy_index(names, chosen["label"] | chosen["tag"], chosen["person"]),
    )


def _has_language(catalogue: FieldCatalogue, roles: Mapping[str, FieldRole]) -> bool:
    """Return whether a collection has a language field of its own with more than one value."""
    own = {name for name, role in roles.items() if role == "language" or "language" in field_words.concepts_of(name)}
    return any(catalogue.fields[name].distinct > 1 for name in own - {LANGUAGE_FIELD})


def _shared_person_fields(catalogue: FieldCatalogue, roles: Mapping[str, FieldRole]) -> list[str]:
    """Return fields of tags or labels that have most of their values in common with a field of people."""
    held = [set(catalogue.fields[name].values) for name, role in roles.items() if role == "person"]
    others = {name: set(catalogue.fields[name].values) for name, role in roles.items() if role in ("tag", "label")}
    return [
        name
        for name, values in others.items()
        if values and any(len(values & known) >= _SAME_PEOPLE * len(values) for known in held)
    ]


def _ordinary_share(values: FieldValues) -> float:
    known = word_frequencies()
    texts = value_names.nameable(values.values)
    plain = [all(stem(word) in known for word in words_of(value) if word.isascii()) for value in texts]
    return round(sum(plain) / len(plain), 2) if plain else 0.0


def _is_named(role: FieldRole, values: FieldValues, documents: int) -> bool:
    """Return whether a question can name the values of a field.

    It cannot if the values are numbers, dates, yes and no, ids, titles, or a single label that all documents have.

    Args:
        documents: number of documents in the collection.
    """
    same = role == "label" and values.distinct < 2 and values.documents >= documents
    is_truth = value_names.boolean_texts(values) is not None
    is_text = role in ("number", "date", "boolean") or values.field.name in ("id", "title")
    return not (same or is_truth or is_text)


def _add_general_names(
    name: str,
    role: FieldRole,
    values: FieldValues,
    names: value_names.NameIndex,
    stems: value_names.NameIndex,
    fields: set[tuple[str, ...]],
) -> None:
    """Add translations, synonyms, and names of countries and languages; none for a tag that is named in `fields`.

    Args:
        names, stems: see `value_names.add_exact_names`.
    """
    if role in ("label", "tag"):
        for value, words in thesaurus.other_names(values.values, {word for own in fields for word in own}):
            if role == "tag" and words_of(value) in fields:
                continue
            known = ValueMatch(name, value, "translated", values.values[value])
            names.add(words, known)
            if role == "label":
                stems.add(tuple(map(stem, words)), known)
        for value, documents in values.values.items():
            if role == "tag" and words_of(value) in fields:
                continue
            for words in _translations(value):
                names.add(words, ValueMatch(name, value, "translated", documents))
            for words in _adjectives_of_place(value) if role == "label" else ():
                stems.add(tuple(map(stem, words)), ValueMatch(name, value, "translated", documents))  # "Georgians"
        for code, called in country_names(name, values.values).items():
            for one in filter(None, called):
                names.add(words_of(one), ValueMatch(name, code, "alias", values.values[code]))
    elif role == "language":
        for value, documents in values.values.items():
            for word in lexicon.LANGUAGE_NAMES.get(language_code(value), ()):
                names.add(words_of(word), ValueMatch(name, value, "alias", documents))


def _fuzzy_index(names: value_names.NameIndex, fields: set[str], people: Collection[str] = ()) -> _Fuzzy:
    """Return (names of 6 or more letters, the values of each): whole names of `fields`, parts of names of `people`."""
    found = []
    for words, known in names.items():
        given = tuple(one for one in known.values() if one.field in fields and one.kind in ("exact", "alias"))
        if people and len(words) == 1:
            given += tuple(one for one in known.values() if one.field in people and one.kind in ("part", "short"))
        if given:
            text = " ".join(words)
            if len(text) >= _LEAST_FUZZY_CHARACTERS and not has_chinese(text):
                found.append((text, given))
    return tuple(text for text, _ in found), tuple(known for _, known in found)


def _translations(value: str) -> Iterable[tuple[str, ...]]:
    """Return other names of an English value from general word lists: Chinese ones, and English synonyms."""
    words = " ".join(words_of(value))
    stems = " ".join(stem(word) for word in words.split())
    found = lexicon.bilingual_synonyms().get(words) or _bilingual_by_stem().get(stems, ())
    return [*map(words_of, found), *_adjectives_of_place(value)]


def _adjectives_of_place(value: str) -> list[tuple[str, ...]]:
    """Return other names of a place and its adjectives, in English and Chinese; none for "turkey", a bird."""
    return list(map(words_of, lexicon.place_names().get(" ".join(words_of(value)), ()))) if value[:1].isupper() else []


@lru_cache(maxsize=1)
def _bilingual_by_stem() -> dict[str, tuple[str, ...]]:
    """Return the other names of `lexicon.bilingual_synonyms`, by the stems of the English phrase."""
    found: dict[str, tuple[str, ...]] = {}
    for phrase, chinese in lexicon.bilingual_synonyms().items():
        key = " ".join(stem(word) for word in words_of(phrase))
        found[key] = (*found.get(key, ()), *chinese)
    return found
