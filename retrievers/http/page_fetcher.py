"""Fetch web pages as text, from URLs that anybody may have written.

The URL is checked, its host name is resolved once, every address of the host is checked, and the connection goes to one
of these addresses. The same happens for each redirect. So no connection goes to an address that was not checked.
"""

import asyncio
import codecs
import math
import re
import socket
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http.client import responses

import httpcore2

from retrievers.core.errors import BadDocument, BadRequest, Unavailable
from retrievers.core.timeouts import run_in_own_task
from retrievers.http.page_extraction import extract_page
from retrievers.http.public_addresses import address_refusal
from retrievers.http.response_limits import HEAD_LIMIT, BadResponse, BodyReader, ResponseLimits
from retrievers.http.urls import ParsedUrl, parse_url, resolve_redirect
from retrievers.ingest.readers.html import declared_charset
from retrievers.ingest.readers.text_cleaning import Cleaner, decode_text, one_line

MOST_BYTES = 5 * 1024 * 1024
"""Maximum size of a page, before and after decompression."""
MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_GONE = frozenset({404, 410})
_CONNECT_S = 3.0
"""Timeout of the connection to an address, in seconds, unless it is the last one to try."""
_MOST_ADDRESSES = 4
_CACHED_CHARACTERS = 2_000_000
_MOST_TITLE = 300
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_AS_IT_IS = re.compile(r"text/(plain|markdown|x-markdown|xml)|application/([\w.-]+\+)?(json|xml)")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE | re.ASCII)
_XML_ENCODING = re.compile(rb"<\?xml[^>]{0,200}encoding\s*=\s*[\"']([\w.:-]+)")
_HEADERS = (
    ("User-Agent", "signalbox"),
    ("Accept", "text/html, application/xhtml+xml, text/markdown, text/plain, application/json, application/xml;q=0.5"),
    ("Accept-Encoding", "gzip"),
    ("Connection", "close"),
)
_HTTP_ERRORS = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException)

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host name for a port to addresses; raises OSError if there are none."""
Connect = Callable[[str, int], Awaitable[httpcore2.AsyncNetworkStream]]
"""Connects to an address and port; raises OSError or an error of httpcore2 on failure."""


class PageGone(Unavailable):
    """The server says that a page does not exist, permanently."""


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A page as text.

    Attributes:
        url: final URL, after redirects.
        title: "" if the page states none.
        text: the article of an HTML page, with headings and lists as Markdown; other content types as sent.
        published: the publication date that an HTML page states, in ISO form; None if it states none.
        content_type: without parameters ("text/html").
    """

    url: str
    title: str
    text: str
    published: str | None
    content_type: str


@dataclass(frozen=True, slots=True)
class ResolvedUrl:
    """A URL with checked addresses to connect to.

    Attributes:
        addresses: all addresses of the host, each of them public, in the resolver's order.
    """

    target: ParsedUrl
    addresses: tuple[str, ...]


async def _resolve(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    return [str(found[4][0]) for found in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


async def _connect(address: str, port: int) -> httpcore2.AsyncNetworkStream:
    return await httpcore2.AnyIOBackend().connect_tcp(address, port)


class Fetcher:
    """Fetches web pages as text, several at a time, from public addresses only.

    No proxies, netrc or cookies are used, so a request contains no secrets of this machine.

    Args:
        cache_s: how long a page is cached, in seconds.
        resolve: resolves host names. All resulting addresses must be public, or the page is refused.
        connect: connects to an address that was found to be public.
    """

    def __init__(self, *, cache_s: float = 15 * 60.0, resolve: Resolve = _resolve, connect: Connect = _connect) -> None:
        self._cache = _Cache(cache_s)
        self._resolve = resolve
        self._connect = connect

    async def fetch(self, url: str, *, timeout_s: float = 10.0) -> FetchedPage:
        """Return the page at a URL.

        Args:
            timeout_s: time limit for everything together: name resolution, redirects, body, text extraction.
        Raises:
            BadRequest: the URL, an address of its host, or a redirect target is not allowed.
            Unavailable: there is no answer in time, the answer is an error, or it has no text that can be read.
        """
        with _refused("the URL"):
            target = parse_url(url)
        if (known := self._cache.get(target.url)) is not None:
            return known
        try:
            async with asyncio.timeout(timeout_s):
                page = await run_in_own_task(self._page(target))
        except TimeoutError:
            raise Unavailable(target.host, f"no page arrived within {timeout_s:.3g} s") from None
        self._cache.put(target.url, page)
        return page

    async def check(self, url: str, *, timeout_s: float = 10.0) -> ResolvedUrl:
        """Check that a URL and all addresses of its host are allowed, without connecting; return both.

        Raises:
            BadRequest: the URL or an address of its host is not allowed.
            Unavailable: the host name cannot be resolved in time.
        """
        with _refused("the URL"):
            target = parse_url(url)
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._site(target)
            except TimeoutError:
                raise Unavailable(target.host, f"its name was not resolved within {timeout_s:.3g} s") from None

    async def _page(self, target: ParsedUrl) -> FetchedPage:
        whose = "the URL"
        for _ in range(MOST_REDIRECTS + 1):
            with _refused(whose):
                site = await self._site(target)
            answer = await self._get(site)
            if isinstance(answer, _PageBody):
                return await self._read(target, answer)
            whose = f'a redirect to "{one_line(answer, 200)}"'
            with _refused(whose):
                target = resolve_redirect(target, answer)
        raise Unavailable(target.host, f"it redirects more than {MOST_REDIRECTS} times")

    async def _site(self, target: ParsedUrl) -> ResolvedUrl:
        if target.is_address:
            addresses: Sequence[str] = [target.host]
        else:
            try:
                addresses = await self._resolve(target.host, target.port)
            except OSError:
                addresses = []
        if not addresses:
            raise Unavailable(target.host, "its name cannot be resolved")
        for address in addresses:
            if reason := address_refusal(address):
                raise BadRequest(f"{'it' if target.is_address else target.host} is at {address}, which is {reason}")
        return ResolvedUrl(target, tuple(dict.fromkeys(addresses)))

    async def _get(self, site: ResolvedUrl) -> "_PageBody | str":
        """Send a GET request. Return the body of the answer, or the `Location` of a redirect."""
        target = site.target
        url = httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
        headers = [("Host", target.authority), *_HEADERS]
        pinned = _Pinned(site.addresses, self._connect)
        try:
            async with (
                httpcore2.AsyncConnectionPool(ssl_context=self._tls, network_backend=pinned) as pool,
                pool.stream("GET", url, headers=headers, extensions={**HEAD_LIMIT}) as response,
            ):
                return await _received(target.host, response)
        except BadResponse as error:
            raise Unavailable(target.host, error.reason) from None
        except _HTTP_ERRORS as error:
            raise Unavailable(target.host, _described(error)) from None

    async def _read(self, target: ParsedUrl, body: "_PageBody") -> FetchedPage:
        title, published = "", None
        if body.content_type in _HTML:
            charset = body.charset or declared_charset(body.data)
            markup = await asyncio.to_thread(_decoded, body.data, charset)
            try:
                found = await extract_page(markup)
            except BadDocument as error:
                raise Unavailable(target.host, f"its page cannot be read: {one_line(str(error), 200)}") from None
            title, text, published = found.title, found.text, found.published
        else:
            declared = _XML_ENCODING.match(body.data)
            charset = body.charset or (declared[1].decode() if declared else None)
            text = await asyncio.to_thread(_decoded, body.data, charset)
        text = (await asyncio.to_thread(Cleaner().clean_text, text)).strip()
        if not text:
            raise Unavailable(target.host, "its page holds no text")
        return FetchedPage(target.url, one_line(title, _MOST_TITLE), text, published, body.content_type)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Trusted certificate authorities. Loaded once, because that takes a while."""
        return httpcore2.default_ssl_context()


class _Pinned(httpcore2.AsyncNetworkBackend):
    """Connects to one of the checked addresses, whatever host name it is asked for."""

    def __init__(self, addresses: Sequence[str], connect: Connect) -> None:
        self._addresses = addresses[:_MOST_ADDRESSES]
        self._connect = connect

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (the name is httpcore's)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """See `AsyncNetworkBackend.connect_tcp`."""
        *others, last = self._addresses
        for address in others:
            try:
                async with asyncio.timeout(_CONNECT_S):
                    return await self._connect(address, port)
            except (OSError, *_HTTP_ERRORS):
                continue
        try:
            return await self._connect(last, port)
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error


class _Cache:
    """The latest pages by URL, limited by age and by total number of characters."""

    def __init__(self, age_s: float) -> None:
        self._age_s = age_s
        self._pages: OrderedDict[str, tuple[float, FetchedPage]] = OrderedDict()

    def get(self, url: str) -> FetchedPage | None:
        read_at, page = self._pages.get(url, (-math.inf, None))
        return page if time.monotonic() - read_at < self._age_s else None

    def put(self, url: str, page: FetchedPage) -> None:
        self._pages.pop(url, None)
        if len(page.text) > _CACHED_CHARACTERS // 4:
            return  # it would take the space of many others
        self._pages[url] = time.monotonic(), page
        while sum(len(page.text) for _, page in self._pages.values()) > _CACHED_CHARACTERS:
            self._pages.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _PageBody:
    """The decompressed body of an answer. `content_type` is in lower case, `charset` is the header's, None without."""

    data: bytes
    content_type: str
    charset: str | None


@contextmanager
def _refused(whose: str) -> Iterator[None]:
    try:
        yield
    except BadRequest as error:
        raise BadRequest(f"{whose} is refused: {error}", where="url") from None


async def _received(host: str, response: httpcore2.Response) -> _PageBody | str:
    """Return the body of an answer, or the `Location` of a redirect.

    Raises:
        Unavailable: the answer is an error, its body is too long, or its content type is not supported.
    """
    headers = {name.lower(): value.decode("utf-8", "surrogateescape") for name, value in response.headers}
    location = headers.get(b"location")
    if response.status in _REDIRECTS and location:
        return location
    if not 200 <= response.status < 300:
        kind = PageGone if response.status in _GONE else Unavailable
        raise kind(host, f"HTTP {response.status} {responses.get(response.status, '')}".rstrip())
    stated, _, parameters = headers.get(b"content-type", "").partition(";")
    content_type = stated.strip().lower()
    if content_type not in _HTML and not _AS_IT_IS.fullmatch(content_type):
        what = f"the type {one_line(content_type, 60)}" if content_type else "no content type"
        raise Unavailable(host, f"its page has {what}; HTML, text, Markdown, JSON and XML can be read")
    charset = _CHARSET.search(parameters)
    data = await _unpacked(host, response, headers.get(b"content-encoding", "").strip().lower())
    return _PageBody(data, content_type, charset[1] if charset else None)


async def _unpacked(host: str, response: httpcore2.Response, encoding: str) -> bytes:
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise Unavailable(host, f"its page is compressed as {one_line(encoding, 60)}, which the request did not accept")
    meter = BodyReader(ResponseLimits(MOST_BYTES, math.inf), packed=encoding.endswith("gzip"), of="its page")
    try:
        data = b"".join([piece async for piece in meter.read(response.aiter_stream())])
    except BadResponse as error:
        raise Unavailable(host, error.reason) from None
    if not meter.is_whole:
        raise Unavailable(host, "its page is incomplete")
    return data


def _decoded(data: bytes, charset: str | None) -> str:
    """Decode text in the stated character set, or else in one that fits. If none fits, as UTF-8 with replaced bytes."""
    try:
        if charset is not None and codecs.lookup(charset).name == "utf-8":
            return data.decode("utf-8-sig", "replace")
    except LookupError:
        pass
    try:
        return decode_text(data, declared=charset)[0]
    except BadDocument:
        return data.decode("utf-8-sig", "replace")


def _described(error: Exception) -> str:
    # httpcore2 wraps the underlying error and removes it from the chain of causes.
    match error.args:
        case [ssl.SSLCertVerificationError() as cause]:
            return f"its certificate is not valid: {one_line(cause.verify_message, 200)}"
    return f"the connection failed ({type(error).__name__})"
