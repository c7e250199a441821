"""Extract the features by which it is judged whether a name in a question is meant as a constraint.

A feature is a pair of a name and a number, such as ("after by", 1.0) for a value after the word "by". This module draws
no conclusions: `candidate_scoring` weighs the features with trees learned from examples of many domains.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain

from agent.intent.analysis.field_linking import field_matches
from agent.intent.analysis.negation import negator_of
from agent.intent.analysis.person_roles import role_verb_closeness
from agent.intent.analysis.sentence import ENDS, QUOTES, Sentence
from agent.intent.analysis.word_classes import action_stems, is_action_verb, word_class_after, word_class_before
from agent.intent.deciding.cooccurrence_features import cooccurrence_features
from agent.intent.deciding.name_features import match_features, surface_features
from agent.intent.language import calculation_patterns, lexicon
from agent.intent.language.text import has_chinese
from agent.intent.values.value_linking import Mention
from agent.intent.values.value_match import ValueMatch
from agent.intent.words import LANGUAGES, word_frequencies, word_table

ROLES = ("person", "label", "tag", "version", "language", "text")
CONCEPTS = ("status", "kind", "group", "place", "topic", "severity", "audience", "language")
_BEFORE = ("by", "from", "of", "in", "for", "with", "about", "to", "which", "join", "being", "aux", "some", "people")
_AFTER = ("of", "join", "about", "kind", "in", "by", "for", "with", "being", "which", "people")
_ARTICLES = {"the": 1.0, "a": 2.0}
_NEAR = 5
_BESIDE = 3
"""Number of words on each side of a name that are recorded with their distance from it."""
_JOINED = 24
"""Maximum characters between two values of one phrase."""
_JOINS = re.compile(
    r"[\s,，、/|&\"'“”‘’()（）]*(?:(?:\b(?:and|or|vs\.?|versus|both|either|nor|the|a|an|as\s+well\s+as)\b|和|与|或者?|及|以及|还是|也)"
    r"[\s,，、/|&\"'“”‘’()（）]*)*",
    re.IGNORECASE,
)
_JOINING = frozenset(["-", "and", "or", "的", ",", "、", "和"])


@dataclass(frozen=True, slots=True)
class Candidate:
    """A name in a question, read as values of one field: a possible constraint.

    Attributes:
        matches: the values that the name may stand for: spellings of one value, or the values of a group.
        field_count: number of fields that have a value with this name.
        rank: rank of this field among them, from 0 for the field with most documents that have the value.
    """

    mention: Mention
    field: str
    matches: tuple[ValueMatch, ...]
    field_count: int = 1
    rank: int = 0

    @property
    def documents(self) -> int:
        return sum(one.documents for one in self.matches)


def extract_features(sentence: Sentence, one: Candidate) -> dict[str, float]:
    """Return {name of a feature: number} for a candidate; a feature that is missing counts as 0."""
    return dict(
        chain(
            match_features(sentence, one),
            surface_features(sentence, one),
            _field_features(sentence, one),
            _context_features(sentence, one.mention),
            _word_features(sentence, one.mention),
            _cue_features(sentence, one),
            _field_match_features(sentence, one),
            _role_verb_features(sentence, one),
            _neighbour_features(sentence, one),
            cooccurrence_features(sentence, one.mention, one.matches),
            _question_features(sentence, one),
        )
    )


def _field_features(sentence: Sentence, one: Candidate) -> Iterator[tuple[str, float]]:
    vocabulary = sentence.vocabulary
    values = vocabulary.catalogue.fields[one.field]
    yield f"role {vocabulary.roles[one.field]}", 1.0
    for concept in vocabulary.concepts[one.field]:
        if concept in CONCEPTS:
            yield f"is {concept}", 1.0
    yield "list", float(values.field.type == "list")
    yield "distinct", round(math.log10(max(values.distinct, 1)), 2)
    yield "documents", values.documents / max(vocabulary.catalogue.documents, 1)
    yield "ordinary values", vocabulary.ordinary_share[one.field]
    yield "fields", float(one.field_count)
    yield "place", float(one.rank)


def _context_features(sentence: Sentence, mention: Mention) -> Iterator[tuple[str, float]]:
    """Yield (feature, number) for an article before a name, the two words before that, and the words behind."""
    place = mention.first - 1
    while sentence.folded(place) in QUOTES or word_class_before(sentence, place, 0) == "both":
        place -= 1
    first = word_class_before(sentence, place, mention.start)
    if first in _ARTICLES:
        yield "article", _ARTICLES[first]
        place -= 1
        first = word_class_before(sentence, place, sentence.tokens[place + 1].start)
    if place < 0:
        yield "starts", 1.0
    elif first in _BEFORE:
        yield f"after {first}", 1.0
    elif sentence.is_noun(place):
        yield "after noun", 1.0
    if (token := sentence.token(place)) is not None and token.kind == "word":
        yield "after capital", float(token.is_capital and place > 0)
        yield "after acting", float(token.stem in action_stems())
        yield "after participle", float(token.folded.endswith(("ed", "ing")))
        yield "after plain", float(first == "" and not sentence.is_noun(place))
    yield "after mark", float(token is not None and token.kind == "mark")
    second = word_class_before(sentence, place - 1, sentence.tokens[place].start if place > 0 else 0)
    if second in ("by", "in", "of", "from", "about", "aux", "being", "which"):
        yield f"second {second}", 1.0
    yield from _following_features(sentence, mention)


def _following_features(sentence: Sentence, mention: Mention) -> Iterator[tuple[str, float]]:
    place = mention.last
    while sentence.folded(place) in QUOTES:
        place += 1
    token = sentence.token(place)
    yield "possessive", float(re.match(r"['’]s\b", sentence.text[mention.end :]) is not None)
    if token is None or token.text in ENDS:
        yield "ends", 1.0
        return
    kind = word_class_after(sentence, place)
    if kind in _AFTER:
        yield f"before {kind}", 1.0
    yield "before noun", float(sentence.is_noun(place))
    described = _noun_after(sentence, place)
    yield "describes", float(described)
    yield "before own noun", float(token.folded in sentence.nouns)
    plural = token.kind == "word" and token.folded.endswith("s") and not token.folded.endswith("ss")
    yield "before plural", float(plural and kind == "")
    yield "before capital", float(token.is_capital and token.kind == "word")
    yield "before acting", float(is_action_verb(sentence, place))
    yield "before participle", float(token.kind == "word" and token.folded.endswith(("ed", "ing")))
    yield "before plain", float(token.kind == "word" and kind == "" and not sentence.is_noun(place))
    yield "de noun", float(token.text == "的" and (sentence.is_noun(place + 1) or _noun_after(sentence, place + 1)))
    yield "before cjk", float(token.kind == "cjk")
    yield "before number", float(token.kind == "number")


def _word_features(sentence: Sentence, mention: Mention) -> Iterator[tuple[str, float]]:
    """Yield (feature, 1) for each other word of the question: by its distance from the name, by its side, and anywhere.

    Which of these words matter is learned.
    """
    yield f"first: {sentence.folded(0)}", 1.0
    for step in range(_BESIDE):
        yield f"{step} before: {sentence.folded(mention.first - 1 - step)}", 1.0
        yield f"{step} behind: {sentence.folded(mention.last + step)}", 1.0
    before, behind = sentence.tokens[: mention.first], sentence.tokens[mention.last :]
    for where, tokens in (("before", before), ("behind", behind), ("said", (*before, *behind))):
        yield from ((f"{where}: {token.folded}", 1.0) for token in tokens)


def _noun_after(sentence: Sentence, place: int) -> bool:
    """Return whether a noun for documents ("reports") follows from `place` on, after only values and conjunctions.

    "finance and legal reports" -> True for the place after "finance".
    """
    for index in range(place, min(place + _NEAR, len(sentence.tokens))):
        if sentence.is_noun(index):
            return True
        if sentence.mention_at(index) is None and sentence.folded(index) not in _JOINING:
            break
    return False


def _cue_features(sentence: Sentence, one: Candidate) -> Iterator[tuple[str, float]]:
    """Yield (feature, 1 or 0) for cues beside the value, near it or anywhere: of its field, and of competing fields.

    A cue is a phrase that points at a field, as "approved by" points at `approver`.
    """
    mention = one.mention
    others = {known.field for known in mention.matches} - {one.field}
    kin = set(sentence.vocabulary.of_role(sentence.vocabulary.roles[one.field])) - {one.field}
    before, after = (
        cued_fields_beside(sentence, mention, before=True),
        cued_fields_beside(sentence, mention, before=False),
    )
    yield "cue before", float(one.field in before)
    yield "cue after", float(one.field in after)
    yield "cue before alone", float(before == {one.field})
    yield "cue after alone", float(after == {one.field})
    yield "other cue", float(bool(others & (before | after)))
    near = {
        field
        for place in range(max(mention.first - _NEAR, 0), min(mention.last + _NEAR, len(sentence.tokens)))
        if sentence.mention_at(place) is None
        for field in sentence.cue_fields(place)
    }
    yield "cue near", float(one.field in near)
    yield "other near", float(bool((others | kin) & near) and one.field not in near)
    anywhere = {
        field
        for place, fields in sentence.cued_tokens
        if sentence.mention_at(place) is None
        for field in (fields if len(fields) == 1 else ())
    }
    yield "cue anywhere", float(one.field in anywhere)
    yield "other anywhere", float(bool((others | kin) & anywhere) and one.field not in anywhere)
    own = "".join(token.folded for token in sentence.tokens[mention.first : mention.last])
    cued = sentence.vocabulary.cues.get((own,), ()) or sentence.cue_fields(mention.first)
    yield "is cue", float(bool(cued))
    yield "is other cue", float(bool(cued) and one.field not in cued)


def _field_match_features(sentence: Sentence, one: Candidate) -> Iterator[tuple[str, float]]:
    """Yield (feature, strength) for words near the value, or anywhere, that point at a field by the field's name."""
    mention = one.mention
    near: dict[str, float] = {}
    anywhere: dict[str, float] = {}
    for place, match in field_matches(sentence).items():
        if sentence.mention_at(place) is None:
            found = (anywhere, near) if mention.first - _NEAR <= place < mention.last + _NEAR else (anywhere,)
            for held in found:
                held |= {field: max(match.strength, held.get(field, 0.0)) for field in match.fields}
    rivals = {known.field for known in mention.matches} - {one.field}
    kin = set(sentence.vocabulary.of_role(sentence.vocabulary.roles[one.field])) - {one.field}
    yield "named near", near.get(one.field, 0.0)
    yield "named anywhere", anywhere.get(one.field, 0.0)
    yield "rival named near", max((near.get(field, 0.0) for field in rivals), default=0.0)
    yield "kin named anywhere", max((anywhere.get(field, 0.0) for field in kin), default=0.0)
    yield "other named near", max((near[field] for field in near if field != one.field), default=0.0)


def _role_verb_features(sentence: Sentence, one: Candidate) -> Iterator[tuple[str, float]]:
    """Yield (feature, closeness) of verbs to a person's name: verbs for its field ("wrote" for authors) and others."""
    if sentence.vocabulary.roles[one.field] != "person":
        return
    near = role_verb_closeness(sentence, one.mention)
    own = near.get(one.field, 0.0)
    rivals = max((near.get(known.field, 0.0) for known in one.mention.matches if known.field != one.field), default=0.0)
    yield "deed near", round(own, 2)
    yield "rival deed near", round(rivals, 2)
    yield "deed lead", round(own - rivals, 2)
    yield "kin deed near", round(max((near[field] for field in near if field != one.field), default=0.0), 2)


_FILLERS = frozenset(
    """- ' " ” ’ 」 “ ‘ 「 的 and or is = : ： a an the of as in both either with 是 为 还 名 叫""".split()
)


def cued_fields_beside(sentence: Sentence, mention: Mention, *, before: bool) -> set[str]:
    """Return the fields whose cue stands next to a value; empty if there is none.

    Fillers such as "the", and other values, may stand between the cue and the value.

    Args:
        before: whether to look before the value; if False, after it.
    """
    step, place = (-1, mention.first - 1) if before else (1, mention.last)
    for _ in range(_NEAR):
        if before:
            # Take the longest cue: "released by" points at `releasedBy`, "by" alone at every field of people.
            starts = (first for first in range(max(place - 3, 0), place + 1) if sentence.cue(first)[1] == place + 1)
            fields = set(sentence.cue_fields(next(starts, -1)))
        else:
            fields = set(sentence.cue_fields(place))
        over = sentence.mention_at(place)
        # The verb of "did Ann release" is a cue, although it is also an inflection of the value `released`.
        is_verb = over is not None and all(known.kind == "stem" for known in over.matches)
        if fields and (over is None or is_verb):
            return _narrowed(sentence, place, fields) if before else fields
        said = sentence.folded(place)
        if said not in _FILLERS and said not in ",、" and (over is None or over is mention):
            return set()
        place += step
    return set()


def _narrowed(sentence: Sentence, place: int, fields: set[str]) -> set[str]:
    """Return the fields that a preposition means by the verb before it; `fields` if there is no such verb.

    In "owned by", "by" at `place` may mean any field of people; "owned" says that it is the owner.
    """
    for earlier in (place - 1, place - 2):
        deed = set(sentence.cue_fields(earlier))
        if not deed or sentence.mention_at(earlier) is not None:
            continue
        if fields & deed:
            return fields & deed
        kinds = {sentence.vocabulary.roles[field] for field in fields}
        if earlier == place - 1 and word_class_before(sentence, place, 0) == "by":
            return {field for field in deed if sentence.vocabulary.roles[field] in kinds} or fields
    return fields


def are_joined(sentence: Sentence, one: Mention, other: Mention) -> bool:
    """Return whether two names are close together, with only conjunctions and marks between them."""
    low, high = (one.end, other.start) if one.start < other.start else (other.end, one.start)
    between = sentence.text[low:high]
    return low <= high and len(between) <= _JOINED and _JOINS.fullmatch(between) is not None


def _neighbour_features(sentence: Sentence, one: Candidate) -> Iterator[tuple[str, float]]:
    same = other = 0
    for mention in sentence.mentions:
        if mention is one.mention or not are_joined(sentence, one.mention, mention):
            continue
        if mention.matches_in(one.field):
            same += 1
        else:
            other += 1
    yield "beside same", float(same)
    yield "beside other", float(other)
    again = [mention for mention in sentence.mentions if mention is not one.mention and mention.matches_in(one.field)]
    yield "same field", float(len(again))
    others = [other for other in sentence.mentions if other is not one.mention and not other.matches_in(one.field)]
    known = [other.matches[0] for other in others if other.matches]
    yield "other exact", float(sum(other.kind in ("exact", "short", "form") for other in known))
    yield "other people", float(sum(sentence.vocabulary.roles[other.field] == "person" for other in known))
    yield "other rare", float(sum(not _is_ordinary(sentence, mention) for mention in others))


def _is_ordinary(sentence: Sentence, mention: Mention) -> bool:
    return all(token.stem in word_frequencies() for token in sentence.tokens[mention.first : mention.last])


def _question_features(sentence: Sentence, one: Candidate) -> Iterator[tuple[str, float]]:
    text, mention = sentence.text, one.mention
    yield "about", float(sentence.is_in_topic(mention.start))
    yield "counted", float(sentence.counts_documents)
    yield "calculating", float(sentence.has_calculation_word)
    yield "dated", float(sentence.has_dates)
    yield "tokens", float(len(sentence.tokens))
    yield "mentions", float(len(sentence.mentions))
    nouns = sentence.places("nouns", Sentence.is_noun)
    yield "noun before", float(bool(nouns) and nouns[0] < mention.first)
    yield "noun after", float(bool(nouns) and nouns[-1] >= mention.last)
    yield "nouns", float(len(nouns))
    yield "own nouns", float(len(sentence.places("own nouns", lambda one, place: one.folded(place) in one.nouns)))
    head = sentence.folded(0)
    yield (
        "asks how",
        float(head in question_words() or any(word in text for word in word_table("link", "zh")["asking"].split())),
    )
    yield "asks which", float(head in ("which", "what", "who", "whose") or "哪" in text)
    yield "asks yes", float(calculation_patterns.YES_OR_NO.search(text) is not None)
    yield "says list", float(head in ("list", "show", "find", "give", "any", "all", "get"))
    yield "is question", float(text.rstrip().endswith(("?", "？")))
    said = sentence.places("content", is_content_word)
    yield "other words", float(len(said))
    yield "words before", float(sum(place < mention.first for place in said))
    yield "words behind", float(sum(place >= mention.last for place in said))
    yield "topic elsewhere", float(bool(sentence.topic_spans) and not sentence.is_in_topic(mention.start))
    yield "numbers", float(len(sentence.used_spans))
    yield "position", round(mention.first / max(len(sentence.tokens), 1), 2)
    denied = sentence.negations.get(mention.first) is True
    negator = negator_of(sentence, mention.start, (one.field,)) if denied else None
    yield "denied", float(denied)
    yield "excluded", float(negator is not None and negator.kind == "excluding")
    yield "chinese question", float(has_chinese(text))


@cache
def question_words() -> frozenset[str]:
    """Return words by which a question asks for an explanation or advice: "how", "why", "should", 如何."""
    return frozenset(word for language in LANGUAGES for word in word_table("link", language)["asking"].split())


def is_content_word(sentence: Sentence, place: int) -> bool:
    """Return whether a token is a content word: no stop word, value, cue of a field or noun for documents."""
    token = sentence.tokens[place]
    return (
        token.kind in ("word", "cjk")
        and token.folded not in lexicon.STOP_WORDS
        and sentence.mention_at(place) is None
        and not sentence.is_noun(place)
        and not sentence.cue_fields(place)
    )
