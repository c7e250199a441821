"""Prompt templates of one's own: what a folder may hold, and what requests, tenants and models get of it."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent.errors import BadSetting
from agent.serve.authentication import Caller, Unauthenticated
from agent.serve.http.app import create_app
from agent.service.factory import open_service
from agent.settings import Settings
from agent.testing import ScriptedServer
from prompts import BadTemplate, open_library, packaged_templates
from retrievers.core.types import Chunk, ChunkId
from retrievers.ingest.documents import Document

TENANTS = {"Bearer a": "default", "Bearer b": "acme", "Bearer c": "../acme"}
OWN = '+++\npurpose = "P"\ninputs = ["question", "passages", "fence"]\n+++\n'
ANSWER = "It stops in the wind [1]."
QUESTION = {"query": "When does the rotor stop?", "intent": "rules"}
ROTOR = Document("r", "r", "Rotor", "The rotor stops when the wind is fast.", metadata={"team": "blue", "page": 7})


def write(folder: Path, name: str, text: str) -> str:
    """Put a template into a folder; gives the digest that traces show of it."""
    file = folder / f"{name}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of templates for everybody, and for two tenants."""
    write(tmp_path, "answer/v2", OWN + "OURS $question $passages $fence")
    write(tmp_path, "answer/brief", OWN + "BRIEFLY $question $passages $fence")
    write(tmp_path, "tenants/acme/answer/v1", OWN + "ACME $question $passages $fence")
    write(tmp_path, "tenants/acme/answer/legal", OWN + "LEGAL $question $passages $fence")
    write(tmp_path, "tenants/..%2Facme/answer/v1", OWN + "ODD $question $passages $fence")
    (tmp_path / "README").write_text("not a stage")
    (tmp_path / ".git").mkdir()
    return tmp_path


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    def reply(body: dict[str, Any]) -> str:
        said = str(body["messages"])
        if "You turn one question" in said and "How many" in said:
            return '{"kind": "aggregate", "question": "q", "searches": [], "aggregate": null}'
        if "You turn one question" in said:
            return '{"kind": "retrieve", "question": "q", "searches": ["rotor", "zebras"], "filter": null}'
        return '{"parts": [{"part": "p", "answered": true, "by": [1]}]}' if "enough to answer" in said else ANSWER

    with ScriptedServer(reply) as server:
        yield server


@pytest.fixture
def settings(owner_url: str, service_url: str, model: ScriptedServer) -> Settings:
    return Settings(
        database_url=owner_url, service_url=service_url, pool_size=4, llm="openai/m", llm_api_key="sk",
        llm_base_url=model.base_url, timeout_s=60, answer_timeout_s=120, loop_calls=0,
    )  # fmt: skip


@asynccontextmanager
async def asking(settings: Settings, **changes: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the service, which has one document for each of three tenants."""

    async def authenticate(authorization: str | None) -> Caller:
        if authorization not in TENANTS:
            raise Unauthenticated("the key is unknown")
        return Caller(TENANTS[authorization], "key")

    async with open_service(settings.model_copy(update=changes)) as service:
        for tenant in TENANTS.values():
            await service.ingest([ROTOR], "docs", tenant=tenant)
        transport = httpx2.ASGITransport(create_app(service, authenticate=authenticate))
        headers = {"Authorization": "Bearer a"}
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            yield client


async def prompt_of(client: httpx2.AsyncClient, key: str = "a", **more: Any) -> dict[str, Any]:
    answer = await client.post("/v1/augment", json={**QUESTION, **more}, headers={"Authorization": f"Bearer {key}"})
    return {"code": answer.status_code, **answer.json()}


async def test_a_folder_lies_over_the_packaged_templates_and_the_trace_has_its_digest(settings: Settings, own: Path):
    async with asking(settings, prompts=own) as client:
        made = await prompt_of(client)
        assert made["prompt"].startswith("OURS When does the rotor stop?")
        trace = (await client.get(f"/v1/traces/{made['trace_id']}")).json()
        digest = hashlib.sha256((own / "answer/v2.md").read_bytes()).hexdigest()[:12]
        system = packaged_templates().load("system")
        assert trace["prompts"] == {"answer/v2": digest, system.name: system.digest}
        again = (await client.post(f"/v1/traces/{made['trace_id']}/replay", json={})).json()
        assert again["prompt"] == made["prompt"]


async def test_a_request_chooses_an_answer_template_by_name_and_no_other(settings: Settings, own: Path):
    async with asking(settings, prompts=own) as client:
        assert (await prompt_of(client, template="answer/brief"))["prompt"].startswith("BRIEFLY")
        assert (await prompt_of(client, template="answer/v1"))["prompt"].startswith("User request: When does")
        assert (await prompt_of(client, template="answer"))["prompt"].startswith("OURS")
        # The rerank template takes what an answer's does, and acme's are not for others.
        for name in ("intent/v2", "rerank", "rerank/v1", "answer/legal", "../answer/v1", "answer/v9", "", "tenants"):
            refused = await prompt_of(client, template=name)
            assert refused["code"] == 422, name
            (error,) = refused["errors"]
            assert error["where"] == "template"
            assert error["valid"] == ["answer/brief", "answer/v1", "answer/v2"]


async def test_a_tenant_has_its_own_and_its_name_is_never_a_path(settings: Settings, own: Path):
    async with asking(settings, prompts=own) as client:
        assert (await prompt_of(client, "b"))["prompt"].startswith("ACME")
        assert (await prompt_of(client, "b", template="answer/legal"))["prompt"].startswith("LEGAL")
        assert (await prompt_of(client, "b", template="answer/brief"))["prompt"].startswith("BRIEFLY")
        assert (await prompt_of(client, "c"))["prompt"].startswith("ODD")
        assert (await prompt_of(client, "a"))["prompt"].startswith("OURS")
        refused = await prompt_of(client, "b", template="system")
        assert refused["errors"][0]["valid"] == ["answer/brief", "answer/legal", "answer/v1", "answer/v2"]


async def test_every_door_that_answers_takes_the_template(settings: Settings, own: Path, model: ScriptedServer):
    async with asking(settings, prompts=own) as client:
        await client.post("/v1/ask", json={**QUESTION, "template": "answer/brief"})
        assert model.requests[-1].body["messages"][-1]["content"].startswith("BRIEFLY")
        chat = {"model": "signalbox", "messages": [{"role": "user", "content": QUESTION["query"]}]}
        options = {"intent": "rules", "template": "answer/brief"}
        await client.post("/v1/chat/completions", json={**chat, "signalbox": options})
        assert model.requests[-1].body["messages"][-1]["content"].startswith("BRIEFLY")
        options["template"] = "judge/v1"
        refused = await client.post("/v1/chat/completions", json={**chat, "signalbox": options})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "signalbox.template"
        assert "there are: answer/brief, answer/v1, answer/v2" in refused.json()["error"]["message"]


async def test_the_stages_before_the_answer_use_the_tenants_templates(
    settings: Settings, tmp_path: Path, model: ScriptedServer
):
    """Of each stage that asks the model, the packaged text with a word before it."""
    stages = ("intent", "rewrite", "rerank", "sufficiency", "judge", "system", "sql", "summary")
    for stage in stages:
        standard = packaged_templates().load(stage)
        output = f'output = "{standard.output}"\n' if standard.output else ""
        text = f"+++\ninputs = {list(standard.inputs)}\n{output}+++\nOWN-{stage} {standard.text}"
        write(tmp_path / "tenants" / "acme", f"{stage}/v1", text)

    changes = {"transforms": ("rewrite",), "reranker": "llm", "judge": "llm", "loop_calls": 2, "prompts": tmp_path}

    async def heard(client: httpx2.AsyncClient, key: str) -> str:
        model.requests.clear()
        asked = {"query": "When does the rotor stop, and who paints zebras and giraffes?", "intent": "llm"}
        answered = await client.post("/v1/ask", json=asked, headers={"Authorization": f"Bearer {key}"})
        assert answered.status_code == 200
        asked["query"] = "How many pages has every second team but the blue one?"
        await client.post("/v1/ask", json=asked, headers={"Authorization": f"Bearer {key}"})
        turns = [{"role": ("user", "assistant")[n % 2], "content": f"turn {n}"} for n in range(25)]
        chat = {"model": "signalbox", "messages": turns, "signalbox": {"conversation": "c", "intent": "rules"}}
        await client.post("/v1/chat/completions", json=chat, headers={"Authorization": f"Bearer {key}"})
        async with asyncio.timeout(60):
            while "You keep the notes" not in str([one.body for one in model.requests]):  # noqa: ASYNC110 - no event says it
                await asyncio.sleep(0.05)
        return "\n".join(str(request.body) for request in model.requests)

    async with asking(settings, **changes) as client:
        said = await heard(client, "b")
        await client.post(
            "/v1/rerank", json={"query": "q", "documents": ["a", "b"]}, headers={"Authorization": "Bearer b"}
        )
        said += str(model.requests[-1].body)
        found = {stage for stage in stages if f"OWN-{stage}" in said}
        assert found == set(stages)
        assert "OWN-" not in await heard(client, "a")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "answer/v2",
            OWN + "$question $passage $fence",
            [
                '"$passage" is not among its inputs; valid: question, passages, fence',
                "declares ['fence', 'passages', 'question']",
            ],
        ),
        ("answer/v2", OWN + "$question $passages $fence costs $5", ['"$5" is not a placeholder', "$$"]),
        (
            "answer/v2",
            '+++\ninputs = ["question", "passages", "fence", "user"]\n+++\n$question $passages $fence $user',
            ['the placeholder "$user" gets no value in this stage', "valid: question, passages, fence"],
        ),
        (
            "answer/v2",
            '+++\ninputs = ["question", "passages"]\n+++\n$question $passages',
            ['it must use the placeholder "$fence"', "valid: question, passages, fence"],
        ),
        ("intent/v3", OWN + "$question $passages $fence", ['"$passages"', "valid: languages, called, sources"]),
        (
            "judge/v2",
            '+++\ninputs = ["passages", "sentences", "fence"]\n+++\n$passages $sentences $fence',
            ["it declares no output", 'this stage needs output = "agent.judge:Verdicts"'],
        ),
        (
            "answer/v2",
            '+++\ninputs = ["question", "passages", "fence"]\noutput = "agent.judge:Verdicts"\n+++\n'
            "$question $passages $fence",
            ['it declares output = "agent.judge:Verdicts"', "this stage needs no output"],
        ),
        ("anwser/v1", OWN, ["there is no such stage", "answer, compress"]),
        ("answer/V2", OWN, ["name the template v1.md"]),
        ("judge/strict", OWN, ["name the template v1.md"]),
        ("answer/v2", "no head", ["has no head between +++ lines"]),
        ("answer/v2", "+++\ninputs = [\n+++\nx", ["answer/v2.md: "]),
        ("tenants/acme/answer/v1", OWN + "$question", ["tenants/acme/answer/v1.md declares"]),
        ("answer/v2", OWN + "x" * 100_001, ["has more than 100,000 bytes"]),
    ],
)
async def test_a_bad_template_is_one_line_at_start_that_says_what_is_valid(
    tmp_path: Path, name: str, text: str, said: list[str]
):
    write(tmp_path, name, text)
    with pytest.raises(BadSetting) as refused:
        async with open_service(Settings(database_url="postgresql://127.0.0.1:1/none", prompts=tmp_path)):
            pytest.fail("it started")
    line = str(refused.value)
    assert line.startswith(f"setting PROMPTS: {tmp_path / name.rpartition('/')[0]}")
    assert "\n" not in line
    assert [one for one in said if one not in line] == []


def test_files_that_cannot_be_read_and_folders_that_clash_are_refused(tmp_path: Path):
    with pytest.raises(BadTemplate, match=r"the folder .*nowhere cannot be read"):
        open_library(tmp_path / "nowhere")
    (tmp_path / "answer").mkdir()
    (tmp_path / "answer/v2.md").write_bytes(b"+++\n\xff")
    with pytest.raises(BadTemplate, match=r"v2.md cannot be read"):
        open_library(tmp_path)
    (tmp_path / "answer/v2.md").unlink()
    for folder in ("a%2Fb", "a%2fb"):
        write(tmp_path, f"tenants/{folder}/answer/v1", OWN + "$question $passages $fence")
    with pytest.raises(BadTemplate, match='another folder also belongs to the tenant "a/b"'):
        open_library(tmp_path)


def test_a_file_of_windows_and_one_that_leaves_inputs_out_are_taken(tmp_path: Path):
    (tmp_path / "answer").mkdir()
    text = "\ufeff" + (OWN + "One\n$question $passages $fence").replace("\n", "\r\n")
    (tmp_path / "answer/v2.md").write_bytes(text.encode())
    write(tmp_path, "intent/v1", (Path(__file__).parents[2] / "prompts/intent/v1.md").read_text(encoding="utf-8"))
    library = open_library(tmp_path)
    assert library.load("answer").text == "One\n$question $passages $fence"
    # One's own folder wins the stage, whatever the number: a newer release does not take it away.
    intent = library.load("intent")
    assert intent.name == "intent/v1"
    values = {name: f"<{name}>" for name in packaged_templates().load("intent").inputs}
    assert "<question>" in intent.render(values)
    assert "<collections>" not in intent.render(values)
    with pytest.raises(BadTemplate, match="takes"):
        intent.render({**values, "more": "x"})


async def test_a_prompt_shows_the_metadata_that_the_setting_names(settings: Settings):
    async with asking(settings, prompt_fields="page; other=team") as client:
        assert "page: 7" in (made := (await prompt_of(client))["prompt"])
        assert "team" not in made
    async with asking(settings, prompt_fields="page; docs=team") as client:
        assert "team: blue" in (made := (await prompt_of(client))["prompt"])
        assert "page" not in made
    async with asking(settings, prompt_fields="docs=") as client:
        made = await prompt_of(client)
        assert not {"page: 7", "team: blue"} & set(made["prompt"].splitlines())
        assert made["hits"][0]["metadata"] == {"team": "blue", "page": 7}
    async with asking(settings) as client:
        assert {"page: 7", "team: blue"} <= set((await prompt_of(client))["prompt"].splitlines())


def test_named_metadata_is_shown_in_its_order_nested_and_cut_to_what_there_is_room_for():
    from agent.options.prompt_fields import keep_prompt_fields, parse_prompt_fields

    metadata = {"a": "1", "long": "word " * 40, "of": {"b": 2}, "list": ["x" * 50, "y" * 50]}
    chunk = Chunk(ChunkId("t", "docs", "d", 0), "T", "text", metadata=metadata)
    made = keep_prompt_fields(chunk, parse_prompt_fields("of.b, long, none, list, a")).metadata
    assert list(made) == ["of.b", "long", "list", "a"]
    assert made["of.b"] == 2
    assert made["long"] == ("word " * 40)[:79].rstrip() + "…"
    assert made["list"] == "x" * 50 + ", " + "y" * 27 + "…"
    assert keep_prompt_fields(chunk, parse_prompt_fields("*=")).metadata == {}
    assert keep_prompt_fields(chunk, parse_prompt_fields("other=a")) is chunk


@pytest.mark.parametrize("text", ["=a", "a; b", "x=a;x=b", ",".join("abcdefghijk")])
def test_a_setting_of_fields_that_says_nothing_clear_is_refused(text: str):
    with pytest.raises(ValueError, match=r"no collection|twice|at most 10"):
        Settings(prompt_fields=text)
