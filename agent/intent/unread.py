"""What a reading would leave out: denials and choices of which no constraint was made."""

from agent.intent import wording
from agent.intent.filters import Json
from agent.intent.found import Found


def leaves_out(found: Found) -> bool:
    """Whether the words deny something, or offer a choice, of which no constraint was made."""
    sentence = found.sentence
    filters = [piece.filter for piece in (*found.pieces, *found.lengths)]
    denies = any(one.negated for one in found.constraints) or any(
        one["type"] in ("ne", "nin", "lt", "lte")
        or (one["type"] in ("exists", "eq") and one["value"] is False)
        or _is_outside(one)
        for one in filters
    )
    if wording.DENYING.search(sentence.text) and not denies:
        return True
    fields = {one.field for one in found.constraints}
    chooses = any(len(one.values) > 1 or one.also for one in found.constraints) or len(found.dates) > 1
    return len(fields) > 1 and not chooses and wording.CHOOSING.search(sentence.text) is not None


def _is_outside(filter: Json) -> bool:
    """Whether it is what lies outside of a range: "not in 2025"."""
    return filter["type"] == "or" and [one["type"] for one in filter["filters"]] == ["lt", "gte"]
