"""Credentials in texts: in addresses (user, password, keys among the parameters) and in connection strings."""

import re
from collections.abc import Iterator
from urllib.parse import unquote

HIDDEN = "***"
_WORDS = (
    "key|token|secret|password|passwd|passphrase|pwd|pass|signature|sig|auth|authorization|credentials?|jwt|bearer|code"
)
# Parameters such as ?key=, &access_token= and &X-Amz-Signature=, and none such as ?keyword= and ?author=.
_PARAMETER = (
    rf"[?&;](?:[\w.-]*[-_.])?(?:api|access|secret|private|auth|account|client|user|ssl|subscription)?(?:{_WORDS})="
)
_CREDENTIALS = re.compile(
    rf"(?P<before>:/{{2,3}})(?P<user>[^/?#\s\"'<>]*)(?=@)|(?P<name>{_PARAMETER}|\bpassword=)(?P<value>[^&#\s\"'<>]+)",
    re.IGNORECASE,
)


def without_credentials(text: str) -> str:
    """The text with `***` in place of the credentials in its addresses."""
    return _CREDENTIALS.sub(lambda found: f"{found['before'] or found['name']}{HIDDEN}", text)


def credentials_in(text: str) -> Iterator[str]:
    """Passwords and keys in a text's addresses, as they are written and as they are meant.

    A user without a password is none, but where it stands for a key: in an address of the web.
    """
    for found in _CREDENTIALS.finditer(text):
        user, _, password = (found["user"] or "").partition(":")
        web = text[: found.start()].lower().endswith(("http", "https"))
        for one in (found["value"], password, user if web and not password else None):
            if one:
                yield from {one, unquote(one)}
