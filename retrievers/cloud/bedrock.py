"""A knowledge base of Amazon Bedrock: `bedrock:REGION/KB_ID`, through boto3.

CLOUD_API_KEY is ACCESS_KEY_ID:SECRET_ACCESS_KEY. Without it, boto3 looks for AWS credentials in the usual places.
"""

import asyncio
import importlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock, local
from typing import Any, Literal

from retrievers.cloud.filters import ProviderCondition
from retrievers.cloud.provider import (
    SOURCE,
    CloudProvider,
    CloudQuery,
    ProviderAccess,
    first_text,
    object_or_empty,
    record_text,
    split_setting,
)
from retrievers.core.errors import Unavailable
from retrievers.core.optional_dependencies import install_command
from retrievers.http.json_client import ProviderRefusal, SendRequest
from retrievers.http.provider_hits import ProviderHit, clean_text, finite_number, json_objects, value_at

FORMS = ("bedrock:REGION/KB_ID",)
_THREADS = 8
_NAMES = {
    "eq": "equals",
    "gt": "greaterThan",
    "gte": "greaterThanOrEquals",
    "lt": "lessThan",
    "lte": "lessThanOrEquals",
    "in": "in",
    "contains": "stringContains",
    "prefix": "startsWith",
    "has": "listContains",
}
_LONGEST_KEY = 100


@dataclass(slots=True)
class BedrockKnowledgeBase(CloudProvider):
    access: ProviderAccess
    region: str
    id: str
    max_hits: int = 100
    # Threads of its own, so that slow answers do not block the common threads.
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_THREADS, "bedrock"), init=False, repr=False
    )
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)
    _client: Any = field(default=None, init=False, repr=False)
    _sending: local = field(default_factory=local, init=False, repr=False)

    async def find(self, search: CloudQuery) -> Iterator[ProviderHit]:
        """See `CloudProvider.find`."""
        settings: dict[str, Any] = {"numberOfResults": search.limit}
        if search.filter is not None:
            settings["filter"] = search.filter
        loop = asyncio.get_running_loop()
        timeout_s = self.access.timeout_s
        send = self.access.http.sender(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):  # includes the time in which the library reads the answer
                answer = await loop.run_in_executor(self._threads, self._retrieve, search.text, settings, send)
        except TimeoutError:
            raise Unavailable(SOURCE, f"no answer within {timeout_s:.3g} s") from None
        if not isinstance(value_at(answer, "retrievalResults"), list):
            # The library turns an answer that it cannot read into an empty one.
            raise Unavailable(SOURCE, "its answer has no results")
        return (_found(one) for one in json_objects(answer["retrievalResults"]))

    async def aclose(self) -> None:
        """Release the threads. A thread that still waits for an answer ends by its timeout."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            self._client.close()

    def _retrieve(self, text: str, settings: dict[str, Any], send: SendRequest) -> Any:
        try:
            errors = importlib.import_module("botocore.exceptions")
            boto3 = importlib.import_module("boto3")
        except ImportError as error:
            raise Unavailable(SOURCE, f"boto3 is missing: {install_command('aws')}") from error
        try:
            self._sending.send = send
            return self._opened(boto3).retrieve(
                knowledgeBaseId=self.id,
                retrievalQuery={"text": text},
                retrievalConfiguration={"vectorSearchConfiguration": settings},
            )
        except errors.ClientError as error:
            raise _refused(error.response) from None
        except (errors.NoCredentialsError, errors.PartialCredentialsError, errors.CredentialRetrievalError):
            raise ProviderRefusal(SOURCE, "there are no AWS credentials", 401) from None
        except errors.ParamValidationError as error:
            raise ProviderRefusal(SOURCE, str(error), 400) from None
        except Unavailable:
            raise
        except Exception as error:  # the library and its parsers raise exception types of their own
            # The message may contain the address.
            raise Unavailable(SOURCE, f"the connection failed ({type(error).__name__})") from None

    def _opened(self, boto3: Any) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._open(boto3)
            return self._client

    def _sent(self, request: Any, **_: Any) -> Any:
        """Send a signed request. The library uses the return value of a `before-send` handler as the answer.

        This replaces the library's HTTP client, which reads as long as bytes arrive, in a thread that cannot be
        cancelled.
        """
        awsrequest = importlib.import_module("botocore.awsrequest")
        answer = self._sending.send(request.method, request.url, dict(request.headers), request.body)
        return awsrequest.AWSResponse(request.url, answer.status, answer.headers, _Raw(answer.body))

    def _open(self, boto3: Any) -> Any:
        config = importlib.import_module("botocore.config")
        id, secret = self.access.key_pair() if self.access.key else (None, None)
        session = boto3.session.Session(aws_access_key_id=id, aws_secret_access_key=secret, region_name=self.region)
        client = session.client(
            "bedrock-agent-runtime",
            endpoint_url=self.access.base_url,
            config=config.Config(retries={"total_max_attempts": 1}),
        )
        client.meta.events.register("before-send", self._sent)
        return client

    @staticmethod
    def express(condition: ProviderCondition) -> dict[str, Any] | None:
        if len(condition.key) > _LONGEST_KEY:
            return None
        value = list(condition.value) if condition.op == "in" else condition.value
        return {_NAMES[condition.op]: {"key": condition.key, "value": value}}

    @staticmethod
    def combine(how: Literal["and", "or"], parts: list[dict[str, Any]]) -> dict[str, Any]:
        return {f"{how}All": parts}


@dataclass(frozen=True, slots=True)
class _Raw:
    """The body of an answer, in the form that botocore reads."""

    body: bytes

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.body


def _refused(response: Any) -> ProviderRefusal:
    status = value_at(response, "ResponseMetadata", "HTTPStatusCode")
    code, said = value_at(response, "Error", "Code"), value_at(response, "Error", "Message")
    wait_s = value_at(response, "ResponseMetadata", "HTTPHeaders", "retry-after")
    seconds = float(wait_s) if isinstance(wait_s, str) and wait_s.isdecimal() else None
    return ProviderRefusal(SOURCE, f"{code}: {said}", status if isinstance(status, int) else 500, retry_after_s=seconds)


def _found(result: Any) -> ProviderHit:
    metadata, content, location = (object_or_empty(result.get(key)) for key in ("metadata", "content", "location"))
    row = {str(one.get("columnName")): one.get("columnValue") for one in json_objects(content.get("row"))}
    # {"type": "S3", "s3Location": {"uri": "s3://..."}} and ten similar types.
    place = next((object_or_empty(one) for one in location.values() if isinstance(one, dict)), object_or_empty(None))
    where = first_text(place.get("url"), place.get("uri"), place.get("id"))
    return ProviderHit(
        text=clean_text(content.get("text")) or record_text(row),
        title=first_text(metadata.get("title")) or (where or "").rstrip("/").rpartition("/")[2],
        url=where,
        id=first_text(where, result.get("documentId")),
        score=finite_number(result.get("score")),
        metadata=metadata,
    )


def open_knowledge_base(rest: str, access: ProviderAccess) -> BedrockKnowledgeBase:
    """Build the knowledge base with this id.

    Raises:
        ValueError: the setting or its key is invalid.
    """
    region, id = split_setting(rest, 2)
    if access.key:
        access.key_pair()
    return BedrockKnowledgeBase(access, region, id)
