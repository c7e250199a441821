"""The settings file that `signalbox init` writes, and empty values."""

import os
import re
from pathlib import Path

import pytest

from agent.serve.cli import run
from agent.settings import SETTINGS_FILE, Settings, load_settings, settings_template
from agent.settings.template import SETTING_GROUPS

KEY = re.compile(r"^#(?=[A-Z\[a-z])", re.MULTILINE)
TABLES = ("sources", "sync")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SIGNALBOX_")]:
        monkeypatch.delenv(name)


def lines_of_keys() -> dict[str, str]:
    """The line of each setting, uncommented."""
    keys = settings_template().partition("# --- Tables ---")[0]
    lines = [line.removeprefix("#") for line in keys.splitlines() if KEY.match(line)]
    return {line.partition(" = ")[0].lower(): line for line in lines}


def test_every_setting_is_in_one_group_and_in_the_file():
    grouped = [name for names in SETTING_GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(Settings.model_fields)
    assert list(lines_of_keys()) == [name for name in grouped if name not in TABLES]


def test_the_file_as_written_sets_nothing(tmp_path: Path):
    (tmp_path / SETTINGS_FILE).write_text(settings_template(), encoding="utf-8")
    assert load_settings(folder=tmp_path) == Settings()
    assert [line for line in settings_template().splitlines() if line and not line.startswith("#")] == []


@pytest.mark.parametrize("name", [name for name in Settings.model_fields if name not in TABLES])
def test_each_key_without_its_comment_is_the_default(name: str, tmp_path: Path):
    (tmp_path / SETTINGS_FILE).write_text(lines_of_keys()[name] + "\n", encoding="utf-8")
    assert load_settings(folder=tmp_path) == Settings()


def test_without_any_comment_sign_only_the_example_tables_are_set(tmp_path: Path):
    (tmp_path / SETTINGS_FILE).write_text(KEY.sub("", settings_template()), encoding="utf-8")
    loaded = load_settings(folder=tmp_path)
    assert loaded.model_copy(update={"sources": {}, "sync": {}}) == Settings()
    assert (loaded.sources["handbook"].kind, loaded.sources["handbook"].path) == ("local", Path("handbook"))
    assert (loaded.sync["handbook"].collection, loaded.sync["handbook"].every_s) == ("handbook", 900.0)


@pytest.mark.parametrize(
    ("line", "above"),
    [
        ("MAX_LAG_S = 5.0", "# maximum lag of a standby that is read behind the primary, in seconds (0.5 to 600)"),
        ('FUSION = "convex"', "# method that merges the rankings; one of: convex, rrf, weighted_sum"),
        ("SOURCE_TIMEOUT_S = ", "# time limit of one source, in seconds (at most 120)"),
        ("LOOP_TOKENS = 12000", "# maximum tokens of these calls, in total (0 to 1,000,000)"),
        ('LOG_FORMAT = "text"', "# log lines of `signalbox serve`: text or json"),
        ('LLM_API_KEY = ""', "# key of the model"),
        ("GUARD = []", "# words and phrases that a question must not contain, and patterns as re:PATTERN"),
    ],
)
def test_a_comment_says_what_a_key_means_with_its_range_or_choices(line: str, above: str):
    lines = settings_template().splitlines()
    [number] = [number for number, one in enumerate(lines) if one.startswith(f"#{line}")]
    assert lines[number - 1] == above


def test_an_empty_variable_unsets_what_the_file_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / SETTINGS_FILE).write_text(
        'LLM = "openai/any"\nPROCESSES = 2\nAUTH = "keys"\nDEPTH = 50\n', encoding="utf-8"
    )
    for name in ("LLM", "PROCESSES", "AUTH"):
        monkeypatch.setenv(f"SIGNALBOX_{name}", "")
    loaded = load_settings(folder=tmp_path)
    assert (loaded.llm, loaded.processes, loaded.auth, loaded.depth) == (None, None, None, 50)


def test_the_mark_that_notepad_writes_at_the_begin_of_a_file_is_no_part_of_it(tmp_path: Path):
    (tmp_path / SETTINGS_FILE).write_text("DEPTH = 50\n", encoding="utf-8-sig")
    assert load_settings(folder=tmp_path).depth == 50


def test_init_writes_the_file_once_and_again_only_if_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / SETTINGS_FILE
    assert run(["init"]) == 0
    assert path.read_text(encoding="utf-8") == settings_template()
    assert capsys.readouterr() == (f"{SETTINGS_FILE} written; remove the # in front of a key to set it\n", "")

    path.write_text("DEPTH = 50\n", encoding="utf-8")
    assert run(["init"]) == 2
    assert capsys.readouterr() == ("", f"signalbox: {SETTINGS_FILE} exists; --force replaces it\n")
    assert path.read_text(encoding="utf-8") == "DEPTH = 50\n"

    assert run(["init", "--force"]) == 0
    assert path.read_text(encoding="utf-8") == settings_template()


def test_init_takes_a_folder_or_a_file_and_names_what_it_cannot_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(["init", str(tmp_path)]) == 0
    assert run(["init", str(tmp_path / "other.toml")]) == 0
    assert (tmp_path / SETTINGS_FILE).read_text(encoding="utf-8") == (tmp_path / "other.toml").read_text(
        encoding="utf-8"
    )
    capsys.readouterr()
    missing = tmp_path / "missing" / "signalbox.toml"
    assert run(["init", str(missing)]) == 2
    assert capsys.readouterr().err == f"signalbox: {missing} cannot be written: No such file or directory\n"
