"""Find which field of people a question means, by the verb beside a name: "inspected by Ann" means the inspector."""

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache, lru_cache

from agent.intent.analysis.sentence import Sentence
from agent.intent.language import lexicon
from agent.intent.language.abbreviations import is_abbreviation
from agent.intent.language.text import has_chinese, stem
from agent.intent.values.field_words import chinese_field_words
from agent.intent.values.value_linking import Mention
from agent.intent.words import LANGUAGES, word_frequencies, word_table
from retrievers.text.chinese_dictionary import pinyin_of

_BEFORE, _BEHIND = 5, 6
"""Number of tokens before and after a name in which its verb may stand."""
_LEAST_SHORT = 4
_WORDS = re.compile(r"[a-z]+")
_LETTERS = re.compile(r"[^\W\d_]+")

RoleVerbs = Mapping[str, tuple[tuple[int, int, bool], ...]]
"""For each role, such as "reviewer", its verbs in a question: tokens [first, last), and whether "by" ends them."""


def role_verb_closeness(sentence: Sentence, mention: Mention) -> dict[str, float]:
    """Map each field of people to the closeness of a verb of its role to a name: 1 beside it, 1/2 one word away.

    The closeness is 0 without such a verb near the name. The result is {} if the question has no verb of any role.
    """
    found = dict[str, float]()
    verbs = sentence.cached("role verbs", lambda: _role_verbs(sentence))
    for field in sentence.vocabulary.of_role("person") if verbs else ():
        places = [place for role in person_roles(field) for place in verbs.get(role, ())]
        found[field] = max((_closeness(mention, *place) for place in places), default=0.0)
    return found


def _closeness(mention: Mention, first: int, last: int, is_led: bool) -> float:
    if last <= mention.first:
        between, most = mention.first - last, _BEFORE
    elif first >= mention.last and not is_led:
        between, most = first - mention.last, _BEHIND
    else:
        return 0.0  # a word of the name itself, or another person's verb: "... or [sponsored by] somebody else"
    return 1 / (1 + between) if between < most else 0.0


@lru_cache(maxsize=4096)
def person_roles(field: str) -> frozenset[str]:
    """Return the roles that a field's name stands for, empty if it stands for none: "reviewer" for `inspected_by`."""
    own = {*lexicon.name_words(field), *_LETTERS.findall(field.casefold())}
    words = {other for word in own for other in (word, *_expanded(word))}
    chinese = [*filter(has_chinese, words), *chinese_field_words(field)]
    latin = {word for word in words if not has_chinese(word)}
    listed = [each for language in LANGUAGES for each in _phrases_by_role("roles", language).items()]
    others = latin - {name for _, names in listed for name in names}
    stems = {stem(word) for word in others}
    short = {word for word in others if len(word) >= _LEAST_SHORT and stem(word) not in word_frequencies()}

    def is_called(name: str) -> bool:
        if has_chinese(name):
            return any(name in word for word in chinese) or any(word.startswith(_pinyin(name)) for word in latin)
        return name in latin or stem(name) in stems or any(is_abbreviation(word, name) for word in short)

    return frozenset(role for role, names in listed if any(map(is_called, names)))


@cache
def _pinyin(chinese: str) -> str:
    """Return a Chinese word in Pinyin without tones."""
    return "".join(pinyin_of(chinese))


def _expanded(word: str) -> list[str]:
    return str(word_table("link", "en")["abbreviations"].get(word, "")).split()


@cache
def _phrases_by_role(name: str, language: str) -> Mapping[str, list[str]]:
    return {role: re.split(r",\s*", words) for role, words in word_table(name, language).items()}


@cache
def _by_first_stem() -> Mapping[str, list[tuple[tuple[str, ...], str]]]:
    """Return (stems of a phrase, role) for English verb phrases, keyed by the first stem: "sign off", "approver"."""
    found = defaultdict[str, list[tuple[tuple[str, ...], str]]](list)
    for role, phrases in _phrases_by_role("deeds", "en").items():
        for stems in {tuple(map(stem, _WORDS.findall(phrase))) for phrase in phrases}:
            found[stems[0]].append((stems, role))
    return found


@cache
def _chinese_phrases() -> tuple[tuple[str, str], ...]:
    return tuple((phrase, role) for role, phrases in _phrases_by_role("deeds", "zh").items() for phrase in phrases)


def _role_verbs(sentence: Sentence) -> RoleVerbs:
    found = defaultdict[str, list[tuple[int, int, bool]]](list)
    words = [(place, token.stem) for place, token in enumerate(sentence.tokens) if token.kind == "word"]
    stems = [one for _, one in words]
    for number, (place, one) in enumerate(words):
        if sentence.mention_at(place) is None:
            for phrase, role in _by_first_stem().get(one, ()):
                if tuple(stems[number : number + len(phrase)]) == phrase:
                    last = words[number + len(phrase) - 1][0] + 1
                    is_led = sentence.folded(last) == "by"
                    found[role].append((place, last + is_led, is_led))
    if has_chinese(sentence.text):
        for said, role in _chinese_phrases():
            start = sentence.text.find(said)
            while start >= 0:
                place = sentence.index_from(start)
                if sentence.mention_at(place) is None:
                    found[role].append((place, sentence.index_from(start + len(said)), False))
                start = sentence.text.find(said, start + len(said))
    return {role: tuple(places) for role, places in found.items()}
