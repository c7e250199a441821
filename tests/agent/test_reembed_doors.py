"""Collections made anew and checked, at the doors: HTTP and the command line."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import psycopg
import pytest

from agent import Service, open_service
from agent.serve.authentication import Caller, Unauthenticated
from agent.serve.cli import run
from agent.serve.http.app import create_app
from agent.serve.http.endpoints import maintenance
from agent.settings import Settings
from agent.testing import ScriptedServer
from retrievers.ingest.checking import totals_check
from retrievers.ingest.documents import Document

NEW = "openai/new"
DOCUMENTS = [{"id": f"d{n}", "text": f"Penguin {n} walks over ice."} for n in range(12)]


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer(dimension=24) as model:
        yield model


@pytest.fixture
async def service(owner_url: str, service_url: str, model: ScriptedServer) -> AsyncIterator[Service]:
    settings = Settings(
        database_url=owner_url, service_url=service_url, pool_size=4, timeout_s=60, embedders=f"{NEW}={model.base_url}"
    )
    async with open_service(settings) as service:
        yield service


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    async def by_key(authorization: str | None) -> Caller:
        key = (authorization or "").removeprefix("Bearer ")
        if key not in ("acme", "rival"):
            raise Unauthenticated
        return Caller(key, key)

    transport = httpx2.ASGITransport(create_app(service, authenticate=by_key))
    headers = {"Authorization": "Bearer acme"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        yield client


async def carried_out(service: Service) -> None:
    while lease := await service.worker.jobs.lease_next():
        await service.worker.run_job(lease)


async def test_over_http_a_collection_is_given_another_embedder_and_says_so(
    client: httpx2.AsyncClient, service: Service
):
    await client.post("/v1/documents", json={"collection": "docs", "documents": DOCUMENTS})
    accepted = await client.post("/v1/collections/docs/reembed", json={"embedder": NEW})
    assert accepted.status_code == 202
    job = accepted.json()
    assert (job["kind"], job["embedder"], job["status"], job["documents"]) == ("reembed", NEW, "queued", 12)
    described = (await client.get("/v1/collections/docs")).json()
    assert described["embedder"] == "minilm"
    assert described["job"] == {"job_id": job["job_id"], "kind": "reembed", "embedder": NEW, "status": "queued"}
    listed = (await client.get("/v1/jobs")).json()["jobs"]
    assert [one["kind"] for one in listed] == ["reembed", "ingest"]

    await carried_out(service)

    described = (await client.get("/v1/collections/docs")).json()
    assert (described["embedder"], described["dimension"], described["job"]) == (NEW, 24, None)
    assert (await client.get(f"/v1/jobs/{job['job_id']}")).json()["status"] == "done"
    again = await client.post("/v1/collections/docs/reembed", json={"embedder": NEW})
    assert (again.status_code, "has vectors of openai/new already" in again.text) == (422, True)
    assert (await client.get("/v1/collections/docs/check")).json() == {
        "collection": "docs", "documents": 12, "ok": True, "findings": [],
    }  # fmt: skip


async def test_over_http_only_the_embedders_of_the_settings_can_be_chosen(client: httpx2.AsyncClient, tmp_path: Path):
    await client.post("/v1/documents", json={"collection": "docs", "documents": DOCUMENTS[:1]})
    for name in (f"onnx:{tmp_path}", "fastembed:any", "openai/other", "bedrock/any", "x", "'"):
        refused = await client.post("/v1/collections/docs/reembed", json={"embedder": name})
        assert (refused.status_code, NEW in refused.text) == (422, True), name
    for body in ("{}", '{"embedder": 7}', '{"embedder": ""}', "[", '{"embedder": "minilm", "x": 1}'):
        response = await client.post(
            "/v1/collections/docs/reembed", content=body, headers={"Content-Type": "application/json"}
        )
        assert response.status_code in (400, 422), body
    assert (await client.get("/v1/jobs")).json()["jobs"][0]["kind"] == "ingest"


async def test_over_http_a_job_is_cancelled_and_others_tenants_find_nothing(client: httpx2.AsyncClient):
    await client.post("/v1/documents", json={"collection": "docs", "documents": DOCUMENTS})
    job = (await client.post("/v1/collections/docs/rebuild")).json()
    assert job["kind"] == "rebuild"
    rival = {"Authorization": "Bearer rival"}
    cancel = f"/v1/jobs/{job['job_id']}/cancel"
    for method, path in (
        ("POST", cancel), ("POST", "/v1/collections/docs/rebuild"), ("GET", "/v1/collections/docs/check"),
        ("POST", "/v1/collections/docs/check"),
    ):  # fmt: skip
        assert (await client.request(method, path, headers=rival)).status_code == 404, path
    cancelled = (await client.post(cancel)).json()
    assert (cancelled["status"], cancelled["error"]) == ("failed", "cancelled")
    assert (await client.post(cancel)).status_code == 422
    ingestion = (await client.get("/v1/jobs")).json()["jobs"][-1]
    refused = await client.post(f"/v1/jobs/{ingestion['job_id']}/cancel")
    assert (refused.status_code, "it ingests documents" in refused.text) == (422, True)


async def test_over_http_drift_is_found_and_mended(client: httpx2.AsyncClient, owner_url: str):
    await client.post("/v1/documents", json={"collection": "docs", "documents": DOCUMENTS})
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("UPDATE signalbox.chunk SET embedding = NULL WHERE document_id IN ('d1', 'd2')")
    found = (await client.get("/v1/collections/docs/check")).json()
    assert (found["ok"], [one["kind"] for one in found["findings"]]) == (False, ["vectors"])
    assert found["findings"][0]["examples"] == ["d1", "d2"]
    mended = (await client.post("/v1/collections/docs/check")).json()
    assert (mended["ok"], mended["findings"][0]["mended"]) == (True, True)
    assert (await client.get("/v1/collections/docs/check")).json()["findings"] == []


async def test_over_http_a_key_is_told_nothing_of_documents_that_it_does_not_read(
    client: httpx2.AsyncClient, service: Service, owner_url: str
):
    secret = [Document(f"secret{n}", f"secret{n}", "S", f"Albatross {n}.", readers=("user:7",)) for n in range(4)]
    await client.post("/v1/documents", json={"collection": "docs", "documents": DOCUMENTS})
    await service.ingest(secret, "docs", tenant="acme")
    await service.ingest(secret, "hidden", tenant="acme")
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("UPDATE signalbox.chunk SET embedding = NULL WHERE document_id IN ('d1', 'secret2')")
        connection.execute("UPDATE signalbox.term SET chunks = chunks + 1 WHERE term LIKE 'albatros%'")
    found = await client.get("/v1/collections/docs/check")
    report = found.json()
    assert (report["ok"], report["documents"]) == (False, 12)
    assert {one["kind"]: (one["count"], one["examples"]) for one in report["findings"]} == {
        "vectors": (1, ["d1"]), "terms": (None, []),
    }  # fmt: skip
    assert "secret" not in found.text
    assert "albatros" not in found.text
    job = (await client.post("/v1/collections/docs/rebuild")).json()
    assert job["documents"] == 12
    await carried_out(service)
    done = (await client.get(f"/v1/jobs/{job['job_id']}")).json()
    assert (done["status"], done["documents"], done["done"]) == ("done", 12, 12)
    for method, path in (("GET", "check"), ("POST", "check"), ("POST", "rebuild")):
        unseen = await client.request(method, f"/v1/collections/hidden/{path}")
        assert (unseen.status_code, unseen.json()["errors"][0]["valid"]) == (404, ["docs"]), path


async def test_over_http_a_check_ends_with_its_request_and_names_the_command(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    await client.post("/v1/documents", json={"collection": "docs", "documents": DOCUMENTS})
    monkeypatch.setattr(totals_check, "_FIRST_TERMS", "SELECT pg_sleep(60)::text, %(most)s")
    monkeypatch.setattr(maintenance, "remaining_timeout_s", lambda *given, **more: 1.5)
    for method in ("GET", "POST"):
        late = await client.request(method, "/v1/collections/docs/check", timeout=10)
        assert (late.status_code, late.headers["Retry-After"]) == (503, "60")
        assert late.headers["Content-Type"] == "application/problem+json"
        assert "run `signalbox check docs" in late.json()["detail"]


@pytest.mark.slow
def test_on_the_command_line(
    owner_url: str, model: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    def signalbox(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", owner_url)
    monkeypatch.setenv("SIGNALBOX_EMBEDDERS", f"{NEW}={model.base_url}")
    (tmp_path / "docs.jsonl").write_text("\n".join(map(json.dumps, DOCUMENTS)))
    signalbox("ingest", "docs.jsonl", "--collection", "docs")

    assert signalbox("reembed", "docs", "--embedder", "nonsense")[0] == 2
    assert signalbox("reembed", "none", "--embedder", NEW)[0] == 2
    code, out, err = signalbox("reembed", "docs", "--embedder", NEW, "--json")
    job = json.loads(out)
    assert (code, job["status"], "signalbox serve" in err) == (0, "queued", True)
    assert f"reembed with {NEW} under way" in signalbox("collections", "show", "docs")[1]
    code, out, _ = signalbox("jobs", "cancel", job["id"])
    assert (code, "cancelled" in out) == (0, True)

    code, out, _ = signalbox("reembed", "docs", "--embedder", NEW, "--wait")
    assert (code, f"done     docs: reembed with {NEW}: 12 of 12 documents" in out) == (0, True)
    assert f"embedder {NEW}" in signalbox("collections", "show", "docs")[1]
    assert signalbox("rebuild", "docs", "--wait")[0] == 0
    assert json.loads(signalbox("retrieve", "penguin 3", "--collection", "docs", "--json")[1])["hits"]

    assert signalbox("check")[:2] == (0, "docs: 12 documents, ok\n")
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("UPDATE signalbox.collection SET words = 1")
    code, out, err = signalbox("check", "docs")
    assert (code, "WRONG" in out, "--mend" in err) == (1, True, True)
    code, out, _ = signalbox("check", "docs", "--json")
    (report,) = json.loads(out)
    assert (code, report["ok"], [one["kind"] for one in report["findings"]]) == (1, False, ["counts"])
    code, out, _ = signalbox("check", "--mend")
    assert (code, "repaired" in out) == (0, True)
    assert signalbox("check", "docs")[0] == 0
    assert signalbox("check", "none")[0] == 2


def test_an_embedder_that_is_down_is_said_and_the_job_waits(
    owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", owner_url)
    monkeypatch.setenv("SIGNALBOX_EMBEDDERS", f"{NEW}=http://127.0.0.1:9/v1")
    (tmp_path / "docs.jsonl").write_text("\n".join(map(json.dumps, DOCUMENTS)))
    run(["ingest", "docs.jsonl", "--collection", "docs"])
    capsys.readouterr()
    code = run(["reembed", "docs", "--embedder", NEW, "--wait"])
    captured = capsys.readouterr()
    assert (code, f"the embedder {NEW} is unavailable" in captured.err) == (3, True)
    assert run(["retrieve", "penguin 3", "--collection", "docs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["degraded"] == []


def test_nothing_is_sent_to_an_embedder_that_the_settings_do_not_name(
    owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", owner_url)
    (tmp_path / "docs.jsonl").write_text("\n".join(map(json.dumps, DOCUMENTS)))
    run(["ingest", "docs.jsonl", "--collection", "docs"])
    capsys.readouterr()
    assert run(["reembed", "docs", "--embedder", "openai/elsewhere"]) == 2
    assert "the settings do not name the embedder openai/elsewhere" in capsys.readouterr().err
