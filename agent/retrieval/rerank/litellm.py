"""Rerankers of the other providers that litellm supports: bedrock, vertex_ai, watsonx, voyage and more."""

import asyncio
import importlib
import threading
import time
from collections.abc import Sequence
from typing import Any

from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank.reranker import MOST_CHARACTERS, parse_scores, passage_text
from retrievers.embed import remote
from retrievers.http.response_limits import use_limits
from retrievers.http.sdk_retries import RetryPolicy, call_with_retries

_FIRST_WAIT_S = 0.2
_MOST_AROUND, _MOST_VALUES = 64 << 10, 50_000
"""Maximum bytes of an answer, besides the passages that some providers repeat in it, and maximum JSON values. litellm
parses an answer several times on the event loop, so a larger one would block all requests.
"""


class LiteLLMReranker:
    """A model by its litellm rerank string, such as "cohere/rerank-v3.5".

    Args:
        api_key: None lets litellm look for the provider's credentials in the environment.
    """

    is_remote = True
    is_comparable = True

    def __init__(self, name: str, *, api_key: str | None = None) -> None:
        self.name = name
        self._source = f"the reranker {name}"
        self._secrets = [api_key] if api_key else []
        self._options: dict[str, Any] = {"num_retries": 0, "max_retries": 0}
        if api_key:
            self._options["api_key"] = api_key
        # litellm imports openai. Import it first: the event loop would otherwise wait for the thread's import lock.
        importlib.import_module("openai")
        # Importing litellm takes seconds, more than one question's time limit, so it starts before any question.
        threading.Thread(target=remote._import_litellm, daemon=True).start()

    async def rerank(self, question: str, language: str, pool: Sequence[FusedHit], *, deadline: float) -> list[float]:
        """Return the provider's scores, see `Reranker.rerank`."""
        texts = [passage_text(hit)[:MOST_CHARACTERS] for hit in pool]
        await asyncio.to_thread(remote._import_litellm)
        timeout_s = max(deadline - time.monotonic(), 0.001)

        async def asked(litellm: Any) -> list[dict[str, Any]]:
            answer = await litellm.arerank(
                model=self.name,
                query=question,
                documents=texts,
                top_n=len(texts),
                timeout=timeout_s,
                **self._options,
            )
            return [dict(one) for one in answer.results or ()]

        # JSON may escape a character of three bytes as six.
        most = _MOST_AROUND + 2 * sum(len(text.encode(errors="replace")) for text in texts)
        with use_limits(most, _MOST_VALUES):
            results = await call_with_retries(
                lambda: remote.run_in_litellm(asked),
                source=self._source,
                policy=RetryPolicy(budget_s=timeout_s, attempts=2, first_wait_s=_FIRST_WAIT_S),
                timeout_s=timeout_s,
                secrets=self._secrets,
            )
        return parse_scores(results, len(texts), self._source)

    async def aclose(self) -> None:
        """Close the connections, which litellm shares between all its users."""
        await remote.close_litellm()
