"""What the texts and the messages tell people to install."""

import re
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from retrievers.core.optional_dependencies import install_command

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HINTS = re.compile(
    r"(?:pip install|uv add|pipx install|uvx|poetry add)\s+(?P<options>(?:-\S+\s+)*)(?P<what>['\"]?[^\s`]+)"
)
# The name on the registry is another project's.
FOREIGN = re.compile(r"""(?<![\w/.-])signalbox\[|["']signalbox\s*[=<>~!]=|^\s*signalbox\s*[=<>~!]=""", re.MULTILINE)
WRITTEN = {".py", ".md", ".toml", ".txt", ".html", ".js", ".json", ".yml", ".yaml", ".cfg", ""}


def texts() -> list[tuple[str, str]]:
    """The committed texts by their paths; documents that are only data are not ours."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [Path(name) for name in listed.split("\0") if name]
    ours = [path for path in paths if path.suffix in WRITTEN and path.parts[0] != "tests" and "data" not in path.parts]
    return [(str(path), (ROOT / path).read_text(encoding="utf-8", errors="replace")) for path in ours]


def test_no_text_names_the_package_of_somebody_else_for_installation():
    wrong = []
    for path, text in texts():
        wrong += [f"{path}: {found[0]}" for found in FOREIGN.finditer(text)]
        wrong += [
            f"{path}: {found[0]}"
            for found in HINTS.finditer(text)
            if re.match(r"['\"]?signalbox(?!-retrieval)", found["what"])
        ]
    assert wrong == []
    assert any("pip install '.[adapters]'" in text for path, text in texts() if path == "README.md")


@pytest.mark.parametrize(
    "hint",
    ["pip install signalbox", "pip install 'signalbox[web]'", "uv pip install -q signalbox", "`signalbox[docs]`",
     'dependencies = ["signalbox>=0.1"]', "pipx install signalbox", "uv add signalbox"],
)  # fmt: skip
def test_the_check_knows_a_hint_when_it_sees_one(hint: str):
    installed = [found["what"] for found in HINTS.finditer(hint)]
    assert FOREIGN.search(hint) or any(re.match(r"['\"]?signalbox(?!-retrieval)", what) for what in installed)


def test_the_distribution_has_a_name_of_its_own_and_the_command_its_old_one():
    assert PROJECT["name"] == "signalbox-retrieval"
    assert version("signalbox-retrieval") == PROJECT["version"]
    assert PROJECT["scripts"] == {"signalbox": "agent.serve.cli:main"}


def test_every_extra_that_a_text_names_exists():
    named = {extra for _, text in texts() for found in re.findall(r"pip install '\.\[([^\]{}]+)\]'", text)
             for extra in found.split(",")}  # fmt: skip
    named |= {extra for _, text in texts() for extra in re.findall(r"install_command\(['\"](\w+)['\"]\)", text)}
    assert named <= set(PROJECT["optional-dependencies"])
    assert {"adapters", "docs", "ltr"} <= named


@pytest.mark.parametrize(("pip", "command"), [(object(), "pip install '.[ltr]'"), (None, "uv pip install '.[ltr]'")])
def test_an_environment_without_pip_is_told_of_uv(pip: object, command: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("retrievers.core.optional_dependencies.find_spec", lambda name: pip)
    assert install_command("ltr") == command


def test_without_a_checkout_the_packages_of_the_extra_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("retrievers.core.optional_dependencies._PROJECT_FILE", tmp_path / "pyproject.toml")
    monkeypatch.setattr("retrievers.core.optional_dependencies.find_spec", lambda name: object())
    assert install_command("otel") == (
        "pip install 'opentelemetry-exporter-otlp-proto-http>=1.30' 'opentelemetry-sdk>=1.30'"
    )
    assert install_command("docs") == (
        "pip install 'markitdown[docx,pdf]<0.2,>=0.1.8' 'openpyxl<4,>=3.1' 'python-pptx<2,>=1'"
    )
