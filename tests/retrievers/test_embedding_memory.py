"""What embedding long texts leaves behind in a process."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from retrievers.embed.graph import Graph
from retrievers.embed.onnx import MINILM

CODE = """
import asyncio
from pathlib import Path
from retrievers.embed.onnx import OnnxEmbedder

def held():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmRSS"))

async def main():
    embedder = OnnxEmbedder(Path({folder!r}), "packaged", cores=2)
    await embedder.embed(["a question"])
    before = held()
    await embedder.embed({texts})
    print(held() - before)

asyncio.run(main())
"""


def grown_mb(texts: str) -> int:
    """Return how much more a process holds after it has embedded texts, given as an expression."""
    code = CODE.format(folder=str(MINILM), texts=texts)
    grown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=250)
    return int(grown.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process holds")
def test_the_memory_of_large_batches_is_given_back():
    assert (
        grown_mb('["the night ferry leaves from pier four at nine " * 30] * 64') < 100
    )  # MB; kept, it is more than 300


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process holds")
def test_the_memory_of_hundreds_of_passages_of_a_few_tokens_is_given_back():
    assert grown_mb('["h" * 1800] * 280') < 15  # MB; kept, it is 30


class Recorded:
    """The session of a graph that records which runs give memory back, and holds one run until it is let go."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.gave_back: list[bool] = []
        self.entered, self.let_go = threading.Event(), threading.Event()

    def run(self, outputs: list[str], feed: dict[str, Any], options: Any = None) -> Any:
        self.gave_back.append(options is not None)
        if len(self.gave_back) == 1:
            self.entered.set()
            assert self.let_go.wait(60)
        return self._session.run(outputs, feed, options)


def test_memory_that_another_run_is_using_is_given_back_when_it_ends():
    graph = Graph(MINILM)
    graph._session = session = Recorded(graph._session)
    with ThreadPoolExecutor(1) as threads:
        question = threads.submit(graph.run, graph.tokenize(["a question"]), graph.outputs[0])
        assert session.entered.wait(60)
        graph.give_back(graph.outputs[0])
        during = list(session.gave_back)
        session.let_go.set()
        question.result()

    assert during == [False]
    assert session.gave_back == [False, True]


def test_memory_that_a_run_took_while_it_was_given_back_is_given_back_too():
    graph = Graph(MINILM)
    graph._session = session = Recorded(graph._session)
    with ThreadPoolExecutor(1) as threads:
        giving = threads.submit(graph.give_back, graph.outputs[0])
        assert session.entered.wait(60)
        graph.run(graph.tokenize(["a question"]), graph.outputs[0])
        session.let_go.set()
        giving.result()

    assert session.gave_back == [True, False, True]
