"""Let the words of a question make one condition only: the longer name that is read covers the words in it."""

from dataclasses import replace

from agent.intent.deciding import Constraint
from agent.intent.found import Found, Piece


def without_covered(found: Found) -> Found:
    """Drop a condition on words inside a longer name that is a condition: "solar" in "solar panel"."""
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
