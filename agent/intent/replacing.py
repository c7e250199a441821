"""Conditions of a follow-up beside those of the turns before: which of them stay, and what is said anew of a field."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent.intent import wording
from agent.intent.filters import Json, excludes, keys_named
from agent.intent.found import Found, Piece
from agent.intent.reading import LIKELY, SURE
from agent.intent.versions import version_numbers

_YEAR_BESIDE = re.compile(
    r"\b(?:the\s+)?year\s+(?:(?P<before>before|earlier|prior)|(?P<after>after|later))\b|"
    r"\bthe\s+(?:(?P<before2>previous|preceding|prior)|(?P<after2>next|following))\s+year\b|"
    r"(?P<before3>前一年|上一年|再往前一年)|(?P<after3>后一年|下一年|再往后一年)",
    re.IGNORECASE,
)
_VERSION_BESIDE = re.compile(
    r"\b(?:(?P<before>previous|preceding|prior)|(?P<after>next|following))\s+(?:version|release)\b|"
    r"\b(?:version|release)\s+(?:right\s+|just\s+|directly\s+)?(?:(?P<before2>before|prior)|(?P<after2>after))\b|"
    r"(?P<before3>[上前]一个?版)|(?P<after3>[下后]一个?版)",
    re.IGNORECASE,
)
_VERSION = re.compile(r"\d+(?:\.\d+)*")
_PLAIN = ("eq", "in")
_OPPOSITE = {"ne": "eq", "nin": "in"}


def on_the_same_date(found: Found, before: Found) -> Found:
    """The turn with its days in the field of those before, unless a word says another: "denied in 2023", "2024?"."""
    dates = found.sentence.vocabulary.of_role("date")
    field = next((piece.field for piece in before.pieces if piece.field in dates), None)
    cued = {name for _, names in found.sentence.cued for name in names}
    if field is None:
        return found
    return replace(
        found,
        pieces=tuple(
            replace(piece, field=field, filter=_keyed(piece.filter, field))
            if piece.field in dates and piece.field not in cued
            else piece
            for piece in found.pieces
        ),
    )


def in_the_same_fields(found: Found, before: Found) -> Found:
    """The turn with its values in the fields of those before, unless a word says another: "same for Ito" of authors."""
    cued = {name for _, names in found.sentence.cued for name in names}
    fields = found.sentence.vocabulary.catalogue.fields
    asked = [one.field for one in before.pieces if one.filter["type"] in _PLAIN]
    pieces = []
    for piece in found.pieces:
        inner = piece.filter.get("filters", [piece.filter])
        values = {str(one.get("value")) for one in inner if one["type"] == "eq"}
        keys = {one.get("key") for one in inner}
        field = next((name for name in asked if name in keys or values <= fields[name].values.keys()), None)
        if len(values) == 1 and field is not None and keys != {field} and keys.isdisjoint(cued - {field}):
            piece = replace(piece, field=field, filter={"type": "eq", "key": field, "value": inner[0]["value"]})
        pieces.append(piece)
    return replace(found, pieces=tuple(pieces))


def _keyed(filter: Any, field: str) -> Json:
    """The condition on another field."""
    if "filters" in filter:
        return {**filter, "filters": [_keyed(one, field) for one in filter["filters"]]}
    return {**filter, "filter": _keyed(filter["filter"], field)} if "filter" in filter else {**filter, "key": field}


def excluded(piece: Piece) -> Piece:
    """ "drop the drafts": the opposite of what the value alone says."""
    if excludes(piece.filter):
        return piece
    opposite = {"eq": "ne", "in": "nin"}.get(piece.filter["type"])
    filter: Json = {**piece.filter, "type": opposite} if opposite else {"type": "not", "filter": piece.filter}
    return replace(piece, filter=filter)


def included(piece: Piece) -> Piece:
    """ "drop everything but the approved": what the value alone says."""
    plain = _OPPOSITE.get(piece.filter["type"])
    return replace(piece, filter={**piece.filter, "type": plain}) if plain else piece


def overridden(before: Sequence[Piece], now: Sequence[Piece], grouped: str | None = None) -> tuple[Piece, ...]:
    """Constraints taken over, but for fields that are stated anew or counted by; what is excluded now stays beside."""
    stated = {grouped, *(key for piece in now if not excludes(piece.filter) for key in keys_named(piece.filter))}
    denied = [
        {**piece.filter, "type": _OPPOSITE[piece.filter["type"]]} for piece in now if piece.filter["type"] in _OPPOSITE
    ]
    kept = (one for one in before if stated.isdisjoint(keys_named(one.filter)) and one.filter not in denied)
    return (*kept, *now)


def year_beside(found: Found, before: Found) -> Piece | None:
    """ "and the year before?": the range of the question before, a year away."""
    said = _YEAR_BESIDE.search(found.sentence.text)
    dates = found.sentence.vocabulary.of_role("date")
    piece = next((piece for piece in before.pieces if piece.field in dates), None)
    if said is None or piece is None or len(before.dates) != 1 or not before.dates[0].period.is_bounded:
        return None
    earlier = any(value and name.startswith("before") for name, value in said.groupdict().items())
    return replace(piece, filter=_moved(piece.filter, -1 if earlier else 1), start=0, end=0)


def version_beside(found: Found, before: Found) -> Piece | None:
    """ "and the next version?": the version that follows that of the question before, among those that there are."""
    said = _VERSION_BESIDE.search(found.sentence.text)
    versions = found.sentence.vocabulary.of_role("version")
    piece = next((one for one in before.pieces if one.field in versions and one.filter["type"] == "eq"), None)
    if said is None or piece is None or wording.YES_OR_NO.search(found.sentence.text):
        return None  # "was it in the next release?" asks about what was found
    values = found.sentence.vocabulary.catalogue.fields[piece.field].values
    known = sorted(filter(_VERSION.fullmatch, values), key=version_numbers)
    earlier = any(value and name.startswith("before") for name, value in said.groupdict().items())
    place = known.index(piece.filter["value"]) + (-1 if earlier else 1) if piece.filter["value"] in known else -1
    return _equal_to(piece, known[place]) if 0 <= place < len(known) else None


def _equal_to(piece: Piece, value: str) -> Piece:
    return replace(piece, filter={**piece.filter, "value": value}, start=0, end=0)


def _moved(filter: Any, years: int) -> Json:
    if "filters" in filter:
        return {**filter, "filters": [_moved(one, years) for one in filter["filters"]]}
    value = str(filter["value"])
    return {**filter, "value": f"{int(value[:4]) + years:04d}{value[4:]}"}


def firm(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The conditions, the likely ones as sure: who goes on from them takes them as such."""
    return tuple(
        replace(one, confidence=max(one.confidence, SURE)) if one.confidence >= LIKELY else one for one in pieces
    )
