import asyncio
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest

from agent.errors import BadSetting
from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank.ltr import FILE, LtrModel, load_model, open_ltr_reranker, save_model
from agent.retrieval.rerank.ltr_features import NAMES, compute_ltr_features
from retrievers.core.errors import Unavailable
from retrievers.core.types import Chunk, ChunkId


def hit(
    name: str, text: str, *, ordinal: int = 0, title: str = "", fused: float = 0.0, day: str = "", **scores: float
) -> FusedHit:
    """A fused hit; each source's rank is given as `SOURCE_rank`."""
    id = ChunkId("t", "c", name, ordinal)
    ranks = {key.removesuffix("_rank"): int(value) for key, value in scores.items() if key.endswith("_rank")}
    own = {key: value for key, value in scores.items() if not key.endswith("_rank")}
    return FusedHit(id, fused, fused, own, ranks, Chunk(id, title, text, metadata={"day": day} if day else {}))


THREE = (
    hit("a", "A red apple.", title="Fruit", fused=0.9, day="2026-01-01",
        fulltext=4.0, fulltext_rank=1, vector=0.6, vector_rank=1),
    hit("b", "Apple, red", title="Red apple", fused=0.4, day="2025-01-01", fulltext=2.0, fulltext_rank=2),
    hit("a", "green pear", ordinal=1, title="Fruit", fused=0.2, vector=0.2, vector_rank=2),
)  # fmt: skip


def column(name: str, question: str, pool: Sequence[FusedHit], language: str = "en") -> list[float]:
    return [float(value) for value in compute_ltr_features(question, language, pool)[:, NAMES.index(name)]]


NAN = math.nan


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fused", [0.9, 0.4, 0.2]),
        ("fused_share", [1, 0.2 / 0.7, 0]),
        ("fused_place", [1, 1 / 2, 1 / 3]),
        ("bm25", [4, 2, NAN]),
        ("bm25_share", [1, 0, NAN]),
        ("bm25_place", [1, 1 / 2, 0]),
        ("cosine", [0.6, NAN, 0.2]),
        ("cosine_share", [1, NAN, 0]),
        ("cosine_place", [1, 0, 1 / 2]),
        ("covered", [1, 1, 0]),
        ("covered_title", [0, 1, 0]),
        ("covered_heading", [0, 0, 0]),
        ("covered_window", [1, 1, 0]),
        ("pairs", [1, 0, 0]),
        ("phrase", [1, 1 / 2, 0]),
        ("identifiers", [NAN, NAN, NAN]),
        ("title_asked", [0, 1, 0]),
        ("question_words", [2, 2, 2]),
        ("passage_words", [math.log(3)] * 3),
        ("ordinal", [0, 0, math.log(2)]),
        ("siblings", [2, 1, 2]),
        ("sibling_place", [1, 1, 1 / 2]),
        ("sibling_sum", [1, 0.2 / 0.7, 1]),
        ("age_years", [0, 365 / 365.25, NAN]),
    ],
)
def test_features_of_three_hits_are_as_worked_out_by_hand(name: str, expected: list[float]):
    assert column(name, "red apple", THREE) == pytest.approx(expected, nan_ok=True)


def test_every_feature_is_worked_out_above():
    marks = test_features_of_three_hits_are_as_worked_out_by_hand.pytestmark
    assert [name for name, _ in marks[0].args[1]] == list(NAMES)


def test_a_word_that_few_of_the_pool_hold_covers_more():
    pool = [hit("a", "lava"), hit("b", "rock"), hit("c", "rock")]
    rare, common = math.log(1 + 2.5 / 1.5), math.log(1 + 1.5 / 2.5)

    assert column("covered", "lava rock", pool) == pytest.approx(
        [rare / (rare + common)] + [common / (rare + common)] * 2
    )


def test_words_far_apart_cover_the_question_but_no_stretch_of_the_passage_does():
    pool = [hit("near", "apple" + " word" * 38 + " pear"), hit("far", "apple" + " word" * 39 + " pear")]

    assert column("covered", "apple pear", pool) == [1, 1]
    assert column("covered_window", "apple pear", pool) == [1, 0.5]


def test_an_identifier_is_found_however_it_was_typed():
    pool = [hit("a", "It was decided in PEP-703."), hit("b", "There are 703 peps.")]

    assert column("identifiers", "what does pep 703 say", pool) == [1, 0]


def test_chinese_questions_have_words_and_neighbours_too():
    pool = [hit("a", "成本优化方案"), hit("b", "方案")]

    assert column("phrase", "成本优化", pool, "zh") == [1, 0]


def test_a_question_without_words_and_an_empty_pool_have_features():
    assert compute_ltr_features("the", "en", []).shape == (0, len(NAMES))
    assert math.isnan(column("covered", "the", [hit("a", "word")])[0])
    assert math.isnan(column("phrase", "the", [hit("a", "word")])[0])


def test_of_a_very_long_question_the_first_words_count():
    pool = [hit("a", "apple"), hit("b", "pear")]

    assert column("covered", "apple " + "word " * 1000 + "pear", pool)[1] == 0
    assert column("question_words", "word " * 1000, pool) == [64, 64]


def test_a_hit_without_its_text_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="has no chunk"):
        compute_ltr_features("red", "en", [THREE[0]._replace(chunk=None)])


@pytest.fixture(scope="module")
def model() -> LtrModel:
    """Ranks by how much of the question the title covers, and by nothing else."""
    rows = np.random.default_rng(1).uniform(0.01, 0.99, (2000, len(NAMES)))
    grades = (rows[:, NAMES.index("covered_title")] > 0.5).astype(int)
    data = lightgbm.Dataset(rows, label=grades, group=[20] * 100, feature_name=list(NAMES))
    settings = {"objective": "lambdarank", "verbosity": -1, "num_threads": 1, "force_row_wise": True, "num_leaves": 2}
    return LtrModel(lightgbm.train(settings, data, 10), {"questions": 100})


def rerank(name: str, home: Path, pool: Sequence[FusedHit], seconds: float = 10.0) -> list[float]:
    ranker = open_ltr_reranker(name, home)
    assert ranker.name == name
    return asyncio.run(ranker.rerank("red apple", "en", pool, deadline=time.monotonic() + seconds))


@pytest.mark.parametrize("at", ["home", "file"])
def test_a_model_that_was_written_is_read_and_ranks_as_before(model: LtrModel, tmp_path: Path, at: str):
    path = tmp_path / (FILE if at == "home" else "own.json")
    save_model(model, path)

    scores = rerank("ltr" if at == "home" else f"ltr:{path}", tmp_path, THREE)

    assert scores == model.scores(compute_ltr_features("red apple", "en", THREE))
    assert scores[1] > max(scores[0], scores[2])  # only the second's title covers the question
    assert load_model(path).trained_on == {"questions": 100}


def test_hits_that_are_not_judged_in_time_are_left_to_the_fused_order(model: LtrModel, tmp_path: Path):
    save_model(model, tmp_path / FILE)

    with pytest.raises(Unavailable, match="not scored in time"):
        rerank("ltr", tmp_path, THREE, seconds=-1.0)


def test_no_model_yet_says_how_to_train_one(tmp_path: Path):
    with pytest.raises(BadSetting, match=r"ltr\.json cannot be read \(No such file.*signalbox eval tune") as caught:
        open_ltr_reranker("ltr", tmp_path)

    assert caught.value.where == "reranker"


def changed(**values: Any) -> Any:
    return lambda record: json.dumps({**record, **values})


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda _: "tree\nversion=v4\n", "it is not a model file"),
        (lambda _: "[" * 100_000, "it is not a model file"),
        (lambda _: "[]", "it is not a model file"),
        (changed(format="other"), "it is not a model file"),
        (changed(version=0), "trained on features other than those"),
        (changed(features=["fused"]), "trained on features other than those"),
        (lambda record: json.dumps({**record, "model": record["model"][:-500]}), "it is damaged"),
        (changed(model=None), "it is damaged"),
        (changed(trained_on=[]), "it is damaged"),
    ],
)
def test_a_file_that_is_no_model_of_this_version_is_refused(model: LtrModel, tmp_path: Path, write: Any, reason: str):
    path = tmp_path / FILE
    save_model(model, path)
    path.write_text(write(json.loads(path.read_text())))

    with pytest.raises(BadSetting, match=f"{reason}.*signalbox eval tune"):
        open_ltr_reranker("ltr", tmp_path)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path):
    (tmp_path / FILE).write_bytes(b"\xff\xfe\x00model")

    with pytest.raises(BadSetting, match="it is not a model file"):
        open_ltr_reranker("ltr", tmp_path)


def test_without_lightgbm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "lightgbm", None)

    with pytest.raises(BadSetting, match=r"pip install '\.\[ltr\]'"):
        open_ltr_reranker("ltr", tmp_path)
