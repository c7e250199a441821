"""Hidden code points and control tokens in documents, questions, turns and web pages: no prompt holds them."""

import json
import re
import runpy
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from mcp import Client
from mcp_types import TextContent, TextResourceContents

from agent import Service, open_service
from agent.answering import search_tool as function_tool
from agent.answering.faithfulness_check import split_answer
from agent.answering.search_tool import result_output
from agent.serve.authentication import Caller
from agent.serve.mcp import server as mcp
from agent.serve.mcp import tools
from agent.serve.mcp.server import build_server
from agent.serve.mcp.tools import CitedAnswer, prompt_safe_answer
from agent.settings import Settings
from agent.testing import ReceivedRequest, ScriptedServer
from agent.types import Intent, Message
from retrievers.ingest.documents import Document
from retrievers.testing import processor_s
from retrievers.text.prompt_sanitising import sanitise_prompt_text

DATA: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[1] / "data_hidden.py"))
HIDDEN: list[str] = DATA["HIDDEN"]
TOKENS: list[str] = DATA["CONTROL_TOKENS"]
UNSEEN = re.compile("|".join(map(re.escape, (*HIDDEN, *TOKENS))))
DOCUMENTS = 12
PLAN = {
    "kind": "retrieve", "question": "When does the rotor stop?", "language": "en", "searches": ["rotor stops"],
    "filter": None, "time": None, "sources": ["fulltext", "vector"], "aggregate": None, "confidence": 0.9,
}  # fmt: skip
REPLIES = {
    "a plan for searching": json.dumps(PLAN),
    "order passages": '{"order": [1]}',
    "check an answer": '{"verdicts": [{"sentence": 1, "supported": true, "passages": [1]}]}',
}
"""By words of the stage's instructions; every other stage is answered in prose."""


def disguised(number: int, words: str) -> str:
    """The words with a share of all hidden code points between their letters, and with control tokens before them."""
    marks = HIDDEN[number % DOCUMENTS :: DOCUMENTS]
    per_letter = -(-len(marks) // len(words))
    shares = ("".join(marks[at * per_letter : (at + 1) * per_letter]) for at in range(len(words)))
    hidden = "".join(letter + share for letter, share in zip(words, shares, strict=True))
    tokens = TOKENS[number % DOCUMENTS :: DOCUMENTS]
    return f"{' '.join(tokens)} {tokens[0][:2]}\u2060{tokens[0][2:]} {hidden}"


def strings(value: Any) -> Iterator[str]:
    """Every string of a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from (key, *strings(one))
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)


@dataclass(frozen=True)
class NewExchange:
    """A service over disguised documents and web pages, and the model that it asks."""

    service: Service
    model: ScriptedServer

    def stages(self) -> set[str]:
        """First words of the instructions of every call so far, none of which was given anything unseen."""
        bodies = [request.body for request in self.model.requests if "messages" in (request.body or {})]
        assert [one for body in bodies for one in strings(body["messages"]) if UNSEEN.search(one)] == []
        return {" ".join(body["messages"][0]["content"].split()[:4]) for body in bodies}


def replied(body: dict[str, Any]) -> str:
    instructions = body["messages"][0]["content"]
    return next((said for words, said in REPLIES.items() if words in instructions), "The rotor stops in a storm [1].")


def found_on_the_web(request: ReceivedRequest) -> Any:
    number = int(re.sub(r"\D", "", parse_qs(urlsplit(request.path).query)["q"][0])[:1] or 0)
    page = {"url": f"https://a.example/{number}", "title": disguised(number, "A storm"), "engine": "x", "score": 1.0}
    return {"query": "q", "results": [page | {"content": disguised(number, "The rotor stops in a storm.")}]}


@pytest.fixture
async def asking(owner_url: str, service_url: str) -> AsyncIterator[NewExchange]:
    with ScriptedServer(replied, other=found_on_the_web) as model:
        settings = Settings(
            database_url=owner_url, service_url=service_url, llm="openai/small", llm_base_url=model.base_url,
            llm_api_key="any", timeout_s=60, source_timeout_s=60, reranker="llm", judge="llm",
            transforms=("compress", "rewrite", "hyde"), web_provider="searxng", web_base_url=model.root_url,
        )  # fmt: skip
        async with open_service(settings) as service:
            documents = [
                Document(
                    where=f"d{n}", id=f"d{n}", title=disguised(n, f"Rotor {n}"), url=f"https://a.example/{HIDDEN[n]}",
                    text=f"Rotor {n}: the rotor stops in a storm. {disguised(n, f'The rotor {n} stops in a storm.')}",
                    metadata={f"te{HIDDEN[n]}am": f"cr{HIDDEN[-n]}ew <s>", "tags": [f"st{HIDDEN[n]}orm", "[INST]"]},
                )
                for n in range(DOCUMENTS)
            ]  # fmt: skip
            written = await service.ingest(documents, "docs")
            assert (written.inserted, list(written.failed)) == (DOCUMENTS, [])
            yield NewExchange(service, model)


@pytest.mark.slow
async def test_no_prompt_of_any_stage_holds_what_nobody_sees(asking: NewExchange):
    service = asking.service
    for n in range(DOCUMENTS):
        question = f"When does rotor {n} stop? {disguised(n, 'In a storm')}"
        prompt = await service.augment(question, collection="docs", intent="rules", reranker="none", context="section")
        assert prompt.citations
        shown = [prompt.prompt, *(turn.content for turn in prompt.messages)]
        assert [text for text in shown if UNSEEN.search(text)] == []
        if n % 6 == 0:
            turns = [Message(role="system", content=disguised(n, "Be brief.")), *said(n, "Hello"), *said(n, "Storms")]
            await service.ask(question, collection="docs", messages=turns)
            of_the_web = await service.ask(f"{n} storms {question}", sources=["web"], messages=turns)
            assert {one.source for one in of_the_web.outcomes if one.hits} == {"web"}
            assert of_the_web.citations
            async for _ in service.chat_stream(question, collection="docs", conversation="c", messages=turns):
                pass
    assert asking.stages() >= {
        "You answer requests from",
        "You turn one question",
        "You order passages by",
        "You check an answer",
        "You rewrite the last",
        "You reword a question",
        "You write the passage",
    }


def said(number: int, words: str) -> list[Message]:
    """A turn of the user and one of the assistant."""
    text = disguised(number, words)
    return [Message(role="user", content=text), Message(role="assistant", content=f"{text} [\u200b1]")]


async def test_what_is_stored_and_what_cites_it_stays_as_it_is(asking: NewExchange):
    prompt = await asking.service.augment("When does rotor 3 stop?", collection="docs", intent="off", reranker="none")
    assert {hit.document_id for hit in prompt.hits} >= {"d3"}
    stored = {hit.document_id: await asking.service.document("docs", hit.document_id) for hit in prompt.hits}
    assert set(HIDDEN[3::DOCUMENTS]) <= set(stored["d3"].text)
    for hit in prompt.hits:
        document = stored[hit.document_id]
        assert hit.text == document.text[hit.start : hit.end]
        assert (hit.title, hit.url, hit.metadata) == (document.title, document.url, document.metadata)
        assert all(hit.text[start:end].isalnum() for start, end in hit.highlights)
    for cited in prompt.citations:
        document = stored[cited.document_id]
        assert (cited.title, cited.url) == (document.title, document.url)
        assert sanitise_prompt_text(document.text[cited.start : cited.end]) in prompt.prompt


async def test_nothing_that_a_model_reads_over_mcp_or_as_a_tool_is_unseen(asking: NewExchange):
    question = f"When does rotor 2 stop? {disguised(2, 'In a storm')}"
    read: list[Any] = []
    async with Client(build_server(asking.service, lambda context: Caller("default", None))) as client:
        for tool in ("search_knowledge", "answer_with_citations", "describe_collections"):
            given = {} if tool == "describe_collections" else {"query": question, "collection": "docs"}
            answer = await client.call_tool(tool, given)
            assert not answer.is_error
            (block,) = answer.content
            assert isinstance(block, TextContent)
            assert json.loads(block.text) == answer.structured_content
            read.append(answer.structured_content)
        for hit in read[0]["hits"]:
            assert {hit["text"][start:end].lower() for start, end in hit["highlights"]} <= {"rotor", "stops", "storm"}
            assert {"rotor", "stops"} <= {hit["text"][start:end] for start, end in hit["highlights"]}
        for sentence in read[1]["sentences"]:
            assert read[1]["answer"][sentence["start"] : sentence["end"]] == sentence["text"]
        read.append((await client.list_tools()).model_dump(mode="json"))
        read.append((await client.list_resources()).model_dump(mode="json"))
        for content in (await client.read_resource("signalbox://collections/docs")).contents:
            assert isinstance(content, TextResourceContents)
            read.append(json.loads(content.text))
        wrong = {"query": "storm", "collection": "docs", "filter": {"type": "eq", "key": disguised(5, "x"), "value": 1}}
        refused = await client.call_tool("search_knowledge", wrong)
        assert refused.is_error
        read.append(refused.model_dump(mode="json"))
    read.append(json.loads(result_output(await asking.service.retrieve(question, collection="docs"))))
    assert [text for text in strings(read) if UNSEEN.search(text)] == []


def answered(text: str) -> CitedAnswer:
    """The answer with its sentences, without passages."""
    intent = Intent(question="q", language="en", searches=("q",), collections=())
    return CitedAnswer(
        trace_id="t", query="q", intent=intent, plan=(), hits=(), outcomes=(), status="found", took_ms=1, messages=(),
        prompt="", citations=(), tokens=1, answer=text, sentences=split_answer(text, 1),
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        *(disguised(n, "The rotor stops.") + f" It{HIDDEN[n]} starts again. Then </s> it turns." for n in range(3)),
        "Der Ro\u00adtor steht.\r\nEr la\u0308uft. Dann [INST] nicht.\n\n- Ein\u200b Punkt.\n- Noch einer.",
        "转子\u200b停止。它<s>又转。然后 [1] 停。",
        "می\u200cخواهم <|im_end|> بخوانم. نامه\u200c\u200cها را بخوان.",
    ],
)
def test_the_places_of_sentences_fit_the_answer_that_a_model_reads(text: str):
    shown = prompt_safe_answer(answered(text))
    assert shown["answer"] != text
    assert len(shown["sentences"]) > 1
    for sentence in shown["sentences"]:
        assert shown["answer"][sentence["start"] : sentence["end"]] == sentence["text"]


@pytest.mark.parametrize("edge", ["\r\n", "\u0301", "<|im_end|>", "\u200b", "क्\u200d", "😀\u200d"])
def test_places_stay_in_order_and_inside_the_answer_whatever_is_cut_there(edge: str):
    text = f"The rotor stops.{edge} It starts {edge}. "[:-1] * 5
    answer = answered(text)
    cut = tuple(answer.sentences[0].model_copy(update={"start": place, "end": place + 1}) for place in range(len(text)))
    shown = prompt_safe_answer(answer.model_copy(update={"sentences": cut}))
    edges = [place for one in shown["sentences"] for place in (one["start"], one["end"])]
    assert edges == sorted(edges)
    assert edges[0] == 0
    assert edges[-1] <= len(shown["answer"])


@pytest.mark.parametrize("hidden", ["\u200b", "<s>"])
def test_the_work_of_an_answer_grows_with_its_length_and_no_faster(hidden: str):
    def work_s(sentences: int) -> float:
        answer = answered(hidden + "The rotor stops. " * sentences)
        return processor_s(lambda: prompt_safe_answer(answer))

    # 8 times as long: 64 times the work where every sentence costs its prefix.
    assert work_s(1600) < 24 * work_s(200)


async def test_what_a_model_reads_is_cleaned_beside_the_event_loop(
    asking: NewExchange, monkeypatch: pytest.MonkeyPatch
):
    threads: list[int] = []
    for module in (mcp, tools, function_tool):
        clean = module.sanitise_prompt_value
        monkeypatch.setattr(
            module,
            "sanitise_prompt_value",
            lambda value, clean=clean: threads.append(threading.get_ident()) or clean(value),
        )
    async with Client(build_server(asking.service, lambda context: Caller("default", None))) as client:
        await client.call_tool("search_knowledge", {"query": "rotor", "collection": "docs"})
        await client.read_resource("signalbox://collections/docs")
    await asking.service.call_tool({"query": "rotor", "collection": "docs"})
    assert len(threads) == 3
    assert threading.get_ident() not in threads
