"""Decide whether a condition is denied: "not yet accepted", "anyone but Ann", "minus 2025".

A negation applies to a condition after it if only words without a meaning of their own, words for the condition's field
and other values of that field stand between. If not, that is unclear: neither the condition nor its opposite is read.
"""

from collections.abc import Collection, Iterator, Sequence

from agent.intent.analysis.negation_words import (
    JOINING,
    UNCLEAR,
    WITHOUT_MEANING,
    Negator,
    action_verbs,
    end_of_phrase,
    ends_before_clause,
    ends_clause,
    is_action_negated,
    is_excluded_value,
    is_negated_agent,
    is_verb_negated,
    joins_words,
    next_mention,
    words_of_kind,
)
from agent.intent.analysis.sentence import ENDS, Sentence
from agent.intent.language import lexicon
from agent.intent.language.text import Token, has_chinese, stem
from agent.intent.values.value_linking import Mention

_REACH = 24
_AUXILIARIES = frozenset("do does did is are was were has have had".split())
_EXISTING = frozenset("there any we you i".split())
_DEEDS = frozenset("held given taken led sold bought paid made written".split())
_OR = ("or", "nor", "或")
_NEAR_BEHIND = 6
"""Maximum tokens after a condition at which a doubtful denial may refer to it."""


def is_negated(sentence: Sentence, start: int, end: int, fields: Collection[str]) -> bool | None:
    """Return whether a condition is denied; None if that is unclear.

    Args:
        start, end: the characters [start, end) that state the condition.
        fields: the fields that the condition may be about.
    """
    first, last = sentence.index_from(start), sentence.index_from(end)
    # The "from" of "apart from June" also belongs to the date.
    first = next((behind for behind, one in sentence.negators.items() if one.first < first < behind), first)
    before = _is_negated_before(sentence, first, last, fields)
    places = list(_places_after(sentence, last, fields))
    around = next((one for place in places if (one := end_of_phrase(sentence, place, "around")) > place), None)
    if around is not None:
        before, places = True, list(_places_after(sentence, around, fields))  # 除了[草稿]以外: "except [drafts]"
    behind: bool | None = _is_excluded_after(sentence, last, places, fields)
    if not behind and around is None:
        behind = is_action_negated(sentence, first, last, fields)
    if behind is None:
        return None
    if behind and before:
        return False if around is not None else None  # 别把草稿排除: "do not exclude drafts"
    return None if before is None else before or behind


def negator_of(sentence: Sentence, start: int, fields: Collection[str]) -> Negator | None:
    """Return the word of negation that applies to the condition at the character `start`; None if none does."""
    return _negator_before(sentence, sentence.index_from(start), fields)[0]


def _is_negated_before(sentence: Sentence, first: int, last: int, fields: Collection[str]) -> bool | None:
    negator, unclear, crosses = _negator_before(sentence, first, fields)
    if negator is None or ends_before_clause(sentence, negator, first):
        return False
    if sentence.folded(0) == "why":  # the date of what was not done may still be asked for
        return False if all(sentence.vocabulary.roles.get(name) == "date" for name in fields) else None
    if negator.kind == "also":
        return False if unclear else None  # "not only backed a firm, as Ann reported"
    if _asks_whether(sentence) and (unclear or negator.kind == "doubtful" or _is_compared(sentence, negator, fields)):
        return False  # "Does Ann's report say that there is no ferry to [Lyon]?" asks about the content of a report
    if negator.kind == "doubtful":
        return False if crosses else None
    if negator.kind in ("not", "prefix") and crosses:
        # "not closed by [Ann]" may deny either.
        return None if is_negated_agent(sentence, negator, first, fields) else False
    if negator.kind not in ("not", "prefix") and _is_of_documents(sentence, negator, first, last):
        if crosses or _is_followed_by_other(sentence, last, fields):
            return None  # "except the drafts of Ann" excludes neither all drafts nor everything by Ann
    elif crosses:
        joining = sentence.folded(first - 1)  # "no drafts or mobile" denies both, "no drafts and mobile" may
        return joining in _OR or (None if joining in JOINING else False)
    if unclear or (negator.kind == "not" and _is_deed_of_topic(sentence, negator, first, fields)):
        return None
    return not _is_doubly_denied(sentence, negator)


def _is_deed_of_topic(sentence: Sentence, negator: Negator, first: int, fields: Collection[str]) -> bool:
    """Return whether a denied verb before a condition describes no document: "a logo not [printed] in Lyon".

    False if the verb is a word for one of `fields` ("not born in"), or if these hold people, who deal with documents.
    """
    between = range(negator.last, first)
    has_deed = any(sentence.folded(place).endswith("ed") or sentence.folded(place) in _DEEDS for place in between)
    is_named = any({*fields} & {*sentence.cue_fields(place)} for place in between)
    if not has_deed or is_named or any(sentence.vocabulary.roles.get(name) == "person" for name in fields):
        return False
    place = negator.first - 1
    while sentence.folded(place) in WITHOUT_MEANING:
        place -= 1
    token = sentence.token(place)
    plain = token is not None and token.kind == "word" and token.folded not in lexicon.STOP_WORDS
    # In "[night] races not held at [Lyon]" the condition before "races" shows that they are the documents.
    described = any(sentence.mention_at(one) is not None for one in (place, place - 1))
    return plain and not described and not sentence.is_noun(place)


def _asks_whether(sentence: Sentence) -> bool:
    """Return whether a question is about the content of documents ("does ... say that") rather than which there are."""
    auxiliary, following = sentence.folded(0), sentence.folded(1)
    return auxiliary in _AUXILIARIES and following not in _EXISTING


def _is_compared(sentence: Sentence, negator: Negator, fields: Collection[str]) -> bool:
    """Return whether a negation contrasts two values of `fields`: "does Ann's report differ, [unlike] Bo's"."""
    return negator.kind == "excluding" and any(
        one.last <= negator.first and not _fields_of(one).isdisjoint(fields) for one in sentence.mentions
    )


def _is_doubly_denied(sentence: Sentence, negator: Negator) -> bool:
    """Return whether one negation reverses another: "nobody but Ann", "nothing other than drafts"."""
    if negator.kind in ("not", "prefix"):
        return False
    place = negator.first - 1
    while place >= 0 and (sentence.is_noun(place) or sentence.folded(place) in words_of_kind("reaches") - JOINING):
        if place + 1 in sentence.negators:
            break
        place -= 1
    outer = sentence.negators.get(place + 1)
    return outer is not None and outer.first < negator.first


def _negator_before(sentence: Sentence, first: int, fields: Collection[str]) -> tuple[Negator | None, int, bool]:
    """Return (negator, number of unknown words between, whether another condition is between).

    The negator is the one that applies to the condition at the token `first`; (None, 0, False) if none does.
    """
    place, unclear, joins, depth, crosses, closed, joined = first, 0, 0, 0, False, False, False
    for _ in range(_REACH if sentence.negators else 0):
        negator = sentence.negators.get(place)
        if negator is not None and (negator.kind != "prefix" or first - place <= 1):
            # "Moreau (not Morel) on [Germany]": a denial in brackets ends with them.
            unclear += joins if negator.kind == "not" else 0
            is_verb = place + 1 < first and is_verb_negated(sentence, negator)
            if is_verb or (is_negated_agent(sentence, negator, first, fields) and not _asks_whether(sentence)):
                unclear -= unclear == 1  # the one unknown word is the verb
            return (None, 0, False) if closed or depth > 0 else (negator, unclear, crosses)
        if place <= 0 or ends_clause(sentence, place - 1, fields):
            break
        step, what = _step_back(sentence, place - 1, fields)
        if what == "clause":
            closed = True  # 不能登录的[紧急]工单: "[urgent] tickets on failed logins"
        elif what == "value":
            closed, joined = closed and not joined, False  # 没有实验的[设计]课: "[design] courses without labs"
        elif what == "other":
            crosses, closed = True, False
        elif what == "word":
            unclear += 1
        joins += joins_words(sentence, place - 1)
        closed |= depth <= 0 and sentence.folded(place - 1) in ("(", "（") and _is_aside(sentence, place - 1, fields)
        depth += (sentence.folded(place - 1) in (")", "）")) - (sentence.folded(place - 1) in ("(", "（"))
        joined |= sentence.folded(place - 1) in JOINING or sentence.folded(place - 1) in ("、", "，", ",")
        place = step
    return None, 0, False


def _is_aside(sentence: Sentence, bracket: int, fields: Collection[str]) -> bool:
    """Return whether what stands in brackets is no other name of a denied value: "not started ([ASG])"."""
    before = sentence.mention_at(bracket - 1)
    is_gloss = before is not None and any(one.field in fields for one in before.matches)
    return not is_gloss and bracket not in sentence.negators


def _step_back(sentence: Sentence, place: int, fields: Collection[str]) -> tuple[int, str]:
    """Return (index of the first token of the phrase that ends at the token `place`, sort of the phrase).

    "value": a value of `fields`; "over": a phrase that a negation reaches across; "other": a condition on another
    field; "clause": the end of a Chinese clause; "word": an unknown word.
    """
    token, over = sentence.tokens[place], sentence.mention_at(place)
    if over is not None and over.last - over.first == 1 and token.folded in lexicon.STOP_WORDS:
        over = None  # "nothing in [Meadow]", although "in" is a value
    if over is not None and any(one.field in fields for one in over.matches):
        return over.first, "value"
    cued = next((one for one in range(max(place - 3, 0), place + 1) if sentence.cue(one)[1] == place + 1), None)
    if cued is not None and not set(sentence.cue_fields(cued)).isdisjoint(fields):
        return cued, "over"
    if over is not None:
        return over.first, "other"
    if any(low <= token.start < high for low, high in sentence.used_spans):
        first = next(low for low, high in sentence.used_spans if low <= token.start < high)
        return sentence.index_from(first), "other"
    if token.kind == "cjk":
        return _step_back_zh(sentence, place)
    if is_excluded_value(sentence, place):
        return place, "word"  # "anything but done for [Lyon]"
    behind = sentence.token(place + 1)  # "Dr. Ilse Brandt", but not "nor Spanish reds"
    is_name = token.is_capital and place > 0 and (behind is None or behind.is_capital or behind.kind != "word")
    over_it = (
        token.kind == "mark" or is_name or token.folded in words_of_kind("reaches") or sentence.is_noun(place)
        or stem(token.folded) in action_verbs()[0] or token.folded.endswith("ed")
    )  # fmt: skip
    return place, "over" if over_it else "word"


def _step_back_zh(sentence: Sentence, place: int) -> tuple[int, str]:
    end = sentence.tokens[place].end
    words = sentence.cached("words before a Chinese value", lambda: _chinese_words(sentence))
    if sentence.text.endswith(words, 0, end):
        longest = max((word for word in words if sentence.text.endswith(word, 0, end)), key=len)
        return place - len(longest) + 1, "over"
    return place, "clause" if sentence.text.endswith("的", 0, end) else "word"


def _chinese_words(sentence: Sentence) -> tuple[str, ...]:
    """Return the Chinese words that may stand between a negation and a value."""
    words = {*words_of_kind("reaches"), *action_verbs()[1], *lexicon.CHINESE_DOCUMENT_NOUNS, *sentence.nouns}
    return tuple(filter(has_chinese, words))


def _is_of_documents(sentence: Sentence, negator: Negator, first: int, last: int) -> bool:
    """Return whether a denied condition has a noun for documents: "except [those] from Lyon", "no urgent [mails]"."""

    def is_head(place: int) -> bool:
        return sentence.folded(place) in words_of_kind("heads") or (
            sentence.is_noun(place) and sentence.mention_at(place) is None
        )

    return is_head(last) or any(is_head(place) for place in range(negator.last, first))


def _is_followed_by_other(sentence: Sentence, last: int, fields: Collection[str]) -> bool:
    """Return whether a condition on a field not in `fields` follows in the clause, from the token `last` on."""
    for place in range(last, len(sentence.tokens)):
        token, over = sentence.tokens[place], sentence.mention_at(place)
        if over is None and ends_clause(sentence, place, fields):
            return False
        if over is not None and not any(one.field in fields for one in over.matches):
            return True
        if any(low <= token.start < high for low, high in sentence.used_spans):
            return True
    return False


def _is_excluded_after(sentence: Sentence, last: int, places: Sequence[int], fields: Collection[str]) -> bool:
    """Return whether words after a condition, at one of `places`, exclude it: "drafts excluded", 草稿不要."""
    for place in places:
        behind = end_of_phrase(sentence, place, "behind")
        covered = sentence.mention_at(place)
        is_in_name = covered is not None and covered.last >= behind  # "card [not present]"
        if behind > place and (is_in_name or _is_of_another_noun(sentence, last, place)):
            continue
        if sentence.folded(place) in words_of_kind("left") and _has_verb_before_out(sentence, place):
            return True
        if behind > place:
            if sentence.folded(place) == "-":
                return place == last  # "[egg]-free cakes from the harbour"; not "which [cakes] are egg-free?"
            longer = next((one for one in sentence.negators.values() if one.first == place and one.last > behind), None)
            if longer is not None:
                return _is_end_of_clause(sentence, longer.last)  # 草稿别给我; not "drafts, aside from those of Ann"
            if sentence.folded(behind).isdecimal():
                return False  # 绘画，除去 2020 年的: "paintings, except of 2020"
            return not _is_followed_by_other(sentence, behind, fields) and next_mention(sentence, behind) is None
    for place in range(places[-1], min(places[-1] + 2 * UNCLEAR, len(sentence.tokens))):
        ended = any(sentence.tokens[one].text in ENDS for one in range(last, place + 1))
        is_mark = ended or sentence.folded(place) == "-"
        if is_mark or sentence.mention_at(place) is not None or sentence.tokens[place].kind == "number":
            return False
        behind = max(end_of_phrase(sentence, place, kind) for kind in ("behind", "excluding"))
        if behind > place and _is_end_of_clause(sentence, behind):
            return place > last  # "those of Ann you can skip"
    return False


def _is_of_another_noun(sentence: Sentence, last: int, place: int) -> bool:
    """Return whether a new clause with a noun of its own is denied: "Ticketwise, [card] not present"."""
    ends = [one for one in range(last, place) if sentence.tokens[one].text in ENDS]
    return bool(ends) and any(map(sentence.is_noun, range(ends[0], place)))


def _is_end_of_clause(sentence: Sentence, place: int) -> bool:
    """Return whether only particles stand from `place` to the end of the clause."""
    token = sentence.token(place)
    while token is not None and (step := _word_length(sentence, token, "ending")):
        place += step
        token = sentence.token(place)
    return token is None or token.text in ENDS


def _is_in_doubt(sentence: Sentence, last: int, fields: Collection[str]) -> bool:
    """Return whether words directly after a condition may deny it: "Lyon? no thanks", "Ann I can hardly bear"."""
    if _asks_whether(sentence):
        return False
    *_, start = _places_after(sentence, last, fields)
    for place in range(start, min(start + _NEAR_BEHIND, len(sentence.tokens))):
        if sentence.tokens[place].text in ENDS or sentence.mention_at(place) is not None:
            asked = place == last and sentence.tokens[place].text in "?？"
            return asked and end_of_phrase(sentence, place + 1, "behind") > place + 1
        if end_of_phrase(sentence, place, "doubtful") > place:
            return True
    return False


def _has_verb_before_out(sentence: Sentence, place: int) -> bool:
    """Return whether a verb that "out" at `place` completes stands earlier in the clause: "[leave] drafts out"."""
    for before in range(place - 1, max(place - _REACH, -1), -1):
        if sentence.tokens[before].text in ENDS and sentence.mention_at(before) is None:
            return False
        if sentence.folded(before) in words_of_kind("leaving"):
            return True
    return False


def _places_after(sentence: Sentence, place: int, fields: Collection[str]) -> Iterator[int]:
    """Yield `place`, then the index after each token or phrase stepped over, to the first other one; at most `_REACH`.

    Stepped over are values and cues of `fields`, nouns for documents, commas and the like, words of the kind "between".
    """
    for _ in range(_REACH):
        yield place
        token, over = sentence.token(place), sentence.mention_at(place)
        if token is None:
            return
        if over is not None and any(one.field in fields for one in over.matches):
            place = over.last
        elif over is None and not set(sentence.cue_fields(place)).isdisjoint(fields):
            place = sentence.cue(place)[1]
        elif token.kind == "cjk" and (said := _length_between(sentence, token)):
            place += said
        elif _may_stand_after(sentence, place):
            place += 1
        else:
            return


def _may_stand_after(sentence: Sentence, place: int) -> bool:
    token = sentence.tokens[place]
    joins = token.kind == "mark" and (token.text not in ENDS or token.text in ",，")
    return joins or sentence.is_noun(place) or token.folded in words_of_kind("between")


def _length_between(sentence: Sentence, token: Token) -> int:
    """Return the length of the word at `token` that may stand between a value and its exclusion, 0 if none."""
    nouns = max(
        (len(word) for word in _nouns_zh(sentence, token) if sentence.text.startswith(word, token.start)), default=0
    )
    return max(nouns, _word_length(sentence, token, "between"))


def _word_length(sentence: Sentence, token: Token, kind: str) -> int:
    """Return the length in characters of the longest word of the list `kind` that begins at a token, 0 if none."""
    return max((len(word) for word in words_of_kind(kind) if sentence.text.startswith(word, token.start)), default=0)


def _nouns_zh(sentence: Sentence, token: Token) -> tuple[str, ...]:
    if token.kind != "cjk":
        return ()
    return (*lexicon.CHINESE_DOCUMENT_NOUNS, *filter(has_chinese, sentence.nouns), *action_verbs()[1])


def is_mention_negated(sentence: Sentence, mention: Mention) -> bool | None:
    """Return whether a named value is denied; None if that is unclear."""
    fields = _fields_of(mention)
    denied = is_negated(sentence, mention.start, mention.end, fields)
    return None if denied is False and _is_in_doubt(sentence, mention.last, fields) else denied


def negated_mentions(sentence: Sentence) -> dict[int, bool | None]:
    """Return for each mention, by its first token, whether it is denied; None if that is unclear.

    A value that is denied or unclear in one place is unclear where it is not denied. If a value of a field is unclear,
    so are its other values that are not denied: a filter on some of them would exclude documents that were asked for.
    """
    found = {one.first: is_mention_negated(sentence, one) for one in sentence.mentions}
    for negator in sentence.negators.values():
        if (over := sentence.mention_at(negator.first)) is not None:
            found[over.first] = None
    doubtful = (one for one in sentence.mentions if found[one.first] is not False)
    denied = {(match.field, match.value) for one in doubtful for match in one.matches}
    for one in sentence.mentions:
        if found[one.first] is False and denied and all((known.field, known.value) in denied for known in one.matches):
            found[one.first] = None
    in_doubt = [_fields_of(one) for one in sentence.mentions if found[one.first] is None]
    for one in sentence.mentions:
        if found[one.first] is False and any(_fields_of(one) <= fields for fields in in_doubt):
            found[one.first] = None
    return found


def _fields_of(mention: Mention) -> set[str]:
    return {known.field for known in mention.matches}
