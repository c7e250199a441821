"""Find words of a flag's name in a question, and judge what they mean. A flag is a field that is true or false."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from agent.intent.analysis.negation_words import JOINING
from agent.intent.analysis.sentence import Sentence
from agent.intent.language import lexicon
from agent.intent.language.abbreviations import is_abbreviation
from agent.intent.language.text import CUT, LOOSE, chinese_words, closeness, consonants_of, has_chinese, stem
from agent.intent.values.translated_names import chinese_runs
from agent.intent.values.value_linking import Mention
from agent.intent.values.value_names import boolean_words
from agent.intent.words import LANGUAGES, word_frequencies, word_table
from retrievers.text.chinese_dictionary import find_dictionary_words, term_translations

DENYING_BEGINNINGS = ("non", "un", "in", "dis", "ir", "im", "il")
MOST_SENSES = 4
_PLAIN_SHORT = 4
"""Minimum letters of an abbreviation that counts even if all other words of the name are abbreviated as well."""
_SHORTEST = 2
_GAP = 2
"""Maximum words between two words of a field's name."""
_NOT_OF_RECORDS = frozenset("anything something nothing everything or".split())
_ARTICLES = frozenset("the a an any some".split())
_STATING = frozenset(
    "is are was were be been being has have had having with without for and or but not no non - get got".split()
)
"""Words that ascribe the next word to the documents: "camps [with] parking", "which camps [are] quiet"."""


@dataclass(frozen=True, slots=True)
class NameHit:
    """A word of a question, at tokens [first, last), that means a word of a flag's name.

    Attributes:
        word: index of that word in the name.
        closeness: how closely the two agree, see `text.closeness`.
        denied: True if the question's word begins or ends with a denial: "[un]answered".
    """

    first: int
    last: int
    word: int
    closeness: float
    denied: bool = False

    def is_glossed(self, sentence: Sentence) -> bool:
        """Return whether the word is only the English meaning of a Chinese word of the question."""
        return sentence.tokens[self.first].kind == "cjk"


def find_name_hits(sentence: Sentence, words: Sequence[str]) -> list[NameHit]:
    """Return the hits for the words of a flag's name, in the order of the question."""
    hits = list(_close_hits(sentence, words))
    return sorted([*hits, *_short_hits(sentence, words, hits)], key=lambda hit: hit.first)


def _short_hits(sentence: Sentence, words: Sequence[str], hits: Sequence[NameHit]) -> Iterator[NameHit]:
    """Yield hits for words that the name abbreviates, if all its words stand together: "road closure" for `rd_close`.

    At least one word of the name must have four letters or be a form of the question's word.

    Args:
        hits: the hits without abbreviations.
    """
    if len(words) < 2:
        return
    known = {place for hit in hits for place in range(hit.first, hit.last)}
    shorts = [
        NameHit(index, index + 1, place, LOOSE)
        for index, token in enumerate(sentence.tokens)
        if token.kind == "word" and index not in known and not _is_explained(sentence, index, words)
        for place, word in enumerate(words)
        if _abbreviates(word, token.folded)
    ]
    for one in shorts:
        beside = [hit for hit in (*hits, *shorts) if hit.word != one.word and _is_beside(hit, one, words)]
        is_whole = {hit.word for hit in beside} == set(range(len(words))) - {one.word}
        sure = any(hit.closeness == 1 or len(words[hit.word]) >= _PLAIN_SHORT for hit in (one, *beside))
        if is_whole and sure:
            yield one


def _is_explained(sentence: Sentence, place: int, words: Sequence[str]) -> bool:
    """Return whether the word at `place` has another meaning: a stop word, a value, or a cue for another field."""
    fields = sentence.cue_fields(place)
    is_other = bool(fields) and not any(set(words) <= set(lexicon.name_words(field)) for field in fields)
    return is_other or sentence.folded(place) in lexicon.STOP_WORDS or sentence.mention_at(place) is not None


def _is_beside(one: NameHit, other: NameHit, words: Sequence[str]) -> bool:
    """Return whether at most one word stands between two hits; none if one abbreviates its word to two letters."""
    gap = max(one.first, other.first) - min(one.last, other.last)
    return gap < (_GAP if min(len(words[one.word]), len(words[other.word])) > 2 else 1)


def _abbreviates(short: str, said: str) -> bool:
    """Return whether a word of a name abbreviates a word of a question: `rd` "road", `creds` "credentials".

    Two letters must be the only consonants of the word, and its first and last letter: `tr` is not "tree". A short
    English word abbreviates nothing: `tow` is not "towel".
    """
    if len(short) == _SHORTEST:
        return consonants_of(said) == short == said[0] + said[-1]
    if len(short) < _PLAIN_SHORT and short in word_frequencies():
        return False
    shorts = (short, short[:-1]) if short.endswith("s") and len(short) > _PLAIN_SHORT else (short,)
    return any(is_abbreviation(one, said) for one in shorts) or (
        len(short) > 1 and consonants_of(said).startswith(short)
    )


def _close_hits(sentence: Sentence, words: Sequence[str]) -> Iterator[NameHit]:
    is_plain = len(words) == 1 and words[0] in lexicon.STOP_WORDS
    for first, last, said in _said(sentence):
        is_general = said in lexicon.STOP_WORDS or (is_plain and {stem(said)} & set(map(stem, words)))
        if is_general and not (is_plain and said in words and _describes(sentence, first, last)):
            continue  # "what did Ann submit" does not ask for `submitted`
        for place, word in enumerate(words):
            base = said if word.endswith("less") else said.removesuffix("less")
            near = closeness(base, word)
            is_other = near < 1 and sentence.folded(last - 1) in ("free", "less")  # the word "egg" of "egg-free" counts
            if near and not (is_other and last - first > 1):
                hyphen = sentence.folded(last) == "-"
                behind = sentence.folded(last + hyphen)
                is_own = any("free".startswith(one) or one.endswith("free") for one in words)  # `glutenfree`
                is_free = behind == "free" and not is_own
                lacks = base != said or is_free or (hyphen and behind == "less")
                yield NameHit(first, last, place, near, lacks)
                break
            beginning = next((one for one in DENYING_BEGINNINGS if said.startswith(one) and said != word), "")
            if beginning and closeness(said[len(beginning) :], word) >= CUT:
                yield NameHit(first, last, place, 1.0, True)
                break


def _describes(sentence: Sentence, first: int, last: int) -> bool:
    """Return whether a common word at tokens [first, last) describes documents: "new loans", "loans that are new".

    Words beside it can show that it does not: "published [in] May", "[Ann] published", "the new [office]", "new [or]
    old", "[what]'s new?".
    """
    before, author = sentence.token(first - 1), sentence.mention_at(last - 2)
    if author is not None and sentence.vocabulary.roles[author.matches[0].field] == "person":
        return False
    following = sentence.token(last)
    if following is not None and following.kind != "mark":
        is_taken = any(start <= following.start < end for start, end in sentence.used_spans)
        return not is_taken and (_is_of_records(sentence, last) or following.folded == "and")
    is_asked = sentence.folded(0) == "what" or sentence.folded(first - 1) in _NOT_OF_RECORDS
    is_told = before is None or before.kind == "mark" or before.folded in lexicon.STOP_WORDS
    return not is_asked and (is_told or _is_of_records(sentence, first - 1))


def _is_of_records(sentence: Sentence, place: int) -> bool:
    """Return whether a token is a noun for documents ("loans") or part of a value."""
    return sentence.is_noun(place) or sentence.mention_at(place) is not None


def _said(sentence: Sentence) -> Iterator[tuple[int, int, str]]:
    """Yield (first, last, word) for the English words of a question and the English meanings of its Chinese words.

    A word with a hyphen is yielded as one word as well: "wi-fi" as wifi.
    """
    tokens = sentence.tokens
    for index, token in enumerate(tokens):
        is_end = token.folded == "free" and sentence.folded(index - 1) == "-"  # "ad-free" does not mean free of charge
        if token.kind == "word" and not is_end:
            yield index, index + 1, token.folded
            if sentence.folded(index + 1) == "-" and index + 2 < len(tokens) and token.end == tokens[index + 1].start:
                yield index, index + 3, token.folded + sentence.folded(index + 2)  # "wi-fi"
    for run in chinese_runs(tokens, set()):
        for start, word, _ in find_dictionary_words("".join(tokens[index].text for index in run)):
            # Skip meanings of several words: 失效 means "lose effectiveness", not "effectiveness".
            glosses = dict.fromkeys(sense[0] for sense in term_translations(word)[:MOST_SENSES] if len(sense) == 1)
            yield from ((run[start], run[start] + len(word), gloss) for gloss in glosses)


def group_hits(hits: Sequence[NameHit]) -> Iterator[list[NameHit]]:
    """Yield the hits in groups; those of a group stand close together and mean different words of the name.

    Args:
        hits: in the order of the question.
    """
    group: list[NameHit] = []
    for hit in hits:
        if group and (hit.first > group[-1].last + _GAP or any(hit.word == one.word for one in group)):
            yield group
            group = []
        group.append(hit)
    if group:
        yield group


def is_only_head_noun(
    sentence: Sentence, mention: Mention, hits: Sequence[NameHit], words: Sequence[str], *, is_own: bool
) -> bool:
    """Return whether the question says only the last word of a longer name, which hardly means the flag.

    Examples: "books" for `rare_book`, "[public] session items" for `closed_session`. False if a word such as "with"
    precedes a field's own name: "with a pool" for `swimming_pool`.

    Args:
        is_own: whether `words` are the field's own name; if False, a translation.
    """
    has_more = any(word not in lexicon.STOP_WORDS for word in words[:-1])  # not `at_risk`
    is_head = has_more and all(hit.word == len(words) - 1 for hit in hits)
    return is_head and not (is_own and _is_stated(sentence, mention))


def names_documents(sentence: Sentence, mention: Mention) -> bool:
    """Return whether a flag stands where a question names the documents: "which [rare books] did Ann finish?"."""
    following = sentence.token(mention.last)
    if sentence.tokens[mention.first].kind == "cjk":
        behind = tuple(word_table("link", "zh")["truth"]["behind_records"].split())
        if following is not None and following.kind != "mark" and not sentence.text.startswith(behind, mention.end):
            return False
        return not _is_stated_zh(sentence.text[: mention.start])
    if _is_stated(sentence, mention):
        return False
    return following is None or following.kind != "word" or following.folded in lexicon.STOP_WORDS


def _is_stated(sentence: Sentence, mention: Mention) -> bool:
    """Return whether the word before a mention ascribes it to the documents: "with" in "camps with parking"."""
    if sentence.tokens[mention.first].kind == "cjk":
        return _is_stated_zh(sentence.text[: mention.start])
    place = mention.first - 1
    while sentence.folded(place) in _ARTICLES:
        place -= 1
    said = sentence.folded(place)
    return said in _STATING or said in word_table("link", "en")["truth"]["offering"].split()


def _is_stated_zh(before: str) -> bool:
    """Return whether a Chinese text ends in a word such as 有 ("have"), and not only as part of 所有 ("all")."""
    words = word_table("link", "zh")["truth"]
    stating = re.search(rf"(?:{'|'.join(words['between'].split())}|{'|'.join(words['denying'].split())})$", before)
    if stating is None:
        return False
    return not any(first < stating.start() < last for first, last in chinese_words(before).items())


def assigned_value(sentence: Sentence, end: int) -> tuple[bool, int] | None:
    """Return the value written behind a flag, and the character behind the value; None if no single value is written.

    "pets: no", `pets=0` and "photo n" -> False; "photo y/n" -> None.

    Args:
        end: the character behind the flag's words.
    """
    found = _setting().match(sentence.text, end)
    if found is None:
        return None
    behind = sentence.token(sentence.index_from(found.end()))
    ends = behind is None or behind.kind == "cjk" or (behind.kind == "mark" and behind.text not in "/-'’")
    if not ends and (behind is None or behind.folded not in JOINING or behind.folded == "or"):
        return None
    value = next(one for one in (found["stated"], found["assigned"], found["bare"]) if one is not None)
    return value.casefold() in boolean_words()[True], found.end()


@cache
def _setting() -> re.Pattern[str]:
    """Return the pattern of a value behind a flag: any word for true or false after ":" or "=", else a plain one."""
    words = sorted((word for one in boolean_words().values() for word in one), key=len, reverse=True)
    # "off" also follows verbs: "closed off".
    short = ("y", "n", "no", "ja", "sí", "sì", "да")
    plain = [word for word in words if word in short or (len(word) > 2 and word != "off" and not has_chinese(word))]
    chinese = [word for word in words if has_chinese(word)]
    return re.compile(
        rf"""\s*(?:标记|[那这]?一?栏|字段|(?:flag|field|column)\b)?\s*
        (?:[:：=]+\s*(?P<assigned>{"|".join(words)})
        |(?:为|(?<=[栏段记])是)\s*(?P<stated>{"|".join([*chinese, *plain])})(?=$|[\s\W的且并和而])
        |(?:(?:is|was|set\s+to|是)\s*)?(?P<bare>{"|".join(plain)}))(?![A-Za-z0-9_])""",
        re.IGNORECASE | re.VERBOSE,
    )


def is_left_open(sentence: Sentence, mention: Mention) -> bool:
    """Return whether a phrase such as "or not" leaves open whether the flag is true: "fragile or not", 善本与否."""
    before, behind = sentence.text[: mention.start], sentence.text[mention.end :]
    return any(
        _choice(name, language).search(text) is not None
        for language in LANGUAGES
        for name, text in (("before", before), ("behind", behind))
    )


@cache
def _choice(name: str, language: str) -> re.Pattern[str]:
    return re.compile(word_table("link", language)["choice"][name], re.IGNORECASE | re.VERBOSE)
