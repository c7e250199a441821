"""The requests of the access measurement: every endpoint and tool that shows something of documents."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from evals.canary_documents import WORDS, CanaryTenant
from retrievers.core.types import Viewer

Json = dict[str, Any]
Expectation = Callable[[Any], tuple[Any, Any]]
"""Takes an answer's JSON; returns (what it shows, what it should show)."""
Place = Literal["", "signalbox", "params.arguments"]

# No question contains a canary: the list of traces shows a question to other callers who may read what its asker may
# read, and a canary that they may not know would count as a fault.
QUESTIONS = (
    "What does the {word} report say?",
    "{word}",
    "List all reports of the red team",
    "Which report has the highest cost?",
    "Which report was opened first?",
    "How many reports per owner?",
    "reports by owner Owne",
    "average cost of reports per team",
    '"the rotor {word} stops"',
    "What stops?",
    "reports owned by nobody at all",
)
FILTERS: tuple[Json, ...] = (
    {"type": "eq", "key": "team", "value": "red"},
    {"type": "gte", "key": "cost", "value": 1000},
    {"type": "prefix", "key": "owner", "value": "Owner"},
    {"type": "eq", "key": "onwer", "value": "Owner"},
    {"type": "eq", "key": "opened", "value": "soon"},
    {"type": "not", "filter": {"type": "eq", "key": "team", "value": "blue"}},
)
COUNT = "How many reports are there?"


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """One request through a door, which is an endpoint or a tool that shows something of documents.

    Attributes:
        name: name of the door in the table of results.
        principals_in: where in the body principals may be stated; None if only the header can state them.
        expectation: compares counts and names if the status is 200; None if only canaries are looked for.
        trace: whether the answer has the id of a trace that later requests may ask for.
        is_found: True if the status must be 200, False if it must be 404, None if it may be any below 500.
    """

    name: str
    method: str
    path: str
    body: Json | None = None
    principals_in: Place | None = None
    expectation: Expectation | None = None
    trace: bool = False
    is_found: bool | None = None


def all_requests(
    tenant: CanaryTenant, who: Viewer, traces: list[tuple[str, str]], choose: random.Random
) -> list[AccessRequest]:
    """Return one request of each kind, with random questions, documents and options.

    Args:
        traces: (tenant, trace id) of the traces so far.
    """
    return [
        *_native(tenant, who, choose),
        *_compatible(tenant, choose),
        *_mcp(tenant, who, choose),
        *_stored(tenant, who, choose),
        *_recorded(tenant, traces, choose),
    ]


def _question(choose: random.Random) -> str:
    return choose.choice(QUESTIONS).format(word=choose.choice(WORDS))


def _native(tenant: CanaryTenant, who: Viewer, choose: random.Random) -> list[AccessRequest]:
    question = _question(choose)
    asked = {"query": question, "collection": choose.choice([*tenant.collections, None, None, None])}
    one = choose.choice(tenant.collections)
    complete = {"query": "List all reports", "complete": True, "intent": "off", "collection": one}
    counting = {"query": COUNT, "collection": one}
    source = choose.choice(["vector", "fulltext", "sql"])

    def ids(answer: Any) -> tuple[Any, Any]:
        return sorted(hit["document_id"] for hit in answer["hits"]), sorted(
            tenant.id(kept.number) for kept in tenant.readable_documents(who, one)
        )

    def count(answer: Any) -> tuple[Any, Any]:
        return answer["table"]["rows"][0][-1], len(tenant.readable_documents(who, one))

    def post(name: str, path: str, body: Json, **more: Any) -> AccessRequest:
        return AccessRequest(name, "POST", path, body, "", **more)

    return [
        post("retrieve, explained", "/v1/retrieve", {**asked, "explain": True, "top_k": 100}, trace=True),
        post("retrieve, filtered", "/v1/retrieve", {**asked, "filter": choose.choice(FILTERS)}, trace=True),
        post("retrieve, complete list", "/v1/retrieve", complete, expectation=ids),
        post("retrieve, count", "/v1/retrieve", counting, expectation=count),
        post("retrieve, one source", "/v1/retrieve", {**asked, "sources": [source]}, trace=True),
        post("retrieve, reranked", "/v1/retrieve", {**asked, "rank_features": "feedback=0.3", "reranker": "hybrid"}),
        post("augment", "/v1/augment", {**asked, "budget_tokens": 20_000, "context": "section"}, trace=True),
        post("ask", "/v1/ask", {**asked, "explain": True}),
        post("ask, searched by tools", "/v1/ask", {**asked, "mode": "tool"}),
    ]


def _compatible(tenant: CanaryTenant, choose: random.Random) -> list[AccessRequest]:
    question, one = _question(choose), choose.choice(tenant.collections)
    chat: Json = {"model": "signalbox", "messages": [{"role": "user", "content": question}]}
    talk = {"conversation": choose.choice(["one", "two"])}
    dify: Json = {"knowledge_id": one, "query": question}
    dify |= {"retrieval_setting": {"top_k": 20, "score_threshold": 0.0}}
    owner = {"name": ["owner"], "comparison_operator": "contains", "value": "zq"}
    dify["metadata_condition"] = choose.choice([None, {"logical_operator": "and", "conditions": [owner]}])
    search = f"/v1/vector_stores/{quote(one, safe='')}/search"
    return [
        AccessRequest("chat", "POST", "/v1/chat/completions", {**chat, "signalbox": talk}, "signalbox"),
        AccessRequest("chat, prompt", "POST", "/v1/chat/completions", {**chat, "model": "signalbox-prompt"}),
        AccessRequest("vector store", "POST", search, {"query": question}),
        AccessRequest("Dify", "POST", "/retrieval", dify),
        AccessRequest("Open WebUI", "POST", "/search", {"query": question, "count": 20}),
    ]


def _mcp(tenant: CanaryTenant, who: Viewer, choose: random.Random) -> list[AccessRequest]:
    question, one = _question(choose), choose.choice(tenant.collections)

    def post(name: str, method: str, params: Json, **more: Any) -> AccessRequest:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return AccessRequest(f"MCP {name}", "POST", "/mcp", body, **more)

    def tool(name: str, arguments: Json, **more: Any) -> AccessRequest:
        where: Place | None = "params.arguments" if arguments else None
        return post(name, "tools/call", {"name": name, "arguments": arguments}, principals_in=where, **more)

    def described(answer: Any) -> tuple[Any, Any]:
        found = answer["result"]["structuredContent"]["collections"]
        return {one["name"]: one["documents"] for one in found}, counts(tenant, who)

    def listed(answer: Any) -> tuple[Any, Any]:
        found = {one["name"]: one["description"] for one in answer["result"]["resources"]}
        del found["collections"]
        held = counts(tenant, who)
        return found, {name: f"fields and values of {held[name]:,} documents" for name in held}

    def told(answer: Any) -> tuple[Any, Any]:
        text = answer["result"]["tools"][0]["description"]
        held = counts(tenant, who)
        said = {name for name in tenant.collections if json.dumps(name) in text}
        return said, {name for name in held if f"{json.dumps(name)} ({held[name]:,} documents)" in text}

    resource = {"uri": f"signalbox://collections/{quote(one, safe='')}"}
    return [
        tool("search_knowledge", {"query": question, "top_k": 20}),
        tool("answer_with_citations", {"query": question}),
        tool("describe_collections", {}, expectation=described),
        post("tools/list", "tools/list", {}, expectation=told),
        post("resources/list", "resources/list", {}, expectation=listed),
        post("resources/read", "resources/read", resource),
    ]


def counts(tenant: CanaryTenant, who: Viewer) -> dict[str, int]:
    """Return the number of documents that a viewer may read, by collection; collections with none are left out."""
    held = {name: len(tenant.readable_documents(who, name)) for name in tenant.collections}
    return {name: count for name, count in held.items() if count}


def _stored(tenant: CanaryTenant, who: Viewer, choose: random.Random) -> list[AccessRequest]:
    kept = tenant.documents[choose.choice(list(tenant.documents))]
    one = choose.choice(tenant.collections)

    def listed(answer: Any) -> tuple[Any, Any]:
        return {found["name"]: found["documents"] for found in answer["collections"]}, counts(tenant, who)

    def shown(answer: Any) -> tuple[Any, Any]:
        # A caller who may read all documents also sees fields that no document has any more, with the number 0.
        fields = {field["name"]: field["documents"] for field in answer["fields"] if field["documents"]}
        seen = tenant.readable_documents(who, one)
        records = [tenant.record(kept)["metadata"] for kept in seen]
        expected = {name: sum(name in record for record in records) for record in records for name in record}
        return (answer["documents"], fields), (len(seen), expected)

    checked = f"/v1/collections/{quote(one, safe='')}"
    return [
        AccessRequest("collections", "GET", "/v1/collections", expectation=listed),
        AccessRequest(
            "one collection", "GET", checked, expectation=shown, is_found=bool(tenant.readable_documents(who, one))
        ),
        document_request(tenant, who, kept.number),
        AccessRequest("check of a collection", "GET", f"{checked}/check"),
        AccessRequest("sources", "GET", "/v1/sources"),
        AccessRequest("jobs", "GET", "/v1/jobs"),
    ]


def document_request(tenant: CanaryTenant, who: Viewer, number: int) -> AccessRequest:
    """Return the request for one document."""
    kept = tenant.documents[number]
    path = f"/v1/documents/{quote(kept.collection, safe='')}/{tenant.id(number)}"
    return AccessRequest("one document", "GET", path, is_found=tenant.may_read(who, kept))


def changed_document_requests(tenant: CanaryTenant, who: Viewer, number: int) -> list[AccessRequest]:
    """Return the requests that check, after a change of a document, that a viewer sees what it now may read.

    The first asks for the document: status 200 if `who` may read it, otherwise 404. The second lists the document's
    collection: exactly the documents that `who` may read. The third is a question, whose answer may contain no canary
    of a document that `who` may not read.

    Args:
        number: number of the changed document in `tenant.documents`.
    """
    kept = tenant.documents[number]

    def ids(answer: Any) -> tuple[Any, Any]:
        found = sorted(hit["document_id"] for hit in answer["hits"])
        return found, sorted(tenant.id(one.number) for one in tenant.readable_documents(who, kept.collection))

    body = {"query": "List all reports", "complete": True, "intent": "off", "collection": kept.collection}
    asked = {"query": f"What does the {WORDS[number % 8]} report say?", "explain": True}
    return [
        document_request(tenant, who, number),
        AccessRequest("retrieve, complete list", "POST", "/v1/retrieve", body, "", ids),
        AccessRequest("ask", "POST", "/v1/ask", asked, ""),
    ]


def _recorded(tenant: CanaryTenant, traces: list[tuple[str, str]], choose: random.Random) -> list[AccessRequest]:
    doors = [
        AccessRequest("traces", "GET", "/v1/traces"),
        AccessRequest("records", "GET", "/v1/records"),
        AccessRequest("conversation, erased", "DELETE", "/v1/conversations/two"),
    ]
    if traces:
        owner, trace = choose.choice(traces)
        # Within the tenant either status is right: if the answer showed more than this viewer may read, it is 404.
        found = None if owner == tenant.name else False
        replayed = {"changes": {"depth": 50}}
        judged = {"trace_id": trace, "score": choose.randrange(11)}
        path = f"/v1/traces/{trace}"
        doors += [
            AccessRequest("one trace", "GET", path, is_found=found),
            AccessRequest("replay", "POST", f"{path}/replay", replayed, is_found=found),
            AccessRequest("feedback", "POST", "/v1/feedback", judged, is_found=found),
        ]
    return doors
