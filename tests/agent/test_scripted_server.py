import itertools
from contextlib import asynccontextmanager

import numpy as np
import openai
import pytest

from agent.testing import Fault, ScriptedServer, unit_vector

QUESTION = [{"role": "user", "content": "What is the capital?"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}


@asynccontextmanager
async def client_of(server):
    async with openai.AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0, timeout=120) as client:
        yield client


async def test_chat_answers_from_the_list_and_records_the_requests():
    with ScriptedServer(["Paris.", {"content": None, "tool_calls": [CALL]}]) as server:
        async with client_of(server) as client:
            first = await client.chat.completions.create(model="m", messages=QUESTION)
            second = await client.chat.completions.create(model="m", messages=QUESTION)

    assert first.choices[0].message.content == "Paris."
    assert first.choices[0].finish_reason == "stop"
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (4, 1)
    assert second.choices[0].message.tool_calls[0].function.name == "search"
    assert second.choices[0].finish_reason == "tool_calls"
    request = server.requests[0]
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == "Bearer any"
    assert request.body["messages"] == QUESTION


async def test_chat_answers_from_a_function_of_the_request():
    with ScriptedServer(lambda body: body["messages"][-1]["content"].upper()) as server:
        async with client_of(server) as client:
            answer = await client.chat.completions.create(model="m", messages=QUESTION)

    assert answer.choices[0].message.content == "WHAT IS THE CAPITAL?"


async def test_a_script_that_ended_or_failed_says_so():
    with ScriptedServer([]) as ended, ScriptedServer(lambda body: body["no such key"]) as failing:
        for server, reason in ((ended, "it has 0 replies"), (failing, "no such key")):
            async with client_of(server) as client:
                with pytest.raises(openai.BadRequestError, match=reason):
                    await client.chat.completions.create(model="m", messages=QUESTION)


@pytest.mark.parametrize("include_usage", [False, True])
async def test_chat_streams_word_by_word_with_the_usage_last_when_asked_for(include_usage):
    with ScriptedServer(["It is  Paris."]) as server:
        async with client_of(server) as client:
            stream = await client.chat.completions.create(
                model="m", messages=QUESTION, stream=True, stream_options={"include_usage": include_usage}
            )
            chunks = [chunk async for chunk in stream]

    spoken = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert spoken == ["It", " is", " ", " Paris."]
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage] == ([7] if include_usage else [])


async def test_chat_streams_tool_calls():
    with ScriptedServer([{"content": None, "tool_calls": [CALL]}]) as server:
        async with client_of(server) as client:
            stream = await client.chat.completions.create(model="m", messages=QUESTION, stream=True)
            deltas = [chunk.choices[0].delta async for chunk in stream]

    assert [delta.tool_calls[0].function.arguments for delta in deltas if delta.tool_calls] == ['{"q": "x"}']


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_embeddings_are_unit_vectors_in_the_encoding_asked_for(encoding):
    with ScriptedServer(dimension=6) as server:
        async with client_of(server) as client:
            raw = await client.embeddings.with_raw_response.create(
                model="m", input=["a", "b"], encoding_format=encoding
            )
            parsed = await client.embeddings.create(model="m", input=["a", "b"])
            shorter = await client.embeddings.create(model="m", input="a", dimensions=3)

    assert ('"embedding": [' in raw.text) == (encoding == "float")
    np.testing.assert_allclose([item.embedding for item in parsed.data], [unit_vector(t, 6) for t in "ab"], atol=1e-6)
    assert np.linalg.norm(parsed.data[0].embedding) == pytest.approx(1)
    assert len(shorter.data[0].embedding) == 3


def test_the_vector_of_a_text_is_the_same_everywhere():
    assert unit_vector("a", 3).tolist() == pytest.approx(unit_vector("a", 3).tolist())
    assert unit_vector("a", 3).tolist() != unit_vector("b", 3).tolist()


@pytest.mark.parametrize("texts", ["", [], ["a", ""]])
async def test_empty_texts_are_refused_as_services_do(texts):
    with ScriptedServer() as server:
        async with client_of(server) as client:
            with pytest.raises(openai.BadRequestError, match="none of them empty"):
                await client.embeddings.create(model="m", input=texts)


async def test_models_are_listed():
    with ScriptedServer(models=["one", "two"]) as server:
        async with client_of(server) as client:
            assert [model.id async for model in client.models.list()] == ["one", "two"]


async def test_an_unknown_path_is_404():
    with ScriptedServer() as server:
        async with client_of(server) as client:
            with pytest.raises(openai.NotFoundError, match="there is no POST /v1/moderations"):
                await client.moderations.create(input="a")


async def test_faults_come_in_their_order_and_then_all_is_well():
    faults = [Fault(status=429, headers={"Retry-After": "3"}), None, Fault(status=529)]
    with ScriptedServer(["first", "second"], faults=faults) as server:
        async with client_of(server) as client:
            with pytest.raises(openai.RateLimitError, match="a scripted fault") as refused:
                await client.chat.completions.create(model="m", messages=QUESTION)
            first = await client.chat.completions.create(model="m", messages=QUESTION)
            with pytest.raises(openai.InternalServerError):
                await client.chat.completions.create(model="m", messages=QUESTION)
            second = await client.chat.completions.create(model="m", messages=QUESTION)

    assert refused.value.response.headers["retry-after"] == "3"
    assert [answer.choices[0].message.content for answer in (first, second)] == ["first", "second"]
    assert len(server.requests) == 4


@pytest.mark.parametrize("fault", [Fault(reset=True), Fault(truncated=True)])
async def test_a_broken_connection_is_a_connection_error(fault):
    with ScriptedServer(["Paris."], faults=itertools.repeat(fault)) as server:
        async with client_of(server) as client:
            with pytest.raises(openai.APIConnectionError):
                await client.chat.completions.create(model="m", messages=QUESTION)


async def test_a_delay_meets_the_timeout_of_the_client_and_does_not_hold_up_the_end():
    with ScriptedServer(["Paris."], faults=[Fault(delay_s=60)]) as server:
        async with client_of(server) as client:
            with pytest.raises(openai.APITimeoutError):
                await client.chat.completions.create(model="m", messages=QUESTION, timeout=0.05)


async def test_a_scripted_body_is_sent_as_it_is():
    with ScriptedServer(faults=[Fault(body='{"data": [')]) as server:
        async with client_of(server) as client:
            answer = await client.embeddings.with_raw_response.create(model="m", input="a", encoding_format="float")

    assert answer.text == '{"data": ['
