"""Who calls: an Authorization header becomes a tenant and its principals, or nobody."""

import hashlib
import ipaddress
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from agent.errors import BadSetting
from retrievers.core.principals import check_principals
from retrievers.core.types import EVERYTHING, Viewer
from retrievers.postgres.keys import BadKey

if TYPE_CHECKING:
    from agent.service.service import Service
    from agent.settings import Settings

Auth = Literal["off", "keys"]
_MOST_HEADER_CHARACTERS = 1000
_MOST_SEEN = 10_000
_BEARER = re.compile(r"bearer +(\S+)", re.IGNORECASE)
_HOW = 'send the header "Authorization: Bearer KEY"'


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a request is answered.

    Attributes:
        key: the id of the key, which is no secret; None where nobody has to have one, or a token names the caller.
        principals: as whom documents are read, see `retrievers.core.types.Viewer`.
        trusted: whether the caller may say other principals.
        writes: whether documents may be stored and deleted, and jobs be seen: not by who reads as some alone.
    """

    tenant: str
    key: str | None
    principals: tuple[str, ...] = ()
    trusted: bool = False
    writes: bool = True

    @property
    def viewer(self) -> Viewer:
        """On whose behalf documents are read."""
        return Viewer(self.tenant, self.principals)

    def on_behalf_of(self, principals: Iterable[str] | None) -> "Caller":
        """The caller of a request that says its principals; None says nothing.

        Raises:
            Forbidden: the caller may not say them.
            BadRequest: one of them cannot be.
        """
        if principals is None:
            return self
        if not self.trusted:
            raise Forbidden("this key may not say principals: it was not made with `--trusted`")
        said = check_principals(principals, everything=True)
        return replace(self, principals=said, writes=said == EVERYTHING)


class Forbidden(Exception):
    """The caller is known and may not do this."""


class Unauthenticated(Exception):
    """The request names nobody: it needs a key, or another one. The reason never quotes what was sent."""


class NoKey(Unauthenticated):
    """There is no key in the Authorization header, or no such header."""


Identify = Callable[[str | None], Awaitable[Caller]]
"""Tells the caller by the Authorization header; several headers are one, joined by commas.

Raises:
    Unauthenticated: no key, or none that opens anything.
    Unavailable: whether it does cannot be found out now.
"""


class Seen:
    """Whose requests came of late, by their Authorization headers; it opens nothing.

    Like the keys' own cache it holds no key, only digests.
    """

    def __init__(self) -> None:
        self._tenants: OrderedDict[bytes, str] = OrderedDict()

    def add(self, authorization: str, tenant: str) -> None:
        """Remember whose header it is; the empty text is none."""
        digest = _digest(authorization.encode("latin-1", "replace"))
        self._tenants[digest] = tenant
        self._tenants.move_to_end(digest)
        if len(self._tenants) > _MOST_SEEN:
            self._tenants.popitem(last=False)

    def tenant(self, authorization: bytes) -> str | None:
        """Whose it was."""
        return self._tenants.get(_digest(authorization))


def check_exposure(settings: "Settings", host: str) -> Auth:
    """Whether callers on that address need a key: the setting AUTH; by default they do unless it is loopback, and
    there too where tokens name callers.

    Raises:
        BadSetting: AUTH=off where others than this machine can call.
    """
    loopback = _is_loopback(host)
    if settings.auth == "off" and settings.jwt_issuer:
        raise BadSetting("AUTH=off asks nobody for a token: unset AUTH, or JWT_ISSUER", where="auth")
    if settings.auth == "off" and not loopback:
        raise BadSetting(
            f"AUTH=off is for loopback alone, and {host or 'an empty host'} is not: unset AUTH and make a key with "
            "`signalbox keys create --tenant T`, or serve on 127.0.0.1",
            where="auth",
        )
    return settings.auth or ("off" if loopback and not settings.jwt_issuer else "keys")


async def identifier(service: "Service", auth: Auth) -> Identify | None:
    """What tells the callers of a service by their keys; None with AUTH=off.

    Raises:
        BadSetting: callers need a key and there is none.
        Unavailable: the database cannot be asked.
    """
    if auth == "off":
        return None
    if not service.settings.jwt_issuer and not await service.keys.any_live():
        raise BadSetting(
            "callers need a key (AUTH=keys) and there is none yet: make one with `signalbox keys create --tenant T`",
            where="auth",
        )
    return _holder(service)


def everyone(tenant: str) -> Identify:
    """With AUTH=off every caller is that tenant, whatever the header says: clients send one when they need not."""

    async def identify(authorization: str | None) -> Caller:
        return Caller(tenant, None, trusted=True)

    return identify


def _holder(service: "Service") -> Identify:
    """The caller is the tenant of the key, or whom a token names."""
    tokens = None
    if service.settings.jwt_issuer:
        from agent.serve.tokens import Tokens

        tokens = Tokens.of(service.settings)

    async def identify(authorization: str | None) -> Caller:
        if authorization is None or not authorization.strip():
            raise NoKey(f"no key was sent; {_HOW}")
        if tokens is not None and (token := tokens.in_header(authorization)):
            if (holder := tokens.verify(token)) is None:
                raise Unauthenticated("the token is refused")
            return Caller(holder.tenant, None, holder.principals, writes=False)
        sent = _BEARER.fullmatch(authorization.strip(" \t")) if len(authorization) <= _MOST_HEADER_CHARACTERS else None
        if sent is None:
            raise NoKey(f"the Authorization header holds no key; {_HOW}")
        try:
            key = await service.keys.verify(sent[1])
        except BadKey as error:
            raise Unauthenticated(f"the key is refused: {error}") from None
        return Caller(*key, writes=key.trusted or key.principals in ((), EVERYTHING))

    return identify


def _digest(authorization: bytes) -> bytes:
    """One for all ways to write a header, so that nobody fills the memory with one key."""
    scheme, *rest = authorization.split() or [b""]
    return hashlib.sha256(b" ".join([scheme.lower(), *rest])).digest()


def _is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address. A name other than localhost may be any machine's."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
