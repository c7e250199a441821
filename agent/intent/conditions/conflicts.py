"""Detect misread conditions: on a word inside a longer name, or two that no document can satisfy together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from agent.intent.conditions.filter_json import filter_values
from agent.intent.conditions.question_parser import ParsedQuestion, StatedCondition
from agent.intent.deciding.constraints import Constraint
from retrievers.core.types import FieldValues


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
