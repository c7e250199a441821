"""The words by which a question can name what a collection holds: values, other names of them, fields.

Built once per state of the field catalogue; a question is then only looked up in it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from rapidfuzz import fuzz, process

from agent.intent import lexicon
from agent.intent.text import has_chinese, stem, words_of
from retrievers.core.types import FieldCatalogue, FieldValues

Role = Literal["person", "label", "tag", "version", "number", "date", "boolean", "language", "text"]
How = Literal["exact", "alias", "stem", "part", "translated", "fuzzy"]

_COMPANIES = frozenset(
    """
    llc inc ltd gmbh corp co company authority district church restaurant construction university school college
    institute department group bank agency association society foundation council committee brewing brewery
    hotel hospital clinic homes systems services technologies industries partners trust team board office union
    club center centre
    """.split()
)
PEOPLE = frozenset({"person", "sponsor", "reviewer"})
_VERSION = re.compile(r"v?\d+(?:\.\d+){1,3}(?:[a-z]+\d*)?")
_NAME = re.compile(r"(?:[^\W\d_][\w.'’-]*\s+){1,4}[^\W\d_][\w.'’-]*")
_CHINESE_NAME = re.compile(r"[\u4e00-\u9fff]{2,4}(?:·[\u4e00-\u9fff]+)*")
# How German names are typed where there are no umlauts.
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"})
_MOST_LABELS = 200
_LONGEST = 12
_FUZZY_CUTOFF = 89
_FUZZY_MARGIN = 4
_LEAST_FUZZY_CHARACTERS = 6
# How sure a mention is of meaning the value.
CONFIDENCE: Mapping[How, float] = {
    "exact": 1.0,
    "alias": 0.97,
    "stem": 0.9,
    "translated": 0.85,
    "part": 0.8,
    "fuzzy": 0.75,
}


_Fuzzy = tuple[tuple[str, ...], tuple[tuple["Known", ...], ...]]


@dataclass(frozen=True, slots=True)
class Known:
    """A value of a field by one of its names."""

    field: str
    value: str
    how: How
    documents: int = 0


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Names of values and fields, by their tokens.

    Attributes:
        roles: what kind of thing each field holds.
        names: values by the tokens of a name of theirs.
        stems: values of labels and tags by the stems of their names.
        cues: words that point at a field.
        longest: most tokens of a name.
        kinds: Chinese names of kinds of documents.
        english: labels and tags of one English word by its stem, for a dictionary to reach them.
    """

    catalogue: FieldCatalogue
    roles: Mapping[str, Role]
    names: Mapping[tuple[str, ...], tuple[Known, ...]]
    stems: Mapping[tuple[str, ...], tuple[Known, ...]]
    cues: Mapping[tuple[str, ...], tuple[str, ...]]
    longest: int
    english: Mapping[str, tuple[Known, ...]]
    kinds: tuple[str, ...]
    _people: _Fuzzy = field(default=((), ()))
    _labels: _Fuzzy = field(default=((), ()))

    def of_role(self, *roles: Role) -> tuple[str, ...]:
        """The fields of these roles, those of most documents first."""
        found = [name for name, role in self.roles.items() if role in roles]
        return tuple(sorted(found, key=lambda name: (-self.catalogue.fields[name].documents, name)))

    def similar(self, words: Sequence[str], *, person: bool) -> tuple[Known, ...]:
        """The one name that a misspelt one must mean: close enough, and clearly closer than any other."""
        text = " ".join(words)
        choices, known = self._people if person else self._labels
        if len(text) < _LEAST_FUZZY_CHARACTERS or has_chinese(text):
            return ()
        best = process.extract(text, choices, scorer=fuzz.ratio, score_cutoff=_FUZZY_CUTOFF - _FUZZY_MARGIN, limit=2)
        if not best or best[0][1] < _FUZZY_CUTOFF or best[0][0][:1] != text[:1]:
            return ()
        if len(best) > 1 and best[0][1] - best[1][1] < _FUZZY_MARGIN:
            return ()
        return tuple(Known(one.field, one.value, "fuzzy", one.documents) for one in known[best[0][2]])


def role_of(values: FieldValues) -> Role:
    """What a field holds, judged by its name and values."""
    one = values.field
    if one.name == "language":
        return "language"
    if one.item in ("number", "date", "boolean"):
        return one.item
    texts = list(values.values)
    if texts and sum(_VERSION.fullmatch(text.strip()) is not None for text in texts) > 0.6 * len(texts):
        return "version"
    named = bool(PEOPLE & concepts_of(one.name))
    people = sum(_looks_like_name(text) for text in texts)
    if texts and (
        (named and people >= 0.5 * len(texts)) or (not concepts_of(one.name) and people >= 0.8 * len(texts) > 4)
    ):
        return "person"
    if one.name in ("id", "title") or any(len(text) > 80 for text in texts):
        return "text"
    if one.type == "list":
        return "tag"
    repeated = values.distinct * 2 <= max(values.documents, 1) or values.distinct <= 12
    return "label" if values.distinct <= _MOST_LABELS and repeated else "text"


def concepts_of(name: str) -> set[str]:
    """The general concepts that a field's name belongs to."""
    words = {stem(word) for word in lexicon.name_words(name)} | set(lexicon.name_words(name))
    return {concept for concept, (names, _) in lexicon.CONCEPTS.items() if words & {*names, *map(stem, names)}}


def _looks_like_name(text: str) -> bool:
    if _CHINESE_NAME.fullmatch(text):
        return True
    parts = text.split()
    capital = sum(part[:1].isupper() for part in parts)
    return _NAME.fullmatch(text) is not None and capital >= 2 and not any(c.isdigit() for c in text)


def build(catalogue: FieldCatalogue) -> Vocabulary:
    """The vocabulary of a field catalogue; kept for the next question."""
    return _built(_Key(catalogue))


class _Key:
    """A catalogue as a key: two with the same key hold the same."""

    def __init__(self, catalogue: FieldCatalogue) -> None:
        self.catalogue = catalogue

    def __hash__(self) -> int:
        return hash(self.catalogue.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and (
            self.catalogue is other.catalogue
            or (self.catalogue.key == other.catalogue.key and self.catalogue.documents == other.catalogue.documents)
        )


@lru_cache(maxsize=256)
def _built(key: _Key) -> Vocabulary:
    catalogue = key.catalogue
    roles = {name: role_of(values) for name, values in catalogue.fields.items()}
    names: dict[tuple[str, ...], dict[tuple[str, str], Known]] = {}
    stems: dict[tuple[str, ...], dict[tuple[str, str], Known]] = {}

    def add(words: tuple[str, ...], known: Known, into: dict[tuple[str, ...], dict[tuple[str, str], Known]]) -> None:
        if words and len(words) <= _LONGEST:
            into.setdefault(words, {}).setdefault((known.field, known.value), known)

    own_names = {tuple(lexicon.name_words(name)) for name in catalogue.fields}
    for name, values in catalogue.fields.items():
        # A label that every document carries tells nothing apart.
        if roles[name] in ("number", "date", "boolean", "text") or (roles[name] == "label" and values.distinct < 2):
            continue
        for value, documents in values.values.items():
            words = words_of(value)
            if roles[name] == "tag" and words in own_names:
                continue  # "per severity" means the field, not the few documents that are tagged with its name
            add(words, Known(name, value, "exact", documents), names)
            if not value.isascii():
                add(words_of(value.translate(_UMLAUTS)), Known(name, value, "exact", documents), names)
            if roles[name] == "label":
                add(tuple(map(stem, words)), Known(name, value, "stem", documents), stems)
            elif roles[name] == "tag":
                # A tag's verb is a topic ("type", "package"), its plural is still the tag.
                add((*words[:-1], words[-1] + "s") if words else (), Known(name, value, "stem", documents), names)
        for alias, value in values.aliases.items():
            if value in values.values:
                add(words_of(alias), Known(name, value, "alias", values.values[value]), names)
    for name, values in catalogue.fields.items():
        if roles[name] in ("label", "tag"):
            for value, documents in values.values.items():
                for words in _translations(value):
                    add(words, Known(name, value, "translated", documents), names)
        elif roles[name] == "language":
            for value, documents in values.values.items():
                for word in lexicon.LANGUAGES.get(value, ()):
                    add(words_of(word), Known(name, value, "alias", documents), names)
        elif roles[name] == "person":
            for words, known in _parts(name, values.values):
                add(words, known, names)
    return Vocabulary(
        catalogue,
        roles,
        {words: tuple(known.values()) for words, known in names.items()},
        {words: tuple(known.values()) for words, known in stems.items()},
        _cues(catalogue),
        max((len(words) for words in (*names, *stems)), default=1),
        _english(names, {name for name, role in roles.items() if role in ("label", "tag")}),
        tuple(
            "".join(words)
            for words, known in names.items()
            if has_chinese(words[0]) and any("kind" in concepts_of(one) for one, _ in known)
        ),
        _misspellable(names, {name for name, role in roles.items() if role == "person"}),
        _misspellable(names, {name for name, role in roles.items() if role == "label"}),
    )


def _english(
    names: Mapping[tuple[str, ...], Mapping[tuple[str, str], Known]], fields: set[str]
) -> dict[str, tuple[Known, ...]]:
    found: dict[str, list[Known]] = {}
    for words, known in names.items():
        given = [one for one in known.values() if one.field in fields and one.how == "exact"]
        if len(words) == 1 and given and words[0].isascii() and len(words[0]) > 3:
            found.setdefault(stem(words[0]), []).extend(given)
    return {word: tuple(known) for word, known in found.items()}


def _misspellable(names: Mapping[tuple[str, ...], Mapping[tuple[str, str], Known]], fields: set[str]) -> _Fuzzy:
    found = []
    for words, known in names.items():
        text = " ".join(words)
        given = tuple(one for one in known.values() if one.field in fields and one.how in ("exact", "alias"))
        if given and len(text) >= _LEAST_FUZZY_CHARACTERS and not has_chinese(text):
            found.append((text, given))
    return tuple(text for text, _ in found), tuple(known for _, known in found)


def _translations(value: str) -> Iterable[tuple[str, ...]]:
    """Other names of an English value, by general words: Chinese ones, and English ones of the same meaning."""
    words = " ".join(words_of(value))
    found = lexicon.bilingual().get(words) or _by_stem().get(" ".join(stem(word) for word in words.split()), ())
    return [words_of(name) for name in found]


@lru_cache(maxsize=1)
def _by_stem() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for phrase, chinese in lexicon.bilingual().items():
        key = " ".join(stem(word) for word in words_of(phrase))
        found[key] = (*found.get(key, ()), *chinese)
    return found


def _parts(name: str, values: Mapping[str, int]) -> Iterable[tuple[tuple[str, ...], Known]]:
    """First and last names that stand for one person: of several people, only when one has nearly all documents."""
    owners: dict[tuple[str, ...], dict[str, int]] = {}
    for value, documents in values.items():
        words = words_of(value)
        # Nobody calls a company by one of its words.
        if len(words) < 2 or has_chinese(value) or set(words) & _COMPANIES:
            continue
        parts: list[tuple[str, ...]] = [(word,) for word in dict.fromkeys((words[0], words[-1])) if len(word) > 2]
        # Of a long name often only the beginning is said, or no middle name.
        parts += [words[:2], words[1:], (words[0], words[-1])] if len(words) > 2 else []
        for part in parts:
            owners.setdefault(part, {})[value] = documents
    for part, people in owners.items():
        ordered = sorted(people.items(), key=lambda item: (-item[1], item[0]))
        if len(ordered) == 1 or ordered[0][1] >= 4 * ordered[1][1]:
            yield part, Known(name, ordered[0][0], "part", ordered[0][1])
        else:
            for value, documents in ordered[:5]:
                yield part, Known(name, value, "part", documents)


def _cues(catalogue: FieldCatalogue) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Words that point at a field: those of its name, and general ones for what it is about."""
    cues: dict[tuple[str, ...], list[str]] = {}
    for name in catalogue.fields:
        words = [word for word in lexicon.name_words(name) if len(word) > 1]
        own: list[tuple[str, ...]] = [tuple(words)] if words else []
        own += [(word,) for word in words] + [(stem(word),) for word in words]
        own += [words_of(phrase) for concept in concepts_of(name) for phrase in lexicon.CONCEPTS[concept][1]]
        for chinese in lexicon.bilingual().get(" ".join(words), ()):
            own.append(words_of(chinese))
        for cue in dict.fromkeys(own):
            cues.setdefault(cue, []).append(name)
    return {cue: tuple(dict.fromkeys(names)) for cue, names in cues.items() if cue}
