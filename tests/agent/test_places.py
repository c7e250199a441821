"""Pages, slides and rows from the file to the citation, through every door."""

import json
import runpy
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from openpyxl import Workbook

from agent.serve.authentication import Caller
from agent.serve.cli import run
from agent.serve.http.app import create_app
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from retrievers.ingest.readers.file_input import read_paths
from retrievers.memory.corpus import build_corpus

DATA: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[1] / "retrievers" / "data_files.py"))
FILLER = "Nothing else is said of this subject on this page of the book."


def paged(*subjects: str) -> bytes:
    """A PDF with a page about each subject, each a passage of its own."""
    pages = []
    for subject in subjects:
        lines = [f"Of {subject}: the {subject} is oiled every year.", *[FILLER] * 20]
        shown = " 0 -20 Td ".join(f"({line}) Tj" for line in lines)
        pages.append(f"BT /F1 12 Tf 72 720 Td {shown} ET ".encode())
    content: bytes = DATA["pdf_pages"](*pages)
    return content


def priced() -> bytes:
    book = Workbook()
    book.active.title = "Spare parts"
    for row in (["Part", "Price in euros"], *([f"washer {n}", n] for n in range(2, 12)), ["propeller", 900]):
        book.active.append(row)
    content: bytes = DATA["saved"](book)
    return content


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    settings = Settings(database_url=owner_url, service_url=service_url, pool_size=4, timeout_s=60, source_timeout_s=60)
    async with open_service(settings) as service:
        yield service


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    async def somebody(authorization: str | None) -> Caller:
        return Caller("acme", "acme")

    transport = httpx2.ASGITransport(create_app(service, authenticate=somebody))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        for name, content in (
            ("book.pdf", paged("rudder", "anchor", "compass")),
            ("parts.xlsx", priced()),
            ("talk.pptx", DATA["slide"](DATA["text_shape"]("<a:p><a:r><a:t>The mast is varnished.</a:t></a:r></a:p>"))),
            ("plain.md", b"The keel is painted."),
        ):
            answer = await client.put(f"/v1/files/ship/{name}", content=content)
            assert answer.json()["failed"] == [], name
        yield client


async def first_citation(client: httpx2.AsyncClient, question: str) -> tuple[Any, Any, str]:
    asked = {"query": question, "collection": "ship", "top_k": 1}
    prompt = (await client.post("/v1/augment", json=asked)).json()
    citation = prompt["citations"][0]
    hit = prompt["hits"][0]
    assert (hit["page"], hit["place"]) == (citation["page"], citation["place"])
    return citation["page"], citation["place"], prompt["prompt"]


async def test_a_citation_says_the_page_the_slide_or_the_rows(client: httpx2.AsyncClient):
    page, place, prompt = await first_citation(client, "When is the compass oiled?")
    assert (page, place) == (3, "page 3")
    assert "[1] book, page 3\n" in prompt

    page, place, prompt = await first_citation(client, "What does the propeller cost?")
    assert (page, place) == (None, "sheet Spare parts, rows 2-12")
    assert "Part: propeller; Price in euros: 900" in prompt

    assert (await first_citation(client, "What is done to the mast?"))[:2] == (None, "slide 1")
    page, place, prompt = await first_citation(client, "What is done to the keel?")
    assert (page, place) == (None, "")
    assert "[1] plain\n" in prompt


async def test_passages_of_several_pages_cited_as_one_say_all_of_them(client: httpx2.AsyncClient):
    asked = {"query": "rudder anchor compass oiled", "collection": "ship", "top_k": 3, "per_document": 3}

    citations = (await client.post("/v1/augment", json=asked)).json()["citations"]

    assert [(one["page"], one["place"]) for one in citations] == [(1, "pages 1-3")]


async def test_places_outlive_a_rebuild_and_a_check_misses_them(
    client: httpx2.AsyncClient, service: Service, owner_url: str
):
    await service.rebuild("ship", tenant="acme")
    while (lease := await service.worker.jobs.lease_next()) is not None:
        await service.worker.run_job(lease)
    assert (await first_citation(client, "When is the compass oiled?"))[:2] == (3, "page 3")
    assert (await service.check("ship", tenant="acme")).findings == ()

    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("UPDATE signalbox.chunk SET places = NULL WHERE document_id = 'book.pdf' AND ordinal = 1")
    found = (await service.check("ship", tenant="acme")).findings
    assert [(one.kind, one.count) for one in found] == [("passages", 1)]
    await service.check("ship", mend=True, tenant="acme")
    assert (await first_citation(client, "When is the anchor oiled?"))[:2] == (2, "page 2")


async def test_a_file_that_comes_again_unchanged_is_unchanged(client: httpx2.AsyncClient):
    again = await client.put("/v1/files/ship/book.pdf", content=paged("rudder", "anchor", "compass"))

    assert (again.json()["unchanged"], again.json()["updated"]) == (1, 0)


@pytest.fixture
def call(
    owner_url: str, service_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What a command prints."""
    for name, value in {"DATABASE_URL": owner_url, "SERVICE_URL": service_url, "TIMEOUT_S": "60"}.items():
        monkeypatch.setenv(f"SIGNALBOX_{name}", value)

    def call(*arguments: str) -> str:
        assert run(arguments) == 0
        return capsys.readouterr().out

    return call


def test_the_command_line_stores_and_cites_them(tmp_path: Path, call: Callable[..., str]):
    (tmp_path / "book.pdf").write_bytes(paged("rudder", "anchor", "compass"))
    call("ingest", str(tmp_path), "--collection", "ship")
    question = ("When is the anchor oiled?", "--collection", "ship", "--top-k", "1")

    assert "  1. book, page 2  [ship/book.pdf#1]" in call("retrieve", *question)
    assert "(book.pdf, page 2, characters" in call("augment", *question)
    assert json.loads(call("augment", *question, "--json"))["citations"][0]["page"] == 2
    assert "[1] book, page 2 (book.pdf)" in call("ask", *question)


def test_a_mirrored_workbook_loses_the_documents_of_sheets_that_it_has_no_more(
    tmp_path: Path, call: Callable[..., str]
):
    def mirrored(*sheets: str) -> dict[str, str]:
        book = Workbook()
        book.remove(book.active)
        for name in sheets:
            for row in (["Part", "Price"], [f"{name} bolt", 2]):
                (book[name] if name in book.sheetnames else book.create_sheet(name)).append(row)
        book.save(tmp_path / "parts.xlsx")
        call("sync", str(tmp_path), "--collection", "parts")
        found = json.loads(call("retrieve", "bolt", "--collection", "parts", "--json"))
        return {hit["document_id"]: hit["place"] for hit in found["hits"]}

    assert mirrored("Old", "New") == {
        "parts.xlsx#Old": "sheet Old, row 2",
        "parts.xlsx#New": "sheet New, row 2",
    }
    assert mirrored("New") == {"parts.xlsx#New": "sheet New, row 2"}


async def test_a_folder_searched_without_a_database_knows_them_too(tmp_path: Path):
    (tmp_path / "book.pdf").write_bytes(paged("rudder", "anchor"))

    corpus = build_corpus(read_paths([tmp_path]), "book")

    assert [one.places.marks[0][1] for one in corpus.chunks if one.places] == [1, 2]
