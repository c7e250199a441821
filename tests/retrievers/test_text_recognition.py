"""Scans whose text a program recognises. The program is a stand-in: it is called and limited as the real one is."""

import os
import runpy
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from retrievers.core.errors import Unavailable
from retrievers.core.file_positions import FilePositions
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.readers import text_recognition
from retrievers.ingest.readers.file_input import TEXT_RECOGNITION, read_paths, read_upload

DATA: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("data_files.py")))
SCAN: bytes = DATA["pdf_pages"](DATA["PICTURE"], DATA["text_on_page"]("Typed."), DATA["PICTURE"])
ALL_SCANNED: bytes = DATA["pdf_pages"](DATA["PICTURE"], DATA["PICTURE"])


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Switches recognition on, with a program that does what the test says in Python."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setattr(TEXT_RECOGNITION, "languages", "eng+chi_sim")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    read_text = DATA["pdf_pages"](*(DATA["text_on_page"](text) for text in ("First.", "Typed.", "Third.")))
    (folder / "result.pdf").write_bytes(read_text)

    def act(code: str) -> Path:
        path = folder / "ocrmypdf"
        path.write_text(f"#!{sys.executable}\nimport os, shutil, sys, time, json\n{code}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return folder

    return act


def only(content: bytes) -> Document | RejectedItem:
    (item,) = read_upload("scan.pdf", content)
    return item


def test_the_text_of_scanned_pages_is_recognised_and_they_keep_their_numbers(program: Any):
    folder = program("")
    program(
        f"json.dump(sys.argv[1:], open({str(folder / 'called')!r}, 'w'))\n"
        f"shutil.copy({str(folder / 'result.pdf')!r}, sys.argv[-1])"
    )

    found = only(SCAN)

    assert isinstance(found, Document)
    assert found.text.split() == ["First.", "Typed.", "Third."]
    assert found.places is not None
    assert [number for _, number in found.places.marks] == [1, 2, 3]
    assert found.notes == ("the text of 2 scanned pages was recognised",)
    called = (folder / "called").read_text(encoding="utf-8")
    options = '"--skip-text", "--output-type", "pdf", "--jobs", "1", "--quiet", "-l", "eng+chi_sim"'
    assert called == f'[{options}, "scan.pdf", "text.pdf"]'


def test_other_files_are_read_as_without_it(program: Any, tmp_path: Path):
    program("sys.exit('not to be called')")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.pdf").write_bytes(DATA["pdf_pages"](DATA["text_on_page"]("Typed.")))
    (tmp_path / "docs" / "b.md").write_text("# B", encoding="utf-8")
    (tmp_path / "docs" / "c.txt").write_text("C", encoding="utf-8")
    (tmp_path / "docs" / "d.csv").write_text("text\none\ntwo\n", encoding="utf-8")

    items = list(read_paths([tmp_path / "docs"]))

    assert [one.text for one in items if isinstance(one, Document)] == ["Typed.", "# B", "C", "one", "two"]
    assert len(items) == 5


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("sys.exit('Error: not this one')", "Error: not this one"),
        ("sys.exit(6)", "ocrmypdf ended with exit code 6"),
        ("", "ocrmypdf left no PDF"),
        ("open('text.pdf', 'w').write('words')", None),
    ],
)
def test_a_program_that_fails_leaves_the_scan_refused_and_says_why(program: Any, code: str, reason: str | None):
    program(code)

    found = only(ALL_SCANNED)

    assert isinstance(found, RejectedItem)
    if reason is None:
        assert found.reason == "damaged, or not a .pdf file"
    else:
        assert found.reason == (f"a scan: 2 pages without text, pictures only; their text was not recognised: {reason}")


def test_pages_with_text_are_kept_where_those_without_cannot_be_recognised(program: Any):
    program("sys.exit(6)")

    found = only(SCAN)

    assert isinstance(found, Document)
    assert (found.text, found.places) == ("Typed.", FilePositions("page", ((0, 2),)))
    assert found.notes[1] == "their text was not recognised: ocrmypdf ended with exit code 6"


def test_a_program_that_goes_too_far_is_ended(program: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(text_recognition, "_LIMITS", replace(text_recognition._LIMITS, cpu_s=1, memory_bytes=500 << 20))
    program("while True: pass")
    busy = only(ALL_SCANNED)
    program("held = bytearray(600 << 20)")
    large = only(ALL_SCANNED)

    assert isinstance(busy, RejectedItem)
    assert busy.reason.endswith("more than 1 s of processor time; split it")
    assert isinstance(large, RejectedItem)
    assert large.reason.endswith("not recognised: MemoryError")


def test_a_program_is_ended_when_it_takes_too_long_or_nobody_waits(program: Any, monkeypatch: pytest.MonkeyPatch):
    program("time.sleep(600)")
    monkeypatch.setattr(text_recognition, "_LIMITS", replace(text_recognition._LIMITS, wait_s=1.0))
    late = only(ALL_SCANNED)
    assert isinstance(late, RejectedItem)
    assert late.reason.endswith("reading it takes longer than 1 s; split it")

    began = program("") / "began"
    program(f"open({str(began)!r}, 'w'); time.sleep(600)")
    monkeypatch.setattr(text_recognition, "_LIMITS", replace(text_recognition._LIMITS, wait_s=200.0))
    with pytest.raises(Unavailable, match="nobody waits"):
        list(read_upload("scan.pdf", ALL_SCANNED, is_cancelled=began.exists))


def test_where_the_program_is_missing_the_scan_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TEXT_RECOGNITION, "languages", "eng")
    monkeypatch.setattr(text_recognition, "PROGRAM", "no-such-program")

    found = only(ALL_SCANNED)

    assert isinstance(found, RejectedItem)
    assert found.reason.endswith("their text was not recognised: no-such-program is not installed")


def test_without_recognition_a_scan_is_refused_as_one():
    found = only(ALL_SCANNED)

    assert isinstance(found, RejectedItem)
    assert (found.reason, found.scanned) == (
        "a scan: 2 pages without text, pictures only; run text recognition (OCR) first",
        2,
    )
