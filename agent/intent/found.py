"""All that rules find in the words of one turn, before history and routing."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from agent.intent import lexicon
from agent.intent.constraints import Constraint, read_constraints
from agent.intent.dates import DateRange, find_dates
from agent.intent.filters import Json, both, either, of_constraint, of_date, of_number
from agent.intent.mentions import Mention, find_mentions
from agent.intent.periods import Calendar
from agent.intent.quantities import NumberRange, find_quantities
from agent.intent.sentence import Sentence, about_regions
from agent.intent.text import Token, stem, tokenize
from agent.intent.vocabulary import Vocabulary, concepts_of


@dataclass(frozen=True, slots=True)
class Piece:
    """One filter with the field it is on and the characters that state it."""

    field: str
    filter: Json
    start: int
    end: int
    confidence: float = 1.0


@dataclass(frozen=True, slots=True)
class Found:
    """What the words state.

    Attributes:
        pieces: filters, one per constraint, in the order of the question.
        left: values that were named as a topic, or of which it is not clear who or what is meant.
        rest: the question without what the pieces stand for.
    """

    sentence: Sentence
    constraints: tuple[Constraint, ...]
    dates: tuple[DateRange, ...]
    numbers: tuple[NumberRange, ...]
    pieces: tuple[Piece, ...]
    left: tuple[Mention, ...]

    @property
    def filter(self) -> Json | None:
        return both([piece.filter for piece in self.pieces]) if self.pieces else None

    @property
    def rest(self) -> str:
        text = self.sentence.text
        for piece in sorted(self.pieces, key=lambda piece: -piece.start):
            text = f"{text[: piece.start]} {text[piece.end :]}"
        return " ".join(text.split())


def find(
    text: str, vocabulary: Vocabulary, nouns: frozenset[str], calendar: Calendar, now: datetime,
    more: Sequence[tuple[str, str, int]] = (),
) -> Found:  # fmt: skip
    """Everything that one turn states about metadata.

    Args:
        nouns: words for the documents of the collections in scope ("pep", "peps").
        more: values looked up in fields too large to know, see `find_mentions`.
    """
    tokens = tokenize(text)
    nouns = nouns | _numbered(vocabulary)
    dates = [one for one in find_dates(text, calendar) if _is_stated(one, tokens, vocabulary, nouns, calendar)]
    about = about_regions(text, tokens, (*nouns, *vocabulary.kinds))
    mentions = find_mentions(tokens, vocabulary, more)
    sentence = Sentence(text, tokens, mentions, vocabulary, nouns, tuple((one.start, one.end) for one in dates), about)
    numbers = find_quantities(sentence)
    taken = (*sentence.taken, *((one.start, one.end) for one in numbers))
    sentence = Sentence(text, tokens, mentions, vocabulary, nouns, taken, about)
    constraints, left = read_constraints(sentence)
    constraints = [*_version_ranges(sentence, constraints), *_booleans(sentence)]
    pieces = [
        Piece(one.field, of_constraint(one, vocabulary.catalogue.fields), one.start, one.end, one.confidence)
        for one in constraints
    ]
    pieces += [Piece(one.field, of_number(one), one.start, one.end) for one in numbers]
    pieces += _date_pieces(sentence, dates, now)
    pieces += _existence(sentence, {piece.field for piece in pieces})
    pieces.sort(key=lambda piece: piece.start)
    return Found(sentence, tuple(constraints), tuple(dates), tuple(numbers), tuple(pieces), tuple(left))


def _numbered(vocabulary: Vocabulary) -> frozenset[str]:
    """Words for documents by the field that numbers them: case_number is of cases."""
    fields = vocabulary.catalogue.fields
    keys = [
        name
        for name in vocabulary.of_role("number")
        if "number" in concepts_of(name) and fields[name].distinct >= 0.98 * fields[name].documents
    ]
    words = {word for name in keys for word in lexicon.name_words(name) if word not in lexicon.CONCEPTS["number"][0]}
    return frozenset(words | {f"{word}s" for word in words})


_MONTH_ALONE = re.compile(r"in\s+\w+$", re.IGNORECASE)


def _is_stated(
    one: DateRange, tokens: Sequence[Token], vocabulary: Vocabulary, nouns: frozenset[str], calendar: Calendar
) -> bool:
    """Whether a range can be about when documents were made.

    Not when it lies after all of them ("the year 2038 problem"); a month alone only where the question
    speaks of documents or of making them ("an hour repeats in October").
    """
    highs = [str(vocabulary.catalogue.fields[name].high or "") for name in vocabulary.of_role("date")]
    if one.period.low is not None and highs and one.period.low.isoformat() > max(*highs, calendar.today.isoformat()):
        return False
    if not _MONTH_ALONE.fullmatch(one.phrase.strip()) or any(c.isdigit() for c in one.phrase):
        return True
    words = {token.folded for token in tokens}
    made = any(
        (word,) in vocabulary.cues and set(vocabulary.cues[word,]) & set(vocabulary.of_role("date")) for word in words
    )
    return made or bool(words & (lexicon.DOCUMENT_NOUNS | nouns))


def _version_ranges(sentence: Sentence, constraints: Sequence[Constraint]) -> list[Constraint]:
    """ "3.9 to 3.11": every version from the one to the other."""
    made = []
    for one in constraints:
        if sentence.vocabulary.roles[one.field] == "version" and len(one.values) == 2 and not one.negated:
            first, last = sorted(map(version_numbers, one.values))
            between = re.search(
                re.escape(one.values[0])
                + r"\s*(?:到|至|[-–—~]|to|through|thru)\s*(?:python\s*)?"
                + re.escape(one.values[1]),
                sentence.text,
                re.IGNORECASE,
            )
            if between:
                known = sentence.vocabulary.catalogue.fields[one.field].values
                values = sorted(
                    (value for value in known if first <= version_numbers(value) <= last), key=version_numbers
                )
                made.append(
                    replace(
                        one,
                        values=tuple(values),
                        start=min(one.start, between.start()),
                        end=max(one.end, between.end()),
                    )
                )
                continue
        made.append(one)
    return made


def version_numbers(value: str) -> tuple[int, ...]:
    """What versions are ordered by: 3.10 comes after 3.9."""
    return tuple(int(number) for number in re.findall(r"\d+", value))


_WITHOUT = re.compile(
    r"(?:\b(?:without|lacking|with\s+no|have\s+no|has\s+no)(?:\s+(?:a|an|any))?|没有|缺少|不带)$", re.IGNORECASE
)
_WITH = re.compile(r"(?:\b(?:that\s+have|that\s+has|with)\s+(?:a|an)|(?:^|[，。；])有)$", re.IGNORECASE)


def _existence(sentence: Sentence, constrained: set[str]) -> list[Piece]:
    """ "without a sponsor": a field that is or is not there."""
    pieces = []
    for index, token in enumerate(sentence.tokens):
        fields, behind = sentence.cue(index)
        names = [
            name
            for name in fields
            if sentence.vocabulary.roles[name] in ("person", "label", "version", "number", "tag")
        ]
        if not names or names[0] in constrained or sentence.mention_at(index) is not None:
            continue
        values = sentence.vocabulary.catalogue.fields[names[0]]
        if values.documents >= sentence.vocabulary.catalogue.documents or token.stem not in {
            stem(word) for word in lexicon.name_words(names[0])
        }:
            continue
        before = sentence.text[: token.start].rstrip()
        without, having = _WITHOUT.search(before), _WITH.search(before)
        if without or having:
            start = (without or having).start()  # type: ignore[union-attr]
            filter: Json = {"type": "exists", "key": names[0], "value": without is None}
            pieces.append(Piece(names[0], filter, start, sentence.tokens[behind - 1].end, 0.9))
    return pieces


def _date_pieces(sentence: Sentence, dates: Sequence[DateRange], now: datetime) -> list[Piece]:
    """Ranges side by side are alternatives, unless their open ends meet to one range."""
    zone = now.tzinfo
    assert zone is not None
    by_field: dict[str, list[DateRange]] = {}
    for one in dates:
        name = date_field(sentence, one)
        if name is not None:
            by_field.setdefault(name, []).append(one)
    pieces = []
    for name, ranges in by_field.items():
        made = [of_date(one, sentence.vocabulary.catalogue.fields[name], zone) for one in ranges]
        meet = any(one.period.low is None for one in ranges) and any(one.period.high is None for one in ranges)
        filter = made[0] if len(made) == 1 else both(made) if meet else either(made)
        pieces.append(Piece(name, filter, ranges[0].start, ranges[0].end))
        # The others' words are taken as well, though the one filter stands for all.
        pieces += [Piece(name, {}, one.start, one.end) for one in ranges[1:]]
    return _merged(pieces)


def _merged(pieces: list[Piece]) -> list[Piece]:
    full = [piece for piece in pieces if piece.filter]
    ends = {piece.field: max(other.end for other in pieces if other.field == piece.field) for piece in full}
    starts = {piece.field: min(other.start for other in pieces if other.field == piece.field) for piece in full}
    close = {name: ends[name] - starts[name] < 60 for name in ends}
    return [
        Piece(piece.field, piece.filter, starts[piece.field], ends[piece.field]) if close[piece.field] else piece
        for piece in full
    ]


def date_field(sentence: Sentence, one: DateRange) -> str | None:
    """The date field that a range is about: one whose word stands near, else when documents came to be."""
    fields = sentence.vocabulary.of_role("date")
    if not fields:
        return None
    near: list[tuple[int, str]] = []
    for index, token in enumerate(sentence.tokens):
        gap = token.start - one.end if token.start >= one.end else one.start - token.end
        if token.kind != "mark" and 0 <= gap < 40:
            near += [(gap, name) for name in sentence.cue_fields(index) if name in fields]
    if near and len(fields) > 1:
        return min(near)[1]
    order = ("published", "created", "updated", "effective", "expires")
    ranked = sorted(
        fields,
        key=lambda name: (
            min((order.index(c) for c in concepts_of(name) if c in order), default=9),
            fields.index(name),
        ),
    )
    return ranked[0]


_TRUE_BEFORE = re.compile(r"(?:\bnot\s+|\bnon-?\s*|\bisn't\s+|\baren't\s+|不对外\s*|非|不|未)$", re.IGNORECASE)


def _booleans(sentence: Sentence) -> list[Constraint]:
    """ "public documents", 不公开的文档: a field that is true or false, named as a property of documents."""
    found: list[Constraint] = []
    for name in sentence.vocabulary.of_role("boolean"):
        values = sentence.vocabulary.catalogue.fields[name]
        if values.distinct < 2:
            continue
        own = " ".join(word for word in lexicon.name_words(name) if word not in ("is", "has", "was"))
        words = [own, *(word for word in lexicon.bilingual().get(own, ()) if word != own)]
        for word in sorted(words, key=len, reverse=True):
            pattern = rf"\b{re.escape(word)}\b" if word.isascii() else re.escape(word)
            match = re.search(pattern, sentence.text, re.IGNORECASE)
            if match is None or sentence.in_about(match.start()):
                continue
            after = sentence.text[match.end() :].lstrip()
            index = next(
                (n for n, token in enumerate(sentence.tokens) if token.start >= match.end()), len(sentence.tokens)
            )
            plural = (
                index < len(sentence.tokens)
                and sentence.tokens[index].folded.endswith("s")
                and sentence.tokens[index].kind == "word"
            )
            prefixed = sentence.text[: match.start()].casefold().endswith("non-")
            modifies = sentence.is_noun(index) or plural or prefixed or (not word.isascii() and after.startswith("的"))
            if modifies and not any(one.field == name for one in found):
                before = _TRUE_BEFORE.search(sentence.text[: match.start()])
                value = "false" if before and not word.startswith("不") else "true"
                start = before.start() if before else match.start()
                found.append(Constraint(name, (value,), start, match.end()))
    return found
