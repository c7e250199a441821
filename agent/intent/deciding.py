"""Which of the values that a question names are meant as constraints, with what probability, and which are its topic.

The probability is learned (`weights.json`, made by `evals/train_deciding.py`) from `evidence` that can be counted in
any collection. A filter excludes, so a list of alternatives is as sure as its least sure member, and one that may hold
a name nobody knows is none.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from agent.intent import lexicon, wording
from agent.intent.evidence import Candidate, evidence, joined_with, values_of
from agent.intent.linking import Mention
from agent.intent.reading import LIKELY, SURE
from agent.intent.sentence import Sentence
from agent.intent.text import stem

_CLOSE = 24
"""Characters between two values that are still said in one breath."""
_RIVAL = 0.2
"""Least probability of a second field that a name may be of."""
_MOST, _UNCLEAR = 0.98, 0.55
_PARTS_OF_TEXTS = frozenset("section sections chapter chapters figure page pages table rfc step".split())
_DENIED_ZH = re.compile(r"(?:尚未|未被?|并非|非|不是|没有?被?)$")
_DISTANT = ("part", "fuzzy", "code")


@dataclass(frozen=True, slots=True)
class Constraint:
    """One condition on a field, and the characters of the question that state it.

    Attributes:
        together: the values were asked for at once ("both A and B").
        confidence: the probability that it is meant.
        also: other fields that would do as well ("written or reviewed by").
    """

    field: str
    values: tuple[str, ...]
    start: int
    end: int
    negated: bool = False
    together: bool = False
    confidence: float = 1.0
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Weights:
    """A few trees: `trees` are [sign, bound, tree below, tree from there on], or the weight of a leaf."""

    signs: tuple[str, ...]
    trees: tuple[Any, ...]
    scale: float = 1.0
    shift: float = 0.0

    def probability(self, held: Mapping[str, float]) -> float:
        """How likely a candidate with this evidence is meant."""
        row = [held.get(name, 0.0) for name in self.signs]
        total = 0.0
        for tree in self.trees:
            while isinstance(tree, list):
                tree = tree[2] if row[tree[0]] <= tree[1] else tree[3]
            total += tree
        return 1 / (1 + math.exp(-(self.scale * total + self.shift)))


@cache
def learned() -> Weights:
    """The weights that the package holds."""
    stored = json.loads((files("agent.intent") / "weights.json").read_text(encoding="utf-8"))
    return Weights(tuple(stored["signs"]), tuple(stored["trees"]), stored["scale"], stored["shift"])


def candidates(sentence: Sentence, mention: Mention) -> list[Candidate]:
    """What a name may be a constraint on: its values in each field, those with the most documents first."""
    found = []
    for field in dict.fromkeys(one.field for one in mention.known):
        known = values_of(sentence, mention.of(field))
        is_named = sentence.vocabulary.roles.get(field) not in (None, "number", "date", "boolean")
        if known and is_named and not _is_something_else(sentence, mention, field, known[0].how):
            found.append(Candidate(mention, field, known))
    if any(one.known[0].how not in _DISTANT for one in found):
        # "sensors" is the kind of part, and no part of the name of a firm.
        found = [one for one in found if one.known[0].how not in _DISTANT]
    found.sort(key=lambda one: (-one.documents, one.field))
    return [replace(one, fields=len(found), place=place) for place, one in enumerate(found)]


def _is_something_else(sentence: Sentence, mention: Mention, field: str, how: str) -> bool:
    """Whether the words are no name here: a pronoun, a part of a longer name, a part of a text, a deed of a day."""
    role, before = sentence.vocabulary.roles[field], sentence.folded(mention.first - 1)
    if role == "version" and before in _PARTS_OF_TEXTS:
        return True
    if how == "stem" and sentence.dated and mention.last - mention.first == 1:
        dates = {stem(word) for name in sentence.vocabulary.of_role("date") for word in lexicon.name_words(name)}
        if sentence.tokens[mention.first].stem in dates:
            return True  # "opened since June" says when
    return (role == "person" and _goes_on(sentence, mention)) or _is_pronoun(sentence, mention, field)


def _goes_on(sentence: Sentence, mention: Mention) -> bool:
    """ "Anders Holm Bridge" is no person."""
    following = sentence.token(mention.last)
    if following is None or following.kind != "word" or not following.is_capital or following.text.isupper():
        return False
    named = sentence.mention_at(mention.last) or sentence.is_noun(mention.last) or sentence.cue_fields(mention.last)
    return following.start == mention.end + 1 and not named


def _is_pronoun(sentence: Sentence, mention: Mention, field: str) -> bool:
    """ "when does [it] expire?" where a team is called "it": no name unless it is written as one."""
    token = sentence.tokens[mention.first]
    if mention.last - mention.first > 1 or token.folded not in lexicon.STOP_WORDS or token.text.isupper():
        return False
    return field not in {*sentence.cue_fields(mention.last), *sentence.cue_fields(mention.first - 1)}


def read_constraints(sentence: Sentence) -> tuple[list[Constraint], list[Mention]]:
    """The constraints that named values make, and the mentions that are topics or unclear."""
    made: list[tuple[Mention, Constraint]] = []
    left: list[Mention] = []
    for mention in sentence.mentions:
        if any(first < mention.end and mention.start < last for first, last in sentence.taken):
            continue
        one = _constraint(sentence, mention)
        if one is None:
            left.append(mention)
        else:
            made.append((mention, one))
    made = _alike(sentence, made)
    joined = _joined(sentence, [one for _, one in made if one.confidence >= LIKELY])
    left += [mention for mention, one in made if one.confidence < LIKELY]
    return [_wary(sentence, one, left) for one in joined], sorted(left, key=lambda mention: mention.first)


def _constraint(sentence: Sentence, mention: Mention) -> Constraint | None:
    """The likeliest constraint that one name makes; None when it may be none at all."""
    judged = [(learned().probability(evidence(sentence, one)), one) for one in candidates(sentence, mention)]
    negated = sentence.denials.get(mention.first, False)
    if not judged or negated is None:
        return None
    judged.sort(key=lambda pair: -pair[0])
    (best, one), confidence = judged[0], judged[0][0]
    also: tuple[str, ...] = ()
    rival = judged[1] if len(judged) > 1 else None
    if rival is not None and LIKELY <= best < SURE and rival[0] >= _RIVAL and not negated and _is_same(one, rival[1]):
        # Either field would do: that excludes less than one of them.
        also, confidence = (rival[1].field,), min(best + rival[0], _MOST)
    elif rival is not None and best < SURE and rival[0] >= _RIVAL:
        confidence = min(best, _UNCLEAR)  # denied of one of two fields, and nobody knows of which
    start, end = sentence.extent(mention, one.field)
    denial = _DENIED_ZH.search(sentence.text[:start]) if negated else None
    start = denial.start() if denial is not None else start
    values = tuple(dict.fromkeys(known.value for known in one.known))
    return Constraint(one.field, values, start, end, negated, confidence=round(confidence, 3), also=also)


def _is_same(one: Candidate, other: Candidate) -> bool:
    return {known.value for known in one.known} == {known.value for known in other.known}


def _alike(sentence: Sentence, made: list[tuple[Mention, Constraint]]) -> list[tuple[Mention, Constraint]]:
    """Names side by side are of one field where they can be, and about as sure as each other."""
    alike = []
    for mention, one in made:
        beside = [second for other, second in made if other is not mention and joined_with(sentence, mention, other)]
        second = max(beside, key=lambda second: second.confidence, default=one)
        values = values_of(sentence, mention.of(second.field))
        if second.confidence > one.confidence and values and (one.field == second.field or one.confidence < SURE):
            names = tuple(dict.fromkeys(value.value for value in values))
            confidence = round((one.confidence + second.confidence) / 2, 3)
            one = replace(
                one, field=second.field, values=names, also=second.also, negated=second.negated, confidence=confidence
            )
        alike.append((mention, one))
    return alike


def _joined(sentence: Sentence, found: list[Constraint]) -> list[Constraint]:
    """Values of one field put together: alternatives, or all at once for a list field asked for "both"."""
    joined: list[Constraint] = []
    for one in sorted(found, key=lambda one: one.start):
        same = (one.field, one.negated, one.also)
        place = next((n for n, other in enumerate(joined) if (other.field, other.negated, other.also) == same), None)
        if place is None:
            joined.append(one)
            continue
        other = joined[place]
        if set(one.values) < set(other.values) or set(other.values) < set(one.values):
            joined[place] = min(one, other, key=lambda each: len(each.values))  # Ann of all at that domain
            continue
        joined[place] = replace(
            other,
            values=tuple(dict.fromkeys((*other.values, *one.values))),
            start=min(other.start, one.start),
            end=max(other.end, one.end) if one.start - other.end < _CLOSE else other.end,
            together=other.together or _is_together(sentence, other, one),
            confidence=min(other.confidence, one.confidence),
        )
    positive = {one.field for one in joined if not one.negated and not one.together}
    lists = {name for name, values in sentence.vocabulary.catalogue.fields.items() if values.field.type == "list"}
    # "Accepted, not Final yet": of a single value the positive one says it all.
    return [one for one in joined if not one.negated or one.field not in positive or one.field in lists]


def _wary(sentence: Sentence, one: Constraint, left: Sequence[Mention]) -> Constraint:
    """Less sure where another name of the field may be meant as well, known or not: its documents would be excluded."""
    if one.negated:
        return one
    doubts = [
        learned().probability(evidence(sentence, other))
        for mention in left
        for other in candidates(sentence, mention)
        if other.field == one.field
        and other.known[0].value not in one.values
        and not one.start <= mention.start < one.end
    ]
    doubt = max(doubts, default=0.0)
    if _has_stranger(sentence, one):
        doubt = max(doubt, LIKELY)
    return replace(one, confidence=round(min(one.confidence, 1 - doubt), 3)) if doubt > 1 - SURE else one


_ALTERNATIVE = re.compile(r"^\s*(?:or|and|,|/|&)\s+(?:the\s+)?(?P<name>[A-Z][\w'’.-]+)")
_ALTERNATIVE_BEFORE = re.compile(
    r"(?:\bby|\bfrom|\bof)\s+(?P<name>[A-Z][\w'’.-]+(?:\s+[A-Z][\w'’.-]+)?)\s+(?:or|and)\s*$"
)


def _has_stranger(sentence: Sentence, one: Constraint) -> bool:
    """Whether a name that no value has stands beside the last or before the first: "by Ann or [Zoe]"."""
    if sentence.vocabulary.roles.get(one.field) != "person":
        return False
    behind = _ALTERNATIVE.search(sentence.text[one.end :])
    before = _ALTERNATIVE_BEFORE.search(sentence.text[: one.start])
    places = [one.end + behind.start("name")] if behind else []
    places += [before.start("name")] if before else []
    return any(_is_strange(sentence, place) for place in places)


def _is_strange(sentence: Sentence, character: int) -> bool:
    index = sentence.index_from(character)
    token = sentence.token(index)
    return (
        token is not None
        and token.folded not in lexicon.STOP_WORDS
        and sentence.mention_at(index) is None
        and not sentence.is_noun(index)
        and not sentence.cue_fields(index)
        and not any(first <= token.start < last for first, last in sentence.taken)
    )


def _is_together(sentence: Sentence, one: Constraint, other: Constraint) -> bool:
    """Whether documents must have both values: "both asbestos and lead", 同时, or two authors with "and"."""
    if sentence.vocabulary.catalogue.fields[one.field].field.type != "list":
        return False
    between = sentence.text[one.end : other.start].casefold()
    if len(between) >= _CLOSE or "or" in between.split() or "或" in between:
        return False
    behind = sentence.text[other.end :]
    if wording.EACH.search(behind) or wording.COMPARED.search(behind):
        return False  # "A and B each", "A 和 B 谁写得多": one after the other
    head = sentence.text[max(0, one.start - 20) : one.start].casefold()
    if "both" in head or "同时" in head or "既" in head or "as well as" in between or "又有" in between:
        return True
    if "一起" in between or "together with" in between or "jointly" in between:
        return True
    return sentence.vocabulary.roles[one.field] == "person" and between.strip() in ("and", "和", "与", "&")
