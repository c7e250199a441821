import json
import subprocess
import sys
from pathlib import Path

from agent import open_service
from agent.settings import Settings
from evals.corpus import TENANT, store_corpus
from evals.datasets import load
from retrievers.core.collection_schema import read_schema
from retrievers.ingest.readers.file_input import read_paths

SAMPLE = Path(__file__).parents[2] / "evals" / "data" / "sample"


def test_the_sample_passes_its_own_validation():
    done = subprocess.run([sys.executable, str(SAMPLE / "validate_queries.py")], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout
    assert "OK (0 errors)" in done.stdout


def test_the_sample_s_schema_names_every_field_and_only_values_that_occur():
    schema = read_schema(json.loads((SAMPLE / "schema.json").read_text(encoding="utf-8")))
    documents = [json.loads(line) for line in (SAMPLE / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]

    keys = {key for document in documents for key in document}
    assert set(schema) == keys - {"id", "title", "text", "url", "important", "questions"}
    for name in ("team", "kind", "status", "region", "severity"):
        values = {document[name] for document in documents} - {None}
        assert set(schema[name].aliases) == values


async def test_a_dataset_s_schema_is_used_and_is_no_document(tmp_path: Path, settings: Settings):
    (tmp_path / "tiny").mkdir()
    for name in ("corpus.jsonl", "queries.jsonl", "schema.json"):
        lines = (SAMPLE / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / "tiny" / name).write_text("".join(lines if name == "schema.json" else lines[:40]), encoding="utf-8")
    async with open_service(settings) as service:
        await store_corpus(service, load(tmp_path / "tiny", "all"), lambda line: None)
        scope = await service.catalogue.scope(TENANT, "tiny")
        team = (await service.catalogue.fields(scope)).fields["team"]

    assert team.aliases["基础设施"] == "infrastructure"
    assert team.field.description
    ids = {item.where for item in read_paths([tmp_path / "tiny"])}
    assert not any("schema.json" in where for where in ids)
