"""Shares: what percentage of some records (the whole) also satisfies a further condition (the part)."""

from agent.intent.calculation.groups import read_group, read_ranked_group, read_several
from agent.intent.calculation.question import Calculation, Question, pieces_of
from agent.intent.calculation.slots import read_decimals, read_order
from agent.intent.filter_json import Json, both
from agent.intent.found import Piece
from agent.intent.text import has_chinese
from agent.intent.vocabulary import concepts_of

_SAYING = frozenset(
    """
    is are was were got get have has had did do does became become ended carry carried made came dated date dates
    是 占 被 为
    """.split()
)


def read_share(question: Question) -> Calculation | None:
    """Return the share that is asked for: "what share of the permits got denied".

    None if its condition or its group is missing or unclear.
    """
    pieces = pieces_of(question)
    lengths = question.found.lengths
    if not pieces and not lengths and not question.absent:
        return None
    rated = _rated(question, pieces)
    if question.has("rate") and not rated:
        return None
    group, told = read_group(question), read_several(question)
    decimals = read_decimals(question)
    order = read_order(question)
    question.take("share", "rate", "sum", "count", "value")
    part, whole = ((), pieces) if question.absent else _apart(question, pieces, rated)
    conditions = question.absent or [piece.filter for piece in part]
    if not conditions:
        return None
    aggregate: Json = {"op": "share", "where": both(conditions)}
    aggregate["decimals"] = 1 if decimals is None else decimals
    if group is not None and not group.per_record:
        if group.expression in {piece.field for piece in part}:
            return None  # the share of each value is a distribution
        aggregate["group_by"] = group.expression
    elif order is not None:
        if order.kind == "most" and not rated:
            return None
        ranked = read_ranked_group(question, order)
        if ranked is None:
            return None
        aggregate |= {"group_by": ranked.expression, "order": order.direction, "limit": order.limit, "ties": True}
    elif (
        told is not None
        and told.expression not in {piece.field for piece in part}
        and (question.take("versus", "apart") or question.says("versus"))
    ):
        aggregate |= {"group_by": told.expression, "between": list(told.values)}
    return Calculation(aggregate, whole)


def read_part_of_count(question: Question) -> Calculation | None:
    """Return the share asked for with two counts, or None: "how many did Ann write, and how many of them are final"."""
    places = question.of_kind("among")
    counts = question.of_kind("count")
    if not places or len(counts) != 2 or not counts[0] < counts[1]:
        return None
    start = min(question.parts[places[-1]].start, question.parts[counts[1]].start)
    pieces = pieces_of(question)
    part = tuple(piece for piece in pieces if piece.start >= start)
    whole = tuple(piece for piece in pieces if piece not in part)
    if not part or not whole:
        return None
    question.take("count", "sum")
    return Calculation({"op": "share", "where": both([one.filter for one in part]), "decimals": 1}, whole)


def _rated(question: Question, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Return the constraints directly before the word "rate": on "approval" in "the approval rate"; () if none."""
    for place in question.of_kind("rate"):
        start = question.parts[place].start
        near = [piece for piece in pieces if 0 <= start - piece.end <= 1]
        if near:
            return tuple(near)
    return ()


def _apart(
    question: Question, pieces: tuple[Piece, ...], rated: tuple[Piece, ...]
) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Return (constraints for the numerator of the share, constraints for all records that it is a share of).

    Args:
        rated: the constraints directly before the word "rate"; if there are any, they are the first item.
    """
    if rated:
        return rated, tuple(piece for piece in pieces if piece not in rated)
    if question.found.lengths:
        return question.found.lengths, pieces
    existing = tuple(piece for piece in pieces if piece.filter["type"] == "exists")
    if existing and len(existing) < len(pieces):
        return existing, tuple(piece for piece in pieces if piece not in existing)
    among = next((question.parts[place] for place in question.of_kind("among")), None)
    if among is not None and has_chinese(question.found.sentence.text[among.start : among.end]):
        inside = _inside_zh(question, pieces, among.start)
        if inside and len(inside) < len(pieces):
            return tuple(piece for piece in pieces if piece not in inside), inside
    return _by_place(question, pieces)


def _inside_zh(question: Question, pieces: tuple[Piece, ...], end: int) -> tuple[Piece, ...]:
    """Return the constraints on all records that a Chinese share is of; they precede 里 ("among").

    [打包提案]里 Final 占多少 ("how many of the [packaging proposals] are final"). `end` is the position of 里.
    """
    start = question.found.sentence.text.rfind("在", 0, end)
    return tuple(piece for piece in pieces if start <= piece.start < end)


def _by_place(question: Question, pieces: tuple[Piece, ...]) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Return (constraints for the numerator of the share, constraints for all records), judged by their order.

    "the share of A that are B" -> (B, A). "the share of A in 2025" -> (A, 2025), because a date belongs to all records.
    """
    sentence, dates = question.found.sentence, question.columns.dates()
    share = question.parts[question.of_kind("share", "rate")[0]]
    verbs = [token for token in sentence.tokens if token.folded in _SAYING and token.start > share.end]
    verb = next((token for token in verbs if token.start > pieces[0].end), None)
    behind = tuple(piece for piece in pieces if verb is not None and piece.start >= verb.end)
    # In "were P2 last year" the date belongs to the whole. It is the part only if nothing else follows the verb.
    behind = tuple(piece for piece in behind if piece.field not in dates) or behind
    if behind and len(behind) < len(pieces):
        return behind, tuple(piece for piece in pieces if piece not in behind)
    undated = [piece for piece in pieces if piece.field not in dates]
    said = [piece for piece in undated if "kind" not in concepts_of(piece.field)] or undated or list(pieces)
    leads = question.parts[question.of_kind("share", "rate")[0]].kind == "share" and not any(
        token.start > said[0].end for token in verbs
    )
    chosen = said[0] if leads and len(said) > 1 and sentence.text.isascii() else said[-1]
    return (chosen,), tuple(piece for piece in pieces if piece is not chosen)
