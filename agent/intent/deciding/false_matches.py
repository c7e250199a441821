"""Recognise words of a question that match a value by their spelling but do not mean it: "it" for IT."""

import re
from functools import cache

from agent.intent.analysis.comparisons import read_comparison
from agent.intent.analysis.sentence import Sentence
from agent.intent.analysis.word_classes import action_stems, word_class_before
from agent.intent.deciding.features import is_content_word
from agent.intent.language import lexicon
from agent.intent.language.amounts import Amount, AmountReading
from agent.intent.language.text import stem
from agent.intent.values.numeric_codes import TO, fields_named_before, number_list_start
from agent.intent.values.value_linking import Mention
from agent.intent.values.value_match import ValueMatch
from agent.intent.words import LANGUAGES, word_table

_QUOTES = frozenset("\"'“‘「『《")
_SHORTEST_DENIED = 4
"""Minimum letters of a stop word that may be a value after a word of negation."""
_LONGEST_SPAN = 5
"""Maximum tokens from "between" to the second number of a range."""
_ANSWERS = frozenset("answer reply response summary translation overview abstract".split())
_PARTS_OF_TEXTS = frozenset("section sections chapter chapters figure page pages table rfc step".split())


def is_false_match(sentence: Sentence, mention: Mention, known: ValueMatch) -> bool:
    """Return whether a name does not mean the value `known` here but, for example, is a pronoun: "it" for IT."""
    field, kind = known.field, known.kind
    role, before = sentence.vocabulary.roles[field], sentence.folded(mention.first - 1)
    if role == "version" and before in _PARTS_OF_TEXTS:
        return True
    if kind == "stem" and sentence.has_dates and mention.last - mention.first == 1:
        dates = {stem(word) for name in sentence.vocabulary.of_role("date") for word in lexicon.name_words(name)}
        if sentence.tokens[mention.first].stem in dates:
            return True  # "opened since June" is about a date
    if (
        kind == "translated"
        and mention.last - mention.first == 1
        and sentence.tokens[mention.first].folded in sentence.nouns
    ):
        return True  # "concerts" means the documents, not part of the title of a symphony concert
    if kind == "translated" and _dates_documents(sentence, mention):
        return True  # 团队发布的文档 are documents that the team published, not documents tagged "release"
    if _is_language_of_answer(sentence, mention):
        return True  # "answer in German"
    if _numbers_something_else(sentence, mention, field):
        return True  # "shelf 011" is no case CS-011
    is_level = kind == "form" and sentence.text[mention.start : mention.end].isdecimal()
    if (known.value.isdecimal() or is_level) and _is_bound(sentence, mention, field):
        return True  # "at least berth 42"
    return (role == "person" and _name_continues(sentence, mention)) or _is_pronoun(sentence, mention, known)


def _dates_documents(sentence: Sentence, mention: Mention) -> bool:
    """Return whether a Chinese name is a date field's verb before a noun for documents: [发布]的文档 ("published")."""
    dates = set(sentence.vocabulary.of_role("date"))
    is_verb = not dates.isdisjoint(sentence.cue_fields(mention.first)) and sentence.folded(mention.last) == "的"
    return is_verb and sentence.is_noun(mention.last + 1)


def is_determiner(sentence: Sentence, mention: Mention) -> bool:
    """Return whether a name is only a determiner or an ordinal, not quoted or capitalised: "other", "first", 其他."""
    said = sentence.text[mention.start : mention.end]
    token = sentence.tokens[mention.first]
    if said.casefold() not in _determiners() or (token.is_capital and mention.first > 0):
        return False
    return sentence.text[mention.start - 1 : mention.start] not in _QUOTES or mention.start == 0


@cache
def _determiners() -> frozenset[str]:
    return frozenset(word for language in LANGUAGES for word in word_table("link", language)["determiners"].split())


def _is_language_of_answer(sentence: Sentence, mention: Mention) -> bool:
    """Return whether a name is the language in which the asker wants the answer: "reply in [French]", 用[英文]回答."""
    said = sentence.text[mention.start : mention.end].casefold()
    if not any(said in names for names in lexicon.LANGUAGE_NAMES.values()):
        return False
    text = f"{sentence.text[: mention.start]}\0{sentence.text[mention.end :]}"
    found = next(filter(None, (_answer_language_pattern(language).search(text) for language in LANGUAGES)), None)
    # Documents of the collection may be called "answers".
    return found is not None and not (_ANSWERS & sentence.nouns & {*found[0].casefold().split()})


@cache
def _answer_language_pattern(language: str) -> re.Pattern[str]:
    """Return the pattern of requests such as "answer in French", in which a zero byte has replaced "French"."""
    return re.compile(word_table("link", language)["answer_language"], re.IGNORECASE | re.VERBOSE)


def _numbers_something_else(sentence: Sentence, mention: Mention, field: str) -> bool:
    """Return whether a bare number belongs to another field or to another thing: "shelf [011]" is no case CS-011."""
    tokens = sentence.tokens[mention.first : mention.last]
    if any(token.kind != "number" for token in tokens) or sentence.vocabulary.roles[field] == "version":
        return False
    named = fields_named_before(sentence.tokens, mention.first, sentence.vocabulary)
    place = number_list_start(sentence.tokens, mention.first) - 1
    before = sentence.token(place)
    if named or before is None or before.kind != "word":
        return bool(named) and field not in named
    is_led = bool(word_class_before(sentence, place, mention.start)) or before.stem in action_stems()
    return is_content_word(sentence, place) and not is_led


def _is_bound(sentence: Sentence, mention: Mention, field: str) -> bool:
    """Return whether a number with the word for its field bounds a comparison or range: "berth 7 to [berth 42]"."""
    start, end = sentence.extent(mention, field)
    stated = read_comparison(sentence, Amount(start, end, (AmountReading(0.0),)))
    if stated is not None and stated.is_open:
        return True
    first, last = sentence.index_from(start), sentence.index_from(end)
    before, behind = sentence.token(first - 2), sentence.tokens[last + 1 : last + 4]
    spans = [sentence.folded(place) for place in range(max(first - _LONGEST_SPAN, 0), first)]
    if "between" in spans[-1:] or ("between" in spans and spans[-1] == "and"):
        return True  # "between severity 1 and severity 3"
    follows = sentence.folded(first - 1) in TO and before is not None and before.kind == "number"
    return follows or (sentence.folded(last) in TO and any(token.kind == "number" for token in behind))


def _name_continues(sentence: Sentence, mention: Mention) -> bool:
    """Return whether an unknown capitalised word follows a person's name: "Anders Holm [Bridge]" is no person."""
    following = sentence.token(mention.last)
    if following is None or following.kind != "word" or not following.is_capital or following.text.isupper():
        return False
    named = sentence.mention_at(mention.last) or sentence.is_noun(mention.last) or sentence.cue_fields(mention.last)
    return following.start == mention.end + 1 and not named


def _is_pronoun(sentence: Sentence, mention: Mention, known: ValueMatch) -> bool:
    """Return whether a name is only a pronoun or another stop word here: "when does [it] expire?"."""
    token = sentence.tokens[mention.first]
    is_deed = sentence.has_dates or sentence.folded(mention.last) == "by"
    if known.kind == "exact" and token.folded.endswith("ed") and not is_deed:
        return False  # "published" as a state; not "published in May"
    if mention.last - mention.first > 1 or token.folded not in lexicon.STOP_WORDS or token.text.isupper():
        return False
    before = mention.first - 1
    negator = sentence.negators.get(mention.first)
    if negator is not None and len(token.folded) >= _SHORTEST_DENIED:  # not the code "IN" in "a state not in Texas"
        before = negator.first - 1  # "a status other than [done]"
    return known.field not in {*sentence.cue_fields(mention.last), *sentence.cue_fields(before)}
