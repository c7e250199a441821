"""Attempts of a model call: retries within its deadline, and the reason if none succeeds."""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent.llm.call_log import count_attempt
from agent.llm.model import CallUsage, FaultKind, ModelFailed, timeout_reason
from retrievers.http.response_limits import find_bad_response
from retrievers.http.sdk_retries import RetryPolicy, http_status, is_connection_error, repeat_call, retry_after_s

T = TypeVar("T")

_RETRIES = 2
_FIRST_WAIT_S = 0.25
_LONGEST_WAIT_S = 2.0
_LONGEST_ASKED_S = 60.0

_REFUSALS = (400, 404, 405, 415, 422, 501)
_MEANINGS = {
    401: "the API key is rejected",
    403: "the API key has no access to the model",
    404: "the address or the model does not exist",
    413: "the prompt is too long for the model",
    429: "too many requests, or the quota is used up",
}


class RequestFormRejected(Exception):
    """The server rejects the form of the request.

    `error_text` is the server's error text in lower case. It decides how the request is changed, and is never shown.
    """

    def __init__(self, status: int, error_text: str) -> None:
        super().__init__(f"HTTP {status}")
        self.status, self.error_text = status, error_text.lower()


@dataclass(slots=True)
class CallState:
    """Attempts, retries and usage of one `complete` or `stream` call so far; times are of `time.monotonic()`."""

    deadline: float
    started: float = field(default_factory=time.monotonic)
    attempts: int = 0
    retries_left: int = _RETRIES
    usage: CallUsage = field(default_factory=CallUsage)

    def left_s(self) -> float:
        return self.deadline - time.monotonic()


async def send_with_retries(send: Callable[[float], Awaitable[T]], run: CallState) -> T:
    """Return the server's answer to a request; repeat the request while retries and time are left.

    Args:
        send: sends the request once; its argument is the time left, in seconds.
    Raises:
        RequestFormRejected: the server may accept the request in another form.
        ModelFailed: no attempt succeeded.
    """
    import openai

    async def once() -> T:
        run.attempts += 1
        count_attempt()
        return await _sort_errors(send(run.left_s()))

    given_s = run.left_s()
    before = run.attempts
    policy = RetryPolicy(given_s, run.retries_left + 1, _FIRST_WAIT_S, _LONGEST_WAIT_S, _LONGEST_ASKED_S)
    try:
        return await repeat_call(once, policy=policy, timeout_s=given_s)
    except (TimeoutError, ConnectionError, openai.OpenAIError) as error:
        # Leave the SDK's error out of the chain: it may quote the API key.
        raise _failed(error, given_s, run.attempts - before) from None
    finally:
        run.retries_left = max(0, run.retries_left - (run.attempts - before - 1))


async def next_event(events: AsyncGenerator[dict[str, Any]], run: CallState, given_s: float) -> dict[str, Any] | None:
    """Return the next event of a started stream; None at its end.

    Args:
        given_s: seconds that the call had in total, for the error text.
    Raises:
        ModelFailed: the stream broke off, or the deadline passed.
    """
    import openai

    try:
        async with asyncio.timeout(run.left_s()):
            return await _sort_errors(anext(events, None))
    except RequestFormRejected as refusal:
        raise ModelFailed(reason_of_status(refusal.status), fault=fault_of_status(refusal.status)) from None
    except (TimeoutError, ConnectionError, openai.OpenAIError) as error:
        raise _failed(error, given_s) from None
    except Exception as error:
        # The HTTP client raises this when a connection ends within a chunk.
        if not is_connection_error(error):
            raise
        raise ModelFailed("its answer broke off", fault="down") from None


def _failed(error: Exception, given_s: float, tries: int = 1) -> ModelFailed:
    reason, fault = _reason(error, given_s)
    reason = f"after {tries} tries: {reason}" if tries > 1 else reason
    return ModelFailed(reason, retry_after_s=retry_after_s(error), fault=fault)


async def _sort_errors(answer: Awaitable[T]) -> T:
    """Return the awaited answer. Pass on errors that a retry may cure; raise one of ours for the others."""
    import openai

    try:
        return await answer
    except (TimeoutError, ModelFailed):
        raise
    except Exception as error:
        if bad := find_bad_response(error):
            raise ModelFailed(bad.reason) from None
        if is_connection_error(error):
            raise
        if not isinstance(error, openai.OpenAIError):
            # A mistake of the client, such as a header that cannot be encoded.
            raise ModelFailed(f"the client library failed ({type(error).__name__})") from None
        status = http_status(error)
        error_text = json.dumps(getattr(error, "body", None), default=str) + str(error)
        # Some servers fail with 500 on a schema they cannot compile instead of rejecting it.
        if status in _REFUSALS or (
            status == 500 and re.search(r"response_format|json_schema|grammar|guided", error_text)
        ):
            raise RequestFormRejected(status or 400, error_text) from None
        raise


def _reason(error: Exception, given_s: float) -> tuple[str, FaultKind]:
    import openai

    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return timeout_reason(given_s), "late"
    if isinstance(error, ConnectionError | openai.APIConnectionError):
        return "the connection failed", "down"
    status = http_status(error)
    return (reason_of_status(status), fault_of_status(status)) if status else ("its answer cannot be read", "answer")


def fault_of_status(status: int) -> FaultKind:
    """Return the kind of fault that an HTTP status shows: `down` for 429 and 5xx, otherwise `answer`."""
    return "down" if status == 429 or status >= 500 else "answer"


def reason_of_status(status: int) -> str:
    """Return the reason text for an HTTP status, such as "HTTP 401, the API key is rejected"."""
    meaning = _MEANINGS.get(status, "the server failed" if status >= 500 else "the server rejects the request")
    return f"HTTP {status}, {meaning}"
