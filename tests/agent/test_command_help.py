"""The help of the program, commands that packages add, and shell completion."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agent.serve.cli import program, run
from agent.serve.cli.task_help import TASKS

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {
    "bash": "complete -o default -F _signalbox_completion signalbox",
    "zsh": "compdef _signalbox_completion signalbox",
    "fish": "complete --command signalbox --no-files",
}


def test_every_command_has_a_task_and_every_task_its_commands(capsys: pytest.CaptureFixture[str]):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    added = set(project["entry-points"]["signalbox.commands"])
    own = {one.name or one.callback.__name__ for one in program.app.registered_commands if one.callback}
    groups = {one.name for one in program.app.registered_groups}
    listed = [name for names in TASKS.values() for name in names]
    assert sorted(listed) == sorted(own | groups | added)

    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    heads = re.findall(r"^([A-Z]\w+(?: \w+)*):$", shown, re.MULTILINE)
    assert heads == ["Options", "Getting started", "Documents", "Asking", "Operating", "Evaluating"]
    documents = shown.partition("\nDocuments:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in documents.splitlines()][:3] == ["ingest", "sync", "collections"]


def test_a_function_that_a_package_adds_is_a_command_and_one_without_a_task_comes_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def greet(name: str) -> int:
        """Greet somebody."""
        print(f"hello {name}")
        return 3

    class AddedCommand:
        name = "greet"

        def load(self) -> object:
            return greet

    monkeypatch.setattr(program, "entry_points", lambda group: [AddedCommand()])
    monkeypatch.setattr(program.app, "registered_commands", [*program.app.registered_commands])
    assert run(["greet", "Ana"]) == 3
    assert capsys.readouterr().out == "hello Ana\n"
    assert run(["--help"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("Other commands:\n  greet        Greet somebody.")


def ask_for(instruction: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What the program answers a shell."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
    # A variable that is no setting must not disturb the line being typed.
    environment |= {"_SIGNALBOX_COMPLETE": instruction, "SIGNALBOX_NO_SETTING": "1", **variables}
    command = [sys.executable, "-m", "agent.serve.cli"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_completion_script_of_a_shell_comes_out(shell: str):
    answer = ask_for(f"source_{shell}")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert SCRIPTS[shell] in answer.stdout
    assert "_SIGNALBOX_COMPLETE=complete_" in answer.stdout
    if shutil.which(shell):
        parsed = subprocess.run([shell, "-n"], input=answer.stdout, capture_output=True, text=True, check=False)
        assert (parsed.returncode, parsed.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("signalbox re", ["retrieve", "replay", "records", "reembed", "rebuild"]),
        ("signalbox retrieve --fil", ["--filter"]),
        ("signalbox keys c", ["create"]),
    ],
)
def test_commands_and_options_are_completed(words: str, completed: list[str]):
    answer = ask_for("complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
    assert answer.stderr == ""
    assert sorted(answer.stdout.split()) == sorted(completed)
