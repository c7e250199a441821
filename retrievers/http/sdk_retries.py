"""Retry remote calls, in the same way for every client built on the openai SDK or on litellm."""

import asyncio
import math
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    wait_exponential,
    wait_random,
)

from retrievers.core.errors import Unavailable
from retrievers.http.response_limits import BadResponse, deadline_within, find_bad_response

T = TypeVar("T")

_LONGEST_REASON = 200
# openai 3 switched from httpx to httpx2.
_HTTP_CLIENTS = ("httpx", "httpx2", "httpcore", "httpcore2")

# Matches keys that are not among the `secrets` of a call: litellm reads some from the environment, and servers repeat
# the key that they received.
_SECRETS = re.compile(r"(?i)(?<=bearer )\S+|\bsk-[\w*-]{6,}|(?<=key=)[^&\s\"']+|(?<=://)[^/\s@]+(?=@)")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and for how long a remote call is tried.

    Connection errors, timeouts and the statuses 408, 409, 429 and 5xx are retried. The backoff doubles from
    `first_wait_s` up to `longest_wait_s`, plus a random part of up to `first_wait_s`. `Retry-After` can extend it.

    Attributes:
        budget_s: time for all attempts and the waits between, in seconds. A wait that would exceed it is not started.
        attempts: maximum number of attempts, including the first.
        longest_asked_s: maximum wait that the server can request by `Retry-After`, in seconds.
    """

    budget_s: float = 60.0
    attempts: int = 4
    first_wait_s: float = 0.5
    longest_wait_s: float = 8.0
    longest_asked_s: float = 30.0


async def call_with_retries(
    send: Callable[[], Awaitable[T]],
    *,
    source: str,
    policy: RetryPolicy,
    timeout_s: float,
    secrets: Collection[str] = (),
) -> T:
    """Return the result of `send`, retried as in `repeat_call`. Every failure becomes `Unavailable`.

    Args:
        send, policy, timeout_s: see `repeat_call`.
        source: the name of the called service, for the error message.
        secrets: strings that must not occur in an error message.
    Raises:
        Unavailable: no attempt succeeded, or the error is permanent (401, 403, 400, 404, ...).
    """
    import openai

    tries = 0

    async def counted() -> T:
        nonlocal tries
        tries += 1
        return await send()

    try:
        return await repeat_call(counted, policy=policy, timeout_s=timeout_s)
    except BadResponse as error:
        raise Unavailable(source, error.reason) from None
    except (TimeoutError, ConnectionError, openai.OpenAIError) as error:
        reason = _without_secrets(_reason(error, min(timeout_s, policy.budget_s)), secrets)
        reason = f"after {tries} tries: {reason}" if tries > 1 else reason
        unavailable = Unavailable(source, reason[:_LONGEST_REASON], retry_after_s=retry_after_s(error))
        # A log may print the cause as well, and servers often repeat the key that they refuse.
        printed = "".join(traceback.format_exception(error))
        raise unavailable from (error if _without_secrets(printed, secrets) == printed else None)


async def repeat_call(send: Callable[[], Awaitable[T]], *, policy: RetryPolicy, timeout_s: float) -> T:
    """Return the result of `send`, retried as the policy says. The SDK must not retry on its own.

    Args:
        send: makes one call; raises the errors of the openai SDK (litellm's errors are subclasses of them).
        timeout_s: timeout of one attempt including the body, in seconds.
    Raises:
        TimeoutError, ConnectionError, openai.OpenAIError: the error of the last attempt. Any other error of `send` is
            raised at once.
        BadAnswer: the answer exceeds a limit. This is not retried, because another answer would exceed it too.
    """
    ends_at = time.monotonic() + policy.budget_s

    async def once() -> T:
        # The SDK's timeout applies to each read, so a server that sends byte by byte would never exceed it.
        left_s = min(timeout_s, ends_at - time.monotonic())
        async with asyncio.timeout(left_s):
            try:
                with deadline_within(left_s):
                    return await send()
            except Exception as error:
                if bad := find_bad_response(error):
                    raise bad from None
                if not is_connection_error(error):
                    raise
                raise (TimeoutError if "Timeout" in type(error).__name__ else ConnectionError)(str(error)) from error

    backoff = wait_exponential(policy.first_wait_s) + wait_random(0, policy.first_wait_s)

    def wait_s(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked_s = (retry_after_s(error) if error else None) or 0.0
        return max(min(backoff(state), policy.longest_wait_s), min(asked_s, policy.longest_asked_s))

    retrying = AsyncRetrying(
        stop=stop_after_attempt(policy.attempts) | stop_before_delay(policy.budget_s),
        wait=wait_s,
        retry=retry_if_exception(_may_pass),
        reraise=True,
    )
    return await retrying(once)


def is_connection_error(error: BaseException) -> bool:
    """Return whether an error was raised by the HTTP client library: the SDK passes it on if an answer breaks off."""
    return type(error).__module__.partition(".")[0] in _HTTP_CLIENTS


def _may_pass(error: BaseException) -> bool:
    import openai

    if isinstance(error, TimeoutError | ConnectionError | openai.APIConnectionError):
        return True
    status = http_status(error)
    return isinstance(error, openai.APIError) and status is not None and (status in (408, 409, 429) or status >= 500)


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status of an error; None if there was no answer."""
    # litellm sets it on errors that are not APIStatusError.
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _reason(error: Exception, timeout_s: float) -> str:
    import openai

    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return f"no answer within {timeout_s:g} s"
    body = getattr(error, "body", None)
    message = str((isinstance(body, dict) and body.get("message")) or error)
    if isinstance(error, ConnectionError | openai.APIConnectionError):
        message = f"the connection failed: {error.__cause__ or message}"
    elif (status := http_status(error)) is not None:
        message = f"HTTP {status}: {message}"
    # litellm appends its stack trace to some messages.
    return " ".join(message.split("Traceback (most recent call last)")[0].split())


def _without_secrets(text: str, secrets: Collection[str]) -> str:
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return _SECRETS.sub("***", text)


def retry_after_s(error: BaseException) -> float | None:
    """Return the seconds in the Retry-After header, which contains a number or a date. None without a valid header."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    # litellm stores the headers in another attribute and leaves those of the response empty.
    headers = headers or getattr(error, "litellm_response_headers", None) or {}
    value = headers.get("retry-after") or ""
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - datetime.now(UTC).timestamp()
    return max(seconds, 0.0) if math.isfinite(seconds) else None
