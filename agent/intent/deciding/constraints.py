"""Make constraints of the values that a question names, each with a probability; unlikely ones are topics instead.

The probability is learned, see `candidate_scoring`. A filter excludes documents, so a list of alternatives is only as
sure as its least sure member, and is not sure if it may contain an unknown name.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from agent.intent.analysis.sentence import Sentence
from agent.intent.analysis.word_classes import has_or_between, word_class_before
from agent.intent.deciding.best_match import closest_values
from agent.intent.deciding.candidate_scoring import ScoredCandidate, score_candidates
from agent.intent.deciding.exclusive_values import are_exclusive, resolve_exclusive_values
from agent.intent.deciding.false_matches import is_determiner
from agent.intent.deciding.features import Candidate, are_joined, cued_fields_beside, is_content_word
from agent.intent.language import calculation_patterns
from agent.intent.reading import BOOSTS_FROM, FILTERS_FROM
from agent.intent.values.value_linking import Mention
from agent.intent.words import word_table

_CLOSE = 24
"""Maximum characters between two values of one phrase."""
UNCLEAR_PROBABILITY = 0.55
"""Probability of a condition that may or may not be meant: it boosts documents, but does not filter."""
_MOST = 0.98
_LONGEST_CUE = 4
"""Maximum tokens of a cue, a phrase that points at a field."""
_OR = frozenset("or either 或".split())
_BETWEEN = frozenset("to through than vs versus against 到 至 比".split())
_AND = frozenset("and , 、 ， 和 与 及 &".split())
_DENIED_ZH = re.compile(r"(?:尚未|未被?|并非|非|不是|没有?被?)$")


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition on a field, and the characters of the question that state it.

    Attributes:
        values: a document must have one of them; none of them if `negated`.
        requires_all: True if a document must have all `values` ("both A and B").
        confidence: the probability that the condition is meant.
        alternative_fields: other fields that satisfy the condition as well ("written or reviewed by").
    """

    field: str
    values: tuple[str, ...]
    start: int
    end: int
    negated: bool = False
    requires_all: bool = False
    confidence: float = 1.0
    alternative_fields: tuple[str, ...] = ()


DENIED_FILTERS_FROM = 0.75
"""Minimum probability at which a value filters if the question denies it for certain."""


def read_constraints(sentence: Sentence) -> tuple[list[Constraint], list[Mention]]:
    """Return the constraints that named values make, and the mentions that make none, in order of the question.

    A mention is a name of values in the question. It makes no constraint if it is a topic or unclear.
    """
    made: list[tuple[Mention, Constraint]] = []
    left: list[Mention] = []
    likely = resolve_exclusive_values(sentence, score_candidates(sentence))
    for mention in sentence.mentions:
        if mention.first not in likely:
            continue
        one = _constraint(sentence, mention, likely[mention.first])
        if one is None:
            left.append(mention)
        else:
            made.append((mention, one))
    made = _lower_field_choices(sentence, _lower_determiners(sentence, _follow_surer_neighbour(sentence, made)))
    unsure = [pair for pair in made if pair[1].confidence < BOOSTS_FROM or _stands_apart(sentence, *pair, made)]
    joined = _join_constraints(sentence, [one for mention, one in made if (mention, one) not in unsure])
    left += [mention for mention, _ in unsure]
    doubtful = {mention.first: likely[mention.first] for mention in left}
    return [_with_adjusted_confidence(sentence, one, doubtful) for one in joined], sorted(
        left, key=lambda mention: mention.first
    )


def _constraint(sentence: Sentence, mention: Mention, likely: Sequence[ScoredCandidate]) -> Constraint | None:
    """Return the likeliest constraint that a name makes; None if it cannot be one.

    The name is meant in one field only, so the probabilities of its fields and of no constraint compete.

    Args:
        likely: the candidates of the name, one for each field, the likeliest first.
    """
    negated = sentence.negations.get(mention.first, False)
    if not likely or negated is None:
        return None
    (one, confidence, own_probability), *rivals = likely
    alternative_fields: tuple[str, ...] = ()
    if (
        rivals
        and confidence < FILTERS_FROM
        and own_probability >= BOOSTS_FROM
        and _has_same_values(one, rivals[0].candidate)
    ):
        of_either = min(1 - (1 - own_probability) * (1 - rivals[0].own_probability), _MOST)
        if (rivals[0].own_probability if negated else of_either) >= FILTERS_FROM:
            # Either field will do, which excludes fewer documents than one of them. A denial applies to both fields.
            alternative_fields, confidence = (rivals[0].candidate.field,), of_either
    for other in rivals:
        field = other.candidate.field
        if (
            not negated
            and not alternative_fields
            and _has_same_values(one, other.candidate)
            and _or_joins_fields(sentence, one.field, field)
        ):
            alternative_fields, confidence = (field,), min(confidence + other.probability, _MOST)
    start, end = sentence.extent(mention, one.field)
    denial = _DENIED_ZH.search(sentence.text[:start]) if negated else None
    start = denial.start() if denial is not None else start
    values = tuple(dict.fromkeys(known.value for known in one.matches))
    return Constraint(
        one.field, values, start, end, negated, confidence=round(confidence, 3), alternative_fields=alternative_fields
    )


def _or_joins_fields(sentence: Sentence, one: str, other: str) -> bool:
    """Return whether "or" joins words for two fields: "wrote or sponsored", 作者或审阅人 ("author or reviewer")."""
    for place, token in enumerate(sentence.tokens):
        if token.folded not in _OR:
            continue
        firsts = range(max(place - _LONGEST_CUE, 0), place)
        before = {field for first in firsts if sentence.cue(first)[1] == place for field in sentence.cue_fields(first)}
        last = _skip_article(sentence, place + 1)
        behind = set(sentence.cue_fields(last))
        if before and not behind and sentence.folded(last).endswith("ed") and sentence.mention_at(last) is None:
            behind = {one, other} - before  # "requested or [okayed]": a verb that is no cue of any field
        if (one in before and other in behind) or (other in before and one in behind):
            return True
    return False


def _has_same_values(one: Candidate, other: Candidate) -> bool:
    return {known.value for known in one.matches} == {known.value for known in other.matches}


def _follow_surer_neighbour(
    sentence: Sentence, made: list[tuple[Mention, Constraint]]
) -> list[tuple[Mention, Constraint]]:
    """Move the constraints of unsure names to the field of a surer name beside them, if they name a value there, too.

    Such a constraint gets the surer one's probability if it was likely and on the same field already, else their mean.
    """
    alike = []
    for mention, one in made:
        beside = [pair for pair in made if pair[0] is not mention and are_joined(sentence, mention, pair[0])]
        other, second = max(beside, key=lambda pair: pair[1].confidence, default=(mention, one))
        values = closest_values(sentence, mention.matches_in(second.field))
        is_same_field = one.field == second.field
        is_surer = bool(values) and second.confidence > one.confidence
        if is_surer and (is_same_field or one.confidence < FILTERS_FROM):
            rival = Candidate(other, second.field, other.matches_in(second.field))
            if are_exclusive(sentence, Candidate(mention, second.field, values), rival):
                alike.append((mention, one))
                continue
            names = tuple(dict.fromkeys(value.value for value in values))
            of_both = is_same_field and one.confidence >= BOOSTS_FROM
            confidence = second.confidence if of_both else round((one.confidence + second.confidence) / 2, 3)
            one = replace(
                one,
                field=second.field,
                values=names,
                alternative_fields=second.alternative_fields,
                confidence=confidence,
            )
        alike.append((mention, one))
    return alike


def _lower_determiners(sentence: Sentence, made: list[tuple[Mention, Constraint]]) -> list[tuple[Mention, Constraint]]:
    """Lower the probability of conditions on words like "other", unless it is shown that a value is meant.

    A word for the field beside "other" shows that, or a sure value of the field joined with it: "open or [other]".
    """
    sure = [(mention, one) for mention, one in made if not is_determiner(sentence, mention)]

    def is_meant(mention: Mention, one: Constraint) -> bool:
        beside = cued_fields_beside(sentence, mention, before=True) | cued_fields_beside(
            sentence, mention, before=False
        )
        return one.field in beside or any(
            second.field == one.field
            and second.confidence >= FILTERS_FROM
            and are_joined(sentence, mention, other)
            and sentence.text[min(mention.end, other.end) : max(mention.start, other.start)].strip()
            for other, second in sure
        )

    return [
        (mention, one)
        if not is_determiner(sentence, mention) or is_meant(mention, one)
        else (mention, replace(one, confidence=min(one.confidence, UNCLEAR_PROBABILITY)))
        for mention, one in made
    ]


def _lower_field_choices(
    sentence: Sentence, made: list[tuple[Mention, Constraint]]
) -> list[tuple[Mention, Constraint]]:
    """Lower the probability of two neighbours if "or" joins words for their fields: "by Ann or about rent"."""
    unclear = {
        place
        for place, ((_, one), (_, other)) in enumerate(pairwise(made))
        if (one.field, one.alternative_fields) != (other.field, other.alternative_fields)
        and not (one.negated or other.negated)
        and other.start - one.end < _CLOSE
        and _or_joins_names(sentence, one, other)
        and not any(
            _or_joins_fields(sentence, each.field, field) for each in (one, other) for field in each.alternative_fields
        )
    }
    return [
        (
            mention,
            replace(one, confidence=min(one.confidence, UNCLEAR_PROBABILITY)) if {place, place - 1} & unclear else one,
        )
        for place, (mention, one) in enumerate(made)
    ]


def _or_joins_names(sentence: Sentence, one: Constraint, other: Constraint) -> bool:
    """Return whether "or" joins two names with no content word between: not in "by Ann about [fail-over] or rent"."""
    between = range(sentence.index_from(one.end), sentence.index_from(other.start))
    return has_or_between(sentence, one.end, other.start) and not any(
        is_content_word(sentence, place) and sentence.folded(place) not in _OR for place in between
    )


def _words_of(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+|[^\sa-z]", text))


def _stands_apart(
    sentence: Sentence, mention: Mention, one: Constraint, made: Sequence[tuple[Mention, Constraint]]
) -> bool:
    """Return whether an unsure value stands apart from a sure value of the same field: "[closed] as won't fix"."""
    if one.confidence >= FILTERS_FROM or one.negated:
        return False
    others = [(over, other) for over, other in made if other.field == one.field and over is not mention]
    return any(other.confidence >= FILTERS_FROM and not other.negated for _, other in others) and not any(
        are_joined(sentence, mention, over)
        or has_or_between(sentence, min(one.end, other.end), max(one.start, other.start))  # "general cargo or [ro-ro]"
        for over, other in others
    )


def _join_constraints(sentence: Sentence, found: list[Constraint]) -> list[Constraint]:
    """Join the constraints with the same `_join_key` into one: their values are alternatives, or all required ("both").

    A negated constraint is dropped if the field has a single value and the question also says which.
    """
    joined: list[Constraint] = []
    for one in sorted(found, key=lambda one: one.start):
        if any(other.field == one.field and set(other.values) < set(one.values) for other in found):
            continue  # a person, who is one of all the people at a domain
        same = _join_key(one)
        place = next((n for n, other in enumerate(joined) if _join_key(other) == same), None)
        if place is None:
            joined.append(one)
            continue
        other = joined[place]
        joined[place] = replace(
            other,
            values=tuple(dict.fromkeys((*other.values, *one.values))),
            start=min(other.start, one.start),
            end=max(other.end, one.end) if one.start - other.end < _CLOSE else other.end,
            requires_all=other.requires_all or _requires_all_values(sentence, other, one),
            # A part of a name that also stands there in full makes it no less sure.
            confidence=(max if set(one.values) <= set(other.values) else min)(other.confidence, one.confidence),
        )
    positive = {one.field for one in joined if not one.negated and not one.requires_all}
    lists = {name for name, values in sentence.vocabulary.catalogue.fields.items() if values.field.type == "list"}
    # "Accepted, not Final yet": for a field with a single value the positive condition is enough.
    return [one for one in joined if not one.negated or one.field not in positive or one.field in lists]


def _join_key(one: Constraint) -> tuple[object, ...]:
    """Return the key of a constraint: those with equal keys are joined.

    Sure and unsure negations have different keys. Joined, they would be unsure, and then none of them would filter.
    """
    return one.field, one.negated, one.alternative_fields, one.negated and one.confidence < DENIED_FILTERS_FROM


def _with_adjusted_confidence(
    sentence: Sentence, one: Constraint, left: Mapping[int, Sequence[ScoredCandidate]]
) -> Constraint:
    """Return the constraint, less sure if an unknown or unsure word may be an alternative; surer if denied and likely.

    Args:
        left: the candidates of names that made no constraint, by the name's first token.
    """
    if one.negated:
        # A value that a question denies is hardly ever its topic.
        return (
            replace(one, confidence=max(one.confidence, FILTERS_FROM)) if one.confidence >= DENIED_FILTERS_FROM else one
        )
    return (
        replace(one, confidence=min(one.confidence, BOOSTS_FROM))
        if _has_unknown_alternative(sentence, one, left)
        else one
    )


def _has_unknown_alternative(
    sentence: Sentence, one: Constraint, left: Mapping[int, Sequence[ScoredCandidate]]
) -> bool:
    """Return whether a word without a constraint is an alternative: "by Ann or [Zoe]", "guides and [blog] posts"."""
    first, last = sentence.index_from(one.start), sentence.index_from(one.end)
    before = _is_unknown_word(sentence, first - 2) and _offers_alternative(sentence, first - 1, one)
    if before or (
        _offers_alternative(sentence, last, one) and _is_unknown_word(sentence, _skip_article(sentence, last + 1))
    ):
        return True
    while sentence.is_noun(last):
        last += 1
    return sentence.folded(last) in ("and", "or", "&") and any(
        first == _skip_article(sentence, last + 1)
        and other.candidate.field == one.field
        and other.probability > 1 - FILTERS_FROM
        for first, likely in left.items()
        for other in likely
    )


def _offers_alternative(sentence: Sentence, place: int, one: Constraint) -> bool:
    """Return whether the token at `place` offers a choice: "or", and between people also "and"."""
    token = sentence.token(place)
    of_people = sentence.vocabulary.roles.get(one.field) == "person"
    return token is not None and (token.folded in _OR or (of_people and token.folded in ("and", "&")))


def _skip_article(sentence: Sentence, place: int) -> int:
    return place + (sentence.folded(place) in ("the", "a", "an", "者"))


def _is_unknown_word(sentence: Sentence, place: int) -> bool:
    token = sentence.token(place)
    taken = token is not None and any(first <= token.start < last for first, last in sentence.used_spans)
    # "and [handled] by Bo", "Ann [reported] and Bo"
    is_verb = token is not None and token.folded.endswith("ed") and sentence.folded(place + 1) == "by"
    people = sentence.vocabulary.of_role("person")
    is_deed = sentence.folded(place).endswith("ed") and sentence.folded(place + 1) in ("and", "&")
    is_verb = is_verb or (is_deed and any(one.last == place and one.matches_in(*people) for one in sentence.mentions))
    return token is not None and is_content_word(sentence, place) and not taken and not is_verb


def _requires_all_values(sentence: Sentence, one: Constraint, other: Constraint) -> bool:
    """Return whether documents must have the values of both constraints, on a list field: "both asbestos and lead"."""
    if sentence.vocabulary.catalogue.fields[one.field].field.type != "list":
        return False
    between = sentence.text[one.end : other.start].casefold()
    words = _words_of(between)
    behind = sentence.text[other.end :]
    if words & _OR or calculation_patterns.EACH.search(behind) or calculation_patterns.COMPARED.search(behind):
        return False  # "A and B each", "A 和 B 谁写得多": one after the other
    head = sentence.text[max(0, one.start - 20) : one.start].casefold()
    if any(word in f"{head} {between}" for word in word_table("link")["together"]):
        return True
    if not words <= _AND:
        is_range = sentence.vocabulary.roles[one.field] == "version" or bool(words & _BETWEEN)
        return not (is_range or sentence.has_calculation_word)
    having = word_class_before(sentence, sentence.index_from(one.start) - 1, one.start) in ("with", "being")
    stacked = not words and sentence.vocabulary.roles[one.field] != "version"
    held = sentence.vocabulary.catalogue.cooccurrence
    occurs = held.documents_with_values(one.field, one.values) & held.documents_with_values(one.field, other.values)
    return sentence.vocabulary.roles[one.field] == "person" or having or stacked or bool(occurs)
