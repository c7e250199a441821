"""Conversation memory: its window, its summary, and turns that come from two sides."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.chat.conversation_memory import KEPT, WINDOW, ConversationMemory, StoredTurn, merge_turns
from agent.llm.model_factory import open_model
from agent.testing import Fault, ScriptedServer
from agent.types import Message
from retrievers.postgres.connections.database import Database


def turns(first: int, last: int) -> list[StoredTurn]:
    """Turns n..m of a conversation, the odd ones the user's."""
    return [StoredTurn("user" if n % 2 else "assistant", f"turn {n}") for n in range(first, last + 1)]


def said(*texts: str) -> list[Message]:
    """Turns of the user and the assistant in turn; "!x" is the system's."""
    plain = iter(range(len(texts)))
    return [
        Message(role="system", content=text[1:])
        if text.startswith("!")
        else Message(role=("user", "assistant")[next(plain) % 2], content=text)  # type: ignore[arg-type]
        for text in texts
    ]


@asynccontextmanager
async def remembering(database: Database, server: ScriptedServer) -> AsyncIterator[ConversationMemory]:
    with server:
        model = open_model("openai/small", base_url=server.base_url, api_key="any")
        assert model is not None
        async with ConversationMemory(database, days=1, model=model) as memory:
            yield memory
        await model.aclose()


async def texts(memory: ConversationMemory) -> list[str]:
    return [turn.content for turn in await memory.read("t", "c")]


async def test_without_a_model_the_newest_twenty_are_remembered(database: Database):
    async with ConversationMemory(database, days=1) as memory:
        for first in range(1, 31, 2):
            await memory.add("t", "c", turns(first, first + 1))
        assert await texts(memory) == [f"turn {n}" for n in range(11, 31)]
        assert await memory.read("u", "c") == ()


async def test_with_a_model_the_older_ones_are_told_in_a_summary(database: Database):
    server = ScriptedServer(["The user asked about turns.", "The user asked about many turns."])
    async with remembering(database, server) as memory:
        await memory.add("t", "c", turns(1, WINDOW))
        assert server.requests == []
        await memory.add("t", "c", turns(21, 22))
        await memory.wait_until_idle()
        head, *rest = await memory.read("t", "c")
        assert (head.role, head.content) == (
            "assistant",
            "Notes on the conversation so far: The user asked about turns.",
        )
        assert [turn.content for turn in rest] == [f"turn {n}" for n in range(13, 23)]
        asked = server.requests[0].body["messages"][1]["content"]
        assert "user: turn 1\n" in asked
        assert "turn 13" not in asked

        for first in range(23, 35, 2):
            await memory.add("t", "c", turns(first, first + 1))
        await memory.wait_until_idle()
        again = server.requests[1].body["messages"][1]["content"]
        assert "The user asked about turns." in again
        assert "assistant: turn 12\n" not in again
        assert "user: turn 13\n" in again
        assert (await texts(memory))[1:] == [f"turn {n}" for n in range(35 - KEPT, 35)]


async def test_the_tokens_of_a_summary_are_told_with_whose_conversation_it_is(database: Database):
    told: list[tuple[str, int]] = []
    with ScriptedServer(["The user asked about turns."]) as server:
        model = open_model("openai/small", base_url=server.base_url, api_key="any")
        assert model is not None

        def count(tenant: str, tokens: int) -> None:
            told.append((tenant, tokens))

        async with ConversationMemory(database, days=1, model=model, count_tokens=count) as memory:
            await memory.add("t", "c", turns(1, WINDOW + 2))
            await memory.wait_until_idle()
        await model.aclose()
    ((tenant, tokens),) = told
    assert tenant == "t"
    assert tokens > 20


async def test_nobody_waits_for_a_summary_and_without_it_the_window_goes_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("agent.chat.conversation_memory._DRAIN_S", 0.05)
    server = ScriptedServer(["Too late."], faults=[Fault(delay_s=20)])
    async with remembering(database, server) as memory:
        await memory.add("t", "c", turns(1, 30))
        assert await texts(memory) == [f"turn {n}" for n in range(11, 31)]


async def test_a_summary_that_fails_is_made_after_a_later_turn(database: Database):
    server = ScriptedServer(["Told."], faults=[Fault(status=503)] * 3)
    async with remembering(database, server) as memory:
        await memory.add("t", "c", turns(1, 22))
        await memory.wait_until_idle()
        assert len(await texts(memory)) == WINDOW
        await memory.add("t", "c", turns(23, 24))
        await memory.wait_until_idle()
        assert (await texts(memory))[0].endswith("Told.")


async def test_turns_added_at_once_keep_numbers_that_follow_each_other(database: Database):
    async with ConversationMemory(database, days=1) as memory:
        await asyncio.gather(
            *(memory.add("t", "c", [StoredTurn("user", f"q{n}"), StoredTurn("assistant", f"a{n}")]) for n in range(8))
        )
        found = await texts(memory)
        assert sorted(found) == sorted([f"{kind}{n}" for n in range(8) for kind in "qa"])
        assert all(found[place + 1] == found[place].replace("q", "a") for place in range(0, 16, 2))


async def test_long_turns_give_way_to_the_summary(database: Database):
    server = ScriptedServer(["Told."])
    async with remembering(database, server) as memory:
        await memory.add("t", "c", [StoredTurn("user", f"{n} " + "word " * 400) for n in range(22)])
        await memory.wait_until_idle()
        head, *rest = await texts(memory)
        assert head.endswith("Told.")
        assert 0 < len(rest) < KEPT
        assert rest[-1].startswith("21 ")


@pytest.mark.parametrize(
    ("stored", "sent", "expected"),
    [
        ([], [], []),
        (["q1", "a1"], [], ["q1", "a1"]),
        ([], ["q1", "a1"], ["q1", "a1"]),
        (["q1", "a1"], ["q1", "a1"], ["q1", "a1"]),
        # The client shows the newest turns only, or more than are stored.
        (["q1", "a1", "q2", "a2"], ["q2", "a2"], ["q1", "a1", "q2", "a2"]),
        (["q2", "a2"], ["q1", "a1", "q2", "a2"], ["q1", "a1", "q2", "a2"]),
        (["q1", "a1"], ["q1", "a1", "q2", "a2"], ["q1", "a1", "q2", "a2"]),
        # The asker went back to the first answer.
        (["q1", "a1", "q2", "a2"], ["q1", "a1"], ["q1", "a1"]),
        # Examples of the caller's own come after what is stored.
        (["q1", "a1"], ["x", "y"], ["q1", "a1", "x", "y"]),
        (["q1", "a1"], ["!be brief", "q1", "a1"], ["be brief", "q1", "a1"]),
        (["q1", "a1 [1]."], ["q1", " a1."], ["q1", " a1."]),
    ],
)
async def test_stored_and_sent_turns_are_joined_without_doubling(stored, sent, expected):
    assert [turn.content for turn in merge_turns(said(*stored), said(*sent))] == expected
