"""Embedders reached through a library: OpenAI-compatible endpoints, litellm's providers, fastembed's models."""

import asyncio
import importlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from threading import Lock
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic_core import from_json

from retrievers.core.errors import Unavailable
from retrievers.core.json_limits import has_long_number
from retrievers.core.optional_dependencies import install_command
from retrievers.embed import Vectors
from retrievers.embed.cache import QueryCache
from retrievers.http.loop_thread import LoopThread
from retrievers.http.response_limits import run_off_loop, use_limits
from retrievers.http.sdk_limits import OPENAI_URL, limit_litellm, open_openai
from retrievers.http.sdk_retries import RetryPolicy, call_with_retries

Kind = Literal["document", "query"]
_Returned = TypeVar("_Returned")
_LITELLM = LoopThread("litellm")
_CLOSED_WITHIN_S = 2.0

# Maximum number of texts per call. DashScope's models are also reached under other provider names, so the model name is
# looked up first.
_BATCH_BY_MODEL = {
    "text-embedding-v4": 10,
    "text-embedding-v3": 10,
    "text-embedding-v2": 25,
    "text-embedding-v1": 25,
}
_BATCH_BY_PROVIDER = {"openai": 256, "cohere": 96, "voyage": 128}
_BATCH = 64
# Text Embeddings Inference refuses larger batches by default.
_BATCH_OF_AN_OWN_SERVER = 32
# Providers limit the tokens per call, the lowest limit being 120,000. A Chinese character may be a whole token.
_BATCH_CHARACTERS = 100_000

# Models that embed questions and passages differently, with litellm's names for the two kinds.
_INPUT_TYPES: dict[str, dict[Kind, str]] = {
    "cohere/": {"document": "search_document", "query": "search_query"},
    "bedrock/cohere.": {"document": "search_document", "query": "search_query"},
    "voyage/": {"document": "document", "query": "query"},
}

# Length of the longest vectors in use, and bytes of a number in JSON with its separators.
_MOST_NUMBERS, _NUMBER_BYTES = 8_192, 32
# Maximum count of numbers in one answer: parsing and converting this many blocks the event loop for up to 30 ms, even
# in a thread.
_MOST_AT_ONCE = 400_000
# litellm parses answers with `json`, which takes four times as long.
_MOST_AT_ONCE_LITELLM = 100_000
_MOST_AROUND = 64 << 10
"""Allowance for the content of an answer beside the vectors: both a number of bytes and a number of JSON values."""


class _Library(ABC):
    """Base class of embedders that call a library, in batches; answers are checked, vectors scaled to length 1.

    Args:
        batch: maximum number of texts per call.
        at_once: how many numbers (texts times dimension) one answer may contain.
    """

    def __init__(self, name: str, batch: int, at_once: int = _MOST_AT_ONCE) -> None:
        self.name = name
        self.languages: frozenset[str] | None = None
        self._source = f"the embedder {name}"
        self._batch, self._at_once = batch, at_once
        self._dimension: int | None = None
        self.query_cache = QueryCache()

    async def dimension(self) -> int:
        """Return the length of the vectors, read from the model by one short call and cached."""
        if self._dimension is None:
            await self.embed_query("dimension")
        assert self._dimension is not None  # every answer sets it
        return self._dimension

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of passages, see `Embedder.embed`.

        Raises:
            ValueError: a text is empty. The services would refuse the whole call.
            Unavailable: the model cannot be loaded or reached, or its answer contains no usable vectors.
        """
        _refuse_empty(texts)
        if not texts:
            return np.empty((0, await self.dimension()), dtype=np.float32)
        most = min(self._batch, max(1, self._at_once // (self._dimension or _MOST_NUMBERS)))
        units = []
        for batch in _batches(texts, most):
            vectors = await self._vectors(batch, "document")
            units.append(await asyncio.to_thread(self._unit, vectors))
        return np.concatenate(units)

    async def embed_query(self, text: str) -> Vectors:
        """Return the vector of one question, see `Embedder.embed_query`. Raises like `embed`."""
        _refuse_empty([text])
        vector: Vectors | None = self.query_cache.get(text)
        if vector is None:
            vector = self._unit(await self._vectors([text], "query"))[0]
            self.query_cache.put(text, vector)
        return vector

    async def aclose(self) -> None:
        """Do nothing. Subclasses with connections close them."""
        return

    def _limits(self, texts: int) -> AbstractContextManager[None]:
        """Return a context that limits the size of an answer with `texts` vectors."""
        numbers = min(texts * _MOST_NUMBERS, self._at_once)
        return use_limits(_MOST_AROUND + numbers * _NUMBER_BYTES, _MOST_AROUND + numbers)

    @abstractmethod
    async def _vectors(self, texts: list[str], kind: Kind) -> list[Any]:
        """Return one vector per text, in the order of the texts, as answered: not yet checked or scaled.

        Args:
            kind: "document" for passages, "query" for a question.
        """

    def _unit(self, vectors: list[Any]) -> Vectors:
        try:
            matrix = np.array(vectors, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise Unavailable(self._source, "its vectors differ in length or are not lists of numbers") from error
        if matrix.ndim != 2 or matrix.shape[1] == 0:
            raise Unavailable(self._source, "its vectors are not lists of numbers")
        with np.errstate(over="ignore"):
            norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        if not np.isfinite(norms).all():
            raise Unavailable(self._source, "a vector holds NaN or an infinite number")
        if not norms.all():
            raise Unavailable(self._source, "a vector is all zeros")
        if self._dimension is None:
            self._dimension = matrix.shape[1]
        if self._dimension != matrix.shape[1]:
            changed = f"the dimension of its vectors changed from {self._dimension} to {matrix.shape[1]}"
            raise Unavailable(self._source, changed)
        return np.asarray(matrix / norms, dtype=np.float32)


class OpenAIEmbedder(_Library):
    """A model behind an OpenAI-compatible endpoint: OpenAI, DashScope, vLLM, Ollama, TEI and others.

    Args:
        name: "openai/MODEL".
        base_url: URL including "/v1"; None for OpenAI's.
        api_key: None if the server needs none.
        timeout_s: timeout of one attempt, in seconds.
        retry: retries per batch of texts.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        super().__init__(name, _batch_size(name, own_server=base_url not in (None, OPENAI_URL)))
        self._model = name.removeprefix("openai/")
        self._timeout_s = timeout_s
        self._retry = retry or RetryPolicy()
        self._secrets = [api_key] if api_key else []
        self._client = open_openai(base_url, api_key)

    async def _vectors(self, texts: list[str], kind: Kind) -> list[Any]:
        async def send() -> bytes:
            # Explicit, because the SDK defaults to base64, which not every server supports.
            create = self._client.embeddings.with_streaming_response.create
            asked = create(model=self._model, input=texts, encoding_format="float", timeout=self._timeout_s)
            async with asked as response:
                return await response.read()

        with self._limits(len(texts)):
            body = await call_with_retries(
                send, source=self._source, policy=self._retry, timeout_s=self._timeout_s, secrets=self._secrets
            )
        try:
            answer = await run_off_loop(_parsed, body)
        except ValueError as error:
            raise Unavailable(self._source, "its answer is not JSON, or a number in it is too long") from error
        return _in_order(self._source, answer.get("data") if isinstance(answer, dict) else None, len(texts))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


class LiteLLMEmbedder(_Library):
    """A model of any other provider that litellm supports, by its litellm string.

    Args:
        name: "PROVIDER/MODEL" ("voyage/voyage-3.5", "bedrock/cohere.embed-multilingual-v3").
        base_url: address of the API; None for the provider's own.
        api_key: if None, litellm looks for the provider's credentials in its usual places.
        timeout_s: timeout of one attempt, in seconds.
        retry: retries per batch of texts.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        super().__init__(name, _batch_size(name, own_server=False), _MOST_AT_ONCE_LITELLM)
        self._timeout_s = timeout_s
        self._retry = retry or RetryPolicy()
        self._secrets = [api_key] if api_key else []
        self._options: dict[str, Any] = {"timeout": timeout_s, "num_retries": 0, "max_retries": 0}
        if api_key:
            self._options["api_key"] = api_key
        if base_url:
            self._options["api_base"] = base_url
        self._input_types = next((types for start, types in _INPUT_TYPES.items() if name.startswith(start)), None)

    async def _vectors(self, texts: list[str], kind: Kind) -> list[Any]:
        options = {**self._options, "input_type": self._input_types[kind]} if self._input_types else self._options

        async def asked(litellm: Any) -> list[Any]:
            answer = await litellm.aembedding(model=self.name, input=texts, **options)
            return [item if isinstance(item, dict) else dict(item) for item in answer.data or []]

        await asyncio.to_thread(_import_litellm)  # takes seconds, longer than one try may take
        with self._limits(len(texts)):
            items = await call_with_retries(
                lambda: run_in_litellm(asked),
                source=self._source,
                policy=self._retry,
                timeout_s=self._timeout_s,
                secrets=self._secrets,
            )
        return _in_order(self._source, items, len(texts))

    async def aclose(self) -> None:
        """Close the connections. litellm shares them among all its users."""
        await close_litellm()


class FastEmbedEmbedder(_Library):
    """A model of the optional package fastembed, run in this process. The first use downloads it.

    Args:
        name: "fastembed:NAME", where NAME is in fastembed's list ("fastembed:BAAI/bge-small-zh-v1.5").
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, _BATCH)
        self._model: Any = None
        # One call at a time, because the model's own threads use every core.
        self._lock = Lock()

    async def _vectors(self, texts: list[str], kind: Kind) -> list[Any]:
        return await asyncio.to_thread(self._encode, texts, kind)

    def _encode(self, texts: list[str], kind: Kind) -> list[Any]:
        with self._lock:
            if self._model is None:
                self._model = self._load()
            return list(self._model.query_embed(texts) if kind == "query" else self._model.embed(texts))

    def _load(self) -> Any:
        try:
            fastembed = importlib.import_module("fastembed")
        except ImportError as error:
            raise Unavailable(self._source, f"fastembed is missing: {install_command('local')}") from error
        try:
            return fastembed.TextEmbedding(model_name=self.name.removeprefix("fastembed:"))
        except Exception as error:  # the downloader and the runtime raise exception types of their own
            reason = " ".join(str(error).split())[:160] or type(error).__name__
            raise Unavailable(self._source, f"cannot download or load the model: {reason}") from error


async def run_in_litellm(use: Callable[[Any], Awaitable[_Returned]]) -> _Returned:
    """Return `await use(litellm)`, run in an event loop and thread only for litellm.

    litellm parses answers, and imports more modules at its first call, in the event loop that calls it. That would
    block the service's loop. All calls share one loop, as litellm's clients only work in the loop that created them.
    """
    return await _LITELLM.run(lambda: use(_import_litellm()))


async def close_litellm() -> None:
    """Close litellm's connections, which all its users share. Gives up after `_CLOSED_WITHIN_S` seconds."""
    if "litellm" in sys.modules:
        # RuntimeError: a call that still runs opened a connection while litellm went through them.
        with suppress(TimeoutError, RuntimeError):
            await asyncio.wait_for(
                run_in_litellm(lambda litellm: litellm.close_litellm_async_clients()), _CLOSED_WITHIN_S
            )


def _import_litellm() -> Any:
    # Prevents litellm from fetching a price list from the web on import.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm: Any = importlib.import_module("litellm")
    # For OpenAI-like providers, aembedding treats max_retries=0 as "not given" and falls back to this value.
    litellm.DEFAULT_MAX_RETRIES = 0
    litellm.suppress_debug_info = True
    # aiohttp, its default, reads any number of interim answers (100 Continue), and no other task runs meanwhile.
    litellm.disable_aiohttp_transport = True
    limit_litellm()
    # The first call would load its table of tokens. Native code does that and blocks all threads for 0.1 s.
    with suppress(ImportError):
        importlib.import_module("litellm.litellm_core_utils.default_encoding")
    return litellm


def _batch_size(name: str, *, own_server: bool) -> int:
    """Return the maximum number of texts per call for a model named "PROVIDER/MODEL"."""
    provider, _, model = name.partition("/")
    for start, size in _BATCH_BY_MODEL.items():
        if model.startswith(start):
            return size
    return _BATCH_OF_AN_OWN_SERVER if own_server else _BATCH_BY_PROVIDER.get(provider, _BATCH)


def _batches(texts: Sequence[str], most: int) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        if batch and (len(batch) == most or characters + len(text) > _BATCH_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
    yield batch


def _refuse_empty(texts: Sequence[str]) -> None:
    for number, text in enumerate(texts):
        if not text.strip():
            raise ValueError(f"text {number} is empty, and an empty text has no vector")


def _parsed(body: bytes) -> Any:
    if has_long_number(body):
        raise ValueError("a number is too long")
    # Parses numbers in a quarter of the time of `json`.
    return from_json(body)


def _in_order(source: str, items: object, count: int) -> list[Any]:
    """Return the vectors of an answer, one per text, in their order. Raises Unavailable if the answer has others."""
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise Unavailable(source, "its answer holds no list of vectors")
    if len(items) != count:
        raise Unavailable(source, f"its answer holds {len(items)} vectors for {count} texts")
    # Some servers omit the indexes and keep the order.
    numbers = [place if item.get("index") is None else item["index"] for place, item in enumerate(items)]
    vectors = dict(zip(map(str, numbers), items, strict=True))
    if vectors.keys() != set(map(str, range(count))):
        raise Unavailable(source, "its answer does not number the vectors from 0")
    return [vectors[str(place)].get("embedding") for place in range(count)]
