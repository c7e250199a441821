"""Shares and differences: how much of a whole is a part, how many more one group has than another."""

import re
from dataclasses import replace

from agent.intent import wording
from agent.intent.asked import (
    compared_group,
    counts_documents,
    existence_asked,
    group_asked,
    is_condition,
    is_length,
    number_asked,
    several_asked,
)
from agent.intent.calculation import Calculation
from agent.intent.filters import Json, both
from agent.intent.found import Found, Piece
from agent.intent.topic import topic_of
from agent.intent.vocabulary import concepts_of


def share(found: Found) -> Calculation | None:
    """ "what share of the permits got denied": of the A, how many percent are B."""
    made = _share(found)
    if made is None or "group_by" in made.aggregate or not wording.VERSUS.search(found.sentence.text):
        return made
    several = several_asked(found)
    if several is None or several[0] not in {piece.field for piece in made.pieces}:
        return made
    # "the approval rate in Old Town versus Lakeview"
    return replace(made, aggregate={**made.aggregate, "group_by": several[0], "between": list(several[1])})


def _share(found: Found) -> Calculation | None:
    text, pieces = found.sentence.text, found.pieces
    if not wording.SHARE.search(text):
        return None
    if wording.OF_EACH.search(text):
        return None  # "what share is from each district" tells a distribution
    group = group_asked(found)
    if group is not None and pieces and group not in {piece.field for piece in pieces}:
        # "for every type, what percentage was withdrawn"
        part, whole = _part_and_whole(found)
        condition = both([piece.filter for piece in part])
        return Calculation({"op": "share", "where": condition, "group_by": group, "decimals": 1}, whole)
    existing = existence_asked(found)
    # "of those with a sponsor" is the whole.
    if existing is not None and any(piece.field == existing["key"] and piece.filter != existing for piece in pieces):
        existing = None  # "have a budget over 1 million" asks for more than one at all
    if existing is not None and (len(pieces) < 2 or all(piece.filter != existing for piece in pieces)):
        return Calculation({"op": "share", "where": existing, "decimals": 1}, pieces)
    if not pieces and found.lengths and not topic_of(found):
        # "what share of the reports have more than three authors"
        return Calculation({"op": "share", "where": both([one.filter for one in found.lengths]), "decimals": 1}, ())
    if not pieces:
        return None
    rate = wording.RATE.search(text)
    rated = tuple(
        piece for piece in pieces if rate is not None and piece.start < rate.end() and rate.start() < piece.end
    )
    if rate is not None and not rated:
        return None
    if wording.LARGEST.search(text) or wording.SMALLEST.search(text) or wording.MOST.search(text):
        return _ranked(found, rated)
    if rated and len(rated) < len(pieces):
        # "the rejection rate of Ann's reports"
        condition = both([piece.filter for piece in rated])
        whole = tuple(piece for piece in pieces if piece not in rated)
        return Calculation({"op": "share", "where": condition, "decimals": 1}, whole)
    whole_zh = wording.SHARE_OF_ALL_ZH.search(text)
    if whole_zh:
        # 占全部方案 is of the proposals, 占全部 alone of everything.
        named = next((one for one in found.sentence.mentions if 0 <= one.start - whole_zh.end() <= 2), None)
        fields = {one.field for one in named.known} if named is not None else set()
        whole = tuple(piece for piece in pieces if piece.field in fields) if len(pieces) > 1 else ()
        condition = both([piece.filter for piece in pieces if piece not in whole])
        return Calculation({"op": "share", "where": condition, "decimals": 1}, whole)
    part, whole = _part_and_whole(found)
    return Calculation({"op": "share", "where": both([piece.filter for piece in part]), "decimals": 1}, whole)


def _ranked(found: Found, rated: tuple[Piece, ...]) -> Calculation | None:
    """ "which department has the highest approval rate", "the largest share of rejected proposals"."""
    text = found.sentence.text
    group = compared_group(found)
    if group is None or topic_of(found) or not wording.END_OF_SHARES.search(text):
        return None
    part, whole = (
        (rated, tuple(piece for piece in found.pieces if piece not in rated)) if rated else _part_and_whole(found)
    )
    aggregate: Json = {
        "op": "share", "where": both([piece.filter for piece in part]), "group_by": group, "decimals": 1,
        "order": "asc" if wording.SMALLEST.search(text) else "desc", "limit": 1, "ties": True,
    }  # fmt: skip
    return Calculation(aggregate, whole)


def _part_and_whole(found: Found) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Of "the share of A among B" A is the part; else the last constraint is: "what share of B is A"."""
    text, pieces = found.sentence.text, found.pieces
    among = _among(found)
    if among is not None and pieces[0].start < among.start() < pieces[-1].end:
        return (
            tuple(piece for piece in pieces if piece.start < among.start()),
            tuple(piece for piece in pieces if piece.start >= among.start()),
        )
    if pieces[-1].filter["type"] == "exists" and len(pieces) > 1:
        return pieces[-1:], pieces[:-1]  # "what fraction of the drafts lack a sponsor"
    verb = wording.SAYING.search(text, pieces[0].end)
    behind = tuple(piece for piece in pieces if verb is not None and piece.start >= verb.end())
    if wording.SHARE_OF.search(text[: pieces[0].start + 1]) and behind and len(behind) < len(pieces):
        return behind, tuple(piece for piece in pieces if piece not in behind)  # "the share of closed ones that are A"
    dates = found.sentence.vocabulary.of_role("date")
    if pieces[-1].field in dates and len(pieces) > 1 and wording.SAYING.search(text[pieces[-2].end :]):
        return pieces[-1:], pieces[:-1]  # "what share of the rejected ones date from 2003"
    # What the documents are, and when they were made, is the whole: "the share of rejected proposals in 2025".
    others = [piece for piece in pieces if piece.field not in dates]
    said = [piece for piece in others if "kind" not in concepts_of(piece.field)] or others or list(pieces)
    leads = wording.SHARE_OF.search(text) and not wording.SAYING.search(text[said[0].end :])
    part = said[0] if leads else said[-1]
    return (part,), tuple(piece for piece in pieces if piece is not part)


def _among(found: Found) -> re.Match[str] | None:
    """The word that stands before the whole; "with Ann among the authors" is none."""
    sentence = found.sentence
    among = wording.AMONG.search(sentence.text)
    if among is None:
        return None
    index = sentence.index_from(among.end())
    index += sentence.folded(index) in ("the", "its", "their")
    people = sentence.vocabulary.of_role("person")
    return None if set(people) & set(sentence.cue_fields(index)) else among


def part_of_count(found: Found) -> Calculation | None:
    """ "how many did Ann write, and how many of them are final": the part with the whole."""
    of_them = wording.OF_THEM.search(found.sentence.text)
    if of_them is None or not wording.COUNTING.search(found.sentence.text[: of_them.start()]):
        return None
    part = tuple(piece for piece in found.pieces if piece.start >= of_them.start())
    whole = tuple(piece for piece in found.pieces if piece not in part)
    if not part or not whole:
        return None
    return Calculation({"op": "share", "where": both([piece.filter for piece in part]), "decimals": 1}, whole)


def difference(found: Found) -> Calculation | None:
    """ "how many more permits were denied in 2023 than in 2022"."""
    text = found.sentence.text
    if not wording.MORE_THAN.search(text) or wording.WHICH_OF_TWO.search(text):
        return None
    several = several_asked(found)
    if several is None or len(several[1]) != 2 or _is_of_numbers(found):
        return None
    return Calculation({"op": "difference", "group_by": several[0], "between": list(several[1])}, found.pieces)


def _is_of_numbers(found: Found) -> bool:
    """ "the difference in cost", "between the average budgets": both sums, or averages, are shown."""
    text, number = found.sentence.text, number_asked(found)
    if wording.AVERAGE.search(text) or wording.MEDIAN.search(text):
        return True
    return number is not None and not is_length(number) and not (is_condition(found, number) or counts_documents(found))
