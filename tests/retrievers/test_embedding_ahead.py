"""A question's vector that is begun before it is asked for."""

import asyncio
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agent.pipeline import Pipeline
from agent.settings import Settings
from agent.types import Request
from retrievers.core.errors import Unavailable
from retrievers.embed.onnx import _MOST_BEGUN, MINILM, OnnxEmbedder
from retrievers.embed.pool import Embedders


async def test_a_vector_begun_ahead_is_computed_once_and_the_same():
    ahead, plain = OnnxEmbedder(MINILM, "minilm", cores=1), OnnxEmbedder(MINILM, "minilm", cores=1)
    computed: list[str] = []
    encode = ahead._encode_query
    ahead._encode_query = lambda text: (computed.append(text), encode(text))[1]  # type: ignore[method-assign]
    Embedders.of(ahead).begin("who is on call?")
    ahead.begin("who is on call?")
    vector = await ahead.embed_query("who is on call?")
    ahead.begin("who is on call?")
    assert computed == ["who is on call?"]
    assert np.array_equal(vector, await plain.embed_query("who is on call?"))
    assert (ahead.recent.found, ahead.recent.missed) == (0, 1)


async def test_vectors_that_nobody_asks_for_are_forgotten():
    embedder = OnnxEmbedder(MINILM, "minilm", cores=1)
    for number in range(_MOST_BEGUN):
        embedder.begin(f"question {number}")
    await asyncio.wait_for(asyncio.wrap_future(embedder._begun["question 0"]), 30)
    embedder.begin("one more")
    assert len(embedder._begun) == _MOST_BEGUN
    assert "question 0" not in embedder._begun
    embedder._begun["question 1"] = Future()
    embedder.begin("too many")
    assert "too many" not in embedder._begun


async def test_a_failure_ahead_is_not_kept_for_the_next_question(tmp_path: Path):
    embedder = OnnxEmbedder(tmp_path, "broken", cores=1)
    embedder.begin("a question")
    with pytest.raises(Unavailable):
        embedder._begun["a question"].result()
    embedder._folder = MINILM
    assert (await embedder.embed_query("a question")).shape == (384,)


@pytest.mark.parametrize(
    ("request_", "settings", "begun"),
    [
        ({"query": "dams in Kent"}, {}, ["dams in Kent"]),
        ({"query": "dams in Kent", "sources": ("vector",)}, {}, ["dams in Kent"]),
        ({"query": "dams in Kent", "sources": ("fulltext",)}, {}, []),
        ({"query": "dams in Kent", "intent": "rules"}, {}, []),
        ({"query": "肯特郡的水坝"}, {}, []),
        ({}, {}, []),
        ({"query": "dams", "messages": [{"role": "user", "content": "hello"}]}, {}, []),
        ({"query": "dams in Kent"}, {"transforms": ("hyde",)}, []),
    ],
)
def test_only_a_question_that_is_searched_as_it_is_is_begun(
    request_: dict[str, Any], settings: dict[str, Any], begun: list[str]
):
    asked: list[str] = []
    embedder: Any = SimpleNamespace(name="own", languages=None, recent=None, begin=asked.append)
    sources: Any = {"fulltext": None, "vector": None}
    pipeline = Pipeline(Settings(intent="off", **settings), None, sources, embedder)  # type: ignore[arg-type]
    pipeline.embed_ahead(Request.model_validate(request_))
    assert asked == begun
