"""Questions asked among several collections are told apart: right, alone, wrong; those of the world are left out."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.settings import Settings
from evals.collection_choice import CollectionGroups, every_nth, measure, questions_of
from retrievers.core.errors import BadRequest


def write(folder: Path, documents: list[dict[str, Any]], questions: list[dict[str, Any]]) -> Path:
    folder.mkdir()
    for name, lines in (("corpus", documents), ("queries", questions)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


async def test_questions_are_judged_by_the_collections_that_were_searched(
    owner_url: str, service_url: str, tmp_path: Path
):
    lamps = write(
        tmp_path / "lamps",
        [{"id": "a", "text": "The lamp of the lighthouse turns.", "keeper": "Ortega"}],
        [
            {"id": "1", "text": "does the lamp of the lighthouse turn?", "relevant": {"a": 1}},
            {"id": "2", "text": "will it rain tomorrow?", "sources": ["web"]},
            {"id": "3", "text": "who bakes?", "collection": "ovens"},
        ],
    )
    ovens = write(
        tmp_path / "ovens",
        [{"id": "b", "text": "Bread bakes in the oven.", "baker": "Brandt"}],
        # It is of the other folder, so it goes wrong.
        [{"id": "1", "text": "does the lamp of the lighthouse turn?", "relevant": {"b": 1}}],
    )
    settings = Settings(choose_collections=True, database_url=owner_url, service_url=service_url)
    found = await measure([lamps, ovens], 10, settings, lambda line: None)

    shares = ("questions", "among", "alone", "wrong", "searched", "found")
    assert [found["figures"]["lamps"][one] for one in shares] == [1, 1, 1, 0, 1, 1]
    assert [found["figures"]["ovens"][one] for one in shares] == [1, 0, 0, 1, 1, 0]
    assert found["figures"]["all"]["alone"] == 0.5
    world = [{"id": "1", "text": "will it rain?", "sources": ["web"]}]
    with pytest.raises(BadRequest, match="the folder has no questions"):
        await measure([write(tmp_path / "none", [{"id": "c", "text": "x"}], world)], 10, settings, lambda line: None)


def test_so_many_questions_are_taken_evenly(tmp_path: Path):
    lines = [{"id": str(n), "text": f"question {n}"} for n in range(10)]
    questions = list(questions_of(write(tmp_path / "many", [], lines)))

    assert [one.id for one in every_nth(questions, 4)] == ["0", "2", "5", "7"]
    assert every_nth(questions, 99) == questions


async def test_a_random_group_hides_the_other_collections_of_the_tenant(
    owner_url: str, service_url: str, tmp_path: Path
):
    folders = [
        write(
            tmp_path / name,
            [{"id": name, "text": "The lamp of the lighthouse turns."}],
            [{"id": name, "text": "does the lamp turn?", "class": "topic"}],
        )
        for name in ("one", "two", "three")
    ]
    settings = Settings(database_url=owner_url, service_url=service_url)
    found = await measure(folders, 2, settings, lambda line: None, CollectionGroups(number=3, size=2))

    assert [len(row["collections"]) for row in found["questions"]] == [2] * 6
    assert found["classes"]["topic"]["questions"] == 6
