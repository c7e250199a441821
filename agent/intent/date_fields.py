"""Choose the date field that a date in a question is about, and the year of a date without a year."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from agent.intent import lexicon
from agent.intent.evidence import fields_beside
from agent.intent.linking import Mention
from agent.intent.sentence import ENDS, Sentence
from agent.intent.text import stem
from agent.intent.time.dates import DateRange
from agent.intent.vocabulary import Vocabulary, concepts_of
from agent.intent.words import table
from retrievers.core.types import FieldValues

# Concepts of a document's main date, the likeliest first. "" is a field whose name says nothing: it ranks before the
# dates when something takes effect or ends, which do not say when the document was made.
_DATES = ("published", "created", "updated", "", "effective", "expires")
_SHORTEST_PAST = 4
_ASKERS = frozenset("i my we our".split())
_ASKING = frozenset("what which who when where how please show want need find list give get send mean".split())


def rank_of_date(field: str) -> int:
    """Return how little a field's name says that its dates are those of the documents, from 0."""
    concepts = concepts_of(field)
    if "expires" in concepts:
        return _DATES.index("expires")  # "end_date" means the end of something, not an ordinary date
    return next((place for place, one in enumerate(_DATES) if one in concepts), _DATES.index(""))


def main_date(vocabulary: Vocabulary) -> str | None:
    """Return the date field that says when documents were made, or None.

    Of fields whose names say equally much, it is the one that most documents have, and then the one whose dates begin
    first: loans are dated by when they begin.
    """
    values = vocabulary.catalogue.fields

    def order(name: str) -> tuple[int, int, str]:
        return rank_of_date(name), -values[name].documents, str(values[name].low)

    return min(vocabulary.of_role("date"), key=order, default=None)


def is_main_unclear(vocabulary: Vocabulary) -> bool:
    """Return whether the names of several date fields say equally much about when documents were made."""
    ranks = sorted(map(rank_of_date, vocabulary.of_role("date")))
    return ranks[:1] == ranks[1:2]


def occurrence(one: DateRange, values: FieldValues, today: date) -> tuple[DateRange, bool]:
    """Return which occurrence of a part of the year is meant, "before Christmas", and whether that is sure.

    In a field of ends, such as `next_due`, the coming one is meant if dates lie ahead. In another field with dates
    ahead it may be either.
    """
    ahead = one.period.coming
    if ahead is None or str(values.high or "")[:10] <= today.isoformat():
        return one, True
    is_end = "expires" in concepts_of(values.field.name)
    return (replace(one, period=ahead) if is_end else one), is_end


def is_verb_of_date(sentence: Sentence, mention: Mention, dates: Sequence[DateRange]) -> bool:
    """Return whether a name is the verb of the date behind it: "signed in 2025", although a status is called "signed".

    A word can name the date field or the status, not both. "still signed", "status signed" and "draft or signed" name
    the status.
    """
    is_beside = any(mention.end <= one.start and not sentence.text[mention.end : one.start].strip() for one in dates)
    if not is_beside or mention.last - mention.first > 1 or not is_past_verb(sentence.folded(mention.first)):
        return False
    cued = fields_beside(sentence, mention, before=True)
    if sentence.folded(mention.first - 1) in table("dated")["stated"] or any(
        one.field in cued for one in mention.known
    ):
        return False
    named = {stem(word) for name in sentence.vocabulary.of_role("date") for word in lexicon.name_words(name)}
    return sentence.tokens[mention.first].stem in named


def is_past_verb(word: str) -> bool:
    """Return whether an English word is a verb in the past tense: "came", "sold", "reported"."""
    return word in table("dated")["past"] or (len(word) > _SHORTEST_PAST and word.endswith("ed"))


def is_of_asker(sentence: Sentence, one: DateRange) -> bool:
    """Return whether a date stands in a clause about the asker alone: "for my walk tomorrow: findings at the mill"."""
    first, last = sentence.index_from(one.start), sentence.index_from(one.end)
    while first > 0 and sentence.tokens[first - 1].text not in ENDS:
        first -= 1
    while last < len(sentence.tokens) and sentence.tokens[last].text not in ENDS:
        last += 1
    inside = range(first, last)
    said = {sentence.tokens[place].folded for place in inside}
    if said.isdisjoint(_ASKERS) or not said.isdisjoint(_ASKING):
        return False
    stated = [
        place
        for place in range(len(sentence.tokens))
        if sentence.mention_at(place) is not None or sentence.is_noun(place) or sentence.cue_fields(place)
    ]
    return bool(stated) and not any(place in inside for place in stated)
