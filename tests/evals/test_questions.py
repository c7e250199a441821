import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from agent import open_service
from agent.settings import Settings
from evals.cli import app
from evals.questions import load_file, load_questions
from retrievers.core.errors import BadRequest
from retrievers.ingest.documents import Document

TEAM = '{""type"": ""eq"", ""key"": ""team"", ""value"": ""red""}'


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, name: str = "questions.csv") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


Write = Callable[..., Path]


def test_a_csv_line_is_a_question_with_its_labels(write: Write):
    path = write(
        "\ufeffQuestion,document,answer,filter,class,lang,notes\n"
        f'"Who wrote it,\nand when?",a.md; b.md,,"{TEAM}",people,de,x\n'
        '\n'
        'How many?,,42,null,,,\n'
        'Which?,"[""c;d.md""]",3 days,,,,\n'
    )  # fmt: skip

    read = load_file(path, "handbook")
    first, second, third = read.dataset.questions

    assert (read.dataset.name, read.dataset.form, read.unused) == ("questions", "file", ("notes",))
    assert (first.text, first.relevant) == ("Who wrote it,\nand when?", {"a.md": 1, "b.md": 1})
    assert first.filter == {"type": "eq", "key": "team", "value": "red"}
    assert (first.klass, first.language, first.collection, first.answer) == ("people", "de", "handbook", None)
    assert (second.answer, second.filter, second.judges_filter, second.language) == (42, None, True, "en")
    assert (third.relevant, third.answer, third.judges_filter) == ({"c;d.md": 1}, "3 days", False)
    assert [one.where for one in read.dataset.questions] == ["questions.csv:2", "questions.csv:5", "questions.csv:6"]


def test_a_line_may_have_several_right_filters_earlier_turns_or_no_answer_at_all(write: Write):
    red, turns = {"type": "eq", "key": "team", "value": "red"}, [{"role": "user", "content": "The oven?"}]
    cells = (json.dumps(one).replace('"', '""') for one in ([red, None], turns))
    path = write(
        'question,document,answerable,filters,history\nWho?,a,,"{}","{}"\n'.format(*cells)
        + "Who?,b,TRUE,,\nWhat does a zebra cost?,,false,,\n"
    )
    lines = [
        {"question": "Who?", "document": "a", "filters": [red, None], "history": turns},
        {"question": "Who?", "document": "b", "answerable": True},
        {"question": "What does a zebra cost?", "answerable": False},
    ]
    same = write("".join(json.dumps(one) + "\n" for one in lines), "questions.jsonl")

    first, second, third = load_file(path, "handbook").dataset.questions

    assert (first.filter, first.other_filters, first.judges_filter) == (red, (None,), True)
    assert (first.history, second.history, first.id != second.id) == (tuple(turns), (), True)
    assert (second.answerable, second.judges_filter, second.other_filters) == (True, False, ())
    assert (third.answerable, third.relevant, third.answer) == (False, {}, None)
    for one, two in zip(load_file(same, "handbook").dataset.questions, (first, second, third), strict=True):
        assert replace(one, where=None) == replace(two, where=None)


@pytest.mark.parametrize("delimiter", [";", "\t", ","])
def test_the_delimiter_is_that_of_the_header(write: Write, delimiter: str):
    path = write(f"id{delimiter}question{delimiter}document\nq1{delimiter}Who?{delimiter}a.md\n")

    (question,) = load_file(path, "handbook").dataset.questions

    assert (question.id, question.text, question.relevant) == ("q1", "Who?", {"a.md": 1})


def test_json_lines_have_the_same_keys(write: Write):
    lines = [{"question": "Who?", "document": ["a", "b"], "filter": None}, {"question": "How many?", "answer": [1, 2]}]
    path = write("".join(json.dumps(one) + "\n" for one in lines), "questions.jsonl")

    first, second = load_file(path, "handbook").dataset.questions

    assert (first.relevant, first.filter, first.judges_filter) == ({"a": 1, "b": 1}, None, True)
    assert (second.answer, second.judges_filter) == ([1, 2], False)


def test_a_question_keeps_its_id_when_lines_are_moved(write: Write):
    one = load_file(write("question,document\nWho?,a\nWhen?,b\n"), "c").dataset.questions
    two = load_file(write("question,document\nWhen?,b\nNew?,c\nWho?,a\n"), "c").dataset.questions

    assert [one[0].id, one[1].id] == [two[2].id, two[0].id]
    assert one[0].id != load_file(write("question,document\nWho?,a\n"), "other").dataset.questions[0].id


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file has no questions"),
        ("question,document\n", "the file has no questions"),
        ("text,document\nWho?,a\n", 'questions.csv:1: the first line must name the columns, including "question"'),
        ("question,document\nWho?,a\nWhen?,\n", 'questions.csv:3: give "document" or "answer"'),
        ("question,document\n,a\n", 'questions.csv:2: "question" is missing'),
        ("question,document\nWho?,a,b\n", "questions.csv:2: 3 cells for 2 columns"),
        ('question,document\n"a\nb",x\n"Who?,a\n', "questions.csv:4: malformed CSV"),
        ("question,document,filter\nWho?,a,{team}\n", 'questions.csv:2: "filter" is not JSON: {team}'),
        ("question,document,filter\nWho?,a,[]\n", 'questions.csv:2: "filter" must be a filter expression'),
        ("question,document\nWho?,[a\n", 'questions.csv:2: "document" starts like a JSON list but is not JSON'),
        ("question,document\nWho?,a\nWho?,b\n", 'questions.csv:3: the question "Who?" occurs twice'),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(write: Write, text: str, message: str):
    with pytest.raises(BadRequest) as caught:
        load_file(write(text), "handbook")

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"question": 7, "document": "a"}, 'questions.jsonl:1: "question" must be text'),
        ({"question": "Who?", "document": [7]}, 'questions.jsonl:1: "document" must be an id or a list of ids'),
        ({"question": "Who?", "document": "a", "filter": "red"}, '"filter" must be a filter expression'),
        ({"question": "Who?", "document": "a", "filters": {}}, '"filters" must be a list of filter expressions'),
        ({"question": "Who?", "document": "a", "filters": []}, '"filters" must be a list of filter expressions'),
        ({"question": "Who?", "document": "a", "filters": ["x"]}, 'each of "filters" must be a filter expression'),
        ({"question": "Who?", "document": "a", "filter": None, "filters": [None]}, '"filter" or "filters", not both'),
        ({"question": "Who?", "document": "a", "history": "Hi"}, '"history" must be a list of'),
        ({"question": "Who?", "document": "a", "answerable": "no"}, '"answerable" must be true or false'),
        ({"question": "Who?", "document": "a", "answerable": False}, '"answerable" is false, but there is a right'),
    ],
)
def test_a_bad_json_line_is_named_by_file_and_number(write: Write, line: dict[str, Any], message: str):
    with pytest.raises(BadRequest) as caught:
        load_file(write(json.dumps(line), "questions.jsonl"), "handbook")

    assert message in str(caught.value)


def test_a_file_needs_a_collection_has_no_splits_and_must_be_there(write: Write, tmp_path: Path):
    path = write("question,document\nWho?,a\n")

    with pytest.raises(BadRequest, match=r"questions\.csv:2: the collection is missing"):
        load_file(path)
    with pytest.raises(BadRequest, match="no splits"):
        load_questions(path, "train", "handbook", print)
    with pytest.raises(BadRequest, match="the file does not exist"):
        load_questions(tmp_path / "none.csv", "test", "handbook", print)


# From a file to a report, over a collection that is stored already.


@pytest.fixture
async def handbook(settings: Settings) -> Settings:
    """A collection of three documents of two teams, in the tenant of the command line."""
    texts = {
        "oven.md": ("red", "The oven is cleaned every Friday by the night shift."),
        "lamp.md": ("blue", "The lamp in the tower is lit at dusk."),
        "leave.md": ("red", "Everybody has 30 days of leave a year."),
    }
    documents = [
        Document(where=id, id=id, title=id, text=text, metadata={"team": team}) for id, (team, text) in texts.items()
    ]
    async with open_service(settings) as service:
        await service.ingest(documents, "handbook")
    return settings


def invoke(settings: Settings, *arguments: object) -> Result:
    command, *rest = map(str, arguments)
    address = ["--set", f"DATABASE_URL={settings.database_url}"] if command == "run" else []
    return CliRunner().invoke(app, [command, *rest, *address], standalone_mode=False)


def test_a_file_becomes_a_report_in_three_commands(handbook: Settings, write: Write, tmp_path: Path):
    path = write(
        "question,document,answer,filter,class,mood\n"
        f'documents of the red team about the oven,oven.md,,"{TEAM}",team,good\n'
        f'when is the lamp lit?,lamp.md,,"{TEAM}",team,\n'
        "how much leave do I have?,leave.md,30 days,null,number,\n"
        "how many documents are there of team red?,,2,,number,\n"
    )
    out, page = tmp_path / "run.json", tmp_path / "report.html"

    done = invoke(handbook, "run", path, "--collection", "handbook", "--out", out)
    reported = invoke(handbook, "report", out, "--html", page)
    compared = invoke(handbook, "compare", out, out, "--fail-on-regression")

    assert done.exception is None
    assert [one.name for one in tmp_path.glob("run.json*")] == ["run.json"]
    assert "collection handbook: 3 documents" in done.stderr
    assert "questions.csv: unused columns: " in done.stderr
    run = json.loads(out.read_text())
    assert (run["dataset"], run["form"], run["tenant"], run["collections"], run["documents"]) == (
        "questions", "file", "default", ["handbook"], 3
    )  # fmt: skip
    oven, lamp, leave, count = run["questions"]
    assert [one["filter_verdict"] for one in run["questions"]] == ["right", "missing", "none", None]
    assert (oven["metrics"]["hit@1"], lamp["metrics"]["hit@1"]) == (1.0, 1.0)
    assert (oven["metrics"]["filter_exact"], lamp["metrics"]["filter_exact"]) == (1.0, 0.0)
    assert (leave["metrics"]["answer_in_hits"], leave["metrics"]["answer_accuracy"]) == (1.0, None)
    assert (count["metrics"]["answer_accuracy"], count["table"]) == (1.0, [[2]])
    assert (count["metrics"]["answer_in_hits"], count["metrics"]["nDCG@10"]) == (None, None)
    assert oven["stages"]["final"] == {"ranks": [1], "nDCG@10": 1.0}
    (stated,) = oven["stated"]
    assert (stated["filter"], stated["right"]) == (oven["gold_filter"], True)
    assert 0.5 < stated["probability"] <= 1
    assert reported.exception is None
    assert "when is the lamp lit?" in page.read_text()
    assert (compared.return_value, compared.exception) == (0, None)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("who?,oven.mdx,", 'questions.csv:2: collection "handbook" holds no document "oven.mdx"'),
        ('who?,oven.md,"{""type"":""eq"",""key"":""tame"",""value"":""red""}"', "questions.csv:2: the gold filter"),
    ],
)
def test_labels_that_do_not_fit_the_collection_are_refused(handbook: Settings, write: Write, line: str, message: str):
    done = invoke(handbook, "run", write(f"question,document,filter\n{line}\n"), "--collection", "handbook")

    assert isinstance(done.exception, BadRequest)
    assert message in str(done.exception)


def test_a_collection_that_is_not_there_is_named_with_its_line(handbook: Settings, write: Write):
    done = invoke(handbook, "run", write("question,document,collection\nwho?,oven.md,cellar\n"))

    assert isinstance(done.exception, BadRequest)
    assert 'questions.csv:2: there is no collection "cellar"; there are: "handbook"' in str(done.exception)


def test_a_folder_s_questions_may_be_put_to_a_stored_collection(handbook: Settings, routed: Callable[..., Path]):
    folder = routed({"id": "q", "text": "when is the lamp lit?", "relevant": {"lamp.md": 1}, "sources": ["vector"]})

    done = invoke(handbook, "run", folder, "--collection", "handbook", "--json")

    run = json.loads(done.stdout)
    assert (run["documents"], run["collections"], run["questions"][0]["documents"][0]) == (3, ["handbook"], "lamp.md")
