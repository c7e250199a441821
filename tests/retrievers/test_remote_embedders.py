import asyncio
import importlib.util
import itertools
import json
import subprocess
import sys
import time
import traceback
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest

from agent.testing import Fault, ScriptedServer, unit_vector
from retrievers.core.errors import Unavailable
from retrievers.embed.cache import QueryCache
from retrievers.embed.remote import FastEmbedEmbedder, LiteLLMEmbedder, OpenAIEmbedder
from retrievers.http.sdk_retries import RetryPolicy

KEY = "very-secret-key-0123"
AT_ONCE = RetryPolicy(first_wait_s=0.001, longest_wait_s=0.001)


@asynccontextmanager
async def embedder_of(server, name="openai/small", **options):
    embedder = OpenAIEmbedder(name, base_url=server.base_url, **{"api_key": KEY, "retry": AT_ONCE, **options})
    yield embedder
    await embedder.aclose()


async def failure_of(*faults, texts=("a",), **options):
    """The error of embedding the texts, and the number of requests it took."""
    with ScriptedServer(faults=faults) as server:
        async with embedder_of(server, **options) as embedder:
            with pytest.raises(Unavailable) as raised:
                await embedder.embed(texts)
    return raised.value, len(server.requests)


def answer(*vectors):
    """A fault that is an answer with these (index, vector) pairs."""
    return Fault(body=json.dumps({"data": [{"index": index, "embedding": vector} for index, vector in vectors]}))


# --- what a caller gets


async def test_vectors_are_float32_of_length_1_in_the_order_of_the_texts():
    with ScriptedServer(dimension=8) as server:
        async with embedder_of(server) as embedder:
            vectors = await embedder.embed(["red", "green", "blue"])

    assert vectors.dtype == np.float32
    assert vectors.shape == (3, 8)
    expected = np.stack([unit_vector(text, 8) for text in ("red", "green", "blue")])
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    request = server.requests[0]
    assert request.body == {"model": "small", "input": ["red", "green", "blue"], "encoding_format": "float"}
    assert request.headers["authorization"] == f"Bearer {KEY}"


async def test_the_answer_is_ordered_by_its_index_and_vectors_are_normalised():
    with ScriptedServer(faults=[answer((1, [0, 2]), (0, [3, 4]))]) as server:
        async with embedder_of(server) as embedder:
            vectors = await embedder.embed(["first", "second"])

    np.testing.assert_allclose(vectors, [[0.6, 0.8], [0, 1]], rtol=1e-6)


async def test_an_answer_without_indexes_keeps_its_order():
    body = json.dumps({"data": [{"embedding": [1, 0]}, {"embedding": [0, 1]}]})
    with ScriptedServer(faults=[Fault(body=body)]) as server:
        async with embedder_of(server) as embedder:
            assert (await embedder.embed(["first", "second"])).tolist() == [[1, 0], [0, 1]]


async def test_the_dimension_is_read_from_the_model_once():
    with ScriptedServer(dimension=12) as server:
        async with embedder_of(server) as embedder:
            assert await embedder.dimension() == 12
            assert await embedder.dimension() == 12
            assert (await embedder.embed([])).shape == (0, 12)

    assert len(server.requests) == 1


async def test_a_recent_question_is_not_sent_again():
    with ScriptedServer() as server:
        async with embedder_of(server) as embedder:
            first = await embedder.embed_query("why?")
            again = await embedder.embed_query("why?")

    assert first.shape == (16,)
    assert again is first
    assert len(server.requests) == 1


@pytest.mark.parametrize("texts", [["a", ""], ["a", " \n"]])
async def test_an_empty_text_is_refused_before_the_call(texts):
    with ScriptedServer() as server:
        async with embedder_of(server) as embedder:
            with pytest.raises(ValueError, match="text 1 is empty"):
                await embedder.embed(texts)
            with pytest.raises(ValueError, match="is empty"):
                await embedder.embed_query("")

    assert server.requests == []


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("openai/text-embedding-v4", [10, 10, 5]), ("openai/text-embedding-v2", [25]), ("openai/bge-m3", [25])],
)
async def test_texts_go_in_batches_the_provider_accepts(name, sizes):
    texts = [f"text {number}" for number in range(25)]
    with ScriptedServer() as server:
        async with embedder_of(server, name) as embedder:
            vectors = await embedder.embed(texts)

    assert [len(request.body["input"]) for request in server.requests] == sizes
    np.testing.assert_allclose(vectors, np.stack([unit_vector(text, 16) for text in texts]), atol=1e-6)


async def test_a_call_asks_for_no_more_numbers_than_may_be_parsed_at_once():
    with ScriptedServer(dimension=16) as server:
        async with embedder_of(server) as embedder:
            embedder._at_once = 64
            await embedder.embed_query("which dimension?")
            vectors = await embedder.embed([f"text {number}" for number in range(10)])

    assert [len(request.body["input"]) for request in server.requests[1:]] == [4, 4, 2]
    assert vectors.shape == (10, 16)


async def test_long_texts_go_in_smaller_batches():
    texts = ["x" * 60_000, "y" * 30_000, "z" * 20_000, "w" * 200_000]
    with ScriptedServer() as server:
        async with embedder_of(server) as embedder:
            await embedder.embed(texts)

    assert [[text[0] for text in request.body["input"]] for request in server.requests] == [["x", "y"], ["z"], ["w"]]


async def test_no_key_is_taken_from_the_environment(monkeypatch):
    with ScriptedServer() as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        async with embedder_of(server, api_key=None) as embedder:
            await embedder.embed(["a"])

    assert KEY not in server.requests[0].headers["authorization"]


# --- what goes wrong: repeated


@pytest.mark.parametrize(
    "fault", [*(Fault(status=status) for status in (408, 409, 429, 500, 503)), Fault(reset=True), Fault(truncated=True)]
)
async def test_a_failure_that_may_pass_is_tried_again(fault):
    with ScriptedServer(faults=[fault, fault, fault]) as server:
        async with embedder_of(server) as embedder:
            assert (await embedder.embed(["a"])).shape == (1, 16)

    assert len(server.requests) == 4


async def test_after_four_tries_the_reason_says_the_status_and_what_the_server_said():
    error, requests = await failure_of(*[Fault(status=503)] * 9)

    assert str(error) == ("the embedder openai/small is unavailable: after 4 tries: HTTP 503: a scripted fault")
    assert requests == 4


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_a_failure_that_will_not_pass_is_not_repeated(status):
    error, requests = await failure_of(Fault(status=status))

    assert error.reason == f"HTTP {status}: a scripted fault"
    assert requests == 1


async def test_a_slow_server_is_given_up_after_the_timeout():
    error, requests = await failure_of(Fault(delay_s=9), Fault(delay_s=9), timeout_s=1, retry=RetryPolicy(attempts=1))

    assert error.reason == "no answer within 1 s"
    assert requests == 1


async def test_a_server_that_is_not_there_is_unavailable():
    with ScriptedServer() as server:
        gone = server.base_url
    embedder = OpenAIEmbedder("openai/small", base_url=gone, retry=AT_ONCE)

    with pytest.raises(Unavailable, match="after 4 tries: the connection failed: "):
        await embedder.embed(["a"])
    await embedder.aclose()


@pytest.mark.parametrize("date", [False, True])
async def test_retry_after_makes_the_wait_longer(date):
    # A date has no fractions: two seconds from now is at least one away.
    in_2_s = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    started = time.monotonic()
    with ScriptedServer(faults=[Fault(status=429, headers={"Retry-After": in_2_s if date else "0.4"})]) as server:
        async with embedder_of(server) as embedder:
            await embedder.embed(["a"])

    assert time.monotonic() - started >= 0.4
    assert len(server.requests) == 2


async def test_retry_after_is_capped():
    retry = RetryPolicy(first_wait_s=0.001, longest_wait_s=0.001, longest_asked_s=0.01)
    error, requests = await failure_of(*[Fault(status=429, headers={"Retry-After": "3600"})] * 4, retry=retry)

    assert requests == 4
    assert error.retry_after_s == 3600


@pytest.mark.parametrize("value", ["soon", "nan", "-5", "Mon, 99 Foo 2020", ""])
async def test_a_retry_after_that_makes_no_sense_is_ignored(value):
    with ScriptedServer(faults=[Fault(status=429, headers={"Retry-After": value})]) as server:
        async with embedder_of(server) as embedder:
            await embedder.embed(["a"])

    assert len(server.requests) == 2


async def test_no_wait_begins_that_would_pass_the_budget():
    error, requests = await failure_of(
        Fault(status=503, headers={"Retry-After": "20"}), Fault(), retry=RetryPolicy(budget_s=5)
    )

    assert requests == 1
    assert error.retry_after_s == 20


async def test_the_budget_also_ends_a_try():
    error, requests = await failure_of(Fault(delay_s=9), retry=RetryPolicy(budget_s=1))

    assert error.reason == "no answer within 1 s"
    assert requests == 1


async def test_a_cancelled_call_is_not_repeated():
    with ScriptedServer(faults=itertools.repeat(Fault(delay_s=9))) as server:
        async with embedder_of(server) as embedder:
            call = asyncio.create_task(embedder.embed(["a"]))
            while not server.requests:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
    assert len(server.requests) == 1


# --- what goes wrong: wrong answers, not repeated


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (answer((0, [1, 0])), "1 vectors for 2 texts"),
        (answer((0, [1, 0]), (1, [1, 0, 0])), "differ in length"),
        (answer((0, [1, 0]), (1, ["a", "b"])), "not lists of numbers"),
        (answer((0, [1, 0]), (1, None)), "not lists of numbers"),
        (answer((0, []), (1, [])), "not lists of numbers"),
        (answer((0, 1), (1, 2)), "not lists of numbers"),
        (answer((0, [1, 0]), (1, [float("nan"), 1])), "NaN"),
        (answer((0, [1, 0]), (1, [float("inf"), 1])), "NaN or an infinite"),
        (answer((0, [1, 0]), (1, [0, 0])), "all zeros"),
        (answer((0, [1, 0]), (0, [0, 1])), "does not number"),
        (answer((1, [1, 0]), (2, [0, 1])), "does not number"),
        (Fault(body=""), "not JSON"),
        (Fault(body='{"data": ['), "not JSON"),
        (Fault(body="<html>Bad gateway</html>", headers={"Content-Type": "text/html"}), "not JSON"),
        (Fault(body=b"\xff\xfe"), "not JSON"),
        (Fault(body='{"data": [{"embedding": [' + ",".join(["9" * 4299] * 30) + "]}]}"), "a number in it is too long"),
        (Fault(body='"text"'), "no list of vectors"),
        (Fault(body='{"error": {"message": "quota"}}'), "no list of vectors"),
        (Fault(body='{"data": [1, 2]}'), "no list of vectors"),
    ],
)
async def test_a_wrong_answer_is_unavailable_with_its_reason(fault, reason):
    error, requests = await failure_of(fault, texts=["a", "b"])

    assert reason in error.reason
    assert requests == 1


async def test_a_dimension_that_changes_is_unavailable():
    with ScriptedServer(dimension=8) as server:
        async with embedder_of(server) as embedder:
            await embedder.embed(["a"])
            server.dimension = 9
            with pytest.raises(Unavailable, match="the dimension of its vectors changed from 8 to 9"):
                await embedder.embed(["b"])
            assert await embedder.dimension() == 8


# --- secrets


@pytest.mark.parametrize("status", [401, 500])
async def test_the_key_is_never_in_an_error_nor_in_its_cause(status):
    said = json.dumps({"error": {"message": f"Incorrect key {KEY}, Bearer {KEY}, sk-other-key-99 http://me:pw@host/"}})
    error, _ = await failure_of(*[Fault(status=status, body=said)] * 4)

    printed = "".join(traceback.format_exception(error))
    assert "Incorrect key ***" in error.reason
    for secret in (KEY, "sk-other-key-99", "me:pw"):
        assert secret not in printed


async def test_a_long_message_is_cut_and_stays_on_one_line():
    said = json.dumps({"error": {"message": "too long\n" * 100}})
    error, _ = await failure_of(Fault(status=400, body=said))

    assert error.reason.startswith("HTTP 400: too long too long")
    assert len(error.reason) == 200


# --- litellm


# Looked up, not imported: imported by the test it would fetch its price list, which the embedder tells it not to.
@pytest.mark.skipif(importlib.util.find_spec("litellm") is None, reason="litellm is not installed")
@pytest.mark.filterwarnings("ignore")
async def test_litellm_reaches_other_providers_without_retries_of_its_own():
    with ScriptedServer(dimension=8) as server:
        voyage = LiteLLMEmbedder("voyage/voyage-3.5", base_url=server.base_url, api_key=KEY, retry=AT_ONCE)
        np.testing.assert_allclose(await voyage.embed(["a", "b"]), [unit_vector(t, 8) for t in "ab"], atol=1e-6)
        await voyage.embed_query("c")
    kinds = [request.body["input_type"] for request in server.requests]
    assert kinds == ["document", "query"]

    # "openai/" takes the way of litellm's OpenAI-like providers, which retries when it is told 0.
    for name in ("voyage/voyage-3.5", "openai/small"):
        refusal = Fault(status=429, headers={"Retry-After": "7"}, body=json.dumps({"error": {"message": KEY}}))
        with ScriptedServer(faults=itertools.repeat(refusal)) as server:
            retry = RetryPolicy(first_wait_s=0.001, longest_wait_s=0.001, longest_asked_s=0.01)
            embedder = LiteLLMEmbedder(name, base_url=server.base_url, api_key=KEY, retry=retry)
            with pytest.raises(Unavailable, match="after 4 tries: HTTP 429") as raised:
                await embedder.embed(["a"])
        assert len(server.requests) == 4
        assert raised.value.retry_after_s == 7
        assert KEY not in "".join(traceback.format_exception(raised.value))
    await embedder.aclose()


def test_importing_the_module_imports_no_sdk():
    loaded = "import sys, retrievers.embed.remote; print({'openai', 'litellm', 'fastembed'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"


# --- fastembed


async def test_without_fastembed_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastembed", None)

    with pytest.raises(Unavailable, match=r"pip install '\.\[local\]'"):
        await FastEmbedEmbedder("fastembed:BAAI/bge-small-en-v1.5").embed(["a"])


# --- recent questions


def test_a_full_cache_forgets_what_was_not_asked_for_the_longest():
    cache = QueryCache(capacity=2)
    for text in ("a", "b"):
        cache.put(text, np.zeros(1, dtype=np.float32))
    cache.get("a")
    cache.put("c", np.zeros(1, dtype=np.float32))

    assert [text for text in "abc" if cache.get(text) is not None] == ["a", "c"]


def test_a_remembered_vector_cannot_be_written_to():
    cache = QueryCache()
    cache.put("a", np.zeros(1, dtype=np.float32))

    with pytest.raises(ValueError, match="read-only"):
        cache.get("a")[0] = 1
