from pathlib import Path

from agent import open_service
from agent.settings import Settings
from evals.corpus import store_corpus
from evals.datasets import load
from evals.rawsql import prepared_bm25, raw_searches


async def test_each_plain_search_finds_the_passage_that_the_question_quotes(beir: Path, settings: Settings):
    async with open_service(settings) as service:
        collection = await store_corpus(service, load(beir), lambda line: None)
        async with raw_searches(service, collection, "en") as raw:
            text = "the night train's track repairs"
            bound = await prepared_bm25(service, collection, text, "en")
            assert bound is not None
            by_vector = await raw.vector(await service.embedder.embed_query(text))
            by_ts_rank_cd, by_bm25 = await raw.ts_rank_cd(text), await raw.bm25(bound)
            nothing = await prepared_bm25(service, collection, "zebra", "en")

    # Passages are numbered in the order of their document ids: d-railway is the last but one.
    assert len(by_vector) == 6
    assert by_vector[0][0] == by_ts_rank_cd[0][0] == by_bm25[0][0] == 5
    assert nothing is None
