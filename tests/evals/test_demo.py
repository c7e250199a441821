"""What the demo tells people to type next; its answer is tested from the wheel, in tests/test_package.py."""

import sys
from pathlib import Path

import pytest

from evals.demo import _program


@pytest.mark.parametrize(("on_path", "called"), [(True, "signalbox"), (False, ".venv/bin/signalbox")])
def test_the_next_commands_begin_with_what_the_shell_can_find(
    on_path: bool, called: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = tmp_path / ".venv" / "bin" / "signalbox"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(program.parent if on_path else tmp_path))
    monkeypatch.setattr(sys, "argv", [".venv/bin/signalbox", "demo"])
    assert _program() == called


def test_a_program_that_another_one_of_the_path_hides_is_called_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "signalbox").write_text("#!/bin/sh\n")
        (tmp_path / folder / "signalbox").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'first'}:{tmp_path / 'second'}")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "second" / "signalbox"), "demo"])
    assert _program() == str(tmp_path / "second" / "signalbox")
