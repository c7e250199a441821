"""Sentence models as ONNX folders, run locally; `minilm` is the one in the package."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from retrievers.core.errors import Unavailable
from retrievers.embed import Vectors
from retrievers.embed.cache import QueryCache
from retrievers.embed.graph import Graph, batches, read_json

MINILM = Path(__file__).parent / "minilm"

# Tokens per batch, padding included: enough to fill the cores, small enough to stay in their caches.
_BATCH_TOKENS = 4096


class OnnxEmbedder:
    """A sentence model in a folder, as sentence-transformers lays it out.

    The folder holds `tokenizer.json` and `model.onnx` (or `onnx/model.onnx`). A graph with an output
    `sentence_embedding` pools by itself; otherwise token vectors are pooled as `1_Pooling/config.json`
    says (mean when it is missing). Prompts of `config_sentence_transformers.json` are put before texts.

    Args:
        folder: the model.
        name: what collections remember; two folders with one name must hold the same model.
        languages: those the model was trained on, None for many.
        cores: how many it may keep busy; all of them when None.
    """

    def __init__(
        self, folder: Path, name: str, *, languages: frozenset[str] | None = None, cores: int | None = None
    ) -> None:
        self.name, self.languages = name, languages
        self._folder = folder
        self.recent = QueryCache()
        # The model runs single-threaded and batches run side by side: passages keep every core busy. Questions
        # have threads of their own: behind the batches of an ingestion one would wait for seconds.
        cores = cores or os.cpu_count() or 1
        self._executor = ThreadPoolExecutor(max_workers=cores, thread_name_prefix="embed")
        self._questions = ThreadPoolExecutor(max_workers=cores, thread_name_prefix="embed-question")

    async def dimension(self) -> int:
        """Length of the vectors, read from the model."""
        return int((await self.embed_query("dimension")).shape[0])

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of passages, see `Embedder.embed`."""
        if not texts:
            return np.zeros((0, await self.dimension()), dtype=np.float32)
        model = self._model
        encoded = await self._in_thread(model.tokenize, texts, "document")
        parts = batches(encoded, _BATCH_TOKENS)
        computed = await asyncio.gather(*(self._in_thread(model.run, [encoded[n] for n in part]) for part in parts))
        if len(parts) > 1:
            await self._in_thread(model.give_back)
        vectors = np.empty((len(texts), computed[0].shape[1]), dtype=np.float32)
        for part, rows in zip(parts, computed, strict=True):
            vectors[part] = rows
        return vectors

    async def embed_query(self, text: str) -> Vectors:
        """Vector of a question, see `Embedder.embed_query`."""
        vector = self.recent.get(text)
        if vector is None:
            vector = await asyncio.get_running_loop().run_in_executor(self._questions, self._encode_query, text)
            self.recent.put(text, vector)
        return vector

    async def aclose(self) -> None:
        """Let the threads end; the model itself is freed with the object."""
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
        except Exception as error:  # the runtime and the tokenizer raise types of their own
            reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            raise Unavailable(f"the embedder {self.name}", f"cannot load {self._folder}: {reason}") from error


class _Model:
    def __init__(self, folder: Path) -> None:
        self._graph = Graph(folder)
        self._prompts = read_json(folder / "config_sentence_transformers.json").get("prompts") or {}
        pooling = read_json(folder / "1_Pooling" / "config.json")
        self._first_token = bool(pooling.get("pooling_mode_cls_token"))
        self._pooled = "sentence_embedding" in self._graph.outputs
        self._output = "sentence_embedding" if self._pooled else self._graph.outputs[0]

    def tokenize(self, texts: Sequence[str], kind: str) -> list[Any]:
        """Tokens of each text, with the model's prompt for that kind of text before it."""
        prompt = self._prompts.get(kind, "")
        return self._graph.tokenize([prompt + text for text in texts])

    def give_back(self) -> None:
        """See `Graph.give_back`."""
        self._graph.give_back(self._output)

    def run(self, batch: Sequence[Any]) -> Vectors:
        """Unit vectors of one batch."""
        values, mask = self._graph.run(batch, self._output)
        if not self._pooled:
            if self._first_token:
                values = values[:, 0]
            else:
                weights = mask[:, :, None].astype(np.float32)
                values = (values * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-9)
        norms = np.linalg.norm(values, axis=1, keepdims=True)
        return np.asarray(values / np.maximum(norms, 1e-12), dtype=np.float32)
