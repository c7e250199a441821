"""The HTTP client of providers' APIs and their answers as hits, against a real server that misbehaves."""

import asyncio
import gzip
import json
import logging
import math
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import chain, repeat
from typing import Any

import pytest

from agent.answering.passage_selection import join_adjacent
from agent.testing import Fault, ScriptedServer
from retrievers.core.errors import Unavailable
from retrievers.core.json_limits import UNREADABLE
from retrievers.core.types import Query, Scope
from retrievers.http.json_client import JsonClient, ProviderRefusal
from retrievers.http.provider_hits import (
    MOST_CHARACTERS,
    ProviderHit,
    clean_text,
    convert_provider_hits,
    finite_number,
    json_objects,
    safe_link,
    value_at,
)
from retrievers.http.response_limits import DEFAULT_RESPONSE_LIMITS, BodyReader

KEY = "sk/very+secret key"
QUERY = Query("q", "en", Scope("t", ()), limit=10)
AT = datetime(2026, 11, 20, 8, tzinfo=UTC)


@pytest.fixture
async def client() -> AsyncIterator[JsonClient]:
    client = JsonClient("web", secrets=[KEY, ""])
    yield client
    await client.aclose()


@pytest.fixture(autouse=True)
def no_key_in_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG):
        yield
    assert KEY not in caplog.text


async def failure(client: JsonClient, server: ScriptedServer, **more: Any) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        await client.request_json("GET", f"{server.root_url}/x", headers={"X-Key": KEY}, **more)
    assert KEY not in str(caught.value)
    assert not any(ord(character) < 32 for character in str(caught.value))
    return caught.value


async def test_a_request_is_sent_as_it_was_asked_for(client: JsonClient):
    with ScriptedServer(other=lambda request: {"seen": request.body}) as server:
        answer = await client.request_json(
            "POST", f"{server.root_url}/a", body={"text": "né \ud800"}, headers={"X-Key": "k"}
        )
        await client.request_json("GET", f"{server.root_url}/b?c=1", params={})
        await client.request_json("GET", f"{server.root_url}/b", params={"q": "猫 \udc00&", "count": 5, "none": None})
    assert answer == {"seen": {"text": "né ?"}}
    posted, plain, asked = server.requests
    assert (posted.method, posted.headers["content-type"], posted.headers["x-key"]) == ("POST", "application/json", "k")
    assert plain.path == "/b?c=1"
    assert asked.path in ("/b?q=%E7%8C%AB+%3F%26&count=5", "/b?q=%E7%8C%AB%20%3F%26&count=5")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"detail": {"error": f"Unauthorized: {KEY} is no key"}}, "HTTP 418: Unauthorized: *** is no key"),
        ({"type": "ErrorResponse", "error": {"code": "X", "detail": "not valid"}}, "HTTP 418: not valid"),
        ({"requestId": "1", "error": "sk%2Fvery%2Bsecret%20key", "tag": "T"}, "HTTP 418: ***"),
        ({"errors": [{"message": "one\x1b[31m\n two"}]}, "HTTP 418: one [31m  two"),
        ({"message": "m" * 500}, "HTTP 418: " + "m" * 190),
        ({"message": 17}, "HTTP 418: I'm a Teapot"),
        ("<html>", "HTTP 418: I'm a Teapot"),
        (b"\xff\xfe\xfd", "HTTP 418: I'm a Teapot"),
        ("[" * 50_000, "HTTP 418: I'm a Teapot"),
    ],
)
async def test_an_error_says_what_the_provider_says(client: JsonClient, body: Any, reason: str):
    text = json.dumps(body) if isinstance(body, dict) else body
    with ScriptedServer(faults=[Fault(status=418, body=text)]) as server:
        error = await failure(client, server)
    assert isinstance(error, ProviderRefusal)
    assert (error.status, error.reason, error.retry_after_s) == (418, reason, None)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "fault",
    [Fault(status=500), Fault(status=429, headers={"Retry-After": "0"}), Fault(reset=True), Fault(truncated=True)],
)
async def test_what_may_pass_is_tried_again_once(client: JsonClient, fault: Fault):
    with ScriptedServer(faults=[fault], other=lambda _: {"ok": True}) as server:
        assert await client.request_json("GET", f"{server.root_url}/x") == {"ok": True}
    assert len(server.requests) == 2
    with ScriptedServer(faults=repeat(fault), other=lambda _: {"ok": True}) as server:
        await failure(client, server)
    assert len(server.requests) == 2


@pytest.mark.parametrize("body", ["", "not JSON", "[" * 40, b"\xff\xfe\x00"])
async def test_an_answer_that_is_not_json_is_paid_for_once(client: JsonClient, body: bytes | str):
    with ScriptedServer(faults=repeat(Fault(body=body)), other=lambda _: {}) as server:
        assert (await failure(client, server)).reason == "its answer is not JSON"
    assert len(server.requests) == 1


async def test_a_long_wait_is_reported_and_not_waited_for(client: JsonClient):
    with ScriptedServer(faults=repeat(Fault(status=429, headers={"Retry-After": "30"}))) as server:
        error = await failure(client, server)
    assert (error.retry_after_s, len(server.requests)) == (30.0, 1)


async def test_a_wait_that_there_is_no_time_for_is_reported_as_what_it_is(client: JsonClient):
    with ScriptedServer(faults=repeat(Fault(status=429, headers={"Retry-After": "9"}))) as server:
        error = await failure(client, server, timeout_s=8)
    assert isinstance(error, ProviderRefusal)
    assert (error.status, len(server.requests)) == (429, 1)


async def test_a_wait_may_be_a_date(client: JsonClient):
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    with ScriptedServer(faults=[Fault(status=503, headers={"Retry-After": later})]) as server:
        error = await failure(client, server)
    assert error.retry_after_s == pytest.approx(100, abs=5)


@pytest.mark.parametrize("value", ["nan", "1e999", "soon", "Mon, 32 Foo 2026 99:99:99 GMT", "-5", ""])
async def test_a_wait_that_says_nothing_is_none(client: JsonClient, value: str):
    with ScriptedServer(faults=repeat(Fault(status=429, headers={"Retry-After": value}))) as server:
        error = await failure(client, server)
    assert error.retry_after_s in (None, 0.0)
    assert len(server.requests) == 2


async def test_a_slow_answer_ends_in_time(client: JsonClient):
    with ScriptedServer(faults=[Fault(delay_s=30)]) as server:
        assert (await failure(client, server, timeout_s=0.1)).reason == "no answer within 0.1 s"


async def test_a_redirect_is_not_followed_since_the_key_would_travel(client: JsonClient):
    with ScriptedServer() as other:
        to = Fault(status=302, headers={"Location": f"{other.root_url}/y"}, body="")
        with ScriptedServer(faults=[to]) as server:
            assert (await failure(client, server)).reason == "HTTP 302: Found"
        assert other.requests == []


async def test_a_packed_answer_is_unpacked(client: JsonClient):
    packed = Fault(body=gzip.compress(b'{"a": [1, 2]}'), headers={"Content-Encoding": "gzip"})
    with ScriptedServer(faults=[packed], other=lambda _: {}) as server:
        assert await client.request_json("GET", f"{server.root_url}/x") == {"a": [1, 2]}
    assert server.requests[0].headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize(
    ("body", "encoding", "reason"),
    [
        (b'"' + b"a" * DEFAULT_RESPONSE_LIMITS.bytes + b'"', "identity", "its answer is longer than 4 MiB"),
        (gzip.compress(b" " * 100_000_000), "gzip", "its answer is longer than 4 MiB"),
        (b"no gzip", "gzip", "its answer cannot be unpacked"),
        (gzip.compress(b"{}")[:-12], "gzip", "its answer is not JSON"),
        (b"[" * 25_000, "identity", "its answer has more than 50 levels"),
        (b"[" * 200_000, "identity", f"its answer cannot be parsed: {UNREADABLE}"),
        (b"[" * 51 + b"]" * 51, "identity", "its answer has more than 50 levels"),
        (b"[" + b"[]," * 100_000 + b"0]", "identity", "its answer holds more than 200,000 values"),
        (
            b"[" + b"0," * 50_000 + b"0]",
            "identity",
            "its answer cannot be parsed: it has 50,002 values; at most 50,000 are possible",
        ),
        (b"{}", "br", "its answer has a compression that the request did not accept"),
    ],
    ids=["long", "bomb", "not packed", "cut", "deep", "deeper", "too deep by one", "values", "numbers", "unknown"],
)
async def test_an_answer_is_bounded_however_it_is_packed(client: JsonClient, body: bytes, encoding: str, reason: str):
    fault = Fault(body=body, headers={"Content-Encoding": encoding})
    with ScriptedServer(faults=[fault], other=lambda _: {}) as server:
        assert (await failure(client, server)).reason == reason
    assert len(server.requests) == 1


async def test_whole_numbers_of_thousands_of_digits_are_not_computed(client: JsonClient):
    body = "[" + ",".join(["9" * 4299, "-" + "9" * 4000, "9" * 300, "5", '"' + "9" * 4299 + '"']) + "]"
    with ScriptedServer(faults=[Fault(body=body)], other=lambda _: {}) as server:
        found = await client.request_json("GET", f"{server.root_url}/x")
    assert found == [math.inf, -math.inf, 10**300 - 1, 5, "9" * 4299]


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"{}"), b"x" * 60_000),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1;" + b"x" * 60_000 + b"\r\n \r\n"),
    ],
    ids=["bytes after the end of a packed body", "chunk extensions"],
)
async def test_bytes_that_are_no_part_of_the_body_are_bounded_too(client: JsonClient, head: bytes, piece: bytes):
    start = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + head
    with ScriptedServer(faults=[Fault(head=chain([start], repeat(piece)))]) as server:
        assert (await failure(client, server)).reason == "its answer is longer than 4 MiB"
        assert server.client_disconnected.wait(10)
    assert server.bytes_sent < 50 << 20


async def test_other_tasks_run_while_tiny_parts_without_content_arrive():
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def parts() -> AsyncIterator[bytes]:
        yield gzip.compress(b"{}")
        for _ in range(8_000):
            yield b"x"

    counting = asyncio.create_task(count())
    assert [piece async for piece in BodyReader(DEFAULT_RESPONSE_LIMITS, packed=True).read(parts())] == [b"{}"]
    counting.cancel()
    assert turns > 500


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://127.0.0.1:1/\x00", KEY),
        ("nonsense", KEY),
        ("ftp://127.0.0.1/", KEY),
        ("http://[::1/", KEY),
        ("http://127.0.0.1:1/", KEY + "\r\nX-Other: 1"),
        ("http://127.0.0.1:1/", KEY + "é"),
    ],
)
async def test_an_address_or_a_key_that_cannot_be_sent_is_an_error_without_either(
    client: JsonClient, url: str, key: str
):
    with pytest.raises(Unavailable) as caught:
        await client.request_json("GET", url, headers={"X-Key": key})
    assert "sk/" not in str(caught.value)


# Answers as hits


def ids(found: list[ProviderHit], query: Query = QUERY) -> list[str]:
    return [hit.id.document_id for hit in convert_provider_hits(found, query, "web", at=AT)]


def test_scores_order_the_hits_where_every_one_has_one():
    one, two, three = (
        ProviderHit(text=name, id=name, score=score) for name, score in (("a", 0.2), ("b", 0.9), ("c", 0.2))
    )
    assert ids([one, two, three]) == ["b", "a", "c"]
    assert ids([three, two, one]) == ["b", "a", "c"]  # equal scores: by id
    unscored = ProviderHit(text="d", id="d")
    assert ids([one, unscored, two]) == ["a", "d", "b"]
    assert ids([one, ProviderHit(text="n", id="n", score=math.nan), two]) == ["a", "n", "b"]


def test_a_hit_is_cited_by_its_address_and_marked_untrusted():
    (hit,) = convert_provider_hits(
        [ProviderHit("text", "Title", "https://a.example/p", metadata={"untrusted": False})], QUERY, "web", at=AT
    )
    assert hit.chunk is not None
    assert (hit.id, hit.source) == (("t", "web", "https://a.example/p", 0), "web")
    assert (hit.chunk.url, hit.chunk.title, hit.chunk.start, hit.chunk.end) == ("https://a.example/p", "Title", 0, 4)
    assert hit.chunk.metadata == {"untrusted": True, "retrieved_at": "2026-11-20T08:00:00+00:00"}


def test_passages_of_one_document_are_no_neighbours():
    found = [
        ProviderHit("one", id="d"),
        ProviderHit("two", id="d"),
        ProviderHit("one", id="d"),
        ProviderHit("three", id="d"),
    ]
    chunks = [hit.chunk for hit in convert_provider_hits(found, QUERY, "cloud", at=AT) if hit.chunk]
    assert [chunk.text for chunk in chunks] == ["one", "two", "three"]
    assert [passage.text for passage in join_adjacent(chunks)] == ["one", "two", "three"]


def test_what_is_empty_is_left_out_and_the_rest_cut():
    found = [
        ProviderHit(" \x00\n"),
        ProviderHit("a\x00b\ud800\x1bc"),
        ProviderHit("x" * 30_000),
        *(ProviderHit(f"t{n}") for n in range(20)),
    ]
    hits = convert_provider_hits(found, QUERY, "web", at=AT)
    assert len(hits) == 10
    assert [len(hit.chunk.text) for hit in hits[:2] if hit.chunk] == [3, MOST_CHARACTERS]
    assert hits[0].id.document_id == "web-2"


def test_long_ids_that_begin_alike_stay_apart():
    one, two = ids([ProviderHit("one", id="x" * 600 + "1"), ProviderHit("two", id="x" * 600 + "2")])
    assert one != two
    assert len(one) == len(two) == 500


@pytest.mark.parametrize(
    ("value", "url"),
    [
        (" https://a.example/p?q=1#f ", "https://a.example/p?q=1#f"),
        ("HTTP://a.example", "HTTP://a.example"),
        ("https://a.example/猫", "https://a.example/猫"),
        ("javascript:alert(1)", None),
        ("\x01javascript:alert(1)", None),
        ("data:text/html,x", None),
        ("//a.example", None),
        ("https://a.example/\njavascript:alert(1)", None),
        ('https://a.example/"onmouseover="alert(1)', None),
        ("https://a.example/<script>", None),
        ("https://a.example/\ud800", None),
        ("https://" + "a" * 3000, None),
        (17, None),
        (None, None),
    ],
)
def test_only_web_addresses_are_links(value: object, url: str | None):
    assert safe_link(value) == url


def test_values_of_other_types_are_none():
    assert [finite_number(value) for value in (1, 0.5, math.nan, math.inf, True, "1", None, 10**400)] == [
        1,
        0.5,
        *[None] * 6,
    ]
    assert [clean_text(value) for value in (" a ", 1, None, ["a"])] == ["a", "", "", ""]
    assert json_objects([{"a": 1}, 2, None, [], {}]) == [{"a": 1}, {}]
    assert json_objects({"a": 1}) == json_objects("text") == json_objects(None) == []
    assert value_at({"a": {"b": 1}}, "a", "b") == 1
    assert value_at({"a": [1]}, "a", "b") is value_at(None, "a") is None
