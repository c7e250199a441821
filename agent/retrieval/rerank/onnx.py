"""Local cross-encoders as ONNX folders: score each passage by reading it together with the question."""

import asyncio
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import numpy as np

from agent.errors import BadSetting
from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank.reranker import passage_text, sigmoid
from retrievers.core.errors import Unavailable
from retrievers.embed.onnx_graph import OnnxGraph, Tokens, batch_by_length

# Tokens per batch, padding included. Few, since the deadline is checked only between batches.
_BATCH_TOKENS = 1024


class OnnxReranker:
    """A cross-encoder in a folder with `tokenizer.json` and `model.onnx` (or `onnx/model.onnx`).

    The graph returns one logit per pair, or two (not relevant, relevant). Passages are cut to the model's token limit.

    Args:
        cores: maximum CPU cores to use; None means all.
    Raises:
        BadSetting: `folder` is not a folder.
    """

    is_remote = False
    is_comparable = True

    def __init__(self, folder: Path, name: str, *, cores: int | None = None) -> None:
        if not folder.is_dir():
            raise BadSetting(f"RERANKER: {folder} is not a folder", where="reranker")
        self.name = name
        self._source = f"the reranker {name}"
        self._folder = folder
        self._executor = ThreadPoolExecutor(max_workers=cores or os.cpu_count() or 1, thread_name_prefix="rerank")

    async def rerank(self, question: str, language: str, pool: Sequence[FusedHit], *, deadline: float) -> list[float]:
        """Return probabilities, see `Reranker.rerank`."""
        loop = asyncio.get_running_loop()
        texts = [passage_text(hit) for hit in pool]
        encoded = await loop.run_in_executor(self._executor, self._tokenize, question, texts)
        parts = batch_by_length(encoded, _BATCH_TOKENS)
        runs = [
            loop.run_in_executor(self._executor, self._judge, [encoded[n] for n in part], deadline) for part in parts
        ]
        scores = [0.0] * len(texts)
        for part, judged in zip(parts, await asyncio.gather(*runs), strict=True):
            for place, score in zip(part, judged, strict=True):
                scores[place] = score
        return scores

    async def aclose(self) -> None:
        """Stop the threads; the model is freed with the object."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _tokenize(self, question: str, texts: Sequence[str]) -> list[Tokens]:
        graph = self._graph
        try:
            return graph.tokenize([(question, text) for text in texts])
        except Exception as error:  # the tokenizer raises its own exception types
            raise Unavailable(self._source, f"its tokenizer failed ({type(error).__name__})") from error

    def _judge(self, batch: Sequence[Tokens], deadline: float) -> list[float]:
        if time.monotonic() > deadline:
            raise Unavailable(self._source, "it took too long")
        try:
            values, _ = self._graph.run(batch, self._graph.outputs[0])
            labels = values.reshape(len(batch), -1)
        except Exception as error:  # the runtime raises its own exception types
            raise Unavailable(self._source, f"its model cannot be run ({type(error).__name__})") from error
        if labels.shape[1] not in (1, 2):
            raise Unavailable(
                self._source, f"its model returns {labels.shape[1]} values per pair; a cross-encoder returns 1 or 2"
            )
        logits = labels[:, 0] if labels.shape[1] == 1 else labels[:, 1] - labels[:, 0]
        return [sigmoid(float(logit)) for logit in np.asarray(logits, dtype=np.float64)]

    @cached_property
    def _graph(self) -> OnnxGraph:
        try:
            return OnnxGraph(self._folder)
        except Exception as error:  # the runtime and the tokenizer raise their own exception types
            reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            raise Unavailable(self._source, f"cannot load {self._folder}: {reason}") from error
