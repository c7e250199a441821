"""Find the words that restrict the records because of their position: "[new] tickets", "tickets that are [open]"."""

from agent.intent.analysis.sentence import ENDS, Sentence
from agent.intent.calculation.segment import Segment, segment_text
from agent.intent.language import lexicon
from agent.intent.values.field_words import concepts_of
from agent.intent.values.value_linking import Mention
from agent.intent.words import word_table
from retrievers.text.languages import STOP_WORDS

_BE_FORMS = frozenset(
    """
    is are was were be been being isn aren wasn weren s re remain remains remained stay stays stayed become becomes
    became seem seems seemed look looks looked
    """.split()
)
_ADVERBS = frozenset(
    "neither either nor or and still now currently already yet all also only just not never both again t ' ’".split()
)
"""Words that may stand between a form of "to be" and the predicate: "are [still] open"."""
_PARTICLES = frozenset("in on out off up down over under through away back around along behind ahead".split())
"""Words that name a state after "to be" ("is down"), and a direction elsewhere."""
_FUTURE_CONCEPTS = frozenset(["expires", "effective"])
"""Concepts of dates that may lie ahead, so that their words tell records apart: only some have "expired"."""
_DECISION_CONCEPT = "decided"
"""The concept of dates of a decision. General words for them may say how it ended: "rejected"."""
_VAGUE_STRENGTH = 2.0
"""Maximum strength (see `Column`) of a word that is not the field's own name."""


def restricting_mention(sentence: Sentence, index: int) -> Mention | None:
    """Return the mention of a value that begins at a token and restricts the documents by its position; or None.

    "new" in "how many [new] tickets" restricts if a field has the value "new", even if the word is listed as a filler.
    """
    mention = sentence.mention_at(index)
    if mention is None or mention.first != index or not sentence.has_calculation_word or sentence.is_noun(index):
        return None
    if sentence.folded(index) in word_table("calculation")["summing_up"]:
        return None  # "total medals" does not mean the row "Total"
    if not any(one.kind in ("exact", "alias") for one in mention.matches):
        return None
    if is_predicate(sentence, mention.first, mention.last):
        return mention
    plain = all(sentence.folded(place) in STOP_WORDS["en"] for place in range(mention.first, mention.last))
    return mention if not plain and _is_counted(sentence, mention.last) else None


def _is_counted(sentence: Sentence, index: int) -> bool:
    """Return whether the token `index` is a noun for the documents, or another plural that is no value of a field."""
    word = sentence.folded(index)
    plural = word.isascii() and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return sentence.is_noun(index) or (plural and word not in STOP_WORDS["en"] and sentence.mention_at(index) is None)


def is_predicate(sentence: Sentence, first: int, last: int) -> bool:
    """Return whether the tokens [first, last) are the predicate of a form of "to be": "are still [open] in May"."""
    place = first - 1
    while sentence.folded(place) in _ADVERBS or sentence.folded(place) in ("in", "on", "at"):
        place -= 1
    if sentence.folded(place) not in _BE_FORMS:
        return False
    behind = sentence.token(last)
    if behind is None or behind.text in ENDS or behind.kind == "mark":
        return True
    dated = any(start <= behind.start < end for start, end in sentence.used_spans)
    return dated or behind.folded in STOP_WORDS["en"] or behind.folded in _ADVERBS


def is_particle_predicate(sentence: Sentence, index: int) -> bool:
    """Return whether a token is or ends a predicate with a particle: "how many pumps are [down]", "are on [hold]"."""
    behind = sentence.token(index + 1)
    goes_on = behind is not None and behind.kind != "mark" and behind.folded not in _ADVERBS
    if goes_on or sentence.tokens[index].kind != "word":
        return False
    word = sentence.folded(index)
    if word in _PARTICLES:
        return is_predicate(sentence, index, index + 1)
    led = sentence.folded(index - 1) in _PARTICLES - {"in"} and word not in STOP_WORDS["en"]
    return led and is_predicate(sentence, index - 1, index + 1)


def states_condition(sentence: Sentence, segment: Segment, *, stated: bool) -> bool:
    """Return whether a word that names date fields (the segment) states a condition on the records.

    "are open", "due", "is back" and "expired" do. "filed" and "were opened" do not, because they are true of every
    record.

    Args:
        stated: True if the question states another condition on one of the fields: March in "due in March". Then the
            word itself is a condition only in a few cases: "open tickets since July".
    """
    word = segment_text(sentence, segment).casefold()
    is_own = any(set(word.split()) <= {*lexicon.name_words(name)} for name in segment.fields)
    happened = word.endswith(("ed", "ing")) or word in lexicon.PARTICIPLES or not word.isascii()
    placed = is_predicate(sentence, segment.first, segment.last) or _is_counted(sentence, segment.last)
    if stated:
        # "open tickets since July" also demands that they are still open.
        return placed and not happened and not is_own and segment.strength > _VAGUE_STRENGTH
    concepts = frozenset[str]().union(*map(concepts_of, segment.fields))
    if concepts & _FUTURE_CONCEPTS or word in _PARTICLES:
        return True
    if segment.strength <= _VAGUE_STRENGTH and _DECISION_CONCEPT in concepts:
        return True
    return placed and not happened
