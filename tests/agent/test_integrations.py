"""The adapters in the real pipelines of LangChain, LlamaIndex and Haystack, skipped where a package is missing."""

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from agent import open_service
from agent.integrations.blocking import BlockingService, open_blocking
from agent.settings import Settings
from retrievers.core.errors import BadFilter, BadRequest
from retrievers.core.optional_dependencies import install_command
from retrievers.ingest.documents import Document
from retrievers.postgres.server.schema_migrations import SERVICE_ROLE

# Before the packages are imported: some of them call home.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
os.environ["LANGSMITH_TRACING"] = "false"

MARCH = "Emperor penguins march across the ice to breed."
SWIM = "Penguins swim after krill in the cold sea."
QUESTION = "Where do penguins march?"


@pytest.fixture(scope="module")
def settings(module_url: str) -> Settings:
    """Of a database for this file: what is stored below is only read."""
    service_url = make_conninfo(module_url, user=SERVICE_ROLE)
    return Settings(database_url=module_url, service_url=service_url, pool_size=4)


@pytest.fixture(scope="module")
def service(settings: Settings) -> Iterator[BlockingService]:
    with open_blocking(settings) as service:
        march = Document("march", "march", "The march", MARCH, metadata={"year": 2005, "tags": ["ice", "film"]})
        swim = Document("swim", "swim", "The sea", SWIM, url="https://example.org/swim", metadata={"year": 2019})
        service.ingest([march, swim], "birds")
        yield service


# LangChain


@pytest.fixture
def langchain() -> Any:
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    from agent.integrations import langchain

    return langchain


def test_a_langchain_document_says_its_passage_score_and_place(service: BlockingService, langchain: Any):
    found = langchain.SignalboxRetriever(service=service, collection="birds").invoke(QUESTION)

    result = service.retrieve(QUESTION, collection="birds")
    assert [(one.id, one.page_content) for one in found] == [("birds/march#0", MARCH), ("birds/swim#0", SWIM)]
    first = found[0].metadata
    assert (first["title"], first["year"], first["score"]) == ("The march", 2005, result.hits[0].score)
    said = first["signalbox"]
    assert (said["document_id"], said["start"], said["end"], said["rank"]) == ("march", 0, len(MARCH), 1)
    assert said["scores"] == result.hits[0].scores
    assert found[1].metadata["url"] == "https://example.org/swim"


async def test_a_langchain_chain_puts_what_was_found_into_its_prompt(service: BlockingService, langchain: Any):
    from langchain_core.language_models import FakeListChatModel
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.runnables import RunnableLambda, RunnablePassthrough

    asked: list[str] = []

    def keep(prompt: Any) -> Any:
        asked.append(prompt.to_string())
        return prompt

    retriever = langchain.SignalboxRetriever(service=service, collection="birds", top_k=1)
    joined = retriever | (lambda found: "\n".join(one.page_content for one in found))
    prompt = ChatPromptTemplate.from_template("{context}\n\n{question}")
    model = FakeListChatModel(responses=["on the ice"])
    chain = {"context": joined, "question": RunnablePassthrough()} | prompt | RunnableLambda(keep) | model
    chain = chain | StrOutputParser()

    assert await asyncio.to_thread(chain.invoke, QUESTION) == "on the ice"
    assert await chain.ainvoke(QUESTION) == "on the ice"
    assert asked == [f"Human: {MARCH}\n\n{QUESTION}"] * 2


def test_langchain_batches_run_side_by_side_in_the_order_of_the_questions(service: BlockingService, langchain: Any):
    retriever = langchain.SignalboxRetriever(service=service, collection="birds", top_k=1)
    found = retriever.batch(["krill in the sea", "march across the ice"] * 4)
    assert [one[0].metadata["signalbox"]["document_id"] for one in found] == ["swim", "march"] * 4


async def test_a_langchain_tool_gives_the_text_and_the_documents(service: BlockingService, langchain: Any):
    from langchain_core.tools import create_retriever_tool

    retriever = langchain.SignalboxRetriever(service=service, collection="birds", top_k=1)
    tool = create_retriever_tool(retriever, "birds", "About birds.", response_format="content_and_artifact")
    call = {"type": "tool_call", "id": "1", "name": "birds", "args": {"query": QUESTION}}
    message = await tool.ainvoke(call)
    assert (message.content, [one.id for one in message.artifact]) == (MARCH, ["birds/march#0"])


def test_options_of_one_langchain_call_win_over_the_retrievers_own(service: BlockingService, langchain: Any):
    retriever = langchain.SignalboxRetriever(service=service, collection="birds", top_k=1, options={"intent": "off"})
    newer = {"type": "gte", "key": "year", "value": 2010}
    assert [one.id for one in retriever.invoke(QUESTION, filter=newer)] == ["birds/swim#0"]
    assert len(retriever.invoke(QUESTION, top_k=2)) == 2
    with pytest.raises(BadRequest, match="top_k"):
        retriever.invoke(QUESTION, top_k=0)


async def test_an_open_service_serves_langchain_on_its_own_loop_and_refuses_to_be_waited_for_there(
    settings: Settings, service: BlockingService, langchain: Any
):
    async with open_service(settings) as own:
        retriever = langchain.SignalboxRetriever(service=own, collection="birds", top_k=1)
        assert [one.id for one in await retriever.ainvoke(QUESTION)] == ["birds/march#0"]
        assert [len(one) for one in await retriever.abatch([QUESTION] * 3)] == [1, 1, 1]
        with pytest.raises(RuntimeError, match="open_blocking"):
            retriever.invoke(QUESTION)


def test_what_is_no_service_is_refused_when_the_retriever_is_made(langchain: Any):
    with pytest.raises(TypeError, match="needs an open service"):
        langchain.SignalboxRetriever(service="http://localhost:8000")


# LlamaIndex


@pytest.fixture
def llamaindex() -> Any:
    pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")
    from agent.integrations import llamaindex

    return llamaindex


async def test_llamaindex_nodes_say_their_document_place_and_score(service: BlockingService, llamaindex: Any):
    from llama_index.core.schema import MetadataMode

    retriever = llamaindex.SignalboxRetriever(service, collection="birds")
    found = await asyncio.to_thread(retriever.retrieve, QUESTION)
    assert [(one.node.node_id, one.node.ref_doc_id) for one in found] == [
        ("birds/march#0", "march"),
        ("birds/swim#0", "swim"),
    ]
    node = found[0].node
    assert (node.text, node.start_char_idx, node.end_char_idx) == (MARCH, 0, len(MARCH))
    assert found[0].score == service.retrieve(QUESTION, collection="birds").hits[0].score
    # A model reads the document's own metadata, not how it was found.
    assert "2005" in node.get_content(MetadataMode.LLM)
    assert "trace_id" not in node.get_content(MetadataMode.LLM)
    assert [one.node.node_id for one in await retriever.aretrieve(QUESTION)] == ["birds/march#0", "birds/swim#0"]


async def test_a_llamaindex_query_engine_answers_from_what_was_found(service: BlockingService, llamaindex: Any):
    from llama_index.core.llms import MockLLM
    from llama_index.core.query_engine import RetrieverQueryEngine

    retriever = llamaindex.SignalboxRetriever(service, collection="birds", top_k=1)
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    # The mock model answers with its prompt.
    for answer in (await asyncio.to_thread(engine.query, QUESTION), await engine.aquery(QUESTION)):
        assert MARCH in str(answer)
        assert [one.node.node_id for one in answer.source_nodes] == ["birds/march#0"]


def test_llamaindex_fuses_what_two_retrievers_found_by_passage(service: BlockingService, llamaindex: Any):
    from llama_index.core.llms import MockLLM
    from llama_index.core.retrievers import QueryFusionRetriever

    both = [llamaindex.SignalboxRetriever(service, collection="birds", top_k=top_k) for top_k in (2, 1)]
    fusion = QueryFusionRetriever(both, llm=MockLLM(), num_queries=1, mode="reciprocal_rerank", use_async=False)
    found = fusion.retrieve(QUESTION)
    assert [one.node.node_id for one in found] == ["birds/march#0", "birds/swim#0"]
    # The first of both lists, and the second of one: 2 / 60 and 1 / 61.
    assert [one.score for one in found] == [pytest.approx(2 / 60), pytest.approx(1 / 61)]


def test_llamaindex_filters_mean_what_they_mean_there(service: BlockingService, llamaindex: Any):
    from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

    def found(*parts: Any, condition: Any = FilterCondition.AND) -> list[str]:
        filters = MetadataFilters(filters=list(parts), condition=condition)
        retriever = llamaindex.SignalboxRetriever(service, collection="birds", filters=filters)
        return sorted(one.node.ref_doc_id for one in retriever.retrieve("penguins"))

    def one(key: str, operator: str, value: Any) -> Any:
        return MetadataFilter(key=key, operator=FilterOperator(operator), value=value)

    assert found(one("year", ">", 2010)) == ["swim"]
    assert found(one("year", "==", 2005)) == ["march"]
    assert found(one("year", "in", [2005, 2019])) == ["march", "swim"]
    assert found(one("tags", "contains", "film")) == ["march"]
    assert found(one("tags", "all", ["film", "ice"])) == ["march"]
    assert found(one("tags", "all", ["film", "sea"])) == []
    assert found(one("tags", "any", ["film", "sea"])) == ["march"]
    assert found(one("tags", "is_empty", None)) == ["swim"]
    assert found(one("title", "text_match", "sea")) == ["swim"]
    # NOT of several is: none of them.
    assert found(one("year", "==", 2005), one("year", "==", 1), condition=FilterCondition.NOT) == ["swim"]
    inner = MetadataFilters(filters=[one("year", "==", 2005), one("year", "==", 2019)], condition=FilterCondition.OR)
    assert found(inner, one("tags", "any", ["ice"])) == ["march"]
    with pytest.raises(BadFilter, match="text_match_insensitive"):
        found(one("title", "text_match_insensitive", "SEA"))


# Haystack


@pytest.fixture
def haystack() -> Any:
    pytest.importorskip("haystack", reason="haystack-ai is not installed")
    from agent.integrations import haystack

    return haystack


def pipeline_of(retriever: Any) -> Any:
    from haystack import Pipeline
    from haystack.components.builders import PromptBuilder

    template = "{% for one in documents %}[{{ one.id }}] {{ one.content }}\n{% endfor %}{{ question }}"
    pipeline = Pipeline()
    pipeline.add_component("retriever", retriever)
    pipeline.add_component("prompt", PromptBuilder(template, required_variables="*"))
    pipeline.connect("retriever.documents", "prompt.documents")
    return pipeline


async def test_a_haystack_pipeline_builds_its_prompt_from_what_was_found(service: BlockingService, haystack: Any):
    pipeline = pipeline_of(haystack.SignalboxRetriever(service, collection="birds", top_k=1))
    asked = {"retriever": {"query": QUESTION}, "prompt": {"question": QUESTION}}
    prompt = f"[birds/march#0] {MARCH}\n{QUESTION}"
    assert (await asyncio.to_thread(pipeline.run, asked))["prompt"]["prompt"] == prompt
    assert (await pipeline.run_async(asked))["prompt"]["prompt"] == prompt
    asked["retriever"]["filters"] = {"field": "meta.year", "operator": ">", "value": 2010}
    assert (await pipeline.run_async(asked))["prompt"]["prompt"] == f"[birds/swim#0] {SWIM}\n{QUESTION}"


def test_a_haystack_document_says_its_score_and_place(service: BlockingService, haystack: Any):
    first = haystack.SignalboxRetriever(service, collection="birds").run(QUESTION)["documents"][0]
    assert (first.id, first.content) == ("birds/march#0", MARCH)
    assert first.score == service.retrieve(QUESTION, collection="birds").hits[0].score
    assert (first.meta["year"], first.meta["signalbox"]["end"]) == (2005, len(MARCH))


def condition(operator: str, value: Any, field: str = "meta.year") -> dict[str, Any]:
    return {"field": field, "operator": operator, "value": value}


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (condition("==", 2005), ["march"]),
        (condition("!=", 2005), ["swim"]),
        (condition(">", 2005), ["swim"]),
        (condition(">=", 2005), ["march", "swim"]),
        (condition("<", 2019), ["march"]),
        (condition("<=", 2019), ["march", "swim"]),
        (condition("in", [2005, 1]), ["march"]),
        (condition("not in", [2005, 1]), ["swim"]),
        (condition("==", "ice", "tags"), ["march"]),
        (condition("==", None, "meta.tags"), ["swim"]),
        (condition("!=", None, "meta.tags"), ["march"]),
        ({"operator": "AND", "conditions": [condition(">", 2000), condition("<", 2010)]}, ["march"]),
        ({"operator": "OR", "conditions": [condition("==", 2005), condition("==", 2019)]}, ["march", "swim"]),
        ({"operator": "NOT", "conditions": [condition(">", 2000), condition("<", 2010)]}, ["swim"]),
    ],
)
def test_haystack_filters_mean_what_they_mean_there(
    service: BlockingService, haystack: Any, filters: dict[str, Any], found: list[str]
):
    documents = haystack.SignalboxRetriever(service, collection="birds", filters=filters).run("penguins")["documents"]
    assert sorted(one.meta["signalbox"]["document_id"] for one in documents) == found


@pytest.mark.parametrize(
    ("filters", "reason"),
    [
        ({"operator": "XOR", "conditions": []}, "AND, OR, NOT"),
        ({"operator": "AND", "conditions": []}, "list of conditions"),
        ({"operator": "AND", "conditions": ["year"]}, r"filters\.conditions\.0 is not a Haystack condition"),
        (condition("~", 1), "operator must be one of"),
        (condition("==", "x", "content"), "not metadata"),
        (condition("==", "x", "id"), "meta.id"),
        (condition(">", None), "accept None"),
    ],
)
def test_what_haystack_filters_cannot_say_here_is_refused(
    service: BlockingService, haystack: Any, filters: dict[str, Any], reason: str
):
    with pytest.raises(BadFilter, match=reason):
        haystack.SignalboxRetriever(service, filters=filters)


def test_a_field_that_the_collection_lacks_is_named_with_those_it_has(service: BlockingService, haystack: Any):
    retriever = haystack.SignalboxRetriever(service, collection="birds")
    with pytest.raises(BadFilter, match=r'"decade"; valid keys: .*"year"'):
        retriever.run(QUESTION, filters=condition("==", 1, "meta.decade"))


# Without the packages


@pytest.mark.parametrize(
    ("adapter", "module", "package"),
    [
        ("langchain", "langchain_core", "langchain-core"),
        ("llamaindex", "llama_index", "llama-index-core"),
        ("haystack", "haystack", "haystack-ai"),
    ],
)
def test_a_missing_package_is_one_line_that_says_what_to_install(adapter: str, module: str, package: str):
    script = f"""
        import sys
        sys.modules[{module!r}] = None
        import agent.integrations
        loaded = {{"langchain_core", "llama_index", "haystack"}} & {{name for name in sys.modules if sys.modules[name]}}
        assert not loaded, loaded
        import agent.integrations.{adapter}
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith(f"ImportError: agent.integrations.{adapter} needs {package}: {install_command('adapters')}")
