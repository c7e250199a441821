"""Find the nouns that stand for the records (documents) because of their position: "how many [sightings]"."""

from collections.abc import Sequence
from dataclasses import replace

from agent.intent.calculation.part import FIELD, FILLER, MARK, NUMBER, PIECE, RECORD, UNKNOWN, VALUE, Part, part_text
from agent.intent.columns import Columns
from agent.intent.lexicon import AUXILIARIES, CONCEPTS, STOP_WORDS, name_words
from agent.intent.numbers import unit_of
from agent.intent.sentence import Sentence
from agent.intent.text import stem
from agent.intent.vocabulary import deed_of
from agent.intent.words import table

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
_ENDS = frozenset(["highest", "lowest", "most", "fewest"])
_DETERMINERS = frozenset("the our all these those".split())
_GENERAL = frozenset("one ones record records entry entries item items row rows".split())
"""Nouns that may stand for records of any kind."""


def with_records(sentence: Sentence, parts: list[Part], columns: Columns) -> tuple[Part, ...]:
    """Return the parts with corrected kinds, for words whose kind depends on their neighbours.

    Nouns where a record is expected become RECORD. A plural after the name of a numeric field becomes FILLER, because
    the plural only names the unit. `parts` is changed in place.
    """
    before = ""
    for place, part in enumerate(parts):
        numbered = any(one.kind == NUMBER for one in parts[max(0, place - 2) : place])
        if part.kind in ("or_more", "or_fewer") and not numbered:
            parts[place] = replace(part, kind="more" if part.kind == "or_more" else "fewer")
        if part.kind in (UNKNOWN, RECORD) and place and _counts_noun(sentence, parts, place, columns):
            parts[place] = replace(part, kind=FILLER)
        elif part.kind in _SUPERLATIVE and any(one.piece and one.piece.field in part.fields for one in parts):
            parts[place] = replace(part, kind=FIELD)  # "[first]-authored by Kim"
        elif part.kind == "sum" and before in _ENDS and part.strength >= 5 and part.fields[0] in columns.measures:
            parts[place] = replace(part, kind=FIELD)  # "the highest [total]"
        elif part.kind == FIELD and place and _are_all(sentence, parts, place, columns):
            parts[place] = replace(part, kind=RECORD, fields=())
        elif part.kind == "count" and _names_amount(sentence, part, parts[place - 1] if place else None, columns):
            parts[place] = replace(part, kind=FILLER)
        elif part.kind in (FIELD, UNKNOWN) and place and _is_general(sentence, part, parts[place - 1]):
            parts[place] = replace(part, kind=FILLER, fields=())
        elif part.kind == UNKNOWN and before == "who" and (doers := _doers(sentence, part, columns)):
            parts[place] = replace(part, kind=FIELD, fields=doers)
        elif (
            part.kind == FIELD
            and before in _BEFORE_PLURAL
            and _names_records(sentence, part, columns)
            and not (before == "distinct" and all(len(columns.stems[name]) == 1 for name in part.fields))
        ):
            parts[place] = replace(part, kind=RECORD, fields=(), guessed=True)
        elif (
            part.kind == UNKNOWN
            and (_is_record(sentence, parts, place, before, columns) or _is_only_record(sentence, parts, place))
            and not columns.may_be_value(part_text(sentence, part))
        ):
            parts[place] = replace(part, kind=RECORD, guessed=True)
        if part.kind not in (FILLER, MARK, PIECE):
            before = parts[place].kind
    return tuple(parts)


def _are_all(sentence: Sentence, parts: Sequence[Part], place: int, columns: Columns) -> bool:
    """Return whether the name of a field with a different value in each record stands for the records themselves.

    It does in "average age of the [players]" and "the most [races]". Elsewhere the question may ask for the values of
    the field.
    """
    part, last = parts[place], parts[place - 1]
    is_key = len(part.fields) == 1 and part.fields[0] in columns.keys and part.strength >= 5
    if is_key and last.kind in ("more", "fewer", "most", "fewest"):
        return _is_plural(sentence, part)
    led = last.kind == FILLER and sentence.folded(last.last - 1) in _DETERMINERS
    before = parts[:place]
    calculates = any(one.kind in ("avg", "sum", "median") for one in parts)
    numbered = any(not columns.measures.keys().isdisjoint(one.fields) for one in before)
    return is_key and led and calculates and numbered and _is_plural(sentence, part)


def _doers(sentence: Sentence, part: Part, columns: Columns) -> tuple[str, ...]:
    """Return the fields of people named after the verb that follows "who": `owner` for "who [owns] most"; or ()."""
    verb = sentence.tokens[part.first].stem
    return tuple(
        name
        for name in columns.vocabulary.of_role("person")
        if any(stem(deed) == verb for word in name_words(name) if (deed := deed_of(word)))
    )


def _names_amount(sentence: Sentence, part: Part, before: Part | None, columns: Columns) -> bool:
    """Return whether "amount of" or "number of" only follows a numeric field's name: "claimed [amount of] files"."""
    named = before is not None and before.kind == FIELD and not columns.measures.keys().isdisjoint(before.fields)
    return named and part_text(sentence, part).casefold().endswith(" of")


def _is_general(sentence: Sentence, part: Part, before: Part) -> bool:
    """Return whether a general noun only completes a field's name before it: "mood [tag]" for `moods`."""
    general = {*CONCEPTS["kind"][0], *CONCEPTS["topic"][0]}
    named = before.kind == FIELD and before.strength >= 4 and part.strength <= 2
    return named and part_text(sentence, part).casefold() in general


def _names_records(sentence: Sentence, part: Part, columns: Columns) -> bool:
    """Return whether a counted plural stands for records, although it resembles the names of fields.

    "vacancies" does not mean the values of `vacancyState`. A plural like a date field, or like a numeric field with
    units, stands for records too, because such values are not counted.
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
    """Return whether a plural after the name of a numeric field says what the field counts: "gold [medals]"."""
    return _is_plural(sentence, parts[place]) and any(name in columns.measures for name in parts[place - 1].fields)


def _is_record(sentence: Sentence, parts: Sequence[Part], place: int, before: str, columns: Columns) -> bool:
    """Return whether an unknown noun stands where a noun for the records is expected: "which [parcel]".

    Args:
        before: the kind of the nearest earlier part that is no filler, punctuation or constraint.
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
        # "which [towns] have over 1,000 people"
        bounded = last is not None and last.kind == "which" and any(
            one.piece is not None and one.piece.field in columns.measures for one in parts
        )  # fmt: skip
        return before in _BEFORE_PLURAL or grouped or bounded
    counted = behind is not None and behind.kind == "count" and behind.first == part.last
    is_head = behind is None or behind.kind not in _NAMING
    led = parts[place - 2] if last is not None and last.kind == FIELD and place > 1 else last  # "the highest rated [X]"
    named = is_head and led is not None and led.kind in _BEFORE_NOUN and len(part_text(sentence, part)) > 2
    return (counted or named) and part_text(sentence, part).isalpha()


def _is_only_record(sentence: Sentence, parts: Sequence[Part], place: int) -> bool:
    """Return whether an unknown noun after an article or a value is the only noun that can stand for the records.

    True for "our [hotels]", "all [mail]", "public safety [ordinances]"; False for "tickets about our [printers]".
    """
    token = sentence.tokens[parts[place].first]
    if not place or token.is_capital or not _is_led_as_record(sentence, parts, place):
        return False
    others = (one for one in parts if one.kind == RECORD and part_text(sentence, one).casefold() not in _GENERAL)
    alone = all(sentence.tokens[one.first].stem == token.stem for one in others)
    return alone and any(one.kind in _CALCULATING for one in parts)  # in a list it may be the topic


def _is_led_as_record(sentence: Sentence, parts: Sequence[Part], place: int) -> bool:
    """Return whether an unknown noun may stand for the records because of the article or value before it."""
    part, last = parts[place], parts[place - 1]
    token = sentence.tokens[part.first]
    article = sentence.tokens[last.last - 1].folded
    if token.kind == "cjk":
        behind = parts[place + 1].kind if place + 1 < len(parts) else MARK
        if behind == UNKNOWN or not (last.kind == PIECE or article == "的"):
            return False
        counts = behind == "among" or (place > 1 and article == "的" and parts[place - 2].kind in _BEFORE_NOUN)
        return counts or any(one.kind in _COUNTING for one in parts)
    if last.kind == PIECE and (before := sentence.folded(last.first - 1)) in ("a", "an", "the", "any", "each"):
        # "was the North" or "did the North" is followed by a predicate, not by a noun as in "had a northern [office]".
        verb = sentence.folded(last.first - 2)
        asks = verb in AUXILIARIES and (before == "the" or not verb.startswith("ha"))
        return not asks or _is_plural(sentence, part)
    if last.kind == FILLER and article in ("a", "an"):
        return place + 1 == len(parts) or parts[place + 1].kind != UNKNOWN  # the head of "a new lantern" is "lantern"
    if last.kind == PIECE and place > 1 and parts[place - 2].kind in _SUPERLATIVE:
        return True
    return ((last.kind == PIECE or article in _DETERMINERS) and _is_plural(sentence, part)) or article == "all"


_CLASSIFIERS = frozenset("个篇份条起件项门首道部次款套张家间本则封例宗台辆只座期集批笔单场届")


def _is_classified(sentence: Sentence, parts: Sequence[Part], place: int) -> bool:
    """Return whether a Chinese noun stands beside a classifier: 多少门[课] ("how many courses"), [课]门数, 一门[课]."""
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
