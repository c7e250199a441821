"""Find and mask credentials in texts: in addresses (user, password, keys in parameters) and in connection strings."""

import re
from collections.abc import Iterator
from urllib.parse import unquote

MASK = "***"
_WORDS = (
    "key|token|secret|password|passwd|passphrase|pwd|pass|signature|sig|auth|authorization|credentials?|jwt|bearer|code"
)
# Matches parameters such as ?key=, &access_token= and &X-Amz-Signature=, but not ?keyword= or ?author=.
_PARAMETER = (
    rf"[?&;](?:[\w.-]*[-_.])?(?:api|access|secret|private|auth|account|client|user|ssl|subscription)?(?:{_WORDS})="
)
_CREDENTIALS = re.compile(
    rf"(?P<before>:/{{2,3}})(?P<user>[^/?#\s\"'<>]*)(?=@)|(?P<name>{_PARAMETER}|\bpassword=)(?P<value>[^&#\s\"'<>]+)",
    re.IGNORECASE,
)


def mask_credentials(text: str) -> str:
    """Replace the credentials in the addresses and connection strings in a text by `***`."""
    return _CREDENTIALS.sub(lambda found: f"{found['before'] or found['name']}{MASK}", text)


def find_credentials(text: str) -> Iterator[str]:
    """Yield the passwords and keys in the addresses in a text, each as written and percent-decoded.

    A user name without a password is yielded only for a web address, where it may be an API key.
    """
    for found in _CREDENTIALS.finditer(text):
        user, _, password = (found["user"] or "").partition(":")
        web = text[: found.start()].lower().endswith(("http", "https"))
        for one in (found["value"], password, user if web and not password else None):
            if one:
                yield from {one, unquote(one)}
