import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agent.settings import Settings
from evals.ablate import STAGES, Alternative, ablate, alternatives, described, has_failed, judge
from evals.cli import app
from evals.datasets import Dataset, load
from retrievers.core.errors import BadRequest
from retrievers.core.metadata import Field

SOURCES = ("fulltext", "sql", "vector")


def silent(_line: str) -> None:
    pass


def changes(settings: Settings, **given: Any) -> list[str]:
    return [str(one) for one in alternatives(settings, given.get("sources", SOURCES), given.get("fields", {}))]


@pytest.fixture
def codes(tmp_path: Path) -> Dataset:
    """Twelve questions that share a code with their document, and their subject with eighteen others."""
    folder = tmp_path / "codes"
    names = [f"KX{number * 7919 % 9000 + 1000}Q" for number in range(12)]
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": one, "text": f"The invoice {one} is paid."} for one in names]
    corpus += [
        {"_id": f"w{day}", "text": f"Showers and a fresh breeze are expected on day {day}."} for day in range(18)
    ]
    queries = [{"_id": f"q-{one}", "text": f"weather forecast of rain and wind {one}"} for one in names]
    for name, lines in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "qrels" / "test.tsv").write_text("".join(f"q-{one}\t{one}\t1\n" for one in names))
    return load(folder)


# What is tried.


def test_every_default_is_tried_against_its_alternatives_and_never_against_itself():
    found = changes(Settings())

    assert len(found) == len(set(found))
    assert {"INTENT=off", "FUSION=rrf", "FUSION=weighted_sum", "RERANKER=hybrid", "MAX_ROUNDS=1"} <= set(found)
    assert {"PER_DOCUMENT=1", "PER_DOCUMENT=100", "DEPTH=50", "DEPTH=200", "LEXICAL_WEIGHT=0.6"} <= set(found)
    assert {"without fulltext", "without sql", "without vector"} <= set(found)
    assert not {"FUSION=convex", "INTENT=auto", "RERANKER=none", "MAX_ROUNDS=3", "LEXICAL_WEIGHT=unset"} & set(found)
    for one in alternatives(Settings(), SOURCES, {}):
        assert one.stage in STAGES
        Settings(**one.settings)


def test_what_is_set_is_tried_against_the_default():
    found = changes(Settings(intent="off", reranker="hybrid", lexical_weight=0.4, rank_features="feedback=0.1"))

    assert {"INTENT=auto", "RERANKER=none", "LEXICAL_WEIGHT=unset", "RANK_FEATURES=unset"} <= set(found)
    assert not {"INTENT=off", "LEXICAL_WEIGHT=0.4"} & set(found)


def test_what_can_have_no_effect_is_not_tried():
    assert not any("LEXICAL_WEIGHT" in one for one in changes(Settings(fusion="rrf")))
    assert not any(one.startswith(("TRANSFORMS", "LOOP_CALLS", "RERANK_BLEND")) for one in changes(Settings()))
    assert not any(one.startswith("without") for one in changes(Settings(), sources=("vector",)))


def test_a_model_that_is_set_has_its_stages_tried():
    found = changes(Settings(llm="openai/small", reranker="llm"))

    assert {"INTENT=rules", "INTENT=llm", "INTENT=off", "TRANSFORMS=hyde", "LOOP_CALLS=0", "RERANK_BLEND=0.3"} <= set(
        found
    )


def test_documents_are_ranked_by_their_dates_and_lists_in_a_row_each():
    of_type = [Field("day", "date", "date"), Field("team", "string", "string"), Field("topics", "list", "string")]
    fields = {one.name: one for one in (*of_type, Field("years", "list", "number"))}

    found = [one for one in changes(Settings(), fields=fields) if one.startswith("RANK_FEATURES")]

    assert found == ["RANK_FEATURES=recency:day/365=0.1", "RANK_FEATURES=tags:topics=0.1"]


# How it is judged.


def row(**differences: tuple[float, float]) -> dict[str, Any]:
    return {
        "differences": {name: {"mean": mean, "p": p, "more": 1, "less": 1} for name, (mean, p) in differences.items()}
    }


def test_all_tests_of_a_dataset_are_corrected_together():
    rows = [row(**{"nDCG@10": (-0.2, 0.01)}), row(**{"nDCG@10": (-0.1, 0.02)}), row(**{"nDCG@10": (-0.1, 0.04)})]

    judge(rows)

    # Holm: 3 x 0.01, then 2 x 0.02, then 1 x 0.04, never falling.
    assert [one["differences"]["nDCG@10"]["p_adjusted"] for one in rows] == pytest.approx([0.03, 0.04, 0.04])
    assert [one["judgement"] for one in rows] == ["earns its place"] * 3


def test_a_judgement_says_for_whom_the_difference_is():
    better, both, chance = (
        row(**{"nDCG@10": (0.2, 0.001)}),
        row(**{"nDCG@10": (0.2, 0.001), "filter_exact": (-0.3, 0.001)}),
        row(**{"nDCG@10": (-0.2, 0.3), "hit@1": (-0.5, 0.0001)}),
    )
    same = {"differences": {"nDCG@10": {"mean": 0.0, "p": 1.0, "more": 0, "less": 0}}}

    rows = [better, both, chance, same, {"error": "it is down"}]
    judge(rows)

    # hit@1 decides nothing, it is only told.
    expected = ["costs", "earns and costs", "no difference", "no difference", "failed"]
    assert [one["judgement"] for one in rows] == expected
    assert "p_adjusted" not in same["differences"]["nDCG@10"]


# What is measured.


async def test_the_source_that_questions_need_earns_its_place_and_the_others_make_no_difference(
    codes: Dataset, settings: Settings
):
    notes: list[str] = []
    kept: list[int] = []

    found = await ablate(
        [codes], settings, notes.append, only=["source"],
        keep=lambda so_far: kept.append(len(so_far["datasets"][0]["alternatives"])),
    )  # fmt: skip

    entry = found["datasets"][0]
    rows = {one["change"]: one for one in entry["alternatives"]}
    assert entry["baseline"]["metrics"]["nDCG@10"] == pytest.approx(1.0)
    assert {change: one["judgement"] for change, one in rows.items()} == {
        "without fulltext": "earns its place", "without sql": "no difference", "without vector": "no difference",
    }  # fmt: skip
    lost = rows["without fulltext"]["differences"]["nDCG@10"]
    assert lost["mean"] == pytest.approx(rows["without fulltext"]["metrics"]["nDCG@10"] - 1.0)
    assert lost["low"] <= lost["mean"] <= lost["high"] < 0
    assert (lost["questions"], lost["more"]) == (12, 0)
    assert lost["p"] < 0.01
    assert rows["without sql"]["differences"]["nDCG@10"]["less"] == 0
    assert kept == [1, 2, 3]
    assert any("3 of 3, without vector" in line for line in notes)
    assert sum("30 documents, 30 passages" in line for line in notes) == 1
    json.dumps(found, allow_nan=False)


@pytest.mark.slow
async def test_a_setting_that_does_harm_costs(codes: Dataset, settings: Settings):
    vectors_alone = settings.model_copy(update={"lexical_weight": 0.0})

    found = await ablate([codes], vectors_alone, silent, only=["lexical_weight"])

    rows = {one["change"]: one for one in found["datasets"][0]["alternatives"]}
    assert rows["LEXICAL_WEIGHT=unset"]["judgement"] == "costs"
    assert rows["LEXICAL_WEIGHT=unset"]["in_force"] == "0.0"
    assert rows["LEXICAL_WEIGHT=unset"]["differences"]["nDCG@10"]["low"] > 0


async def test_intent_off_loses_the_filters_of_a_routed_dataset(routed: Callable[..., Path], settings: Settings):
    wanted = {"type": "eq", "key": "team", "value": "keepers"}
    asked = [
        {"id": f"q{number}", "text": text, "filter": wanted, "relevant": {"b": 1, "c": 1}}
        for number, text in enumerate(
            f"{verb} {what} of the team keepers"
            for verb in ("show", "list", "find")
            for what in ("notes", "texts", "reports")
        )
    ]

    found = await ablate([load(routed(*asked))], settings, silent, only=["intent"])

    (row,) = found["datasets"][0]["alternatives"]
    assert (row["change"], row["judgement"]) == ("INTENT=off", "earns its place")
    assert row["differences"]["filter_exact"]["mean"] == -1.0


async def test_an_alternative_and_a_dataset_that_fail_are_said_and_the_others_go_on(
    codes: Dataset, beir: Path, settings: Settings
):
    # Without a reranker there is no score that the bound could hold for.
    bounded = settings.model_copy(update={"reranker": "hybrid", "rerank_min_score": 0.01})
    broken = load(beir)
    (beir / "corpus.jsonl").write_text("{}\n")
    notes: list[str] = []

    found = await ablate([broken, codes], bounded, notes.append, limit=3, only=["reranker", "max_rounds"])

    failed, entry = found["datasets"]
    assert "no document could be stored" in failed["error"]
    rows = {one["change"]: one for one in entry["alternatives"]}
    assert rows["RERANKER=none"]["judgement"] == "failed"
    assert "RERANK_MIN_SCORE" in rows["RERANKER=none"]["error"]
    assert rows["MAX_ROUNDS=1"]["judgement"] == "no difference"
    assert has_failed(found)
    assert any("RERANKER=none: failed" in line for line in notes)
    tables = list(described(found))
    assert tables[0][2] == [(failed["error"],)]
    assert tables[1][2][1][-1].startswith("failed: ")
    assert entry["questions"] == 3


async def test_no_dataset_that_can_be_used_is_an_error(beir: Path, settings: Settings):
    broken = load(beir)
    (beir / "corpus.jsonl").write_text("{}\n")

    with pytest.raises(BadRequest, match="no document could be stored"):
        await ablate([broken], settings, silent)
    with pytest.raises(BadRequest, match='no stage "fushion"; there are: "depth", "fusion", "intent"'):
        await ablate([broken], settings, silent, only=["fushion"])


def test_the_command_prints_a_table_per_dataset_and_writes_one_file(beir: Path, owner_url: str, tmp_path: Path):
    out = tmp_path / "ABLATION.json"

    done = CliRunner().invoke(
        app, ["ablate", str(beir), "--set", f"DATABASE_URL={owner_url}", "--limit", "2", "--only", "max_rounds",
              "--only", "reranker", "--out", str(out)],
        standalone_mode=False,
    )  # fmt: skip

    assert done.exception is None
    assert done.return_value == 0
    assert "tiny (test): 2 questions" in done.stdout
    assert "MAX_ROUNDS=1" in done.stdout
    assert "no difference" in done.stdout
    assert "2 of 2, MAX_ROUNDS=1: nDCG@10 +0.000" in done.stderr
    written = json.loads(out.read_text())
    assert [one["change"] for one in written["datasets"][0]["alternatives"]] == ["RERANKER=hybrid", "MAX_ROUNDS=1"]
    assert written["settings"]["max_rounds"] == 3


def test_an_alternative_says_what_it_changes():
    assert str(Alternative("transforms", {"transforms": ("hyde",)})) == "TRANSFORMS=hyde"
    assert str(Alternative("min_relevance", {"min_relevance": None})) == "MIN_RELEVANCE=unset"
