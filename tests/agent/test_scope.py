"""Questions that name no collection: where they are asked, why, and how a wrong choice is let go of."""

import functools
import itertools
import json
import operator
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from agent import Service, open_service
from agent.intent import collection_choice
from agent.intent.collection_choice import RELAXED_REASON
from agent.settings import Settings
from agent.testing import ScriptedServer
from agent.types import Result
from retrievers.core.errors import BadRequest
from retrievers.ingest.documents import Document
from retrievers.postgres.catalogue import description_drafts
from retrievers.postgres.connections.database import Database
from retrievers.postgres.connections.read_routing import ReadRouter

CLAIMS = [
    ("taxi", "A taxi from the airport, with a receipt.", {"claimant": "Dubois", "status": "paid"}),
    ("hotel", "Two nights in a hotel near the fair.", {"claimant": "Okafor", "status": "refused"}),
    ("dinner", "Dinner with a customer after the fair.", {"claimant": "Lindqvist", "status": "paid"}),
]
RECIPES = [
    ("soup", "Simmer the lentils with cumin for half an hour.", {"cuisine": "Lebanese"}),
    ("cake", "Beat butter and sugar, add the eggs, bake until golden.", {"cuisine": "French"}),
    ("stew", "Brown the lamb, add apricots and cook it slowly.", {"cuisine": "Moroccan"}),
]


def documents(rows: list[tuple[str, str, dict[str, str]]]) -> list[Document]:
    return [Document(id, id, id, text, metadata=metadata) for id, text, metadata in rows]


async def fill(service: Service) -> None:
    await service.ingest(documents(CLAIMS), "expenses")
    await service.ingest(documents(RECIPES), "recipes")


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    async with open_service(
        Settings(choose_collections=True, database_url=owner_url, service_url=service_url)
    ) as service:
        await fill(service)
        yield service


def chosen(result: Result) -> list[str]:
    return [one.name for one in result.intent.scope]


@pytest.mark.parametrize(
    ("question", "name", "reason"),
    [
        ("what did Okafor hand in?", "expenses", "its fields contain the question's words"),
        ("which expenses did you see yesterday?", "expenses", "the question names it"),
        ("how long do I boil pulses with spices?", "recipes", "its passages are near"),
    ],
)
async def test_a_question_is_asked_of_the_collection_that_it_means(
    service: Service, question: str, name: str, reason: str
):
    result = await service.retrieve(question)

    assert (result.intent.collections, chosen(result)) == ((name,), [name])
    assert result.intent.scope[0].reason == reason
    assert collection_choice.LEAST_ALONE <= result.intent.scope[0].confidence <= 1
    assert {hit.id.split("/")[0] for hit in result.hits} == {name}


async def test_a_question_that_says_nothing_of_any_collection_is_asked_of_all(service: Service):
    result = await service.retrieve("is there anything new since last week?")

    assert (result.intent.collections, result.intent.scope) == (("expenses", "recipes"), ())


@pytest.mark.parametrize("fixed", [{"collection": "recipes"}, {"intent": "off"}])
async def test_what_the_caller_fixes_is_not_chosen(service: Service, fixed: Mapping[str, str]):
    result = await service.retrieve("what did Okafor hand in?", **fixed)

    assert result.intent.scope == ()
    assert result.intent.collections == ((fixed["collection"],) if "collection" in fixed else ("expenses", "recipes"))


async def test_a_description_draws_questions_that_nothing_else_tells(service: Service):
    question = "anything about reimbursement of travel costs?"
    await service.declare("recipes", {"description": "How the staff ask for reimbursement of travel costs"})

    assert chosen(await service.retrieve(question)) == ["recipes"]


async def test_a_choice_that_gives_nothing_relevant_is_let_go_of_and_that_is_said(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    # By their names alone collections are chosen wrongly.
    monkeypatch.setitem(collection_choice.WEIGHTS, "vector", (0, 0, 9, 0, 0, 0, 0))
    await service.ingest([Document("x", "x", "Opening hours", "Closed on Mondays.")], "lentils")
    result = await service.augment("lentils: how long do they simmer with cumin?")

    assert [one.reason for one in result.relaxed] == [RELAXED_REASON]
    assert result.relaxed[0].dropped == {"type": "in", "key": "collection", "value": ["lentils"]}
    assert (result.status, result.hits[0].document_id, result.intent.scope) == ("found", "soup", ())
    assert "collection" not in result.prompt.split("Simmer")[0]


async def test_the_choice_costs_one_statement_and_none_where_there_is_one_collection(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    counted: Counter[str] = Counter()
    for kind, name in itertools.product((Database, ReadRouter), ("fetch", "fetch_autocommit")):
        ask = getattr(kind, name)

        async def noted(self: object, *given: object, ask=ask, **more: object) -> object:  # type: ignore[no-untyped-def]
            # The records of answers are written when it suits.
            if not any(table in str(given) for table in ("signalbox.trace", "signalbox.exchange")):
                counted[next(str(one) for one in given if "SELECT" in str(one))] += 1
            return await ask(self, *given, **more)

        monkeypatch.setattr(kind, name, noted)

    async def statements(question: str, **fixed: object) -> list[Counter[str]]:
        """Return the statements of each of four questions; the first also looks up what is not known yet."""
        each = []
        for word in ("", "quickly", "slowly", "today"):
            counted.clear()
            await service.retrieve(f"{question} {word}", **fixed)
            each.append(Counter(counted))
        return each

    # What is known is looked up again now and then, which is no part of the choice.
    named = functools.reduce(
        operator.or_, await statements("two nights in a hotel near the fair", collection="expenses")
    )
    assert named
    chosen = functools.reduce(operator.and_, await statements("dinner with a customer after the fair"))
    assert (chosen - named).total() == 1
    await service.delete("recipes")
    alone = functools.reduce(operator.and_, await statements("a taxi from the airport, with a receipt"))
    assert not alone - named


async def test_a_model_chooses_by_what_the_collections_hold(owner_url: str, service_url: str):
    reply = {
        "kind": "retrieve",
        "question": "What is new?",
        "searches": ["what is new"],
        "collections": ["recipes", "x"],
    }
    with ScriptedServer([json.dumps(reply)]) as server:
        model = {"llm": "openai/scripted", "llm_base_url": server.base_url, "llm_api_key": "any", "max_rounds": 1}
        async with open_service(
            Settings(choose_collections=True, database_url=owner_url, service_url=service_url, **model)
        ) as service:
            await fill(service)
            await service.declare("recipes", {"description": "What we cook"})
            result = await service.retrieve("is there anything new?", intent="llm")
        prompt = "\n".join(message["content"] for message in server.requests[0].body["messages"])

    assert '- "recipes": "What we cook"' in prompt
    assert '- "expenses": "about ' in prompt
    assert result.intent.by == "llm"
    assert (result.intent.collections, chosen(result)) == (("recipes",), ["recipes"])
    assert {hit.id.split("/")[0] for hit in result.hits} == {"recipes"}
    assert [(one.what, one.valid) for one in result.intent.rejected] == [("collection x", ("expenses", "recipes"))]


async def test_a_collection_nobody_has_described_has_a_draft_that_is_marked_as_one(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    threads, sample = [], description_drafts.build_sample

    def watched(documents: Sequence[tuple[str, str]]) -> description_drafts.DocumentSample:
        threads.append(threading.current_thread())
        return sample(documents)

    monkeypatch.setattr(description_drafts, "build_sample", watched)
    drafted = await service.describe("recipes")
    assert threads
    assert threading.main_thread() not in threads  # it takes long
    assert drafted["draft"]
    assert drafted["description"] == (
        "about add, apricots, bake, beat, brown, butter, cake, cook, cumin, eggs, golden, half. "
        "titles such as cake; soup; stew. fields: cuisine"
    )

    said = await service.declare("recipes", {"description": " What we\ncook "})
    assert (said["description"], said["draft"]) == ("What we cook", False)
    assert (await service.declare("recipes", {"description": ""}))["draft"]
    with pytest.raises(BadRequest, match="at most 1,000 printable characters"):
        await service.declare("recipes", {"description": "x" * 1001})


async def test_a_draft_shows_a_tenant_nothing_that_it_may_not_read(service: Service):
    await service.ingest([Document("p", "p", "Public notice", "For everybody.", public=True)], "shared", tenant="0")
    await service.ingest(
        [Document("s", "s", "Secret", "For nobody.", enabled=False, public=True)], "shared", tenant="0"
    )
    drafted = await service.describe("shared")

    assert "Public notice" in drafted["description"]
    assert "Secret" not in drafted["description"]


def test_a_value_that_is_a_stop_word_is_not_stated_by_a_question():
    whole = frozenset(["it", "lebanese", "over 100 eur"])
    profile = collection_choice.CollectionProfile((1,), 1, {}, whole, frozenset(), frozenset(), "")
    told = ("how does it work?", "is there a Lebanese soup?", "claims of over 100 EUR")
    assert [collection_choice.stated_values(one, "en", [profile]) for one in told] == [[0.0], [1.0], [1.0]]
