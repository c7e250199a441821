"""Named sources by themselves: a group where one of its searches fails, and errors in a source's own words."""

from dataclasses import dataclass, field

import pytest

from retrievers.configured_sources.collection_group import CollectionGroup
from retrievers.configured_sources.renamed_source import RenamedSource
from retrievers.core.errors import BadFilter, RetrievalError, TooCostly, Unavailable
from retrievers.core.types import Card, Chunk, ChunkId, Collection, Hit, Query, Scope

SCOPE = Scope("t", (Collection(1, "t", "a"), Collection(2, "t", "b"), Collection(3, "t", "c")))
QUERY = Query("rain", "en", SCOPE, limit=2)


@dataclass
class Stub:
    """Finds these documents with these scores, or fails."""

    found: dict[str, float] = field(default_factory=dict)
    error: Exception | None = None
    card: Card = field(default=Card("stub", ""))
    asked: list[Query] = field(default_factory=list)

    async def search(self, query: Query) -> list[Hit]:
        self.asked.append(query)
        if self.error is not None:
            raise self.error
        ids = {name: ChunkId("t", "a", name, 0) for name in self.found}
        return [Hit(ids[name], score, "stub", Chunk(ids[name], name, name)) for name, score in self.found.items()]


def group(words: Stub, meaning: Stub) -> CollectionGroup:
    return CollectionGroup(
        Card("some", "", named=True, part=True), ("a", "b", "gone"), {"fulltext": words, "vector": meaning}
    )


async def test_a_group_blends_both_measures_over_its_own_collections():
    words, meaning = Stub({"x": 8.0, "y": 4.0}), Stub({"y": 0.9, "z": 0.1})
    hits = await group(words, meaning).search(QUERY)
    # Words weigh 0.6 and meaning 0.4, each brought to [0, 1]: x 0.6 + 0, y 0 + 0.4, z 0 + 0.
    assert [(hit.id.document_id, hit.score, hit.component_scores) for hit in hits] == [
        ("x", 0.6, {"fulltext": 8.0}),
        ("y", 0.4, {"fulltext": 4.0, "vector": 0.9}),
    ]
    assert {hit.source for hit in hits} == {"some"}
    assert [one.name for one in words.asked[0].scope.collections] == ["a", "b"]
    assert group(words, meaning).missing(SCOPE) == ("gone",)


async def test_one_measure_is_enough_for_a_group_and_none_is_not():
    down = Stub(error=Unavailable("vector", "it is down"))
    assert [hit.id.document_id for hit in await group(Stub({"x": 1.0}), down).search(QUERY)] == ["x"]
    with pytest.raises(Unavailable, match="it is down"):
        await group(down, down).search(QUERY)
    with pytest.raises(ZeroDivisionError):
        await group(Stub({"x": 1.0}), Stub(error=ZeroDivisionError())).search(QUERY)


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("cloud", "the key was refused, set CLOUD_API_KEY", retry_after_s=3),
        TooCostly("cloud", "set CLOUD_API_KEY"),
        BadFilter("set CLOUD_API_KEY", where="filter", valid=("x",)),
    ],
)
async def test_an_error_of_a_source_outside_keeps_its_kind_and_says_its_own_keys(error: RetrievalError):
    source = RenamedSource(
        Card("manuals", "", "outside"), Stub(error=error), {"CLOUD_API_KEY": "sources.manuals.api_key"}
    )
    with pytest.raises(type(error), match=r"manuals.*set sources\.manuals\.api_key") as caught:
        await source.search(QUERY)
    assert "CLOUD" not in str(caught.value)
    for name in ("retry_after_s", "where", "valid"):
        assert getattr(caught.value, name, None) == getattr(error, name, None)


async def test_hits_of_two_sources_outside_are_two_whatever_their_ids():
    one, two = (RenamedSource(Card(name, "", "outside"), Stub({"x": 1.0}), {}) for name in ("one", "two"))
    hits = [*(await one.search(QUERY)), *(await two.search(QUERY))]
    assert [str(hit.id) for hit in hits] == ["one/x#0", "two/x#0"]
    assert all(hit.chunk is not None and hit.chunk.id == hit.id for hit in hits)
