"""Run sentence models from ONNX folders in this process. `minilm` is the model in the package."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from retrievers.core.errors import Unavailable
from retrievers.embed import Vectors
from retrievers.embed.cache import QueryCache
from retrievers.embed.onnx_graph import OnnxGraph, Tokens, batch_by_length, read_json

MINILM = Path(__file__).parent / "minilm"

# Maximum tokens per batch, with padding. Larger batches exceed the CPU's caches and so take more time in total.
_BATCH_TOKENS = 1024
_LARGE_TOKENS = 512
"""After a batch of at least this many tokens, with padding, the runtime's memory is released. A full batch leaves
hundreds of megabytes allocated.
"""

_NICER = 5


class OnnxEmbedder:
    """A sentence model in a folder, in the layout of sentence-transformers.

    The folder contains `tokenizer.json` and `model.onnx` (or `onnx/model.onnx`). The vector of a text is the graph's
    output `sentence_embedding`. Without this output, it is pooled from the token vectors: the first token's if
    `1_Pooling/config.json` says so, else the mean. Prompts in `config_sentence_transformers.json` are prepended to
    texts.

    Args:
        folder: the folder that contains the model.
        name: the embedder name that collections store. Two folders with one name must contain the same model.
        languages: languages the model was trained on, None for many.
        cores: maximum number of cores; None for all.
    """

    def __init__(
        self, folder: Path, name: str, *, languages: frozenset[str] | None = None, cores: int | None = None
    ) -> None:
        self.name, self.languages = name, languages
        self._folder = folder
        self.query_cache = QueryCache()
        # Each batch runs in one thread, and batches run in parallel on all cores. Questions have threads of their own:
        # in the queue of passages they would wait for seconds during an ingestion. The threads of passages have a lower
        # priority, so that the system runs questions first if there are not enough cores for both.
        cores = self._cores = cores or os.cpu_count() or 1
        self._executor = ThreadPoolExecutor(cores, "embed", initializer=_lower_priority)
        self._questions = ThreadPoolExecutor(max_workers=cores, thread_name_prefix="embed-question")

    async def dimension(self) -> int:
        """Return the length of the vectors, read from the model."""
        return int((await self.embed_query("dimension")).shape[0])

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of passages, see `Embedder.embed`."""
        if not texts:
            return np.zeros((0, await self.dimension()), dtype=np.float32)
        model = self._model
        encoded = await self._in_thread(model.tokenize, texts, "document")
        parts = batch_by_length(encoded, _BATCH_TOKENS)
        # Queueing all batches at once would make a later call with a few texts wait for all of them.
        places = asyncio.Semaphore(self._cores)

        async def run(part: Sequence[int]) -> Vectors:
            async with places:
                vectors: Vectors = await self._in_thread(model.run, [encoded[n] for n in part])
                return vectors

        computed = await asyncio.gather(*map(run, parts))
        if max(len(part) * len(encoded[part[0]]) for part in parts) >= _LARGE_TOKENS:
            await self._in_thread(model.release_memory)
        vectors = np.empty((len(texts), computed[0].shape[1]), dtype=np.float32)
        for part, rows in zip(parts, computed, strict=True):
            vectors[part] = rows
        return vectors

    async def embed_query(self, text: str) -> Vectors:
        """Return the vector of a question, see `Embedder.embed_query`."""
        vector = self.query_cache.get(text)
        if vector is None:
            vector = await asyncio.get_running_loop().run_in_executor(self._questions, self._encode_query, text)
            self.query_cache.put(text, vector)
        return vector

    async def aclose(self) -> None:
        """Let the threads end after their queued work, without waiting for it. The model is freed with this object."""
        self._executor.shutdown(wait=False)
        self._questions.shutdown(wait=False)

    def _encode_query(self, text: str) -> Vectors:
        model = self._model
        vector: Vectors = model.run(model.tokenize([text], "query"))[0]
        return vector

    async def _in_thread(self, function: Callable[..., Any], *values: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *values)

    @cached_property
    def _model(self) -> "_Model":
        try:
            return _Model(self._folder)
        except Exception as error:  # the runtime and the tokenizer raise exception types of their own
            reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            raise Unavailable(f"the embedder {self.name}", f"cannot load {self._folder}: {reason}") from error


def _lower_priority() -> None:
    """Give the current thread a third of a normal thread's share of a busy core. Has an effect on Linux only."""
    if sys.platform == "linux":
        with suppress(OSError):  # some sandboxes forbid any change
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + _NICER)


class _Model:
    def __init__(self, folder: Path) -> None:
        self._graph = OnnxGraph(folder)
        self._prompts = read_json(folder / "config_sentence_transformers.json").get("prompts") or {}
        pooling = read_json(folder / "1_Pooling" / "config.json")
        self._first_token = bool(pooling.get("pooling_mode_cls_token"))
        self._pooled = "sentence_embedding" in self._graph.outputs
        self._output = "sentence_embedding" if self._pooled else self._graph.outputs[0]

    def tokenize(self, texts: Sequence[str], kind: str) -> list[Tokens]:
        """Tokenize texts, each with the model's prompt of the name `kind` prepended, if it has one."""
        prompt = self._prompts.get(kind, "")
        return self._graph.tokenize([prompt + text for text in texts])

    def release_memory(self) -> None:
        """See `OnnxGraph.release_memory`."""
        self._graph.release_memory(self._output)

    def run(self, batch: Sequence[Tokens]) -> Vectors:
        """Return the unit vectors of one batch."""
        values, mask = self._graph.run(batch, self._output)
        if not self._pooled:
            if self._first_token:
                values = values[:, 0]
            else:
                weights = mask[:, :, None].astype(np.float32)
                values = (values * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-9)
        norms = np.linalg.norm(values, axis=1, keepdims=True)
        return np.asarray(values / np.maximum(norms, 1e-12), dtype=np.float32)
