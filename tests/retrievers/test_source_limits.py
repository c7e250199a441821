"""Sources of a mirror that answer without end, or with more than anybody can hold, end in an error that says why."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from retrievers.core.errors import BadRequest, Unavailable
from retrievers.http.page_fetcher import FetchedPage
from retrievers.sync import bucket, source, web_pages
from retrievers.sync.source import Listing
from retrievers.sync.source_factory import open_source
from retrievers.sync.web_pages import WebPagesSource

OBJECT = "<Contents><Key>{}</Key><ETag>&quot;e&quot;</ETag><Size>5</Size></Contents>"
Answer = Callable[[Any, int], None]


def page(number: int, *contents: str, more: bool = True) -> bytes:
    """The page of a listing after which another one follows."""
    token = f"<IsTruncated>{str(more).lower()}</IsTruncated><NextContinuationToken>{number}</NextContinuationToken>"
    return f"<ListBucketResult>{token}{''.join(contents)}</ListBucketResult>".encode()


def whole(body: Callable[[int], bytes]) -> Answer:
    def answer(handler: Any, number: int) -> None:
        content = body(number)
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content)

    return answer


def endless(head: bytes, piece: bytes) -> Answer:
    def answer(handler: Any, number: int) -> None:
        handler.wfile.write(head)
        while True:
            handler.server.sent += handler.wfile.write(piece)

    return answer


class Store(ThreadingHTTPServer):
    """A server that gives the same kind of answer to each request."""

    daemon_threads = True
    answer: Answer
    asked = 0
    sent = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def do_GET(self) -> None:
        self.server.asked += 1
        try:
            self.server.answer(self, self.server.asked)
        except OSError:  # the client has closed the connection
            self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    pytest.importorskip("boto3")
    server = Store(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{server.server_port}", "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b", "AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    yield server
    server.shutdown()
    server.server_close()


def listed(url: str) -> Listing:
    return open_source(url).list_items(lambda: False)


@pytest.mark.parametrize(
    "contents",
    [[], [OBJECT.format("same.md")] * 3, [OBJECT.format("x.png")]],
    ids=["empty pages", "one object again and again", "objects of other formats"],
)
def test_a_listing_without_end_is_an_error(store: Store, contents: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bucket, "_MOST_PAGES", 5)
    store.answer = whole(lambda number: page(number, *contents))
    with pytest.raises(BadRequest, match="more than 5 pages"):
        listed("s3://bucket")
    assert store.asked == 6


def test_objects_that_cannot_be_synced_count_as_items(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(source, "MOST_ITEMS", 5)
    large = OBJECT.replace("<Size>5<", "<Size>999999999999<")
    store.answer = whole(lambda number: page(number, large.format(f"{number}.md")))
    with pytest.raises(BadRequest, match="more than 5 items"):
        listed("s3://bucket")
    assert store.asked == 6


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (endless(b"HTTP/1.1 200 OK\r\n\r\n<ListBucketResult>", b"<a/>" * 10_000), "longer than 8 MiB"),
        (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000), "longer than 8 MiB"),
        (endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1;" + b"x" * 60_000 + b"\r\na\r\n"), "."),
        (whole(lambda number: page(number, "<a/>" * 100_000)), "too many XML elements"),
        (whole(lambda number: b'<!DOCTYPE x [<!ENTITY a "b">]>' + page(number)), "a document type"),
    ],
    ids=["body", "interim answers", "chunk extensions", "elements", "entities"],
)
def test_of_an_answer_of_a_bucket_only_so_much_is_read(store: Store, answer: Answer, reason: str):
    store.answer = answer
    with pytest.raises(Unavailable, match=reason):
        listed("s3://bucket")
    assert store.asked <= 3
    assert store.sent < 100 << 20


def test_an_answer_of_a_bucket_that_is_late_or_that_nobody_waits_for_is_read_no_further(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    store.answer = endless(b"HTTP/1.1 200 OK\r\n\r\n", b" ")
    monkeypatch.setattr(bucket, "_PAGE_S", 0.1)
    with pytest.raises(Unavailable, match="too long to answer"):
        listed("s3://bucket")
    monkeypatch.setattr(bucket, "_PAGE_S", 60.0)
    with pytest.raises(Unavailable, match="too long to answer"):
        open_source("s3://bucket").list_items(lambda: True)


def test_an_object_with_a_name_or_etag_without_end_is_named_in_short(store: Store):
    contents = OBJECT.format("n" * 600 + ".md"), OBJECT.replace("&quot;e", "e" * 600).format("a.md")
    store.answer = whole(lambda number: page(number, *contents, OBJECT.format("b.md"), more=False))
    found = listed("s3://bucket")
    assert [item.key for item in found.items] == ["b.md"]
    assert [len(one.where) for one in found.failed] == [100, 4]


def test_a_checkout_whose_folders_hold_themselves_many_times_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def git(*arguments: str, given: str = "") -> str:
        command = ["git", "-C", str(tmp_path), *arguments]
        return subprocess.run(command, input=given, check=True, capture_output=True, text=True).stdout.strip()

    monkeypatch.setattr(source, "MOST_ITEMS", 1000)
    git("init", "-q")
    tree = git(
        "mktree", given="".join(f"100644 blob {git('hash-object', '-w', '--stdin')}\t{n}.md\n" for n in "abcdefgh")
    )
    for _ in range(12):  # some 69 thousand million files
        tree = git("mktree", given="".join(f"040000 tree {tree}\t{n}\n" for n in "abcdefgh"))
    commit = git("-c", "user.name=a", "-c", "user.email=a@b", "commit-tree", "-m", "x", tree)
    git("update-ref", "HEAD", commit)
    with pytest.raises(BadRequest, match="more than 1,000 items"):
        listed(f"git:{tmp_path}")


def test_a_folder_with_too_many_files_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(source, "MOST_ITEMS", 3)
    for number in range(4):
        (tmp_path / f"{number}.md").touch()
    with pytest.raises(BadRequest, match="more than 3 items"):
        listed(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("<urlset>" + "<a/>" * 700_000 + "</urlset>", "too many XML elements"),
        ("<urlset>" + "<url><loc>ftp://x</loc></url>" * 60_000 + "</urlset>", "more than 50,000 pages"),
        (
            "<sitemapindex>" + "<sitemap><loc>https://a.example/b</loc></sitemap>" * 101 + "</sitemapindex>",
            "100 sitemaps",
        ),
    ],
    ids=["elements", "refused addresses", "sitemaps"],
)
def test_a_sitemap_with_too_much_in_it_is_an_error(content: str, reason: str, monkeypatch: pytest.MonkeyPatch):
    asked = []

    class Pages:
        async def fetch(self, url: str, *, timeout_s: float) -> FetchedPage:
            asked.append(url)
            return FetchedPage(url, "", content, None, "application/xml")

    sitemap = WebPagesSource("https://a.example/sitemap.xml", Pages())  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match=reason):
        sitemap.list_items(lambda: False)
    assert len(asked) == 1
    assert web_pages.MOST_PAGES == 50_000
