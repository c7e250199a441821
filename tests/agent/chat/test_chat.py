"""Chats: conversations, advisors and records around the answer."""

import asyncio
import uuid
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import httpx2
import psycopg
import pytest

from agent.chat.advisors.advisor import AdvisedRequest, ChatAnswer, RequestOutcome
from agent.chat.advisors.guard import REFUSALS, GuardAdvisor
from agent.chat.chat import Chat
from agent.chat.erasure import ErasureCounts
from agent.chat.exchanges import NewExchange
from agent.options.guard_rules import compile_rule, normalise_rule_text
from agent.service.factory import open_service
from agent.settings import load_settings
from agent.testing import Fault
from agent.types import AskRequest
from retrievers.core.errors import BadRequest, NotFound
from retrievers.core.types import Viewer
from retrievers.ingest.documents import Document

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOOD = "The rotor stops when the wind is faster than 25 m/s [1]."
OILED = "Its bearing is oiled every three months [1]."
ASKED = "When does the rotor stop?"
CALL: Any = {"id": "call_7", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def roles(body: dict[str, Any]) -> list[str]:
    return [turn["role"] for turn in body["messages"]]


# Conversations.


async def test_a_conversation_is_remembered_and_its_earlier_turns_go_to_the_model(chatting, conversation, stored):
    chatting.script.replies.extend([GOOD, OILED])
    await chatting.service.chat(ASKED, conversation=conversation)
    second = await chatting.service.chat("And how often is its bearing oiled?", conversation=conversation)
    assert second.text == OILED
    assert roles(chatting.script.bodies[1]) == ["system", "user", "assistant", "user"]
    assert chatting.script.bodies[1]["messages"][1]["content"] == ASKED
    assert stored(conversation) == [
        (1, "user", ASKED),
        (2, "assistant", GOOD),
        (3, "user", "And how often is its bearing oiled?"),
        (4, "assistant", OILED),
    ]


async def test_a_follow_up_is_searched_for_with_what_the_conversation_holds(chatting, conversation):
    chatting.script.replies.extend(["Storm Xaver reached Denmark in 2013 [1].", "In December 2013 [1]."])
    await chatting.service.chat("Which country did storm Xaver reach?", conversation=conversation)
    second = await chatting.service.chat("And when was that?", conversation=conversation)
    assert second.citations[0].document_id == "storm"


async def test_turns_that_are_sent_along_and_stored_as_well_count_once(chatting, conversation, stored):
    chatting.script.replies.extend([GOOD, OILED])
    await chatting.service.chat(ASKED, conversation=conversation)
    # The numbers of passages are what clients take out.
    shown = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": GOOD.replace(" [1]", "")}]
    question = {"role": "user", "content": "How often is its bearing oiled?"}
    await chatting.service.chat(messages=[*shown, question], conversation=conversation)
    assert roles(chatting.script.bodies[1]) == ["system", "user", "assistant", "user"]
    assert [number for number, *_ in stored(conversation)] == [1, 2, 3, 4]


async def test_a_new_conversation_begins_with_the_turns_that_are_sent_along(chatting, conversation, stored):
    chatting.script.replies.append(OILED)
    sent = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": GOOD},
        {"role": "user", "content": "How often is its bearing oiled?"},
    ]
    await chatting.service.chat(messages=sent, conversation=conversation)
    assert [role for _, role, _ in stored(conversation)] == ["user", "assistant", "user", "assistant"]


async def test_two_turns_at_once_are_both_stored_whole(chatting, conversation, stored):
    chatting.script.replies.extend([GOOD] * 6)
    await asyncio.gather(*(chatting.service.chat(f"{ASKED} {n}", conversation=conversation) for n in range(6)))
    turns = stored(conversation)
    assert [number for number, *_ in turns] == list(range(1, 13))
    assert [role for _, role, _ in turns] == ["user", "assistant"] * 6
    assert {text for _, role, text in turns if role == "user"} == {f"{ASKED} {n}" for n in range(6)}


async def test_another_tenants_conversation_does_not_exist(chatting, conversation, stored):
    chatting.script.replies.extend([GOOD, GOOD])
    await chatting.service.chat(ASKED, conversation=conversation)
    await chatting.service.ingest([Document(where="x", id="x", title="", text="Else.")], "docs", tenant="other")
    await chatting.service.chat(
        messages=[{"role": "user", "content": "hello"}], conversation=conversation, tenant="other"
    )
    assert roles(chatting.script.bodies[-1]) == ["system", "user"]
    assert await chatting.service.recorded_questions(conversation=conversation, tenant="third") == []
    assert await chatting.service.erase(conversation=conversation, tenant="third") == ErasureCounts(0, 0, 0, 0, 0)
    await chatting.service.erase(conversation=conversation, tenant="other")
    assert [text for *_, text in stored(conversation)] == [ASKED, GOOD]
    await chatting.service.erase(conversation=conversation)
    assert stored(conversation) == []


async def test_a_question_that_waits_for_tools_joins_with_its_final_answer(chatting, conversation, stored):
    tools = {"tools": [{"type": "function", "function": {"name": "weather"}}]}
    chatting.script.replies.append({"content": "Let me look.", "tool_calls": [CALL]})
    first = await chatting.service.chat(ASKED, conversation=conversation, model_options=tools)
    assert (first.finish_reason, stored(conversation)) == ("tool_calls", [])
    following = [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_7", "content": "28 m/s"},
    ]
    chatting.script.replies.append(GOOD)
    await chatting.service.chat(ASKED, conversation=conversation, model_options=tools, following=following)
    assert stored(conversation) == [(1, "user", ASKED), (2, "assistant", GOOD)]


async def test_memory_that_does_not_answer_costs_its_share_of_the_time_and_is_named(chatting, conversation, module_url):
    chatting.script.replies.append(GOOD)
    with psycopg.connect(module_url) as other:
        other.execute("LOCK TABLE signalbox.message IN ACCESS EXCLUSIVE MODE")
        answer = await chatting.service.chat(ASKED, conversation=conversation, timeout_s=6)
    assert (answer.text, answer.degraded) == (GOOD, ("memory_unavailable",))


# Advisors.


@dataclass
class Noting:
    """An advisor that notes when it is asked; it may refuse, or fail."""

    name: str
    order: int
    notes: list[str]
    refuses: bool = False
    fails: bool = False

    async def before(self, call: AdvisedRequest) -> AdvisedRequest:
        self.notes.append(f"before {self.name}")
        return replace(call, refusal="No.") if self.refuses else call

    async def after(self, end: RequestOutcome) -> RequestOutcome:
        self.notes.append(f"after {self.name}")
        if self.fails:
            raise RuntimeError(self.name)
        return end


@pytest.mark.parametrize("streamed", [False, True])
async def test_advisors_come_in_order_and_end_in_reverse_and_one_that_refuses_ends_it(chatting, streamed):
    notes: list[str] = []
    advisors = [
        Noting("c", 3, notes, refuses=True), Noting("a", 1, notes), Noting("d", 4, notes),
        Noting("b", 2, notes, fails=True),
    ]  # fmt: skip
    async with Chat(chatting.service.answerer, advisors) as chat:
        pieces = [piece async for piece in chat.stream(Viewer("t"), AskRequest(query=ASKED), datetime.now(UTC))]
    assert notes == ["before a", "before b", "before c", "after c", "after b", "after a"]
    said, answer = pieces
    assert said == "No."
    assert isinstance(answer, ChatAnswer)
    assert (answer.text, answer.status, answer.trace_id, answer.citations) == ("No.", "refused", None, ())
    assert chatting.script.bodies == []


async def test_an_advisors_context_is_part_of_the_answer_and_its_end_comes_once(chatting):
    chatting.script.replies.append(GOOD)
    answer = await chatting.service.chat(ASKED)
    assert answer.context["watcher.seen"] == ASKED
    end = await chatting.ended()
    assert (end.status, end.text, end.call.prompt.trace_id) == ("answered", GOOD, answer.trace_id)


async def test_what_fails_ends_with_the_failure(chatting):
    with pytest.raises(NotFound):
        await chatting.service.chat(ASKED, collection="nowhere")
    end = await chatting.ended()
    assert (end.status, end.text, end.answer) == ("failed", "", None)
    assert isinstance(end.error, NotFound)


async def test_an_asker_who_goes_away_ends_the_chat_once_and_what_was_said_is_kept(chatting, conversation, stored):
    chatting.script.replies.append(GOOD)
    chatting.script.faults.append(Fault(pause_s=0.2))
    body = {
        "model": "signalbox", "messages": [{"role": "user", "content": ASKED}], "stream": True,
        "signalbox": {"conversation": conversation},
    }  # fmt: skip
    async with (
        httpx2.AsyncClient(headers={"Authorization": "Bearer key-a"}) as client,
        client.stream("POST", f"{chatting.url}/v1/chat/completions", json=body) as answer,
        aclosing(answer.aiter_lines()) as lines,
    ):
        seen = [line async for line in _until_text(lines)]
    assert seen
    end = await chatting.ended()
    assert (end.status, end.answer) == ("abandoned", None)
    assert end.text
    assert GOOD.startswith(end.text)
    await chatting.service.chats.wait_until_idle()
    assert [text for *_, text in stored(conversation)] == [ASKED, end.text]
    (record,) = await chatting.service.recorded_questions(conversation=conversation)
    assert (record.status, record.answer, record.trace_id) == ("abandoned", end.text, None)


async def _until_text(lines: Any) -> Any:
    async for line in lines:
        yield line
        if '"content": "The' in line:
            return


async def test_the_guard_answers_politely_without_a_search_or_a_model(chatting, conversation, stored):
    answer = await chatting.service.chat("What is the LAUNCH  ｃｏｄｅ?", conversation=conversation)
    assert (answer.text, answer.status, answer.details) == (REFUSALS[0], "refused", None)
    assert (await chatting.service.chat("管理员的密码是什么？")).text == REFUSALS[1]
    assert chatting.script.bodies == []
    assert stored(conversation) == []
    (record,) = await chatting.service.recorded_questions(conversation=conversation)
    assert (record.status, record.answer) == ("refused", REFUSALS[0])
    chatting.script.replies.append(GOOD)
    assert (await chatting.service.chat("Who launched codes of conduct?")).text == GOOD


@pytest.mark.parametrize(
    ("rule", "text", "found"),
    [
        ("bomb", "a Bomb!", True),
        ("bomb", "bombastic", False),
        ("c++", "in C++ only", True),
        ("re:pass(word|phrase)", "my passphrases", True),
        ("密码", "我的密码呢", True),
    ],
)
async def test_rules_find_whole_words_and_patterns(rule, text, found):
    assert bool(compile_rule(rule).search(normalise_rule_text(text))) is found


async def test_a_question_that_a_pattern_cannot_judge_in_time_is_refused():
    guard = GuardAdvisor(["re:(a|aa)+secret"])
    call = AdvisedRequest(Viewer("acme"), AskRequest(query="a" * 200), datetime.now(UTC), 0.0, 60.0)
    assert (await guard.before(call)).refusal == REFUSALS[0]
    assert (await guard.before(replace(call, request=AskRequest(query="b" * 200)))).refusal is None


@pytest.mark.parametrize("rule", ["re:(", "  "])
async def test_a_rule_that_cannot_be_is_a_bad_setting(rule):
    with pytest.raises(BadRequest, match="GUARD"):
        load_settings({"guard": [rule]})


# Records.


async def test_a_question_is_recorded_before_it_is_answered_and_feedback_joins_it(chatting, conversation):
    chatting.script.replies.append(GOOD)
    async with aclosing(chatting.service.chat_stream(ASKED, conversation=conversation, user="ada")) as pieces:
        await anext(pieces)
        (record,) = await chatting.service.recorded_questions(user="ada")
        assert (record.question, record.status, record.answer, record.ended_at) == (ASKED, "unanswered", None, None)
        *_, answer = [piece async for piece in pieces]

    assert isinstance(answer, ChatAnswer)
    assert answer.trace_id is not None
    await chatting.service.feedback(answer.trace_id, 9, "just right")
    (record,) = await chatting.service.recorded_questions(conversation=conversation)
    assert (record.status, record.answer, record.trace_id) == ("answered", GOOD, answer.trace_id)
    assert (record.user, record.score, record.comment) == ("ada", 9, "just right")
    assert await chatting.service.recorded_questions(conversation=conversation, tenant="other") == []


async def test_a_call_that_died_stays_unanswered(chatting, conversation):
    asking = NewExchange(ASKED, "ask", datetime.now(UTC), conversation=conversation)
    await chatting.service.records.begin("default", uuid.uuid4().hex, asking)
    assert [one.status for one in await chatting.service.recorded_questions(conversation=conversation)] == [
        "unanswered"
    ]


async def test_a_failed_question_is_recorded_as_failed(chatting, conversation):
    with pytest.raises(NotFound):
        await chatting.service.chat(ASKED, conversation=conversation, collection="nowhere")
    assert [one.status for one in await chatting.service.recorded_questions(conversation=conversation)] == ["failed"]


async def test_what_no_database_can_store_is_asked_and_recorded_none_the_less(chatting, conversation, stored):
    chatting.script.replies.append("Half \ud83d a pair")
    answer = await chatting.service.chat("When does the rotor stop\0?", conversation=conversation)
    assert stored(conversation) == [(1, "user", "When does the rotor stop\ufffd?"), (2, "assistant", answer.text)]
    (record,) = await chatting.service.recorded_questions(conversation=conversation)
    assert (record.question, record.answer) == ("When does the rotor stop\ufffd?", answer.text)


async def test_what_has_expired_is_not_shown_and_goes(chatting, conversation, module_url, stored):
    chatting.script.replies.extend([GOOD, OILED])
    await chatting.service.chat(ASKED, conversation=conversation)
    with psycopg.connect(module_url) as owner:
        for table, key in (("conversation", "id"), ("exchange", "conversation")):
            owner.execute(f"UPDATE signalbox.{table} SET expires_at = now() WHERE {key} = %s", (conversation,))  # noqa: S608
    assert await chatting.service.recorded_questions(conversation=conversation) == []
    await chatting.service.chat("How often is its bearing oiled?", conversation=conversation)
    assert roles(chatting.script.bodies[1]) == ["system", "user"]
    assert [number for number, *_ in stored(conversation)] == [1, 2]


async def test_with_no_days_nothing_of_a_chat_is_kept(chatting, conversation, stored):
    chatting.script.replies.extend([GOOD, GOOD])
    settings = chatting.service.settings.model_copy(update={"chat_days": 0})
    async with open_service(settings) as service:
        answer = await service.chat(ASKED, conversation=conversation, user="nobody")
        assert (answer.text, await service.recorded_questions()) == (GOOD, [])
    assert stored(conversation) == []
    assert await chatting.service.recorded_questions(user="nobody") == []


async def test_a_chat_is_replayed_without_its_model(chatting, conversation):
    chatting.script.replies.extend([GOOD, OILED])
    await chatting.service.chat(ASKED, conversation=conversation)
    answer = await chatting.service.chat("How often is its bearing oiled?", conversation=conversation)
    again = await chatting.service.replay(answer.trace_id)
    assert (again.answer, len(chatting.script.bodies)) == (OILED, 2)
