import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from agent.retrieval.rerank.ltr import load_model
from agent.retrieval.rerank.ltr_features import NAMES
from agent.settings import load_settings
from evals import ranker_fitting
from evals.cli import app
from evals.datasets import splits
from evals.ranker_fitting import RankingExample
from evals.significance import paired_difference
from evals.tune import split_questions
from retrievers.core.errors import BadRequest
from retrievers.core.optional_dependencies import install_command

WORDS = """
    anchor basket candle dragon engine feather garden hammer island jacket kettle ladder magnet needle orange pepper
    quartz ribbon saddle temple umbrella violin window yellow zipper barrel copper desert falcon goblet harbor insect
    jungle kitten lantern marble nettle oyster parrot quiver rabbit salmon tunnel velvet walnut
""".split()


# The two parts.


def questions(folder: Path, split: str, *ids: str) -> None:
    (folder / "qrels" / f"{split}.tsv").write_text("".join(f"{id}\td-volcano\t1\n" for id in ids))


def test_a_split_of_its_own_is_tuned_on_and_test_is_kept_for_verification(beir: Path):
    questions(beir, "train", "q-volcano", "q-glacier")
    questions(beir, "dev", "q-unjudged", "q-bakery")

    found = split_questions(beir)

    assert splits(beir) == ("dev", "test", "train")
    assert (found.tune_from, found.verify_from) == ("split train", "split test")
    assert {one.id for one in found.tune} == {"q-volcano", "q-glacier"}
    assert len(found.verify) == 5


def test_one_split_is_dealt_out_in_two_halves_the_same_way_each_time(beir: Path):
    found, again = split_questions(beir), split_questions(beir)

    assert (found.tune_from, found.verify_from) == ("a random half of split test", "the other half")
    assert (len(found.tune), len(found.verify)) == (2, 3)
    assert not {one.id for one in found.tune} & {one.id for one in found.verify}
    assert [one.id for one in found.tune] == [one.id for one in again.tune]


def test_no_more_questions_are_drawn_than_allowed(beir: Path):
    questions(beir, "dev", "q-volcano", "q-glacier", "q-bakery")

    found = split_questions(beir, limit=2)

    assert (len(found.tune), len(found.verify)) == (2, 2)


def test_the_routed_form_has_its_parts_in_the_lines(routed: Callable[..., Path]):
    lines = [{"id": f"q{n}", "text": "Where is the reef?", "relevant": {"c": 1}, "split": split}
             for n, split in enumerate(["dev", "dev", "test", "test"])]  # fmt: skip
    unanswerable = {"id": "q9", "text": "What is the weather?", "relevant": {}, "split": "dev"}

    found = split_questions(routed(*lines, unanswerable))

    assert [{one.id for one in part} for part in (found.tune, found.verify)] == [{"q0", "q1"}, {"q2", "q3"}]


def test_too_few_questions_say_how_many_there_are(routed: Callable[..., Path]):
    folder = routed({"id": "q", "text": "Where is the reef?", "relevant": {"c": 1}})

    with pytest.raises(BadRequest, match=r"0 questions to tune on \(a random half of split test\) and 1 to verify"):
        split_questions(folder)


def test_a_folder_without_judgements_is_a_bad_request(beir: Path):
    (beir / "qrels" / "test.tsv").unlink()

    with pytest.raises(BadRequest, match='no split "test"'):
        split_questions(beir)


# Paired differences.


def test_a_difference_that_is_the_same_for_every_question_is_certain_of_its_size():
    found = paired_difference([0.5, 0.25, 0.0, 0.75], [0.75, 0.5, 0.25, 1.0])

    assert (found["mean"], found["low"], found["high"]) == (0.25, 0.25, 0.25)
    # Of the 16 ways to flip four signs, two give a mean as large.
    assert found["p"] == pytest.approx(2 / 16, abs=0.02)


def test_no_difference_has_an_interval_of_nothing_and_is_pure_chance():
    assert paired_difference([0.5, 1.0], [0.5, 1.0]) == {"mean": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}


def test_an_interval_holds_what_the_questions_disagree_about():
    found = paired_difference([0.0] * 20, [1.0] * 11 + [-1.0] * 9)

    assert found["mean"] == pytest.approx(0.1)
    # Twenty throws of +-1 have a standard error of about 0.22.
    assert (found["low"], found["high"]) == (pytest.approx(0.1 - 0.44, abs=0.07), pytest.approx(0.1 + 0.44, abs=0.07))
    assert found["p"] > 0.5


def test_a_difference_of_nothing_or_of_unlike_questions_is_a_mistake():
    with pytest.raises(ValueError, match="no questions"):
        paired_difference([], [])
    with pytest.raises(ValueError, match="zip"):
        paired_difference([1.0], [1.0, 0.0])


# Training.


def synthetic(count: int, seed: int) -> list[RankingExample]:
    """Questions whose one relevant passage has the most words; the fused order is by chance."""
    draw = np.random.default_rng(seed)
    examples = []
    for number in range(count):
        rows = draw.random((12, len(NAMES)))
        pool = [f"d{n}" for n in range(12)]
        right = pool[int(rows[:, NAMES.index("passage_words")].argmax())]
        examples.append(RankingExample(f"q{number}", rows, pool, ["below"], {right: 1}))
    return examples


def test_training_finds_the_feature_that_decides():
    model, gains = ranker_fitting.train_ranker(synthetic(60, seed=1))
    unknown = synthetic(40, seed=2)

    fused = np.mean(ranker_fitting.score_ranker(unknown))
    learned = np.mean(ranker_fitting.score_ranker(unknown, model.booster))

    assert fused < 0.55
    assert learned > 0.9
    assert {len(each) for each in gains.values()} == {60}
    assert np.mean(gains[model.trained_on["trees"]]) == max(np.mean(each) for each in gains.values()) > 0.3


def test_a_question_without_a_relevant_passage_in_its_pool_keeps_its_score():
    example = RankingExample("q", np.zeros((2, len(NAMES))), ["a", "b"], ["c"], {"c": 1})

    assert ranker_fitting.score_ranker([example]) == pytest.approx([0.5])  # third place: 1 / log2(4)
    assert ranker_fitting.usable_examples([example]) == []


def test_nothing_is_learned_from_a_handful_of_questions():
    with pytest.raises(ValueError, match="19 questions"):
        ranker_fitting.train_ranker(synthetic(19, seed=1))


# The command.


@pytest.fixture
def versions(tmp_path: Path) -> Path:
    """Notes in three editions with the same text; the latest is the relevant one, which no text says."""
    folder = tmp_path / "editions"
    (folder / "qrels").mkdir(parents=True)
    years = (2024, 2025, 2026)
    draw = np.random.default_rng(3)
    corpus, queries, qrels = [], [], {"dev": [], "test": []}
    for number, word in enumerate(WORDS):
        for year in years:
            id = f"{int(draw.integers(1_000_000)):06}-{word}"
            metadata = {"published": f"{year}-05-01"}
            corpus.append({"_id": id, "title": word, "text": f"The {word} handbook.", "metadata": metadata})
            if year == max(years):
                qrels["dev" if number % 2 else "test"].append(f"q-{word}\t{id}\t1\n")
        queries.append({"_id": f"q-{word}", "text": f"{word} handbook"})
    for name, lines in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for split, judged in qrels.items():
        (folder / "qrels" / f"{split}.tsv").write_text("".join(judged))
    return folder


def run(folder: Path, owner_url: str, *more: str) -> tuple[str, str]:
    settings = ["--set", f"DATABASE_URL={owner_url}", "--set", "INTENT=off"]
    done = CliRunner().invoke(app, ["tune", str(folder), *settings, *more], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.stdout, done.stderr


@pytest.mark.slow
def test_what_the_texts_do_not_say_is_learned_and_the_ranker_is_written(versions: Path, owner_url: str, tmp_path: Path):
    out = tmp_path / "own.json"

    stdout, stderr = run(versions, owner_url, "--json", "--out", str(out))

    found = json.loads(stdout)
    ranker = found["ltr"]
    assert found["tuned_on"] == {"from": "split dev", "questions": 22}
    assert found["verified_on"] == {"from": "split test", "questions": 23}
    assert ranker["helps"] is True
    assert min(ranker["difference"]["low"], ranker["pooled"]["low"]) > 0.05
    assert ranker["after"]["verified_on"] > 0.9 > ranker["before"]["verified_on"]
    assert "age_years" in list(ranker["importance"])[:3]
    assert found["settings"]["RERANKER"] == f"ltr:{out}"
    assert load_model(out).trained_on["questions"] == 22
    assert "training on 22 questions" in stderr


def test_what_is_not_shown_to_help_is_neither_recommended_nor_written(beir: Path, owner_url: str, tmp_path: Path):
    path = tmp_path / "tuned.toml"

    stdout, _ = run(beir, owner_url, "--set", f"HOME={tmp_path}", "--settings", str(path))

    assert path.read_text().endswith("# Nothing helped: the settings in force stay.\n")
    assert "no significant gain, left unchanged (+0.0000, 95 % interval +0.0000 to +0.0000" in stdout
    assert "not trained: 2 questions are usable for training; at least 20 are needed" in stdout
    assert "use: the current settings" in stdout
    assert "a random half of split test (2)" in stdout
    assert list(tmp_path.glob("*.json")) == []


def test_the_ranker_that_is_to_be_written_may_be_set_already(beir: Path, owner_url: str, tmp_path: Path):
    stdout, _ = run(beir, owner_url, "--set", f"HOME={tmp_path}", "--set", "RERANKER=ltr")
    assert "use: the current settings" in stdout


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Reports in Chinese, which the packaged embedder cannot tell apart, asked for by their words."""
    folder = tmp_path / "reports"
    (folder / "qrels").mkdir(parents=True)
    pairs = [(a, b) for a in "苹果 桥梁 医院 铁路 森林 银行".split() for b in "价格 历史 安全 设计 预算".split()]
    corpus = [{"_id": f"r{n}", "text": f"这份报告说明了{a}的{b}。"} for n, (a, b) in enumerate(pairs)]
    queries = [{"_id": f"q{n}", "text": f"{b}，{a}"} for n, (a, b) in enumerate(pairs)]
    for name, lines in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for split, chosen in (("dev", range(0, 30, 3)), ("test", range(1, 30, 3))):
        (folder / "qrels" / f"{split}.tsv").write_text("".join(f"q{n}\tr{n}\t1\n" for n in chosen))
    return folder


def test_a_weight_that_helps_is_recommended(reports: Path, owner_url: str, tmp_path: Path):
    home = ("--set", f"HOME={tmp_path}")

    path = tmp_path / "signalbox.toml"

    stdout, _ = run(reports, owner_url, *home, "--set", "LEXICAL_WEIGHT=0", "--json", "--settings", str(path))

    found = json.loads(stdout)
    fusion = found["fusion"]
    assert fusion["before"]["settings"] == {"fusion": "convex", "lexical_weight": 0.0, "depth": 100}
    assert (fusion["helps"], fusion["difference"]["low"] > 0) == (True, True)
    assert fusion["after"]["verified_on"] > fusion["before"]["verified_on"]
    assert found["settings"].keys() == {"FUSION", "LEXICAL_WEIGHT", "DEPTH"}
    loaded, lines = load_settings(folder=tmp_path), path.read_text().splitlines()
    assert (loaded.fusion, loaded.depth) == (found["settings"]["FUSION"], found["settings"]["DEPTH"])
    assert lines[1] == "# Learned on split dev (10 questions), proved on split test (10 questions)."
    assert lines[2].startswith(f"# fusion: nDCG@10 {fusion['before']['verified_on']:.4f} -> ")
    # 22 weights, rrf and weighted_sum at this depth, and the best at the two others.
    assert len(fusion["tried"]) == 26


def test_without_lightgbm_the_fusion_is_tuned_and_the_ranker_left_out(
    reports: Path, owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "lightgbm", None)

    stdout, stderr = run(reports, owner_url, "--set", f"HOME={tmp_path}", "--set", "LEXICAL_WEIGHT=0")

    missing = f"learning to rank needs the package lightgbm: {install_command('ltr')}"
    assert "fusion: it helps" in stdout
    assert f"ranker: not trained: {missing}" in stdout
    assert "LEXICAL_WEIGHT=" in stdout
    assert missing in stderr
    assert list(tmp_path.glob("*.json")) == []


def test_a_place_that_cannot_be_written_is_said_before_the_questions_are_asked(beir: Path, owner_url: str):
    with pytest.raises(BadRequest, match="cannot be written"):
        run(beir, owner_url, "--out", str(beir / "none" / "own.json"))
    with pytest.raises(BadRequest, match="the file exists; name another"):
        run(beir, owner_url, "--settings", str(beir / "corpus.jsonl"))
