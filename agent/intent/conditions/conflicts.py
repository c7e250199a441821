"""Detect misread conditions: on a word inside a longer name, on one of several fields, or two that contradict."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from agent.intent.analysis.person_roles import role_verb_closeness
from agent.intent.analysis.sentence import Sentence
from agent.intent.conditions.filter_json import Json, any_of, filter_values
from agent.intent.conditions.question_parser import ParsedQuestion
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.deciding.best_match import closest_values
from agent.intent.deciding.candidate_scoring import score_candidates
from agent.intent.deciding.constraints import Constraint
from agent.intent.reading import BOOSTS_FROM, FILTERS_FROM
from agent.intent.words import word_table
from retrievers.core.types import FieldValues

_BESIDE_ZH = re.compile(r"\s*(?:之后|以后|之前|以前|后面|前面)")
_CLEARER = 4.0
"""How many times likelier than the others a field of people must be to be meant alone."""


def drop_nested_conditions(parsed: ParsedQuestion) -> ParsedQuestion:
    """Drop conditions on words inside a longer name that is a condition on another field: "solar" in "solar panel"."""
    stated = {(one.field, value) for one in parsed.constraints for value in one.values}
    names = [
        one for one in parsed.sentence.mentions if any((known.field, known.value) in stated for known in one.matches)
    ]
    if not names:
        return parsed

    def is_inside(one: Constraint | StatedCondition) -> bool:
        return any(
            name.start <= one.start and one.end <= name.end and one.end - one.start < name.end - name.start
            and not name.matches_in(one.field)
            for name in names
        )  # fmt: skip

    constraints = tuple(one for one in parsed.constraints if not is_inside(one))
    return replace(
        parsed, constraints=constraints, conditions=tuple(one for one in parsed.conditions if not is_inside(one))
    )


def doubt_if_compared(one: StatedCondition, sentence: Sentence) -> StatedCondition:
    """Return a condition that only boosts if it names the one document that others are compared with, else unchanged.

    "Taller than the Needle", "finished after Ann", 比青鸟低 and 在青鸟之后 ask for others than the one that they name.
    """
    held = sentence.vocabulary.catalogue.fields.get(one.field)
    value = one.filter["value"] if one.filter["type"] == "eq" else None
    if held is None or not isinstance(value, str) or held.values.get(value) != 1:
        return one
    words = word_table("neighbours")
    before = sentence.text[: one.start].casefold().removesuffix("the ").split()
    last = before[-2:-1] if before[-1:] == ["of"] else before[-1:]  # "ahead of Ann"
    beside = {"than", *words["behind"], *words["ahead"]}.intersection(last)
    if beside or sentence.text[: one.start].endswith("比") or _BESIDE_ZH.match(sentence.text, one.end):
        return replace(one, confidence=min(one.confidence, BOOSTS_FROM))
    return one


def are_contradictory(conditions: Sequence[StatedCondition], fields: Mapping[str, FieldValues]) -> bool:
    """Return whether two conditions on a field exclude each other, such as blue and black, so that one is misread."""
    single = [
        (one.field, set(filter_values(one.filter)))
        for one in conditions
        if one.filter["type"] in ("eq", "in") and one.field in fields and fields[one.field].field.type != "list"
    ]
    return any(
        field == other and values.isdisjoint(others) for (field, values), (other, others) in combinations(single, 2)
    )


def in_any_person_field(one: StatedCondition, sentence: Sentence) -> StatedCondition:
    """Return a likely condition on a person's name for all fields of people that hold the name, any other unchanged.

    It is changed only if no word points at its field: "Sommer's proposals" may be those of a student or a supervisor.
    """
    mention = next((mention for mention in sentence.mentions if one.start <= mention.start < one.end), None)
    cued = {name for _, names in sentence.cued_tokens for name in names}
    people = sentence.vocabulary.of_role("person")
    is_sure = one.confidence >= FILTERS_FROM or one.filter["type"] != "eq"
    if mention is None or is_sure or one.field not in people or one.field in cued:
        return one
    fields = dict.fromkeys(match.field for match in mention.matches)
    others = [name for name in fields if name in people and name != one.field]
    if not others:
        return one
    chances = {each.candidate.field: each.probability for each in score_candidates(sentence).get(mention.first, ())}
    least = chances.get(one.field, 0.0) / _CLEARER
    others = [name for name in others if chances.get(name, 0.0) >= least]
    verbs = role_verb_closeness(sentence, mention)
    if verbs.get(one.field, 0.0) > max((verbs.get(name, 0.0) for name in others), default=0.0):
        return one  # "companies that Baker visited"
    known = [match for name in others for match in closest_values(sentence, mention.matches_in(name))]
    also: list[Json] = [{"type": "eq", "key": match.field, "value": match.value} for match in known]
    return replace(one, filter=any_of([one.filter, *also])) if also else one
