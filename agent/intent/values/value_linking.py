"""Value linking: find where a question names values of the collection, taking the longest name at each place."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from agent.intent.language import lexicon
from agent.intent.language.text import Token, code_closeness, greeting_end, has_chinese, stem, words_of
from agent.intent.values.account_names import initial_of
from agent.intent.values.chinese_boundaries import without_word_parts
from agent.intent.values.field_words import agent_verb
from agent.intent.values.numeric_codes import fields_named_before, is_range_bound
from agent.intent.values.person_mentions import RARE_WORD, is_person_mention
from agent.intent.values.translated_names import translated_values
from agent.intent.values.value_match import ValueMatch
from agent.intent.values.value_names import VARIANT_MARKS
from agent.intent.values.vocabulary import Vocabulary
from agent.intent.words import word_frequencies

MOST_COMPARISONS = 40_000
"""Maximum number of names that the unknown words of one turn are compared with in all; takes about 10 ms."""
_MOST_INITIALS = 9
"""Maximum words, hyphens included, whose initials are compared with codes."""
_LEAST_SAID = 4
"""Minimum letters of a word that a code may stand for."""
_LETTERS = frozenset("ai")
"""English words that look like an initial."""
_DOTTED = re.compile(r"[^\W\d_][._-][^\W\d_]")
_DOING = frozenset(["did", "does", "do"])
_VERSION = re.compile(r"\d\.\d")
_BREAKS = frozenset(',.;:?!，。；：？！、()（）"“”‘’「」『』《》|/')
_SURNAME_FIRST = re.compile(r"[^\W\d_][^\d,]*,\s*(?P<initial>[^\W\d_])\.?(?:[\s-]*[^\W\d_]\.?){0,3}")
_PLURAL_CODE = re.compile(r"(?<=\d)s$")
_IN_NAMES = frozenset(".,|/:()")
_JOINING = frozenset("-./:@_")


@dataclass(frozen=True, slots=True)
class Mention:
    """A name of values in a question, at tokens [first, last) and characters [start, end); `matches` are the values."""

    first: int
    last: int
    start: int
    end: int
    matches: tuple[ValueMatch, ...]

    def matches_in(self, *fields: str) -> tuple[ValueMatch, ...]:
        """Return the values that the name stands for in these fields."""
        return tuple(one for one in self.matches if one.field in fields)


def find_mentions(
    tokens: Sequence[Token], vocabulary: Vocabulary, more: Sequence[tuple[str, str, int]] = ()
) -> list[Mention]:
    """Return the names of values in a question: not overlapping, in order.

    Args:
        more: (field, value, documents) that were looked up because their field has too many values to keep in memory.
    """
    looked_up = _index_looked_up(more)
    both = {words: (*vocabulary.names.get(words, ()), *known) for words, known in looked_up.items()}
    names = {**vocabulary.names, **both} if both else vocabulary.names
    longest = max((vocabulary.longest, *map(len, looked_up)))
    found: list[Mention] = []
    place = 0
    while place < len(tokens):
        mention = None if _is_suffix(tokens, place) else _longest_mention(tokens, place, names, vocabulary, longest)
        if mention is None:
            place += 1
        else:
            found.append(mention)
            place = mention.last
    found = [one for mention in found if (one := _with_given_name(tokens, mention, vocabulary)) is not None]
    initials = _find_initials(tokens, vocabulary)
    said = _covered_tokens(initials)
    # "low voltage" is LV rather than the priority "low".
    found = [one for one in found if not {*range(one.first, one.last)} <= said] + initials
    found = [_as_written(tokens, one) for one in found]
    for first, last, meant in translated_values(tokens, vocabulary, _covered_tokens(found)):
        found.append(Mention(first, last, tokens[first].start, tokens[last - 1].end, (meant,)))
    found = without_word_parts(tokens, sorted(found, key=lambda mention: mention.first), vocabulary)
    found += _find_misspelt(tokens, vocabulary, _covered_tokens(found))
    found += _find_abbreviated(tokens, vocabulary, _covered_tokens(found))
    greeted = greeting_end(tokens)
    found = [one for one in found if one.last > greeted and not _is_state_of_person(tokens, one, vocabulary)]
    return sorted(found, key=lambda mention: mention.first)


def _as_written(tokens: Sequence[Token], mention: Mention) -> Mention:
    """Return the mention of one word without codes in capitals, if the word in small letters is a value as it is."""
    said = tokens[mention.first].text
    if mention.last - mention.first > 1 or all(one.value != said for one in mention.matches) or not said.islower():
        return mention
    return replace(mention, matches=tuple(one for one in mention.matches if not one.value.isupper()))


def _is_state_of_person(tokens: Sequence[Token], mention: Mention, vocabulary: Vocabulary) -> bool:
    """Return whether a value only says what the person behind it did: "[signed] by Ravi" beside the field `signer`."""
    verb = tokens[mention.last - 1]
    if mention.last >= len(tokens) or tokens[mention.last].folded != "by" or not verb.folded.endswith("ed"):
        return False
    deeds = {stem(deed) for name in vocabulary.of_role("person") for word in lexicon.name_words(name)
             for deed in (word, agent_verb(word)) if deed}  # fmt: skip
    return verb.stem in deeds


def _is_suffix(tokens: Sequence[Token], place: int) -> bool:
    """Return whether a token is only the ending of the one before it: the s of "1920s" and of "Ann's" is not size S."""
    before = tokens[place - 1] if place > 0 else None
    if before is None or before.end != tokens[place].start or tokens[place].kind != "word":
        return False
    return before.kind == "number" or (before.text in "'’" and tokens[place].folded == "s")


def _with_given_name(tokens: Sequence[Token], mention: Mention, vocabulary: Vocabulary) -> Mention | None:
    """Return the mention of a surname extended by the given name before it, which must fit the value's initial.

    "Petra van Dijk" is "van Dijk, P."; "Anna van Dijk" is another person, so the mention loses that value. None if it
    has no other value.
    """
    initials = {one.value: _initial_of(one.value) for one in mention.matches if one.kind == "part"}
    place = mention.first - 1
    if not any(initials.values()) or place < 0 or not _is_given_name(tokens, place, vocabulary):
        return mention
    first = tokens[place].folded[:1]
    fits = [replace(one, kind="form") for one in mention.matches if initials.get(one.value) == first]
    if not fits:
        others = tuple(one for one in mention.matches if not initials.get(one.value))
        return replace(mention, matches=others) if others else None
    return replace(mention, first=place, start=tokens[place].start, matches=tuple(fits))


def _initial_of(value: str) -> str:
    """Return the initial of a value that has only the given name's initial: "j" of "Miller, J." or jmiller; else ""."""
    found = _SURNAME_FIRST.fullmatch(value)
    return found["initial"].casefold() if found is not None else initial_of(value)


def _is_given_name(tokens: Sequence[Token], place: int, vocabulary: Vocabulary) -> bool:
    token = tokens[place]
    opens = place == 0 or tokens[place - 1].text in ".?!"
    is_word = token.folded in lexicon.STOP_WORDS or token.folded in lexicon.TITLES
    is_near = 0 < tokens[place + 1].start - token.end <= 1
    common = word_frequencies().get(token.stem, 0) > RARE_WORD
    is_word = is_word or (token.folded,) in vocabulary.cues or (token.stem,) in vocabulary.cues  # "Editor Marsh"
    return token.kind == "word" and token.is_capital and not is_word and is_near and not (opens and common)


def _covered_tokens(found: Sequence[Mention]) -> set[int]:
    return {index for mention in found for index in range(mention.first, mention.last)}


def _index_looked_up(more: Sequence[tuple[str, str, int]]) -> dict[tuple[str, ...], tuple[ValueMatch, ...]]:
    """Return the looked-up values, keyed by all words of a value, and by its first and by its last word alone.

    Args:
        more: see `find_mentions`.
    """
    found: dict[tuple[str, ...], tuple[ValueMatch, ...]] = {}
    for name, value, documents in more:
        words = words_of(value)
        found[words] = (*found.get(words, ()), ValueMatch(name, value, "exact", documents))
        if len(words) > 1 and not has_chinese(value):
            for word in {words[0], words[-1]}:
                found[(word,)] = (*found.get((word,), ()), ValueMatch(name, value, "part", documents))
    return found


def _longest_mention(
    tokens: Sequence[Token],
    place: int,
    names: Mapping[tuple[str, ...], tuple[ValueMatch, ...]],
    vocabulary: Vocabulary,
    longest: int,
) -> Mention | None:
    """Return the longest name that begins at a token, or None; marks inside it are skipped: "Guido van-Rossum".

    Args:
        longest: number of words of the longest of `names`.
    """
    if tokens[place].kind == "mark":
        return None
    words: list[str] = []
    stems: list[str] = []
    passed: set[str] = set()
    best: Mention | None = None
    for last in range(place, min(place + 2 * longest, len(tokens))):
        token = tokens[last]
        if token.kind == "mark":
            # A mark is skipped only if the value has it too: "Miller, J.", "Adv. Mater.", "Cnet | News".
            initial = token.text == "." and words and len(words[-1]) == 1
            if token.text in _BREAKS and token.text not in _IN_NAMES and not _is_inside(tokens, last):
                break
            passed |= {token.text} & _IN_NAMES if not initial else set()
            continue
        # "SEV1s" is the plural of SEV1.
        words.append(_PLURAL_CODE.sub("", token.folded))
        stems.append(token.stem)
        if len(words) > longest:
            break
        known = names.get(tuple(words), ())
        if len(words) > 1 and token.kind == "word":
            known = (*known, *(one for one in names.get(("".join(words),), ()) if one not in known))
        fields = {one.field for one in known}
        known = (*known, *(one for one in vocabulary.stems.get(tuple(stems), ()) if one.field not in fields))
        known = tuple(
            one
            for one in known
            if passed <= set(one.value) and _can_mean_value(one, tokens, place, last + 1, vocabulary)
        )
        if known and not _is_identifier_part(tokens, place, last):
            # The dot after an initial belongs to the name: "Miller, J."
            dotted = len(token.text) == 1 and tokens[last + 1 : last + 2] and tokens[last + 1].text == "."
            behind = last + 2 if dotted and any(one.value.endswith(".") for one in known) else last + 1
            best = Mention(place, behind, tokens[place].start, tokens[behind - 1].end, known)
    return best


def _is_inside(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a mark has no blank on either side and does not end the text, as in `A/05/1` and `x::y`."""
    before, after = tokens[index - 1], tokens[index + 1] if index + 1 < len(tokens) else None
    return after is not None and before.end == tokens[index].start and after.start == tokens[index].end


def _is_identifier_part(tokens: Sequence[Token], first: int, last: int) -> bool:
    """Return whether a name is only part of an identifier: `postgresql-15` in `postgresql-15-cron`.

    The name is the tokens from `first` to `last`, both included. Before an ordinary word a name is not part of an
    identifier: "non-final", "security-related".
    """
    for mark, beyond in ((first - 1, first - 2), (last + 1, last + 2)):
        if not 0 <= beyond < len(tokens) or tokens[mark].text not in _JOINING or not _is_inside(tokens, mark):
            continue
        other = tokens[beyond]
        if other.kind == "number" or (
            other.kind == "word" and other.stem not in word_frequencies() and other.folded not in lexicon.STOP_WORDS
            and other.folded != "non"
        ):  # fmt: skip
            return True
    return False


def _can_mean_value(known: ValueMatch, tokens: Sequence[Token], first: int, last: int, vocabulary: Vocabulary) -> bool:
    """Return whether tokens [first, last) can mean the value here; a code, for example, must be in capitals."""
    behind = tokens[last].text if last < len(tokens) and tokens[last].start == tokens[last - 1].end else ""
    if (known.value[-1] if known.value[-1] in VARIANT_MARKS else "") != (behind if behind in VARIANT_MARKS else ""):
        return False
    if known.value.isdecimal() or (known.kind == "form" and last - first == 1 and tokens[first].text.isdecimal()):
        return known.field in fields_named_before(tokens, first, vocabulary) and not is_range_bound(tokens, first)
    word = tokens[first]
    if word.text == "I" and last - first == 1 and known.field not in fields_named_before(tokens, first, vocabulary):
        return False
    if not any(c.isalpha() for c in known.value) and not _VERSION.search(known.value):
        return _is_written(known.value, tokens, first)
    if word.folded in _LETTERS and _DOTTED.match(known.value) and last - first > 1 and tokens[first + 1].kind != "mark":
        return False  # "a stone" is not a.stone
    if known.kind == "code":
        return word.text.isupper()
    if known.kind == "part" and _is_bare_action(known.value, tokens, first, last):
        return False
    if known.kind == "translated" and _is_verb_of_person(tokens, first, last, vocabulary):
        return False
    if last - first == 1 and known.kind in ("part", "short") and word.folded in lexicon.STOP_WORDS:
        return known.kind == "short" and word.text.isupper()
    if known.kind != "part" or last - first > 1 or vocabulary.roles.get(known.field) in ("label", "tag"):
        return True
    return is_person_mention(known.field, tokens, first, vocabulary)


def _is_bare_action(value: str, tokens: Sequence[Token], first: int, last: int) -> bool:
    """Return whether words are only the action of a state: 采购 ("purchase") of 采购中, without the 在 of 在采购."""
    said = "".join(token.text for token in tokens[first:last])
    return value == f"{said}中" and (first == 0 or tokens[first - 1].text not in "在正")


def _is_verb_of_person(tokens: Sequence[Token], first: int, last: int, vocabulary: Vocabulary) -> bool:
    """Return whether words say what somebody did, not the state of a document: "[sent] by Ann", "did Ann [reject]"."""
    if last < len(tokens) and tokens[last].folded == "by":
        return True
    words = tuple(token.folded for token in tokens[first:last])
    return words not in vocabulary.names and any(one.folded in _DOING for one in tokens[:first])


def _is_written(value: str, tokens: Sequence[Token], first: int) -> bool:
    """Return whether a value made of a number and a sign is written with its sign: "10%"."""
    after = tokens[first + 1] if first + 1 < len(tokens) else None
    before = tokens[first - 1] if first else None
    said = tokens[first].text
    if after is not None and after.start == tokens[first].end and said + after.text == value:
        return True
    return before is not None and before.end == tokens[first].start and before.text + said == value


@dataclass(slots=True)
class _Speller:
    """Finds the values of misspelt names in one question, until no comparisons are left; later names are skipped."""

    vocabulary: Vocabulary
    comparisons_left: int = MOST_COMPARISONS

    def misspelt_values(self, words: Sequence[str], *, person: bool) -> tuple[ValueMatch, ...]:
        """Return the values of a misspelt name, see `Vocabulary.misspelt_values`; () once the limit is reached."""
        if self.comparisons_left <= 0:
            return ()
        self.comparisons_left -= self.vocabulary.comparison_count(words, person=person)
        return self.vocabulary.misspelt_values(words, person=person)


def _find_misspelt(tokens: Sequence[Token], vocabulary: Vocabulary, taken: set[int]) -> list[Mention]:
    """Find misspelt names: people in two or three words, labels in one ("Guido van Rosum", "divison")."""
    speller = _Speller(vocabulary)
    found: list[Mention] = []
    place = 0
    while place < len(tokens):
        # Several words are only compared with names of people.
        for size in (3, 2, 1) if tokens[place].is_capital else (1,):
            known = _misspelt_values(tokens, range(place, place + size), speller, taken)
            if known:
                last = place + size
                found.append(Mention(place, last, tokens[place].start, tokens[last - 1].end, known))
                place = last
                break
        else:
            place += 1
    return found


def _misspelt_values(
    tokens: Sequence[Token], places: range, speller: _Speller, taken: set[int]
) -> tuple[ValueMatch, ...]:
    """Return the values that the words at these places misspell; () if the words are known or resemble no value."""
    run = tokens[places.start : places.stop]
    if len(run) < len(places) or any(token.kind != "word" for token in run) or not taken.isdisjoint(places):
        return ()
    if any(after.start - before.end > 1 for before, after in pairwise(run)):
        return ()
    words = [token.folded for token in run]
    if len(words) > 1:
        return speller.misspelt_values(words, person=True) if all(token.is_capital for token in run) else ()
    word = words[0]
    if word in lexicon.STOP_WORDS or word in lexicon.DOCUMENT_NOUNS or (word,) in speller.vocabulary.cues:
        return ()
    roles = speller.vocabulary.roles
    similar = speller.misspelt_values(words, person=False)
    is_rare = run[0].is_capital or run[0].stem not in word_frequencies()
    return tuple(one for one in similar if is_rare or roles[one.field] != "person")


def _find_initials(tokens: Sequence[Token], vocabulary: Vocabulary) -> list[Mention]:
    """Find words whose initials are the code of exactly one value: "low voltage" for LV of the field `voltage`.

    One of them must be a word for the field: other words begin like a code by chance.
    """
    found: list[Mention] = []
    for first in range(len(tokens) if vocabulary.initials else 0):
        letters, named = "", set[str]()
        for last in range(first, min(first + _MOST_INITIALS, len(tokens))):
            token = tokens[last]
            if token.kind == "mark" and letters and token.text == "-" and _is_inside(tokens, last):
                continue
            if token.kind != "word" or _is_empty(token):
                break
            letters += token.folded[:1]
            named |= {*vocabulary.cues.get((token.folded,), ()), *vocabulary.cues.get((token.stem,), ())}
            known = vocabulary.initials.get(letters, ())
            if len(known) == 1 and known[0].field in named:
                found.append(Mention(first, last + 1, tokens[first].start, token.end, known))
                break
    return found


def _is_empty(token: Token) -> bool:
    return token.folded in lexicon.STOP_WORDS or token.folded in lexicon.DOCUMENT_NOUNS


def _find_abbreviated(tokens: Sequence[Token], vocabulary: Vocabulary, taken: set[int]) -> list[Mention]:
    """Find everyday words that exactly one value of a field abbreviates: "travel" for TRV, "apartments" for `apt`."""
    found = []
    for index, token in enumerate(tokens if vocabulary.abbreviations else ()):
        word = token.folded
        if (
            index in taken or token.kind != "word" or len(word) < _LEAST_SAID or not word.isascii()
            or token.stem not in word_frequencies() or word in lexicon.STOP_WORDS or word in lexicon.DOCUMENT_NOUNS
        ):  # fmt: skip
            continue
        by_field: dict[str, list[ValueMatch]] = {}
        for code, known in vocabulary.abbreviations:
            near = max(code_closeness(one, code) for one in (word, word.removesuffix("s"), token.stem))
            if near:
                by_field.setdefault(known.field, []).append(replace(known, share=near))
        meant = tuple(known[0] for known in by_field.values() if len(known) == 1)
        if meant:
            found.append(Mention(index, index + 1, token.start, token.end, meant))
    return found
