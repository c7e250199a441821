"""Collections of several embedders, searched together: what fails of one leaves the others as they are."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent import Service, open_service
from agent.settings import Settings
from agent.testing import Fault, ScriptedServer
from retrievers.embed import cosine_scale
from retrievers.ingest.documents import Document

OURS, THEIRS = "openai/ours", "openai/theirs"


@pytest.fixture
def broken() -> dict[str, Fault]:
    """What goes wrong with every call of an embedder's server, by its name."""
    return {}


@pytest.fixture
async def service(
    owner_url: str, service_url: str, broken: dict[str, Fault], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Service]:
    """`ours` holds vectors of the service's embedder, `theirs` of another, `lost` of one that no setting names."""
    monkeypatch.setattr(cosine_scale, "_measured", {})
    monkeypatch.setattr(cosine_scale, "_measuring", {})
    monkeypatch.setattr(cosine_scale, "_PATIENCE_S", 1.0)  # as in the service: less than `source_timeout_s`
    common: dict[str, Any] = {"database_url": owner_url, "service_url": service_url, "source_timeout_s": 2.0}
    with (
        ScriptedServer(dimension=16, faults=iter(lambda: broken.get("ours"), "")) as ours,
        ScriptedServer(dimension=48, faults=iter(lambda: broken.get("theirs"), "")) as theirs,
    ):
        for embedder, collection in (("openai/lost", "lost"), (THEIRS, "theirs")):
            given = Settings(**common, embedder=embedder, embedder_base_url=theirs.base_url)
            async with open_service(given) as before:
                await before.ingest([Document(collection, collection, "", f"gear oil of {collection}")], collection)
        settings = Settings(
            **common, embedder=OURS, embedder_base_url=ours.base_url, embedders=f"{THEIRS}={theirs.base_url}"
        )
        async with open_service(settings) as service:
            await service.ingest([Document("ours", "ours", "", "gear oil of ours")], "ours")
            yield service


async def of_vectors(service: Service, question: str, **more: Any) -> tuple[list[str], tuple[str, ...], str]:
    """Documents found by vectors, what is degraded, and the reasons that the outcomes give."""
    result = await service.retrieve(question, **more)
    found = sorted(hit.document_id for hit in result.hits if "vector" in hit.sources)
    said = [one.reason for one in result.outcomes if one.source == "vector" and one.reason]
    # Without its own embedder a service cannot measure relevance either, and says so.
    degraded = tuple(one for one in result.degraded if one != "relevance_unavailable")
    return found, degraded, " ".join(said)


FAULTS = {"down": Fault(status=500), "hung": Fault(delay_s=20)}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("failing", ["ours", "theirs"])
async def test_of_one_that_fails_the_others_hits_come_and_it_is_said(
    service: Service, broken: dict[str, Fault], failing: str, fault: str
):
    other = {"ours": "theirs", "theirs": "ours"}[failing]
    await service.delete("lost")
    assert (await of_vectors(service, "gear oil"))[:2] == (["ours", "theirs"], ())
    cosine_scale._measured.clear()
    cosine_scale._measuring.clear()
    broken[failing] = FAULTS[fault]
    for n in range(8):  # the breaker of one opens meanwhile
        found, degraded, said = await of_vectors(service, f"gear oil {n}")
        assert (found, degraded) == ([other], ("vector_partial",)), n
        assert f"the embedder openai/{failing}" in said or failing == "ours", said
    assert "failed too often lately" in said  # it is not waited for any more
    assert (await of_vectors(service, "gear oil 9", collection=other))[:2] == ([other], ())
    assert (await of_vectors(service, "gear oil 9", collection=failing))[:2] == ([], ("vector_unavailable",))


async def test_one_that_works_again_is_asked_again(
    service: Service, broken: dict[str, Fault], monkeypatch: pytest.MonkeyPatch
):
    await service.delete("lost")
    broken["theirs"] = FAULTS["down"]
    for n in range(6):
        await of_vectors(service, f"gear oil {n}")
    broken.clear()
    monkeypatch.setattr(service.pipeline.breakers.of(f"the embedder {THEIRS}"), "_open_s", 0.0)
    assert (await of_vectors(service, "gear oil 7"))[:2] == (["ours", "theirs"], ())


async def test_a_collection_whose_embedder_no_setting_names_is_searched_by_words_and_it_is_said_once(
    service: Service, broken: dict[str, Fault]
):
    result = await service.retrieve("gear oil")
    assert {hit.document_id: hit.sources for hit in result.hits}["lost"] == ("fulltext",)
    assert result.degraded == ("vector_partial",)
    broken["theirs"] = FAULTS["down"]
    assert (await of_vectors(service, "gear oil 2"))[:2] == (["ours"], ("vector_partial",))
