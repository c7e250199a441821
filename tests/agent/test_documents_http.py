"""Documents, files and jobs over HTTP and on the command line."""

import asyncio
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from agent.serve.authentication import Caller, Unauthenticated
from agent.serve.http.app import create_app
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from retrievers.core.collection_schema import read_schema
from retrievers.core.errors import BadRequest
from retrievers.core.metadata import Field
from retrievers.ingest.readers.file_input import read_record
from retrievers.sandbox import ProcessLimits, Sandbox
from retrievers.sync.folder import FolderSource
from retrievers.testing import longest_hold

JSON = {"Content-Type": "application/json"}
DATA: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[1] / "retrievers" / "data_files.py"))


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    settings = Settings(database_url=owner_url, service_url=service_url, pool_size=4, timeout_s=60)
    async with open_service(settings) as service:
        yield service


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(create_app(service, authenticate=by_key))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=ACME) as client:
        yield client


async def by_key(authorization: str | None) -> Caller:
    """Two tenants, whose keys are their names."""
    key = (authorization or "").removeprefix("Bearer ")
    if key not in ("acme", "rival"):
        raise Unauthenticated
    return Caller(key, key)


ACME, RIVAL = {"Authorization": "Bearer acme"}, {"Authorization": "Bearer rival"}


async def until_over(client: httpx2.AsyncClient, job_id: str) -> dict[str, Any]:
    for _ in range(5000):
        job: dict[str, Any] = (await client.get(f"/v1/jobs/{job_id}")).json()
        if job["status"] in ("done", "failed"):
            return job
        await asyncio.sleep(0.02)
    raise AssertionError("the job was never over")


# Documents.


async def test_documents_that_are_not_waited_for_are_accepted_and_then_stored(
    service: Service, client: httpx2.AsyncClient
):
    documents = [{"id": "a", "text": "Penguins march."}, {"id": "b", "text": 7}, {"id": "c", "text": "Seals bark."}]

    answer = await client.post("/v1/documents", json={"collection": "zoo", "documents": documents, "wait": False})
    accepted = answer.json()
    waiting = (await client.get(f"/v1/jobs/{accepted['job_id']}")).json()
    async with service.worker:
        job = await until_over(client, accepted["job_id"])

    assert (answer.status_code, accepted["status"], waiting["status"]) == (202, "queued", "queued")
    assert [job[key] for key in ("documents", "done", "inserted", "updated", "unchanged", "failed_count")] == [
        3, 3, 2, 0, 0, 1,
    ]  # fmt: skip
    (failed,) = job["failed"]
    assert (failed["index"], failed["id"], failed["where"]) == (1, "b", "documents.1")
    assert failed["reason"] == '"text" is a number; it must be text'
    assert (await client.get("/v1/documents/zoo/c")).json()["text"] == "Seals bark."


async def test_documents_that_are_waited_for_leave_a_job_to_look_at(client: httpx2.AsyncClient):
    body = {"collection": "zoo", "documents": [{"id": "a", "text": "Penguins march."}, {"id": "b"}]}

    answer = (await client.post("/v1/documents", json=body)).json()
    job = (await client.get(f"/v1/jobs/{answer['job_id']}")).json()
    listed = (await client.get("/v1/jobs")).json()["jobs"]

    assert {key: answer[key] for key in ("inserted", "updated", "unchanged")} == {
        "inserted": 1, "updated": 0, "unchanged": 0,
    }  # fmt: skip
    assert [(one["index"], one["id"]) for one in answer["failed"]] == [(1, "b")]
    assert (job["status"], job["inserted"], [one["id"] for one in job["failed"]]) == ("done", 1, ["b"])
    assert [one["job_id"] for one in listed] == [answer["job_id"]]


@pytest.mark.parametrize(
    ("documents", "ids"),
    [
        ([{"id": "a"}], ["a"]),
        ([{"id": "a", "text": ""}, {"id": "b", "text": 7}, 9], ["a", "b", None]),
        ([{"id": "a", "text": "x", "metadata": {"n": 1}, "expires_at": "soon"}], ["a"]),
    ],
)
async def test_where_every_document_is_bad_the_status_says_so_and_nothing_is_made(
    service: Service, client: httpx2.AsyncClient, documents: list[Any], ids: list[str | None]
):
    body = {"collection": "zoo", "documents": documents}
    answer = await client.post("/v1/documents", json=body)
    problem = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert problem["type"] == "urn:signalbox:problem:nothing-stored"
    assert [(one["index"], one["id"]) for one in problem["failed"]] == list(enumerate(ids))
    assert all(one["reason"] for one in problem["failed"])

    later = (await client.post("/v1/documents", json=body | {"wait": False})).json()["job_id"]
    async with service.worker:
        jobs = [await until_over(client, id) for id in (problem["job_id"], later)]
        # What failed can be tried again; it is no better by then.
        assert (await client.post(f"/v1/jobs/{later}/retry")).status_code == 202
        again = await until_over(client, later)
        assert (again["status"], again["failed_count"]) == ("failed", len(documents))
    for job in jobs:
        assert (job["status"], job["failed_count"], job["done"]) == ("failed", len(documents), len(documents))
        assert [one["id"] for one in job["failed"]] == ids
        assert job["error"] == "none of its documents could be stored"
    assert (await client.get("/v1/collections")).json()["collections"] == []


async def test_a_bad_document_that_comes_to_a_collection_alone_leaves_the_collection_as_it_was(
    client: httpx2.AsyncClient,
):
    good = {"id": "a", "text": "Penguins march.", "metadata": {"day": "2026-11-20"}}
    assert (await client.post("/v1/documents", json={"collection": "zoo", "documents": [good]})).status_code == 200
    before = (await client.get("/v1/collections/zoo")).json()
    bad = {"id": "b", "text": "Seals bark.", "metadata": {"day": "some day", "keeper": "Ann"}}
    assert (await client.post("/v1/documents", json={"collection": "zoo", "documents": [bad]})).status_code == 422
    assert (await client.get("/v1/collections/zoo")).json() == before
    # Of two, one is stored: that is a success with a failure in it.
    both = {"collection": "zoo", "documents": [bad, good | {"id": "c"}]}
    answer = await client.post("/v1/documents", json=both)
    assert (answer.status_code, answer.json()["inserted"], len(answer.json()["failed"])) == (200, 1, 1)
    # What is there already is no failure.
    assert (await client.post("/v1/documents", json={"collection": "zoo", "documents": [good]})).status_code == 200


BAD = {
    "no object": "7",
    "nothing": "null",
    "a list": "[]",
    "no text": '{"id": "x"}',
    "empty text": '{"text": " \\n "}',
    "text is a number": '{"text": 7}',
    "text is a list": '{"text": ["a"]}',
    "id is a list": '{"id": [], "text": "x"}',
    "id is true": '{"id": true, "text": "x"}',
    "id with a NUL": '{"id": "a\\u0000b", "text": "x"}',
    "id too long": '{"id": "' + "i" * 513 + '", "text": "x"}',
    "id with half a pair": '{"id": "\\ud800", "text": "x"}',
    "title is an object": '{"title": {}, "text": "x"}',
    "url is a number": '{"url": 7, "text": "x"}',
    "metadata is a text": '{"metadata": "red", "text": "x"}',
    "NaN": '{"metadata": {"n": NaN}, "text": "x"}',
    "infinity": '{"metadata": {"n": 1e999}, "text": "x"}',
    "a number of 4,000 digits": '{"metadata": {"n": ' + "9" * 4000 + '}, "text": "x"}',
    "deep": '{"metadata": {"n": ' + "[" * 400 + "]" * 400 + '}, "text": "x"}',
    "metadata too large": '{"metadata": {"n": "' + "x" * 70_000 + '"}, "text": "x"}',
    "public is a text": '{"public": "yes", "text": "x"}',
    "expiry is no day": '{"expires_at": "soon", "text": "x"}',
    "expiry is a number": '{"expires_at": 2030, "text": "x"}',
}


async def test_every_bad_document_between_two_good_ones_loses_nobody_else(client: httpx2.AsyncClient, owner_url: str):
    documents = []
    for n, bad in enumerate(BAD.values()):
        good = {"id": f"good {n}", "text": f"Number {n} is good.", "metadata": {"day": "2026-11-21", "n": n}}
        documents += [json.dumps(good), bad]
    documents.append('{"id": "good end", "text": "The end is good."}')
    body = '{"collection": "zoo", "documents": [' + ", ".join(documents) + "]}"

    first = (await client.post("/v1/documents", content=body, headers=JSON)).json()
    with psycopg.connect(owner_url) as connection:
        select = "SELECT id, xmin::text FROM signalbox.document ORDER BY 1"
        before = connection.execute(select.encode()).fetchall()
        second = (await client.post("/v1/documents", content=body, headers=JSON)).json()
        connection.rollback()
        after = connection.execute(select.encode()).fetchall()

    names = [list(BAD)[one["index"] // 2] for one in first["failed"]]
    assert names == list(BAD)
    assert all(one["index"] % 2 == 1 and one["reason"] for one in first["failed"])
    assert (first["inserted"], second["inserted"], second["updated"]) == (len(BAD) + 1, 0, 0)
    assert second["unchanged"] == len(BAD) + 1
    assert second["failed"] == first["failed"]
    assert before == after


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"documents": [{"text": "x"}]}, "collection"),
        ({"collection": "a/b", "documents": [{"text": "x"}]}, "collection"),
        ({"collection": "", "documents": [{"text": "x"}]}, "collection"),
        ({"collection": "zoo"}, "documents"),
        ({"collection": "zoo", "documents": []}, "documents"),
        ({"collection": "zoo", "documents": {"text": "x"}}, "documents"),
        ({"collection": "zoo", "documents": [{"text": "x"}], "wait": "no"}, "wait"),
        ({"collection": "zoo", "documents": [0] * 10_001}, "documents"),
    ],
)
async def test_a_bad_delivery_is_a_problem_that_names_the_field_and_leaves_no_job(
    client: httpx2.AsyncClient, body: dict[str, Any], where: str
):
    answer = await client.post("/v1/documents", json=body)

    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["errors"][0]["where"] == where
    assert (await client.get("/v1/jobs")).json() == {"jobs": []}


# Files.

FILES = {
    "notes.md": b"---\nteam: red\n---\n# Rollback\n\nWe rolled back.",
    "page.html": b"<html><title>Rollback</title><body><p>We rolled back.</p></body></html>",
    "plain.txt": b"We rolled back.",
    "rows.csv": b"text,team\nWe rolled back.,red\n",
    "rows.tsv": b"text\tteam\nWe rolled back.\tred\n",
    "rows.jsonl": b'{"text": "We rolled back."}\n',
    "list.json": b'[{"text": "We rolled back."}]',
    "LOUD.TXT": b"We rolled back.",
}


async def test_every_form_of_file_becomes_documents(client: httpx2.AsyncClient):
    for name, content in FILES.items():
        answer = await client.put(f"/v1/files/{name.replace('.', '-')}/{name}", content=content)
        assert (answer.status_code, answer.json()["inserted"], answer.json()["failed"]) == (200, 1, []), name


HOSTILE = ["<script>alert(1)</script>.txt", "../../../etc/passwd.txt", "/etc/cron.d/x.txt", "a b/c%d.txt", "名.txt",
           '"><img src=x onerror=alert(1)>.txt', "'; DROP TABLE job; --.txt", "x" * 508 + ".txt"]  # fmt: skip


async def test_a_file_s_name_is_data_and_nothing_is_written_under_it(
    client: httpx2.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for name in HOSTILE:
        path = httpx2.URL("http://localhost/v1/files/zoo/").raw_path + _quoted(name)
        answer = await client.put(path.decode(), content=b"We rolled back.")

        assert answer.json()["failed"] == [], name
        job = (await client.get(f"/v1/jobs/{answer.json()['job_id']}")).json()
        assert job["file"] == name
        document = await client.get((b"/v1/documents/zoo/" + _quoted(name)).decode())
        assert document.json()["id"] == name
        assert document.headers["content-type"] == "application/json"
    assert os.listdir(tmp_path) == []


def _quoted(name: str) -> bytes:
    return "".join(f"%{byte:02X}" for byte in name.encode()).encode()


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("zoo/tool.exe", "name"),
        ("zoo/none", "name"),
        ("zoo/.txt", "name"),
        ("zoo/a%00b.txt", "name"),
        ("zoo/a%09b.txt", "name"),
        ("zoo/a.txt?wait=perhaps", "query.wait"),
        ("a%0Ab/a.txt", "collection"),
        (f"{'x' * 129}/a.txt", "path.collection"),
    ],
)
async def test_a_file_that_cannot_be_read_is_refused_before_it_is_accepted(
    client: httpx2.AsyncClient, path: str, where: str
):
    answer = await client.put(f"/v1/files/{path}", content=b"x")

    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["errors"][0]["where"].endswith(where)
    assert (await client.get("/v1/jobs")).json() == {"jobs": []}


async def test_a_file_with_nothing_to_store_says_why_and_names_no_path_of_this_machine(client: httpx2.AsyncClient):
    for name, content in (("empty.txt", b""), ("bad.pdf", b"%PDF-nothing"), ("bad.docx", b"PK\x03\x04nothing"),
                          ("bad.json", b"{"), ("blank.html", b"<p></p>"), ("noise.md", b"\xff\xfe\xfd")):  # fmt: skip
        answer = await client.put(f"/v1/files/zoo/{name}", content=content)

        assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json"), name
        (failed,) = answer.json()["failed"]
        assert failed["index"] == 0
        assert failed["reason"]
        assert failed["reason"] in answer.json()["detail"]
        assert "/tmp" not in answer.text
    assert (await client.get("/v1/collections")).json()["collections"] == []


async def test_a_file_that_takes_too_long_to_read_is_answered_in_time_and_its_job_says_what_became_of_it(
    owner_url: str, service_url: str, monkeypatch: pytest.MonkeyPatch
):
    sandbox = Sandbox(2, ProcessLimits(cpu_s=5, wait_s=200))
    monkeypatch.setattr("retrievers.ingest.readers.file_input.SANDBOX", sandbox)
    settings = Settings(database_url=owner_url, service_url=service_url, pool_size=4, timeout_s=3)
    async with open_service(settings) as service:
        transport = httpx2.ASGITransport(create_app(service, authenticate=by_key))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=ACME) as client:
            page = DATA["pdf"](DATA["text_on_page"]("word") * 150_000)
            slow = await client.put("/v1/files/zoo/slow.pdf", content=page)
            good = await client.put("/v1/files/zoo/good.html", content=b"<p>Refunds take five days.")
            stored = await until_over(client, good.json()["job_id"])
            job = await until_over(client, slow.json()["job_id"])
    sandbox.close()

    assert (slow.status_code, slow.json()["status"]) == (202, "running")
    assert stored["inserted"] == 1
    assert [one["reason"] for one in job["failed"]] == ["reading it takes more than 5 s of processor time; split it"]


async def test_documents_that_take_longer_than_the_request_are_answered_in_time_and_stored_by_their_job(
    client: httpx2.AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
):
    go_on = asyncio.Event()
    ingest = service.worker._runner._ingest

    async def held(*values: Any, **options: Any) -> Any:
        await go_on.wait()
        return await ingest(*values, **options)

    monkeypatch.setattr(service.worker._runner, "_ingest", held)
    body = {"collection": "zoo", "documents": [{"id": "a", "text": "Penguins march."}], "timeout_s": 0.1}
    async with service.worker:
        late = await client.post("/v1/documents", json=body)
        running = (await client.get(f"/v1/jobs/{late.json()['job_id']}")).json()
        go_on.set()
        job = await until_over(client, running["job_id"])

    problem = late.json()
    assert (late.status_code, problem["type"]) == (503, "urn:signalbox:problem:still-storing")
    assert late.headers["Retry-After"] == "10"
    assert "0 of 1 documents were inserted or updated so far" in problem["detail"]
    assert (running["status"], job["status"], job["inserted"]) == ("running", "done", 1)
    assert (await client.get("/v1/documents/zoo/a")).json()["text"] == "Penguins march."


async def test_documents_without_a_timeout_are_waited_for(
    client: httpx2.AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
):
    deadlines: list[float | None] = []
    deliver = service.worker.run_delivery

    async def seen(*values: Any, deadline: float | None = None) -> Any:
        deadlines.append(deadline)
        return await deliver(*values, deadline=deadline)

    monkeypatch.setattr(service.worker, "run_delivery", seen)
    body = {"collection": "zoo", "documents": [{"id": "a", "text": "Penguins march."}]}
    assert (await client.post("/v1/documents", json=body)).json()["inserted"] == 1
    assert deadlines == [None]


async def test_a_file_over_the_limit_is_refused(client: httpx2.AsyncClient):
    answer = await client.put("/v1/files/zoo/large.txt", content=b"x" * ((8 << 20) + 1))

    assert answer.status_code == 413


async def test_free_memory_is_returned_after_a_large_body_that_is_refused_not_after_a_small_one(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    returned: list[str] = []
    is_returned = asyncio.Event()
    loop = asyncio.get_running_loop()

    def release() -> None:
        returned.append(size)
        loop.call_soon_threadsafe(is_returned.set)

    monkeypatch.setattr("retrievers.core.process_memory.release_memory", release)
    monkeypatch.setattr("agent.serve.http.middleware.request_checks._RELEASE_EVERY_S", 0.0)

    for size in ("small", "large"):
        body = json.dumps({"collection": 5, "documents": ["x" * (1000 if size == "small" else 1 << 20)]})
        answer = await client.post("/v1/documents", content=body, headers=JSON)
        assert answer.status_code == 422

    async with asyncio.timeout(60):
        await is_returned.wait()
    assert returned == ["large"]


@pytest.mark.parametrize("bad", ["", 5, {"text": 7}])
@pytest.mark.parametrize("good", [0, 1])
async def test_thousands_of_bad_documents_are_reported_without_holding_the_event_loop(
    client: httpx2.AsyncClient, bad: Any, good: int
):
    documents = [bad] * 9000 + [{"text": "Penguins march."}] * good
    body = json.dumps({"collection": "zoo", "documents": documents})
    await client.post("/v1/documents", json={"collection": "zoo", "documents": [{"id": "a", "text": "x"}]})
    work = asyncio.create_task(client.post("/v1/documents", content=body, headers=JSON))
    hold = await longest_hold(work)
    answer = work.result()
    assert answer.status_code == (200 if good else 422)
    assert [one["index"] for one in answer.json()["failed"]] == list(range(9000))
    reading = asyncio.create_task(client.get(f"/v1/jobs/{answer.json()['job_id']}"))
    assert max(hold, await longest_hold(reading)) < 0.05
    assert len(reading.result().json()["failed"]) == 9000


# Jobs.


async def test_a_job_of_another_tenant_is_a_404_like_one_that_never_was(client: httpx2.AsyncClient):
    body = {"collection": "zoo", "documents": [{"id": "canary", "text": 7}]}
    id = (await client.post("/v1/documents", json=body)).json()["job_id"]

    for method, path in (("GET", "/v1/jobs/{}"), ("POST", "/v1/jobs/{}/retry")):
        foreign = await client.request(method, path.format(id), headers=RIVAL)
        unknown = await client.request(method, path.format("0" * 32), headers=RIVAL)
        assert (foreign.status_code, unknown.status_code) == (404, 404)
        said = [re.sub(rf'{id}|0{{32}}|"request_id": "\w+"', "", one.text) for one in (foreign, unknown)]
        assert said[0] == said[1]
        assert "canary" not in foreign.text
    assert (await client.get("/v1/jobs", headers=RIVAL)).json() == {"jobs": []}
    assert (await client.get("/v1/jobs", headers={"Authorization": ""})).status_code == 401


async def test_a_retry_stores_what_failed_once_the_reason_is_gone(service: Service, client: httpx2.AsyncClient):
    number = {"id": "first", "text": "x", "metadata": {"n": 1}}
    await client.post("/v1/documents", json={"collection": "zoo", "documents": [number]})
    bad = {
        "collection": "zoo",
        "documents": [{"id": "a", "text": "a"}, {"id": "b", "text": "b", "metadata": {"n": "x"}}],
    }
    answer = (await client.post("/v1/documents", json=bad)).json()
    assert [one["id"] for one in answer["failed"]] == ["b"]
    nothing = await client.post(f"/v1/jobs/{(await client.get('/v1/jobs')).json()['jobs'][1]['job_id']}/retry")

    for id in ("first", "a"):
        await client.delete(f"/v1/documents/zoo/{id}")
    text = {"n": Field("n", "string", "string", declared=True)}
    await service.ingest([read_record(number, "")], "zoo", tenant="acme", schema=text)
    again = await client.post(f"/v1/jobs/{answer['job_id']}/retry")
    async with service.worker:
        job = await until_over(client, answer["job_id"])

    assert (nothing.status_code, nothing.json()["errors"][0]["where"]) == (422, "job_id")
    assert (again.status_code, again.json()["status"], again.json()["failed"]) == (202, "queued", [])
    assert (job["status"], job["failed"]) == ("done", [])
    assert (await client.get("/v1/documents/zoo/b")).status_code == 200


async def test_a_collection_says_which_names_units_and_words_for_a_document_are_declared_and_which_derived(
    client: httpx2.AsyncClient,
):
    schema = {"fields": {"size": {"type": "number", "unit": "kb"}}, "records": ["upload", "上传"]}
    made = await client.put("/v1/collections/archive-7", json=schema)
    records = [{"id": f"arc-{n}", "text": f"Package {n}.", "size": n, "wait_minutes": n, "team": "x"} for n in range(4)]
    await client.post("/v1/documents", json={"collection": "archive-7", "documents": records})
    again = await client.put(
        "/v1/collections/archive-7", json={"fields": {"team": {"type": "string", "description": "who"}}}
    )
    shown = (await client.get("/v1/collections/archive-7")).json()

    fields = {one["name"]: one for one in shown["fields"]}
    assert (made.status_code, made.json()["documents"], again.json()) == (200, 0, shown)
    assert (shown["records"], shown["derived_records"]) == (["upload", "上传"], ["arc", "arcs"])
    assert [fields[name]["unit"] for name in ("size", "wait_minutes", "team")] == ["kb", None, None]
    assert [fields[name]["derived_unit"] for name in ("size", "wait_minutes", "team")] == [None, "minutes", None]
    assert "team" in fields["team"]["names"]
    assert fields["team"]["description"] == "who"


async def test_a_unit_that_no_question_can_say_is_refused_at_every_door(
    client: httpx2.AsyncClient, service: Service, tmp_path: Path
):
    schema = {"fields": {"speed": {"type": "number", "unit": "km/h"}}}
    put = await client.put("/v1/collections/cars", json=schema)
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    (tmp_path / "a.md").write_text("# A car\n\nIt is fast.")
    with pytest.raises(BadRequest, match='the unit "km/h"'):
        await service.ingest([], "cars", schema=read_schema(schema))
    with pytest.raises(BadRequest, match='the unit "km/h"'):
        await service.sync(service.mirror(FolderSource(tmp_path), "cars"))
    with pytest.raises(BadRequest, match='the unit "km/h"'):
        await service.plan_sync(service.mirror(FolderSource(tmp_path), "cars"))

    assert (put.status_code, put.json()["errors"][0]["where"]) == (422, "schema")
    assert 'the unit "km/h"' in put.json()["detail"]
    assert (await client.get("/v1/collections/cars")).status_code == 404


async def test_the_declared_word_for_a_document_is_what_is_counted(client: httpx2.AsyncClient):
    records = [{"id": f"a{n}", "text": f"Package {n}.", "team": "x" if n else "y"} for n in range(4)]
    await client.post("/v1/documents", json={"collection": "c7", "documents": records})
    await client.put("/v1/collections/c7", json={"records": ["上传", "upload"]})

    for question in ("How many uploads are there per team?", "每个 team 有多少上传？"):
        answer = (await client.post("/v1/retrieve", json={"query": question, "collection": "c7"})).json()
        assert sorted(answer["table"]["rows"]) == [["x", 3], ["y", 1]], question


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({}, "a schema is an object like"),
        ({"records": "upload"}, "records"),
        ({"fields": {"n": "string"}}, 'the schema changes the type of "n"'),
        ({"fields": {"n": {"type": "number", "units": "kb"}}}, 'unknown keys: "units"'),
    ],
)
async def test_a_declaration_that_does_not_fit_is_refused_and_changes_nothing(
    client: httpx2.AsyncClient, schema: dict[str, Any], reason: str
):
    await client.post("/v1/documents", json={"collection": "c", "documents": [{"id": "a", "text": "x", "n": 3}]})
    before = (await client.get("/v1/collections/c")).json()

    answer = await client.put("/v1/collections/c", json=schema)

    assert (answer.status_code, reason in str(answer.json())) == (422, True), answer.text
    assert (await client.get("/v1/collections/c")).json() == before


async def test_deleting_a_collection_ends_the_jobs_that_would_make_it_anew(client: httpx2.AsyncClient):
    await client.post("/v1/documents", json={"collection": "zoo", "documents": [{"text": "x"}]})
    waiting = {"collection": "zoo", "documents": [{"text": "y"}], "wait": False}
    id = (await client.post("/v1/documents", json=waiting)).json()["job_id"]

    await client.delete("/v1/collections/zoo")

    job = (await client.get(f"/v1/jobs/{id}")).json()
    assert (job["status"], job["error"]) == ("failed", "the collection was deleted")
    again = await client.post(f"/v1/jobs/{id}/retry")
    assert (again.status_code, again.json()["errors"][0]["where"]) == (422, "job_id")
    assert "its failed documents were deleted since; send them again" in again.text


async def test_deleting_a_document_takes_it_out_of_the_dead_letters(client: httpx2.AsyncClient, owner_url: str):
    await client.post("/v1/documents", json={"collection": "zoo", "documents": [{"id": "a", "text": "x"}]})
    await client.post("/v1/documents", json={"collection": "zoo", "documents": [{"id": "a", "text": 7}]})

    await client.delete("/v1/documents/zoo/a")

    with psycopg.connect(owner_url) as connection:
        assert connection.execute("SELECT document_id, payload FROM signalbox.dead_letter").fetchall() == [("a", None)]


# Processes.


@pytest.fixture
def serve(owner_url: str, service_url: str) -> Iterator[Callable[[], tuple[subprocess.Popen[str], str]]]:
    """Starts `signalbox serve` on the test's database and gives its address."""
    started: list[subprocess.Popen[str]] = []

    def start() -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-c", "from agent.serve.cli import main; main()", "serve", "--port", "0"]
        named = {"DATABASE_URL": owner_url, "SERVICE_URL": service_url, "PROCESSES": "1"}
        environment = os.environ | {f"SIGNALBOX_{name}": value for name, value in named.items()}
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stderr is not None
        address = re.search(r"http://[\d.:]+", process.stderr.readline())
        assert address is not None
        return process, address[0]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.slow
async def test_what_was_accepted_outlives_the_server_and_is_stored_by_the_next(
    serve: Callable[[], tuple[subprocess.Popen[str], str]], owner_url: str
):
    documents = [{"id": f"d{n}", "text": f"Report {n} says that the gear was oiled."} for n in range(200)]
    first, address = await asyncio.to_thread(serve)
    async with httpx2.AsyncClient(base_url=address) as client:
        body = {"collection": "zoo", "documents": documents, "wait": False}
        id = (await client.post("/v1/documents", json=body)).json()["job_id"]
        first.send_signal(signal.SIGKILL)
    with psycopg.connect(owner_url, autocommit=True) as connection:
        # The lease of the dead server, which may have begun, need not be waited for.
        first.wait()
        connection.execute("UPDATE signalbox.job SET free_at = now()")

    _, address = await asyncio.to_thread(serve)
    async with httpx2.AsyncClient(base_url=address) as client:
        job = await until_over(client, id)

    assert (job["status"], job["inserted"], job["failed"]) == ("done", 200, [])


@pytest.mark.slow
async def test_a_server_that_is_told_to_stop_gives_its_job_back(
    serve: Callable[[], tuple[subprocess.Popen[str], str]], owner_url: str
):
    documents = [{"id": f"d{n}", "text": f"Report {n}. " + "The gear was oiled. " * 200} for n in range(1000)]
    process, address = await asyncio.to_thread(serve)
    async with httpx2.AsyncClient(base_url=address) as client:
        body = {"collection": "zoo", "documents": documents, "wait": False}
        id = (await client.post("/v1/documents", json=body)).json()["job_id"]
        for _ in range(1000):
            if (await client.get(f"/v1/jobs/{id}")).json()["status"] == "running":
                break
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait) == 0

    with psycopg.connect(owner_url) as connection:
        row = connection.execute("SELECT status, lease, deaths, free_at <= now() FROM signalbox.job").fetchone()
    assert row == ("queued", None, 0, True)


def command(owner_url: str, service_url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"SIGNALBOX_DATABASE_URL": owner_url, "SIGNALBOX_SERVICE_URL": service_url}
    run = [sys.executable, "-c", "from agent.serve.cli import main; main()", "jobs", *arguments]
    return subprocess.run(run, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
async def test_the_command_line_shows_jobs_and_tries_them_again(service: Service, owner_url: str, service_url: str):
    job = await service.submit("zoo", [{"id": "a", "text": "a"}, {"id": "b\x1b[2J", "text": "b"}, {"id": "c"}])

    listed, shown = await asyncio.gather(
        *(asyncio.to_thread(command, owner_url, service_url, *arguments) for arguments in ([], ["show", job.id]))
    )
    again = await asyncio.to_thread(command, owner_url, service_url, "retry", job.id, "--json")

    assert listed.returncode == 0
    assert f"{job.id}  {job.created_at:%Y-%m-%d %H:%M}" in listed.stdout
    assert "zoo: 3 of 3 documents, 1 added, 0 updated, 0 unchanged, 2 failed" in listed.stdout
    assert "documents.1: the id holds a control character" in shown.stdout
    assert "documents.2 (c): no text" in shown.stdout
    assert (again.returncode, json.loads(again.stdout)["status"]) == (2, "done")
    assert [one["index"] for one in json.loads(again.stdout)["failures"]] == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["show"], ["delete", "x"], ["show", "0" * 32]])
def test_a_wrong_jobs_command_says_what_is_right(owner_url: str, service_url: str, arguments: list[str]):
    done = command(owner_url, service_url, *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(r"use `signalbox jobs`|there is no job", done.stderr)
