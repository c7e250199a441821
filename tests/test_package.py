"""What the wheel holds, and what importing costs."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_wheel_holds_the_four_packages_with_model_statements_and_templates(tmp_path: Path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"agent", "retrievers", "prompts", "evals"}
    for needed in (
        "retrievers/embed/minilm/model.onnx",
        "retrievers/embed/minilm/tokenizer.json",
        "retrievers/embed/minilm/LICENSE",
        "retrievers/postgres/migrations/0001_base.sql",
        "prompts/answer/v1.md",
        "evals/data/sample/corpus.jsonl",
        "agent/retrieval/relevance.json",
        "evals/report/style.css",
    ):
        assert needed in names
    assert not [name for name in names if name.startswith(("evals/data/reading", "evals/data/held-out"))]
