"""A decorator that gives the time limit TIMEOUT_S to methods that only use the database."""

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from agent.settings import Settings
from retrievers.core.errors import Unavailable
from retrievers.core.timeouts import wait_within


class HasSettings(Protocol):
    """An object with settings."""

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        ...


Owner = TypeVar("Owner", bound=HasSettings)
Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def with_time_limit(
    method: Callable[Concatenate[Owner, Given], Awaitable[Returned]],
) -> Callable[Concatenate[Owner, Given], Coroutine[Any, Any, Returned]]:
    """Return a method that raises Unavailable if it takes longer than `timeout_s` of its object's settings."""

    @wraps(method)
    async def bounded(self: Owner, /, *args: Given.args, **options: Given.kwargs) -> Returned:
        timeout_s = self.settings.timeout_s
        try:
            return await wait_within(method(self, *args, **options), timeout_s)
        except (TimeoutError, ConnectionAbortedError) as error:
            raise Unavailable("the database", f"no answer within {timeout_s:g} s", retry_after_s=5) from error

    return bounded
