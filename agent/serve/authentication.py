"""Authenticate the caller: check the key or token of a request and return its tenant, principals and rights."""

import hashlib
import ipaddress
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from agent.errors import BadSetting
from retrievers.core.principals import check_principals
from retrievers.core.types import ALL_PRINCIPALS, Viewer
from retrievers.postgres.accounts.api_keys import InvalidKey

if TYPE_CHECKING:
    from agent.service.service import Service
    from agent.settings import Settings

AuthMode = Literal["off", "keys"]
PRINCIPALS_HEADER = "X-Signalbox-Principals"
"""Header with the principals on whose behalf a trusted caller reads, separated by commas."""
_MOST_HEADER_CHARACTERS = 1000
_MOST_REMEMBERED = 10_000
_BEARER = re.compile(r"bearer +(\S+)", re.IGNORECASE)
_KEY_HINT = 'send the header "Authorization: Bearer KEY"'


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request.

    Attributes:
        key_id: the id of the API key, which is not secret; None with AUTH=off or a token.
        principals: users and groups to read as, see `retrievers.core.types.Viewer`.
        trusted: whether the caller's requests may state the principals to read as.
        can_write: whether the caller may store and delete documents and see jobs. Callers limited to certain principals
            may not.
        principals_stated: whether the request has already stated its principals, usually in its header. Its body, or a
            model's call of a tool, may then state only a subset of them.
    """

    tenant: str
    key_id: str | None
    principals: tuple[str, ...] = ()
    trusted: bool = False
    can_write: bool = True
    principals_stated: bool = False

    @property
    def viewer(self) -> Viewer:
        """The tenant and principals used to read documents."""
        return Viewer(self.tenant, self.principals)

    def on_behalf_of(self, principals: Iterable[str] | None) -> "Caller":
        """Return the caller with the principals of a request; unchanged if `principals` is None.

        Raises:
            Forbidden: the caller is not trusted, or `principals` are no subset of those stated before.
            BadRequest: a principal is malformed.
        """
        if principals is None:
            return self
        if not self.trusted:
            raise Forbidden("this caller may not state principals; a key created with `--trusted` may")
        said = check_principals(principals, everything=True)
        if self.principals_stated and not self.viewer.sees_all_of(said):
            raise Forbidden(f"the request states principals that its header {PRINCIPALS_HEADER} does not")
        return replace(self, principals=said, can_write=said == ALL_PRINCIPALS, principals_stated=True)


class Forbidden(Exception):
    """The caller is known but may not do this."""


class Unauthenticated(Exception):
    """The request has no valid key or token. The reason never quotes what was sent."""


class MissingKey(Unauthenticated):
    """The Authorization header is missing or holds no key."""


Authenticator = Callable[[str | None], Awaitable[Caller]]
"""Maps the Authorization header to a caller; several headers are joined by commas.

Raises:
    Unauthenticated: no key, or an invalid key.
    Unavailable: the key cannot be checked now.
"""


class RecentTenants:
    """The tenants of recent Authorization headers, by which `EarlyRejection` finds a caller's queue.

    It authorises nothing. It stores digests of the headers, not the keys.
    """

    def __init__(self) -> None:
        self._tenants: OrderedDict[bytes, str] = OrderedDict()

    def add(self, authorization: str, tenant: str) -> None:
        """Remember the tenant of a header; the empty text stands for no header."""
        digest = _digest(authorization.encode("latin-1", "replace"))
        self._tenants[digest] = tenant
        self._tenants.move_to_end(digest)
        if len(self._tenants) > _MOST_REMEMBERED:
            self._tenants.popitem(last=False)

    def tenant(self, authorization: bytes) -> str | None:
        """Return the tenant of a recent header; None if unknown."""
        return self._tenants.get(_digest(authorization))


def resolve_auth_mode(settings: "Settings", host: str) -> AuthMode:
    """Return "keys" if callers need a key on a server that listens on `host`, otherwise "off".

    The setting AUTH decides. By default no key is needed on a loopback address, unless tokens identify the callers.

    Raises:
        BadSetting: AUTH=off on an address that other machines can reach, or together with tokens.
    """
    loopback = _is_loopback(host)
    if settings.auth == "off" and settings.jwt_issuer:
        raise BadSetting("AUTH=off checks no tokens: unset AUTH or JWT_ISSUER", where="auth")
    if settings.auth == "off" and not loopback:
        raise BadSetting(
            f"AUTH=off is allowed only on loopback, and {host or 'an empty host'} is not: unset AUTH and create "
            "a key with `signalbox keys create --tenant T`, or serve on 127.0.0.1",
            where="auth",
        )
    return settings.auth or ("off" if loopback and not settings.jwt_issuer else "keys")


async def open_authenticator(service: "Service", auth: AuthMode) -> Authenticator | None:
    """Return the function that identifies callers by their keys; None with AUTH=off.

    Raises:
        BadSetting: callers need a key and none exists.
        Unavailable: the database is unavailable.
    """
    if auth == "off":
        return None
    if not service.settings.jwt_issuer and not await service.keys.has_live_key():
        raise BadSetting(
            "callers need a key (AUTH=keys), but none exists: create one with `signalbox keys create --tenant T`",
            where="auth",
        )
    return _key_authenticator(service)


def anonymous_authenticator(tenant: str) -> Authenticator:
    """Return a function that identifies every caller as that tenant (AUTH=off), whatever header the client sends."""

    async def authenticate(authorization: str | None) -> Caller:
        return Caller(tenant, None, trusted=True)

    return authenticate


def _key_authenticator(service: "Service") -> Authenticator:
    """Return a function that identifies a caller by its API key, or by a token (JWT) if the settings allow."""
    jwt_verifier = None
    if service.settings.jwt_issuer:
        from agent.serve.jwt_verifier import JwtVerifier

        jwt_verifier = JwtVerifier.from_settings(service.settings)

    async def authenticate(authorization: str | None) -> Caller:
        if authorization is None or not authorization.strip():
            raise MissingKey(f"no key was sent; {_KEY_HINT}")
        if jwt_verifier is not None and (token := jwt_verifier.bearer_token(authorization)):
            if (holder := jwt_verifier.verify(token)) is None:
                raise Unauthenticated("the token is not valid")
            return Caller(holder.tenant, None, holder.principals, can_write=False)
        sent = _BEARER.fullmatch(authorization.strip(" \t")) if len(authorization) <= _MOST_HEADER_CHARACTERS else None
        if sent is None:
            raise MissingKey(f"the Authorization header contains no key; {_KEY_HINT}")
        try:
            key = await service.keys.verify(sent[1])
        except InvalidKey as error:
            raise Unauthenticated(f"the key is refused: {error}") from None
        return Caller(*key, can_write=key.trusted or key.principals in ((), ALL_PRINCIPALS))

    return authenticate


def _digest(authorization: bytes) -> bytes:
    """Return a digest of the header that ignores the case of its scheme and its spacing.

    Otherwise variants of one key's header could fill the memory.
    """
    scheme, *rest = authorization.split() or [b""]
    return hashlib.sha256(b" ".join([scheme.lower(), *rest])).digest()


def _is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address. Names are not resolved: only `localhost` counts."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
