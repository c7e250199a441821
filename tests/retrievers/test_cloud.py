"""Knowledge bases elsewhere: each provider's exact requests and answers, and everything that may go wrong there."""

import hashlib
import hmac
import json
import logging
import re
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from agent import open_service
from agent.serve.cli.doctor import source_checks as doctor_sources
from agent.settings import Settings
from agent.testing import Fault, ReceivedRequest, ScriptedServer
from retrievers.cloud import alibaba_signature, bedrock, build
from retrievers.cloud.retriever import FORMS, Cloud
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.filters import parse_filter
from retrievers.core.metadata import Field
from retrievers.core.optional_dependencies import install_command
from retrievers.core.types import Collection, Hit, Query, Scope
from retrievers.http.json_client import JsonClient, ProviderRefusal
from retrievers.ingest.documents import Document
from retrievers.registry import Resources

KEY = "sk-very-secret-key-0123"
PAIR = f"LTAI-key-id:{KEY}"
FIELDS = {
    "team": Field("team", "string", "string"),
    "year": Field("year", "number", "number"),
    "tags": Field("tags", "list", "string"),
}
SCOPE = Scope("acme", (Collection(1, "acme", "docs", fields=FIELDS),))
RED = {"type": "eq", "key": "team", "value": "red"}
SINCE = {"type": "gte", "key": "year", "value": 2020}
RED_SINCE = {"type": "and", "filters": [RED, SINCE]}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for between two tries."""
    monkeypatch.setattr("retrievers.http.json_client._FIRST_WAIT_S", 0.001)


@asynccontextmanager
async def connected(
    cloud: str, base_url: str | None = None, key: str | None = KEY, **more: Any
) -> AsyncIterator[Cloud]:
    options = {"cloud": cloud, "cloud_api_key": key, "cloud_base_url": base_url}
    # Enough for a busy machine.
    options |= {"source_timeout_s": 60.0} | more
    built = build(Resources(None, None, None, options))
    assert built is not None
    try:
        yield built
    finally:
        await built.aclose()


def question(text: str = "how long?", wanted: object = None, limit: int = 100) -> Query:
    return Query(text, "en", SCOPE, parse_filter(wanted, FIELDS) if wanted else None, limit)


def shown(hits: list[Hit]) -> list[tuple[str, float, str, str, str | None]]:
    return [(h.id.document_id, h.score, h.chunk.title, h.chunk.text, h.chunk.url) for h in hits if h.chunk]


def own(hit: Hit) -> dict[str, Any]:
    """The metadata that the provider gave."""
    assert hit.chunk is not None
    assert hit.chunk.metadata["untrusted"] is True
    return {key: value for key, value in hit.chunk.metadata.items() if key not in ("untrusted", "retrieved_at")}


# What each provider is asked and answers, as documented.

DIFY = {
    "records": [
        {"content": "Five days.", "score": 0.5, "title": "Refunds", "metadata": {"team": "red", "year": 2021}},
        {
            "content": "Ten days.",
            "score": 0.8,
            "title": "Returns",
            "metadata": {"team": "blue", "path": "s3://b/r.txt"},
        },
        {"content": "No idea.", "score": 0.1, "title": "Other", "metadata": None},
    ]
}
OPENAI = {
    "object": "vector_store.search_results.page",
    "search_query": ["how long?"],
    "data": [
        {
            "file_id": "file-1",
            "filename": "refunds.md",
            "score": 0.9,
            "attributes": {"team": "red", "year": 2021, "url": "https://x.example/refunds"},
            "content": [{"type": "text", "text": "Five days."}, {"type": "text", "text": "Not more."}],
        },
        {
            "file_id": "file-1",
            "filename": "refunds.md",
            "score": 0.7,
            "attributes": None,
            "content": [{"type": "text", "text": "Ten days for returns."}],
        },
    ],
    "has_more": False,
    "next_page": None,
}
PIPELINE = {
    "code": "Success",
    "nodes": [
        {
            "node": {
                "text": "Five days.",
                "metadata": {"doc_id": "f1", "doc_name": "refunds", "team": "red", "year": 2021},
            },
            "score": 0.9,
        },
        {"node": {"text": "Ten days.", "metadata": {"doc_id": "f2", "title": "Returns"}}, "score": 0.4},
    ],
}
RETRIEVE = {
    "Code": "Success",
    "Success": True,
    "Message": "",
    "Status": "200",
    "RequestId": "1",
    "Data": {
        "Nodes": [
            {"Text": "Five days.", "Score": 0.9, "Metadata": {"doc_id": "f1", "doc_name": "refunds", "team": "red"}},
            {"Text": "Ten days.", "Score": 0.4, "Metadata": {"doc_id": "f2", "title": "Returns", "team": "blue"}},
        ]
    },
}
BEDROCK = {
    "retrievalResults": [
        {
            "content": {"type": "TEXT", "text": "Five days."},
            "location": {"type": "S3", "s3Location": {"uri": "s3://bucket/a/refunds.md"}},
            "metadata": {"team": "red", "year": 2021.0, "x-amz-bedrock-kb-chunk-id": "1"},
            "score": 0.6,
        },
        {
            "content": {"type": "TEXT", "text": "Ten days."},
            "location": {"type": "WEB", "webLocation": {"url": "https://x.example/returns"}},
            "metadata": {"team": "blue", "year": 2019.0},
            "score": 0.8,
        },
        {
            "content": {"type": "ROW", "row": [{"columnName": "days", "columnValue": "7", "type": "LONG"}]},
            "location": {"type": "SQL", "sqlLocation": {"query": "SELECT days"}},
            "documentId": "row-1",
            "score": 0.1,
        },
    ]
}
AZURE = {
    "response": [
        {
            "role": "assistant",
            "content": [
                {
                    "type": "text",
                    "text": json.dumps(
                        [
                            {"ref_id": 0, "title": "Refunds", "content": "Five days."},
                            {"ref_id": 1, "title": "Returns", "content": "Ten days."},
                        ]
                    ),
                }
            ],
        }
    ],
    "references": [
        {
            "type": "searchIndex",
            "id": "0",
            "activitySource": 2,
            "docKey": "doc-7",
            "rerankerScore": 2.4,
            "sourceData": {"team": "red", "year": 2021, "tags": ["x"]},
        },
        {"type": "searchIndex", "id": "1", "docKey": "doc-8", "rerankerScore": 3.1, "sourceData": None},
    ],
}
VERTEX = {
    "results": [
        {
            "id": "d1",
            "document": {
                "id": "d1",
                "name": "projects/1/d1",
                "structData": {"team": "red", "year": 2021},
                "derivedStructData": {
                    "title": "Refunds",
                    "link": "gs://bucket/refunds.pdf",
                    "extractive_segments": [{"content": "Five days."}, {"content": "Not more."}],
                    "snippets": [{"snippet": "Five <b>days</b>", "snippet_status": "SUCCESS"}],
                },
            },
        },
        {
            "id": "d2",
            "document": {
                "id": "d2",
                "structData": {"team": "blue"},
                "derivedStructData": {
                    "title": "Returns",
                    "link": "https://x.example/returns",
                    "snippets": [{"snippet": "Ten days.", "snippet_status": "SUCCESS"}],
                },
            },
        },
        {"id": "d3", "document": {"id": "d3", "structData": {"team": "green", "days": 7}}},
    ]
}


async def test_dify_is_asked_as_dify_asks():
    with ScriptedServer(other=lambda _: DIFY) as server:
        async with connected("dify:kb1", f"{server.root_url}/external/") as cloud:
            hits = await cloud.search(question(limit=7))
            filtered = await cloud.search(question(wanted=RED_SINCE))

    assert shown(hits) == [
        ("s3://b/r.txt", 0.8, "Returns", "Ten days.", None),
        ("Refunds", 0.5, "Refunds", "Five days.", None),
        ("Other", 0.1, "Other", "No idea.", None),
    ]
    assert own(hits[1]) == {"team": "red", "year": 2021}
    assert own(hits[2]) == {}
    assert [hit.id.document_id for hit in filtered] == ["Refunds"]
    first, second = server.requests
    assert (first.method, first.path) == ("POST", "/external/retrieval")
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert first.body == {
        "knowledge_id": "kb1",
        "query": "how long?",
        "retrieval_setting": {"top_k": 7, "score_threshold": 0.0},
    }
    assert second.body["retrieval_setting"]["top_k"] == 100
    assert second.body["metadata_condition"] == {
        "logical_operator": "and",
        "conditions": [
            {"name": "team", "comparison_operator": "is", "value": "red"},
            {"name": "year", "comparison_operator": "≥", "value": 2020},
        ],
    }


async def test_a_single_condition_at_dify_is_joined_by_and():
    with ScriptedServer(other=lambda _: DIFY) as server:
        async with connected("dify:kb1", server.root_url) as cloud:
            await cloud.search(question(wanted=RED))
    assert server.requests[0].body["metadata_condition"] == {
        "logical_operator": "and",
        "conditions": [{"name": "team", "comparison_operator": "is", "value": "red"}],
    }


async def test_openai_is_asked_for_passages_of_its_files():
    with ScriptedServer(other=lambda _: OPENAI) as server:
        async with connected("openai:vs_1", server.base_url) as cloud:
            hits = await cloud.search(question())
            filtered = await cloud.search(question(wanted=RED_SINCE))

    assert shown(hits) == [
        ("file-1", 0.9, "refunds.md", "Five days.\nNot more.", "https://x.example/refunds"),
        ("file-1", 0.7, "refunds.md", "Ten days for returns.", None),
    ]
    assert len({hit.id for hit in hits}) == 2
    assert [text for _, _, _, text, _ in shown(filtered)] == ["Five days.\nNot more."]
    first, second = server.requests
    assert (first.method, first.path) == ("POST", "/v1/vector_stores/vs_1/search")
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert first.body == {"query": "how long?", "max_num_results": 50}
    assert second.body["filters"] == RED_SINCE


def pipeline(request: ReceivedRequest) -> Any:
    return {"id": "p/1", "code": "Success"} if request.method == "GET" else PIPELINE


async def test_a_pipeline_of_bailian_is_looked_up_by_its_name_once():
    with ScriptedServer(other=pipeline) as server:
        async with connected("bailian:pipeline/员工手册", server.root_url) as cloud:
            hits = await cloud.search(question())
            filtered = await cloud.search(question(wanted=RED))

    assert shown(hits) == [("f1", 0.9, "refunds", "Five days.", None), ("f2", 0.4, "Returns", "Ten days.", None)]
    assert [hit.id.document_id for hit in filtered] == ["f1"]
    paths = [(request.method, unquote(request.path)) for request in server.requests]
    assert paths == [
        ("GET", "/api/v1/indices/pipeline_simple?pipeline_name=员工手册"),
        ("POST", "/api/v1/indices/pipeline/p/1/retrieve"),
        ("POST", "/api/v1/indices/pipeline/p/1/retrieve"),
    ]
    assert "/pipeline/p%2F1/" in server.requests[1].path
    assert all(request.headers["authorization"] == f"Bearer {KEY}" for request in server.requests)
    assert server.requests[1].body == {
        "query": "how long?",
        "dense_similarity_top_k": 100,
        "sparse_similarity_top_k": 100,
        "enable_reranking": True,
        "rerank_top_n": 20,
    }


@pytest.mark.parametrize(
    ("answer", "status", "expected"),
    [
        ({"code": "Success", "id": None}, 404, r"correct CLOUD .*Index:handbook NotExist"),
        ({"code": "Index:handbook NotExist"}, 404, r"correct CLOUD .*Index:handbook NotExist"),
        ({"code": "InvalidApiKey", "message": "no such key"}, 403, r"set CLOUD_API_KEY .*no such key"),
    ],
)
async def test_a_pipeline_that_is_not_found_is_named(answer: Any, status: int, expected: str):
    with ScriptedServer(other=lambda _: answer) as server:
        async with connected("bailian:pipeline/handbook", server.root_url) as cloud:
            with pytest.raises(ProviderRefusal, match=expected) as raised:
                await cloud.search(question())
    assert raised.value.status == status


async def test_a_pipeline_that_was_made_anew_is_looked_up_again():
    ids = iter(["old", "new"])

    def answer(request: ReceivedRequest) -> Any:
        if request.method == "GET":
            return {"id": next(ids)}
        return PIPELINE if "/new/" in request.path else (404, {"code": "NotFound", "message": "no such pipeline"})

    with ScriptedServer(other=answer) as server:
        async with connected("bailian:pipeline/handbook", server.root_url) as cloud:
            with pytest.raises(ProviderRefusal, match="no such knowledge base"):
                await cloud.search(question())
            assert len(await cloud.search(question())) == 2


async def test_the_retrieve_api_of_bailian_is_asked_with_a_signature():
    with ScriptedServer(other=lambda _: RETRIEVE) as server:
        async with connected("bailian:llm-ws/idx 1", server.root_url, PAIR) as cloud:
            hits = await cloud.search(question("多久 & how long?"))
            filtered = await cloud.search(question(wanted=RED))
            await cloud.search(question("长" * 3000))

    assert shown(hits) == [("f1", 0.9, "refunds", "Five days.", None), ("f2", 0.4, "Returns", "Ten days.", None)]
    assert [hit.id.document_id for hit in filtered] == ["f1"]
    first, second, third = server.requests
    path, _, query = first.path.partition("?")
    assert (first.method, path) == ("POST", "/llm-ws/index/retrieve")
    assert dict(parse_qsl(query)) == {
        "IndexId": "idx 1",
        "Query": "多久 & how long?",
        "DenseSimilarityTopK": "100",
        "SparseSimilarityTopK": "100",
        "EnableReranking": "true",
        "RerankTopN": "20",
    }
    assert json.loads(dict(parse_qsl(second.path.partition("?")[2]))["SearchFilters"]) == [{"team": "red"}]
    assert dict(parse_qsl(third.path.partition("?")[2]))["Query"] == "长" * 1000
    for request in server.requests:
        assert_signed(request)
    nonces = {request.headers["x-acs-signature-nonce"] for request in server.requests}
    assert len(nonces) == 3


def assert_signed(request: ReceivedRequest) -> None:
    """Sign what arrived, header by header as the request itself says it was signed, and compare."""
    found = re.fullmatch(
        r"ACS3-HMAC-SHA256 Credential=LTAI-key-id,SignedHeaders=([a-z0-9;-]+),Signature=([0-9a-f]{64})",
        request.headers["authorization"],
    )
    assert found is not None
    names = found[1].split(";")
    assert names == sorted(names)
    assert {"host", "x-acs-action", "x-acs-content-sha256", "x-acs-date", "x-acs-signature-nonce"} <= set(names)
    assert (request.headers["x-acs-action"], request.headers["x-acs-version"]) == ("Retrieve", "2023-12-29")
    assert request.body is None
    empty = hashlib.sha256(b"").hexdigest()
    assert request.headers["x-acs-content-sha256"] == empty
    path, _, query = request.path.partition("?")
    assert query.split("&") == sorted(query.split("&"))
    headers = "".join(f"{name}:{request.headers[name]}\n" for name in names)
    text = f"{request.method}\n{path}\n{query}\n{headers}\n{found[1]}\n{empty}"
    to_sign = f"ACS3-HMAC-SHA256\n{hashlib.sha256(text.encode()).hexdigest()}"
    assert found[2] == hmac.new(KEY.encode(), to_sign.encode(), hashlib.sha256).hexdigest()


def test_a_signature_is_that_of_the_example_in_alibaba_clouds_documentation():
    query = alibaba_signature.signed_query_string(
        {"RegionId": "cn-shanghai", "ImageId": "win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd"}
    )
    headers = alibaba_signature.signed_headers(
        "POST",
        "ecs.cn-shanghai.aliyuncs.com",
        "/",
        query,
        action="RunInstances",
        version="2014-05-26",
        key_id="YourAccessKeyId",
        secret="YourAccessKeySecret",
        date="2023-10-26T10:22:32Z",
        nonce="3156853299f313e23d1673dc12e1703d",
    )
    assert headers["Authorization"] == (
        "ACS3-HMAC-SHA256 Credential=YourAccessKeyId,SignedHeaders=host;x-acs-action;x-acs-content-sha256;x-acs-date;"
        "x-acs-signature-nonce;x-acs-version,Signature=06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0"
    )


def test_what_is_signed_is_quoted_as_rfc_3986_says():
    assert alibaba_signature.signed_query_string({"b": "a b+c~d*e/f", "a": "多"}) == "a=%E5%A4%9A&b=a%20b%2Bc~d%2Ae%2Ff"


async def test_bedrock_is_asked_through_its_own_library():
    with ScriptedServer(other=lambda _: BEDROCK) as server:
        async with connected("bedrock:eu-west-1/KB12345678", server.root_url, f"AKIA123:{KEY}") as cloud:
            hits = await cloud.search(question(limit=7))
            filtered = await cloud.search(question(wanted=RED_SINCE))

    assert shown(hits) == [
        ("https://x.example/returns", 0.8, "returns", "Ten days.", "https://x.example/returns"),
        ("s3://bucket/a/refunds.md", 0.6, "refunds.md", "Five days.", None),
        ("row-1", 0.1, "row-1", "days: 7", None),
    ]
    assert own(hits[1]) == {"team": "red", "year": 2021.0, "x-amz-bedrock-kb-chunk-id": "1"}
    assert [hit.id.document_id for hit in filtered] == ["s3://bucket/a/refunds.md"]
    first, second = server.requests
    assert (first.method, first.path) == ("POST", "/knowledgebases/KB12345678/retrieve")
    assert "Credential=AKIA123/" in first.headers["authorization"]
    assert "/eu-west-1/bedrock/aws4_request" in first.headers["authorization"]
    assert first.body == {
        "retrievalQuery": {"text": "how long?"},
        "retrievalConfiguration": {"vectorSearchConfiguration": {"numberOfResults": 7}},
    }
    assert second.body["retrievalConfiguration"]["vectorSearchConfiguration"] == {
        "numberOfResults": 100,
        "filter": {
            "andAll": [
                {"equals": {"key": "team", "value": "red"}},
                {"greaterThanOrEquals": {"key": "year", "value": 2020}},
            ]
        },
    }


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "AccessDeniedException", "set CLOUD_API_KEY"),
        (404, "ResourceNotFoundException", "no such knowledge base"),
        (429, "ThrottlingException", "its limit is reached"),
        (402, "ServiceQuotaExceededException", "ServiceQuotaExceededException: it said so"),
        (500, "InternalServerException", "InternalServerException: it said so"),
        (424, "DependencyFailedException", "DependencyFailedException: it said so"),
    ],
)
async def test_errors_of_bedrock_are_tried_once_and_told(status: int, code: str, message: str):
    with ScriptedServer(other=lambda _: (status, {"__type": code, "message": f"it said so {KEY}"})) as server:
        async with connected("bedrock:eu-west-1/KB12345678", server.root_url, f"AKIA123:{KEY}") as cloud:
            with pytest.raises(ProviderRefusal, match=message) as raised:
                await cloud.search(question())
    assert len(server.requests) == 1
    assert KEY not in str(raised.value)


async def test_a_filter_that_bedrocks_store_does_not_know_is_the_callers_matter():
    refusal = {"__type": "ValidationException", "message": "startsWith is not supported"}
    with ScriptedServer(other=lambda _: (400, refusal)) as server:
        async with connected("bedrock:eu-west-1/KB12345678", server.root_url, PAIR) as cloud:
            with pytest.raises(BadRequest, match="startsWith is not supported") as raised:
                await cloud.search(question(wanted={"type": "prefix", "key": "team", "value": "r"}))
            with pytest.raises(ProviderRefusal, match="startsWith is not supported"):
                await cloud.search(question())
    assert raised.value.where == "filter"


async def test_bedrock_without_credentials_says_where_to_put_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with ScriptedServer(other=lambda _: BEDROCK) as server:
        async with connected("bedrock:eu-west-1/KB12345678", server.root_url, None) as cloud:
            with pytest.raises(ProviderRefusal, match=r"set CLOUD_API_KEY .*there are no AWS credentials"):
                await cloud.search(question())
    assert server.requests == []


async def test_azure_is_asked_for_the_references_of_a_knowledge_base():
    with ScriptedServer(other=lambda _: AZURE) as server:
        async with connected("azure:hand'book/docs-source", server.root_url) as cloud:
            hits = await cloud.search(question())
            filtered = await cloud.search(question(wanted={"type": "ne", "key": "team", "value": "blue"}))
            await cloud.search(question(wanted=RED_SINCE))

    assert shown(hits) == [("doc-8", 3.1, "Returns", "Ten days.", None), ("doc-7", 2.4, "Refunds", "Five days.", None)]
    assert own(hits[1]) == {"team": "red", "year": 2021, "tags": ["x"]}
    # Of the other record nothing is known: it may well be blue.
    assert [hit.id.document_id for hit in filtered] == ["doc-7"]
    request = server.requests[0]
    assert request.path == "/knowledgebases('hand%27%27book')/retrieve?api-version=2026-04-01"
    assert request.headers["api-key"] == KEY
    source = {
        "kind": "searchIndex",
        "knowledgeSourceName": "docs-source",
        "includeReferences": True,
        "includeReferenceSourceData": True,
    }
    assert request.body == {
        "intents": [{"type": "semantic", "search": "how long?"}],
        "includeActivity": False,
        "knowledgeSourceParams": [source],
    }
    last = server.requests[2].body["knowledgeSourceParams"]
    assert last == [{**source, "filterAddOn": "(team eq 'red' and year ge 2020)"}]


async def test_azure_without_the_name_of_a_source_is_searched_but_refuses_filters():
    with ScriptedServer(other=lambda _: AZURE) as server:
        async with connected(f"azure:{server.root_url}/handbook") as cloud:
            assert len(await cloud.search(question())) == 2
            with pytest.raises(BadRequest, match="set CLOUD to azure:KB_NAME/SOURCE_NAME") as raised:
                await cloud.search(question(wanted=RED))
    assert raised.value.where == "filter"
    assert len(server.requests) == 1
    assert "knowledgeSourceParams" not in server.requests[0].body


async def test_azure_records_without_a_passage_show_what_they_hold():
    stored = [{"id": "0", "docKey": "k", "sourceData": {"name": "Refund", "days": 5, "vector": [0.1] * 9}}]
    with ScriptedServer(other=lambda _: {"response": [], "references": stored}) as server:
        async with connected("azure:kb/s", server.root_url) as cloud:
            assert shown(await cloud.search(question())) == [("k", 1.0, "k", "name: Refund\ndays: 5", None)]


async def test_vertex_is_asked_with_a_token_and_gives_passages_in_its_own_order():
    with ScriptedServer(other=lambda _: VERTEX) as server:
        async with connected("vertex:my-project/eu/store_1", server.root_url) as cloud:
            hits = await cloud.search(question(limit=7))
            filtered = await cloud.search(question(wanted=RED_SINCE))

    assert shown(hits) == [
        ("d1", 1.0, "Refunds", "Five days.", None),
        ("d1", 0.5, "Refunds", "Not more.", None),
        ("d2", pytest.approx(1 / 3), "Returns", "Ten days.", "https://x.example/returns"),
        ("d3", 0.25, "d3", "team: green\ndays: 7", None),
    ]
    assert [text for _, _, _, text, _ in shown(filtered)] == ["Five days.", "Not more."]
    first, second = server.requests
    assert first.path == (
        "/v1/projects/my-project/locations/eu/collections/default_collection/dataStores/store_1"
        "/servingConfigs/default_config:search"
    )
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert first.body == {
        "query": "how long?",
        "pageSize": 7,
        "contentSearchSpec": {
            "snippetSpec": {"returnSnippet": True},
            "extractiveContentSpec": {"maxExtractiveSegmentCount": 3},
        },
    }
    assert (second.body["pageSize"], second.body["filter"]) == (100, '(team: ANY("red") AND year >= 2020)')


@pytest.mark.parametrize(
    ("location", "host"),
    [("global", "discoveryengine.googleapis.com"), ("eu", "eu-discoveryengine.googleapis.com")],
)
async def test_vertex_is_looked_for_where_the_data_lies(location: str, host: str):
    async with connected(f"vertex:p/{location}/s") as cloud:
        assert cloud.provider.url.startswith(f"https://{host}/v1/projects/p/")  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def private_key() -> str:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.PKCS8
    return made.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


@pytest.fixture
def google_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private_key: str) -> Callable[[str], None]:
    """Makes Google's credentials those of an account whose tokens come from an address."""

    def made(address: str) -> None:
        account = {"type": "service_account", "client_email": "a@p.example", "private_key": private_key}
        file = tmp_path / "account.json"
        file.write_text(json.dumps({**account, "token_uri": f"{address}/token", "project_id": "p"}))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))

    return made


async def test_vertex_without_a_key_takes_one_token_from_googles_credentials(google_account: Callable[[str], None]):
    def answer(request: ReceivedRequest) -> Any:
        if request.path == "/token":
            return {"access_token": "token-1", "expires_in": 3600, "token_type": "Bearer"}
        return VERTEX

    with ScriptedServer(other=answer) as server:
        google_account(server.root_url)
        async with connected("vertex:p/eu/s", server.root_url, None) as cloud:
            await cloud.search(question())
            await cloud.search(question())
    assert [request.path == "/token" for request in server.requests] == [True, False, False]
    assert [one.headers["authorization"] for one in server.requests[1:]] == ["Bearer token-1"] * 2


async def test_vertex_whose_credentials_are_refused_says_what_to_set(google_account: Callable[[str], None]):
    with ScriptedServer(other=lambda _: (400, {"error": "invalid_grant"})) as server:
        google_account(server.root_url)
        async with connected("vertex:p/eu/s", server.root_url, None) as cloud:
            with pytest.raises(ProviderRefusal, match=r"set CLOUD_API_KEY .*RefreshError"):
                await cloud.search(question())


@pytest.mark.parametrize(
    ("stated", "package", "extra"), [("bedrock:r/k", "boto3", "aws"), ("vertex:p/eu/s", "google.auth", "google")]
)
async def test_a_package_that_is_missing_is_named(
    stated: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, package, None)
    async with connected(stated, "http://127.0.0.1:9", None) as cloud:
        with pytest.raises(Unavailable, match=re.escape(f"is missing: {install_command(extra)}")):
            await cloud.search(question())


# What may go wrong with any of them.

PROVIDERS: dict[str, tuple[str, str, Any]] = {
    "dify": ("dify:kb1", KEY, DIFY),
    "openai": ("openai:vs_1", KEY, OPENAI),
    "pipeline": ("bailian:pipeline/handbook", KEY, PIPELINE),
    "retrieve": ("bailian:ws/idx", PAIR, RETRIEVE),
    "bedrock": ("bedrock:eu-west-1/KB12345678", PAIR, BEDROCK),
    "azure": ("azure:kb/source", KEY, AZURE),
    "vertex": ("vertex:p/eu/s", KEY, VERTEX),
}
every_provider = pytest.mark.parametrize("name", PROVIDERS)


async def failure(name: str, *faults: Fault, other: Any = None, wanted: object = None, **more: Any) -> Exception:
    """The error of one search at a provider to which these things happen."""
    stated, key, good = PROVIDERS[name]
    answer = other or (lambda request: {"id": "p1"} if request.method == "GET" else good)
    with ScriptedServer(other=answer, faults=faults) as server:
        async with connected(stated, server.root_url, key, **more) as cloud:
            with pytest.raises((Unavailable, BadRequest)) as raised:
                await cloud.search(question(wanted=wanted))
    assert KEY not in str(raised.value)
    assert KEY not in repr(cloud)
    assert "127.0.0.1" not in str(raised.value)
    assert KEY not in "".join(traceback.format_exception(raised.value))
    return raised.value


@every_provider
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, "the key was refused, set CLOUD_API_KEY"),
        (403, "the key was refused, set CLOUD_API_KEY"),
        (404, "no such knowledge base, correct CLOUD or CLOUD_BASE_URL"),
    ],
)
async def test_a_key_or_a_name_that_is_refused_says_what_to_set(name: str, status: int, expected: str):
    body = json.dumps({"error": {"message": f"not with {KEY}"}, "message": f"not with {KEY}"})
    error = await failure(name, *[Fault(status=status, body=body)] * 2)
    assert isinstance(error, ProviderRefusal)
    assert expected in str(error)
    assert error.status == status


@every_provider
async def test_a_rate_limit_says_when_to_come_back(name: str):
    error = await failure(name, *[Fault(status=429, headers={"Retry-After": "30"})] * 2)
    assert isinstance(error, Unavailable)
    assert "its limit is reached" in str(error)
    assert error.retry_after_s == 30


@every_provider
@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=503, body=""),
        Fault(reset=True),
        Fault(truncated=True),
        Fault(body=""),
        Fault(body="[" * 100_000),
        Fault(body="[1]"),
        Fault(status=400, body=json.dumps({"message": KEY * 9})),
    ],
)
async def test_an_answer_that_cannot_be_used_makes_the_source_unavailable(name: str, fault: Fault):
    assert isinstance(await failure(name, *[fault] * 4), Unavailable)


@every_provider
async def test_a_slow_provider_is_given_up(name: str):
    error = await failure(name, *[Fault(delay_s=20)] * 4, source_timeout_s=0.2)
    assert isinstance(error, Unavailable)
    assert re.search(r"no answer within 0\.2 s|ReadTimeoutError", str(error))


@pytest.mark.parametrize("name", sorted(PROVIDERS.keys() - {"pipeline"}))
async def test_a_query_that_is_refused_for_its_filter_is_the_callers_matter(name: str):
    error = await failure(name, Fault(status=400, body='{"message": "unknown field team"}'), wanted=RED)
    assert isinstance(error, BadRequest)
    assert error.where == "filter"
    assert "unknown field team" in str(error)


@pytest.mark.parametrize(
    ("status", "code", "expected", "meant"),
    [
        (403, 1001, "set CLOUD_API_KEY", 401),
        (400, 1001, "set CLOUD_API_KEY", 401),
        (500, 1002, "set CLOUD_API_KEY", 403),
        (400, 2001, "no such knowledge base", 404),
        (200, 2001, "no such knowledge base", 404),
        (200, 1002, "set CLOUD_API_KEY", 403),
        (200, 99, "error 99: said so", 500),
    ],
)
async def test_error_codes_of_dify_count_whatever_the_status(status: int, code: int, expected: str, meant: int):
    error = await failure("dify", other=lambda _: (status, {"error_code": code, "error_msg": f"said so {KEY}"}))
    assert isinstance(error, ProviderRefusal)
    assert expected in str(error)
    assert error.status == meant


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (200, "Index.NotExist", "no such knowledge base"),
        (200, "Index.NoWorkspacePermissions", "set CLOUD_API_KEY"),
        (200, "Throttling.User", "its limit is reached"),
        (200, "InternalError", "InternalError: said so"),
        (404, "InvalidAccessKeyId.NotFound", "set CLOUD_API_KEY"),
        (400, "SignatureDoesNotMatch", "set CLOUD_API_KEY"),
        (503, "ServiceUnavailable", "said so"),
    ],
)
async def test_error_codes_of_bailian_count_whatever_the_status(status: int, code: str, expected: str):
    body = {"Success": False, "Code": code, "Message": f"said so {KEY}", "Data": None}
    error = await failure("retrieve", other=lambda _: (status, body))
    assert isinstance(error, ProviderRefusal)
    assert expected in str(error)


async def test_a_refused_filter_inside_a_good_status_is_the_callers_matter():
    body = {"Success": "false", "Code": "InvalidParameter", "Message": "no field team", "Status": "400", "Data": {}}
    error = await failure("retrieve", other=lambda _: {**body, "Success": False}, wanted=RED)
    assert isinstance(error, BadRequest)
    assert "InvalidParameter: no field team" in str(error)


async def test_an_error_of_a_pipeline_inside_a_good_status_is_told():
    def answer(request: ReceivedRequest) -> Any:
        return {"id": "p1"} if request.method == "GET" else {"code": "Arrearage", "message": "pay first"}

    error = await failure("pipeline", other=answer)
    assert "Arrearage: pay first" in str(error)


# Hostile answers: every part of a good one replaced by what should not be there.

HOSTILE: list[Any] = [
    None,
    True,
    -1,
    10**400,
    float("nan"),
    float("inf"),
    "",
    "javascript:alert(1)",
    "\ud800\u0000\u001b[31m<script>",
    "long " * 10_000,
    [],
    [None, [[]], {}],
    {},
    {"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}},
]


def corrupted(good: Any) -> Iterator[Any]:
    """Copies of a value, each with one part of it replaced."""
    yield from HOSTILE
    parts = good.items() if isinstance(good, dict) else enumerate(good) if isinstance(good, list) else ()
    for key, inner in parts:
        for changed in corrupted(inner):
            whole = deepcopy(good)
            whole[key] = changed
            yield whole


class Canned(JsonClient):
    """A client that has had an answer."""

    answer: Any = None

    async def request_json(self, method: str, url: str, **more: Any) -> Any:
        return {"id": "p1"} if method == "GET" else self.answer


@every_provider
async def test_hostile_answers_give_clean_hits_or_an_error(name: str, monkeypatch: pytest.MonkeyPatch):
    stated, key, good = PROVIDERS[name]
    monkeypatch.setattr("retrievers.cloud.retriever.JsonClient", Canned)
    monkeypatch.setattr(bedrock.BedrockKnowledgeBase, "_retrieve", lambda self, *_: self.access.http.answer)
    found = 0
    async with connected(stated, "http://h", key) as cloud:
        for wanted in (None, RED):
            for answer in corrupted(shortened(good)):
                cloud.http.answer = json.loads(json.dumps(answer))  # type: ignore[attr-defined]
                with suppress(Unavailable):
                    hits = await cloud.search(question(wanted=wanted))
                    found += len(hits)
                    for hit in hits:
                        assert_clean(hit)
    assert found > 100


def shortened(good: Any) -> Any:
    """The good answer with its first record alone."""
    if isinstance(good, dict):
        return {key: shortened(value) for key, value in good.items()}
    return [shortened(good[0])] if isinstance(good, list) and good else good


def assert_clean(hit: Hit) -> None:
    chunk = hit.chunk
    assert chunk is not None
    sent = json.dumps([hit.id, hit.score, chunk.title, chunk.text, chunk.url, chunk.metadata], allow_nan=False)
    json.dumps(json.loads(sent), ensure_ascii=False).encode()
    assert len(sent) < 100_000
    assert chunk.text
    assert chunk.title
    assert not re.search(r"\\u0000|\\u001b|\\ud800", sent)
    assert chunk.url is None or chunk.url.startswith("https://")
    assert None not in chunk.metadata.values()


async def test_metadata_is_kept_within_bounds():
    metadata = {
        "a": {"b": {"c": {"d": 1, "e": {}}, "list": [1, None, [2]]}},
        "nothing": None,
        "text": "x" * 9_000,
        "bad\nkey\u0000": "kept",
        **{f"k{n}": n for n in range(500)},
    }
    answer = {"records": [{"content": "text", "title": "t", "score": 1, "metadata": metadata}]}
    with ScriptedServer(other=lambda _: answer) as server:
        async with connected("dify:kb1", server.root_url) as cloud:
            kept = own((await cloud.search(question()))[0])
    assert kept["a"] == {"b": {"c": {"d": 1}, "list": [1]}}
    assert kept["text"] == "x" * 2_000
    assert kept["bad key"] == "kept"
    assert "nothing" not in kept
    assert kept["k59"] == 59
    assert "k60" not in kept  # 64 keys, the empty one counted


async def test_a_passage_without_a_name_is_named_after_its_text_and_not_after_its_place():
    one, other = ({"content": text, "score": 1.0} for text in ("One.", "Other."))
    answers = iter([{"records": [one, other]}, {"records": [other, one]}])
    with ScriptedServer(other=lambda _: next(answers)) as server:
        async with connected("dify:kb1", server.root_url) as cloud:
            first, second = [{str(hit.id): hit.chunk.text for hit in await cloud.search(question())} for _ in "ab"]
    assert first == second
    assert len(first) == 2


async def test_a_question_without_text_is_not_asked():
    with ScriptedServer() as server:
        async with connected("dify:kb1", server.root_url) as cloud:
            assert await cloud.search(question("\ud800 \x00")) == []
    assert server.requests == []


async def test_half_a_surrogate_pair_in_the_question_does_not_keep_it_from_being_asked():
    with ScriptedServer(other=lambda _: DIFY) as server:
        async with connected("dify:kb1", server.root_url) as cloud:
            await cloud.search(question("how \ud800long?"))
    assert server.requests[0].body["query"] == "how long?"


# The setting.


def test_without_the_setting_there_is_no_such_source_and_nothing_is_loaded_for_it():
    for stated in (None, "", "  "):
        assert build(Resources(None, None, None, {"cloud": stated})) is None
    code = "import sys, retrievers.cloud; print({'httpx2', 'boto3', 'google.auth', 'tenacity'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("cloud", "key", "base_url", "expected"),
    [
        ("pinecone:x", KEY, None, 'there is no provider "pinecone"; valid forms: bailian:pipeline/NAME, bailian:WORK'),
        ("dify", KEY, "http://h", "dify cannot be used: the setting has another form; valid forms: dify:KNOWLEDGE_ID"),
        ("dify:", KEY, "http://h", "the setting has another form"),
        ("dify:a/b", KEY, "http://h", "the setting has another form"),
        ("dify:kb1", None, "http://h", "it needs a key: set CLOUD_API_KEY"),
        ("dify:kb1", KEY, None, "set CLOUD_BASE_URL"),
        ("dify:kb1", KEY, "ftp://h", "its address must be https://HOST"),
        ("dify:kb1", KEY, "http://h:99999", "its address must be https://HOST"),
        ("dify:kb1", KEY, "http://me:pw@h", "without a password or a query"),
        ("dify:kb1", KEY, "http://h?a=b", "without a password or a query"),
        ("openai:vs", "", None, "it needs a key"),
        ("bailian:handbook", KEY, None, "valid forms: bailian:pipeline/NAME, bailian:WORKSPACE/INDEX_ID"),
        ("bailian:pipeline/", KEY, None, "the setting has another form"),
        ("bailian:ws/idx", KEY, None, "its key has two parts: set CLOUD_API_KEY to ID:SECRET"),
        ("bailian:ws/idx", None, None, "it needs a key"),
        ("bailian:ws/idx", PAIR, "http://h/path", "an endpoint without a path"),
        ("bailian:pipeline/x", None, None, "it needs a key"),
        ("bedrock:KB1", None, None, "valid forms: bedrock:REGION/KB_ID"),
        ("bedrock:eu-west-1/KB1", KEY, None, "its key has two parts"),
        ("azure:kb", KEY, None, "set CLOUD_BASE_URL"),
        ("azure:kb", None, "http://h", "it needs a key"),
        ("azure:https://h", KEY, None, "the setting has another form"),
        ("azure:https:///kb", KEY, None, "its address must be https://HOST"),
        ("azure:https://h/kb/s/t", KEY, None, "the setting has another form"),
        ("vertex:p/eu", KEY, None, "valid forms: vertex:PROJECT/LOCATION/STORE"),
    ],
)
def test_a_setting_that_cannot_be_used_says_why_and_what_is_valid(
    cloud: str, key: str | None, base_url: str | None, expected: str
):
    options = {"cloud": cloud, "cloud_api_key": key, "cloud_base_url": base_url}
    with pytest.raises(BadRequest) as raised:
        build(Resources(None, None, None, options))
    assert expected in str(raised.value)
    assert raised.value.where == "cloud"
    assert set(raised.value.valid) <= set(FORMS)
    assert raised.value.valid
    assert KEY not in str(raised.value)


# In the service.


@pytest.fixture
def settings(owner_url: str, service_url: str) -> Callable[..., Settings]:
    def made(server: ScriptedServer, **more: Any) -> Settings:
        reached = {"cloud": "dify:kb1", "cloud_api_key": KEY, "cloud_base_url": server.root_url}
        return Settings(database_url=owner_url, service_url=service_url, **{**reached, **more})

    return made


DOCUMENT = Document("a", "a", "a", "Penguins march.", metadata={"team": "red", "year": 2021})


@pytest.mark.slow
async def test_a_question_to_the_cloud_is_answered_from_there_and_cited(settings: Callable[..., Settings]):
    with ScriptedServer(other=lambda _: DIFY) as server:
        async with open_service(settings(server)) as service:
            await service.ingest([DOCUMENT], "docs")
            result = await service.retrieve("How long do refunds take?", sources=["cloud"])
            filtered = await service.retrieve("How long do refunds take?", sources=["cloud"], filter=RED_SINCE)
            prompt = await service.augment("How long do refunds take?", sources=["cloud"])

    assert [(hit.title, hit.scores["cloud"]) for hit in result.hits] == [
        ("Returns", 0.8),
        ("Refunds", 0.5),
        ("Other", 0.1),
    ]
    assert result.outcomes[0].status == "ok"
    assert [hit.title for hit in filtered.hits] == ["Refunds"]
    assert "Ten days." in prompt.prompt
    assert prompt.citations[0].title == "Returns"
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("faults", "status", "reason"),
    [
        ([Fault(status=401, body=json.dumps({"error_msg": f"not {KEY}"}))], "error", "set CLOUD_API_KEY"),
        ([Fault(status=429, headers={"Retry-After": "60"})], "error", "its limit is reached"),
        ([Fault(delay_s=20)], "timeout", "no answer after"),
        ([Fault(body='{"records": []}')], "empty", None),
    ],
)
async def test_what_fails_there_stands_in_the_outcome_and_the_key_nowhere(
    settings: Callable[..., Settings],
    faults: list[Fault],
    status: str,
    reason: str | None,
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.DEBUG)
    with ScriptedServer(other=lambda _: DIFY, faults=faults) as server:
        async with open_service(settings(server, source_timeout_s=0.5 if status == "timeout" else 60)) as service:
            await service.ingest([DOCUMENT], "docs")
            result = await service.retrieve("How long do refunds take?", sources=["cloud"], explain=True)
    assert result.outcomes[0].status == status
    assert (result.outcomes[0].reason or "").find(reason or "") >= 0
    assert result.degraded == (("cloud_unavailable",) if status in ("error", "timeout") else ())
    assert result.explanation is not None
    assert KEY not in result.model_dump_json() + json.dumps(result.explanation) + caplog.text


async def test_a_setting_that_cannot_be_used_is_told_when_the_service_opens(settings: Callable[..., Settings]):
    with (
        ScriptedServer() as server,
        pytest.raises(BadRequest, match="setting CLOUD: dify cannot be used: it needs a key"),
    ):
        async with open_service(settings(server, cloud_api_key=None)):
            pass


# The doctor.


async def test_the_doctor_says_that_the_knowledge_base_answers():
    with ScriptedServer(other=lambda _: DIFY) as server:
        check = await doctor_sources._check_cloud(
            Settings(cloud="dify:kb1", cloud_api_key=KEY, cloud_base_url=server.root_url)
        )
    assert (check.ok, check.found) == (True, "dify:kb1 answered a test search with a hit")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("fault", "found", "mend"),
    [
        (Fault(status=401, body=json.dumps({"message": f"bad {KEY}"})), "the key was refused", "correct the setting"),
        (Fault(status=429, headers={"Retry-After": "30"}), "its limit is reached", "quota"),
        (Fault(reset=True), "the connection failed", "CLOUD_BASE_URL"),
    ],
)
async def test_the_doctor_says_what_is_wrong_with_it(fault: Fault, found: str, mend: str):
    with ScriptedServer(faults=[fault] * 2) as server:
        check = await doctor_sources._check_cloud(
            Settings(cloud="dify:kb1", cloud_api_key=KEY, cloud_base_url=server.root_url)
        )
    assert not check.ok
    assert found in check.found
    assert mend in check.mend
    assert KEY not in str(check)


async def test_the_doctor_names_a_setting_that_cannot_be():
    check = await doctor_sources._check_cloud(Settings(cloud="dify:kb1"))
    assert (check.ok, "set CLOUD_API_KEY" in check.found) == (False, True)
