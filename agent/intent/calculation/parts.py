"""Split a question into constraints, fields, records, calculating words, fillers and unknown words."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from agent.intent.columns import Column, Columns
from agent.intent.found import Found, Piece
from agent.intent.lexicon import CHINESE_DOCUMENT_NOUNS, CONCEPTS, STOP_WORDS, name_words
from agent.intent.numbers import unit_of
from agent.intent.numerals import parse_exact
from agent.intent.sentence import Sentence
from agent.intent.text import chinese_words
from agent.intent.wording import is_written_as_name
from agent.intent.words import table

UNKNOWN, VALUE, FILLER, FIELD, RECORD, PIECE, NUMBER, MARK, UNIT = (
    "unknown", "value", "filler", "field", "record", "piece", "number", "mark", "unit",
)  # fmt: skip
_SOFT = frozenset(
    """
    filler mark piece record by which who where when people listed name_of having among rank together more fewer
    breakdown exists exactly ratio alone people
    """.split()
)
"""Kinds that need not be used by a slot, because they restrict nothing by themselves."""
_NO_CLASSES = frozenset([FILLER, "phrases", "not_records", "summing_up"])
# The cost of each reading; a question is read at the least total cost.
_COST: Mapping[str, float] = {UNKNOWN: 100, VALUE: 60, FILLER: 2, RECORD: 1, PIECE: 0, NUMBER: 3, MARK: 0, UNIT: 3}
_OF_WORD = 1.0


@dataclass(frozen=True, slots=True)
class Part:
    """A run of tokens [first, last), characters [start, end), with its reading.

    Attributes:
        kind: a class of words in words/*.toml, or one of the constants of this module.
        fields: the fields it points at; a calculating word may be the name of a field as well.
        strength: how strongly it points at them, see `Column`.
        piece: the constraint that the characters state.
        number: its value, if it is a number.
        guessed: True if only its position makes it a word for records.
    """

    kind: str
    first: int
    last: int
    start: int
    end: int
    fields: tuple[str, ...] = ()
    strength: float = 0.0
    piece: Piece | None = None
    number: int | None = None
    guessed: bool = False

    @property
    def is_soft(self) -> bool:
        """Return whether the part may stay unused."""
        return self.kind in _SOFT


@cache
def _phrases() -> dict[tuple[str, ...], str]:
    """Return the class of each phrase by its tokens; a calculating word takes precedence over a filler."""
    found: dict[tuple[str, ...], str] = {}
    words = table("calculation")
    for kind in (FILLER, "phrases", *(name for name in words if name not in _NO_CLASSES)):
        for phrase in words[kind]:
            found[_tokens(phrase)] = FILLER if kind == "phrases" else kind
            if kind in ("most", "fewest", "highest", "lowest") and phrase.isascii():
                found["the", *_tokens(phrase)] = kind
    return found


def says(sentence: Sentence, kind: str) -> bool:
    """Return whether a word of a class occurs anywhere, including inside a constraint: "Old Town [versus] Lakeview"."""
    return any(_phrases().get((token.folded,)) == kind for token in sentence.tokens)


def _tokens(phrase: str) -> tuple[str, ...]:
    return tuple(phrase.split()) if phrase.isascii() else tuple(phrase)


@cache
def _longest() -> int:
    return max(map(len, _phrases()))


def split(found: Found, columns: Columns, more: Sequence[Piece] = ()) -> tuple[Part, ...]:
    """Return the parts of a question in order, without overlap, with as few unknown words as possible.

    Args:
        more: constraints besides those in `found`.
    """
    sentence = found.sentence
    pieces = sorted((*found.pieces, *found.lengths, *more), key=lambda piece: (piece.start, -piece.end))
    count = len(sentence.tokens)
    best: list[tuple[float, Part | None]] = [(0.0, None)] * (count + 1)
    for index in range(count - 1, -1, -1):
        choices = [
            (cost + best[part.last][0], part) for cost, part in _choices(sentence, index, found, columns, pieces)
        ]
        best[index] = min(choices, key=lambda choice: (choice[0], -choice[1].last))
    parts: list[Part] = []
    place = 0
    while place < count:
        part = best[place][1]
        assert part is not None
        parts.append(part)
        place = part.last
    return _with_records(sentence, _in_words(sentence, parts), columns)


def _in_words(sentence: Sentence, parts: Sequence[Part]) -> list[Part]:
    """Join the characters of an unknown Chinese word into one part."""
    ends = chinese_words(sentence.text)
    joined: list[Part] = []
    for part in parts:
        before = joined[-1] if joined else None
        if part.kind == UNKNOWN == (before.kind if before else "") and before and ends.get(before.start, 0) >= part.end:
            joined[-1] = replace(before, last=part.last, end=part.end)
        else:
            joined.append(part)
    return joined


def _choices(
    sentence: Sentence, index: int, found: Found, columns: Columns, pieces: Sequence[Piece]
) -> Iterator[tuple[float, Part]]:
    """Yield the possible readings of the tokens from an index on, each with its cost."""
    token = sentence.tokens[index]
    piece = next((one for one in pieces if one.start <= token.start < one.end), None)
    if piece is not None and (last := _piece_end(sentence, index, piece, found)) > index:
        yield _COST[PIECE], _part(sentence, PIECE, index, last, piece=piece)
        if last == index + 1 or token.kind == "cjk":
            yield from _words(sentence, index, None, least=last)
        return
    column = columns.at(sentence, index)
    yield from _words(sentence, index, column)
    if column is not None:
        yield (
            1.0 if column.strength >= 4 or column.strength == 2 else 2.5,
            _part(sentence, FIELD, index, column.last, fields=column.fields, strength=column.strength),
        )
    if sentence.is_noun(index) and not sentence.mention_at(index):
        is_field = column is not None and column.strength >= 5 and _is_own_word(sentence, index, column)
        yield _COST[RECORD] if is_field else 0.8, _part(sentence, RECORD, index, _noun_end(sentence, index))
    if any(one.start <= token.start < one.end for one in found.dates):
        yield _COST[UNKNOWN], _part(sentence, UNKNOWN, index, index + 1)
    elif token.kind == "number" or (token.kind == "word" and parse_exact(token.folded) is not None):
        number = parse_exact(token.folded) if "." not in token.folded else None
        yield (
            _COST[NUMBER] if number is not None else _COST[UNKNOWN],
            _part(sentence, NUMBER if number is not None else UNKNOWN, index, index + 1, number=number),
        )
    elif token.kind == "mark" and not (token.text == "%" and sentence.folded(index + 1) == "of"):
        yield _COST[MARK], _part(sentence, MARK, index, index + 1)
    elif token.kind == "cjk" and (size := _chinese_number(sentence, index)):
        number = parse_exact(sentence.text[token.start : sentence.tokens[index + size - 1].end])
        yield _COST[NUMBER], _part(sentence, NUMBER, index, index + size, number=number)
    for last in range(index + 1, min(index + 4, len(sentence.tokens) + 1)):
        if unit_of(sentence.text[token.start : sentence.tokens[last - 1].end]) is not None:
            yield _COST[UNIT], _part(sentence, UNIT, index, last)
    mention = sentence.mention_at(index)
    if mention is not None and mention.first == index:
        yield _COST[VALUE], _part(sentence, VALUE, index, mention.last)
    yield _COST[UNKNOWN], _part(sentence, UNKNOWN, index, index + 1)


def _is_own_word(sentence: Sentence, index: int, column: Column) -> bool:
    """Return whether a word for documents is also a field's name in the same form: not "claim" for "claimed"."""
    if _phrases().get((sentence.folded(index - 1),)) in ("avg", "sum", "median", "highest", "lowest"):
        return True
    word = sentence.folded(index)
    words = {one.removesuffix("s") for name in column.fields for one in name_words(name)}
    return column.last > index + 1 or word.removesuffix("s") in words


_CONNECTING = frozenset("and or & / , the a of in by either neither nor both vs versus 、 ， 和 与 或 及 跟".split())


def _piece_end(sentence: Sentence, index: int, piece: Piece, found: Found) -> int:
    """Return the index after a constraint's tokens; of several values, only the values and the words joining them."""
    tokens = sentence.tokens
    named = [one for one in sentence.mentions if piece.start <= one.start < piece.end and one.of(piece.field)]
    values = [one for one in found.constraints if one.start == piece.start and len(one.values) > 1 and len(named) > 1]
    dates = [one for one in found.dates if piece.start <= one.start and one.end <= piece.end]
    if not values and len(dates) < 2:
        last = index + 1
        while last < len(tokens) and tokens[last].start < piece.end:
            last += 1
        return last
    mention = sentence.mention_at(index)
    if values and mention is not None and mention.of(piece.field, *values[0].also):
        return mention.last
    dated = next((one for one in dates if one.start <= tokens[index].start < one.end), None)
    if dated is not None:
        return max(sentence.index_from(dated.end), index + 1)
    return index + 1 if tokens[index].folded in _CONNECTING else index


def _words(sentence: Sentence, index: int, column: Column | None, *, least: int = 0) -> Iterator[tuple[float, Part]]:
    """Yield the phrases that begin at an index; a phrase that is also the name of a field keeps both meanings."""
    words: list[str] = []
    for last in range(index, min(index + _longest(), len(sentence.tokens))):
        words.append(sentence.tokens[last].folded)
        kind = _phrases().get(tuple(words))
        if kind is None or last + 1 <= least:
            continue
        same = column is not None and column.last == last + 1
        if kind == FILLER and (
            (same and column and column.strength >= 5)
            or is_written_as_name(sentence.text, sentence.tokens[index : last + 1])
            or _is_value(sentence, index, last + 1)
        ):
            continue
        fields = column.fields if same and column is not None else ()
        cost = _COST[FILLER] if kind == FILLER else _OF_WORD
        if same and column is not None and column.strength > 3:
            cost = min(cost, 0.7)
        yield (
            cost,
            _part(sentence, kind, index, last + 1, fields=fields, strength=column.strength if same and column else 0.0),
        )


def _is_value(sentence: Sentence, first: int, last: int) -> bool:
    """Return whether the tokens [first, last) name a value that no constraint uses: then 历史 is no filler."""
    mention = sentence.mention_at(first)
    exact = mention is not None and (mention.first, mention.last) == (first, last)
    return exact and any(token.folded not in STOP_WORDS for token in sentence.tokens[first:last])


def _part(sentence: Sentence, kind: str, first: int, last: int, **more: object) -> Part:
    return Part(kind, first, last, sentence.tokens[first].start, sentence.tokens[last - 1].end, **more)  # type: ignore[arg-type]


_NUMBER_ZH = re.compile(r"[一二两三四五六七八九十百千]{1,6}")


def _chinese_number(sentence: Sentence, index: int) -> int:
    """Return the length in characters of a Chinese number at this token, 0 if there is none."""
    match = _NUMBER_ZH.match(sentence.text, sentence.tokens[index].start)
    return len(match[0]) if match is not None else 0


def _noun_end(sentence: Sentence, index: int) -> int:
    """Return the index after the word for documents at a token; for Chinese after the longest such word."""
    if sentence.tokens[index].kind != "cjk":
        return index + 1
    start = sentence.tokens[index].start
    nouns = (one for one in (*CHINESE_DOCUMENT_NOUNS, *sentence.nouns) if sentence.text.startswith(one, start))
    size = max(map(len, nouns), default=1)
    return sentence.index_from(start + size)


# Kinds after which a plural noun names the records: "how many [sightings]", "at least 5 [parcels]".
_BEFORE_PLURAL = frozenset(["count", "most", "fewest", "number", "distinct", "share", "top", "difference"])
# Kinds directly after which a noun names the records: "which [parcel]", "the most expensive [part]".
_BEFORE_NOUN = frozenset(["which", "highest", "lowest", "exactly", "newest", "oldest"])
_NAMING = frozenset([UNKNOWN, PIECE, FIELD, RECORD, VALUE])
_CALCULATING = frozenset(
    """
    count how_much how_big distinct avg median sum share rate ratio difference most fewest highest lowest newest oldest
    breakdown
    """.split()
)
_COUNTING = frozenset(["count", "most", "fewest", "share", "more", "fewer"])
_SUPERLATIVE = frozenset(["highest", "lowest", "newest", "oldest"])
_DETERMINERS = frozenset("the our all these those".split())
_GENERAL = frozenset("one ones record records entry entries item items row rows".split())
"""Words for records of any kind."""


def _with_records(sentence: Sentence, parts: list[Part], columns: Columns) -> tuple[Part, ...]:
    """Turn nouns in the position of a record into records, and nouns after a number into its unit."""
    before = ""
    for place, part in enumerate(parts):
        numbered = any(one.kind == NUMBER for one in parts[max(0, place - 2) : place])
        if part.kind in ("or_more", "or_fewer") and not numbered:
            parts[place] = replace(part, kind="more" if part.kind == "or_more" else "fewer")
        if part.kind in (UNKNOWN, RECORD) and place and _counts_noun(sentence, parts, place, columns):
            parts[place] = replace(part, kind=FILLER)
        elif part.kind in _SUPERLATIVE and any(one.piece and one.piece.field in part.fields for one in parts):
            parts[place] = replace(part, kind=FIELD)  # "[first]-authored by Kim"
        elif part.kind == "count" and _names_amount(sentence, part, parts[place - 1] if place else None, columns):
            parts[place] = replace(part, kind=FILLER)
        elif part.kind in (FIELD, UNKNOWN) and place and _is_general(sentence, part, parts[place - 1]):
            parts[place] = replace(part, kind=FILLER, fields=())
        elif (
            part.kind == FIELD
            and before in _BEFORE_PLURAL
            and _names_records(sentence, part, columns)
            and not (before == "distinct" and all(len(columns.stems[name]) == 1 for name in part.fields))
        ):
            parts[place] = replace(part, kind=RECORD, fields=(), guessed=True)
        elif (
            part.kind == UNKNOWN
            and (_is_record(sentence, parts, place, before) or _is_only_record(sentence, parts, place))
            and not columns.may_be_value(part_text(sentence, part))
        ):
            parts[place] = replace(part, kind=RECORD, guessed=True)
        if part.kind not in (FILLER, MARK, PIECE):
            before = parts[place].kind
    return tuple(parts)


def _names_amount(sentence: Sentence, part: Part, before: Part | None, columns: Columns) -> bool:
    """Return whether "amount of" or "number of" belongs to a number's name: "the claimed [amount of] all files"."""
    named = before is not None and before.kind == FIELD and not columns.measures.keys().isdisjoint(before.fields)
    return named and part_text(sentence, part).casefold().endswith(" of")


def _is_general(sentence: Sentence, part: Part, before: Part) -> bool:
    """Return whether a general word ends the name of a field: "mood [tag]" for moods, "claim [type]"."""
    general = {*CONCEPTS["kind"][0], *CONCEPTS["topic"][0]}
    named = before.kind == FIELD and before.strength >= 4 and part.strength <= 2
    return named and part_text(sentence, part).casefold() in general


def _names_records(sentence: Sentence, part: Part, columns: Columns) -> bool:
    """Return whether a counted plural names records, not the values of fields that it resembles.

    "vacancies" are no vacancyState, "inspections" no inspectors; dates, and amounts with a unit, are never counted.
    """
    is_noun = _is_plural(sentence, part) or sentence.tokens[part.first].kind == "cjk"
    if is_noun and set(part.fields) <= set(columns.dates()):
        return True
    if not _is_plural(sentence, part) or part.strength == 2:
        return False
    word = sentence.tokens[part.first].folded
    measures = [columns.measures[name] for name in part.fields if name in columns.measures]
    if measures:
        return any(one.units for one in measures) and unit_of(word) is None
    return part.strength < 3 or not any(columns.is_called(name, word) for name in part.fields)


def _counts_noun(sentence: Sentence, parts: Sequence[Part], place: int, columns: Columns) -> bool:
    """Return whether a plural follows the word for a number and names its unit: "gold [medals]"."""
    return _is_plural(sentence, parts[place]) and any(name in columns.measures for name in parts[place - 1].fields)


def _is_record(sentence: Sentence, parts: Sequence[Part], place: int, before: str) -> bool:
    """Return whether an unknown noun stands in the position of a record.

    Args:
        before: the kind of the nearest part before it that is no filler.
    """
    part = parts[place]
    last = parts[place - 1] if place else None
    behind = parts[place + 1] if place + 1 < len(parts) else None
    if last is not None and _is_classified(sentence, parts, place):
        return True
    if sentence.tokens[part.first].kind != "word" or (behind is not None and behind.kind == UNKNOWN):
        return False
    if _is_plural(sentence, part):
        grouped = behind is not None and behind.kind in ("per", "by") and (last is None or last.kind == "listed")
        return before in _BEFORE_PLURAL or grouped
    counted = behind is not None and behind.kind == "count" and behind.first == part.last
    is_head = behind is None or behind.kind not in _NAMING
    led = parts[place - 2] if last is not None and last.kind == FIELD and place > 1 else last  # "the highest rated [X]"
    named = is_head and led is not None and led.kind in _BEFORE_NOUN and len(part_text(sentence, part)) > 2
    return (counted or named) and part_text(sentence, part).isalpha()


def _is_only_record(sentence: Sentence, parts: Sequence[Part], place: int) -> bool:
    """Return whether an unknown noun after an article or a value is the only one that can name the records.

    "our [hotels]", "all [mail]", "public safety [ordinances]", 西安[酒店]; not "tickets about our [printers]".
    """
    part = parts[place]
    last = parts[place - 1] if place else None
    token = sentence.tokens[part.first]
    others = [one for one in parts if one.kind == RECORD and part_text(sentence, one).casefold() not in _GENERAL]
    alone = all(sentence.tokens[one.first].stem == token.stem for one in others)
    asks = any(one.kind in _CALCULATING for one in parts)  # in a list it may be the topic
    if last is None or not asks or not alone or token.is_capital:
        return False
    article = sentence.tokens[last.last - 1].folded
    if token.kind == "cjk":
        behind = parts[place + 1].kind if place + 1 < len(parts) else MARK
        counts = behind == "among" or any(one.kind in _COUNTING for one in parts)
        counts = counts or (place > 1 and article == "的" and parts[place - 2].kind in _BEFORE_NOUN)
        led = last.kind == PIECE or article == "的"
        return led and counts and behind != UNKNOWN
    if last.kind == PIECE and sentence.folded(last.first - 1) in ("a", "an", "the", "any", "each"):
        return True
    if last.kind == FILLER and article in ("a", "an"):
        return True
    if last.kind == PIECE and place > 1 and parts[place - 2].kind in _SUPERLATIVE:
        return True
    return ((last.kind == PIECE or article in _DETERMINERS) and _is_plural(sentence, part)) or article == "all"


def part_text(sentence: Sentence, part: Part) -> str:
    """Return the text of a part."""
    return sentence.text[part.start : part.end]


_CLASSIFIERS = frozenset("个篇份条起件项门首道部次款套张家间本则封例宗台辆只座期集批笔单场届")


def _is_classified(sentence: Sentence, parts: Sequence[Part], place: int) -> bool:
    """Return whether a Chinese noun stands beside a classifier of records: 多少门[课], [课]门数, 一门[课]."""
    if sentence.tokens[parts[place].first].kind != "cjk":
        return False
    around = (parts[place - 1], parts[place + 1] if place + 1 < len(parts) else parts[place])
    if any(one.kind == UNKNOWN for one in (around[0], *([around[1]] if around[1] is not parts[place] else []))):
        return False
    before = sentence.text[around[0].start : around[0].end]
    behind = sentence.text[around[1].start : around[1].end]
    counted = (
        around[0].kind in ("count", FILLER)
        and before[-1:] in _CLASSIFIERS
        and len(before) > (around[0].kind == "count")
    ) or (around[0].kind == "count" and parts[place].last - parts[place].first > 1)
    return counted or (around[1].kind == "count" and behind.endswith("数") and behind[:1] in _CLASSIFIERS)


def _is_plural(sentence: Sentence, part: Part) -> bool:
    token, word = sentence.tokens[part.first], sentence.tokens[part.first].folded
    if token.kind != "word" or len(word) < 3 or word in STOP_WORDS or word in table("calculation")["not_records"]:
        return False
    return word.endswith("s") and not word.endswith(("ss", "us", "is"))
