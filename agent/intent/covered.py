"""Find conditions that were misread: on words inside a longer name, or two that no document can satisfy together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from agent.intent.deciding import Constraint
from agent.intent.filter_json import values_allowed
from agent.intent.found import Found, Piece
from retrievers.core.types import FieldValues


def without_covered(found: Found) -> Found:
    """Drop conditions on words inside a longer name that is a condition on another field: "solar" in "solar panel"."""
    stated = {(one.field, value) for one in found.constraints for value in one.values}
    names = [one for one in found.sentence.mentions if any((known.field, known.value) in stated for known in one.known)]
    if not names:
        return found

    def is_inside(one: Constraint | Piece) -> bool:
        return any(
            name.start <= one.start and one.end <= name.end and one.end - one.start < name.end - name.start
            and not name.of(one.field)
            for name in names
        )  # fmt: skip

    constraints = tuple(one for one in found.constraints if not is_inside(one))
    return replace(found, constraints=constraints, pieces=tuple(one for one in found.pieces if not is_inside(one)))


def contradict(pieces: Sequence[Piece], fields: Mapping[str, FieldValues]) -> bool:
    """Return whether two conditions on a field exclude each other, such as blue and black, so that one is misread."""
    single = [
        (one.field, set(values_allowed(one.filter)))
        for one in pieces
        if one.filter["type"] in ("eq", "in") and one.field in fields and fields[one.field].field.type != "list"
    ]
    return any(
        field == other and values.isdisjoint(others) for (field, values), (other, others) in combinations(single, 2)
    )
