"""The moment as of which a question is asked: a day or a time, with one meaning at every door."""

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from typing import Any

import httpx2
import pytest

from agent.serve.http.app import create_app
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from agent.testing import ScriptedServer
from agent.types import Request
from retrievers.ingest.documents import Document

ASKED = "reports from yesterday"
BAD = ["soon", "", "2026-13-01", "2026-11-31", "2026-11-20T25:00", "2026-11-20 and more", "1700000000", 5, True, [], {}]


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    with ScriptedServer(lambda body: "Nothing.") as model:
        settings = Settings(
            database_url=owner_url, service_url=service_url, time_zone="Asia/Tokyo", intent="rules", loop_calls=0,
            llm="openai/small", llm_base_url=model.base_url,
        )  # fmt: skip
        async with open_service(settings) as service:
            reports = [
                Document(f"r{day}", f"r{day}", "Report", "What was done.", metadata={"published": f"2026-11-{day}"})
                for day in range(10, 28)
            ]
            await service.ingest(reports, "reports")
            yield service


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(create_app(service))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        yield client


def bodies(now: Any) -> dict[str, dict[str, Any]]:
    asked = {"query": ASKED, "collection": "reports", "now": now, "explain": True}
    turns = [{"role": "user", "content": ASKED}]
    own = {"collection": "reports", "now": now, "explain": True}
    return {
        "/v1/retrieve": asked,
        "/v1/augment": asked,
        "/v1/ask": asked,
        "/v1/chat/completions": {"model": "signalbox-prompt", "messages": turns, "signalbox": own},
    }


async def test_a_plain_day_means_at_every_door_what_it_means_on_the_command_line(
    service: Service, client: httpx2.AsyncClient
):
    # The command line hands on the text as it is.
    meant = (await service.retrieve(ASKED, collection="reports", now="2026-11-20")).hits
    assert [hit.document_id for hit in meant] == ["r19"]
    for path, body in bodies("2026-11-20").items():
        answer = await client.post(path, json=body)
        assert answer.status_code == 200, (path, answer.text)
        assert "r19" in answer.text, path
        assert not any(f'"r{day}"' in answer.text for day in (18, 20, 21)), path


@pytest.mark.parametrize("bad", BAD)
async def test_what_is_no_moment_is_refused_with_the_forms_there_are(client: httpx2.AsyncClient, bad: Any):
    for path, body in bodies(bad).items():
        answer = await client.post(path, json=body)
        assert answer.status_code == (400 if "chat" in path else 422), path
        assert "such as 2026-11-20 or 2026-11-20T09:30:00+08:00" in answer.text, path


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("2026-11-20", datetime(2026, 11, 20)),
        (date(2026, 11, 20), datetime(2026, 11, 20)),
        ("2026-11-20T09:30", datetime(2026, 11, 20, 9, 30)),
        ("2026-11-20t09:30:00.5z", datetime(2026, 11, 20, 9, 30, 0, 500_000, UTC)),
        (datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 20, tzinfo=UTC)),
    ],
)
def test_every_form_of_a_moment_is_read(given: Any, meant: datetime):
    assert Request.model_validate({"query": "x", "now": given}).now == meant
