"""What a calculation would leave out: denials, choices and numbers of which no constraint was made."""

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


def unread_numbers(found: Found) -> list[tuple[int, int]]:
    """The characters of numbers of which neither a field, nor a date, nor the length of a list was made."""
    sentence = found.sentence
    read = [(one.start, one.end) for one in (*found.pieces, *found.lengths)]
    read += [(one.start, one.end) for one in found.dates]
    read += [(one.start, one.end) for one in sentence.mentions]
    for pattern in (wording.TOP_N, wording.DECIMALS, wording.NTH):
        read += [match.span() for match in pattern.finditer(sentence.text)]
    numbers = [(token.start, token.end) for token in sentence.tokens if token.kind == "number"]
    numbers += [match.span() for match in wording.NUMBER_WORD.finditer(sentence.text)]
    # "only one", which is no number word elsewhere.
    only = [match.span() for match in wording.EXACTLY.finditer(sentence.text)]
    numbers += [one for one in only if not any(one[0] <= start < one[1] for start, _ in numbers)]
    unread = [one for one in numbers if all(one[1] <= start or end <= one[0] for start, end in read)]
    return [*unread, *found.unread_dates]
