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
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.intent import lexicon, wording
from agent.intent.beside import class_before
from agent.intent.closest import values_of
from agent.intent.evidence import Candidate, evidence, is_content, joined_with
from agent.intent.linking import Mention
from agent.intent.reading import LIKELY, SURE
from agent.intent.sentence import Sentence
from agent.intent.text import stem
from agent.intent.words import table

_CLOSE = 24
"""Characters between two values that are still said in one breath."""
_MOST, _UNCLEAR, _LEAST = 0.98, 0.55, 1e-6
_LONGEST_CUE = 4
"""Tokens of a word for a field at most."""
_MOST_LOGIT = 500.0
"""Beyond it `exp` overflows."""
_OR = frozenset("or either 或".split())
_BETWEEN = frozenset("to through than vs versus against 到 至 比".split())
_AND = frozenset("and , 、 ， 和 与 及 &".split())
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
    """Decision trees, all of them walked at once: every array has a place for each node of each tree.

    Attributes:
        signs: the number of each sign in `sign`.
        roots: the place of each tree's first node.
        sign, bound: a node leads on to `below` where its sign is at most the bound, else to `above`.
        below, above: places of nodes; those of a leaf are its own.
        weight: of a leaf, 0 of other nodes.
        depth: steps after which every tree is at a leaf.
        scale, shift: make a logit of the leaves' sum.
        pair: of a name in two fields, what the logits of the likelier and the other and a constant weigh for the
            likelier to be meant.
    """

    signs: Mapping[str, int]
    roots: NDArray[np.int64]
    sign: NDArray[np.int64]
    bound: NDArray[np.float64]
    below: NDArray[np.int64]
    above: NDArray[np.int64]
    weight: NDArray[np.float64]
    depth: int
    scale: float
    shift: float
    pair: tuple[float, ...]

    def probability(self, held: Mapping[str, float]) -> float:
        """How likely a candidate with this evidence is meant."""
        row = np.zeros(len(self.signs))
        for name, value in held.items():
            if (place := self.signs.get(name)) is not None:
                row[place] = value
        nodes = self.roots
        for _ in range(self.depth):
            nodes = np.where(row[self.sign[nodes]] <= self.bound[nodes], self.below[nodes], self.above[nodes])
        return _share_of(self.scale * float(self.weight[nodes].sum()) + self.shift)

    def of_two(self, likelier: float, other: float) -> tuple[float, float]:
        """How likely a name of two fields is meant in the likelier field, and in either."""
        one, two = (math.log(max(p, _LEAST) / max(1 - p, _LEAST)) for p in (likelier, other))
        first = _share_of(self.pair[0] * one + self.pair[1] * two + self.pair[2])
        either = 1 - (1 - likelier) * (1 - other)
        return min(first, either), either


def _share_of(logit: float) -> float:
    return 1 / (1 + math.exp(-max(logit, -_MOST_LOGIT)))


def weights_of(stored: Mapping[str, Any]) -> Weights:
    """The weights in the form of `weights.json`: a tree is [sign, bound, tree below, tree above] or a leaf's weight."""
    nodes: list[tuple[int, float, int, int, float]] = []
    deepest = 0

    def add(tree: Any, depth: int) -> int:
        nonlocal deepest
        place, deepest = len(nodes), max(deepest, depth)
        nodes.append((0, 0.0, place, place, tree if isinstance(tree, int | float) else 0.0))
        if isinstance(tree, list):
            nodes[place] = (tree[0], tree[1], add(tree[2], depth + 1), add(tree[3], depth + 1), 0.0)
        return place

    roots = [add(tree, 0) for tree in stored["trees"]]
    sign, bound, below, above, weight = (np.array(column) for column in zip(*nodes, strict=True))
    numbers = {name: place for place, name in enumerate(stored["signs"])}
    return Weights(
        numbers, np.array(roots), sign, bound, below, above, weight, deepest,
        stored["scale"], stored["shift"], tuple(stored["pair"]),
    )  # fmt: skip


@cache
def learned() -> Weights:
    """The weights that the package holds."""
    return weights_of(json.loads((files("agent.intent") / "weights.json").read_text(encoding="utf-8")))


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
    if (
        how == "translated"
        and mention.last - mention.first == 1
        and sentence.tokens[mention.first].folded in sentence.nouns
    ):
        return True  # "concerts" are the documents, and no part of what a symphony concert is called
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


_DENIED = 0.75
"""Least probability at which a value that is denied for certain filters."""


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
    made = _chosen(sentence, _alike(sentence, made))
    joined = _joined(sentence, [one for _, one in made if one.confidence >= LIKELY])
    left += [mention for mention, one in made if one.confidence < LIKELY]
    return [_wary(sentence, one, left) for one in joined], sorted(left, key=lambda mention: mention.first)


def _constraint(sentence: Sentence, mention: Mention) -> Constraint | None:
    """The likeliest constraint that one name makes; None when it may be none at all.

    A name is of one field: the chances of those that have it are weighed against each other and against none.
    """
    judged = [(learned().probability(evidence(sentence, one)), one) for one in candidates(sentence, mention)]
    negated = sentence.denials.get(mention.first, False)
    if not judged or negated is None:
        return None
    judged.sort(key=lambda pair: -pair[0])
    confidence, one = judged[0]
    also: tuple[str, ...] = ()
    if len(judged) > 1 and confidence >= LIKELY:
        rival, other = judged[1]
        confidence, of_either = learned().of_two(confidence, rival)
        if confidence < SURE <= (rival if negated else of_either) and _is_same(one, other):
            # Either field would do: that excludes less than one of them. What is denied is denied of both.
            also, confidence = (other.field,), min(of_either, _MOST)
    for rival, other in judged[1:]:
        if not negated and not also and _is_same(one, other) and _offers(sentence, one.field, other.field):
            also, confidence = (other.field,), min(max(confidence, 1 - (1 - judged[0][0]) * (1 - rival)), _MOST)
    start, end = sentence.extent(mention, one.field)
    denial = _DENIED_ZH.search(sentence.text[:start]) if negated else None
    start = denial.start() if denial is not None else start
    values = tuple(dict.fromkeys(known.value for known in one.known))
    return Constraint(one.field, values, start, end, negated, confidence=round(confidence, 3), also=also)


def _offers(sentence: Sentence, one: str, other: str) -> bool:
    """Whether words for two fields stand side by side as a choice: "wrote [or] sponsored", 作者或审阅人."""
    for place, token in enumerate(sentence.tokens):
        if token.folded not in _OR:
            continue
        firsts = range(max(place - _LONGEST_CUE, 0), place)
        before = {field for first in firsts if sentence.cue(first)[1] == place for field in sentence.cue_fields(first)}
        last = _over_article(sentence, place + 1)
        behind = set(sentence.cue_fields(last))
        if before and not behind and sentence.folded(last).endswith("ed") and sentence.mention_at(last) is None:
            behind = {one, other} - before  # "requested or [okayed]": a deed that no field is known by
        if (one in before and other in behind) or (other in before and one in behind):
            return True
    return False


def _is_same(one: Candidate, other: Candidate) -> bool:
    return {known.value for known in one.known} == {known.value for known in other.known}


def _alike(sentence: Sentence, made: list[tuple[Mention, Constraint]]) -> list[tuple[Mention, Constraint]]:
    """Names side by side are of one field where they can be; of one field anyway the surer speaks for the other."""
    alike = []
    for mention, one in made:
        beside = [second for other, second in made if other is not mention and joined_with(sentence, mention, other)]
        second = max(beside, key=lambda second: second.confidence, default=one)
        values = values_of(sentence, mention.of(second.field))
        if second.confidence > one.confidence and values and (one.field == second.field or one.confidence < SURE):
            names = tuple(dict.fromkeys(value.value for value in values))
            of_both = one.field == second.field and one.confidence >= LIKELY
            confidence = second.confidence if of_both else round((one.confidence + second.confidence) / 2, 3)
            one = replace(one, field=second.field, values=names, also=second.also, confidence=confidence)
        alike.append((mention, one))
    return alike


def _chosen(sentence: Sentence, made: list[tuple[Mention, Constraint]]) -> list[tuple[Mention, Constraint]]:
    """A choice between two fields is no condition on both: "by Ann or about rent"."""
    unclear = {
        place
        for place, ((_, one), (_, other)) in enumerate(pairwise(made))
        if (one.field, one.also) != (other.field, other.also)
        and not (one.negated or other.negated)
        and other.start - one.end < _CLOSE
        and _offers_choice(sentence, one, other)
        and not any(_offers(sentence, each.field, also) for each in (one, other) for also in each.also)
    }
    return [
        (mention, replace(one, confidence=min(one.confidence, _UNCLEAR)) if {place, place - 1} & unclear else one)
        for place, (mention, one) in enumerate(made)
    ]


def _offers_choice(sentence: Sentence, one: Constraint, other: Constraint) -> bool:
    """Whether "or" stands between two names and no word that it may be of: "by Ann about [fail-over] or rent"."""
    between = range(sentence.index_from(one.end), sentence.index_from(other.start))
    is_offered = any(sentence.folded(place) in _OR for place in between)
    return is_offered and not any(
        is_content(sentence, place) and sentence.folded(place) not in _OR for place in between
    )


def _words_of(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+|[^\sa-z]", text))


def _joined(sentence: Sentence, found: list[Constraint]) -> list[Constraint]:
    """Values of one field put together: alternatives, or all at once for a list field asked for "both"."""
    joined: list[Constraint] = []
    for one in sorted(found, key=lambda one: one.start):
        if any(other.field == one.field and set(other.values) < set(one.values) for other in found):
            continue  # Ann of all at that domain
        same = (one.field, one.negated, one.also)
        place = next((n for n, other in enumerate(joined) if (other.field, other.negated, other.also) == same), None)
        if place is None:
            joined.append(one)
            continue
        other = joined[place]
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
        # What a question denies is hardly ever its topic.
        return replace(one, confidence=max(one.confidence, SURE)) if one.confidence >= _DENIED else one
    doubts = [
        learned().probability(evidence(sentence, other))
        for mention in left
        for other in candidates(sentence, mention)
        if other.field == one.field
        and sentence.denials.get(mention.first, False) is False  # "accepted, not final yet" offers no choice
        and other.known[0].value not in one.values
        and not one.start <= mention.start < one.end
    ]
    doubt = max(doubts, default=0.0)
    if _has_stranger(sentence, one):
        doubt = max(doubt, LIKELY)
    return replace(one, confidence=round(min(one.confidence, 1 - doubt), 3)) if doubt > 1 - SURE else one


def _has_stranger(sentence: Sentence, one: Constraint) -> bool:
    """Whether a word that no value has is an alternative to the first or last: "by Ann or [Zoe]", "[fax] or mail"."""
    first, last = sentence.index_from(one.start), sentence.index_from(one.end)
    before = _is_strange(sentence, first - 2) and _joins(sentence, first - 1, one)
    return before or (_joins(sentence, last, one) and _is_strange(sentence, _over_article(sentence, last + 1)))


def _joins(sentence: Sentence, place: int, one: Constraint) -> bool:
    """Whether a word offers a choice; between people "and" does as well."""
    token = sentence.token(place)
    of_people = sentence.vocabulary.roles.get(one.field) == "person"
    return token is not None and (token.folded in _OR or (of_people and token.folded in ("and", "&")))


def _over_article(sentence: Sentence, place: int) -> int:
    return place + (sentence.folded(place) in ("the", "a", "an", "者"))


def _is_strange(sentence: Sentence, place: int) -> bool:
    token = sentence.token(place)
    taken = token is not None and any(first <= token.start < last for first, last in sentence.taken)
    return token is not None and is_content(sentence, place) and not taken


def _is_together(sentence: Sentence, one: Constraint, other: Constraint) -> bool:
    """Whether documents must have both values of a list: "both asbestos and lead", "urgent mails that still wait"."""
    if sentence.vocabulary.catalogue.fields[one.field].field.type != "list":
        return False
    between = sentence.text[one.end : other.start].casefold()
    words = _words_of(between)
    behind = sentence.text[other.end :]
    if words & _OR or wording.EACH.search(behind) or wording.COMPARED.search(behind):
        return False  # "A and B each", "A 和 B 谁写得多": one after the other
    head = sentence.text[max(0, one.start - 20) : one.start].casefold()
    if any(word in f"{head} {between}" for word in table("link")["together"]):
        return True
    if not words <= _AND:
        is_range = sentence.vocabulary.roles[one.field] == "version" or bool(words & _BETWEEN)
        return not (is_range or sentence.calculates)
    having = class_before(sentence, sentence.index_from(one.start) - 1, one.start) in ("with", "being")
    stacked = not words and sentence.vocabulary.roles[one.field] != "version"
    return sentence.vocabulary.roles[one.field] == "person" or having or stacked
