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


MOST_GLOSSED = 3
"""Words of an English value that a dictionary is asked for."""
_ROOT = 5


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
        fields_in_english: fields by the stem of an English word of their name.
        english: labels and tags of one to three English words by `english_key`, for a dictionary to reach them.
    """

    catalogue: FieldCatalogue
    roles: Mapping[str, Role]
    names: Mapping[tuple[str, ...], tuple[Known, ...]]
    stems: Mapping[tuple[str, ...], tuple[Known, ...]]
    cues: Mapping[tuple[str, ...], tuple[str, ...]]
    longest: int
    english: Mapping[tuple[str, ...], tuple[Known, ...]]
    kinds: tuple[str, ...]
    fields_in_english: Mapping[str, tuple[str, ...]]
    _people: _Fuzzy = field(default=((), ()))
    _labels: _Fuzzy = field(default=((), ()))

    def of_role(self, *roles: Role) -> tuple[str, ...]:
        """The fields of these roles, those of most documents first."""
        found = [name for name, role in self.roles.items() if role in roles]
        return tuple(sorted(found, key=lambda name: (-self.catalogue.fields[name].documents, name)))

    def comparisons(self, words: Sequence[str], *, person: bool) -> int:
        """How many names `similar` compares with a misspelt one."""
        text = " ".join(words)
        if len(text) < _LEAST_FUZZY_CHARACTERS or has_chinese(text):
            return 0
        return len((self._people if person else self._labels)[0])

    def similar(self, words: Sequence[str], *, person: bool) -> tuple[Known, ...]:
        """The one name that a misspelt one must mean: close enough, and clearly closer than any other."""
        text = " ".join(words)
        choices, known = self._people if person else self._labels
        if not self.comparisons(words, person=person):
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
    people = sum(looks_like_name(text) for text in texts)
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


@lru_cache(maxsize=4096)
def concepts_of(name: str) -> frozenset[str]:
    """The general concepts that a field's name belongs to."""
    words = {stem(word) for word in lexicon.name_words(name)} | set(lexicon.name_words(name))
    return frozenset(concept for concept, (names, _) in lexicon.CONCEPTS.items() if words & {*names, *map(stem, names)})


def looks_like_name(text: str) -> bool:
    if _CHINESE_NAME.fullmatch(text):
        return True
    parts = text.split()
    capital = sum(part[:1].isupper() for part in parts)
    return _NAME.fullmatch(text) is not None and capital >= 2 and not any(c.isdigit() for c in text)


def build(catalogue: FieldCatalogue) -> Vocabulary:
    """The vocabulary of a field catalogue; kept for the next question."""
    return _built(_Key(catalogue))


class _Key:
    """A catalogue as a key: one object, never one of another database that happens to have equal numbers."""

    def __init__(self, catalogue: FieldCatalogue) -> None:
        self.catalogue = catalogue

    def __hash__(self) -> int:
        return id(self.catalogue)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.catalogue is other.catalogue


@lru_cache(maxsize=256)
def _built(key: _Key) -> Vocabulary:
    catalogue = key.catalogue
    roles = {name: role_of(values) for name, values in catalogue.fields.items()}
    names, stems = _Names(), _Names()
    own = {lexicon.name_words(name) for name in catalogue.fields}
    own |= {lexicon.name_words(name)[:1] for name, role in roles.items() if role == "number"}
    # Earlier names of a value win: as it is written, its aliases, and only then what general words make of it.
    for name, values in catalogue.fields.items():
        if _is_named(roles[name], values, catalogue.documents):
            _add_own_names(name, roles[name], values, names, stems, own)
    for name, values in catalogue.fields.items():
        _add_general_names(name, roles[name], values, names, own)
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
        _cues(catalogue),
        max((len(words) for words in (*names, *stems)), default=1),
        _english(names, chosen["label"] | chosen["tag"]),
        tuple(kinds),
        _fields_in_english(catalogue),
        _misspellable(names, chosen["person"]),
        _misspellable(names, chosen["label"]),
    )


class _Names(dict[tuple[str, ...], dict[tuple[str, str], Known]]):
    """Values by their names, and under each name by field and value; the first way to a value is kept."""

    def add(self, words: tuple[str, ...], known: Known) -> None:
        if words and len(words) <= _LONGEST:
            self.setdefault(words, {}).setdefault((known.field, known.value), known)

    def by_words(self) -> dict[tuple[str, ...], tuple[Known, ...]]:
        return {words: tuple(known.values()) for words, known in self.items()}


def _is_named(role: Role, values: FieldValues, documents: int) -> bool:
    """Whether questions name values of a field: a label that every document carries tells nothing apart.

    Args:
        documents: how many there are.
    """
    same = role == "label" and values.distinct < 2 and values.documents >= documents
    return role not in ("number", "date", "boolean", "text") and not same


def _add_own_names(
    name: str, role: Role, values: FieldValues, names: _Names, stems: _Names, fields: set[tuple[str, ...]]
) -> None:
    """Values as they are written, and the aliases that the collection declares.

    Args:
        fields: the names of fields, in words; of numbers also without the unit.
    """
    for value, documents in values.values.items():
        words = words_of(value)
        if role == "tag" and words in fields:
            continue  # "per severity" means the field, not the few documents that are tagged with its name
        names.add(words, Known(name, value, "exact", documents))
        if not value.isascii():
            names.add(words_of(value.translate(_UMLAUTS)), Known(name, value, "exact", documents))
        if role == "label":
            stems.add(tuple(map(stem, words)), Known(name, value, "stem", documents))
            if len(value) > 2 and value[0] in "已被" and has_chinese(value):
                names.add(words_of(value[1:]), Known(name, value, "stem", documents))  # 已经废止 of 已废止
        elif role == "tag" and words:
            # A tag's verb is a topic ("type", "package"), its plural is still the tag.
            names.add((*words[:-1], words[-1] + "s"), Known(name, value, "stem", documents))
    for alias, value in values.aliases.items():
        if value in values.values:
            names.add(words_of(alias), Known(name, value, "alias", values.values[value]))
            if role == "label":
                stems.add(tuple(map(stem, words_of(alias))), Known(name, value, "stem", values.values[value]))


def _add_general_names(name: str, role: Role, values: FieldValues, names: _Names, fields: set[tuple[str, ...]]) -> None:
    """Names by general words: translations, names of languages, parts of people's names."""
    if role in ("label", "tag"):
        for value, documents in values.values.items():
            if role == "tag" and words_of(value) in fields:
                continue
            for words in _translations(value):
                names.add(words, Known(name, value, "translated", documents))
    elif role == "language":
        for value, documents in values.values.items():
            for word in lexicon.LANGUAGES.get(value, ()):
                names.add(words_of(word), Known(name, value, "alias", documents))
    elif role == "person":
        for words, known in _parts(name, values.values):
            names.add(words, known)


def _english(names: _Names, fields: set[str]) -> dict[tuple[str, ...], tuple[Known, ...]]:
    """Labels and tags of a few English words by the stems of these: "and", "of" and the like count for nothing."""
    found: dict[tuple[str, ...], list[Known]] = {}
    for words, known in names.items():
        given = [one for one in known.values() if one.field in fields and one.how == "exact"]
        plain = [word for word in words if word not in lexicon.STOP_WORDS]
        if given and 1 <= len(plain) <= MOST_GLOSSED and all(word.isascii() and len(word) > 3 for word in plain):
            found.setdefault(english_key(plain), []).extend(given)
    return {key: tuple(known) for key, known in found.items()}


def english_key(words: Sequence[str]) -> tuple[str, ...]:
    """What words that say the same have in common: the stem of one; of several the roots, in any order.

    Whoever translates word by word says "to demolish" for a demolition, and puts a notice of violation the other way
    round; with two words that agree it is hardly another thing.
    """
    return (stem(words[0]),) if len(words) == 1 else tuple(sorted(stem(word)[:_ROOT] for word in words))


def _misspellable(names: _Names, fields: set[str]) -> _Fuzzy:
    """Names long enough that a slip in them can be told, with what they mean."""
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
    """The other names of `lexicon.bilingual` by the stems of the English phrase."""
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


def _fields_in_english(catalogue: FieldCatalogue) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name in catalogue.fields:
        for word in lexicon.name_words(name):
            if word.isascii() and len(word) > 3 and word not in _SAYING_LITTLE:
                found.setdefault(stem(word), []).append(name)
    return {word: tuple(names) for word, names in found.items()}


_SAYING_LITTLE = frozenset("name type date number count code value status kind level group public language".split())
_AGENT = re.compile(r"(?<=\w{3})(?:ers?|ors?)$")


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
    for name in catalogue.fields:
        # Whoever is the inspector has inspected; where the verb is a field's own already, as in "created", it stays.
        deed = _AGENT.sub("ed", " ".join(lexicon.name_words(name)))
        if deed.endswith("ed") and " " not in deed and (deed,) not in cues and (stem(deed),) not in cues:
            cues[deed,] = [name]
    return {cue: tuple(dict.fromkeys(names)) for cue, names in cues.items() if cue}
