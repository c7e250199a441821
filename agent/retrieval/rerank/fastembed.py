"""Cross-encoders of the optional package fastembed, run in this process; the model is downloaded on first use."""

import asyncio
import importlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank.reranker import passage_text, sigmoid
from retrievers.core.errors import Unavailable
from retrievers.core.optional_dependencies import install_command


class FastEmbedReranker:
    """A cross-encoder by its name in fastembed's list, such as "Xenova/ms-marco-MiniLM-L-6-v2"."""

    is_remote = False
    is_comparable = True

    def __init__(self, model: str) -> None:
        self.name = f"fastembed:{model}"
        self._source = f"the reranker {self.name}"
        self._model_name = model
        # One worker, since the model's own threads use every core. Requests wait in its queue while the model loads;
        # a cancelled one leaves the queue.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rerank")

    async def rerank(self, question: str, language: str, pool: Sequence[FusedHit], *, deadline: float) -> list[float]:
        """Return probabilities, see `Reranker.rerank`."""
        texts = [passage_text(hit) for hit in pool]
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._judge, question, texts)

    async def aclose(self) -> None:
        """Stop the thread."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _judge(self, question: str, texts: list[str]) -> list[float]:
        model = self._model
        try:
            return [sigmoid(float(logit)) for logit in model.rerank(question, texts)]
        except Exception as error:  # the runtime and the tokenizer raise their own exception types
            raise Unavailable(self._source, f"it cannot score these passages ({type(error).__name__})") from error

    @cached_property
    def _model(self) -> Any:
        try:
            encoders = importlib.import_module("fastembed.rerank.cross_encoder")
        except ImportError as error:
            raise Unavailable(self._source, f"fastembed is missing: {install_command('local')}") from error
        try:
            return encoders.TextCrossEncoder(model_name=self._model_name)
        except Exception as error:  # the downloader and the runtime raise their own exception types
            reason = " ".join(str(error).split())[:160] or type(error).__name__
            hint = "without a network, give a folder: RERANKER=onnx:DIR"
            raise Unavailable(self._source, f"cannot download or load the model: {reason}; {hint}") from error
