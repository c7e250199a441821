"""Share out fields among names that cannot all be values of one field: "Stone received from Lindqvist".

A document has one value of a field that is no list. Two different values of such a field are alternatives only if the
question lists them ("Stone or Lindqvist"); otherwise at most one of them is meant in that field.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from math import prod

from agent.intent.analysis.sentence import Sentence
from agent.intent.analysis.word_classes import has_or_between
from agent.intent.deciding.candidate_scoring import ScoredCandidate
from agent.intent.deciding.features import Candidate, are_joined, cued_fields_beside, is_content_word
from agent.intent.reading import BOOSTS_FROM
from agent.intent.values.value_linking import Mention

_MOST = 4
"""Maximum number of names that are decided together; the time grows exponentially with it."""
_NEXT = 6
"""How many names further on a name is compared with: those of a long text are not all about one document."""
_LISTING = frozenset(
    "and or , 、 ， / & + ; ； plus also vs versus than nor to through "
    "到 至 和 与 及 或 或者 以及 还是 还 跟 对".split()
)
_CLEAR = 0.6
"""Probability from which on a name's likeliest field is no less sure than without the other names."""
_CLEARER = 5.0
"""How many times likelier the best way to give all names a field must be than the next one."""
_NONE = 0.02
"""Minimum probability that a name is no constraint."""


def resolve_exclusive_values(
    sentence: Sentence, likely: Mapping[int, Sequence[ScoredCandidate]]
) -> dict[int, list[ScoredCandidate]]:
    """Return the candidates of each mention, the likeliest first, with names that exclude each other decided together.

    Args:
        likely: the candidates of each mention, by the mention's first token.
    """
    found = {first: list(named) for first, named in likely.items()}
    if sentence.has_calculation_word:
        return found  # "open against closed": values to compare
    firsts = [first for first, named in found.items() if named and sentence.negations.get(first, False) is False]
    for group in _groups(sentence, {first: found[first] for first in firsts}):
        found.update(_decided(sentence, {first: found[first] for first in group}))
    return found


def _groups(sentence: Sentence, likely: Mapping[int, Sequence[ScoredCandidate]]) -> list[list[int]]:
    """Return the mentions that exclude each other in a field, directly or through others, by their first tokens."""
    groups: list[list[int]] = []
    firsts = sorted(likely)
    pairs = ((one, other) for place, one in enumerate(firsts) for other in firsts[place + 1 : place + _NEXT])
    for one, other in pairs:
        if not any(are_exclusive(sentence, a.candidate, b.candidate) for a, b in product(likely[one], likely[other])):
            continue
        merged = sorted({one, other}.union(*(group for group in groups if one in group or other in group)))
        groups = [group for group in groups if one not in group and other not in group] + [merged]
    return [group for group in groups if len(group) <= _MOST]


def are_exclusive(sentence: Sentence, one: Candidate, other: Candidate) -> bool:
    """Return whether no document can have both values, and the question does not list them as alternatives."""
    values = sentence.vocabulary.catalogue.fields[one.field]
    return (
        one.field == other.field
        and values.field.type != "list"
        and sentence.vocabulary.roles[one.field] != "version"  # "3.9 to 3.11" is a range
        and not {match.value for match in one.matches} & {match.value for match in other.matches}
        and not _is_listed(sentence, one, other)
    )


def _is_listed(sentence: Sentence, one: Candidate, other: Candidate) -> bool:
    """Return whether the question lists two values as alternatives: "Ann or Bo", "guides and blog posts".

    "And" or a mark lists them, unless other words show that one may have another field: "Ann wrote, Bo checked".
    """
    before, behind = sorted((one.mention, other.mention), key=lambda mention: mention.first)
    if has_or_between(sentence, before.end, behind.start):
        return True
    if are_joined(sentence, before, behind):
        gap = sentence.text[before.end : behind.start]
        if not gap or gap.strip():
            return True  # 明清 ("Ming and Qing"), "open, closed"
        return all(each.matches[0].kind == "exact" for each in (one, other))  # not "[returned] [loans]"
    if _is_parallel(sentence, before, behind):
        return True
    between = [place for place in range(before.last, behind.first) if sentence.mention_at(place) is None]
    if not any(sentence.folded(place) in _LISTING for place in between):
        return False
    return one.field_count == other.field_count == 1 or not any(
        is_content_word(sentence, place) or sentence.cue_fields(place)
        for place in between
        if not sentence.is_noun(place)
    )


def _is_parallel(sentence: Sentence, before: Mention, behind: Mention) -> bool:
    """Return whether the same is said of two names: "Ann's visits and Bo's visits", "led by Ann, led by Bo"."""
    leads = [sentence.folded(each.first - 1) for each in (before, behind)]
    cued = [cued_fields_beside(sentence, each, before=True) for each in (before, behind)]
    if leads[0] == leads[1] and leads[0].isalpha() and cued[0] == cued[1]:
        return True
    follows, other = _word_after(sentence, before), _word_after(sentence, behind)
    is_owned = all(sentence.text[each.end : each.end + 2] in ("'s", "’s") for each in (before, behind))
    return bool(follows) and (follows == other or (is_owned and not other))


def _word_after(sentence: Sentence, mention: Mention) -> str:
    """Return the stem of the word after a name, without further names and a possessive; "" if none follows."""
    place = mention.last
    while sentence.mention_at(place) is not None or sentence.folded(place) in ("'", "’", "s", "的"):
        place += 1
    token = sentence.token(place)
    is_word = token is not None and token.kind in ("word", "cjk") and token.folded not in _LISTING
    return token.stem if token is not None and is_word else ""


def _decided(sentence: Sentence, likely: Mapping[int, Sequence[ScoredCandidate]]) -> dict[int, list[ScoredCandidate]]:
    """Return the candidates with the probability that each has among all ways to give the names different fields."""
    names = list(likely.values())
    clashes = {
        (one, place, other, rival)
        for (one, named), (other, rivals) in combinations(enumerate(names), 2)
        for place, rival in product(range(len(named)), range(len(rivals)))
        if are_exclusive(sentence, named[place].candidate, rivals[rival].candidate)
    }
    weights: dict[tuple[int, ...], float] = {}
    for taken in product(*(range(len(named) + 1) for named in names)):  # the last place: no constraint
        if not any((*one, *other) in clashes for one, other in combinations(enumerate(taken), 2)):
            weights[taken] = prod(
                named[place].probability
                if place < len(named)
                else max(1 - sum(rival.probability for rival in named), _NONE)
                for place, named in zip(taken, names, strict=True)
            )
    best = max(weights, key=weights.__getitem__)
    is_dropped = any(
        place == len(named) and named[0].probability >= BOOSTS_FROM for place, named in zip(best, names, strict=True)
    )
    complete = [
        taken for taken in weights if all(place < len(named) for place, named in zip(taken, names, strict=True))
    ]
    rival = max((weights[taken] for taken in complete if taken != best), default=0.0)
    if is_dropped or weights[best] < _CLEARER * rival:
        return {first: list(named) for first, named in likely.items()}  # nothing tells which name has which field
    total = sum(weights.values())
    made = {}
    for number, (first, named) in enumerate(likely.items()):
        again = []
        for place, one in enumerate(named):
            share = sum(weight for taken, weight in weights.items() if taken[number] == place) / total
            if best[number] == place and share >= _CLEAR:
                share = max(share, one.probability)
            again.append(one._replace(probability=share, own_probability=min(one.own_probability, share)))
        made[first] = sorted(again, key=lambda one: -one.probability)
    return made
