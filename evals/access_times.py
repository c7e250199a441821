"""Compare the time of questions over documents that all may read and documents with readers (principals who may)."""

import random
import time
from typing import Any

import psycopg

from agent.service.service import Service
from evals.canary_documents import PRINCIPALS, WORDS
from evals.corpus import Note
from evals.timing import summary
from retrievers.core.types import Viewer
from retrievers.ingest.documents import Document

Json = dict[str, Any]

ROUNDS = 120
"""Number of questions of the comparison; each is asked once in each way, see `measure`."""

_SETS = 80
_WARM_UP = 5
_NOUNS = ("blade", "brake", "cable", "crane", "oil", "sensor", "storm", "valve", "winter", "yaw")
_QUESTION = "What do the reports say about the {} {} in {}?"
_SCANS = """
    SELECT coalesce(sum(idx_scan), 0)::int, (SELECT seq_scan::int FROM pg_stat_user_tables WHERE relname = 'chunk')
    FROM pg_stat_user_indexes WHERE relname = 'chunk'
"""


_PUBLISHED_S = 12.0


async def measure(service: Service, documents: int, seed: int, note: Note) -> Json:
    """Ask the same questions about the same documents in three ways, and return the times.

    The ways are: documents without readers; documents with readers, asked by a caller with all principals, who may read
    everything; and asked by a caller with five principals. Each question is asked in all three ways; each way is first
    equally often, so that other load on the machine affects all alike.

    Args:
        documents: number of documents, stored once without and once with readers.
    Returns:
        `documents`; `ms` by way ("no readers", "all of 40 principals", "5 principals") with p50, p95, p99 and mean;
        `ratio` of each p50 to that without readers; `index_scans` and `whole_scans`: how often the table of passages
        was read through an index, and as a whole.
    """
    choose = random.Random(seed)
    sets = [sorted(choose.sample(PRINCIPALS, choose.choice((1, 2, 3)))) for _ in range(_SETS)]
    texts = [_text(choose, number) for number in range(documents)]
    for tenant, has_readers in (("open", False), ("read", True)):
        await service.ingest(
            [
                Document("made", f"d{number}", f"Report {number}", text, readers=_readers(sets, number, has_readers))
                for number, text in enumerate(texts)
            ],
            "reports",
            tenant=tenant,
        )
        note(f"{documents:,} documents {'with' if has_readers else 'without'} readers are stored")
    ways = {
        "no readers": Viewer("open"),
        f"all of {len(PRINCIPALS)} principals": Viewer("read", tuple(sorted(PRINCIPALS))),
        "5 principals": Viewer("read", tuple(sorted(choose.sample(PRINCIPALS, 5)))),
    }
    return {"documents": documents, **await _compared(service, ways, choose)}


def _readers(sets: list[list[str]], number: int, has_readers: bool) -> tuple[str, ...]:
    return tuple(sets[number % len(sets)]) if has_readers else ()


def _text(choose: random.Random, number: int) -> str:
    words = " ".join(choose.choice((*WORDS, *_NOUNS)) for _ in range(60))
    return f"Report {number} of the year {2000 + number % 25}: {words}."


async def _compared(service: Service, ways: dict[str, Viewer], choose: random.Random) -> Json:
    names = list(ways)
    times: dict[str, list[float]] = {name: [] for name in names}
    before = _scans(service)
    for turn in range(-_WARM_UP, ROUNDS):
        question = _QUESTION.format(choose.choice(WORDS), choose.choice(_NOUNS), 2000 + choose.randrange(25))
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            started = time.perf_counter()
            await service.retrieve(question, tenant=ways[name])
            if turn >= 0:
                times[name].append(1000 * (time.perf_counter() - started))
    after = _scans(service, since=before)
    ms = {name: summary(held) for name, held in times.items()}
    ratio = {name: round(ms[name]["p50"] / ms[names[0]]["p50"], 3) for name in names}
    index_scans, whole_scans = (after[place] - before[place] for place in (0, 1))
    return {"ms": ms, "ratio": ratio, "index_scans": index_scans, "whole_scans": whole_scans}


def _scans(service: Service, since: tuple[int, int] = (-1, -1)) -> tuple[int, int]:
    """Return how often the table of passages was read (through an index, as a whole).

    A process of PostgreSQL publishes its counts each second while it works, else only after ten idle seconds.

    Args:
        since: earlier counts; the function waits until the counts differ from them, at most `_PUBLISHED_S` seconds.
    """
    until = time.monotonic() + _PUBLISHED_S
    time.sleep(1.5)
    while True:
        with psycopg.connect(service.database.owner) as connection:
            row = connection.execute(_SCANS.encode()).fetchone()
        assert row is not None
        if (row[0], row[1]) != since or time.monotonic() >= until:
            return row[0], row[1]
        time.sleep(0.5)
