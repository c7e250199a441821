"""What the wheel holds, and that it works without a checkout."""

import ast
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's contents, as an installation has them."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def contents(*files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / ".ci" / "contents"), *map(str, files)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_wheel_holds_what_runs_and_nothing_else(wheel: Path):
    checked = contents(wheel)
    assert checked.returncode == 0, checked.stdout
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"agent", "retrievers", "prompts", "evals"}
    for needed in (
        "retrievers/embed/minilm/model.onnx",
        "retrievers/embed/minilm/tokenizer.json",
        "retrievers/embed/minilm/LICENSE",
        "retrievers/postgres/migrations/0001_base.sql",
        "retrievers/postgres/schema.sql",
        "prompts/answer/v1.md",
        "evals/data/sample/corpus.jsonl",
        "evals/data/sample/other-tenant.jsonl",
        "evals/data/sample/recording.jsonl",
        "evals/data/sample/schema.json",
        "agent/intent/date_weights.json",
        "agent/intent/number_weights.json",
        "agent/intent/words/thesaurus.txt",
        "agent/intent/weights.json",
        "agent/intent/words/zh.toml",
        "agent/retrieval/relevance.json",
        "agent/serve/console/index.html",
        "agent/serve/console/main.js",
        "agent/serve/console/style.css",
        "evals/report/style.css",
    ):
        assert needed in names
    data = {name for name in names if name.startswith("evals/data/")}
    assert {name for name in data if not name.startswith("evals/data/sample/")} == set()
    assert [name for name in names if Path(name).stem.startswith(("train", "test_", "conftest"))] == []


def test_a_wheel_with_a_file_too_few_or_too_many_is_refused(wheel: Path, tmp_path: Path):
    changed = tmp_path / "signalbox_retrieval-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(changed, "w") as other:
        for name in whole.namelist():
            if name != "prompts/answer/v1.md":
                other.writestr(name, b"")
        other.writestr("tests/conftest.py", b"")
        other.writestr("evals/train_turn.py", b"")
    checked = contents(changed)
    assert checked.returncode == 1
    assert checked.stdout.splitlines() == [
        "the wheel lacks prompts/answer/v1.md",
        "the wheel should not hold evals/train_turn.py",
        "the wheel should not hold tests/conftest.py",
    ]


def _imports(path: Path) -> Iterator[str]:
    """The modules of the four packages that a file imports by name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        yield from (name for name in names if name.split(".")[0] in ("agent", "retrievers", "prompts", "evals"))


def test_no_module_of_the_wheel_imports_one_that_it_lacks(installed: Path):
    imported = {(path, name) for path in installed.rglob("*.py") for name in _imports(path)}
    assert len(imported) > 1000
    lacking = [
        f"{path.relative_to(installed)} imports {name}"
        for path, name in imported
        if not (installed / name.replace(".", "/")).is_dir()
        and not (installed / f"{name.replace('.', '/')}.py").is_file()
    ]
    assert lacking == []


def test_every_command_that_a_package_adds_can_be_loaded(installed: Path):
    lines = next(installed.glob("*.dist-info")).joinpath("entry_points.txt").read_text(encoding="utf-8")
    added = lines.partition("[signalbox.commands]")[2].partition("[")[0].split("\n")
    commands = dict(line.split(" = ") for line in added if line)
    assert set(commands) == {"demo", "eval"}
    for name, value in commands.items():
        assert EntryPoint(name, value, "signalbox.commands").load()


@pytest.mark.slow
def test_the_demo_answers_from_the_wheel_in_an_empty_folder(installed: Path, owner_url: str, tmp_path: Path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
    # A busy machine is no failure.
    environment |= {
        "PYTHONPATH": str(installed), "SIGNALBOX_DATABASE_URL": owner_url, "SIGNALBOX_HOME": str(tmp_path / "home"),
        "SIGNALBOX_TIMEOUT_S": "60", "SIGNALBOX_SOURCE_TIMEOUT_S": "30",
    }  # fmt: skip
    folder = tmp_path / "empty"
    folder.mkdir()
    code = "import sys, evals.demo, agent.serve.cli as cli; print(evals.demo.__file__); sys.exit(cli.run(['demo']))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{installed}/evals/demo.py\n1. ")
    steps = [line[0] for line in done.stdout.splitlines() if line[:1].isdigit() and line[1:3] == ". "]
    assert steps[:6] == list("123456")
    assert "sample: 147 added, 0 updated, 0 unchanged, 0 failed" in done.stdout
    rules, _, model = done.stdout.partition("\n4. ")
    for reading, by in ((rules, "rules, confidence"), (model, "llm, confidence")):
        assert f"read by    {by}" in reading
        for condition in ("kind = proposal", "team = infrastructure", "published >= 2025-07-01"):
            assert f"[{condition}]" in reading
    hits, _, prompt = model.partition("\n6. ")
    # The two proposals of that team and quarter that are about the costs of Kubernetes.
    assert {"[sample/prop-0042#0]", "[sample/prop-0045#0]"} <= set(hits.split())
    assert "relevance 0." in hits
    assert "\n[1] " in prompt
    assert "signalbox serve" in prompt.partition("Next:")[2]
    assert list(folder.iterdir()) == []


def release_steps() -> list[dict[str, str]]:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_the_release_workflow_runs_what_the_checkout_has():
    commands = [line.split() for step in release_steps() for line in step.get("run", "").splitlines()]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {word for words in commands if words[0] == "make" for word in words[1:]}
    assert targets == {"dist"}
    assert "\ndist: " in makefile
    assert [
        words[0] for words in commands if words[0].startswith(".ci/") and not os.access(ROOT / words[0], os.X_OK)
    ] == []
    assert [".ci/run"] in commands
    # The wheel's own environment, in which the workflow runs the demo.
    assert "$(create_bare) build/user" in makefile
    assert any("/build/user/bin/signalbox" in word for words in commands for word in words)


@pytest.mark.parametrize(
    ("tag", "heading", "passes"),
    [
        ("v0.2.0", "## 0.2.0, 2027-01-31", True),
        ("v0.2.0", "## 0.2.0, not released yet", False),
        ("v0.2.1", "## 0.2.1, 2027-01-31", False),
    ],
)
def test_a_release_needs_the_version_of_its_tag_and_a_dated_changelog(
    tag: str, heading: str, passes: bool, tmp_path: Path
):
    [script] = [step["run"] for step in release_steps() if step.get("name", "").startswith("Compare the tag")]
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n\n- New.\n\n## 0.1.0, 2026-12-01\n\n- Old.\n")
    environment = {**os.environ, "GITHUB_REF_NAME": tag}
    done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert (done.returncode == 0) is passes
    if passes:
        assert (tmp_path / "build" / "notes.md").read_text() == "\n- New.\n\n"
