"""Tokens (JWT) that identify callers: signed by an issuer whose public keys are in a JWKS file.

The sender of an invalid token is rejected without a reason.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jwt

from agent.errors import BadSetting
from retrievers.core.errors import BadRequest
from retrievers.core.principals import check_principals, check_tenant
from retrievers.core.types import Viewer

if TYPE_CHECKING:
    from agent.settings import Settings

_MOST_CHARACTERS = 16_000
_BEARER = re.compile(r"bearer +([A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*)", re.IGNORECASE)
# Symmetric keys do not belong in a file of public keys, and would let a token choose its algorithm.
_PUBLIC_KEY_TYPES = ("RSA", "EC", "OKP")


class JwtVerifier:
    """Verifies the tokens of one issuer.

    Args:
        keys: the JWKS file; read again when it changes, because issuers rotate their keys.
        principals_claim: name of the claim with the principals, a list or one text.
        tenant: the callers' tenant if `tenant_claim` is None.
        tenant_claim: name of the claim with the tenant.
    Raises:
        BadSetting: the file cannot be read or contains no keys.
    """

    def __init__(
        self, *, issuer: str, audience: str, keys: Path, principals_claim: str, tenant: str, tenant_claim: str | None
    ) -> None:
        self._issuer, self._audience, self._path = issuer, audience, keys
        self._principals_claim, self._tenant, self._tenant_claim = principals_claim, tenant, tenant_claim
        self._written_ns, self._keys = 0, dict[str | None, jwt.PyJWK]()
        try:
            self._reload_keys()
        except (OSError, ValueError) as error:
            raise BadSetting(f"the keys of JWT_KEYS cannot be read: {error}", where="jwt_keys") from error

    @classmethod
    def from_settings(cls, settings: "Settings") -> "JwtVerifier | None":
        """Return the verifier configured by the settings; None if tokens are not used."""
        if settings.jwt_issuer is None or settings.jwt_audience is None or settings.jwt_keys is None:
            return None
        return cls(
            issuer=settings.jwt_issuer,
            audience=settings.jwt_audience,
            keys=settings.jwt_keys,
            principals_claim=settings.jwt_claim,
            tenant=settings.tenant,
            tenant_claim=settings.jwt_tenant_claim,
        )

    def bearer_token(self, authorization: str) -> str | None:
        """Return the token in an Authorization header; None if the header holds something else."""
        found = _BEARER.fullmatch(authorization.strip()) if len(authorization) <= _MOST_CHARACTERS else None
        return found[1] if found else None

    def verify(self, token: str) -> Viewer | None:
        """Return the holder of a token; None if the token is invalid.

        A token is invalid if its key, issuer, audience or signature is wrong, if it has expired, or if the claim with
        the principals or the tenant is missing or malformed.
        """
        try:
            self._reload_keys()
            key = self._keys[jwt.get_unverified_header(token).get("kid")]
            claims = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                issuer=self._issuer,
                audience=self._audience,
                options={"require": ["exp", "iss", "aud"]},
            )
            said = claims[self._principals_claim]
            tenant = claims[self._tenant_claim] if self._tenant_claim else self._tenant
            principals = [said] if isinstance(said, str) else said
            if not isinstance(tenant, str) or not isinstance(principals, list):
                return None
            check_tenant(tenant)
            return Viewer(tenant, check_principals(map(_text, principals)))
        except (jwt.PyJWTError, BadRequest, KeyError, OSError, ValueError, TypeError):
            return None

    def _reload_keys(self) -> None:
        """Read the keys if the file has changed."""
        written_ns = self._path.stat().st_mtime_ns
        if written_ns == self._written_ns:
            return
        given = json.loads(self._path.read_text(encoding="utf-8"))
        keys: dict[str | None, jwt.PyJWK] = {}
        for one in _parse_jwks(given):
            if one.get("use", "sig") != "sig":
                continue
            if one.get("kty") not in _PUBLIC_KEY_TYPES:
                raise ValueError("a key in it is not a public key (RSA, EC or OKP)")
            try:
                keys[one.get("kid")] = jwt.PyJWK(one)
            except jwt.PyJWTError as error:
                raise ValueError(str(error)) from error
        if not keys:
            raise ValueError("it contains no key")
        if len(keys) == 1:
            keys.setdefault(None, next(iter(keys.values())))  # a token need not name its key if there is only one
        self._keys, self._written_ns = keys, written_ns


def _parse_jwks(given: Any) -> list[dict[str, Any]]:
    keys = given.get("keys") if isinstance(given, dict) else None
    if not isinstance(keys, list) or not all(isinstance(one, dict) for one in keys):
        raise ValueError('it is not a JWKS: {"keys": [...]}')
    return keys


def _text(principal: Any) -> str:
    if not isinstance(principal, str):
        raise TypeError
    return principal
