"""One way to repeat a remote call, for every client built on the openai SDK or on litellm."""

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
from retrievers.http.bounds import BadAnswer, bad_answer_in, ending_within

T = TypeVar("T")

_LONGEST_REASON = 200
# openai 3 moved from the one to the other.
_HTTP_CLIENTS = ("httpx", "httpx2", "httpcore", "httpcore2")

# Keys the caller did not name: litellm reads some from the environment, and servers repeat what they were sent.
_SECRETS = re.compile(r"(?i)(?<=bearer )\S+|\bsk-[\w*-]{6,}|(?<=key=)[^&\s\"']+|(?<=://)[^/\s@]+(?=@)")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and for how long one remote call is tried.

    Repeated are connection errors, timeouts and the statuses 408, 409, 429 and 5xx. The waits double
    from the first to the longest, plus a random part of up to the first; `Retry-After` makes them longer.

    Attributes:
        budget_s: seconds for all tries and the waits between them; no wait begins that would pass it.
        attempts: most tries, the first included.
        longest_asked_s: most seconds waited because the server asked for it.
    """

    budget_s: float = 60.0
    attempts: int = 4
    first_wait_s: float = 0.5
    longest_wait_s: float = 8.0
    longest_asked_s: float = 30.0


async def call(
    send: Callable[[], Awaitable[T]],
    *,
    source: str,
    policy: RetryPolicy,
    timeout_s: float,
    secrets: Collection[str] = (),
) -> T:
    """Result of `send`, repeated as `repeat` does, with one kind of error.

    Args:
        send, policy, timeout_s: see `repeat`.
        source: what is called, for the error message.
        secrets: strings that must not occur in an error message.
    Raises:
        Unavailable: no try succeeded, or the failure is not one that passes (401, 403, 400, 404, ...).
    """
    import openai

    tries = 0

    async def counted() -> T:
        nonlocal tries
        tries += 1
        return await send()

    try:
        return await repeat(counted, policy=policy, timeout_s=timeout_s)
    except BadAnswer as error:
        raise Unavailable(source, error.reason) from None
    except (TimeoutError, ConnectionError, openai.OpenAIError) as error:
        reason = _without_secrets(_reason(error, min(timeout_s, policy.budget_s)), secrets)
        reason = f"after {tries} tries: {reason}" if tries > 1 else reason
        unavailable = Unavailable(source, reason[:_LONGEST_REASON], retry_after_s=retry_after_s(error))
        # A log may print the cause as well, and servers like to repeat the key they refuse.
        printed = "".join(traceback.format_exception(error))
        raise unavailable from (error if _without_secrets(printed, secrets) == printed else None)


async def repeat(send: Callable[[], Awaitable[T]], *, policy: RetryPolicy, timeout_s: float) -> T:
    """Result of `send`, tried as the policy says; the SDK beneath must not retry on its own.

    Args:
        send: makes the call once; raises what the openai SDK raises (litellm's errors are of its kinds).
        timeout_s: seconds for one try, body included.
    Raises:
        TimeoutError, ConnectionError, openai.OpenAIError: what the last try raised. Anything else `send`
            raises ends the tries at once.
        BadAnswer: an answer passes a limit; the next one would as well.
    """
    ends_at = time.monotonic() + policy.budget_s

    async def once() -> T:
        # The SDK's timeout is for each read, so a server that drips would never meet it.
        left_s = min(timeout_s, ends_at - time.monotonic())
        async with asyncio.timeout(left_s):
            try:
                with ending_within(left_s):
                    return await send()
            except Exception as error:
                if bad := bad_answer_in(error):
                    raise bad from None
                if not of_the_connection(error):
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


def of_the_connection(error: BaseException) -> bool:
    """Whether it comes from the HTTP client beneath: the SDK lets those through when an answer breaks off."""
    return type(error).__module__.partition(".")[0] in _HTTP_CLIENTS


def _may_pass(error: BaseException) -> bool:
    import openai

    if isinstance(error, TimeoutError | ConnectionError | openai.APIConnectionError):
        return True
    status = status_of(error)
    return isinstance(error, openai.APIError) and status is not None and (status in (408, 409, 429) or status >= 500)


def status_of(error: BaseException) -> int | None:
    """The HTTP status an error carries; None for one without an answer."""
    # litellm puts one on errors that are no APIStatusError.
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
    elif (status := status_of(error)) is not None:
        message = f"HTTP {status}: {message}"
    # litellm appends its stack to some messages.
    return " ".join(message.split("Traceback (most recent call last)")[0].split())


def _without_secrets(text: str, secrets: Collection[str]) -> str:
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return _SECRETS.sub("***", text)


def retry_after_s(error: BaseException) -> float | None:
    """Seconds from the Retry-After header, which holds a number or a date."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    # litellm keeps the headers of the answer elsewhere and leaves those of the response empty.
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
