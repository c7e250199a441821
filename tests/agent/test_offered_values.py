"""Under a caller's filter nothing is named that only documents outside it hold: no candidate, no full name."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx2
import psycopg
import pytest
from mcp import Client

from agent.serve.authentication import Caller
from agent.serve.http.app import create_app
from agent.serve.mcp.server import build_server
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from agent.testing import ScriptedServer
from retrievers.ingest.documents import Document

INSIDE = {"type": "eq", "key": "section", "value": "education"}
PEOPLE = {
    "education": ("Ada Brook", "Ben Carter", "Cleo Dunn"),
    "defence": ("Quentin Zimmermann", "Ursula Zimmermann", "Ada Hawthorne"),
}
NOBODY = "Which notes by the maintainer Xaver Unknown are there?"
QUESTIONS = (
    NOBODY,
    "notes of the maintainer Zimmermann",  # two people have the name
    "notes of the maintainer Ada",  # one inside, one outside
    "notes by Quentin",  # a full name can be made of it
    "notes by the maintainer Hawthorn",  # misspelt
    "how many notes did Quentin maintain?",
    "notes of the Raders team",  # a misspelt team
    "笔记 by Quentin",
)
FILTERS = (
    INSIDE,
    {"type": "not", "filter": {"type": "eq", "key": "section", "value": "defence"}},
    {"type": "and", "filters": [INSIDE, {"type": "exists", "key": "maintainer", "value": True}]},
    {"type": "eq", "key": "section", "value": "nowhere"},
)
HIDDEN = ("Quentin Zimmermann", "Ursula", "Hawthorne", "Radar crew")
"""No question says them so."""


def documents() -> list[Document]:
    return [
        Document(
            f"{section}-{n}", f"{section}-{n}", f"Note {n}", f"What {section} plans for the year, part {n}.",
            metadata={"section": section, "maintainer": name, "team": team},
        )
        for section, team in (("education", "Schools"), ("defence", "Radar crew"))
        for n, name in enumerate(PEOPLE[section] * 4)
    ]  # fmt: skip


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    """A model that asks for a maintainer who does not exist, in every reading."""

    def reply(body: dict[str, Any]) -> str:
        return json.dumps({"kind": "retrieve", "filter": {"type": "eq", "key": "maintainer", "value": "Zimmerman"}})

    with ScriptedServer(reply) as server:
        yield server


@pytest.fixture
async def service(owner_url: str, service_url: str, model: ScriptedServer) -> AsyncIterator[Service]:
    settings = Settings(
        database_url=owner_url, service_url=service_url, llm="openai/small", llm_base_url=model.base_url,
        intent="rules", loop_calls=0, timeout_s=30, source_timeout_s=20,
    )  # fmt: skip
    async with open_service(settings) as service:
        await service.ingest(documents(), "notes")
        yield service


def named(answer: object) -> list[str]:
    """What an answer names of the documents outside."""
    text = json.dumps(answer, default=str, ensure_ascii=False)
    return [one for one in HIDDEN if one in text]


async def over_http(service: Service, path: str, **more: Any) -> dict[str, Any]:
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(create_app(service)), base_url="http://127.0.0.1", timeout=60
    ) as client:
        answer = await client.post(path, json=more)
    assert answer.status_code == 200, answer.text
    return answer.json() if "json" in answer.headers["content-type"] else {"text": answer.text}


async def retrieved(service: Service, question: str, filter: Any) -> Any:
    return await over_http(service, "/v1/retrieve", query=question, filter=filter, explain=True)


async def augmented(service: Service, question: str, filter: Any) -> Any:
    return await over_http(service, "/v1/augment", query=question, filter=filter)


async def asked(service: Service, question: str, filter: Any) -> Any:
    return await over_http(service, "/v1/ask", query=question, filter=filter)


async def chatted(service: Service, question: str, filter: Any) -> Any:
    turns = [{"role": "user", "content": question}]
    options = {"filter": filter, "explain": True}
    return await over_http(service, "/v1/chat/completions", model="signalbox", messages=turns, signalbox=options)


async def over_mcp(service: Service, question: str, filter: Any) -> Any:
    async with Client(build_server(service, lambda context: Caller("default", None))) as client:
        answers = [
            await client.call_tool(tool, {"query": question, "filter": filter})
            for tool in ("search_knowledge", "answer_with_citations")
        ]
    return [answer.structured_content for answer in answers]


DOORS: dict[str, Callable[..., Awaitable[Any]]] = {
    "retrieve": retrieved, "augment": augmented, "ask": asked, "chat": chatted, "mcp": over_mcp,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
async def test_nothing_is_named_that_only_documents_outside_the_filter_hold(service: Service, door: str):
    for question in QUESTIONS:
        for filter in FILTERS if door == "retrieve" else FILTERS[:1]:
            assert named(await DOORS[door](service, question, filter)) == [], (question, filter)


async def test_what_is_offered_is_of_the_documents_inside(service: Service):
    (inside,) = (await retrieved(service, NOBODY, INSIDE))["intent"]["rejected"]
    assert set(inside["valid"]) <= {*PEOPLE["education"]}
    (everywhere,) = (await retrieved(service, NOBODY, None))["intent"]["rejected"]
    assert set(everywhere["valid"]) & {*PEOPLE["defence"]}
    # A name that the documents inside hold is still made whole.
    found = await retrieved(service, "notes by Cleo", INSIDE)
    assert "Cleo Dunn" in json.dumps(found["intent"]["filter"])


def find_rejections(answer: Any, name: str) -> list[dict[str, Any]]:
    """What was rejected, with the name that the question gives as X."""
    said = json.dumps(answer["intent"]["rejected"], ensure_ascii=False)
    return [one | {"valid": []} for one in json.loads(said.replace(name, "X"))]


@pytest.mark.parametrize("question", ["notes of the maintainer {}", "notes by {}", "{}的笔记", "what did {} write?"])
@pytest.mark.parametrize("name", ["Zimmermann", "Ada"])
async def test_namesakes_outside_the_filter_are_told_as_a_name_that_nobody_has(
    service: Service, question: str, name: str
):
    answer = await retrieved(service, question.format(name), INSIDE)
    nobody = await retrieved(service, question.format("Xaver"), INSIDE)
    assert find_rejections(answer, name) == find_rejections(nobody, "Xaver")


async def test_of_namesakes_those_inside_the_filter_are_offered(service: Service):
    defence = {"type": "eq", "key": "section", "value": "defence"}
    for filter in (None, defence):
        (rejected,) = (await retrieved(service, "notes of the maintainer Zimmermann", filter))["intent"]["rejected"]
        assert rejected["reason"] == "it may mean several people"
        assert rejected["valid"] == ["Quentin Zimmermann", "Ursula Zimmermann"]


async def test_a_model_sees_and_is_answered_with_values_inside_the_filter_alone(
    service: Service, model: ScriptedServer
):
    for question in QUESTIONS[:4]:
        for filter in (INSIDE, FILTERS[-1]):
            model.requests.clear()
            answer = await over_http(service, "/v1/retrieve", query=question, filter=filter, intent="llm", explain=True)
            prompts = [json.dumps(request.body, ensure_ascii=False) for request in model.requests]
            assert prompts
            assert named(answer) == []
            assert named(prompts) == []
            # With a filter that nothing passes, the model is shown no name at all.
            assert any("Ada Brook" in one for one in prompts) is (filter is not FILTERS[-1])


async def test_without_a_filter_the_documents_are_not_looked_at(service: Service, monkeypatch: pytest.MonkeyPatch):
    looked: list[object] = []
    look = type(service.catalogue).count_filtered_values

    async def watched(self: Any, *given: Any, **more: Any) -> Any:
        looked.append(given)
        return await look(self, *given, **more)

    monkeypatch.setattr(type(service.catalogue), "count_filtered_values", watched)
    for question in QUESTIONS:
        await retrieved(service, question, None)
    await retrieved(service, "notes by Cleo Dunn", INSIDE)
    assert looked == []
    await retrieved(service, NOBODY, INSIDE)
    assert len(looked) == 1


async def test_where_the_documents_cannot_be_looked_at_in_time_nothing_is_offered(
    service: Service, owner_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("retrievers.postgres.catalogue.cooccurrence_reader.PATIENCE_S", 0.2)
    with psycopg.connect(owner_url) as other:
        # Nobody reads documents until this transaction ends; the searches read passages.
        other.execute("LOCK TABLE signalbox.document IN ACCESS EXCLUSIVE MODE")
        answer = await over_http(
            service, "/v1/retrieve", query=NOBODY, filter=INSIDE, timeout_s=3, sources=["fulltext", "vector"]
        )
    (rejected,) = answer["intent"]["rejected"]
    assert (rejected["reason"], rejected["valid"]) == ('"maintainer" has no such value', [])


async def test_documents_are_not_compared_with_one_that_only_the_filter_hides(service: Service):
    medals = {"Avonia": ("north", 3), "Borland": ("north", 9), "Cadria": ("north", 5), "Zembla": ("south", 6)}
    nations = [
        Document(name, name, name, f"{name} sent a team.", metadata={"nation": name, "side": side, "medals": won})
        for name, (side, won) in medals.items()
    ]
    await service.ingest(nations, "games")
    question = "how many nations have more medals than Zembla?"
    everywhere = await service.retrieve(question, collection="games")
    assert everywhere.table is not None
    assert everywhere.table.rows == ((1,),)
    inside = await service.retrieve(
        question, collection="games", filter={"type": "eq", "key": "side", "value": "north"}
    )
    assert inside.table is None
