"""The words by which a question can name the values and fields of a collection's documents.

A vocabulary is built once for each state of the field catalogue; a question only looks words up in it.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from rapidfuzz import fuzz, process

from agent.intent.language import lexicon
from agent.intent.language.countries import country_names, language_code
from agent.intent.language.text import has_chinese, stem, words_of
from agent.intent.values import account_names, thesaurus, translated_names, value_names
from agent.intent.values.date_units import DateUnits, date_units_of, with_day_ranges
from agent.intent.values.person_names import is_person_field, looks_like_person
from agent.intent.values.value_match import ValueMatch
from agent.intent.words import word_frequencies, word_table
from retrievers.core.types import FieldCatalogue, FieldValues
from retrievers.text.chinese_dictionary import term_translations, words_with_pinyin

FieldRole = Literal["person", "label", "tag", "version", "number", "date", "boolean", "language", "text"]
LANGUAGE_FIELD = "language"
"""The field added by ingestion: the detected language."""
PERSON_CONCEPTS = frozenset({"person", "sponsor", "reviewer"})
_VERSION = re.compile(r"v?\d+(?:\.\d+){1,3}(?:[a-z]+\d*)?")
_PINYIN = re.compile(r"(?:(?:[zcs]h|[b-df-hj-np-tw-z])?[aeiouv]{1,3}(?:ng|n|r)?){2,}")
_LEAST_INITIALS, _LONGEST_INITIALS = 4, 4
"""A field's name may be initials of Pinyin if it has at least 4 letters, in words of less than 4: `ja_rq`."""
_FEW = 2
"""Maximum Chinese words with the same Pinyin that may all be meant."""
_MOST_LABELS = 200
_SAME_PEOPLE = 0.8
_FUZZY_CUTOFF = 89
_FUZZY_MARGIN = 4
_LEAST_FUZZY_CHARACTERS = 6
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
        concepts: what each field is about, see `concepts_of`.
        ordinary_share: by field, the share of its values that consist of ordinary words only.
        spelling_variants: by field, the different spellings of its values, see `value_names.spelling_variants`.
        abbreviations: (folded value, value) for labels that abbreviate a word: `trv` for "travel".
        date_units: by field whose texts are days, months, quarters or years: what the texts stand for.
        fields_by_frequency: all fields, the most frequent first.
    """

    catalogue: FieldCatalogue
    roles: Mapping[str, FieldRole]
    names: Mapping[tuple[str, ...], tuple[ValueMatch, ...]]
    stems: Mapping[tuple[str, ...], tuple[ValueMatch, ...]]
    cues: Mapping[tuple[str, ...], tuple[str, ...]]
    longest: int
    english_values: Mapping[tuple[str, ...], tuple[ValueMatch, ...]]
    document_kinds: tuple[str, ...]
    fields_in_english: Mapping[str, tuple[str, ...]]
    concepts: Mapping[str, frozenset[str]]
    ordinary_share: Mapping[str, float]
    spelling_variants: Mapping[str, Mapping[str, tuple[str, ...]]]
    pinyin_fields: Mapping[str, tuple[str, ...]]
    abbreviations: tuple[tuple[str, ValueMatch], ...] = ()
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
    named = bool(PERSON_CONCEPTS & concepts_of(one.name))
    if texts and all(account_names.is_email(text) for text in texts):
        return "person"
    if account_names.are_account_names(texts) and (
        named or (any(map(account_names.is_marked_account, texts)) and len(texts) > 2)
    ):
        return "person"
    are_names = named and texts and sum(map(looks_like_person, texts)) >= 0.5 * len(texts)
    if are_names or (not concepts_of(one.name) and is_person_field(one.name, texts)):
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
    return bool(values.values) and is_of_all and "place" not in concepts_of(values.field.name)


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


def _pinyin_index(catalogue: FieldCatalogue) -> dict[str, tuple[str, ...]]:
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


def build_vocabulary(catalogue: FieldCatalogue) -> Vocabulary:
    """Return the vocabulary of a field catalogue, cached. One thread builds it, others that need it wait."""
    return catalogue.memo.get("vocabulary", lambda: _build_vocabulary(catalogue))


def _build_vocabulary(catalogue: FieldCatalogue) -> Vocabulary:
    units = {name: found for name, values in catalogue.fields.items() if (found := date_units_of(values)) is not None}
    catalogue = with_day_ranges(catalogue, units)
    roles = {name: field_role(values) for name, values in catalogue.fields.items()}
    roles |= dict.fromkeys(units, "date")
    roles |= dict.fromkeys(_shared_person_fields(catalogue, roles), "person")
    names, stems = value_names.NameIndex(), value_names.NameIndex()
    own = {lexicon.name_words(name) for name in catalogue.fields}
    own |= {lexicon.name_words(name)[:1] for name, role in roles.items() if role == "number"}
    cues = _cues(catalogue)
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
        if has_chinese(words[0]) and any("kind" in concepts_of(field) for field, _ in known)
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
        _fields_in_english(catalogue),
        {name: concepts_of(name) for name in catalogue.fields},
        {name: _ordinary_share(values) for name, values in catalogue.fields.items()},
        {name: value_names.spelling_variants(values.values) for name, values in catalogue.fields.items()},
        _pinyin_index(catalogue),
        tuple(code for one in chosen["label"] for code in value_names.abbreviation_codes(one, catalogue.fields[one])),
        units,
        tuple(sorted(roles, key=lambda name: (-catalogue.fields[name].documents, name))),
        _fuzzy_index(names, chosen["person"]),
        _fuzzy_index(names, chosen["label"] | chosen["tag"], chosen["person"]),
    )


def _has_language(catalogue: FieldCatalogue, roles: Mapping[str, FieldRole]) -> bool:
    """Return whether a collection has a language field of its own with more than one value."""
    own = {name for name, role in roles.items() if role == "language" or "language" in concepts_of(name)}
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
    plain = [all(stem(word) in known for word in words_of(value) if word.isascii()) for value in values.values]
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
    of_place = lexicon.place_names().get(words, ()) if value[:1].isupper() else ()  # not "turkey", a bird
    return [words_of(name) for name in (*found, *of_place)]


@lru_cache(maxsize=1)
def _bilingual_by_stem() -> dict[str, tuple[str, ...]]:
    """Return the other names of `lexicon.bilingual_synonyms`, by the stems of the English phrase."""
    found: dict[str, tuple[str, ...]] = {}
    for phrase, chinese in lexicon.bilingual_synonyms().items():
        key = " ".join(stem(word) for word in words_of(phrase))
        found[key] = (*found.get(key, ()), *chinese)
    return found


def _fields_in_english(catalogue: FieldCatalogue) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name in catalogue.fields:
        for word in lexicon.name_words(name):
            if word.isascii() and len(word) > 3 and word not in _GENERIC_WORDS:
                found.setdefault(stem(word), []).append(name)
    return {word: tuple(names) for word, names in found.items()}


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


_SHORTEST_VERB = 2
_GENERIC_WORDS = frozenset("name type date number count code value status kind level group public language".split())
_AGENT = re.compile(r"(?<=\w{3})(?:ers?|ors?)$")


def agent_verb(agent: str) -> str:
    """Return what the person of a field did, "inspected" for `inspector`; "" if the word names nobody who acts."""
    return _AGENT.sub("ed", agent) if _AGENT.search(agent) else ""


def _cues(catalogue: FieldCatalogue) -> dict[tuple[str, ...], tuple[str, ...]]:
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
