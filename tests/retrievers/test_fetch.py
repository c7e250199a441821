"""The guarded fetcher: what it refuses, where it connects to, and how it ends.

"public.example" is at a public address here, and connections to that arrive at a server on loopback; whatever the
fetcher would connect to elsewhere is noted. The guard itself is the real one in every test.
"""

import asyncio
import gzip
import re
import runpy
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import httpcore2
import pytest

from retrievers.core.errors import BadRequest, Unavailable
from retrievers.http.page_extraction import extract_in_process
from retrievers.http.page_fetcher import MOST_BYTES, Fetcher

FORBIDDEN: list[str] = runpy.run_path(str(Path(__file__).with_name("data_urls.py")))["FORBIDDEN"]
PUBLIC = "93.184.215.14"
ARTICLE = """<!doctype html><html><head><title>Oiling the bearing</title>
<meta property="article:published_time" content="2024-03-01T10:00:00Z"></head><body>
<nav><a href="/">Home</a> <a href="/about">About us</a></nav>
<article><h1>Oiling the bearing</h1><p>Every winter the main bearing is oiled, as the manual says it should be.</p>
<h2>Steps</h2><ul><li>Open the lid and clean its seal.</li><li>Pour two litres of oil.</li></ul></article>
<footer>All rights reserved.</footer></body></html>"""

Write = Callable[[asyncio.StreamWriter], Awaitable[None]]
Answer = bytes | Write


def answer(body: bytes | str = b"", *, status: str = "200 OK", **headers: str) -> bytes:
    """An answer as bytes: headers by name with "_" for "-"; HTML unless another Content_Type is given."""
    data = body.encode() if isinstance(body, str) else body
    sent = {"Content_Type": "text/html; charset=utf-8", "Content_Length": str(len(data))} | headers
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in sent.items() if value)]
    return "\r\n".join([*lines, "", ""]).encode() + data


def redirect(location: str, status: int = 302) -> bytes:
    return answer(status=f"{status} Elsewhere", Location=location)


class Internet:
    """One server, and names and addresses that lead to it.

    Attributes:
        names: the addresses of a name, one list for each time it is asked; the last one stays.
        answers: by path.
        asked: the requests that came in, head only.
        looked_up: the names that were asked for.
        connected: the addresses and ports that the fetcher connected to.
    """

    def __init__(self) -> None:
        self.names: dict[str, list[list[str]]] = {"public.example": [[PUBLIC]]}
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.looked_up: list[str] = []
        self.connected: list[tuple[str, int]] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(head)
            found = self.answers.get(head.split(" ")[1], answer(status="404 Not Found"))
            if isinstance(found, bytes):
                writer.write(found)
                await writer.drain()
            else:
                await found(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def resolve(self, host: str, port: int) -> list[str]:
        self.looked_up.append(host)
        found = self.names.get(host)
        if not found:
            raise socket.gaierror("no such name")
        return found.pop(0) if len(found) > 1 else found[0]

    async def connect(self, address: str, port: int) -> httpcore2.AsyncNetworkStream:
        self.connected.append((address, port))
        if address != PUBLIC:
            raise OSError(f"nothing is at {address}")
        return await httpcore2.AnyIOBackend().connect_tcp("127.0.0.1", self.port)


@pytest.fixture
async def internet() -> AsyncIterator[Internet]:
    internet = Internet()
    async with await asyncio.start_server(internet.serve, "127.0.0.1", 0) as server:
        internet.port = server.sockets[0].getsockname()[1]
        yield internet


@pytest.fixture
def fetcher(internet: Internet) -> Fetcher:
    return Fetcher(resolve=internet.resolve, connect=internet.connect)


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What any socket of this process connects to. Every name is at 127.0.0.1: the worst a resolver can say."""
    seen: list[object] = []

    def connect(self: socket.socket, address: object) -> None:
        seen.append(address)
        raise OSError("refused by the test")

    def getaddrinfo(host: str, port: int, **options: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "connect_ex", connect)
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return seen


def test_the_list_is_long_enough():
    assert len(set(FORBIDDEN)) == len(FORBIDDEN) >= 200


@pytest.mark.parametrize("url", FORBIDDEN, ids=ascii)
async def test_a_forbidden_url_is_refused_without_a_connection(url: str, connects: list[object]):
    fetcher = Fetcher()
    with pytest.raises(BadRequest, match=r"^the URL is refused: ") as checked:
        await fetcher.check(url)
    with pytest.raises(BadRequest, match=r"^the URL is refused: ") as fetched:
        await fetcher.fetch(url)
    assert str(checked.value) == str(fetched.value)
    assert fetched.value.where == "url"
    assert str(fetched.value).isprintable()
    assert connects == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_a_forbidden_url_is_not_followed(status: int, internet: Internet, fetcher: Fetcher):
    # What names a host or a scheme, and can stand in a header; without its scheme as well.
    absolute = [url for url in FORBIDDEN if re.match(r"[a-z+]+:|//", url, re.IGNORECASE) and sendable(url)]
    locations = [*absolute, *(url.removeprefix("http:") for url in absolute if url.startswith("http://"))]
    assert len(locations) >= 400
    for number, location in enumerate(locations):
        internet.answers[f"/{number}"] = redirect(location, status)
        internet.connected.clear()
        with pytest.raises(BadRequest, match=r"^a redirect to "):
            await fetcher.fetch(f"http://public.example/{number}")
        assert internet.connected == [(PUBLIC, 80)], location


def sendable(location: str) -> bool:
    return location == location.strip() and not set("\0\r\n\x7f\ud800") & set(location)


@pytest.mark.parametrize("location", ["http://public.example/\0", "/a\x01b", "http://127.0.0.1/\x7f"])
async def test_control_characters_in_a_redirect_end_it(location: str, internet: Internet, fetcher: Fetcher):
    internet.answers["/"] = redirect(location)
    with pytest.raises((BadRequest, Unavailable)):
        await fetcher.fetch("http://public.example/")
    assert internet.connected == [(PUBLIC, 80)]


async def test_a_meta_refresh_is_not_followed(internet: Internet, fetcher: Fetcher):
    head = '<head><meta http-equiv="refresh" content="0; url=http://127.0.0.1/"></head>'
    internet.answers["/"] = answer(ARTICLE.replace("<head>", head))
    page = await fetcher.fetch("http://public.example/")
    assert page.url == "http://public.example/"
    assert internet.connected == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fe80::1%eth0", "64:ff9b::7f00:1"]
)
async def test_a_name_is_refused_for_any_of_its_addresses(address: str, internet: Internet, fetcher: Fetcher):
    for found in ([address], [PUBLIC, address], [address, PUBLIC]):
        internet.names["mixed.example"] = [found]
        with pytest.raises(BadRequest, match=f"mixed.example is at {address}, which is "):
            await fetcher.fetch("http://mixed.example/")
        with pytest.raises(BadRequest, match=r"^the URL is refused: "):
            await fetcher.check("http://mixed.example/")
    assert internet.connected == []


async def test_a_name_that_moves_inside_after_the_check_is_still_fetched_from_where_it_was(
    internet: Internet, fetcher: Fetcher
):
    internet.names["rebinding.example"] = [[PUBLIC], ["127.0.0.1"]]
    internet.answers["/"] = answer("hello", Content_Type="text/plain")
    assert (await fetcher.fetch("http://rebinding.example/")).text == "hello"
    assert internet.looked_up == ["rebinding.example"]
    assert internet.connected == [(PUBLIC, 80)]


async def test_a_name_is_judged_again_at_every_redirect(internet: Internet, fetcher: Fetcher):
    internet.names["rebinding.example"] = [[PUBLIC], ["127.0.0.1"]]
    internet.answers["/"] = redirect("/again")
    with pytest.raises(BadRequest, match=r'^a redirect to "/again" is refused: rebinding.example is at 127.0.0.1'):
        await fetcher.fetch("http://rebinding.example/")
    assert internet.connected == [(PUBLIC, 80)]


async def test_check_does_not_connect(internet: Internet, fetcher: Fetcher):
    internet.names["two.example"] = [["2606:4700::1111", PUBLIC, PUBLIC]]
    site = await fetcher.check("HTTPS://Two.Example:443/a b".replace(" ", "%20") + "?q=ü#part")
    assert site.target.url == "https://two.example/a%20b?q=%C3%BC"
    assert site.addresses == ("2606:4700::1111", PUBLIC)
    assert internet.connected == []


@pytest.mark.parametrize(
    ("url", "host", "path"),
    [
        ("http://public.example", "public.example", "/"),
        ("http://public.example?q=1", "public.example", "/?q=1"),
        ("http://public.example:/#top", "public.example", "/"),
        ("https://public.example:80/", "public.example:80", "/"),
        ("http://PUBLIC.example/Ä/%7e?a=[1]&b=http://127.0.0.1/", "public.example", "/%C3%84/%7e?a=[1]&b=http://127.0.0.1/"),
        ("http://straße.example/", "xn--strae-oqa.example", "/"),
        ("http://例子。中国/页", "xn--fsqu00a.xn--fiqs8s", "/%E9%A1%B5"),
        ("http://my_site.public.example/", "my_site.public.example", "/"),
        (f"http://{PUBLIC}/", PUBLIC, "/"),
        ("http://[2606:4700:0::1111]/", "[2606:4700::1111]", "/"),
        ("http://[::ffff:8.8.8.8]/", "[::ffff:808:808]", "/"),
    ],
)  # fmt: skip
async def test_ordinary_urls_are_allowed(url: str, host: str, path: str):
    async def resolve(name: str, port: int) -> list[str]:
        return [PUBLIC]

    site = await Fetcher(resolve=resolve).check(url)
    assert (site.target.authority, site.target.path) == (host, path)


# -- what is fetched -------------------------------------------------------------------------------------------------


async def test_a_page_is_given_as_its_article_with_title_and_date(internet: Internet, fetcher: Fetcher):
    internet.answers["/winter?a=1"] = answer(ARTICLE)
    page = await fetcher.fetch("http://public.example/winter?a=1#steps")
    assert (page.url, page.title) == ("http://public.example/winter?a=1", "Oiling the bearing")
    assert (page.published, page.content_type) == ("2024-03-01", "text/html")
    assert page.text.splitlines() == [
        *("# Oiling the bearing", ""),
        *("Every winter the main bearing is oiled, as the manual says it should be.", ""),
        *("## Steps", "", "- Open the lid and clean its seal.", "- Pour two litres of oil."),
    ]


@pytest.mark.parametrize(
    ("stated", "day"),
    [
        ('<meta name="date" content="2024-03-01">', "2024-03-01"),
        ("<meta name=DC.date.issued content=2024-03-01>", "2024-03-01"),
        ('<meta name="citation_publication_date" content="2024-03-01">', "2024-03-01"),
        ('<script>{"dateModified": "2025-01-01", "datePublished" : "2024-03-01T08Z"}</script>', "2024-03-01"),
        ('<time itemprop="datePublished" datetime="2024-03-01">1 March</time>', "2024-03-01"),
        ('<meta name="date" content="2024-02-31">', None),
        ('<meta name="update" content="2024-03-01">', None),
    ],
)
def test_the_day_of_a_page_is_the_one_it_states(stated: str, day: str | None):
    assert extract_in_process(f"<title>Oil</title>{stated}<p>Written 2019-05-03.</p>").published == day


async def test_a_date_in_the_text_is_not_taken_for_the_day_of_the_page(internet: Internet, fetcher: Fetcher):
    dated = "<p>The turbine was built on 3 May 2019 and inspected on 2021-06-07, as its book of service tells.</p>"
    internet.answers["/"] = answer(re.sub("<meta[^>]*>", "", ARTICLE).replace("<h2>", f"{dated}<h2>"))
    page = await fetcher.fetch("http://public.example/")
    assert "3 May 2019" in page.text
    assert page.published is None


async def test_a_request_carries_the_name_and_nothing_of_the_environment(
    internet: Internet, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "netrc").write_text("machine public.example login me password secret")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    internet.answers["/"] = answer(status="302 Found", Location="/next", Set_Cookie="id=1")
    internet.answers["/next"] = answer("hello", Content_Type="text/plain")
    await fetcher.fetch("http://public.example/")
    names = [[line.partition(":")[0] for line in head.splitlines()[1:] if line] for head in internet.asked]
    assert names == [["Host", "User-Agent", "Accept", "Accept-Encoding", "Connection"]] * 2
    assert all("\r\nHost: public.example\r\n" in head for head in internet.asked)


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b", "http://public.example/b"),
        ("b", "http://public.example/a/b"),
        ("../b?x=é", "http://public.example/b?x=%C3%A9"),
        ("?b", "http://public.example/a/?b"),
        ("//other.example/b", "http://other.example/b"),
        ("http://other.example/b#c", "http://other.example/b"),
        ("http://other.example:80", "http://other.example/"),
    ],
)
async def test_redirects_are_followed_relative_and_absolute(
    location: str, url: str, internet: Internet, fetcher: Fetcher
):
    internet.names["other.example"] = [[PUBLIC]]
    internet.answers["/a/"] = redirect(location, 308)
    internet.answers |= dict.fromkeys(
        ("/", "/b", "/a/b", "/b?x=%C3%A9", "/a/?b"), answer("there", Content_Type="text/plain")
    )
    page = await fetcher.fetch("http://public.example/a/")
    assert (page.url, page.text) == (url, "there")


async def test_five_redirects_are_followed_and_a_sixth_is_not(internet: Internet, fetcher: Fetcher):
    internet.answers |= {f"/{step}": redirect(f"/{step + 1}") for step in range(6)}
    internet.answers["/6"] = answer("there", Content_Type="text/plain")
    assert (await fetcher.fetch("http://public.example/1")).text == "there"
    with pytest.raises(Unavailable, match="it redirects more than 5 times"):
        await fetcher.fetch("http://public.example/0")


async def test_a_loop_of_redirects_ends(internet: Internet, fetcher: Fetcher):
    internet.answers |= {"/a": redirect("/b"), "/b": redirect("/a")}
    with pytest.raises(Unavailable, match="it redirects more than 5 times"):
        await fetcher.fetch("http://public.example/a")
    assert len(internet.asked) == 6


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/plain", "a < b &amp; c", "a < b &amp; c"),
        ("text/markdown; charset=UTF-8", "# Öl\n\nText", "# Öl\n\nText"),
        ("application/json", '{"oil": "Öl"}', '{"oil": "Öl"}'),
        ("Application/LD+JSON", "{}", "{}"),
        ("application/rss+xml", "<rss>&x;</rss>", "<rss>&x;</rss>"),
        ("text/xml", '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>', None),
        ("text/plain; charset=iso-8859-1", "Öl".encode("latin-1"), "Öl"),
        ("text/plain; charset=gbk", "轴承".encode("gbk"), "轴承"),
        ("text/plain; charset='gb2312'", "轴承".encode("gbk"), "轴承"),
        ("text/plain", "轴承上油".encode("gb18030"), "轴承上油"),
        ("text/plain; charset=utf-8", b"oil \xff lid", "oil \ufffd lid"),
        ("text/plain", b"caf\xe9 au lait", "caf\ufffd au lait"),
        ("text/plain; charset=no-such", "Öl", "Öl"),
        ("text/plain; charset=utf-8", b"\xef\xbb\xbfmarked", "marked"),
        ("text/plain", "marked".encode("utf-16"), "marked"),
        ("text/xml", "<?xml encoding='big5'?><a>軸</a>".encode("big5"), "<?xml encoding='big5'?><a>軸</a>"),
        ("text/plain", b"bell \x07 escape \x1b[2J nul \x00 end", "bell   escape  [2J nul   end"),
    ],
)  # fmt: skip
async def test_what_is_not_html_is_given_as_sent_in_its_own_character_set(
    content_type: str, body: str | bytes, text: str | None, internet: Internet, fetcher: Fetcher
):
    internet.answers["/"] = answer(body, Content_Type=content_type)
    page = await fetcher.fetch("http://public.example/")
    assert page.text == (body if text is None else text)
    assert (page.title, page.published) == ("", None)
    assert page.content_type == content_type.partition(";")[0].lower()


async def test_a_page_in_gbk_is_read_by_what_its_meta_says(internet: Internet, fetcher: Fetcher):
    markup = (
        '<html><head><meta charset="gbk"><title>轴承</title></head><body><p>每年冬天给主轴承上油。</p></body></html>'
    )
    internet.answers["/"] = answer(markup.encode("gbk"), Content_Type="text/html")
    page = await fetcher.fetch("http://public.example/")
    assert (page.title, page.text) == ("轴承", "每年冬天给主轴承上油。")


async def test_a_page_too_short_for_an_article_is_read_whole(internet: Internet, fetcher: Fetcher):
    internet.answers["/"] = answer("<title>Status</title><h2>Turbine 7</h2>")
    page = await fetcher.fetch("http://public.example/")
    assert (page.title, page.text) == ("Status", "## Turbine 7")


async def test_a_page_that_is_nothing_but_a_url_is_not_taken_for_one(internet: Internet, fetcher: Fetcher):
    url = f"http://127.0.0.1:{internet.port}/secret"
    internet.answers["/"] = answer(url)
    assert (await fetcher.fetch("http://public.example/")).text == url
    assert len(internet.asked) == 1


async def test_a_packed_page_is_unpacked(internet: Internet, fetcher: Fetcher):
    internet.answers["/"] = answer(gzip.compress(b"oil " * 1000), Content_Type="text/plain", Content_Encoding="gzip")
    assert (await fetcher.fetch("http://public.example/")).text == ("oil " * 1000).strip()


async def test_the_next_address_is_tried_when_the_first_does_not_answer(internet: Internet, fetcher: Fetcher):
    internet.names["two.example"] = [["2606:4700::1111", PUBLIC]]
    internet.answers["/"] = answer("there", Content_Type="text/plain")
    assert (await fetcher.fetch("http://two.example/")).text == "there"
    assert internet.connected == [("2606:4700::1111", 80), (PUBLIC, 80)]


async def test_a_page_is_kept_for_a_while(internet: Internet):
    internet.answers["/"] = answer("one", Content_Type="text/plain")
    fetcher = Fetcher(cache_s=1.5, resolve=internet.resolve, connect=internet.connect)
    assert (await fetcher.fetch("http://public.example/")).text == "one"
    internet.answers["/"] = answer("two", Content_Type="text/plain")
    assert (await fetcher.fetch("http://PUBLIC.example#part")).text == "one"
    assert len(internet.asked) == 1
    await asyncio.sleep(1.6)
    assert (await fetcher.fetch("http://public.example/")).text == "two"


async def test_what_is_kept_is_bounded(internet: Internet, fetcher: Fetcher):
    for number in range(5):
        internet.answers[f"/{number}"] = answer("x" * 500_000, Content_Type="text/plain")
        await fetcher.fetch(f"http://public.example/{number}")
    await fetcher.fetch("http://public.example/4")
    await fetcher.fetch("http://public.example/0")
    assert [head.split(" ")[1] for head in internet.asked] == ["/0", "/1", "/2", "/3", "/4", "/0"]


async def test_a_large_page_is_not_kept_and_those_that_are_stay(internet: Internet, fetcher: Fetcher):
    internet.answers["/small"] = answer("small", Content_Type="text/plain")
    internet.answers["/large"] = answer("x" * 4_000_000, Content_Type="text/plain")
    for path in ("small", "large", "small", "large"):
        await fetcher.fetch(f"http://public.example/{path}")
    assert [head.split(" ")[1] for head in internet.asked] == ["/small", "/large", "/large"]


async def test_a_failure_is_not_kept(internet: Internet, fetcher: Fetcher):
    with pytest.raises(Unavailable):
        await fetcher.fetch("http://public.example/")
    internet.answers["/"] = answer("there now", Content_Type="text/plain")
    assert (await fetcher.fetch("http://public.example/")).text == "there now"


# -- what does not come ----------------------------------------------------------------------------------------------


def chunked(data: bytes) -> bytes:
    return answer(b"", Content_Length="", Transfer_Encoding="chunked", Content_Type="text/plain") + data


BROKEN: Mapping[str, tuple[bytes, str]] = {
    "not found": (answer(status="404 Not Found"), "HTTP 404 Not Found"),
    "server error": (answer(ARTICLE, status="500 Oops"), "HTTP 500 Internal Server Error"),
    "unknown status": (answer(status="599 Oops"), "HTTP 599"),
    "not modified": (answer(status="304 Not Modified"), "HTTP 304 Not Modified"),
    "redirect to nowhere": (answer(status="302 Found"), "HTTP 302 Found"),
    "PDF": (answer("%PDF", Content_Type="application/pdf"), "its page has the type application/pdf; HTML, text, "),
    "image": (answer("<svg/>", Content_Type="image/svg+xml"), "its page has the type image/svg+xml; HTML, text, "),
    "no type": (answer("hello", Content_Type=""), "its page has no content type; HTML, text, "),
    "hostile type": (answer("x", Content_Type="a\u00a0b" * 50), "its page has the type a"),
    "empty": (answer(""), "its page holds no text"),
    "only scripts": (answer("<html><body><script>go()</script></body></html>"), "its page holds no text"),
    "unreadable": (answer("<p>&#" + "9" * 5_000), "its page cannot be read: not readable as HTML: "),
    "only spaces": (answer(" \n\x00 ", Content_Type="text/plain"), "its page holds no text"),
    "broken chunks": (chunked(b"5\r\nhello\r\nzz\r\n"), "the connection failed (RemoteProtocolError)"),
    "chunks cut off": (chunked(b"50\r\nhello"), "the connection failed (RemoteProtocolError)"),
    "cut off": (answer("half", Content_Length="100"), "the connection failed (RemoteProtocolError)"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.9\r\n", "the connection failed (RemoteProtocolError)"),
    "nothing": (b"", "the connection failed (RemoteProtocolError)"),
    "endless head": (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 40_000, "the head of its answer is longer than 32 KiB"),
    "endless interim": (b"HTTP/1.1 103 Early\r\n\r\n" * 9_000, "the head of its answer is longer than 32 KiB"),
    "not packed": (answer("plain", Content_Encoding="gzip"), "its page cannot be unpacked"),
    "packed and cut": (answer(gzip.compress(b"oil" * 99)[:-4], Content_Encoding="gzip"), "its page is incomplete"),
    "packed as asked by nobody": (answer("x", Content_Encoding="br"), "its page is compressed as br, which the"),
    "packed twice": (answer("x", Content_Encoding="gzip, gzip"), "its page is compressed as gzip, gzip, which"),
    "gzip bomb": (
        answer(gzip.compress(bytes(4 * MOST_BYTES)), Content_Type="text/plain", Content_Encoding="gzip"),
        "its page is longer than 5 MiB",
    ),
    "too long": (answer(b"x" * (MOST_BYTES + 1), Content_Type="text/plain"), "its page is longer than 5 MiB"),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "reason"), BROKEN.values(), ids=BROKEN)
async def test_an_unusable_answer_is_unavailable_with_the_reason(
    sent: bytes, reason: str, internet: Internet, fetcher: Fetcher
):
    internet.answers["/"] = sent
    with pytest.raises(Unavailable) as error:
        await fetcher.fetch("http://public.example/")
    assert str(error.value).startswith(f"public.example is unavailable: {reason}")
    assert str(error.value).isprintable()


async def test_the_longest_page_is_read(internet: Internet, fetcher: Fetcher):
    internet.answers["/"] = answer(b"x" * MOST_BYTES, Content_Type="text/plain")
    assert len((await fetcher.fetch("http://public.example/")).text) == MOST_BYTES


async def drip(writer: asyncio.StreamWriter) -> None:
    writer.write(answer(Content_Length="1000", Content_Type="text/plain"))
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def drip_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    await drip_of(writer, b"y")


async def drip_informational(writer: asyncio.StreamWriter) -> None:
    await drip_of(writer, b"HTTP/1.1 103 Early Hints\r\n\r\n")


async def drip_of(writer: asyncio.StreamWriter, piece: bytes) -> None:
    while True:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.05)


async def silence(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


@pytest.mark.parametrize("write", [drip, drip_head, drip_informational, silence])
async def test_a_server_that_takes_its_time_is_given_up_at_the_deadline(
    write: Write, internet: Internet, fetcher: Fetcher
):
    internet.answers["/"] = write
    started = time.monotonic()
    with pytest.raises(Unavailable, match=r"^public.example is unavailable: no page arrived within 0.3 s$"):
        await fetcher.fetch("http://public.example/", timeout_s=0.3)
    assert time.monotonic() - started >= 0.3


async def test_an_endless_body_ends_at_the_limit(internet: Internet, fetcher: Fetcher):
    sent = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(answer(Content_Length="", Content_Type="text/plain"))
        while True:
            writer.write(b"x" * 65536)
            sent += 65536
            await writer.drain()

    internet.answers["/"] = endless
    with pytest.raises(Unavailable, match="its page is longer than 5 MiB"):
        await fetcher.fetch("http://public.example/")
    assert MOST_BYTES < sent < 4 * MOST_BYTES


async def test_a_name_that_is_not_found_is_unavailable(internet: Internet, fetcher: Fetcher):
    internet.names["empty.example"] = [[]]
    for name in ("nowhere.example", "empty.example"):
        with pytest.raises(Unavailable, match=f"^{name} is unavailable: its name cannot be resolved$"):
            await fetcher.fetch(f"http://{name}/")
        with pytest.raises(Unavailable, match="its name cannot be resolved"):
            await fetcher.check(f"http://{name}/")


async def test_a_name_that_is_not_found_in_time_is_unavailable():
    async def resolve(host: str, port: int) -> list[str]:
        await asyncio.sleep(30)
        return [PUBLIC]

    fetcher = Fetcher(resolve=resolve)
    with pytest.raises(Unavailable, match=r"its name was not resolved within 0.05 s"):
        await fetcher.check("http://slow.example/", timeout_s=0.05)
    with pytest.raises(Unavailable, match=r"no page arrived within 0.05 s"):
        await fetcher.fetch("http://slow.example/", timeout_s=0.05)


async def test_a_server_that_refuses_connections_is_unavailable(internet: Internet, fetcher: Fetcher):
    internet.names["down.example"] = [["8.8.8.8"]]
    with pytest.raises(Unavailable, match=r"down.example is unavailable: the connection failed \(ConnectError\)"):
        await fetcher.fetch("http://down.example/")


async def test_markup_that_keeps_a_reader_busy_is_given_up_at_the_deadline(internet: Internet, fetcher: Fetcher):
    # Some seconds of work for the extraction of the article.
    internet.answers["/"] = answer("<p>word word word word. </p>" * 35_000)
    with pytest.raises(Unavailable, match=r"no page arrived within 1.5 s"):
        await fetcher.fetch("http://public.example/", timeout_s=1.5)


TAKEN_OVER = """
import os, socket
def bare_extraction(markup, **options):
    try:
        socket.create_connection(("127.0.0.1", int(markup.split()[0])))
    except PermissionError as error:
        raise RuntimeError(f"{error} is forbidden; {sorted(os.environ)}")
"""


async def test_a_reader_that_a_page_has_taken_over_has_no_network_and_no_keys(
    internet: Internet, fetcher: Fetcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "trafilatura.py").write_text(TAKEN_OVER, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SIGNALBOX_LLM_API_KEY", "secret")
    internet.answers["/"] = answer(f"{internet.port} <p>")
    with pytest.raises(Unavailable) as error:
        await fetcher.fetch("http://public.example/")
    told = r"its page cannot be read: RuntimeError: socket\.\w+ is forbidden; \[(.*)\]"
    found = re.search(told, str(error.value))
    assert found is not None, str(error.value)
    assert set(re.findall(r"\w+", found[1])) <= {
        "PYTHONPATH",
        "PYTHONUTF8",
        "TMPDIR",
        "LC_CTYPE",
        "OPENBLAS_NUM_THREADS",
        "OMP_NUM_THREADS",
        "MALLOC_ARENA_MAX",
    }
    assert len(internet.asked) == 1


# -- https -----------------------------------------------------------------------------------------------------------


MAKE_CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    " -subj /CN=public.example -addext subjectAltName=DNS:public.example"
).split()


@pytest.fixture
async def secure(
    internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[str | None]]:
    """The server with a certificate for public.example, which is trusted; the names that were asked for."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = [*MAKE_CERTIFICATE, "-keyout", key, "-out", certificate]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    names: list[str | None] = []
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    context.sni_callback = lambda connection, name, context: names.append(name)
    async with await asyncio.start_server(internet.serve, "127.0.0.1", 0, ssl=context) as server:
        internet.port = server.sockets[0].getsockname()[1]
        yield names


async def test_over_https_the_server_is_asked_for_by_name(
    secure: list[str | None], internet: Internet, fetcher: Fetcher
):
    internet.answers["/"] = answer("private matters", Content_Type="text/plain")
    assert (await fetcher.fetch("https://public.example/")).text == "private matters"
    assert secure == ["public.example"]
    assert internet.connected == [(PUBLIC, 443)]
    assert "\r\nHost: public.example\r\n" in internet.asked[0]


async def test_a_certificate_of_another_name_is_not_accepted(
    secure: list[str | None], internet: Internet, fetcher: Fetcher
):
    internet.names["other.example"] = [[PUBLIC]]
    with pytest.raises(Unavailable, match=r"other.example is unavailable: its certificate is not valid: Hostname mis"):
        await fetcher.fetch("https://other.example/")
    with pytest.raises(Unavailable, match=r"its certificate is not valid: IP address mismatch"):
        await fetcher.fetch(f"https://{PUBLIC}/")
    assert internet.asked == []


async def test_a_redirect_from_https_to_http_is_refused(secure: list[str | None], internet: Internet, fetcher: Fetcher):
    internet.answers["/"] = redirect("http://public.example/plain")
    with pytest.raises(BadRequest, match=r"is refused: it leads from https to http$"):
        await fetcher.fetch("https://public.example/")
    assert internet.connected == [(PUBLIC, 443)]
