"""Draft a description of a collection that has none, from distinctive words, titles and fields of its documents.

Only documents that the viewer may read are used. Drafts are not stored.
"""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from retrievers.core.types import FieldValues, Viewer
from retrievers.postgres.connections.read_routing import ReadRouter
from retrievers.text.analysis import analyse
from retrievers.text.chinese_dictionary import contains_chinese

_MOST_DOCUMENTS, _MOST_CHARACTERS = 200, 1000
"""Maximum number of documents that are read for a draft, and of characters that are read of each."""
_SAMPLE = """
    SELECT d.title, left(d.body, %(characters)s)
    FROM unnest(%(tenants)s::text[], %(among)s::integer[]) AS one (tenant, number)
    CROSS JOIN LATERAL (SELECT title, body FROM signalbox.document
                        WHERE tenant = one.tenant AND collection = one.number AND enabled
                          AND (expires_at IS NULL OR expires_at > now())
                        ORDER BY id LIMIT %(documents)s) d
"""
_RUN = re.compile(r"[\u4e00-\u9fff]+|[^\W\d_]{3,}")
_FEW = 0.01
"""Added to the two shares whose ratio weighs a word: a word that no other collection has would weigh infinitely."""
_CANDIDATES = 200
_WORDS, _TITLES, _FIELDS, _VALUES = 12, 3, 6, 4
_LONGEST = 60


class DocumentSample(NamedTuple):
    """A sample of a collection's documents.

    Attributes:
        titles: the first different titles of the documents, at most three.
        words: term to (share of documents that contain the term, its most common spelling), the most common term first.
    """

    titles: tuple[str, ...]
    words: Mapping[str, tuple[float, str]]


async def read_sample(reads: ReadRouter, viewer: Viewer, collections: Sequence[tuple[str, int]]) -> DocumentSample:
    """Read a sample of the documents of these collections, each given as (tenant, number), that the viewer may read."""
    values = {
        "tenants": [tenant for tenant, _ in collections],
        "among": [number for _, number in collections],
        "documents": _MOST_DOCUMENTS,
        "characters": _MOST_CHARACTERS,
    }
    return await asyncio.to_thread(build_sample, await reads.fetch(viewer, _SAMPLE, values))


def build_sample(documents: Sequence[tuple[str, str]]) -> DocumentSample:
    """Build a sample from the (title, text) of each document."""
    holding: Counter[str] = Counter()
    spelled: dict[str, Counter[str]] = {}
    known: dict[str, list[tuple[str, str]]] = {}
    for title, text in documents:
        said = []
        for run in _RUN.findall(f"{title}\n{text}"):
            if run not in known:
                known[run] = _words(run)
            said += known[run]
        holding.update({term for term, _ in said})
        for term, spelling in said:
            spelled.setdefault(term, Counter())[spelling] += 1
    common = sorted(holding, key=lambda term: (-holding[term], term))[:_CANDIDATES]
    words = {term: (holding[term] / len(documents), spelled[term].most_common(1)[0][0]) for term in common}
    return DocumentSample(tuple(dict.fromkeys(title for title, _ in documents if title))[:_TITLES], words)


def draft_description(drawn: DocumentSample, fields: Iterable[FieldValues], elsewhere: Mapping[str, float]) -> str:
    """Describe a collection in one line; "" if the sample and the fields are empty.

    Args:
        drawn: a sample of the collection's documents.
        fields: the collection's fields; the most common are named.
        elsewhere: term to the share of passages in other collections that contain the term.
    """

    def tells(term: str) -> float:
        share, other = drawn.words[term][0], elsewhere.get(term, 0.0)
        return share * math.log((share + _FEW) / (other + _FEW))

    telling = [term for term in sorted(drawn.words, key=lambda term: (-tells(term), term)) if tells(term) > 0]
    words = [drawn.words[term][1] for term in telling[:_WORDS]]
    shown = sorted(fields, key=lambda one: (-one.documents, one.field.name))[:_FIELDS]
    parts = (
        ("about ", ", ".join(words)),
        ("titles such as ", "; ".join(_short(title) for title in drawn.titles)),
        ("fields: ", ", ".join(_field(one) for one in shown)),
    )
    return ". ".join(f"{said}{text}" for said, text in parts if text)


def _field(one: FieldValues) -> str:
    """Return a field's name and its most common values that occur at least twice: `Status (Paid, Rejected)`."""
    repeated = [value for value, count in one.values.items() if count > 1][:_VALUES]
    return f"{one.field.name} ({', '.join(map(_short, repeated))})" if repeated else one.field.name


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}…"


def _words(run: str) -> list[tuple[str, str]]:
    """Return (term, spelling) for each term in a run of letters: "Invoices" -> ("invoic", "invoices")."""
    chinese = contains_chinese(run)
    terms = [one.text for one in analyse(run, "zh" if chinese else "en") if not one.derived and len(one.text) > 1]
    return [(term, term if chinese else run.lower()) for term in terms]
