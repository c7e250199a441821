import json
from pathlib import Path

import psycopg
import pytest

from agent import open_service
from agent.settings import Settings
from evals.bench import Times, bench, described
from evals.corpus import TENANT
from evals.datasets import load


async def test_every_figure_is_measured_and_nothing_is_left_behind(beir: Path, settings: Settings):
    found = await bench(load(beir), settings, lambda line: None, limit=4)
    json.dumps(found, allow_nan=False)

    ways = ["service", "raw_vector", "raw_vector_without_embedding", "raw_ts_rank_cd", "raw_bm25"]
    assert list(found["latency_ms"]) == ways
    assert all(set(figures) == {"p50", "p95", "p99", "mean"} for figures in found["latency_ms"].values())
    slower = ["slower_of_raw_vector_and_raw_ts_rank_cd", "slower_of_raw_vector_and_raw_bm25"]
    assert list(found["ratios_of_medians"]) == list(found["paired_ratios"]) == [*ways[1:], *slower]
    assert list(found["queries_per_s"]) == ["1", "4", "16"]
    assert all(value > 0 for value in found["queries_per_s"].values())
    assert (found["questions"], found["documents"], found["chunks"]) == (4, 6, 6)
    assert (found["ingestion"]["documents"], found["ingestion"]["chunks"]) == (6, 6)
    assert found["ingestion"]["ratio"] > 0
    assert len(described(found)) == 5 + 6 + 6 + 3 + 3
    async with open_service(settings) as service:
        assert [one.name for one in await service.collections(tenant=TENANT)] == ["tiny"]
    with psycopg.connect(str(settings.database_url)) as connection:
        assert connection.execute("SELECT to_regnamespace('signalbox_bench')").fetchone() == (None,)


def test_ratios_are_the_service_over_the_others_worked_out_by_hand():
    times = Times(
        [
            {"service": 6.0, "raw_vector": 3.0, "raw_ts_rank_cd": 12.0, "raw_bm25": 2.0},
            {"service": 8.0, "raw_vector": 4.0, "raw_ts_rank_cd": 1.0, "raw_bm25": 8.0},
            {"service": 9.0, "raw_vector": 2.0, "raw_ts_rank_cd": 3.0},
        ]
    )

    assert times.ratios_of_medians() == pytest.approx(
        {
            "raw_vector": 8 / 3,
            "raw_ts_rank_cd": 8 / 3,
            "raw_bm25": 8 / 5,
            "slower_of_raw_vector_and_raw_ts_rank_cd": 8 / 3,
            "slower_of_raw_vector_and_raw_bm25": 8 / 5,
        },
        abs=0.001,
    )
    assert times.paired_ratios() == pytest.approx(
        {
            "raw_vector": 2.0,
            "raw_ts_rank_cd": 3.0,
            "raw_bm25": 2.0,
            "slower_of_raw_vector_and_raw_ts_rank_cd": 2.0,
            "slower_of_raw_vector_and_raw_bm25": 1.5,
        },
        abs=0.001,
    )
