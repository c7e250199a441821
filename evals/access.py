"""Measure whether any endpoint or tool shows a caller something of a document that the caller may not read.

Several tenants with the same principals hold documents with canaries (see `evals.canary_documents`). Random callers
send random requests over HTTP while documents, readers and collections change; every answer is searched for canaries
that its caller may not know, and its counts are compared with those of the documents that the caller may read. Each
tenant's requests are sent one after the other, so that the documents and readers at the time of each are known; the
tenants send at the same time.
"""

import asyncio
import json
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2

from agent.serve.authentication import PRINCIPALS_HEADER, open_authenticator
from agent.serve.http.app import create_app
from agent.serve.process.testing import run_server
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from agent.testing import ScriptedServer
from evals import access_times
from evals.access_requests import AccessRequest, all_requests, changed_document_requests
from evals.canary_documents import PRINCIPALS, CanaryDocument, CanaryTenant, find_canaries, forbidden_canaries
from evals.corpus import Note
from retrievers.core.types import ALL_PRINCIPALS, Viewer

Json = dict[str, Any]

TENANTS = ("acme", "globex", "initech", "umbrella", "stark")
VIEWERS = 16
"""Number of callers of each tenant, each with other principals; a third of them have a key of their own."""
WRITES = 0.06
"""Share of the requests that change a document or its readers; requests that look for the document follow at once."""

_INSIDE: Json = {"web_provider": None, "cloud": None, "local": None, "sources": {}, "prompts": None, "jwt_issuer": None}
_MOST_TRACES = 200
_NOTE_EVERY = 500
_MOST_TOLD = 20
_HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}


@dataclass(slots=True)
class AccessTally:
    """Counts over the requests of all tenants.

    Attributes:
        requests, leaked, wrong: by name of the `AccessRequest`: the requests; the answers with a canary that
            the caller may not see; the answers whose count, list or status does not fit the caller's documents.
        statuses: number of answers by HTTP status.
        writes: number of changes by kind.
        told: one line for each of the first faults.
        noted: number of requests at the last progress line.
    """

    requests: Counter[str] = field(default_factory=Counter)
    leaked: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)
    noted: int = 0

    def fault(self, kind: Counter[str], request: AccessRequest, who: Viewer, what: str) -> None:
        """Count a fault and describe it in `told`.

        Args:
            kind: the counter `leaked` or `wrong`.
        """
        kind[request.name] += 1
        if len(self.told) < _MOST_TOLD:
            asked = json.dumps(request.body, ensure_ascii=False)[:300]
            reads_as = ",".join(who.principals) or "nobody"
            self.told.append(
                f"{request.name}: {what}; {who.tenant} as {reads_as}: {request.method} {request.path} {asked}"
            )


def reply(body: Json) -> str | Json:
    """Return the scripted model's reply: a call of the search tool if it may call it, else every canary of its prompt.

    So a forbidden canary in a prompt appears in the answer.
    """
    turns = body["messages"]
    if body.get("tools") and turns[-1]["role"] != "tool":
        call = {"name": "search_knowledge", "arguments": json.dumps({"query": "What stops the rotor?"})}
        return {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": call}]}
    told = "\n".join(str(turn.get("content")) for turn in turns)
    words = sorted({word for word in told.replace('"', " ").replace("/", " ").split() if "zq" in word})
    return f"I was told {' '.join(words)}."


@dataclass(slots=True)
class AccessVisitor:
    """Sends the requests of one tenant.

    Args:
        tenants: all tenants; `tenant` is the one whose requests are sent.
        trusted: the tenant's key whose requests may state the principals that they read as.
        bound: keys that always read as a viewer's principals, by viewer.
        traces: (tenant, trace id) of the last answers with a trace, of all tenants.
    """

    client: httpx2.AsyncClient
    tenants: Sequence[CanaryTenant]
    tenant: CanaryTenant
    viewers: Sequence[Viewer]
    trusted: str
    bound: Mapping[Viewer, str]
    traces: list[tuple[str, str]]
    tally: AccessTally
    choose: random.Random

    async def fill(self) -> None:
        """Store every document."""
        for kept in self.tenant.documents.values():
            self.tenant.begin_edition(kept, kept.readers)
            await self._store(kept)

    async def visit(self) -> None:
        """Send one random request, or change a document and look for it at once."""
        if self.choose.random() < WRITES:
            await self._change()
            return
        who = self.choose.choice(self.viewers)
        await self.ask(who, self.choose.choice(all_requests(self.tenant, who, self.traces, self.choose)))

    async def ask(self, who: Viewer, request: AccessRequest) -> None:
        """Send a request and judge its answer."""
        body, headers = self._stated(who, request)
        answer = await self.client.request(request.method, request.path, json=body, headers=headers)
        self.tally.requests[request.name] += 1
        self.tally.statuses[str(answer.status_code)] += 1
        said = find_canaries(request.path + json.dumps(request.body, ensure_ascii=False))
        if leaks := list(forbidden_canaries(self.tenants, who, answer.text, said)):
            self.tally.fault(self.tally.leaked, request, who, f"{len(leaks)} canaries, such as {leaks[0]}")
        if what := self._judged(request, answer):
            self.tally.fault(self.tally.wrong, request, who, what)
        if request.trace and answer.is_success:
            self.traces.append((self.tenant.name, answer.json()["trace_id"]))
            del self.traces[:-_MOST_TRACES]

    def _judged(self, request: AccessRequest, answer: httpx2.Response) -> str | None:
        """Return what is wrong with a status, a count or a list; None if nothing is."""
        if answer.status_code >= 500:
            return f"status {answer.status_code}: {answer.text[:200]}"
        if request.is_found is not None and answer.status_code != (200 if request.is_found else 404):
            return f"status {answer.status_code}"
        if request.expectation is not None and answer.status_code == 200:
            shown, expected = request.expectation(answer.json())
            if shown != expected:
                return f"shows {str(shown)[:300]} instead of {str(expected)[:300]}"
        return None

    def _stated(self, who: Viewer, request: AccessRequest) -> tuple[Json | None, dict[str, str]]:
        """Return (body, headers) of a request as this viewer: by a key of its own, a header, or a key of the body."""
        body = json.loads(json.dumps(request.body))
        if who in self.bound and self.choose.random() < 0.5:
            return body, {**_HEADERS, "Authorization": f"Bearer {self.bound[who]}"}
        headers = {**_HEADERS, "Authorization": f"Bearer {self.trusted}"}
        if request.principals_in is None or self.choose.random() < 0.5:
            return body, {**headers, PRINCIPALS_HEADER: ",".join(who.principals)}
        place = body
        for name in filter(None, request.principals_in.split(".")):
            place = place.setdefault(name, {})
        place["principals"] = list(who.principals)
        return body, headers

    async def _change(self) -> None:
        """Change a document, then ask for it as somebody who could read it before or can read it now."""
        kept = self.choose.choice(list(self.tenant.documents.values()))
        before = [self.tenant.may_read(who, kept) for who in self.viewers]
        kind = self.choose.choice(["content and readers", "readers", "readers", "deleted"])
        readers = self.tenant.some_readers(kept.collection)
        if kind == "deleted" and kept.stored:
            await self._delete(kept)
        elif kind == "readers" and kept.stored:
            self.tenant.change_readers(kept, readers)
            await self._store(kept)
        else:
            kind = "content and readers"
            self.tenant.begin_edition(kept, readers)
            await self._store(kept)
        self.tally.writes[kind] += 1
        moved = [
            who for who, could in zip(self.viewers, before, strict=True) if could != self.tenant.may_read(who, kept)
        ]
        who = self.choose.choice(moved or list(self.viewers))
        for request in changed_document_requests(self.tenant, who, kept.number):
            await self.ask(who, request)

    async def _store(self, kept: CanaryDocument) -> None:
        body = {"collection": kept.collection, "documents": [self.tenant.record(kept)]}
        (await self._written("POST", "/v1/documents", body)).raise_for_status()

    async def _delete(self, kept: CanaryDocument) -> None:
        kept.stored = False
        path = f"/v1/documents/{quote(kept.collection, safe='')}/{self.tenant.id(kept.number)}"
        (await self._written("DELETE", path, None)).raise_for_status()

    async def _written(self, method: str, path: str, body: Json | None) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.trusted}", PRINCIPALS_HEADER: ALL_PRINCIPALS[0]}
        return await self.client.request(method, path, json=body, headers=headers)


async def measure(requests: int, seeds: Sequence[int], settings: Settings, note: Note, *, documents: int) -> Json:
    """Send requests to a service with an empty database of its own, and compare times with and without readers.

    Args:
        requests: number of requests of all seeds and tenants together, without the writes.
        seeds: each starts with an empty database and draws its own documents, readers and requests.
        documents: number of documents of the comparison of times; 0 leaves it out.
    Returns:
        `doors`: by name the numbers of `requests`, `leaked` and `wrong` answers; `all`, their sums; `writes` by kind;
        `statuses`; `told`: the first faults in words; `times`, see `evals.access_times.measure`, or None.
    """
    tally, times = AccessTally(), None
    for place, seed in enumerate(seeds):
        async with _opened(settings) as service:
            if documents and place == 0:
                times = await access_times.measure(service, documents, seed, note)
            async with _visitors(service, seed, tally) as visitors:
                for visitor in visitors:
                    await visitor.fill()
                note(f"seed {seed}: {len(visitors)} tenants with {len(PRINCIPALS)} principals each are stored")
                until = requests * (place + 1) // len(seeds)
                await asyncio.gather(*(_send(visitor, until, note) for visitor in visitors))
    doors = {
        name: {"requests": count, "leaked": tally.leaked[name], "wrong": tally.wrong[name]}
        for name, count in sorted(tally.requests.items())
    }
    return {
        "seeds": list(seeds),
        "doors": doors,
        "all": {name: sum(one[name] for one in doors.values()) for name in ("requests", "leaked", "wrong")},
        "writes": dict(sorted(tally.writes.items())),
        "statuses": dict(sorted(tally.statuses.items())),
        "told": tally.told,
        "times": times,
    }


def described(found: Json) -> list[tuple[str, ...]]:
    """Return the rows of the table: the doors, their sums, the writes, and the times if they were measured."""
    rows = [
        (name, *(f"{one[what]:,}" for what in ("requests", "leaked", "wrong")))
        for name, one in {**found["doors"], "all": found["all"]}.items()
    ]
    rows += [(f"changes: {kind}", f"{count:,}", "", "") for kind, count in found["writes"].items()]
    if (times := found["times"]) is not None:
        documents = f"{times['documents']:,} documents"
        for way, ratio in times["ratio"].items():
            rows.append((f"p50 over {documents}, {way}", f"{times['ms'][way]['p50']:.1f} ms", f"x {ratio:.2f}", ""))
        scans = f"{times['index_scans']:,}; {times['whole_scans']:,}"
        rows.append(("scans of passages by an index; of the whole table", scans, "", ""))
    return rows


async def _send(visitor: AccessVisitor, until: int, note: Note) -> None:
    """Send random requests of one tenant until the tenants together have sent enough.

    Args:
        until: number of requests of all tenants together at which to stop.
        note: called from time to time with a line of text: the numbers of requests and faults so far.
    """
    tally = visitor.tally
    while (sent := tally.requests.total()) < until:
        await visitor.visit()
        if sent >= tally.noted + _NOTE_EVERY:
            tally.noted = sent
            note(f"{sent:,} requests, {tally.leaked.total() + tally.wrong.total():,} faults")


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Service]:
    """Open a service with a scripted model as its only model, on an empty embedded database that is then removed."""
    temporary = tempfile.TemporaryDirectory(prefix="signalbox-access-", ignore_cleanup_errors=True)
    with temporary as home, ScriptedServer(reply) as model:
        database = {"home": Path(home), "database_url": None, "service_url": None, "read_urls": ()}
        scripted = {"llm": "openai/scripted", "llm_base_url": model.base_url, "llm_api_key": "none"}
        asking = {"intent": "rules", "max_rounds": 2, "timeout_s": 60.0, "source_timeout_s": 30.0}
        own = {**database, **scripted, **asking, **_INSIDE}
        async with open_service(settings.model_copy(update=own)) as service:
            yield service


@asynccontextmanager
async def _visitors(service: Service, seed: int, tally: AccessTally) -> AsyncIterator[list[AccessVisitor]]:
    """Serve the service over HTTP, and yield one visitor per tenant."""
    tenants = [CanaryTenant(place, name, random.Random(f"{seed} {name}")) for place, name in enumerate(TENANTS)]
    keys = [await _keys(service, tenant) for tenant in tenants]
    traces: list[tuple[str, str]] = []
    app = create_app(service, authenticate=await open_authenticator(service, "keys"))
    async with run_server(app) as port, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
        yield [
            AccessVisitor(
                client, tenants, tenant, viewers, trusted, bound, traces, tally, random.Random(f"{place} {seed}")
            )
            for place, (tenant, (viewers, trusted, bound)) in enumerate(zip(tenants, keys, strict=True))
        ]


async def _keys(service: Service, tenant: CanaryTenant) -> tuple[list[Viewer], str, dict[Viewer, str]]:
    """Return a tenant's viewers, a key whose requests may state principals, and the keys of some viewers."""
    viewers = tenant.viewers(VIEWERS)
    _, trusted = await service.keys.create(tenant.name, trusted=True)
    bound = {}
    for who in viewers[1 : 1 + VIEWERS // 3]:
        _, bound[who] = await service.keys.create(tenant.name, principals=who.principals)
    return viewers, trusted, bound
