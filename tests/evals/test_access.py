"""The measurement of access: which canaries a caller may know, and that a leak and a wrong count are counted."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent.settings import Settings
from evals import access
from evals.access import AccessTally, AccessVisitor, described, measure
from evals.access_requests import AccessRequest, all_requests, document_request
from evals.canary_documents import Canary, CanaryDocument, CanaryTenant, find_canaries, forbidden_canaries
from retrievers.core.types import Viewer

OF_ONE, OF_TWO, OF_NOBODY = (Viewer("acme", readers) for readers in (("user:1",), ("user:2",), ()))


@pytest.fixture
def tenants() -> list[CanaryTenant]:
    """Two tenants, every document with the reader user:1."""
    made = [CanaryTenant(place, name, random.Random(1)) for place, name in enumerate(("acme", "globex"))]
    for tenant in made:
        for kept in tenant.documents.values():
            tenant.begin_edition(kept, ("user:1",))
    return made


def known(tenants: list[CanaryTenant], who: Viewer, kept: CanaryDocument) -> bool:
    return not list(forbidden_canaries(tenants, who, json.dumps(tenants[0].record(kept)), ()))


def test_every_text_value_number_date_and_name_of_a_document_is_a_canary(tenants: list[CanaryTenant]):
    tenant = tenants[1]
    kept = tenant.documents[7]
    tenant.begin_edition(kept, ("user:1",))
    record = tenant.record(kept)
    # 1200 is the century of the second tenant; its April begins after 91 days, as 1200 is a leap year.
    assert record["metadata"]["opened"] == "1200-04-17"
    said = {name: value for name, value in record.items() if name not in ("id", "metadata", "readers")}
    values = {name: value for name, value in record["metadata"].items() if name not in ("team", "field_zqbd7e1y")}
    for text in (*said.values(), *values.values(), "field_zqbd7e1y", "ZQBD7E1I", float(values["cost"])):
        assert find_canaries(json.dumps(text)) == {Canary(1, 7, 1)}, text
    assert find_canaries(record["id"]) == {Canary(1, 7)}
    assert find_canaries(f"in {tenant.closed_collection(2)}") == {Canary(1, collection=2)}
    numbers = [tenant.record(tenant.documents[number])["metadata"]["cost"] for number in (3, 5)]
    assert find_canaries(str(sum(numbers) // 2)) == set()  # the average is no number of the document between them


def test_who_may_know_a_canary_follows_the_readers_of_now_and_of_its_edition(tenants: list[CanaryTenant]):
    tenant = tenants[0]
    kept = tenant.documents[0]
    old = json.dumps(tenant.record(kept))
    assert [known(tenants, who, kept) for who in (OF_ONE, OF_TWO, OF_NOBODY, Viewer("globex", ("user:1",)))] == [
        True, False, False, False,
    ]  # fmt: skip
    tenant.begin_edition(kept, ("user:2",))
    assert [known(tenants, who, kept) for who in (OF_ONE, OF_TWO)] == [False, True]
    both = Viewer("acme", ("user:1", "user:2"))
    # An old answer is shown to who could read it and can read the document now.
    assert [not list(forbidden_canaries(tenants, who, old, ())) for who in (OF_ONE, OF_TWO, both)] == [
        False,
        False,
        True,
    ]
    tenant.change_readers(kept, ())
    assert [known(tenants, who, kept) for who in (OF_ONE, OF_TWO, OF_NOBODY)] == [True, True, True]
    kept.stored = False
    assert not tenant.may_read(OF_ONE, kept)
    # What the request itself names may be said again.
    hidden = tenant.documents[1]
    assert list(forbidden_canaries(tenants, OF_TWO, tenant.id(1), ())) == [Canary(0, 1)]
    assert list(forbidden_canaries(tenants, OF_TWO, tenant.id(hidden.number), [Canary(0, 1)])) == []
    closed = next(one for one in tenant.collections if one.startswith("closed"))
    assert [bool(list(forbidden_canaries(tenants, who, closed, ()))) for who in (OF_ONE, OF_TWO)] == [False, True]


def visitor(tenants: list[CanaryTenant], answer: Callable[[httpx2.Request], httpx2.Response]) -> AccessVisitor:
    client = httpx2.AsyncClient(base_url="http://127.0.0.1", transport=httpx2.MockTransport(answer))
    bound = {OF_ONE: "bound"}
    return AccessVisitor(client, tenants, tenants[0], [OF_ONE], "trusted", bound, [], AccessTally(), random.Random(1))


async def test_a_leak_a_wrong_count_and_an_error_are_counted_and_told(tenants: list[CanaryTenant]):
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        if request.url.path == "/v1/collections":
            return httpx2.Response(200, json={"collections": [{"name": "reports", "documents": 15}]})
        return httpx2.Response(404, text=json.dumps(tenants[1].record(tenants[1].documents[4])))

    sends = visitor(tenants, answer)
    (listing,) = [one for one in all_requests(tenants[0], OF_ONE, [], random.Random(1)) if one.name == "collections"]
    await sends.ask(OF_ONE, listing)  # there are 14 reports, 8 notes, and three closed collections
    await sends.ask(OF_ONE, document_request(tenants[0], OF_ONE, 0))  # it is there
    body = {"query": "x"}
    for _ in range(12):
        await sends.ask(OF_TWO, AccessRequest("said", "POST", "/v1/retrieve", body, ""))
    assert (sends.tally.wrong, sends.tally.leaked) == (
        {"collections": 1, "one document": 1}, {"one document": 1, "said": 12},
    )  # fmt: skip
    assert "instead of {'reports': 14, 'notes': 8" in sends.tally.told[0]
    said = {(one.headers.get("X-Signalbox-Principals"), one.content) for one in seen[2:]}
    assert said == {("user:2", b'{"query":"x"}'), (None, b'{"query":"x","principals":["user:2"]}')}
    assert body == {"query": "x"}


@pytest.mark.slow
async def test_a_small_run_finds_nothing_and_times_the_same_questions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(access, "TENANTS", ("acme", "globex"))
    monkeypatch.setattr("evals.access_times.ROUNDS", 6)
    lines: list[str] = []
    found = await measure(40, [3], Settings(home=tmp_path), lines.append, documents=40)
    assert found["told"] == []
    assert found["all"]["requests"] >= 40
    assert sum(one["requests"] for one in found["doors"].values()) == found["all"]["requests"]
    times: dict[str, Any] = found["times"]
    assert set(times["ratio"]) == {"no readers", "all of 40 principals", "5 principals"}
    assert (times["ratio"]["no readers"], times["index_scans"] > 0) == (1.0, True)
    rows = {row[0]: row[1:] for row in described(found)}
    assert rows["all"] == (f"{found['all']['requests']:,}", "0", "0")
    assert not os.listdir(tmp_path)  # the settings' own home is not used
