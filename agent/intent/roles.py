"""Tell which field of people a question means by the verb beside a name: "inspected by Ann" means the inspector."""

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache, lru_cache

from agent.intent import lexicon
from agent.intent.abbreviations import is_short_for
from agent.intent.linking import Mention
from agent.intent.sentence import Sentence
from agent.intent.text import has_chinese, stem
from agent.intent.vocabulary import in_chinese
from agent.intent.words import LANGUAGES, ordinary, table
from retrievers.text.glosses import pinyin_of

_BEFORE, _BEHIND = 5, 6
"""Number of tokens before and after a name in which its verb may stand."""
_LEAST_SHORT = 4
_WORDS = re.compile(r"[a-z]+")
_LETTERS = re.compile(r"[^\W\d_]+")

Deeds = Mapping[str, tuple[tuple[int, int, bool], ...]]
"""For each role, such as "reviewer", its verbs in the question: tokens [first, last), and whether "by" ends them."""


def closeness(sentence: Sentence, mention: Mention) -> dict[str, float]:
    """Map each field of people to the closeness of a verb of its role to a name: 1 beside it, 1/2 one word away.

    The closeness is 0 without such a verb near the name. The result is {} if the question has no verb of any role.
    """
    found = dict[str, float]()
    told = sentence.once("deeds", lambda: _deeds(sentence))
    for field in sentence.vocabulary.of_role("person") if told else ():
        places = [place for role in roles_of(field) for place in told.get(role, ())]
        found[field] = max((_near(mention, *place) for place in places), default=0.0)
    return found


def _near(mention: Mention, first: int, last: int, is_led: bool) -> float:
    if last <= mention.first:
        between, most = mention.first - last, _BEFORE
    elif first >= mention.last and not is_led:
        between, most = first - mention.last, _BEHIND
    else:
        return 0.0  # a word of the name itself, or another person's verb: "... or [sponsored by] somebody else"
    return 1 / (1 + between) if between < most else 0.0


@lru_cache(maxsize=4096)
def roles_of(field: str) -> frozenset[str]:
    """Return the roles that a field's name stands for, empty if it stands for none: "reviewer" for `inspected_by`."""
    own = {*lexicon.name_words(field), *_LETTERS.findall(field.casefold())}
    words = {other for word in own for other in (word, *_written_out(word))}
    chinese = [*filter(has_chinese, words), *in_chinese(field)]
    latin = {word for word in words if not has_chinese(word)}
    listed = [each for language in LANGUAGES for each in _listed("roles", language).items()]
    others = latin - {name for _, names in listed for name in names}
    stems = {stem(word) for word in others}
    short = {word for word in others if len(word) >= _LEAST_SHORT and stem(word) not in ordinary()}

    def is_called(name: str) -> bool:
        if has_chinese(name):
            return any(name in word for word in chinese) or any(word.startswith(_spelt(name)) for word in latin)
        return name in latin or stem(name) in stems or any(is_short_for(word, name) for word in short)

    return frozenset(role for role, names in listed if any(map(is_called, names)))


@cache
def _spelt(chinese: str) -> str:
    """Return a Chinese word in Pinyin without tones."""
    return "".join(pinyin_of(chinese))


def _written_out(word: str) -> list[str]:
    return str(table("link", "en")["abbreviations"].get(word, "")).split()


@cache
def _listed(name: str, language: str) -> Mapping[str, list[str]]:
    return {role: re.split(r",\s*", words) for role, words in table(name, language).items()}


@cache
def _by_first_stem() -> Mapping[str, list[tuple[tuple[str, ...], str]]]:
    """Return (stems of a phrase, role) for English verb phrases, keyed by the first stem: "sign off", "approver"."""
    found = defaultdict[str, list[tuple[tuple[str, ...], str]]](list)
    for role, phrases in _listed("deeds", "en").items():
        for stems in {tuple(map(stem, _WORDS.findall(phrase))) for phrase in phrases}:
            found[stems[0]].append((stems, role))
    return found


@cache
def _chinese() -> tuple[tuple[str, str], ...]:
    return tuple((phrase, role) for role, phrases in _listed("deeds", "zh").items() for phrase in phrases)


def _deeds(sentence: Sentence) -> Deeds:
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
        for said, role in _chinese():
            start = sentence.text.find(said)
            while start >= 0:
                place = sentence.index_from(start)
                if sentence.mention_at(place) is None:
                    found[role].append((place, sentence.index_from(start + len(said)), False))
                start = sentence.text.find(said, start + len(said))
    return {role: tuple(places) for role, places in found.items()}
