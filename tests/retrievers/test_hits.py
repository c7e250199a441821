"""Rows of the searches as hits."""

from retrievers.core.types import ChunkId, Collection, Hit, Query, Scope
from retrievers.postgres.documents.hits import hits_from_rows

QUERY = Query("x", "en", Scope("t", (Collection(7, "t", "docs"), Collection(8, "0", "shared"))), limit=3)


def test_rows_become_hits_best_first_each_passage_once_and_none_of_another_tenant():
    rows = [
        ("t", 7, "b", 0, 0.5),
        ("t", 7, "a", 1, 0.5),
        ("0", 8, "c", 0, 0.9),
        ("u", 7, "d", 0, 2.0),
        ("t", 7, "b", 0, 0.4),
    ]
    assert hits_from_rows(rows, QUERY, "vector") == [
        Hit(ChunkId("0", "shared", "c", 0), 0.9, "vector"),
        Hit(ChunkId("t", "docs", "a", 1), 0.5, "vector"),
        Hit(ChunkId("t", "docs", "b", 0), 0.5, "vector"),
    ]
    assert hits_from_rows([("t", 7, f"{n}", 0, float(n)) for n in range(9)], QUERY, "vector")[0].score == 8.0
