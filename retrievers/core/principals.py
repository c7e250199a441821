"""Names of tenants and of their principals, which are users and groups such as "user:7" and "group:legal"."""

import re
from collections.abc import Iterable

from retrievers.core.errors import BadRequest
from retrievers.core.types import ALL_PRINCIPALS

MAX_TENANT_CHARACTERS = 128
MOST_PRINCIPALS = 500
# Lists and headers separate principals by commas, a signed scope by newlines.
_PRINCIPAL = re.compile(r"[^\s,;*]{1,128}")


def check_tenant(tenant: str) -> None:
    """Check the name of a tenant.

    Raises:
        BadRequest: the name is empty, longer than 128 characters or not printable.
    """
    if not tenant or len(tenant) > MAX_TENANT_CHARACTERS or not tenant.isprintable():
        raise BadRequest("a tenant is a name of 1 to 128 printable characters", where="tenant")


def check_principals(said: Iterable[str], *, everything: bool = False) -> tuple[str, ...]:
    """Return the principals sorted and without duplicates.

    Args:
        said: the principals as the caller gave them.
        everything: also accept "*" as the only principal; it stands for all principals.
    Raises:
        BadRequest: there are too many, or one is invalid. The message does not repeat the input.
    """
    principals = tuple(sorted(set(said)))
    if everything and principals == ALL_PRINCIPALS:
        return principals
    if len(principals) > MOST_PRINCIPALS:
        raise BadRequest(f"there are more than {MOST_PRINCIPALS} principals", where="principals")
    if not all(_PRINCIPAL.fullmatch(one) and one.isprintable() for one in principals):
        raise BadRequest(
            'a principal has 1 to 128 printable characters and no blank, comma, semicolon or asterisk: "user:7"',
            where="principals",
        )
    return principals
