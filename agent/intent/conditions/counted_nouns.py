"""Decide what a number counts, whether its size identifies a field, and which words mean none or some: "no fines"."""

import re
from collections.abc import Iterator
from functools import cache

from agent.intent.analysis.comparisons import Comparison, comparison_words
from agent.intent.analysis.field_linking import FieldIndex
from agent.intent.analysis.sentence import Sentence
from agent.intent.conditions.document_numbers import NumberCondition
from agent.intent.language import lexicon
from agent.intent.language.text import has_chinese, stem
from agent.intent.language.units import CURRENCIES
from agent.intent.words import word_table

HAVING = frozenset("with of for worth having has have had whose where".split())
_ANY = frozenset("a an any each every no".split())
_DETERMINERS = frozenset("a an the their its".split())
_LEAST_BARE = 100
"""Minimum number that can identify its field by range alone; smaller ones lie in the range of too many fields."""
_COUNTED = frozenset(["time", *CURRENCIES])
"""Kinds of units of which a document may have none: "no days lost", "without a fine"."""
_COUNT_ZH = re.compile(r"(?<=..)(?:总?[人次件个]?数量?|数|总?金?额)$")
_REACH = 40


def read_none_or_some(sentence: Sentence, columns: FieldIndex) -> Iterator[NumberCondition]:
    """Yield conditions that a count is 0 or more than 0: "no days lost", "somebody voted against", 没有罚款 ("no
    fine").

    The field must be named in full, every document must have it, and 0 must be its least number.
    """
    for name in filter(lambda name: _may_be_none(columns, name), columns.measures):
        for start, end in _field_name_spans(sentence, columns, name):
            patterns = _patterns("zh" if has_chinese(sentence.text[start:end]) else "en")
            said = patterns["before"].search(sentence.text, max(0, start - _REACH), start)
            if said is None or patterns["behind"].match(sentence.text, end) is None:
                continue
            is_denied = patterns["denied"].search(sentence.text, max(0, said.start() - _REACH), said.start())
            words = said.groupdict()
            if _is_idiom(sentence, columns, name, said, end):
                continue
            if is_denied is not None or not (words.get("people") or _is_count(columns, name)):
                continue
            if words["none"] or words.get("nobody") is not None:
                yield NumberCondition(name, said.start(), end, values=(0,))
            else:
                yield NumberCondition(name, said.start(), end, low=0, low_included=False)


def _is_idiom(sentence: Sentence, columns: FieldIndex, name: str, said: re.Match[str], end: int) -> bool:
    """Return whether a bare "without" stands before one amount of time: "please answer without delay"."""
    is_time = any(unit.kind == "time" for unit in columns.measures[name].units)
    is_one = not sentence.text[:end].casefold().endswith("s")
    return is_time and is_one and said[0].casefold().strip() == "without"


def _may_be_none(columns: FieldIndex, name: str) -> bool:
    """Return whether every document has a number in a field: the least is 0, the largest a whole number above 1."""
    known = columns.vocabulary.catalogue.fields[name]
    is_whole = isinstance(known.high, int | float) and known.low == 0 and known.high == int(known.high) > 1
    return is_whole and known.field.item == "number" and columns.is_in_every_document(name)


def _is_count(columns: FieldIndex, name: str) -> bool:
    """Return whether a field's name says a count, unlike a score: a plural, or an amount of time or money."""
    words = lexicon.name_words(name)
    plural = words[-1].endswith("s") and not words[-1].endswith(("ss", "us", "is"))
    amount = any(unit.kind in _COUNTED for unit in columns.measures[name].units)
    return plural or amount or len(columns.name_words[name]) < len(words) or any(map(_COUNT_ZH.search, words))


def _field_name_spans(sentence: Sentence, columns: FieldIndex, name: str) -> Iterator[tuple[int, int]]:
    """Yield [start, end) of each full name of a field in a question, with or without its unit and "number of"."""
    words = lexicon.name_words(name)
    chinese = _COUNT_ZH.sub("", "".join(filter(has_chinese, words)).removesuffix("元"))
    for match in re.finditer(re.escape(chinese), sentence.text) if len(chinese) > 1 else ():
        yield match.span()
    runs = {columns.name_stems[name], tuple(stem(word) for word in words)} - {()}
    for place, token in enumerate(sentence.tokens):
        for run in runs:
            said = sentence.tokens[place : place + len(run)]
            if tuple(one.stem for one in said) == run:
                yield token.start, said[-1].end


@cache
def _patterns(language: str) -> dict[str, re.Pattern[str]]:
    """Return the patterns of words before and behind a count, and of words that negate it ("denied")."""
    return {name: re.compile(said, re.IGNORECASE | re.VERBOSE) for name, said in word_table("none", language).items()}


def may_identify_field(sentence: Sentence, one: Comparison) -> bool:
    """Return whether an amount may identify its field by size: it is large, and no noun beside it says what it is.

    "under 400k, near the river" may identify a price; "over 500 people" may not.
    """
    if one.dimension or any(amount.is_worded or amount.readings[0].value < _LEAST_BARE for amount in one.amounts):
        return False
    if counts_noun(sentence, one):
        return False
    before, behind = sentence.index_from(one.start) - 1, sentence.index_from(one.end)
    is_told = _is_plain(sentence, before) or sentence.mention_at(before) is not None
    return is_told and (_is_plain(sentence, behind) or _begins_clause(sentence, behind))


def _is_plain(sentence: Sentence, place: int) -> bool:
    """Return whether the token at a place cannot be what a number counts: a mark, a stop word, or no token."""
    token = sentence.token(place)
    return token is None or token.kind == "mark" or token.folded in lexicon.STOP_WORDS


def _begins_clause(sentence: Sentence, place: int) -> bool:
    """Return whether the Chinese word at a place follows a blank, which separates clauses: "4000以下 [能养猫]"."""
    token = sentence.token(place)
    return token is not None and token.kind == "cjk" and sentence.text[token.start - 1 : token.start].isspace()


def may_count_noun(sentence: Sentence, one: Comparison) -> bool:
    """Return whether words around a large number may say what is counted, not money: 超过50万[人] ("people")."""
    before = sentence.index_from(one.start) - 1
    return counts_noun(sentence, one) or _counts_chinese(sentence, one) or names_quantity(sentence, before)


def _counts_chinese(sentence: Sentence, one: Comparison) -> bool:
    """Return whether a Chinese word directly after an amount may be counted; a noun for documents is not."""
    place = sentence.index_from(one.end)
    token = sentence.token(place)
    is_word = token is not None and token.kind == "cjk" and token.text not in "的且并和而元"
    return is_word and not sentence.is_noun(place) and not _begins_clause(sentence, place)


def names_quantity(sentence: Sentence, last: int) -> bool:
    """Return whether the words up to the token `last` may name an unknown quantity rather than the documents.

    Examples: "with [downloads] over 100k", "[population] over 100k"; not "loans over 100k", "any offer over 100k".
    """
    place = last
    while sentence.token(place) is not None and sentence.mention_at(place) is None and not _is_plain(sentence, place):
        place -= 1
    if place == last:
        return False
    is_one = sentence.folded(place) in _ANY
    while sentence.folded(place) in _DETERMINERS:
        place -= 1
    return sentence.folded(place) in HAVING or not (is_one or sentence.folded(last).endswith("s"))


def counts_noun(sentence: Sentence, one: Comparison) -> bool:
    """Return whether a word after an amount says what is counted: "more than 5 [people]", 40 [个]提案 ("proposal")."""
    if any(amount.has_unit for amount in one.amounts):
        return False
    place = sentence.index_from(one.amounts[-1].end)
    token = sentence.token(place)
    if token is None or token.kind == "mark":
        return False
    if token.kind == "cjk" and token.start < one.end:
        return sentence.text[one.amounts[-1].end : one.end].strip("个的 ") not in comparison_words()
    if token.kind == "cjk":
        return token.text in "个篇份条" and sentence.is_noun(place + 1)
    return token.folded not in (lexicon.STOP_WORDS | lexicon.AUXILIARIES | comparison_words())
