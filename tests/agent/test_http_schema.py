"""Whatever can be made of the OpenAPI document is answered as the document says, and never with a 5xx."""

import asyncio
import sys
from pathlib import Path

import pytest

from agent.serve.http.app import create_app
from agent.serve.process.testing import run_server
from agent.service.factory import open_service
from agent.settings import Settings
from agent.testing import ScriptedServer
from retrievers.ingest.documents import Document

# What a schema cannot say is refused all the same: a filter over a field that no document has, say.
BEYOND_THE_SCHEMA = "positive_data_acceptance"


@pytest.mark.slow
async def test_no_request_that_the_document_allows_or_forbids_is_answered_otherwise_than_it_says(
    owner_url: str, service_url: str, tmp_path: Path
):
    pytest.importorskip("schemathesis")
    with ScriptedServer(lambda _: "We rolled back [1].") as model:
        given = {"llm": "openai/scripted", "llm_base_url": model.base_url, "llm_api_key": "any", "intent": "rules"}
        settings = Settings(database_url=owner_url, service_url=service_url, pool_size=4, **given)
        said, failed = await _tried(settings, tmp_path)
    assert not failed, said


async def _tried(settings: Settings, folder: Path) -> tuple[str, int]:
    """What the made-up requests brought to light, and the exit code that says whether they did."""
    async with open_service(settings) as service:
        await service.ingest([Document("a", "a", "a", "We rolled back.", metadata={"team": "x"})], "notes")
        async with run_server(create_app(service)) as port:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{port}/openapi.json"),
                *("--checks", "all", "--exclude-checks", BEYOND_THE_SCHEMA, "--phases", "fuzzing"),
                *("--max-examples", "8", "--seed", "5", "--request-timeout", "60", "--suppress-health-check", "all"),
                cwd=folder,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            said, _ = await process.communicate()
    return said.decode(), process.returncode or 0


async def test_streams_are_described_by_their_events(owner_url: str, service_url: str):
    async with open_service(Settings(database_url=owner_url, service_url=service_url, pool_size=2)) as service:
        paths = create_app(service).openapi()["paths"]
    contents = [
        answer["content"]["text/event-stream"]["schema"]
        for operations in paths.values()
        for operation in operations.values()
        for answer in operation["responses"].values()
        if "text/event-stream" in answer.get("content", {})
    ]
    assert len(contents) == 2
    assert all(schema["type"] == "object" and "data" in schema["required"] for schema in contents)
