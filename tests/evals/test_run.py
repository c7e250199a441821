import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent import open_service
from agent.settings import Settings
from evals import metrics
from evals.corpus import TENANT
from evals.datasets import load
from evals.question_runner import QuestionRunOptions
from evals.run import run
from retrievers.core.errors import BadRequest, Unavailable

SAMPLE = Path(__file__).parents[2] / "evals" / "data" / "sample"


def silent(_line: str) -> None:
    pass


async def test_a_tiny_beir_dataset_is_answered_and_judged(beir: Path, settings: Settings):
    notes: list[str] = []

    found = await run(load(beir), settings, notes.append)
    json.dumps(found, allow_nan=False)

    assert {name: found["metrics"][name] for name in metrics.RANKING} == pytest.approx(
        dict.fromkeys(metrics.RANKING, 1)
    )
    assert {found["metrics"][name] for name in set(metrics.NAMES) - set(metrics.RANKING)} == {None}
    assert (found["dataset"], found["form"], found["split"], found["filters"]) == ("tiny", "beir", "test", "none")
    assert (found["documents"], found["chunks"]) == (6, 6)
    assert found["by_class"] == {}
    assert found["by_language"] == {"en": found["metrics"]}
    assert set(found["latency_ms"]) == {"p50", "p95", "p99", "mean"}
    first = found["questions"][0]
    assert (first["id"], first["documents"][0], first["status"]) == ("q-volcano", "d-volcano", "found")
    assert (first["class"], first["language"], first["filter"], first["intent_filter"]) == (None, "en", None, None)
    assert first["sources"] == ["fulltext", "vector"]
    assert first["latency_ms"] > 0
    assert found["prompts"].keys() >= {"answer/v1"}
    assert found["versions"].keys() >= {"python", "postgres", "pgvector"}
    assert found["settings"]["database_url"] == "given"
    assert not any("key" in name for name in found["settings"])
    assert any("6 documents, 6 passages (6 new)" in line for line in notes)


async def test_the_next_run_stores_what_changed_and_drops_what_went(beir: Path, settings: Settings):
    await run(load(beir), settings, silent)
    lines = (beir / "corpus.jsonl").read_text().splitlines()
    (beir / "corpus.jsonl").write_text("\n".join([*lines[:5], '{"_id": "d-new", "text": "A new one."}', "{"]) + "\n")
    notes: list[str] = []

    found = await run(load(beir), settings, notes.append, limit=2)

    assert [row["id"] for row in found["questions"]] == ["q-volcano", "q-glacier"]
    assert any("6 documents, 6 passages (1 new)" in line for line in notes)
    assert any("corpus.jsonl:7: malformed JSON" in line for line in notes)
    async with open_service(settings) as service:
        assert not await service.delete("tiny", "d-lighthouse", tenant=TENANT)
        assert await service.delete("tiny", "d-new", tenant=TENANT) == 1


async def test_gold_filters_lead_to_the_right_documents_and_are_not_judged_themselves(
    tmp_path: Path, settings: Settings
):
    questions = [json.loads(line) for line in (SAMPLE / "queries.jsonl").read_text().splitlines()]
    chosen = [one for one in questions if one["filter"]][:6] + [one for one in questions if one["class"] == "none"][:1]
    wanted = {id for one in chosen for id in one["relevant"]}
    corpus = [json.loads(line) for line in (SAMPLE / "corpus.jsonl").read_text().splitlines()]
    kept = [one for n, one in enumerate(corpus) if one["id"] in wanted or n % 6 == 0]
    folder = tmp_path / "slice"
    folder.mkdir()
    for name, lines in (("corpus", kept), ("queries", chosen), ("other-tenant", [{"id": "canary", "text": "Leaked."}])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    dataset = load(folder, "all")

    off = settings.model_copy(update={"intent": "off"})
    gold = await run(dataset, off, silent, options=QuestionRunOptions(filters="gold"))
    read = await run(dataset, settings, silent)
    plain = await run(dataset, off, silent)

    assert gold["documents"] == len(kept)
    assert gold["questions"][0]["filter"] == chosen[0]["filter"]
    assert (gold["metrics"]["filter_exact"], gold["metrics"]["filter_f1"]) == (None, None)
    assert gold["metrics"]["R@100"] == pytest.approx(1.0)
    assert gold["metrics"]["nDCG@10"] >= plain["metrics"]["nDCG@10"]
    assert read["metrics"]["filter_exact"] > plain["metrics"]["filter_exact"] + 0.4
    assert read["by_class"]["none"]["route_accuracy"] == 1.0
    # When nothing is read into questions, only the one without a constraint has the right filter.
    assert plain["metrics"]["filter_exact"] == pytest.approx(1 / 7)
    assert plain["metrics"]["filter_f1"] > plain["metrics"]["filter_exact"]
    assert plain["by_class"]["none"]["nDCG@10"] is None
    assert plain["by_class"]["none"]["route_accuracy"] == 0.0


Write = Callable[..., Path]


def question(id: str, **given: Any) -> dict[str, Any]:
    return {"id": id, "text": "Where is the lamp?", "relevant": {"b": 1}, "sources": ["vector"], **given}


async def test_a_question_the_service_refuses_counts_as_missed(routed: Write, settings: Settings):
    folder = routed(question("good"), question("bad", text="?" * 9000))

    found = await run(load(folder), settings, silent)

    good, bad = found["questions"]
    assert (good["status"], good["metrics"]["hit@1"]) == ("found", 1.0)
    assert (bad["status"], bad["documents"], bad["metrics"]["hit@1"]) == ("error", [], 0.0)
    assert (bad["metrics"]["filter_exact"], bad["metrics"]["route_accuracy"]) == (0.0, 0.0)
    assert "8000" in bad["error"]
    assert found["metrics"]["hit@1"] == 0.5


async def test_a_conversation_is_asked_with_its_history(routed: Write, settings: Settings):
    turns = [{"role": "user", "content": "The oven?"}, {"role": "assistant", "content": "It is repaired."}]

    found = await run(load(routed(question("q", history=turns, now="2026-11-20"))), settings, silent)

    assert found["questions"][0]["documents"][0] == "b"


async def test_a_gold_filter_that_does_not_fit_the_corpus_is_the_datasets_fault(routed: Write, settings: Settings):
    folder = routed(question("q7", filter={"type": "eq", "key": "colour", "value": "red"}))

    with pytest.raises(BadRequest, match="question q7: the gold filter does not fit the corpus"):
        await run(load(folder), settings, silent)


async def test_a_corpus_without_one_good_document_and_a_database_that_is_down_are_errors(
    routed: Write, settings: Settings
):
    folder = routed(question("q"))
    with pytest.raises(Unavailable, match="the database is unavailable"):
        await run(load(folder), Settings(database_url="host=/nowhere dbname=x"), silent)
    (folder / "corpus.jsonl").write_text("{}\n")
    with pytest.raises(BadRequest, match=r"no document could be stored: .*corpus\.jsonl:1: no text"):
        await run(load(folder), settings, silent)
