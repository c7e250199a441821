"""What nobody should send, over a real socket: each is refused, in the form of a problem that names the field."""

import asyncio
import json
import re
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agent.serve.http import schemas
from agent.serve.http.app import create_app
from agent.serve.http.compatible.openai.vector_stores import VectorStoreSearch
from agent.serve.http.compatible.rerank import RerankV1
from agent.serve.http.json_body import JsonBody
from agent.serve.http.middleware import request_checks
from agent.serve.http.problems import Problem
from agent.serve.process import server
from agent.serve.process.testing import run_server
from agent.serve.request_limits import find_oversized_part
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from agent.types import Request
from retrievers.core import json_limits
from retrievers.ingest.documents import Document
from retrievers.ingest.readers.oversized_records import replace_oversized_records
from retrievers.ingest.readers.record import read_record
from retrievers.testing import processor_s

BAD = Path(__file__).with_name("http_data") / "bad_requests.jsonl"
CHUNK = b"10000\r\n" + b"x" * 65536 + b"\r\n"


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    settings = Settings(database_url=owner_url, service_url=service_url, pool_size=4)
    async with open_service(settings) as service:
        yield service


def spelt(part: str | list[list[Any]]) -> str:
    """A text, or texts with how often each of them comes."""
    return part if isinstance(part, str) else "".join(text * times for text, times in part)


def request_of(one: dict[str, Any], port: int) -> bytes:
    if "raw" in one:
        return spelt(one["raw"]).encode("latin-1") + CHUNK * one.get("chunks", 0)
    body = spelt(one["bytes"]).encode("latin-1") if "bytes" in one else spelt(one.get("body", "")).encode()
    headers = {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(body))}
    headers |= one.get("headers", {"Content-Type": "application/json"} if one["method"] == "POST" else {})
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{one['method']} {spelt(one['path'])} HTTP/1.1\r\n{head}\r\n".encode() + body


async def answer_to(request: bytes, port: int) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to the bytes of a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(60):
        head = b"HTTP/1.1 100 "
        while head.startswith(b"HTTP/1.1 100 "):
            head = await reader.readuntil(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
    writer.close()
    return int(status.split()[1]), headers, body


def flaw(one: dict[str, Any], status: int, headers: dict[str, str], body: bytes) -> str | None:
    """What is wrong with an answer; None when it is as it should be."""
    if (status, headers["content-type"]) != (one["status"], "application/problem+json"):
        return f"{status} {headers['content-type']} {body[:200]!r}"
    problem = json.loads(body)
    if (problem["status"], problem["request_id"]) != (status, headers["x-request-id"]):
        return f"the document says otherwise than the headers: {problem}"
    if not problem["type"].startswith("urn:signalbox:problem:") or not problem["title"] or not problem["detail"]:
        return f"incomplete: {problem}"
    named = [error["where"] for error in problem.get("errors", ())]
    if "where" in one and not any(name.split(".")[-1] == one["where"] or name == one["where"] for name in named):
        return f"names {named}: {problem['detail']}"
    return None


async def test_every_bad_request_is_refused_with_a_problem_that_names_the_field(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(request_checks, "_PIECE_WITHIN_S", 0.5)
    await service.ingest([Document("a", "a", "a", "We rolled back.", metadata={"team": "x", "cost": 3})], "notes")
    bad = [json.loads(line) for line in BAD.read_text(encoding="utf-8").splitlines()]
    wrong = []
    async with run_server(create_app(service)) as port:
        for one in bad:
            found = flaw(one, *await answer_to(request_of(one, port), port))
            if found is not None:
                wrong.append(f"{one['name']} ({one['status']}, {one.get('where')}): {found}")
        good = {"name": "", "method": "POST", "path": "/v1/retrieve", "body": '{"query": "rollback"}'}
        assert (await answer_to(request_of(good, port), port))[0] == 200
    assert not wrong, "\n".join(wrong)
    assert len(bad) >= 240


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ("{" + "".join(f'"k{n}":1,' for n in range(100_000)) + '"k99999":1}', "k99999"),
        (json.dumps(dict.fromkeys(f"k{n}" for n in range(100_000))), "body"),
        (json.dumps({"query": "x", "sources": [1] * 100_000}), "sources"),
        (json.dumps({"query": "x", "metadata": {f"k{n}": [] for n in range(20_000)}}), "metadata"),
        (json.dumps({"query": "x", "advisors": [1] * 32_000}), "advisors"),
        (json.dumps({"messages": [{"role": "user", "content": [1] * 32_000}]}), "messages.0.content"),
    ],
    ids=["one key twice", "unknown keys", "wrong items", "wrong values", "wrong objects", "inner items"],
)
def test_a_body_of_many_faults_is_refused_for_the_first_without_looking_for_the_rest(body: str, where: str):
    """With a search of all keys for each key, or an error for each item, this takes minutes and gigabytes."""
    with pytest.raises(Problem) as caught:
        JsonBody(Request).read(body.encode())
    assert [error.where for error in caught.value.errors] == [where]


@pytest.mark.parametrize(
    ("value", "times"), [("[]", 2_700_000), ("{}", 2_700_000), ("1", 4_000_000), ('"a"', 2_000_000)]
)
@pytest.mark.parametrize("key", ["filter", "zzz", "documents"])
def test_a_body_of_millions_of_values_is_refused_before_it_is_parsed(value: str, times: int, key: str):
    body = (
        f'{{"query": "x", "{key}": {{"type": "in", "key": "city", "value": [{",".join([value] * times)}]}}}}'.encode()
    )
    door = JsonBody(Request) if key != "documents" else JsonBody(schemas.NewDocuments, items="documents")
    tracemalloc.start()
    try:
        with pytest.raises(Problem, match=r"it has .* values") as caught:
            door.read(body)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 2.5 * len(body)  # its values alone would take three to twenty-five times its size
    assert (caught.value.status, [error.where for error in caught.value.errors]) == (422, ["body"])


def test_a_document_with_too_many_lists_or_values_is_refused_alone():
    def reasons(*documents: str) -> list[str]:
        body = f'{{"collection": "x", "documents": [{",".join(documents)}]}}'.encode()
        found = JsonBody(schemas.NewDocuments, items="documents").read(body).documents
        items = [read_record(one, "documents.0") for one in found]
        return [f"{one.id}: {getattr(one, 'reason', 'good')}" for one in items]

    good = '{"id": "g", "text": "a, [b] \\" {c}", "tags": [["x"]]}'
    lists = '{"id": "l\\"1", "a": [' + ",".join(["[]"] * 30_000) + "]}"
    apart = '{"id": "p", "text": "x", "a": [' + ",".join([*["[]"] * 20_000, "{}"] * 2) + "]}"
    keys = '{"_id" : 7, "metadata": {' + ",".join(f'"{n}": 1' for n in range(300_000)) + "}}"
    nameless = '{"metadata": {"a": [' + "{}," * 200_000 + "{}]}}"
    bare = "[" + ",".join(["[]"] * 30_000) + "]"
    empty = '{"id": "e", "text": "x", "metadata": {"m": [' + ",".join(["{}"] * 60_000) + "]}}"
    named = '{"id": "n", "text": "x", "\\u0000unread": "values"}'
    row, crowd = "holds more than 25,000 lists without an object between them", "holds more than 100,000 values"
    assert reasons(good, lists, good, apart, keys, nameless, bare, empty, named) == [
        "g: good", f'l"1: {row}', "g: good", "p: good", f"7: {crowd}", f"None: {crowd}",
        "None: a list where an object was expected", "e: good", "n: good",
    ]  # fmt: skip


def test_a_document_with_more_keys_than_possible_costs_no_more_than_counting_them():
    keys = ",".join(f'"{n:x}": 1' for n in range(700_000))
    body = f'{{"collection": "x", "documents": [{{"metadata": {{{keys}}}}}]}}'.encode()
    door = JsonBody(schemas.NewDocuments, items="documents")
    assert processor_s(lambda: door.read(body)) < 0.5

    def refuse() -> None:
        with pytest.raises(Problem, match="it has more than 10,000 keys"):
            door.read(f"{{{keys}}}".encode())

    assert processor_s(refuse) < 0.5


def test_what_is_not_json_is_returned_as_it_is_though_it_is_crowded():
    for body in (
        b"[" * 200_000,
        b"]" * 200_000 + b"[" * 200_000,
        b'{"a":[{"b":' + b"1," * 200_000,
        b'"' + b"[," * 99_999,
    ):
        assert replace_oversized_records(body) == body


def test_separators_inside_texts_are_not_counted_as_values():
    text = '\\"' + ",[{" * 30_000 + '"\\'
    body = {"messages": [{"role": "user", "content": text}] * 10}
    assert len(JsonBody(Request).read(json.dumps(body).encode()).messages or ()) == 10
    with pytest.raises(Problem, match="objects and lists"):
        JsonBody(Request).read(json.dumps({**body, "zzz": [[]] * 26_000}).encode())


def test_a_large_body_is_read_at_a_cost_per_value_that_is_small():
    body = json.dumps({"query": "x", "filter": {"type": "in", "key": "a", "value": ["x"] * 190_000}}).encode()
    assert processor_s(lambda: JsonBody(Request).read(body)) < 0.4


@pytest.mark.parametrize(
    ("shape", "body", "where", "detail"),
    [
        (VectorStoreSearch, {"query": -1}, "query", "input should be a valid string, or input should be a list"),
        (VectorStoreSearch, {"query": ["x", 5]}, "query.1", "input should be a valid string"),
        (Request, {"query": "x", "metadata": {"a": []}}, "metadata.a", "input should be a valid string"),
        (RerankV1, {"query": "x", "documents": [5]}, "documents.0", "input should be a valid string, or input"),
        (RerankV1, {"query": "x", "documents": [{}]}, "documents.0.text", "field required"),
        (Request, {"query": "x", "sources": {}}, "sources", "input should be a list"),
        (Request, {"query": "x", "filter": []}, "filter", "input should be an object"),
    ],
)
def test_a_fault_is_named_as_the_request_names_the_field(
    shape: type[BaseModel], body: dict[str, Any], where: str, detail: str
):
    with pytest.raises(Problem) as caught:
        JsonBody(shape).read(json.dumps(body).encode())
    assert caught.value.errors[0].where == where
    assert caught.value.errors[0].detail.startswith(detail)
    assert not re.search(r"constrained|-str|\.str\b|list\[|tuple|dictionary|instance", str(caught.value))


def test_what_has_limits_of_its_own_is_not_counted():
    condition = {"type": "in", "key": "id", "value": ["x"] * 20_000}
    body = {"query": "x", "filter": condition, "advisors": [{"name": "guard", "words": ["x"] * 2000}]}
    assert JsonBody(Request).read(json.dumps(body).encode()).filter == condition


def test_counting_ends_at_a_depth_that_no_body_has():
    nested: Any = []
    for _ in range(50_000):
        nested = [nested]
    assert find_oversized_part({"metadata": nested}) is None


async def test_who_connects_and_sends_no_request_is_not_waited_for(service: Service, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_HEAD_WITHIN_S", 0.2)
    async with run_server(create_app(service)) as port:
        status, _, body = await answer_to(b"GET /healthz HTTP/1.1\r\nHost: loc", port)
        assert (status, json.loads(body)["type"]) == (400, "urn:signalbox:problem:malformed-http")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.read(), 120) == b""
        writer.close()


@pytest.mark.parametrize("bad", [b'""', b"7", b'"' + b"x" * 8001 + b'"'])
def test_a_fault_inside_a_list_of_queries_is_named_by_its_place_alone(bad: bytes):
    with pytest.raises(Problem) as caught:
        JsonBody(VectorStoreSearch).read(b'{"query": ["ok", ' + bad + b"]}")
    assert [one.where for one in caught.value.errors] == ["query.1"]
    assert caught.value.detail.startswith("query.1: ")


@pytest.mark.parametrize("piece_bytes", [1, 2, 7, 1000])
def test_texts_are_left_out_of_a_body_piece_by_piece(piece_bytes: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_limits, "_PIECE_BYTES", piece_bytes)
    body = b'{"a":["x,[","",{"b,":"{{"}],"c":"}"}'
    assert b"".join(json_limits._outside_texts(body)) == b"{:[,,{:}],:}"
