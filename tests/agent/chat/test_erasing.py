"""Erasing what one person asked, or one conversation: all that was derived goes, and nothing of anybody else."""

import asyncio
import json
import uuid
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx2
import psycopg
import pytest

from agent.chat import erasure
from agent.chat.conversation_memory import StoredTurn
from agent.chat.erasure import ErasureCounts
from agent.chat.exchanges import NewExchange
from agent.serve import cli
from retrievers.core.errors import BadRequest, NotFound
from retrievers.core.types import Viewer, unrestricted_viewer
from retrievers.ingest.documents import Document

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOOD = "The rotor stops when the wind is faster than 25 m/s [1]."
ASKED = "When does the rotor stop?"
ALL = unrestricted_viewer("default")
NOTHING = ErasureCounts(0, 0, 0, 0, 0)
TABLES = ("exchange", "trace", "message", "feedback")


@pytest.fixture
def person(chatting: Any) -> str:
    chatting.script.replies.extend([GOOD] * 20)
    return f"person {uuid.uuid4().hex}"


async def held(chatting: Any, user: str) -> dict[str, int]:
    """How many rows of each table are of a user, read past row security."""
    while chatting.service.traces.waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    await chatting.service.records.wait_until_idle()
    with psycopg.connect(chatting.service.settings.database_url) as owner:
        return {
            table: owner.execute(f"SELECT count(*) FROM signalbox.{table} WHERE asker = %s", (user,)).fetchone()[0]  # noqa: S608
            for table in TABLES
        }


async def live(chatting: Any, user: str, *, conversation: str, tenant: Any = None) -> str:
    """A user asks by three ways, judges an answer and has one replayed; the trace of the answer."""
    options: dict[str, Any] = {"user": user, "conversation": conversation, "tenant": tenant}
    answer = await chatting.service.ask(ASKED, **options)
    await chatting.service.retrieve(ASKED, **options)
    await chatting.service.augment(ASKED, **options)
    await chatting.service.feedback(answer.trace_id, 9, f"{user} liked it", tenant=tenant)
    await chatting.service.replay(answer.trace_id, tenant=tenant)
    return answer.trace_id


EVERYTHING = {"exchange": 3, "trace": 4, "message": 4, "feedback": 1}


async def test_erasing_one_person_leaves_nothing_of_theirs_and_all_of_others(chatting, person, conversation):
    other = f"other {uuid.uuid4().hex}"
    trace = await live(chatting, person, conversation=conversation)
    await live(chatting, other, conversation=f"{conversation} of the other")
    assert await held(chatting, person) == await held(chatting, other) == EVERYTHING
    expected = ErasureCounts(records=3, traces=4, turns=4, conversations=1, feedback=1)
    assert await chatting.service.erase(user=person) == expected
    assert await held(chatting, person) == dict.fromkeys(TABLES, 0)
    assert await held(chatting, other) == EVERYTHING
    with pytest.raises(NotFound):
        await chatting.service.explain(trace, tenant=ALL)
    assert await chatting.service.erase(user=person) == NOTHING
    with psycopg.connect(chatting.service.settings.database_url) as owner:
        for table in ("trace", "exchange", "message", "feedback", "erasure"):
            statement = f"SELECT count(*) FROM signalbox.{table} t WHERE t::text LIKE %s"  # noqa: S608
            assert owner.execute(statement, (f"%{person}%",)).fetchone() == (0,)


async def test_in_a_conversation_of_two_the_others_words_stay_and_what_repeats_the_persons_goes(
    chatting, person, conversation
):
    other, secret = f"the other of {uuid.uuid4().hex}", f"secret{uuid.uuid4().hex}"
    shared: dict[str, Any] = {"conversation": conversation}
    first = await chatting.service.ask(ASKED, user=other, **shared)
    await chatting.service.ask(f"Is {secret} a rotor?", user=person, **shared)
    second = await chatting.service.ask(ASKED, user=other, **shared)
    await chatting.service.feedback(second.trace_id, 3)
    await held(chatting, person)
    database_url = chatting.service.settings.database_url
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "UPDATE signalbox.conversation SET summary = %s, summarised = 2 WHERE id = %s", (secret, conversation)
        )
    expected = ErasureCounts(records=1, traces=2, turns=2, conversations=0, feedback=0)
    assert await chatting.service.erase(user=person) == expected
    assert await held(chatting, other) == {"exchange": 2, "trace": 1, "message": 4, "feedback": 1}
    assert (await chatting.service.explain(first.trace_id))["request"]["user"] == other
    turns = await chatting.service.memory.read("default", conversation)
    assert [turn.content for turn in turns] == [ASKED, GOOD, ASKED, GOOD]  # and no summary
    with psycopg.connect(database_url) as owner:
        for table in ("trace", "exchange", "message", "conversation", "feedback"):
            statement = f"SELECT count(*) FROM signalbox.{table} t WHERE t::text LIKE %s"  # noqa: S608
            assert owner.execute(statement, (f"%{secret}%",)).fetchone() == (0,)


async def test_erasing_holds_against_tenants_and_principals(chatting, person, conversation):
    mine, theirs = Viewer("default", ("user:1",)), Viewer("default", ("user:2",))
    await chatting.service.ingest([Document(where="x", id="x", title="", text="Rotor.")], "docs", tenant="other")
    for viewer in (mine, theirs, Viewer("default"), Viewer("other")):
        await chatting.service.retrieve(ASKED, user=person, conversation=conversation, tenant=viewer)
    assert (await held(chatting, person))["exchange"] == 4
    assert await chatting.service.erase(user=person, tenant=Viewer("default", ("user:3",))) == NOTHING
    assert await chatting.service.erase(user=person, tenant="third") == NOTHING
    own = ErasureCounts(records=1, traces=1, turns=1, conversations=1, feedback=0)
    assert await chatting.service.erase(conversation=conversation, tenant=mine) == own
    assert await chatting.service.erase(user=person, tenant=Viewer("default")) == own  # what nobody in particular asked
    assert await chatting.service.erase(user=person, tenant="other") == own
    assert [one.user for one in await chatting.service.recorded_questions(user=person, tenant=theirs)] == [person]
    assert await chatting.service.erase(user=person) == own
    assert await held(chatting, person) == dict.fromkeys(TABLES, 0)


async def test_another_role_erases_nothing_past_row_security(chatting, person, conversation):
    """Each statement is bound to the tenant by the database: a scope of another finds no row to delete."""
    await chatting.service.retrieve(ASKED, user=person, conversation=conversation)
    await held(chatting, person)
    async with chatting.service.database.transaction(unrestricted_viewer("nobody")) as connection:
        for table in ("exchange", "trace", "message", "conversation", "feedback", "erasure"):
            assert (await connection.execute(f"DELETE FROM signalbox.{table}")).rowcount == 0  # noqa: S608
    assert (await held(chatting, person))["exchange"] == 1


async def test_erasing_one_conversation_leaves_the_persons_others(chatting, person, conversation):
    await live(chatting, person, conversation=conversation)
    await live(chatting, person, conversation=f"{conversation} 2")
    await held(chatting, person)  # what is not stored yet is forgotten uncounted
    erased = ErasureCounts(records=3, traces=4, turns=4, conversations=1, feedback=1)
    assert await chatting.service.erase(conversation=conversation) == erased
    assert await held(chatting, person) == EVERYTHING
    assert await chatting.service.erase(conversation=conversation) == NOTHING


async def test_a_question_under_way_meanwhile_leaves_nothing_either(chatting, person, conversation):
    asked = chatting.service.ask_stream(ASKED, user=person, conversation=conversation)
    async with aclosing(asked) as pieces:
        await anext(pieces)
        assert (await chatting.service.erase(user=person)).records == 1
        assert [piece async for piece in pieces][-1].answer == GOOD
    assert await held(chatting, person) == dict.fromkeys(TABLES, 0)
    await chatting.service.retrieve(ASKED, user=person)  # what comes later is kept again
    assert (await held(chatting, person))["exchange"] == 1


async def test_a_question_that_came_before_the_erasure_is_not_recorded_after_it(chatting, person, conversation):
    """As of a process that has let the question in, and writes it down and ends it when its person is erased."""
    records, at = chatting.service.records, datetime.now(UTC)
    early, late, next_one = (uuid.uuid4().hex for _ in range(3))
    asking = NewExchange(ASKED, "ask", at, conversation=conversation, user=person)
    await records.begin("default", early, asking)
    await erasure.record_erasure(chatting.service.database, ALL, user=person, conversation=None)
    await records.begin("default", late, asking)
    assert (await held(chatting, person))["exchange"] == 1  # which the erasure would find, were it not for its moment
    for id in (early, late):
        records.end("default", id, "answered", GOOD, None)
    assert await held(chatting, person) == dict.fromkeys(TABLES, 0)
    await records.begin("default", next_one, replace(asking, at=datetime.now(UTC)))
    records.end("default", next_one, "answered", GOOD, None)
    assert [one.answer for one in await records.recent("default", asker=person)] == [GOOD]


async def test_a_trace_that_another_process_is_about_to_write_is_not_written(chatting, person):
    """As of a process that answers before the erasure and writes after it."""
    await chatting.service.retrieve(ASKED, user=person)
    (trace,) = [one for one in chatting.service.traces._waiting.values() if one.decision.request.user == person]
    await held(chatting, person)
    await chatting.service.erase(user=person)
    chatting.service.traces.save(trace)
    assert await held(chatting, person) == dict.fromkeys(TABLES, 0)


async def test_a_summary_begun_before_an_erasure_is_not_stored_after_it(chatting, person, conversation):
    memory = chatting.service.memory
    turns = [StoredTurn("user", f"secret {n}") for n in range(21)]
    erased: list[ErasureCounts] = []
    loop = asyncio.get_running_loop()

    class Erasing:
        """The model's summary, which takes until the erasure is done."""

        def popleft(self) -> str:
            erased.append(asyncio.run_coroutine_threadsafe(chatting.service.erase(user=person), loop).result(60))
            return "They spoke of a secret."

        def clear(self) -> None:
            pass

    await memory.add("default", conversation, [StoredTurn("user", "Hello")], asker="somebody else")
    usual, chatting.script.replies = chatting.script.replies, Erasing()
    try:
        await memory.add("default", conversation, turns, asker=person)
        await memory.wait_until_idle()
    finally:
        chatting.script.replies = usual
    assert "secret 0" in json.dumps(chatting.script.bodies)
    assert [one.turns for one in erased] == [21]
    assert [turn.content for turn in await memory.read("default", conversation)] == ["Hello"]


async def test_over_http_questions_are_listed_and_erased_with_counts(chatting, person, conversation):
    await live(chatting, person, conversation=conversation)
    await live(chatting, f"not {person}", conversation=f"{conversation}/2")
    headers = {"Authorization": "Bearer key-a"}
    async with httpx2.AsyncClient(base_url=chatting.url, headers=headers, timeout=60) as client:
        listed = (await client.get("/v1/records", params={"user": person})).json()["records"]
        assert [one["kind"] for one in listed] == ["augment", "retrieve", "ask"]
        assert (listed[2]["answer"], listed[2]["score"], listed[2]["user"]) == (GOOD, 9, person)
        other = {"Authorization": "Bearer key-b"}
        assert (await client.get("/v1/records", params={"user": person}, headers=other)).json() == {"records": []}
        counts = {"records": 3, "traces": 4, "turns": 4, "conversations": 1, "feedback": 1}
        none = dict.fromkeys(counts, 0)
        for headers, expected in ((other, none), ({}, counts), ({}, none)):
            answer = await client.delete("/v1/records", params={"user": person}, headers=headers)
            assert (answer.status_code, answer.json()["erased"]) == (200, expected)
        for expected in (counts, none):
            answer = await client.delete(f"/v1/conversations/{conversation}/2")
            assert (answer.status_code, answer.json()["erased"]) == (200, expected)
        assert (await client.delete("/v1/records")).status_code == 422
        assert (await client.delete("/v1/records", params={"user": "a\nb"})).status_code == 422
        assert (await client.delete(f"/v1/conversations/{'x' * 129}")).status_code == 422
        assert (await client.get("/v1/records", params={"limit": 0})).status_code == 422


async def test_on_the_command_line_too(chatting, person, conversation, monkeypatch, capsys):
    await live(chatting, person, conversation=conversation)
    await chatting.service.records.wait_until_idle()  # another process does not wait for what this one gathers
    settings = chatting.service.settings
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", settings.database_url)
    monkeypatch.setenv("SIGNALBOX_SERVICE_URL", settings.service_url)

    async def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return (await asyncio.to_thread(cli.run, ["records", *arguments]), *capsys.readouterr())

    code, out, _ = await run("--user", person)
    assert code == 0
    assert out.count(ASKED) == 3
    assert GOOD in out
    code, out, _ = await run("--user", person, "--json")
    assert [one["user"] for one in json.loads(out)] == [person] * 3
    code, out, _ = await run("--user", person, "--erase", "--json")
    counts = {"records": 3, "traces": 4, "turns": 4, "conversations": 1, "feedback": 1}
    assert (code, json.loads(out)["erased"]) == (0, counts)
    code, out, _ = await run("--conversation", conversation, "--erase")
    assert (code, out) == (0, "erased: records 0, traces 0, turns 0, conversations 0, feedback 0\n")
    code, _, err = await run("--erase")
    assert (code, "--user" in err) == (2, True)
    code, _, err = await run("--user", person, "--conversation", "c", "--erase")
    assert code == 2


async def test_it_must_be_said_what_is_erased(chatting):
    for subject in ({}, {"user": "a", "conversation": "b"}):
        with pytest.raises(BadRequest):
            await chatting.service.erase(**subject)
