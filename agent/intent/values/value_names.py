"""Names of values: the words by which a question can mean a value, and how closely they match it.

`vocabulary.build_vocabulary` makes the names once for each state of the field catalogue.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain

from agent.intent.language import lexicon
from agent.intent.language.numerals import ENGLISH_NUMERALS, in_chinese
from agent.intent.language.text import has_chinese, stem, words_of
from agent.intent.values import account_names
from agent.intent.values.account_names import EMAIL, SEPARATORS
from agent.intent.values.numeric_codes import numeric_code_names
from agent.intent.values.person_names import (
    SURNAME_FIRST,
    is_rare_word,
    is_surname_first,
    person_name_parts,
    without_titles,
)
from agent.intent.values.value_match import ValueMatch
from agent.intent.words import word_table
from retrievers.core.types import FieldValues

_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"})  # as typed without umlauts
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[a-z]+|\d+")
_PATH = re.compile(r"::|/")
_LONG_NUMBER = re.compile(r"\d{3,}")
"""A number that still names a value without its first word: 4100 for CC-4100; a shorter one may be a count."""
_LETTERED = re.compile(r"[^\W\d_]")
_SIGNED = re.compile(r"^\D?\d[\d.,]*\D?$(?<!\d)")
_NUMBERED_ZH = re.compile(r"([1-9])([\u4e00-\u9fff]+)")
_LATIN = r"[A-Za-z][A-Za-z0-9 .,&'’-]*[A-Za-z0-9]"
_CHINESE = r"[\u4e00-\u9fff·]{2,}"
_BILINGUAL = re.compile(rf"({_CHINESE})[\s/|(（-]+({_LATIN})[)）]?|({_LATIN})[\s/|(（-]+({_CHINESE})[)）]?")
_AND = ("und", "et", "y")
_LONGEST_NAME = 12
LONGEST_VALUE = 80
"""Maximum characters of a value that questions can name."""
_LEAST_SHARED = 0.75
"""Minimum share of values that begin or end with a word, at which questions may leave it out of their names."""
_FAR_COMMONER = 4
_MOST_OF_ONE_NAME = 5
VARIANT_MARKS = "*+"
"""Marks at the end of a value that distinguish it from another: grade II* from grade II."""
_SHORT_CHINESE = 2
"""Minimum characters at the beginning of a Chinese label that can stand for it."""
_LONG_CHINESE = 4
"""Minimum characters at the beginning of a Chinese value that can stand for it."""
_SHORTEST_PLURAL = 3
LONGEST_CODE = 5


class NameIndex(dict[tuple[str, ...], dict[tuple[str, str], ValueMatch]]):
    """Values by their names: {words of a name: {(field, value): match}}. The first match of a value is kept."""

    def add(self, words: tuple[str, ...], known: ValueMatch) -> None:
        """Add `words` as a name of the value `known`, unless there are none or more than 12."""
        if words and len(words) <= _LONGEST_NAME:
            self.setdefault(words, {}).setdefault((known.field, known.value), known)

    def by_words(self) -> dict[tuple[str, ...], tuple[ValueMatch, ...]]:
        return {words: tuple(known.values()) for words, known in self.items()}


def boolean_texts(values: FieldValues) -> dict[bool, str] | None:
    """Return the texts of a field's values for true and false if it has exactly these two values; else None."""
    if values.field.item == "number":
        both = values.distinct == 2 and (values.low, values.high) == (0, 1)
        return {True: "1", False: "0"} if both else None
    found: dict[bool, str] = {}
    for value in values.values:
        said = next((one for one in (True, False) if value.casefold() in boolean_words()[one]), None)
        if said is None or said in found:
            return None
        found[said] = value
    return found if len(found) == 2 else None


@cache
def boolean_words() -> Mapping[bool, frozenset[str]]:
    """Return the words that stand for true and false as values."""
    made = {True: "yes", False: "no"}
    return {
        one: frozenset(word for code in ("en", "zh") for word in word_table("link", code)["truth"][name].split())
        for one, name in made.items()
    }


def add_exact_names(
    name: str, role: str, values: FieldValues, names: NameIndex, stems: NameIndex, fields: set[tuple[str, ...]]
) -> None:
    """Add to `names` and `stems` the values as written, their declared aliases, and inflections of both ("reports").

    Args:
        name, role, values: the field, what it holds ("label", "person") and its values.
        names, stems: receive the names, by their words and by the stems of their words.
        fields: the names of fields, as words: "per severity" means the field, not documents tagged "severity".
    """
    for said, value, documents in numeric_code_names(values.values, is_list=values.field.type == "list"):
        names.add((said,), ValueMatch(name, value, "exact" if said == value else "form", documents))
    for value, documents in values.values.items():
        if not _is_nameable(value, role):
            continue
        words = words_of(value)
        if role == "tag" and words in fields:
            continue
        names.add(words, ValueMatch(name, value, "exact", documents))
        if not value.isascii():
            names.add(words_of(value.translate(_UMLAUTS)), ValueMatch(name, value, "exact", documents))
        if role == "label":
            stems.add(tuple(map(stem, words)), ValueMatch(name, value, "stem", documents))
            if len(value) > 2 and value[0] in "已被" and has_chinese(value):
                # 已经废止 for 已废止: "repealed"
                names.add(words_of(value[1:]), ValueMatch(name, value, "stem", documents))
        elif role == "tag" and words:
            # Stems of a tag may be verbs of a topic ("type" for typing), but its plural is still the tag.
            names.add((*words[:-1], words[-1] + "s"), ValueMatch(name, value, "stem", documents))
    for alias, value in values.aliases.items():
        if value in values.values:
            names.add(words_of(alias), ValueMatch(name, value, "alias", values.values[value]))
            if role == "label":
                stems.add(tuple(map(stem, words_of(alias))), ValueMatch(name, value, "stem", values.values[value]))


def add_variant_names(
    name: str, role: str, values: FieldValues, names: NameIndex, stems: NameIndex, cues: Container[tuple[str, ...]]
) -> None:
    """Add looser names of a field's values: without words that most values share, in another form, or a part of it.

    Args:
        name, role, values, names, stems: see `add_exact_names`. A name may stand for several values.
        cues: words that point at fields, and therefore at no value.
    """
    held = {value: documents for value, documents in values.values.items() if _is_nameable(value, role)}
    for words, known in (*_short_names(name, held), *_other_forms(name, held)):
        if known.kind == "code" and role not in ("label", "tag"):
            continue
        names.add(words, known)
        if role in ("label", "tag"):
            stems.add(tuple(map(stem, words)), known)
    if role != "version":
        _add_parts(name, role, held, names, stems, cues)


def _add_parts(
    name: str, role: str, held: Mapping[str, int], names: NameIndex, stems: NameIndex, cues: Container[tuple[str, ...]]
) -> None:
    """Add parts of the values in `held`, such as surnames, and names of groups of values; see `add_variant_names`."""
    letters = {value: len("".join(words_of(value))) for value in held}
    ends = {value: words_of(_PATH.split(value)[-1]) for value in held}
    if role == "person":
        owned = _values_by_part((part, value) for value in held for part in person_name_parts(value))
    else:
        inner = _inner_parts(held) if role in ("label", "tag") else ()
        parts = _values_by_part(chain(_leading_parts(held), inner, account_names.account_name_parts(held)))
        owned = {part: owners for part, owners in parts.items() if len(owners) == 1}
    for words, owners in owned.items():
        # A surname may also name a field; `person_mentions` then asks for more signs of a person.
        if (words in cues and role != "person") or (len(words) == 1 and words[0] in _empty_words()):
            continue
        for value in _likely_values(owners, held):
            share = len("".join(words)) / max(letters[value], 1)
            known = ValueMatch(name, value, "part", held[value], round(min(share, 1.0), 2))
            names.add(words, known)
            if role in ("label", "tag") and words == ends[value]:
                stems.add(tuple(map(stem, words)), known)  # "events" for type::event
            elif role in ("label", "tag") and len(words[-1]) >= _SHORTEST_PLURAL:
                names.add((*words[:-1], f"{words[-1]}s"), known)  # "bugs" for bug-report; a stem might be a verb
    if role in ("label", "tag"):
        owned = {words: owners for words, owners in parts.items() if _is_shared_name(words, owners, held)}
    for words, group in _group_names(role, held, owned):
        if words in cues or (*words[:-1], words[-1].removesuffix("s")) in cues:
            continue  # "bridges" are the values of the field `bridge`, not those whose name ends in Bridge
        for value in group:
            names.add(words, ValueMatch(name, value, "group", held[value]))


@cache
def _empty_words() -> frozenset[str]:
    """Return words that name nothing by themselves: "non" of "non-contact", "one" of "one-to-one"."""
    return lexicon.STOP_WORDS.union(word_table("negation", "en")["prefix"], ENGLISH_NUMERALS)


def _group_names(
    role: str, held: Mapping[str, int], owned: Mapping[tuple[str, ...], list[str]]
) -> Iterator[tuple[tuple[str, ...], Iterable[str]]]:
    """Yield (words, values) for names of several values.

    Such a name is the domain of addresses, a surname in the plural ("Millers"), or words that labels share.
    `owned` maps surnames or shared words to the values.
    """
    domains: dict[str, list[str]] = {}
    for value in held if role == "person" else ():
        if account_names.is_email(value):
            domains.setdefault(value.rpartition("@")[2].split(".")[0].casefold(), []).append(value)
    if len(domains) > 1:
        yield from (((domain,), values) for domain, values in domains.items())
    if role == "person":
        yield from (((*words[:-1], f"{words[-1]}s"), values) for words, values in owned.items() if len(values) > 1)
    elif role in ("label", "tag"):
        yield from owned.items()


def _is_shared_name(words: tuple[str, ...], owners: Sequence[str], held: Mapping[str, int]) -> bool:
    """Return whether a word begins several values, but not most: "Aqualis" of Aqualis North and Aqualis South."""
    begins = len(words) == 1 and is_rare_word(words[0]) and all(words_of(value)[:1] == words for value in owners)
    return begins and 1 < len(owners) <= min(_MOST_OF_ONE_NAME, len(held) / 2)


def _is_nameable(value: str, role: str) -> bool:
    """Return whether a value can be named: it has letters or is a version, or a label such as "10%"; no bare number."""
    is_name = role == "version" or _LETTERED.search(value) is not None or (role == "label" and _SIGNED.search(value))
    return bool(is_name) and len(value) <= LONGEST_VALUE and "://" not in value


def _short_names(name: str, held: Mapping[str, int]) -> Iterator[tuple[tuple[str, ...], ValueMatch]]:
    """Yield (words, value) for shorter names: "payments" if most values begin with team-, "Roe" for "Roe Ltd"."""
    by_words = {value: _split(value) for value in held}
    several = [words for words in by_words.values() if len(words) > 1]
    for end in (0, -1):
        counts = Counter(words[end] for words in several)
        common = {word for word, count in counts.items() if count >= max(_LEAST_SHARED * len(held), 3)}
        for value, words in by_words.items():
            if len(words) > 1 and words[end] in common:
                kept = words[1:] if end == 0 else words[:-1]
                is_denial = "".join(kept) in ("外", "非", "无", "未")  # 外 of 外科 also means "except"
                if not is_denial and (_LETTERED.search("".join(kept)) or _LONG_NUMBER.fullmatch("".join(kept))):
                    yield words_of(" ".join(kept)), ValueMatch(name, value, "short", held[value], 0.9)
    for value in held:
        words = words_of(value)
        kept = words if is_surname_first(value) else _without_legal_form(words)
        for other in (kept if kept != words else (), *map(words_of, _scripts_of(value))):
            if other:
                yield other, ValueMatch(name, value, "short", held[value], 0.9)


def _scripts_of(value: str) -> tuple[str, ...]:
    """Return both names of a value that has one in Chinese and one in Latin script: 翡翠湾 and "Jade Bay".

    A single ordinary word is left out, because it only translates the other name: "North" in 北方 North.
    """
    found = _BILINGUAL.fullmatch(value)
    names = tuple(filter(None, found.groups())) if found is not None else ()
    return tuple(one for one in names if len(words_of(one)) > 1 or one.isupper() or is_rare_word(one.casefold()))


def _without_legal_form(words: tuple[str, ...]) -> tuple[str, ...]:
    legal = frozenset(word_table("link", "en")["legal_forms"].split())
    while len(words) > 1 and (words[-1] in legal or (len(words) > 2 and len(words[-1]) == 1 and words[-1].isascii())):
        words = words[:-1]
    return words


def nameable(values: Iterable[str]) -> list[str]:
    """Return the values that are short enough to be named. Splitting texts into words would take long."""
    return [value for value in values if len(value) <= LONGEST_VALUE]


def spelling_variants(values: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Map each value that has other spellings to all of them: "Müller, K." to itself and "Mueller, K."."""
    alike: dict[str, list[str]] = {}
    for value in nameable(values):
        plain = value.translate(_UMLAUTS)
        words = words_of(plain) if is_surname_first(value) else _without_legal_form(words_of(plain))
        alike.setdefault("".join(words) + value[len(value.rstrip(VARIANT_MARKS)) :], []).append(value)
    return {value: tuple(same) for same in alike.values() if len(same) > 1 for value in same}


def shared_words(held: Iterable[str]) -> set[str]:
    """Return the words with which nearly all values begin or end; they say what the field is."""
    several = [words for words in map(_split, nameable(held)) if len(words) > 1]
    total = len(several)
    counts = Counter(word for words in several for word in {words[0], words[-1]})
    return {word for word, count in counts.items() if total > 2 and count >= _LEAST_SHARED * total and len(word) > 1}


def _split(value: str) -> tuple[str, ...]:
    """Return the words of a value; for a Chinese one of 4 to 12 letters, the last two of them and those before.

    The last two often say what it names: 北京大学 ("Peking University") -> 北京, 大学.
    """
    if has_chinese(value) and value.isalpha() and not value.isascii() and 4 <= len(value) <= _LONGEST_NAME:
        return value[:-2], value[-2:]
    return words_of(value)


def _other_forms(name: str, held: Mapping[str, int]) -> Iterator[tuple[tuple[str, ...], ValueMatch]]:
    """Yield (words, value) for other forms: "human error" of HumanError, "J. Lee" of "Lee, J." or j.lee@x.io."""
    for value, documents in held.items():
        known = ValueMatch(name, value, "form", documents)
        if value.isascii() and value.isalnum() and len(parts := _CAMEL.findall(value)) > 1 and value != value.upper():
            yield tuple(part.casefold() for part in parts), known
        mail = EMAIL.fullmatch(value)
        if mail is not None:
            local = words_of(SEPARATORS.sub(" ", mail["local"]))
            yield local, known
            yield ("".join(local),), known
        if account_names.is_account_name(value) and len(both := words_of(SEPARATORS.sub(" ", value.lstrip("@")))) > 1:
            yield both, known
        surname = SURNAME_FIRST.fullmatch(value)
        if surname is not None:
            yield (*words_of(surname["initials"]), *words_of(surname["name"])), known
            if len(own := words_of(surname["name"])) > 1 and len(own[0]) == 1:
                yield ("".join(own),), known  # "ODowd" for "O'Dowd, B."
        if (numbered := _NUMBERED_ZH.fullmatch(value)) is not None:
            yield words_of(in_chinese(int(numbered[1])) + numbered[2]), known  # 三号线 for 3号线 ("line three")
        path = _PATH.split(value)
        if len(path) == 2:
            yield (*words_of(path[1]), *words_of(path[0])), known  # committee/garden is the garden committee
        words = words_of(value)
        if (plain := without_titles(words)) != words:
            yield plain, known
        initials = "".join(word[0] for word in words if word not in lexicon.STOP_WORDS)
        if (
            value.isascii()
            and value[:1].isupper()
            and 2 <= len(initials) <= LONGEST_CODE
            and not is_surname_first(value)
        ):
            yield (initials,), ValueMatch(name, value, "code", documents)  # IT is Information Technology
        if "and" in words[1:-1]:
            yield tuple(word for word in words if word != "and"), known
            for other in _AND:
                yield tuple(other if word == "and" else word for word in words), known


def _leading_parts(held: Mapping[str, int]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (words, value) for the first words of a name, "Quillsoft" of "Quillsoft Inc.", and the last part of a path.

    A value in one word is split at its capitals: "marine" for MarineSystems. A Chinese value can be named by its
    beginning: 江城交响 ("Jiangcheng Symphony") for 江城交响乐团 ("... Orchestra").
    """
    for value in held:
        words = words_of(value)
        if has_chinese(value):
            yield from ((words[:size], value) for size in range(_LONG_CHINESE, min(len(words), _LONGEST_NAME + 1)))
            continue
        if len(words) == 1 and value != value.upper():
            words = tuple(map(str.casefold, _CAMEL.findall(value)))
        for size in range(1, min(len(words), _LONGEST_NAME + 1)):
            yield words[:size], value
        if len(words) > 1 and ("/" in value or "::" in value):
            yield words[-1:], value


def _inner_parts(held: Iterable[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (words, value) for words inside a name, "trout" of rainbow trout, or for beginnings of a Chinese name."""
    for value in held:
        words = words_of(value)
        if has_chinese(value):
            # The end of a Chinese name says what kind of thing it is; in a question it means all of the kind.
            yield from ((words[:end], value) for end in range(_SHORT_CHINESE, min(len(words), _LONGEST_NAME + 1)))
            continue
        if len(words) == 1 and value != value.upper():
            words = tuple(map(str.casefold, _CAMEL.findall(value)))
        for word in words[1:] if len(words) > 1 else ():
            is_general = word in lexicon.STOP_WORDS or word in lexicon.DOCUMENT_NOUNS
            if len(word) >= _SHORTEST_PLURAL and word.isalpha() and not is_general:
                yield (word,), value


def _values_by_part(parts: Iterable[tuple[tuple[str, ...], str]]) -> dict[tuple[str, ...], list[str]]:
    found: dict[tuple[str, ...], list[str]] = {}
    for part, value in parts:
        if part and len("".join(part)) > 1 and value not in found.setdefault(part, []):
            found[part].append(value)
    return found


def _likely_values(owners: list[str], held: Mapping[str, int]) -> list[str]:
    """Return which of `owners` a name means: the one with 4 times the documents of any other, else the 5 commonest."""
    if len(owners) == 1:
        return owners
    ordered = sorted(owners, key=lambda value: (-held[value], value))
    if held[ordered[0]] >= _FAR_COMMONER * held[ordered[1]]:
        return ordered[:1]
    return ordered[:_MOST_OF_ONE_NAME]
