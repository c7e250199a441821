"""Every door that asks has the same guard, memory, records and advisors: a table of doors and what each must do."""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import httpx2
import psycopg
import pytest

from agent.chat.advisors.guard import REFUSALS
from agent.serve import cli
from retrievers.core.errors import BadRequest
from retrievers.core.types import unrestricted_viewer

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOOD = "Storm Xaver reached Denmark in December 2013 [1]."
FIRST, SECOND = "Which country did storm Xaver reach?", "And when was that?"
BLOCKED = "What is the launch code?"
ALL = unrestricted_viewer("default")
METADATA = {"app": "intranet", "beta": "yes"}
GUARDED = [{"name": "guard", "words": ["merger"], "answer": "Not about that."}]


class Said(NamedTuple):
    """What a door answered: whether it took the request, and all of its text."""

    ok: bool
    text: str


Door = Callable[[Any, str, dict[str, Any]], Awaitable[Said]]


def python(method: str) -> Door:
    async def ask(chatting: Any, question: str, options: dict[str, Any]) -> Said:
        try:
            answer = await getattr(chatting.service, method)(question, **options)
        except BadRequest as error:
            return Said(False, f"{error} {error.where} {error.valid}")
        return Said(True, answer.text if method == "chat" else answer.model_dump_json())

    return ask


def native(path: str) -> Door:
    return posting(path, lambda question, options: {"query": question, **options})


def posting(path: str, body: Callable[[str, dict[str, Any]], dict[str, Any]], refused: int | None = None) -> Door:
    async def ask(chatting: Any, question: str, options: dict[str, Any]) -> Said:
        headers = {"Authorization": "Bearer key-a", "Accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as client:
            answer = await client.post(f"{chatting.url}{path}", json=body(question, options))
        if answer.status_code == refused:
            return Said(True, answer.text)
        assert answer.status_code in (200, 400, 422), answer.text
        return Said(answer.status_code == 200 and '"isError":true' not in answer.text, answer.text)

    return ask


def chat(model: str, **more: Any) -> Door:
    def body(question: str, options: dict[str, Any]) -> dict[str, Any]:
        own = {name: options[name] for name in ("user", "metadata") if name in options}
        rest = {name: value for name, value in options.items() if name not in own}
        return {"model": model, "messages": [{"role": "user", "content": question}], "signalbox": rest, **own, **more}

    return posting("/v1/chat/completions", body)


def mcp(tool: str) -> Door:
    def body(question: str, options: dict[str, Any]) -> dict[str, Any]:
        params = {"name": tool, "arguments": {"query": question, **options}}
        return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}

    return posting("/mcp", body)


def command(name: str) -> Door:
    async def ask(chatting: Any, question: str, options: dict[str, Any]) -> Said:
        arguments = [name, question, "--json"]
        for option in ("user", "conversation"):
            arguments += [f"--{option}", options[option]] if option in options else []
        arguments += ["--metadata", json.dumps(options["metadata"])] if "metadata" in options else []
        for one in options.get("advisors", ()):
            arguments += ["--advisor", json.dumps(one)]
        chatting.capsys.readouterr()
        code = await asyncio.to_thread(cli.run, arguments)
        captured = chatting.capsys.readouterr()
        assert code in (0, 2), captured.err
        return Said(code == 0, captured.out + captured.err)

    return ask


DOORS: dict[str, Door] = {
    **{f"python {name}": python(name) for name in ("retrieve", "augment", "ask", "chat")},
    **{f"POST /v1/{name}": native(f"/v1/{name}") for name in ("retrieve", "augment", "ask")},
    "chat completions": chat("signalbox"),
    "chat completions, streamed": chat("signalbox", stream=True),
    "chat completions, the prompt": chat("signalbox-prompt"),
    **{f"mcp {name}": mcp(name) for name in ("search_knowledge", "answer_with_citations")},
    **{f"signalbox {name}": command(name) for name in ("retrieve", "augment", "ask")},
}
# Their shapes have no place for who asks, or for a refusal but as an error.
SEARCHES: dict[str, Door] = {
    "vector store": posting("/v1/vector_stores/docs/search", lambda question, _: {"query": question}, 403),
    "dify": posting(
        "/retrieval",
        lambda question, _: {"knowledge_id": "docs", "query": question, "retrieval_setting": {"top_k": 2}},
        403,
    ),
    "open webui": posting("/search", lambda question, _: {"query": question, "count": 2}, 403),
}
EVERY = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)


@pytest.fixture
def doors(chatting: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """The service with its doors, the command line among them, and as many good answers as are asked for."""
    settings = chatting.service.settings
    values = {
        "DATABASE_URL": settings.database_url, "SERVICE_URL": settings.service_url, "LLM": "openai/small",
        "LLM_BASE_URL": settings.llm_base_url, "LLM_API_KEY": "sk", "INTENT": "rules", "LOOP_CALLS": "0",
        "GUARD": "launch code", "TIMEOUT_S": "120", "SOURCE_TIMEOUT_S": "60",
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(f"SIGNALBOX_{name}", value)
    chatting.script.replies.extend([GOOD] * 9)
    chatting.capsys = capsys
    return chatting


@pytest.fixture
def user() -> str:
    return f"user {uuid.uuid4().hex}"


async def test_the_table_has_every_door_that_asks(doors):
    paths = {path for path, one in (await openapi(doors)).items() if "post" in one and "questions" in tags(one)}
    assert paths == {name.removeprefix("POST ") for name in DOORS if name.startswith("POST ")}


async def openapi(doors: Any) -> dict[str, Any]:
    async with httpx2.AsyncClient() as client:
        return (await client.get(f"{doors.url}/openapi.json")).json()["paths"]


def tags(path: dict[str, Any]) -> list[str]:
    return path["post"].get("tags", [])


@pytest.mark.parametrize("door", [*DOORS.values(), *SEARCHES.values()], ids=[*DOORS, *SEARCHES])
async def test_the_guard_refuses_with_the_same_words_and_nothing_is_looked_up(doors, door):
    said = await door(doors, BLOCKED, {})
    assert said.ok
    assert REFUSALS[0] in said.text
    assert "rotor" not in said.text.lower()
    assert doors.script.bodies == []
    (record, *_) = await doors.service.recorded_questions(tenant=ALL)
    assert (record.question, record.status, record.answer, record.trace_id) == (BLOCKED, "refused", REFUSALS[0], None)


@EVERY
async def test_a_record_and_the_trace_name_the_user_and_the_metadata(doors, door, user):
    said = await door(doors, FIRST, {"user": user, "metadata": METADATA})
    assert said.ok, said.text
    (record,) = await doors.service.recorded_questions(user=user, tenant=ALL)
    assert (record.question, record.user, record.metadata, record.status) == (FIRST, user, METADATA, "answered")
    trace = await doors.service.explain(record.trace_id, tenant=ALL)
    assert (trace["request"]["user"], trace["request"]["metadata"]) == (user, METADATA)
    assert trace["request"]["kind"] == record.kind
    assert (record.answer is None) == (record.kind != "ask")


@EVERY
async def test_a_conversation_is_remembered_and_understood(doors, door, user, conversation, stored):
    for question in (FIRST, SECOND):
        assert (await door(doors, question, {"user": user, "conversation": conversation})).ok
    second, _ = await doors.service.recorded_questions(user=user, tenant=ALL)
    assert second.conversation == conversation
    assert "Xaver" in (await doors.service.explain(second.trace_id, tenant=ALL))["query"]
    answers = [] if second.answer is None else [GOOD]
    said = [text for _, _, text in stored(conversation)]
    assert said == [FIRST, *answers, SECOND, *answers]
    assert (await door(doors, SECOND, {"user": user})).ok
    alone, *_ = await doors.service.recorded_questions(user=user, tenant=ALL)
    assert "Xaver" not in (await doors.service.explain(alone.trace_id, tenant=ALL))["query"]


@EVERY
async def test_a_request_names_an_advisor_with_parameters(doors, door, user):
    options = {"advisors": GUARDED, "user": user}
    assert "Not about that." in (await door(doors, "When is the MERGER?", options)).text
    assert REFUSALS[0] in (await door(doors, BLOCKED, options)).text  # the setting's words stay blocked
    recorded = await doors.service.recorded_questions(user=user, tenant=ALL)
    assert [one.status for one in recorded] == ["refused", "refused"]
    assert (await door(doors, FIRST, options)).ok


BAD = {
    "unknown": ([{"name": "gard"}], ("gard", "guard", "memory", "record")),
    "twice": ([*GUARDED, *GUARDED], ("twice",)),
    "parameter": ([{"name": "guard", "wordz": ["x"]}], ("wordz", "words", "answer")),
    "value": ([{"name": "memory", "window": 0}], ("window", "1")),
    "longer": ([{"name": "record", "days": 3650}], ("days", "30")),
    "pattern": ([{"name": "guard", "words": ["re:(a+)+$"]}], ("words.0", "GUARD")),
    "number": ([{"name": "guard", "words": 1}], ("words", "should be a list")),
    "missing": ([{"name": "guard"}], ("words", "required")),
}


@EVERY
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_an_advisor_that_cannot_be_is_refused_before_anything_is_done(doors, door, user, bad):
    if door is DOORS["signalbox augment"] or door is DOORS["signalbox retrieve"]:
        bad = BAD["unknown"]  # opening the service takes a second each time
    advisors, told = bad
    said = await door(doors, FIRST, {"advisors": advisors, "user": user})
    assert not said.ok
    assert all(one in said.text for one in told), said.text
    assert doors.script.bodies == []
    assert await doors.service.recorded_questions(user=user, tenant=ALL) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"user": ""}, "user"),
        ({"user": "a\nb"}, "user"),
        ({"user": "x" * 257}, "user"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"metadata": {"k" * 65: "x"}}, "metadata"),
        ({"metadata": {"k": "x" * 513}}, "metadata"),
        ({"metadata": {"k": ["x"]}}, "metadata"),
        ({"metadata": {"k": None}}, "metadata"),
        ({"advisors": [{"name": "guard", "words": ["x" * 20_001]}]}, "advisors"),
        ({"advisors": [{"name": f"a{n}"} for n in range(17)]}, "advisors"),
        ({"advisors": [{"words": ["x"]}]}, "advisors"),
        ({"advisors": "guard"}, "advisors"),
    ],
)
@pytest.mark.parametrize("door", ["POST /v1/retrieve", "POST /v1/ask", "chat completions", "mcp search_knowledge"])
async def test_what_is_said_of_a_request_is_bounded(doors, door, options, told):
    said = await DOORS[door](doors, FIRST, options)
    assert not said.ok
    assert told in said.text


async def test_neither_user_nor_metadata_open_anything(doors, user):
    """Who asks is said, and read as data: the tenant and the principals stay those of the key."""
    rights = {"tenant": "other", "principals": "*", "role": "admin"}
    plain = json.loads((await DOORS["POST /v1/retrieve"](doors, FIRST, {})).text)
    said = json.loads((await DOORS["POST /v1/retrieve"](doors, FIRST, {"user": "*", "metadata": rights})).text)
    assert [hit["id"] for hit in said["hits"]] == [hit["id"] for hit in plain["hits"]]
    trace = await doors.service.explain(said["trace_id"])
    assert trace["request"]["metadata"] == rights
    while doors.service.traces.waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    with psycopg.connect(doors.service.settings.database_url) as owner:
        row = owner.execute(
            "SELECT tenant, principals FROM signalbox.trace WHERE id = %s", (said["trace_id"],)
        ).fetchone()
    assert row == ("default", [])


async def test_a_request_may_have_fewer_turns_remembered_and_its_record_kept_for_less(doors, user, conversation):
    ask = DOORS["POST /v1/ask"]
    for _ in range(2):
        await ask(doors, FIRST, {"conversation": conversation})
    doors.script.server.requests.clear()
    await ask(doors, SECOND, {"conversation": conversation})
    advisors = [{"name": "memory", "window": 1}, {"name": "record", "days": 1}]
    await ask(doors, SECOND, {"conversation": conversation, "advisors": advisors, "user": user})
    assert [len(body["messages"]) for body in doors.script.bodies] == [6, 3]
    with psycopg.connect(doors.service.settings.database_url) as owner:
        statement = "SELECT expires_at - created_at < interval '25 hours' FROM signalbox.exchange WHERE asker = %s"
        assert owner.execute(statement, (user,)).fetchall() == [(True,)]


async def test_another_page_of_a_follow_up_and_its_answer_are_read_as_the_first_page(doors, conversation, stored):
    search = doors.service.retrieve
    await search(FIRST, conversation=conversation)
    pages = [await search(SECOND, conversation=conversation, top_k=1, page=page) for page in (1, 2)]
    both = await search(SECOND, conversation=conversation, top_k=2)
    assert [hit.id for page in pages for hit in page.hits] == [hit.id for hit in both.hits]
    answer = await doors.service.ask(SECOND, conversation=conversation)
    assert {one.query for one in (*pages, both, answer)} == {answer.query}
    assert "Xaver" in answer.query
    assert [text for _, _, text in stored(conversation)] == [FIRST, SECOND, SECOND, SECOND, GOOD]
