"""Rerankers behind a URL, in the API of Cohere (also Jina, vLLM, Infinity, DashScope, Voyage) or of TEI.

    POST .../v2/rerank  {"model", "query", "documents", "top_n"}  ->  {"results": [{"index", "relevance_score"}]}
    POST .../rerank     {"query", "texts", "raw_scores", "truncate"}  ->  [{"index", "score"}]

The path decides: `/v1/rerank`, `/v2/rerank` and `/v1/reranks` mean Cohere's API. For any other path TEI's is tried
first and Cohere's if the server refuses it; the API that works is used from then on.
"""

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from agent.errors import BadSetting
from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank.reranker import MOST_CHARACTERS, parse_scores, passage_text
from retrievers.http.json_client import JsonClient, ProviderRefusal

TEI_BATCH = 32
"""Maximum texts per request to TEI, by its server's default."""
_COHERES = re.compile(r"/v\d+/reranks?/?")
_REFUSES_THE_FORM = (400, 415, 422)


class HttpReranker:
    """A reranker reached over HTTP.

    Args:
        url: the full URL; no path is added.
        name: name in traces and errors.
        model: model name for Cohere's API; None means the server's default.
        api_key: sent as a bearer token.
    Raises:
        BadSetting: the URL is not valid.
    """

    is_remote = True
    is_comparable = True

    def __init__(self, url: str, *, name: str, model: str | None = None, api_key: str | None = None) -> None:
        path = _path_of(url)
        self.name = name
        self._source = f"the reranker {name}"
        self._url, self._model = url, model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = JsonClient(self._source, secrets=[api_key] if api_key else [])
        self._shapes = ("cohere",) if _COHERES.search(path) else ("tei", "cohere")

    async def rerank(self, question: str, language: str, pool: Sequence[FusedHit], *, deadline: float) -> list[float]:
        """Return the server's scores, see `Reranker.rerank`."""
        texts = [passage_text(hit)[:MOST_CHARACTERS] for hit in pool]
        shapes = self._shapes
        for shape in shapes:
            try:
                scores = await (self._tei if shape == "tei" else self._cohere)(question, texts, deadline)
            except ProviderRefusal as error:
                if shape == shapes[-1] or error.status not in _REFUSES_THE_FORM:
                    raise
            else:
                self._shapes = (shape,)
                return scores
        raise AssertionError("the last shape returns or raises")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _cohere(self, question: str, texts: Sequence[str], deadline: float) -> list[float]:
        body = {"query": question, "documents": list(texts), "top_n": len(texts)}
        if self._model:
            body["model"] = self._model
        return parse_scores(await self._post(body, deadline), len(texts), self._source)

    async def _tei(self, question: str, texts: Sequence[str], deadline: float) -> list[float]:
        batches = [list(texts[start : start + TEI_BATCH]) for start in range(0, len(texts), TEI_BATCH)]
        bodies = [{"query": question, "texts": batch, "raw_scores": False, "truncate": True} for batch in batches]
        answers = await asyncio.gather(*(self._post(body, deadline) for body in bodies))
        return [
            score
            for batch, answer in zip(batches, answers, strict=True)
            for score in parse_scores(answer, len(batch), self._source)
        ]

    async def _post(self, body: dict[str, Any], deadline: float) -> Any:
        timeout_s = max(deadline - time.monotonic(), 0.001)
        return await self._client.request_json("POST", self._url, headers=self._headers, body=body, timeout_s=timeout_s)


def _path_of(url: str) -> str:
    """Return the path of a server's URL; raise BadSetting if the URL is not complete or holds credentials."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or not url.isprintable() or " " in url:
        raise BadSetting("RERANKER: give an address after http:, such as http://HOST:PORT/rerank", where="reranker")
    if "@" in parts.netloc:
        raise BadSetting("RERANKER: put the API key into RERANKER_API_KEY, not into the address", where="reranker")
    if parts.path in ("", "/"):
        raise BadSetting(
            "RERANKER: give the full address with its path, such as http://HOST:PORT/v1/rerank", where="reranker"
        )
    return parts.path
