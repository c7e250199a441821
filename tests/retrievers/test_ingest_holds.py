"""Documents of megabytes beside questions: what is computed of them does not hold the event loop."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from retrievers.embed import Vectors
from retrievers.ingest.documents import Document
from retrievers.ingest.run import ingest
from retrievers.postgres.database import Database
from retrievers.testing import HashEmbedder


class Constant(HashEmbedder):
    """One vector for every text: embedding costs nothing."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        return np.tile(np.eye(1, 64, dtype=np.float32), (len(texts), 1))


async def longest_hold(work: asyncio.Task[object]) -> float:
    """Seconds of processor that others waited for the event loop at most, while the task was at work."""
    longest = 0.0
    while not work.done():
        before = time.thread_time()
        await asyncio.sleep(0.001)
        longest = max(longest, time.thread_time() - before)
    await work
    return longest


NOUNS = "turbine blade rotor bearing gear oil pitch tower".split()


def words(choose: random.Random) -> str:
    return " ".join("".join(choose.choices("abcdefgh", k=5)) for _ in range(60_000))


def sections(choose: random.Random) -> str:
    return "".join(f"# Part {n}\n\n{' '.join(choose.choices(NOUNS, k=30))}.\n\n" for n in range(1500))


def chinese(choose: random.Random) -> str:
    return "".join(choose.choices("风力发电机的叶片需要定期检查齿轮油每年更换一次。", k=60_000))


def one_line(choose: random.Random) -> str:
    return "x" * 1_000_000


@pytest.mark.parametrize("make", [words, sections, chinese, one_line])
async def test_a_large_document_is_prepared_and_written_while_others_are_answered(
    make: Callable[[random.Random], str], database: Database
):
    text = make(random.Random(7))
    started = time.process_time()
    work = asyncio.create_task(ingest(database, Constant(), "acme", "docs", [Document("a", "a", "A", text)]))
    hold = await longest_hold(work)
    spent = time.process_time() - started
    assert work.result().inserted == 1
    assert hold < max(0.2 * spent, 0.05)
