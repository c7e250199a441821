"""What embedding long texts leaves behind in a process."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from retrievers.embed import Vectors, onnx_embedder
from retrievers.embed.onnx_embedder import MINILM, OnnxEmbedder
from retrievers.embed.onnx_graph import OnnxGraph

CODE = """
import asyncio
from pathlib import Path
from retrievers.embed.onnx_embedder import OnnxEmbedder

def held(what="VmRSS"):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith(what))

async def main():
    embedder = OnnxEmbedder(Path({folder!r}), "packaged", cores=2)
    await embedder.embed(["a question"])
    before = held()
    open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
    await embed(embedder, {texts})
    print(held() - before, held("VmHWM") - before)

async def embed(embedder, texts):
    {work}

asyncio.run(main())
"""
EMBED = "await embedder.embed(texts)"


def grown_mb(texts: str, work: str = EMBED) -> tuple[int, int]:
    """Return how much more a process holds after it has embedded texts, given as an expression, and at most."""
    code = CODE.format(folder=str(MINILM), texts=texts, work=work)
    grown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=250)
    after, most = map(int, grown.stdout.split())
    return after, most


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process holds")
def test_large_batches_take_little_memory_and_give_it_back():
    after, most = grown_mb('["the night ferry leaves from pier four at nine " * 30] * 64')

    assert after < 50
    assert most < 200  # MB; with batches of 4,096 tokens it is more than 300


async def test_a_few_texts_are_embedded_between_the_batches_of_many(monkeypatch: pytest.MonkeyPatch):
    embedder = OnnxEmbedder(MINILM, "packaged", cores=1)
    await embedder.embed(["a question"])
    model = embedder._model
    sizes: list[int] = []
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def run(batch: Sequence[Any]) -> Vectors:
        sizes.append(len(batch))
        loop.call_soon_threadsafe(begun.set)
        return type(model).run(model, batch)

    monkeypatch.setattr(model, "run", run)
    monkeypatch.setattr(onnx_embedder, "_BATCH_TOKENS", 64)
    many = asyncio.create_task(embedder.embed(["the night ferry leaves from pier four at nine"] * 200))
    await begun.wait()
    await embedder.embed(["one text"])
    passed = len(sizes)
    assert (await many).shape[0] == 200
    await embedder.aclose()

    assert 1 in sizes
    assert passed < 10 < len(sizes)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process holds")
def test_the_memory_of_hundreds_of_passages_of_a_few_tokens_is_given_back():
    assert grown_mb('["h" * 1800] * 280')[0] < 15  # MB; kept, it is 30


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process holds")
def test_the_passages_of_a_long_document_take_little_memory_while_they_wait_for_the_model():
    tokenize = "embedder._model.tokenize(texts, 'document')"

    assert grown_mb('["the night ferry leaves from pier four at nine " * 40] * 4000', tokenize)[1] < 60
    # MB; with all that the tokenizer returns for them it is more than 500


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
    graph = OnnxGraph(MINILM)
    graph._session = session = Recorded(graph._session)
    with ThreadPoolExecutor(1) as threads:
        question = threads.submit(graph.run, graph.tokenize(["a question"]), graph.outputs[0])
        assert session.entered.wait(60)
        graph.release_memory(graph.outputs[0])
        during = list(session.gave_back)
        session.let_go.set()
        question.result()

    assert during == [False]
    assert session.gave_back == [False, True]


def test_memory_that_a_run_took_while_it_was_given_back_is_given_back_too():
    graph = OnnxGraph(MINILM)
    graph._session = session = Recorded(graph._session)
    with ThreadPoolExecutor(1) as threads:
        giving = threads.submit(graph.release_memory, graph.outputs[0])
        assert session.entered.wait(60)
        graph.run(graph.tokenize(["a question"]), graph.outputs[0])
        session.let_go.set()
        giving.result()

    assert session.gave_back == [True, False, True]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
async def test_threads_that_embed_passages_give_way_to_those_that_embed_questions():
    embedder = OnnxEmbedder(MINILM, "packaged", cores=1)
    before = set(threading.enumerate())

    await embedder.embed(["a passage"])
    await embedder.embed_query("a question")

    begun = {thread.name.rpartition("_")[0]: thread.native_id for thread in set(threading.enumerate()) - before}
    niceness = {name: os.getpriority(os.PRIO_PROCESS, number or 0) for name, number in begun.items()}
    assert niceness["embed"] > niceness["embed-question"]
