"""Find the words of a question that deny something ("not", "anything but"), and deeds that a person has not done."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from operator import itemgetter

from agent.intent.analysis.sentence import ENDS, Sentence
from agent.intent.language import lexicon
from agent.intent.language.text import chinese_words, has_chinese, tokenize
from agent.intent.values.value_linking import Mention
from agent.intent.words import LANGUAGES, word_table

_KINDS = ("harmless", "also", "prefix", "not", "lacking", "excluding", "but", "than", "doubtful")
_REQUIRED_BEFORE = {"but": "whole", "than": "another"}
"""By kind of negation, the kind of word that must stand before: "[anything] but", "in [another] city than"."""
_REQUIRED_WITHIN = 4
"""Maximum distance of that word, in tokens."""
_APOSTROPHES = frozenset(["'", "’"])
_ASKED = frozenset("i you we they he she it there".split())
UNCLEAR = 3
"""Maximum unknown words between a negation and a condition that it may refer to."""
_DASHES = ("-", "–", "—")
_OF_THINGS = ("without", "w", "lacking")
"""Words of negation that deny no action: "what Ann owns without a workaround" is owned by Ann."""
JOINING = frozenset("and or nor 和 或 及 跟".split())
_BEING = frozenset("is are was were be been being as the a an their its his her".split())
_NOT_ZH = frozenset("不别没无非未甭除免")
_RESULTS_ZH = frozenset("掉去开过来出下了完光")
_ALL_ZH = frozenset("都均也全皆还从并")
_TO_DO = frozenset("do does did don doesn didn".split())
_PREPOSITIONS = frozenset("to with by in on at from under for".split())
_RELATIVE = frozenset("that which whom who what".split())
_CONTRACTED = frozenset("isn aren wasn weren".split())
_DOING = frozenset("do does did don doesn didn has hasn have haven had hadn could couldn would wouldn will won".split())
WITHOUT_MEANING = _BEING | _RELATIVE | _CONTRACTED | _DOING | _APOSTROPHES
"""Words that may stand between a noun and the negation of its verb."""


@dataclass(frozen=True, slots=True)
class Negator:
    """A word of negation, tokens [first, last).

    Attributes:
        kind: "prefix" denies the next word, "not" a predicate, "lacking" the existence of something; "excluding"
            removes documents; "also" ("not only") says that there is more; "doubtful" may deny its clause or mean
            something else: "hardly", "far from".
    """

    first: int
    last: int
    kind: str


@cache
def _phrases(kind: str) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """Return the phrases of a kind of negation, each as its words, keyed by the first word; the longest first."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for phrase in word_table("negation")[kind]:
        words = tuple(token.folded for token in tokenize(phrase.replace("’", "'")))
        found.setdefault(words[0], []).append(words)
    return {word: tuple(sorted(ways, key=len, reverse=True)) for word, ways in found.items()}


@cache
def words_of_kind(kind: str) -> frozenset[str]:
    """Return the words in the list `kind` of the table `negation` in `words/*.toml`, for all languages."""
    return frozenset(word_table("negation")[kind])


def end_of_phrase(sentence: Sentence, place: int, kind: str) -> int:
    """Return the index after a phrase of a kind that begins at a token; the token's own index if there is none."""
    for words in _phrases(kind).get(sentence.folded(place), ()):
        said = (sentence.folded(place + n) for n in range(len(words)))
        over = sentence.mention_at(place + len(words) - 1)
        if over is not None and (over.first > place or place + len(words) < over.last):
            continue  # the phrase ends inside a value: 外 in [外企] ("foreign firm")
        is_said = all(one == word or (one == "’" and word == "'") for one, word in zip(said, words, strict=True))
        if is_said and not _is_in_longer_verb(sentence, place, words):
            return place + len(words)
    return place


def _is_in_longer_verb(sentence: Sentence, place: int, words: tuple[str, ...]) -> bool:
    """Return whether a Chinese verb only begins a longer word: 屏蔽 ("mask") in 屏蔽门 ("platform door").

    False for a phrase that begins with a negation such as 不要: word segmentation would find 不要紧 ("no matter") in
    不要紧急的 ("no urgent ones").
    """
    if words[0] in _NOT_ZH or sentence.tokens[place].kind != "cjk":
        return False
    end = chinese_words(sentence.text).get(sentence.tokens[place].start, 0)
    rest = sentence.text[sentence.tokens[place + len(words) - 1].end : end]
    return not set(rest) <= _RESULTS_ZH  # 屏蔽掉 means 屏蔽 too


def find_negators(sentence: Sentence) -> dict[int, Negator]:
    """Return the words of negation in a question, by the index of the token after each."""
    found: dict[int, Negator] = {}
    place = 0
    while place < len(sentence.tokens):
        begun = [kind for kind in _KINDS if sentence.folded(place) in _phrases(kind)]
        phrases = ((kind, end_of_phrase(sentence, place, kind)) for kind in begun)
        kind, last = max(phrases, key=itemgetter(1), default=("harmless", place))  # of equally long ones the first
        if last == place and _is_contracted(sentence, place):
            kind, last = "not", place + 1
        covered = sentence.mention_at(place)
        if covered is not None and all(one.kind in ("part", "fuzzy") for one in covered.matches):
            covered = None  # "none" is part of the value "none found"
        if covered is not None and covered.last >= last and not _is_before_name(sentence, covered, kind):
            last = place  # part of a name
        elif sentence.folded(place) == "no" and _abbreviates_number(sentence, place):
            last = place
        elif kind in _REQUIRED_BEFORE and not _has_required_word(sentence, place, kind):
            kind, last = "doubtful", end_of_phrase(sentence, place, "doubtful")
        if last > place and kind != "harmless":
            found[last] = Negator(place, last, "excluding" if kind in _REQUIRED_BEFORE else kind)
        place = max(last, place + 1)
    return found


def _is_before_name(sentence: Sentence, covered: Mention, kind: str) -> bool:
    """Return whether a word of negation that is also a value is before another name: 剔除支付组 ("drop payments").

    "no" beside the word for its own field is the value: "invoiced: no".
    """
    if kind == "excluding":
        return sentence.mention_at(covered.last) is not None
    is_value = not {one.field for one in covered.matches}.isdisjoint(sentence.cue_fields(covered.first - 1))
    following = sentence.mention_at(covered.last)
    is_apart = following is not None and sentence.tokens[following.first].start > covered.end + 1
    is_no = sentence.folded(covered.first) in ("no", "none", "nothing", "nobody")
    return is_no and following is not None and not (is_value or is_apart)


def _abbreviates_number(sentence: Sentence, place: int) -> bool:
    """Return whether "no" stands for "number", between a noun and a number or code: "case no. 42", "case_no CS-011"."""
    before, behind = sentence.folded(place - 1), place + 1 + (sentence.folded(place + 1) in (".", ":", "="))
    token, over = sentence.token(behind), sentence.mention_at(behind)
    said = token.text if token is not None and token.kind == "number" else ""
    said = sentence.text[over.start : over.end] if over is not None else said
    is_named = before == "_" or sentence.is_noun(place - 1) or bool(sentence.cue_fields(place - 1))
    return is_named and before not in lexicon.STOP_WORDS and any(map(str.isdecimal, said))


def _has_required_word(sentence: Sentence, place: int, kind: str) -> bool:
    """Return whether a word before "but" or "than" makes it exclude something: "[all] but", "[another] city than"."""
    before = sentence.folded(place - 1)
    if kind == "than" and before.endswith(("er", "more", "less")) and before != "other":
        return False  # "other trips longer than two days"
    return not words_of_kind(_REQUIRED_BEFORE[kind]).isdisjoint(
        {sentence.folded(place - n) for n in range(1, _REQUIRED_WITHIN + 1)}
    )


def _is_contracted(sentence: Sentence, place: int) -> bool:
    """Return whether a token is the t of "isn't", but not in a question like "don't we have contracts with them?"."""
    if sentence.folded(place) != "t" or sentence.folded(place - 1) not in _APOSTROPHES:
        return False
    auxiliary, following = sentence.folded(place - 2), sentence.folded(place + 1)
    asks = place == 2 and (following in _ASKED or not auxiliary.startswith("do"))
    return auxiliary.endswith(("n", "ca")) and not asks


@cache
def action_verbs() -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the verbs for what people do with documents: stems of English ones, and Chinese ones."""
    english, chinese = (word_table("link", language)["acting"].split() for language in LANGUAGES)
    return frozenset(english), tuple(chinese)


def ends_before_clause(sentence: Sentence, negator: Negator, first: int) -> bool:
    """Return whether a denied verb ends before the clause of the token `first`: "not done that were due [in May]"."""
    verb = sentence.folded(negator.last)
    is_deed = negator.kind == "not" and (verb.endswith("ed") or verb in lexicon.PARTICIPLES)
    return is_deed and any(sentence.folded(place) in _RELATIVE for place in range(negator.last + 1, first))


def ends_clause(sentence: Sentence, place: int, fields: Collection[str]) -> bool:
    """Return whether a clause ends at a token; a comma inside a list of values of `fields` does not end a clause."""
    token, following = sentence.tokens[place], sentence.token(place + 1)
    if token.text in _DASHES and place and following is not None:
        return sentence.tokens[place - 1].end < token.start and token.end < following.start
    if token.kind == "cjk":
        return any(
            has_chinese(word) and sentence.text.endswith(word, 0, token.end) for word in words_of_kind("restarts")
        )
    if token.text in ENDS:
        other = sentence.mention_at(place - 1)
        listed = other is not None and any(one.field in fields for one in other.matches)
        behind = sentence.mention_at(place + 1)
        goes_on = behind is not None and any(one.field in fields for one in behind.matches)
        if behind is not None and token.text == "，" and sentence.folded(behind.last) == "的":
            goes_on = False  # 除了草稿，[李伟]的还有哪些: "besides drafts, which by [Li Wei]?"
        return not (listed and token.text in ",，" and (goes_on or sentence.folded(place + 1) in JOINING))
    if token.folded == "as" and sentence.folded(place + 2) in ("by", "in") and sentence.mention_at(place + 1) is None:
        return True  # "may not profit, as [reported by] Ann"
    is_in_negation = place in sentence.negators or place + 1 in sentence.negators  # "dropping only the drafts"
    return token.folded in words_of_kind("restarts") and not is_in_negation


def is_action_negated(sentence: Sentence, first: int, last: int, fields: Collection[str]) -> bool | None:
    """Return whether the question asks for what a named person did not do: "that Ann didn't approve".

    None means that it is unclear. "those from Lyon are not closed" is no such denial.

    Args:
        first, last: the tokens [first, last) of the name.
        fields: the fields of which the name may be a value.
    """
    if not sentence.negators:
        return False
    first, last = _list_around(sentence, first, last, fields)
    if _is_role_denied(sentence, last, fields):
        return True
    named, behind = sentence.cue(last)
    place = behind if not set(named).isdisjoint(fields) else last
    token = sentence.token(place)
    if token is None or token.text in ENDS:
        return False
    if token.kind == "cjk":
        return _is_deed_denied_zh(sentence, first, place, fields)
    following = (one for one in sentence.negators.values() if place <= one.first <= place + UNCLEAR)
    negator = min(following, key=lambda one: one.first, default=None)
    if negator is None or negator.kind not in ("not", "lacking") or sentence.folded(negator.first) in _OF_THINGS:
        return False
    if any(sentence.folded(one) in _RELATIVE for one in range(place, negator.first)):
        return False  # "what Ann sent that nobody answered"
    acts = _are_acting(sentence, fields)
    before = first - 1
    while before >= 0 and sentence.folded(before) in ("the", "a", "an"):
        before -= 1
    # In "which infra tasks have not" the name describes the documents.
    related = sentence.folded(before) in _RELATIVE and (before > 0 or acts)
    word = sentence.token(before)
    plain = word is not None and word.kind == "word" and word.folded not in lexicon.STOP_WORDS
    subject = related or (plain and sentence.mention_at(before) is None)
    if (
        acts
        and negator.kind == "not"
        and _begins_clause(sentence, before)
        and _is_auxiliary_before(sentence, place, negator)
    ):
        role = negator.last
        while sentence.folded(role) in _BEING:
            role += 1
        return True if set(sentence.cue_fields(role)) & set(fields) else None  # "Ann isn't the author"
    if negator.first == place and related and acts:
        return None  # "that Ann neither wrote nor reviewed"
    if negator.first == place or not subject or not (acts or related):
        return False
    return related or sentence.folded(place) in _DOING or negator.kind == "lacking"


def _is_auxiliary_before(sentence: Sentence, place: int, negator: Negator) -> bool:
    """Return whether only an auxiliary stands between a token and a negation: "isn't", "did not"."""
    between = {sentence.folded(one) for one in range(place, negator.first)}
    return bool(between) and between <= _BEING | _DOING | _CONTRACTED | _APOSTROPHES


def _begins_clause(sentence: Sentence, before: int) -> bool:
    """Return whether the token after `before` begins a clause."""
    token = sentence.token(before)
    return token is None or token.text in ENDS or token.folded in JOINING


def _is_deed_denied_zh(sentence: Sentence, first: int, place: int, fields: Collection[str]) -> bool | None:
    """Return whether a deed is denied, as in 李伟没有批准的 ("not approved by Li Wei"); None if the verb is unknown."""
    while sentence.folded(place) in _ALL_ZH:
        place += 1
    negator = next((one for one in sentence.negators.values() if one.first == place), None)
    if negator is None or negator.kind not in ("not", "lacking") or sentence.mention_at(negator.last) is not None:
        return False
    text = sentence.text[sentence.tokens[negator.last - 1].end :]
    acts, several = _are_acting(sentence, fields), sentence.folded(place - 1) in _ALL_ZH
    if acts and text.startswith(action_verbs()[1]):
        return True
    return None if acts or several else False


def _are_acting(sentence: Sentence, fields: Collection[str]) -> bool:
    """Return whether values of any of the fields are people or groups, who can act."""
    roles, concepts = sentence.vocabulary.roles, sentence.vocabulary.concepts
    return any(roles.get(name) == "person" or "group" in concepts.get(name, ()) for name in fields)


def _list_around(sentence: Sentence, first: int, last: int, fields: Collection[str]) -> tuple[int, int]:
    """Return the tokens [first, last) of the list of values that a value belongs to: "Ann, Bo and Cy"."""

    def beside(place: int, step: int) -> Mention | None:
        other = sentence.mention_at(place + step)
        joined = sentence.folded(place) in JOINING or sentence.folded(place) in (",", "，", "、")
        return other if joined and other is not None and any(one.field in fields for one in other.matches) else None

    while (other := beside(last, 1)) is not None:
        last = other.last
    while (other := beside(first - 1, -1)) is not None:
        first = other.first
    return first, last


def _is_role_denied(sentence: Sentence, last: int, fields: Collection[str]) -> bool:
    """Return whether a role is denied after a name: "with Ann not as the reviewer", "Ann neither author nor ..."."""
    place = last
    while sentence.folded(place) in _BEING | _CONTRACTED | _APOSTROPHES:
        place += 1
    negator = next((one for one in sentence.negators.values() if one.first == place), None)
    if negator is None or negator.kind != "not":
        return False
    place = negator.last
    while sentence.folded(place) in _BEING:
        place += 1
    cued = set(sentence.cue_fields(place)) & set(fields)
    if not cued or sentence.mention_at(place) is not None:
        return False
    others = range(place, min(place + 2 * UNCLEAR, len(sentence.tokens)))
    return not any((over := sentence.mention_at(one)) is not None and over.matches_in(*cued) for one in others)


def next_mention(sentence: Sentence, place: int) -> Mention | None:
    """Return the next mention, if one stands in the next three tokens of the clause, or None."""
    for index in range(place, min(place + UNCLEAR, len(sentence.tokens))):
        if sentence.tokens[index].text in ENDS:
            return None
        if (over := sentence.mention_at(index)) is not None:
            return over
    return None


def is_excluded_value(sentence: Sentence, place: int) -> bool:
    """Return whether a word directly after a word that excludes is by itself a value: "anything but [done]"."""
    word, negator = sentence.folded(place), sentence.negators.get(place)
    if negator is None or negator.kind != "excluding" or word in _PREPOSITIONS:
        return False
    return any(one.kind == "exact" for one in sentence.vocabulary.names.get((word,), ()))


def joins_words(sentence: Sentence, place: int) -> bool:
    """Return whether "and" follows a word that is no value, field or verb: a negation before may end with that word."""
    before = sentence.token(place - 1)
    if sentence.folded(place) != "and" or before is None or before.kind != "word":
        return False
    is_known = sentence.mention_at(place - 1) is not None or sentence.is_noun(place - 1)
    return not is_known and not sentence.cue_fields(place - 1) and before.stem not in action_verbs()[0]


def is_verb_negated(sentence: Sentence, negator: Negator) -> bool:
    """Return whether the word after a negation is its verb, before a preposition: "did not [fall] to Ann"."""
    before = {sentence.folded(negator.first - 1), sentence.folded(negator.first - 2)}  # "did not", "didn't"
    return not before.isdisjoint(_TO_DO) and sentence.folded(negator.last + 1) in _PREPOSITIONS


def is_negated_agent(sentence: Sentence, negator: Negator, first: int, fields: Collection[str]) -> bool:
    """Return whether the name that begins at a token did not do what a single verb says: "never run by [Ann]"."""
    follows = first - negator.last == 2 and sentence.folded(first - 1) == "by"
    return follows and negator.kind == "not" and _are_acting(sentence, fields)
