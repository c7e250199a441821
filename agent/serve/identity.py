"""Who is calling: the tenant behind an Authorization header."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose data a request works on. `key` names the API key it came with; None where none is asked for."""

    tenant: str
    key: str | None


class Unauthenticated(Exception):
    """The request carries no credentials, or none that are known. The message may be shown to the caller."""


Identify = Callable[[str | None], Awaitable[Caller]]
"""Takes the Authorization header as it came, None without one; raises Unauthenticated."""


def everyone(tenant: str) -> Identify:
    """With AUTH=off: whoever calls is the tenant of the settings."""

    async def identify(authorization: str | None) -> Caller:
        return Caller(tenant, None)

    return identify
