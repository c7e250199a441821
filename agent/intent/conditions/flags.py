"""Find conditions on flags, which are fields that are true or false: "with parking".

The words of a flag's name stand for its value true. The trees of `candidate_scoring` give the probability that they
are a condition, as for any other value. This module finds the words and tells whether they are denied.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from agent.intent.analysis.field_linking import SHORTENED, field_matches
from agent.intent.analysis.negation import is_mention_negated
from agent.intent.analysis.negation_words import end_of_phrase
from agent.intent.analysis.sentence import Sentence
from agent.intent.conditions.flag_words import (
    DENYING_BEGINNINGS,
    MOST_SENSES,
    assigned_value,
    find_name_hits,
    group_hits,
    is_left_open,
    is_only_head_noun,
    names_documents,
)
from agent.intent.deciding.candidate_scoring import scoring_models
from agent.intent.deciding.constraints import DENIED_FILTERS_FROM, UNCLEAR_PROBABILITY, Constraint
from agent.intent.deciding.features import Candidate, extract_features
from agent.intent.language import lexicon
from agent.intent.language.text import chinese_words, has_chinese
from agent.intent.reading import BOOSTS_FROM, FILTERS_FROM
from agent.intent.values.field_words import chinese_field_words
from agent.intent.values.value_linking import Mention
from agent.intent.values.value_match import ValueMatch
from agent.intent.values.value_names import boolean_texts
from agent.intent.words import word_table
from retrievers.core.types import FieldCatalogue
from retrievers.text.chinese_dictionary import term_translations

_LEAST_SHARE = 0.3
_WHOLE = 0.8
"""Minimum share of a flag's name in the question at which a value behind it certainly belongs to the flag."""
_MOST_PLACES = 8
"""Maximum places that are examined for one flag; a text that repeats its name often would take too long."""
_SET = 0.98
"""Probability of a flag whose value is written behind it."""
_PASSED = frozenset("- been be being a an any the own is are was were have has had with still yet".split())
"""Words that may stand between a denial and a flag's words."""
_EITHER = frozenset("/ or nor".split())
_STILL_TO_BE = re.compile(
    r"\b(?:(?:yet|still)\s+to\s+(?:be\s+|get\s+|have\s+)?|(?:waiting\s+for|awaiting|out\s+of)\s+(?:an?\s+|the\s+)?)$",
    re.IGNORECASE,
)
_OF_ONE = re.compile(
    r"\b(?:it|he|she|you|i|we)\s+(?:(?:is|was|be|been|have|has|had|get|got|not|still|ever|already|a|an|any)\s+)*$",
    re.IGNORECASE,
)
"""Matches a subject that is one known document or a person, so that the flag is no condition: "was it [escalated]?"."""
_SWITCHED = frozenset("is are was were be been being turned switched currently strictly".split())


@dataclass(frozen=True, slots=True)
class Flag:
    """A field that is true or false.

    Attributes:
        truth: the field's values that mean true and false.
        documents: number of documents in which the field is true, and in which it is false.
        names: English names as words, without words such as "is". The first `own` names are the field's own, the others
            translations of its Chinese name.
        chinese: Chinese names.
        is_denial: True if the name itself denies: `non_smoking`.
    """

    field: str
    truth: Mapping[bool, str]
    documents: Mapping[bool, int]
    names: tuple[tuple[str, ...], ...]
    chinese: tuple[str, ...]
    is_denial: bool
    own: int


@dataclass(frozen=True, slots=True)
class FlagCandidate:
    """A flag that a question names, as a candidate for a condition.

    Attributes:
        truth: the field's values that mean true and false.
        start, end: the characters of the condition; they include a value that is written behind it: "pets = no".
        denied: True if the condition is that the flag is false.
        is_loose: True if a translation of the flag's name stands where the question names the documents.
    """

    candidate: Candidate
    truth: Mapping[bool, str]
    start: int
    end: int
    denied: bool
    is_loose: bool = False


def read_flag_conditions(sentence: Sentence) -> list[Constraint]:
    """Return the conditions on flags that are likely enough to boost, one for each field, at its likeliest place.

    A field named together with its opposite ("fragile and non-fragile") is no condition.
    """
    found: dict[str, Constraint] = {}
    said: dict[str, set[bool]] = {}
    named = list(flag_candidates(sentence))
    for one, held in named:
        if any(_is_within(one.candidate, other.candidate) for other, _ in named):
            continue
        field, confidence = one.candidate.field, round(scoring_models().individual.probability(held), 3)
        if one.end > one.candidate.mention.end and one.candidate.matches[0].share >= _WHOLE:
            confidence = max(confidence, _SET)
        elif one.is_loose:
            confidence = min(confidence, UNCLEAR_PROBABILITY)
        elif one.denied and confidence >= DENIED_FILTERS_FROM:
            confidence = max(confidence, FILTERS_FROM)
        if confidence >= BOOSTS_FROM or one.candidate.matches[0].share >= 1:
            said.setdefault(field, set()).update(
                {one.denied, one.denied != is_left_open(sentence, one.candidate.mention)}
            )
        if confidence >= BOOSTS_FROM and (field not in found or confidence > found[field].confidence):
            value = one.truth[not one.denied]
            found[field] = Constraint(field, (value,), one.start, one.end, confidence=confidence)
    return [one for field, one in found.items() if len(said[field]) == 1]


def _is_within(one: Candidate, other: Candidate) -> bool:
    """Return whether the flag `other` is named by the words of `one` and more: `rd_close` by "[road closed]"."""
    (first, last), (start, end) = ((each.mention.first, each.mention.last) for each in (one, other))
    return one.field != other.field and start <= first and last <= end and last - first < end - start


def flag_candidates(sentence: Sentence) -> Iterator[tuple[FlagCandidate, dict[str, float]]]:
    """Yield (flag, features) for every place where a question names a flag; see `features.extract_features`."""
    catalogue = sentence.vocabulary.catalogue
    for flag in catalogue.memo.get("flags", lambda: _flags(catalogue)):
        for mention, denied, is_loose in _mentions(sentence, flag)[:_MOST_PLACES]:
            named = _flag_candidate(sentence, flag, mention, denied)
            if named is not None:
                named = replace(named, is_loose=is_loose and not named.denied)
                denials = {**sentence.negations, mention.first: named.denied}
                yield named, extract_features(replace(sentence, negations=denials), named.candidate)


def _flags(catalogue: FieldCatalogue) -> tuple[Flag, ...]:
    """Return the flags of a catalogue, with the names by which a question may call them.

    Flags are boolean fields with both values, and fields whose only two values mean true and false, such as "yes" and
    "no" or 1 and 0.
    """
    found = []
    for name, values in catalogue.fields.items():
        is_boolean = values.field.item == "boolean" and values.distinct > 1
        truth = {True: "true", False: "false"} if is_boolean else boolean_texts(values)
        if truth is None:
            continue
        documents = {said: values.values.get(value, values.documents // 2) for said, value in truth.items()}
        own = lexicon.name_words(name)
        latin, chinese = [word for word in own if not has_chinese(word)], "".join(filter(has_chinese, own))
        whole, chinese = chinese, _plain_zh().sub("", chinese)
        chinese = chinese if len(chinese) > 1 else whole  # 效 of 有效 ("valid") is also in 失效 ("invalid")
        denies = len(latin) > 1 and latin[0] != "in" and latin[0] in DENYING_BEGINNINGS  # `in_stock` denies nothing
        words = tuple(word for word in latin[denies:] if word not in _plain()) or tuple(latin[denies:])
        spelt = chinese_field_words(name)
        senses = [sense for word in (chinese, *spelt) for sense in term_translations(word)[:MOST_SENSES]]
        names = tuple(filter(None, (words, *senses)))
        others = filter(has_chinese, (whole, chinese, *lexicon.bilingual_synonyms().get(" ".join(words), ()), *spelt))
        found.append(Flag(name, truth, documents, names, tuple(others), denies, int(bool(words))))
    return tuple(found)


@cache
def _plain() -> frozenset[str]:
    return frozenset(word_table("link", "en")["truth"]["plain"].split())


@cache
def _plain_zh() -> re.Pattern[str]:
    return re.compile(rf"^(?:{'|'.join(word_table('link', 'zh')['truth']['plain'].split())})(?!$)")


def _mentions(sentence: Sentence, flag: Flag) -> list[tuple[Mention, bool, bool]]:
    """Return (mention, is denied, is loose) for each place where the question names a flag.

    Denied: "unanswered" for `answered`; the opposite if the flag's name is a denial itself. Loose: a translation of the
    name where it may only name the documents: "which [rare books] did Ann finish?"
    """
    found: list[tuple[Mention, bool, bool]] = []
    chinese = (*flag.chinese, *(phrase for phrase, fields in sentence.pinyin_fields.items() if fields == (flag.field,)))
    for index, token in enumerate(sentence.tokens):
        name = next((name for name in chinese if sentence.text.startswith(name, token.start)), "")
        if name and token.kind == "cjk" and not (found and index < found[-1][0].last):
            found.append((_mention(sentence, flag, index, index + len(name), 1.0), False, False))
    for words in () if found else flag.names:
        whole = sum(map(len, words))
        for hits in group_hits(find_name_hits(sentence, words)):
            share = sum(hit.closeness * len(words[hit.word]) for hit in hits) / whole
            if share >= _LEAST_SHARE:
                mention = _mention(sentence, flag, hits[0].first, hits[-1].last, share)
                is_own = words in flag.names[: flag.own]
                if is_only_head_noun(sentence, mention, hits, words, is_own=is_own):
                    continue
                is_glossed = not is_own or all(hit.is_glossed(sentence) for hit in hits)
                # A denial may stand inside the name: 对客户[没]影响 ("[no] effect on customers").
                within = [_negation_start(sentence, hit.first) for hit in hits[1:]]
                denied = any(start is not None and start >= mention.start for start in within)
                denied = denied or any(hit.denied for hit in hits[1:])
                is_loose = is_glossed and names_documents(sentence, mention)
                found.append((mention, (denied or hits[0].denied) != flag.is_denial, is_loose))
    return found or [(mention, False, False) for mention in _mentions_with_value(sentence, flag)]


def _mentions_with_value(sentence: Sentence, flag: Flag) -> Iterator[Mention]:
    """Yield mentions of a flag by a shortened name with a value behind it: 清客那栏是n ("column qk is n") for `qk`."""
    for place, column in field_matches(sentence).items():
        is_own = column.fields == (flag.field,) and column.strength >= SHORTENED
        if is_own and assigned_value(sentence, sentence.tokens[column.last - 1].end) is not None:
            yield _mention(sentence, flag, place, column.last, 1.0)


def _mention(sentence: Sentence, flag: Flag, first: int, last: int, share: float) -> Mention:
    start, end = sentence.tokens[first].start, sentence.tokens[last - 1].end
    known = ValueMatch(flag.field, flag.truth[True], "flag", flag.documents[True], round(share, 2))
    return Mention(first, last, start, end, (known,))


def _flag_candidate(sentence: Sentence, flag: Flag, mention: Mention, denied: bool) -> FlagCandidate | None:
    """Return the flag as a candidate for a condition, with the denials and the value around its mention.

    The result is None if the words belong to a date, a number or a phrase such as 以外 ("except"), if the question is
    about a single document, or if it is unclear whether the words are denied.

    Args:
        denied: whether the words of the mention themselves deny the flag.
    """
    start, end = mention.start, mention.end
    if any(low < end and start < high for low, high in sentence.used_spans) or _OF_ONE.search(sentence.text[:start]):
        return None
    if _is_in_exception(sentence, mention.first - 1, mention) or _is_in_exception(sentence, mention.first, mention):
        return None  # the 外 ("outside") in 除考证以外的课 ("courses other than exam preparation")
    begins = _negation_start(sentence, mention.first)
    if begins is None and _has_unclear_denial_behind(sentence, mention):
        return None
    # The "-free" of "egg-free" has already denied the hit.
    is_free = sentence.folded(mention.last) == "-" and sentence.folded(mention.last + 1) in ("free", "less")
    # "not approved and uninsured": the "not" does not reach the second flag, which denies itself.
    is_own = denied and not flag.is_denial
    negated = begins is not None or (not (is_free or is_own) and is_mention_negated(sentence, mention))
    if negated is None:
        return None
    start = min(_extent(sentence, mention), start if begins is None else begins)
    value, end = assigned_value(sentence, mention.end) or (None, end)
    is_no = value is False
    denied ^= negated or is_no or _is_refused(sentence, mention.last) or _is_failed(sentence, flag, mention)
    denied |= is_no and not flag.is_denial  # "not moved = no" means that `moved` is false
    known = replace(mention.matches[0], value=flag.truth[not denied], documents=flag.documents[not denied])
    fields = {one.field for place in range(mention.first, mention.last) for one in _matches_at(sentence, place)}
    candidate = Candidate(mention, flag.field, (known,), 1 + len(fields))
    return FlagCandidate(candidate, flag.truth, start, end, denied)


def _has_unclear_denial_behind(sentence: Sentence, mention: Mention) -> bool:
    """Return whether "not" and an unknown verb follow a flag, so that its value is unclear: "audit was not met"."""
    place = mention.last
    while sentence.folded(place).removesuffix("n") in {*_SWITCHED, *lexicon.AUXILIARIES, "'", "’"}:
        place += 1
    negator = next((one for one in sentence.negators.values() if one.first == place and one.kind == "not"), None)
    verb = sentence.token(negator.last) if negator is not None else None
    if negator is None or verb is None or sentence.mention_at(negator.last) is not None:
        return False
    is_deed = place > mention.last or verb.folded.endswith("ed") or verb.folded in lexicon.PARTICIPLES
    return is_deed and verb.kind == "word" and not _is_refused(sentence, mention.last)


def _is_in_exception(sentence: Sentence, place: int, mention: Mention) -> bool:
    """Return whether a mention has characters of a word such as 以外 ("except") that begins at a token."""
    last = end_of_phrase(sentence, place, "around")
    if last <= max(mention.first, place + 1):
        return False
    # 可以外借 ("may be borrowed") has the word 可以.
    return chinese_words(sentence.text).get(sentence.tokens[place].start) == sentence.tokens[last - 1].end


def _extent(sentence: Sentence, mention: Mention) -> int:
    """Return the start of the flag, or of a verb before it that offers it: "[accept] pets", [允许]带宠物."""
    offered = _offering_zh().search(sentence.text[: mention.start])
    if offered is not None:
        return offered.start()
    place = mention.first - 1
    while sentence.folded(place) in _PASSED:
        place -= 1
    offers = sentence.folded(place) in word_table("link", "en")["truth"]["offering"].split()
    return sentence.tokens[place].start if offers else mention.start


def _negation_start(sentence: Sentence, first: int) -> int | None:
    """Return the start of a denial before a flag, or None: "[nobody] answered", [不]允许带宠物 ("no pets").

    Args:
        first: the first token of the flag.
    """
    place = first - 1
    while sentence.folded(place) in _PASSED:
        place -= 1
    if sentence.folded(place) in _EITHER and place > 0:  # "no siren/lights"
        return _negation_start(sentence, place - 1)
    for index in (place, place - 1):
        if sentence.folded(index) in _denying() or (sentence.folded(index) == "t" and index < place):
            return sentence.tokens[index].start
        if sentence.mention_at(index) is not None:
            break
    late = _STILL_TO_BE.search(sentence.text[: sentence.tokens[first].start])
    if late is not None:
        return late.start()
    found = _denied_zh().search(sentence.text[: sentence.tokens[first].start])
    return found.start() if found is not None else None


def _is_refused(sentence: Sentence, place: int) -> bool:
    """Return whether the words from `place` refuse a flag: "where pets are forbidden", "encryption turned off"."""
    while sentence.folded(place) in _SWITCHED:
        place += 1
    is_verb = sentence.folded(place) == "off" and sentence.folded(place - 1).endswith("ed")  # "closed off"
    return sentence.folded(place) in word_table("link", "en")["truth"]["refusing"].split() and not is_verb


@cache
def _denying() -> frozenset[str]:
    return frozenset(word_table("link", "en")["truth"]["denying"].split())


@cache
def _offering_zh() -> re.Pattern[str]:
    return re.compile(rf"(?:{'|'.join(word_table('link', 'zh')['truth']['between'].split())})+\s*$")


@cache
def _denied_zh() -> re.Pattern[str]:
    words = word_table("link", "zh")["truth"]
    return re.compile(rf"(?:{'|'.join(words['denying'].split())})(?:{'|'.join(words['between'].split())})*\s*$")


def _matches_at(sentence: Sentence, place: int) -> Sequence[ValueMatch]:
    mention = sentence.mention_at(place)
    return mention.matches if mention is not None else ()


def _is_failed(sentence: Sentence, flag: Flag, mention: Mention) -> bool:
    """Return whether the question says that the commitment of a flag was not met: "a missed SLA" for `sla_ok`."""
    failing = frozenset(word_table("link", "en")["truth"]["failing"].split())
    failing_zh = tuple(word_table("link", "zh")["truth"]["failing"].split())
    is_met = not {"ok", "met", "kept"}.isdisjoint(lexicon.name_words(flag.field))
    around = range(max(mention.first - 3, 0), min(mention.last + 3, len(sentence.tokens)))
    behind = sentence.text[mention.end :].lstrip()
    return is_met and (behind.startswith(failing_zh) or any(sentence.tokens[place].stem in failing for place in around))
