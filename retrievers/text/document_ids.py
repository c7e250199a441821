"""Ids of documents: find the words of a question that may be ids, and the nouns for a document in ids and titles."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from retrievers.core.types import ChunkId, Collection
from retrievers.text.languages import STOP_WORDS

MOST_IDS = 50
"""Number of documents, the first in order of their ids, from which the nouns for a collection's documents are read."""
_NUMBERED = re.compile(r"([^\W\d_]{2,12})[-_# ]?\d[\w-]*")
_ALIKE = 0.8
"""Minimum share of ids that must begin with a word for it to be a noun for a document."""
_LEAST_TITLES, _NEARLY_ALL, _SHORTEST_HEAD = 10, 0.95, 2
_TITLE_PART = re.compile(r"(?P<word>[^\W\d_]+(?:[-'’][^\W\d_]+)*)|\S")
_SMALL_WORDS = frozenset().union(*STOP_WORDS.values())

_ID = re.compile(r"(?<![\w./+-])[A-Za-z0-9]+(?:[-_./:+]{1,3}[A-Za-z0-9]+)*\+{0,2}(?![A-Za-z0-9_-])", re.ASCII)
# Matches ids wherever they occur: prop-0042, PH1050, setup/guide_07.md; but not HIV-1.
_CODE = re.compile(r"(?=.*[A-Za-z]).*\d\d|[A-Za-z]+[-_./:]\d$")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_FEW_HAN = 5
"""Maximum number of Chinese characters beside an id in a question that says nothing else: 是什么 ("what is")."""
_ASKING = frozenset("show find give open display get tell describe explain define look".split())
"""Verbs that ask for a document, besides stop words: "show me pmidi"."""
_LONGEST_ASKED = 300
# Matches a question that asks for one id and says nothing else. Prepositions are not allowed: the word after one may be
# a value of a field, as in "by 2119".
_ALONE = re.compile(
    r"\W*(?:(?:what|who)(?:'s| is| are)(?: the)? |(?:please |can you )?(?:show|give|tell|find|open|display|get|"
    r"describe|explain)(?: me| us)?(?: about)?(?: the)? |请?(?:给我看|显示|打开|查找|介绍)(?:一下)?\s*)?"
    r"(?P<id>[a-z0-9](?:[\w./:+-]*[\w+])?)\s*(?:是什么|是啥|是做什么的|是什么意思)?\W*",
    re.ASCII | re.IGNORECASE,
)
_MOST_NAMED = 300


def infer_document_nouns(named: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the nouns that stand for a document of a collection, in lower case; () if there are none.

    These are the word that most ids begin with, "pep" for "pep-1" and "pep-2", and the English noun that nearly all
    titles contain as their main noun: "contract" in "Rope supply contract 12", "report" in "Annual report on sales".

    Args:
        named: id and title of each document.
    """
    begun = Counter(found[1].casefold() for id, _ in named if (found := _NUMBERED.fullmatch(id)) is not None)
    of_ids = [word for word, count in begun.most_common(1) if count >= _ALIKE * len(named)]
    titles = {title.casefold() for _, title in named} - {""}
    said = Counter(map(_head_of, titles))
    least = max(_LEAST_TITLES, _NEARLY_ALL * len(titles))
    return tuple(dict.fromkeys([*of_ids, *(word for word, count in said.items() if count >= least and word)]))


def _head_of(title: str) -> str:
    """Return the main noun of a title in lower case: the last word of its first phrase; "" if that is not English.

    A phrase ends at a stop word, a number or punctuation: "annual report | on sales", "supply contract | 12".
    """
    head = ""
    for part in _TITLE_PART.finditer(title):
        word = part["word"] or ""
        if word and word not in _SMALL_WORDS:
            head = word
        elif head:
            break
    return head if head.isascii() and head.isalpha() and len(head) > _SHORTEST_HEAD else ""


def find_id_candidates(text: str) -> tuple[list[str], bool]:
    """Return (words of a question that may be ids, whether the question asks for nothing but one such word).

    A word with the form of an id, such as "prop-0042", always counts. A plain word or number counts only if the
    question has no other words but stop words and verbs that ask for a document: "what is [pmidi]?", "show me [pmidi]".
    """
    said = [word for word in _ID.findall(text) if word.casefold() not in STOP_WORDS["en"]]
    said = [word for word in said if word.casefold() not in _ASKING] or said
    alone = len(said) == 1 and len(_HAN.findall(text)) <= _FEW_HAN
    return list(dict.fromkeys(word for word in said if alone or _CODE.match(word))), alone


def sole_id(text: str) -> str | None:
    """Return the id if a question asks for nothing else: "what is pmidi?" -> "pmidi". None for any other question."""
    found = _ALONE.fullmatch(text) if len(text) <= _LONGEST_ASKED else None
    return found["id"] if found is not None else None


def candidate_chunk_ids(words: Iterable[str], collections: Iterable[Collection]) -> list[ChunkId]:
    """Return the ids that the first passages of documents with these words as ids would have.

    Whether such documents exist is not checked. Each word is also tried in lower and in upper case, in every
    collection; at most `_MOST_NAMED` ids.
    """
    written = dict.fromkeys(way for word in words for way in (word, word.lower(), word.upper()))
    among = tuple(collections)
    return list(islice((ChunkId(one.tenant, one.name, way, 0) for way in written for one in among), _MOST_NAMED))
