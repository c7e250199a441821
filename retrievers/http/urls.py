"""Parse URLs of pages strictly, and refuse those that are not allowed before their host names are resolved."""

import re
import unicodedata
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote, urljoin

import idna

from retrievers.core.errors import BadRequest
from retrievers.ingest.readers.text_cleaning import one_line

MOST_CHARACTERS = 2_000
"""Maximum length of a URL."""
_PORTS = {"http": 80, "https": 443}
_MOST_HOST, _MOST_LABEL = 253, 63
# RFC 3986, appendix B, with mandatory scheme and authority.
_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?")
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]*)(?::(.*))?")
_IPV6 = re.compile(r"\[([0-9A-Fa-f:.]+)\]")
_LABEL = "[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?"
_HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Characters that have no other meaning in a path or query.
_SAFE = "/%:@!$&'()*+,;=~-._?[]|"
_NOT_PUBLIC = frozenset(
    "corp home home.arpa internal intranet invalid lan local localdomain localhost onion private svc".split()
)
"""Suffixes of names that exist only inside a network (RFC 6761, 6762, 8375, ICANN's .internal, common use)."""


@dataclass(frozen=True, slots=True)
class ParsedUrl:
    """A parsed URL.

    Attributes:
        host: a name in lower case and ASCII, or an IP address; IPv6 without brackets.
        path: path with query; ASCII, begins with "/".
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Host and non-default port, as in the URL and in the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL in normal form, without a fragment."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def is_address(self) -> bool:
        """Whether the host is an IP address, so that no name needs resolving."""
        return ":" in self.host or _NUMBER.fullmatch(self.host.rpartition(".")[2]) is not None


def parse_url(url: str) -> ParsedUrl:
    """Parse a URL.

    Raises:
        BadRequest: the text is not a plain http or https URL of a host that may be public. The message says why.
    """
    _check_characters(url)
    parts = _PARTS.fullmatch(url)
    if parts is None:
        raise BadRequest("it is not of the form https://host/path")
    scheme = parts[1].lower()
    if scheme not in _PORTS:
        raise BadRequest(f'the scheme "{_shown(scheme)}" is not allowed; use http or https')
    if "@" in parts[2]:
        raise BadRequest("it contains a user or password, which is not allowed")
    authority = _AUTHORITY.fullmatch(parts[2])
    if authority is None:
        raise BadRequest(f'"{_shown(parts[2])}" is not a host with a port')
    path = quote((parts[3] or "/") + (parts[4] or ""), safe=_SAFE)
    return ParsedUrl(scheme, _host(authority[1]), _port(authority[2], scheme), path)


def resolve_redirect(base: ParsedUrl, location: str) -> ParsedUrl:
    """Return the target of a redirect.

    Args:
        location: value of the `Location` header, absolute or relative to `base`.
    Raises:
        BadRequest: as in `parse_url`, or the redirect leads from https to http, where anybody on the network could
            change the answer.
    """
    _check_characters(location)
    if location.startswith("//"):
        location = f"{base.scheme}:{location}"
    # The library takes "http:///a" for a path on the redirecting host, browsers for the host "a".
    target = parse_url(location if _ABSOLUTE.match(location) else urljoin(base.url, location))
    if base.scheme == "https" and target.scheme == "http":
        raise BadRequest("it leads from https to http")
    return target


def _check_characters(url: str) -> None:
    if len(url) > MOST_CHARACTERS:
        raise BadRequest(f"it is longer than {MOST_CHARACTERS:,} characters")
    # Each parser treats control, separator and invisible characters in its own way: it drops them or splits there.
    odd = next((one for one in url if unicodedata.category(one)[0] in "CZ" or one == "\\"), None)
    if odd is not None:
        raise BadRequest(f"the character U+{ord(odd):04X} is not allowed: encode it as %XX")


def _host(written: str) -> str:
    if written.startswith("["):
        return _ipv6(written)
    try:
        # Like browsers, replace characters that look like a letter, digit or dot by it.
        host = written.lower() if written.isascii() else idna.encode(written, uts46=True).decode()
    except (idna.IDNAError, ValueError):
        raise BadRequest(f'"{_shown(written)}" is not a host name') from None
    labels = host.split(".")
    if len(host) > _MOST_HOST or any(len(label) > _MOST_LABEL for label in labels):
        raise BadRequest("its host name is too long")
    if not _HOST_NAME.fullmatch(host):
        raise BadRequest(f'"{_shown(written)}" is not a host name: letters, digits, "-" and single dots between them')
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(host, written)
    ends = (".".join(labels[first:]) for first in range(len(labels)))
    if len(labels) == 1 or any(end in _NOT_PUBLIC for end in ends):
        raise BadRequest(f'"{_shown(written)}" is not a public host name')
    return host


def _ipv4(host: str, written: str) -> str:
    """Return the host, an IPv4 address. Only four decimal numbers are allowed, not 127.1 or 0x7f.1 as in resolvers."""
    try:
        if host == written:
            return str(IPv4Address(host))
    except ValueError:
        pass
    raise BadRequest(f'"{_shown(written)}" is not an IPv4 address such as 93.184.215.14')


def _ipv6(written: str) -> str:
    inner = _IPV6.fullmatch(written)
    try:
        if inner is not None:
            return str(IPv6Address(inner[1]))
    except ValueError:
        pass
    raise BadRequest(f'"{_shown(written)}" is not an IPv6 address; zones are not allowed')


def _port(written: str | None, scheme: str) -> int:
    if not written:
        return _PORTS[scheme]
    allowed = {str(port): port for port in _PORTS.values()}
    if written not in allowed:
        raise BadRequest(f'the port "{_shown(written)}" is not allowed; use 80 or 443')
    return allowed[written]


def _shown(text: str) -> str:
    return one_line(text, 100)
