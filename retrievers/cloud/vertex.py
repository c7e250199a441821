"""A data store of Vertex AI Search: `vertex:PROJECT/LOCATION/STORE`.

CLOUD_API_KEY is a bearer token. Without it, google-auth looks for Google's credentials in the usual places.
"""

import asyncio
import importlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from retrievers.cloud.filters import ProviderCondition
from retrievers.cloud.provider import (
    SOURCE,
    CloudProvider,
    CloudQuery,
    ProviderAccess,
    find_link,
    first_text,
    object_or_empty,
    record_text,
    split_setting,
)
from retrievers.core.errors import Unavailable
from retrievers.core.optional_dependencies import install_command
from retrievers.http.json_client import ProviderRefusal, SendRequest
from retrievers.http.provider_hits import ProviderHit, clean_text, json_objects, safe_link, value_at

FORMS = ("vertex:PROJECT/LOCATION/STORE",)
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_ORDER = {"eq": "=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_SEGMENTS = 3
"""Maximum number of passages of one document."""


@dataclass(slots=True)
class VertexDataStore(CloudProvider):
    access: ProviderAccess
    url: str
    max_hits: int = 100
    _credentials: Any = field(default=None, init=False, repr=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)

    async def find(self, search: CloudQuery) -> Iterator[ProviderHit]:
        """See `CloudProvider.find`. Results have no scores. They are in the provider's order."""
        body: dict[str, Any] = {
            "query": search.text,
            "pageSize": search.limit,
            "contentSearchSpec": {
                "snippetSpec": {"returnSnippet": True},
                "extractiveContentSpec": {"maxExtractiveSegmentCount": _SEGMENTS},
            },
        }
        if search.filter is not None:
            body["filter"] = search.filter
        headers = {"Authorization": f"Bearer {self.access.key or await self._token()}"}
        answer = await self.access.http.request_json(
            "POST", self.url, headers=headers, body=body, timeout_s=self.access.timeout_s
        )
        # An answer without hits has no list.
        if not isinstance(answer, dict):
            raise Unavailable(SOURCE, "its answer has an unknown format")
        return (
            one
            for result in json_objects(answer.get("results"))
            for one in _found(object_or_empty(result.get("document")))
        )

    async def _token(self) -> str:
        async with self._lock:
            try:
                return await asyncio.to_thread(self._refreshed, self.access.http.sender(self.access.timeout_s))
            except ImportError as error:
                raise Unavailable(SOURCE, f"google-auth is missing: {install_command('google')}") from error

    def _refreshed(self, send: SendRequest) -> str:
        auth = importlib.import_module("google.auth")
        errors = importlib.import_module("google.auth.exceptions")

        def request(url: str, method: str = "GET", body: Any = None, headers: Any = None, **_: Any) -> _Reply:
            content = body.encode() if isinstance(body, str) else body
            try:
                answer = send(method, url, headers or {}, content)
            except Unavailable as error:
                raise errors.TransportError(error.reason) from None
            return _Reply(answer.status, answer.headers, answer.body)

        try:
            if self._credentials is None:
                self._credentials, _ = auth.default(scopes=[_SCOPE], request=request)
            if not self._credentials.valid:
                self._credentials.refresh(request)
            return str(self._credentials.token)
        except errors.TransportError as error:
            raise Unavailable(SOURCE, f"there is no token: {error}") from None
        except errors.GoogleAuthError as error:
            raise ProviderRefusal(SOURCE, f"Google's credentials gave no token ({type(error).__name__})", 401) from None

    @staticmethod
    def express(condition: ProviderCondition) -> str | None:
        key, op, value = condition.key, condition.op, condition.value
        values = value if op == "in" else (value,)
        if not _FIELD.fullmatch(key) or op in ("contains", "prefix"):
            return None
        if all(isinstance(one, str) for one in values):
            return f"{key}: ANY({', '.join(json.dumps(one, ensure_ascii=False) for one in values)})"
        if op == "has" or any(isinstance(one, bool | str) for one in values):
            return None
        if op == "in":
            return "(" + " OR ".join(f"{key} = {one!r}" for one in values) + ")"
        return f"{key} {_ORDER[op]} {value!r}"

    @staticmethod
    def combine(how: Literal["and", "or"], parts: list[str]) -> str:
        return "(" + f" {how.upper()} ".join(parts) + ")"


@dataclass(frozen=True, slots=True)
class _Reply:
    """An HTTP answer in the form that google-auth reads."""

    status: int
    headers: Mapping[str, str]
    data: bytes


def _found(document: Any) -> list[ProviderHit]:
    """Return the passages of one document. A record of a structured store is one passage."""
    stored, derived = object_or_empty(document.get("structData")), object_or_empty(document.get("derivedStructData"))
    segments = [clean_text(one.get("content")) for one in json_objects(derived.get("extractive_segments"))]
    shown = [one for one in json_objects(derived.get("snippets")) if one.get("snippet_status") == "SUCCESS"]
    snippets = [clean_text(one.get("snippet")) for one in shown]
    texts = [text for text in segments if text] or [text for text in snippets if text] or [record_text(stored)]
    link = first_text(derived.get("link"), value_at(document, "content", "uri"))
    url = safe_link(link) or find_link(stored)
    title = first_text(derived.get("title"), stored.get("title")) or ""
    id = first_text(document.get("id"), link)
    return [ProviderHit(text, title, url, id, None, stored) for text in texts[:_SEGMENTS]]


def open_knowledge_base(rest: str, access: ProviderAccess) -> VertexDataStore:
    """Build the data store with this name.

    Raises:
        ValueError: the setting is invalid.
    """
    project, location, store = (quote(one, safe="") for one in split_setting(rest, 3))
    host = "discoveryengine.googleapis.com"
    base_url = access.base_url or f"https://{host if location == 'global' else f'{location}-{host}'}"
    place = f"projects/{project}/locations/{location}/collections/default_collection/dataStores/{store}"
    return VertexDataStore(access, f"{base_url}/v1/{place}/servingConfigs/default_config:search")
