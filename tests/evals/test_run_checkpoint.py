import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evals.cli import app
from evals.datasets import Dataset, LabelledQuestion
from evals.run_checkpoint import (
    check_no_checkpoint,
    checkpoint_path,
    comparable_settings,
    dataset_digest,
    open_checkpoint,
)
from retrievers.core.errors import BadRequest

HEAD: dict[str, Any] = {"at_once": 1, "settings": {"fusion": "convex"}, "digest": "abc"}


def test_rows_are_kept_and_a_line_that_was_cut_is_dropped(tmp_path: Path):
    out = tmp_path / "run.json"
    with open_checkpoint(out, HEAD, resume=False) as kept:
        kept.add({"id": "q1", "text": "half a pair: \ud800"})
        kept.add({"id": "q2"})
    with checkpoint_path(out).open("ab") as file:
        file.write(b'{"id": "q3", "te')

    with open_checkpoint(out, HEAD, resume=True) as kept:
        assert kept.rows == {"q1": {"id": "q1", "text": "half a pair: \ud800"}, "q2": {"id": "q2"}}
        kept.add({"id": "q4"})

    lines = [json.loads(line) for line in checkpoint_path(out).read_text().splitlines()]
    assert [line.get("id") for line in lines] == [None, "q1", "q2", "q4"]
    assert lines[0] == HEAD


def test_a_new_run_overwrites_no_rows_and_a_resumed_one_begins_where_nothing_is_kept(tmp_path: Path):
    out = tmp_path / "run.json"
    check_no_checkpoint(out, resume=False)
    with open_checkpoint(out, HEAD, resume=True) as kept:
        assert kept.rows == {}
        check_no_checkpoint(out, resume=False)
        kept.add({"id": "q1"})

    check_no_checkpoint(out, resume=True)
    with pytest.raises(BadRequest, match=r"run\.json\.partial holds the answers of a run that was stopped: go on with"):
        check_no_checkpoint(out, resume=False)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ({**HEAD, "at_once": 4}, r"at_once: 1 then, 4 now"),
        ({**HEAD, "settings": {"fusion": "rrf"}}, r'settings fusion: "convex" then, "rrf" now'),
        ({**HEAD, "digest": "def"}, r"the dataset has changed"),
    ],
)
def test_the_rows_of_another_run_are_refused_and_kept(tmp_path: Path, head: dict[str, Any], message: str):
    out = tmp_path / "run.json"
    with open_checkpoint(out, HEAD, resume=False) as kept:
        kept.add({"id": "q1"})
    before = checkpoint_path(out).read_bytes()

    with pytest.raises(BadRequest, match=message), open_checkpoint(out, head, resume=True):
        pass

    assert checkpoint_path(out).read_bytes() == before


@pytest.mark.parametrize("text", ["no json\n", '["list"]\n', '{"head": 1}\n{"text": "no id"}\n'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str):
    checkpoint_path(tmp_path / "run.json").write_text(text)

    with pytest.raises(BadRequest, match=r"run\.json\.partial: the file is damaged: delete it"):
        check_no_checkpoint(tmp_path / "run.json", resume=False)


def test_the_digest_is_that_of_labels_and_corpus_and_a_recording_is_known_by_its_content(tmp_path: Path):
    corpus, moved = tmp_path / "corpus.jsonl", tmp_path / "moved.jsonl"
    for file in (corpus, moved):
        file.write_text('{"id": "a", "text": "One."}\n')
    question = LabelledQuestion("q", "Who?", "en", relevant={"a": 1}, where="line 1")

    def digest(answer: str | None = None, where: str = "line 1") -> str:
        asked = LabelledQuestion("q", "Who?", "en", relevant=question.relevant, answer=answer, where=where)
        return dataset_digest(Dataset("d", tmp_path, "routed", "test", (corpus,), (asked,)))

    first = digest()
    assert digest(where="line 2") == first
    assert digest(answer="x") != first
    one, two = (comparable_settings({"llm": f"replay:{file}"}) for file in (corpus, moved))
    assert one == two != {"llm": f"replay:{corpus}"}
    corpus.write_text('{"id": "a", "text": "Two."}\n')
    assert digest() != first
    assert comparable_settings({"llm": f"replay:{corpus}"}) != one
    assert comparable_settings({"llm": "openai/x"}) == {"llm": "openai/x"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--resume"], "--resume needs --out"),
        (["--judge"], "--judge judges answers: give --answers, too"),
        (["--answers", "--judge", "--set", "llm="], "--judge needs a model: set LLM"),
    ],
)
def test_options_that_need_another_say_so(beir: Path, options: list[str], message: str):
    done = CliRunner().invoke(app, ["run", str(beir), *options], standalone_mode=False)

    assert isinstance(done.exception, BadRequest)
    assert message in str(done.exception)
