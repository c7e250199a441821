import json
from collections.abc import Callable
from pathlib import Path

import pytest

from evals.datasets import load
from retrievers.core.errors import BadRequest

Write = Callable[..., Path]


def test_beir_form_keeps_the_judged_questions_and_their_positive_grades(beir: Path):
    with (beir / "qrels" / "test.tsv").open("a") as file:
        file.write("q-volcano\td-bakery\t0\nq-volcano\td-glacier\t2\n")

    dataset = load(beir)

    assert (dataset.name, dataset.form, dataset.split) == ("tiny", "beir", "test")
    assert dataset.corpus == (beir / "corpus.jsonl",)
    assert [question.id for question in dataset.questions] == [
        "q-volcano", "q-glacier", "q-bakery", "q-railway", "q-orchard",
    ]  # fmt: skip
    assert dataset.questions[0].relevant == {"d-volcano": 1, "d-glacier": 2}
    assert (dataset.questions[0].language, dataset.questions[0].klass, dataset.questions[0].sources) == ("en", None, ())


def test_beir_form_reads_another_split_and_a_file_without_a_header(beir: Path):
    (beir / "qrels" / "dev.tsv").write_text("q-unjudged\td-orchard\t1\n")

    dataset = load(beir, "dev")

    assert [(question.id, question.split) for question in dataset.questions] == [("q-unjudged", "dev")]


def test_routed_form_reads_every_label(routed: Write):
    line = {
        "id": "q1", "text": "and last year?", "lang": "en", "now": "2026-11-20", "class": "follow-up", "split": "dev",
        "history": [{"role": "user", "content": "lamps"}, {"role": "assistant", "content": "yes"}],
        "filter": {"type": "eq", "key": "team", "value": "keepers"}, "sources": ["vector", "fulltext"],
        "relevant": {"b": 2, "c": 0}, "answer": 3, "notes": "ignored",
    }  # fmt: skip

    (question,) = load(routed(line), "dev").questions

    assert question.history == ({"role": "user", "content": "lamps"}, {"role": "assistant", "content": "yes"})
    assert question.filter == {"type": "eq", "key": "team", "value": "keepers"}
    assert (question.sources, question.relevant, question.answer) == (("vector", "fulltext"), {"b": 2}, 3)
    assert (question.language, question.klass, question.split, question.now) == ("en", "follow-up", "dev", "2026-11-20")


def test_a_question_without_an_answer_in_the_documents_needs_no_right_documents(routed: Write):
    line = {"id": "q", "text": "What does a zebra cost?", "answerable": False}

    (question,) = load(routed(line)).questions

    assert (question.answerable, question.relevant, question.judges_filter) == (False, {}, True)
    for labels in ({"relevant": {"a": 1}}, {"answer": 5}):
        with pytest.raises(BadRequest, match=r'queries.jsonl:1: "answerable" is false, but there is a right document'):
            load(routed({**line, **labels}))


def test_routed_form_chooses_a_split_or_all_and_guesses_what_is_not_said(routed: Write):
    folder = routed(
        {"id": "q1", "text": "Where is the reef?", "relevant": {}, "split": "dev"},
        {"id": "q2", "text": "灯在哪里？", "relevant": {"b": 1}},
    )

    assert [(question.id, question.language) for question in load(folder).questions] == [("q2", "zh")]
    assert [question.id for question in load(folder, "all").questions] == ["q1", "q2"]


def test_the_sample_and_the_peps_load(shared_data: Callable[[str], Path]):
    sample = Path(__file__).parents[2] / "evals" / "data" / "sample"
    assert [len(load(sample, split).questions) for split in ("dev", "test", "all")] == [56, 55, 111]
    assert len(load(shared_data("peps"), "all").questions) == 240


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("queries.jsonl", '{"_id": "q1", "text": "a"}\n{"_id"', "queries.jsonl:2: malformed JSON"),
        ("queries.jsonl", '\n["q1"]\n', "queries.jsonl:2: every line must be a JSON object"),
        ("queries.jsonl", '{"_id": "q1", "text": " "}\n', 'queries.jsonl:1: "text" is missing or not text'),
        ("queries.jsonl", '{"_id": 7, "text": "a"}\n', 'queries.jsonl:1: "_id" is missing or not text'),
        (
            "queries.jsonl",
            '{"_id": "q", "text": "a"}\n{"_id": "q", "text": "b"}\n',
            'queries.jsonl:2: the question id "q"',
        ),
        ("queries.jsonl", "\n", "the file is empty"),
        ("qrels/test.tsv", "q\td\n", "qrels/test.tsv:1: a line needs"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\td\tmuch\n", 'qrels/test.tsv:2: the grade "much"'),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n", "no judgements"),
        ("qrels/test.tsv", "q-other\td\t1\n", 'these judged questions are not in queries.jsonl: "q-other"'),
    ],
)
def test_a_malformed_beir_file_is_refused_with_its_line(beir: Path, name: str, content: str, message: str):
    (beir / name).write_text(content)

    with pytest.raises(BadRequest) as refused:
        load(beir)

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"relevant": ["a"]}, '"relevant" must be an object'),
        ({"relevant": {"a": True}}, '"relevant" must be an object'),
        ({"filter": "team"}, '"filter" must be an object or null'),
        ({"sources": "vector"}, '"sources" must be a list of names'),
        ({"history": [{"role": "robot", "content": "hm"}]}, '"history" must be a list'),
        ({"now": 2026}, '"now" must be text or null'),
    ],
)
def test_a_malformed_routed_line_is_refused_with_its_number(routed: Write, change: dict[str, object], message: str):
    good = {"id": "q1", "text": "Where?", "relevant": {"a": 1}}

    with pytest.raises(BadRequest) as refused:
        load(routed(good, {**good, "id": "q2", **change}))

    assert str(refused.value).startswith(f"queries.jsonl:2: {message}")


def test_a_missing_folder_file_split_or_label_is_refused(beir: Path, tmp_path: Path):
    with pytest.raises(BadRequest, match="there is no such dataset folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(BadRequest, match='no split "train"; there are: "test"'):
        load(beir, "train")
    (beir / "qrels" / "test.tsv").unlink()
    (beir / "qrels").rmdir()
    with pytest.raises(BadRequest, match=r'queries.jsonl:1: "relevant" is missing; in a BEIR dataset the'):
        load(beir)
    (beir / "queries.jsonl").write_bytes(json.dumps({"_id": "ü"}, ensure_ascii=False).encode("latin-1"))
    with pytest.raises(BadRequest, match="not UTF-8 at byte 9"):
        load(beir)
    (beir / "corpus.jsonl").unlink()
    with pytest.raises(BadRequest, match=r"no corpus\.jsonl"):
        load(beir)
