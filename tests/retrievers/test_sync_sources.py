"""Sources of a mirror: checkouts, databases, sites and buckets, each followed through additions, changes, deletions."""

import asyncio
import hashlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import httpcore2
import psycopg
import pytest

from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.optional_dependencies import install_command
from retrievers.http.page_fetcher import Fetcher
from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.ingest.jobs.worker import Worker
from retrievers.ingest.run import ingest
from retrievers.postgres.connections.database import Database
from retrievers.sync import external_database
from retrievers.sync.deletion_guard import DeletionLimits
from retrievers.sync.mirror_run import Mirror, MirrorReport, bind_run
from retrievers.sync.schedule import MirrorScheduler
from retrievers.sync.source import Source
from retrievers.sync.source_factory import open_source
from retrievers.sync.web_pages import WebPagesSource
from retrievers.testing import HashEmbedder

PUBLIC = "93.184.215.14"


async def sync(database: Database, source: Source) -> tuple[int, int, int, int, int]:
    """One run: added, updated, deleted, unchanged, failed."""
    mirror = Mirror(database, "acme", "docs", source)
    worker = Worker(JobQueue(database), partial(ingest, database, HashEmbedder()))
    lease = await MirrorScheduler(database, worker.jobs).begin_run(mirror)
    report = await worker.run_mirror(lease, bind_run(mirror, worker.jobs, worker.ingest, DeletionLimits(0.7)))
    assert isinstance(report, MirrorReport)
    return report.inserted, report.updated, report.deleted, report.unchanged, len(report.failed)


def stored(owner_url: str) -> dict[str, tuple[str, Any, Any]]:
    """Text, metadata and readers of each document by id."""
    with psycopg.connect(owner_url) as connection:
        rows = connection.execute(
            "SELECT d.id, d.body, d.metadata, p.readers FROM signalbox.document d"
            " LEFT JOIN signalbox.collection p ON p.tenant = d.tenant AND p.number = d.part"
        ).fetchall()
    return {row[0]: row[1:] for row in rows}


# Checkouts.


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


async def test_a_checkout_is_followed_from_commit_to_commit(database: Database, owner_url: str, tmp_path: Path):
    folder = tmp_path / "checkout"
    (folder / "d").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.md").write_text("---\nteam: red\nreaders: [user:7]\n---\n# A\none")
    (folder / "d" / "ü.txt").write_text("two")
    (folder / "code.py").write_text("three")
    (folder / ".hidden.md").write_text("four")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    (folder / "new.md").write_text("# not committed")
    source = open_source(f"git:{folder}")

    assert await sync(database, source) == (2, 0, 0, 0, 0)
    assert stored(owner_url) == {
        "a.md": ("# A\none", {"team": "red"}, ["user:7"]), "d/ü.txt": ("two", {}, None),
    }  # fmt: skip
    git(folder, "tag", "v1")
    git(folder, "add", "new.md")
    git(folder, "rm", "-q", "d/ü.txt")
    git(folder, "commit", "-q", "-m", "second")
    assert await sync(database, open_source(f"git:{folder}")) == (1, 0, 1, 1, 0)
    assert sorted(stored(owner_url)) == ["a.md", "new.md"]

    tagged = open_source(f"git:{folder}@v1").list_items(lambda: False)
    assert [one.key for one in tagged.items] == ["a.md", "d/ü.txt"]
    with pytest.raises(Unavailable, match="git cannot read"):
        open_source(f"git:{folder}@nothing").list_items(lambda: False)
    with pytest.raises(BadRequest, match="not the name of a commit"):
        open_source(f"git:{folder}@--output=x")


# Databases.


@pytest.fixture
def articles(owner_url: str, server: Any) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """Another database with a table of three rows, and its address."""
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA news")
        connection.execute(
            "CREATE TABLE news.article (id int PRIMARY KEY, title text, text text, readers text[], price numeric,"
            " published date, raw bytea, changed timestamptz DEFAULT clock_timestamp())"
        )
        connection.execute(
            "INSERT INTO news.article VALUES (1, 'One', 'first', NULL, 2.50, '2024-05-06', 'x'),"
            " (2, 'Two', 'second', '{user:7,group:legal}', NULL, NULL, NULL),"
            " (3, 'Three', 'third', '{}', 7, NULL, NULL)"
        )
        info = connection.info
        address = f"postgresql://{info.user}:secret@/{info.dbname}?host={info.host}&port={info.port}"
        yield address, connection


@pytest.mark.parametrize("updated_at", [None, "changed"])
async def test_a_table_is_followed_with_its_columns_and_readers(
    database: Database, owner_url: str, articles: tuple[str, psycopg.Connection[Any]], updated_at: str | None
):
    address, rows = articles
    source = open_source(address, table="news.article", updated_at=updated_at)
    assert await sync(database, source) == (3, 0, 0, 0, 0)
    found = stored(owner_url)
    assert {key: value for key, value in found["1"][1].items() if key != "changed"} == {
        "price": 2.5, "published": "2024-05-06",
    }  # fmt: skip
    assert [found[id][2] for id in "123"] == [None, ["group:legal", "user:7"], None]
    assert "secret" not in source.name

    rows.execute("UPDATE news.article SET text = 'changed', changed = clock_timestamp() WHERE id = 2")
    rows.execute("DELETE FROM news.article WHERE id = 3")
    rows.execute("INSERT INTO news.article (id, text) VALUES (4, 'fourth')")

    assert await sync(database, source) == (1, 1, 1, 1, 0)
    assert {id: text for id, (text, *_) in stored(owner_url).items()} == {"1": "first", "2": "changed", "4": "fourth"}
    rows.execute("DROP TABLE news.article")
    with pytest.raises(BadRequest, match="refuses the query"):
        await sync(database, source)
    assert len(stored(owner_url)) == 3


async def test_a_query_names_its_columns_and_can_write_nothing(
    database: Database, owner_url: str, articles: tuple[str, psycopg.Connection[Any]]
):
    address, rows = articles
    query = "SELECT 'n' || id AS id, text AS content, price > 5 AS dear FROM news.article WHERE id <> 2"
    assert await sync(database, open_source(address, query=query)) == (2, 0, 0, 0, 0)
    assert stored(owner_url) == {"n1": ("first", {"dear": False}, None), "n3": ("third", {"dear": True}, None)}

    gone = "WITH gone AS (DELETE FROM news.article RETURNING *) SELECT * FROM gone"
    with pytest.raises(BadRequest, match="refuses the query"):
        await sync(database, open_source(address, query=gone))
    assert rows.execute("SELECT count(*) FROM news.article").fetchone() == (3,)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "either --table or --query"),
        ({"table": "a", "query": "SELECT 1"}, "either --table or --query"),
        ({"table": "a; DROP TABLE b"}, "not a plain name"),
        ({"table": "a", "updated_at": "b) OR (1=1"}, "not a plain name"),
        ({"query": "DELETE FROM a"}, "is not a SELECT"),
    ],
)
def test_what_is_no_table_is_refused_before_anything_is_asked(options: dict[str, str], reason: str):
    with pytest.raises(BadRequest, match=reason):
        open_source("postgresql://nowhere.invalid/x", **options)


async def test_rows_without_an_id_of_their_own_are_refused(
    database: Database, articles: tuple[str, psycopg.Connection[Any]]
):
    address, _ = articles
    for query, reason in (
        ("SELECT title FROM news.article", "the column id is missing"),
        ("SELECT 1 AS id, text FROM news.article", 'two rows have the id "1"'),
        ("SELECT NULL::int AS id, text FROM news.article", "the column id has no value in some rows"),
    ):
        with pytest.raises(BadRequest, match=reason):
            await sync(database, open_source(address, query=query))


async def test_a_database_that_sends_no_rows_is_given_up(
    articles: tuple[str, psycopg.Connection[Any]], monkeypatch: pytest.MonkeyPatch
):
    address, rows = articles
    monkeypatch.setattr(external_database, "_FETCH_S", 0.3)
    for slow in (
        "SELECT id, pg_sleep(600) FROM news.article",
        # The first batch arrives.
        "SELECT n AS id, CASE WHEN n > 150 THEN pg_sleep(600)::text END AS text FROM generate_series(1, 200) n",
    ):
        source = open_source(address, query=slow)
        with pytest.raises(Unavailable, match=r"no rows within 0\.3 s"):
            source.list_items(lambda: False)
    left = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%%signalbox_sync%%' AND state = 'active' AND pid <> %s"
    )
    async with asyncio.timeout(60):
        while rows.execute(left, (rows.info.backend_pid,)).fetchone() != (0,):  # noqa: ASYNC110 - the database says nothing
            await asyncio.sleep(0.05)


async def test_a_database_whose_server_stands_still_is_given_up(
    articles: tuple[str, psycopg.Connection[Any]], monkeypatch: pytest.MonkeyPatch
):
    """The server answers neither the statement nor its cancellation."""
    address, _ = articles
    monkeypatch.setattr(external_database, "_FETCH_S", 0.3)
    monkeypatch.setattr(external_database, "_CANCEL_S", 0.3)
    statement = "SELECT pg_backend_pid() AS pid FROM generate_series(1, 1000)"
    stopped = 0
    try:
        with (  # noqa: PT012 - the first rows must arrive
            pytest.raises(Unavailable, match=r"no rows within 0\.3 s"),
            external_database.query_rows(address, "rows", statement) as found,
        ):
            stopped = next(found)["pid"]
            os.kill(stopped, signal.SIGSTOP)
            list(found)
    finally:
        os.kill(stopped, signal.SIGCONT)


async def test_a_row_of_many_bytes_is_refused_before_it_is_sent(
    database: Database, articles: tuple[str, psycopg.Connection[Any]], monkeypatch: pytest.MonkeyPatch
):
    address, _ = articles
    monkeypatch.setattr(external_database, "MOST_ROW_BYTES", 1 << 20)
    query = "SELECT id, repeat('x', CASE id WHEN 2 THEN {} ELSE 9 END) AS text FROM news.article"
    with pytest.raises(BadRequest, match=r"a row of 1,048,5\d\d bytes"):
        await sync(database, open_source(address, query=query.format((1 << 20) - 2)))
    assert await sync(database, open_source(address, query=query.format((1 << 20) - 5))) == (3, 0, 0, 0, 0)


async def test_another_kind_of_database_is_followed_by_sqlalchemy(database: Database, owner_url: str, tmp_path: Path):
    pytest.importorskip("sqlalchemy")
    file = tmp_path / "news.db"
    with sqlite3.connect(file) as rows:
        rows.execute("CREATE TABLE article (id TEXT, text TEXT, readers TEXT, size INT)")
        rows.executemany(
            "INSERT INTO article VALUES (?, ?, ?, ?)", [("a", "one", None, 1), ("b", "a: two", "user:7", 2)]
        )
    source = open_source(f"sqlite:///{file}", table="article")
    assert await sync(database, source) == (2, 0, 0, 0, 0)
    assert stored(owner_url) == {"a": ("one", {"size": 1}, None), "b": ("a: two", {"size": 2}, ["user:7"])}
    with sqlite3.connect(file) as rows:
        rows.execute("DELETE FROM article WHERE id = 'a'")
        rows.execute("UPDATE article SET text = 'more'")
    assert await sync(database, source) == (0, 1, 1, 0, 0)

    query = "SELECT id, text FROM article WHERE text = 'a:b' OR size = 2"
    assert [one.key for one in open_source(f"sqlite:///{file}", query=query).list_items(lambda: False).items] == ["b"]
    with pytest.raises((BadRequest, Unavailable)):
        open_source(f"sqlite:///{file}", table="nothing").list_items(lambda: False)
    with pytest.raises(Unavailable, match="its kind is unknown"):
        open_source("nosuch://host/x", table="a").list_items(lambda: False)


# Sites.


class Site:
    """A site at a public address, as far as the fetcher knows. Attributes: `pages` by path: type and content."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, str]] = {}
        self.asked: list[str] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ")[1]
        self.asked.append(path)
        kind, text = self.pages.get(path, ("", ""))
        status = text if kind == "status" else "200 OK" if kind else "404 Not Found"
        body = text.encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind or 'text/html'}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    def map(self, **changed: str | None) -> None:
        entries = "".join(
            f"<url><loc>https://site.example/{name}</loc>{f'<lastmod>{at}</lastmod>' if at else ''}</url>"
            for name, at in changed.items()
        )
        xml = f'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'
        self.pages["/sitemap.xml"] = ("application/xml", xml)

    def page(self, name: str, text: str) -> None:
        self.pages[f"/{name}"] = ("text/html; charset=utf-8", f"<title>{name}</title><body><p>{text}</p></body>")

    def source(self, url: str) -> WebPagesSource:
        async def resolve(host: str, port: int) -> list[str]:
            return ["10.0.0.1"] if host.startswith("inside") else [PUBLIC]

        async def connect(address: str, port: int) -> httpcore2.AsyncNetworkStream:
            assert address == PUBLIC
            return await httpcore2.AnyIOBackend().connect_tcp("127.0.0.1", self.port)

        return WebPagesSource(url.replace("https:", "http:"), Fetcher(cache_s=0, resolve=resolve, connect=connect))


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    async with await asyncio.start_server(site.serve, "127.0.0.1", 0) as server:
        site.port = server.sockets[0].getsockname()[1]
        yield site


async def test_a_sitemap_is_followed_and_only_what_it_says_has_changed_is_fetched(
    database: Database, owner_url: str, site: Site
):
    said = "A paragraph about turbines and their blades, long enough to be taken for the text of this page. " * 3
    for name in "abc":
        site.page(name, f"{said} {name}")
    site.map(a="2024-01-01", b="2024-01-01", c=None)
    for name in list(site.pages):
        kind, text = site.pages[name]
        site.pages[name] = kind, text.replace("https:", "http:")
    source = site.source("http://site.example/sitemap.xml")
    assert await sync(database, source) == (3, 0, 0, 0, 0)

    site.asked.clear()
    site.page("a", f"{said} changed")
    site.map(a="2024-02-02", b="2024-01-01", c=None)
    site.pages["/sitemap.xml"] = ("application/xml", site.pages["/sitemap.xml"][1].replace("https:", "http:"))
    assert await sync(database, source) == (0, 1, 0, 2, 0)
    assert sorted(site.asked) == ["/a", "/c", "/sitemap.xml"]

    site.map(a="2024-02-02", c=None)
    site.pages["/sitemap.xml"] = ("application/xml", site.pages["/sitemap.xml"][1].replace("https:", "http:"))
    assert await sync(database, source) == (0, 0, 1, 2, 0)
    assert sorted(stored(owner_url)) == ["http://site.example/a", "http://site.example/c"]


async def test_of_a_list_what_fails_now_stays_what_is_gone_goes_and_what_is_inside_is_never_asked(
    database: Database, owner_url: str, site: Site
):
    for name in "abc":
        site.page(name, f"The page {name}. " * 20)
    addresses = [f"http://site.example/{name}" for name in "abc"]
    forbidden = ["http://127.0.0.1/x", "http://inside.example/x", "file:///etc/passwd", "http://169.254.169.254/latest"]
    site.pages["/list.txt"] = ("text/plain", "\n".join(["# pages", *addresses, *forbidden]))
    source = site.source("http://site.example/list.txt")
    assert (await sync(database, source))[:4] == (3, 0, 0, 0)
    assert sorted(stored(owner_url)) == addresses

    site.pages["/a"] = ("status", "503 Not Now")
    del site.pages["/b"]
    assert (await sync(database, source))[:4] == (0, 0, 1, 2)
    assert sorted(stored(owner_url)) == [addresses[0], addresses[2]]
    site.pages["/list.txt"] = ("status", "500 Broken")
    with pytest.raises(Unavailable, match="HTTP 500"):
        await sync(database, source)
    assert len(stored(owner_url)) == 2


@pytest.mark.parametrize(
    "content",
    [
        '<!DOCTYPE x [<!ENTITY a "b">]><urlset><url><loc>&a;</loc></url></urlset>',
        "<urlset><url>", "<html><p>no</p></html>", '{"a": 1}',
    ],
)  # fmt: skip
async def test_what_is_no_sitemap_is_refused(site: Site, content: str):
    site.pages["/x"] = ("application/xml", content)
    with pytest.raises(BadRequest, match=r"not a sitemap|neither a sitemap"):
        await asyncio.to_thread(site.source("http://site.example/x").list_items, lambda: False)


@pytest.mark.parametrize("url", ["http://127.0.0.1/sitemap.xml", "http://localhost/", "http://u:p@site.example/"])
async def test_a_source_inside_the_network_is_refused(url: str):
    with pytest.raises(BadRequest):
        await asyncio.to_thread(open_source(url).list_items, lambda: False)


# Buckets.


class Store(BaseHTTPRequestHandler):
    """The two calls of S3 that a mirror makes, two objects to a page."""

    objects: dict[str, bytes]

    def do_GET(self) -> None:
        split = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(split.query).items()}
        path = unquote(split.path)
        if asked.get("list-type") == "2":
            names = sorted(name for name in self.objects if name.startswith(asked.get("prefix", "")))
            start = int(asked.get("continuation-token", 0))
            shown = "".join(
                f"<Contents><Key>{escape(name)}</Key><ETag>&quot;{hashlib.md5(self.objects[name]).hexdigest()}&quot;</ETag>"
                f"<Size>{len(self.objects[name])}</Size></Contents>"
                for name in names[start : start + 2]
            )
            more = start + 2 < len(names)
            token = f"<NextContinuationToken>{start + 2}</NextContinuationToken>" if more else ""
            self.say(
                200,
                f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{shown}</ListBucketResult>".encode(),
            )
        elif (name := path.removeprefix("/bucket/")) in self.objects:
            self.say(200, self.objects[name])
        else:
            self.say(404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>")

    def say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/xml")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, bytes]]:
    """The objects of `s3://bucket`, behind a server that speaks enough of S3."""
    pytest.importorskip("boto3")
    objects: dict[str, bytes] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Store,), {"objects": objects}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{server.server_port}", "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b", "AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    yield objects
    server.shutdown()
    server.server_close()


async def test_a_bucket_is_followed_by_its_etags(database: Database, owner_url: str, bucket: dict[str, bytes]):
    bucket |= {
        "docs/a.md": b"---\nreaders: [user:7]\nteam: red\n---\n# A\none", "docs/b c.txt": b"two",
        "docs/d.jsonl": b'{"id": "d1", "text": "three"}', "docs/e.png": b"\x89PNG", "else/f.md": b"# F",
    }  # fmt: skip
    source = open_source("s3://bucket/docs/")
    assert await sync(database, source) == (3, 0, 0, 0, 0)
    assert stored(owner_url)["a.md"] == ("# A\none", {"team": "red"}, ["user:7"])

    bucket["docs/b c.txt"] = b"changed"
    del bucket["docs/d.jsonl"]
    assert await sync(database, source) == (0, 1, 1, 1, 0)
    assert {id: text for id, (text, *_) in stored(owner_url).items()} == {"a.md": "# A\none", "b c.txt": "changed"}


async def test_a_bucket_that_cannot_be_asked_deletes_nothing(
    database: Database, owner_url: str, bucket: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
):
    bucket["a.md"] = b"# A"
    source = open_source("s3://bucket")
    assert await sync(database, source) == (1, 0, 0, 0, 0)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(Unavailable, match="s3://bucket/"):
        await sync(database, open_source("s3://bucket"))
    assert sorted(stored(owner_url)) == ["a.md"]


async def test_a_bucket_without_its_package_says_what_to_install(database: Database, monkeypatch: pytest.MonkeyPatch):
    for package in ("boto3", "botocore", "botocore.config", "botocore.exceptions"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Unavailable, match=re.escape(f"boto3 is missing: {install_command('aws')}")):
        await sync(database, open_source("s3://bucket"))


@pytest.mark.parametrize("text", ["", " ", "s3://", "s3://key:secret@bucket/x", "http://", "a\0b"])
def test_what_is_no_source_is_refused(text: str):
    with pytest.raises(BadRequest):
        open_source(text)
