import csv
import io
import json
import os
import random
import re
import runpy
import sys
import time
import types
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from retrievers.core.errors import BadDocument
from retrievers.core.optional_dependencies import install_command
from retrievers.ingest.documents import NOTHING_SEARCHABLE, Document, RejectedItem
from retrievers.ingest.readers import csv_table as table_module
from retrievers.ingest.readers import file_readers, office_readers, text_cleaning
from retrievers.ingest.readers.file_input import input_bytes, read_paths, read_record, read_upload
from retrievers.ingest.readers.file_readers import read_source
from retrievers.ingest.readers.front_matter import read_front_matter
from retrievers.ingest.readers.record import NO_TEXT, build_document
from retrievers.ingest.readers.source_file import SourceFile
from retrievers.sandbox import ProcessLimits, Sandbox
from retrievers.text import pieces, prompt_sanitising

DATA: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("data_files.py")))


def document(item: Document | RejectedItem) -> Document:
    assert isinstance(item, Document), item
    return item


def reason(item: Document | RejectedItem) -> str:
    assert isinstance(item, RejectedItem), item
    assert len(item.reason) <= 200
    assert item.reason.isprintable()
    return item.reason


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read_here(path: Path) -> list[Document | RejectedItem]:
    """The items of a file, read in this process, where a test can change what is read with."""
    with path.open("rb") as file:
        source = SourceFile(file, str(path), path.name, path.stem, path.suffix.lower(), path.stat().st_size)
        return [item for _, item in read_source(source)]


def only(path: Path) -> Document | RejectedItem:
    items = list(read_paths([path]))
    assert len(items) == 1, items
    return items[0]


# Invisible texts, and long ones.


BLANK = "\u200b\ufeff \n\u00ad\t\u2060\u3000\u200d"


@pytest.mark.parametrize("text", [BLANK, BLANK * 20_000, "\0" * 100_000, "\u200b"])
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.json"])
def test_a_file_without_a_visible_character_is_refused_as_an_empty_one(tmp_path: Path, name: str, text: str):
    assert reason(only(write(tmp_path, name, text))) == reason(only(write(tmp_path, f"empty{name}", "")))


@pytest.mark.parametrize(
    "record", [{"text": BLANK}, {"text": BLANK, "title": BLANK, "questions": [BLANK], "important": BLANK}]
)
def test_a_record_without_a_visible_character_is_refused_as_an_empty_one(record: dict[str, Any]):
    assert reason(read_record(record, "w")) == NOTHING_SEARCHABLE


@pytest.mark.parametrize("text", ["\u200b.", "\ue000", "🙂", "\u200b中\u200b"])
def test_a_text_with_a_visible_character_is_stored_as_it_is(tmp_path: Path, text: str):
    assert document(only(write(tmp_path, "a.txt", text))).text == text


def test_a_text_is_cleaned_the_same_in_pieces_as_whole(monkeypatch: pytest.MonkeyPatch):
    choose = random.Random(3)
    for _ in range(2000):
        text = "".join(choose.choices("\r\n\x85\0\x1c \t\u3000\ud800\udc00a中", k=choose.randrange(30)))
        monkeypatch.setattr(pieces, "_CHARACTERS", 1 << 16)
        whole = text_cleaning.Cleaner()
        cleaned = whole.clean_text(text)
        monkeypatch.setattr(pieces, "_CHARACTERS", choose.randrange(1, 5))
        cut = text_cleaning.Cleaner()

        assert cut.clean_text(text) == cleaned
        assert cut == whole
        assert "".join(pieces.text_pieces(text)) == text


@pytest.mark.parametrize(
    ("text", "trimmed"),
    [
        ("", ""),
        (" \n\n", ""),
        ("\n \n  a\n b \n", "  a\n b"),
        ("  a", "  a"),
        ("\u3000\n\ta", "\ta"),
        ("a\n\nb", "a\n\nb"),
    ],
)
def test_the_first_line_of_a_text_keeps_its_indentation(text: str, trimmed: str):
    assert text_cleaning.trim_text(text) == trimmed


@pytest.mark.parametrize("text", ["\0", " ", "\r", "a\0", "\n", "\r\n"])
def test_no_expression_passes_over_more_than_a_piece_of_a_text(text: str, monkeypatch: pytest.MonkeyPatch):
    """Such an expression holds up all other threads."""
    passed: list[int] = []

    class Noted:
        def __init__(self, pattern: re.Pattern[str]) -> None:
            self._pattern = pattern

        def __getattr__(self, name: str) -> Any:
            def call(*given: Any) -> Any:
                passed.append(len(given[-1]))
                return getattr(self._pattern, name)(*given)

            return call

    for module in (text_cleaning, prompt_sanitising):
        for name, pattern in vars(module).copy().items():
            if isinstance(pattern, re.Pattern):
                monkeypatch.setattr(module, name, Noted(pattern))
    build_document({}, "w", text="a" + text * 500_000, id="a")

    assert passed
    assert max(passed) <= (1 << 16) + 1


# Records.


def test_a_record_fills_every_part_of_a_document():
    record = {
        "id": 7,
        "title": "Pooling",
        "text": "Use a pool.",
        "url": " https://example.org/7 ",
        "metadata": {"team": "db", "year": 2024},
        "year": 2025,
        "important": ["pgbouncer", "pool"],
        "questions": "How do I pool?\nWhy?",
        "public": True,
        "expires_at": "2030-01-31T12:00:00+02:00",
    }

    assert read_record(record, "docs.jsonl:17") == Document(
        where="docs.jsonl:17",
        id="7",
        title="Pooling",
        text="Use a pool.",
        url="https://example.org/7",
        metadata={"team": "db", "year": 2025},
        important=("pgbouncer", "pool"),
        questions=("How do I pool?", "Why?"),
        public=True,
        expires_at=datetime(2030, 1, 31, 10, tzinfo=UTC),
    )


def test_a_record_without_id_gets_one_from_its_title_and_text():
    # printf 'T\0body' | sha256sum
    assert document(read_record({"title": "T", "text": "body"}, "w")).id == "sha-950e6143c751c44c"
    assert document(read_record({"title": "T", "text": "body", "tag": 1}, "w")).id == "sha-950e6143c751c44c"
    assert document(read_record({"title": "U", "text": "body"}, "w")).id != "sha-950e6143c751c44c"


@pytest.mark.parametrize(
    ("record", "metadata"),
    [
        ({"content": "words"}, {}),
        ({"body": "words"}, {}),
        ({"text": "words", "body": "more"}, {"body": "more"}),
        ({"text": None, "content": "words", "title": None, "id": None, "metadata": None, "public": None}, {}),
        ({"_id": "a", "text": "words"}, {}),
        ({"id": "a", "_id": "b", "text": "words"}, {"_id": "b"}),
        ({"text": "words", "deep": {"a": [1, 2.5, None, True]}}, {"deep": {"a": [1, 2.5, None, True]}}),
    ],
)
def test_the_text_is_found_under_its_other_names_and_what_is_left_is_metadata(record, metadata):
    found = document(read_record(record, "w"))

    assert (found.text, found.metadata) == ("words", metadata)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2030-01-31", datetime(2030, 1, 31, tzinfo=UTC)),
        ("2030-01-31T12:30:00", datetime(2030, 1, 31, 12, 30, tzinfo=UTC)),
        ("2030-01-31T12:30:00Z", datetime(2030, 1, 31, 12, 30, tzinfo=UTC)),
        (None, None),
    ],
)
def test_a_moment_without_an_offset_is_in_utc(given, expected):
    assert document(read_record({"text": "a", "expires_at": given}, "w")).expires_at == expected


@pytest.mark.parametrize(("given", "title"), [(2024, "2024"), (1.5, "1.5"), (" a\n b ", "a b"), ("", "")])
def test_a_title_is_one_line_of_text(given, title):
    assert document(read_record({"text": "a", "title": given}, "w")).title == title


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ([1], "a list where an object was expected"),
        ("a", "text where an object was expected"),
        (3, "a number where an object was expected"),
        (None, "null where an object was expected"),
        (True, "true or false where an object was expected"),
        ({}, NO_TEXT),
        ({"text": " \n\t\u3000", "title": " "}, NOTHING_SEARCHABLE),
        ({"text": "", "metadata": {"a": [], "b": ""}, "c": None}, NOTHING_SEARCHABLE),
        (
            {"metadata": {"a": 1}},
            NO_TEXT,
        ),
        ({"text": ["a"]}, '"text" is a list; it must be text'),
        ({"text": 5}, '"text" is a number; it must be text'),
        ({"text": "a", "title": ["t"]}, '"title" is a list; it must be text'),
        ({"text": "a", "title": True}, '"title" is true or false; it must be text'),
        ({"text": "a", "id": ""}, "the id is empty"),
        ({"text": "a", "id": "  "}, "the id is empty"),
        ({"text": "a", "id": "i" * 513}, "the id has 513 characters; the limit is 512"),
        ({"text": "a", "id": "a\nb"}, "the id holds a control character or a lone surrogate"),
        ({"text": "a", "id": "a\ud800"}, "the id holds a control character or a lone surrogate"),
        ({"text": "a", "id": 1.5}, "the id is a number; it must be text or a whole number"),
        ({"text": "a", "id": False}, "the id is true or false; it must be text or a whole number"),
        ({"text": "a", "_id": {"$oid": "x"}}, "the id is an object; it must be text or a whole number"),
        ({"text": "a", "url": 1}, '"url" is a number; it must be text'),
        ({"text": "a", "metadata": []}, '"metadata" is a list; it must be an object'),
        ({"text": "a", "important": {"a": 1}}, '"important" is an object; it must be text or a list of texts'),
        ({"text": "a", "questions": [None]}, '"questions" holds null; it must be text or a list of texts'),
        ({"text": "a", "public": "yes"}, '"public" is text; it must be true or false'),
        (
            {"text": "a", "expires_at": "soon"},
            '"expires_at" is "soon"; it must be an ISO 8601 time like "2030-01-31T12:00:00Z"',
        ),
        (
            {"text": "a", "expires_at": 1893456000},
            '"expires_at" is a number; it must be an ISO 8601 time like "2030-01-31T12:00:00Z"',
        ),
        (
            {"text": "a", "expires_at": "0001-01-01T00:00+14:00"},
            '"expires_at" is "0001-01-01T00:00+14:00"; it must be an ISO 8601 time like "2030-01-31T12:00:00Z"',
        ),
        ({"text": "a", "n": 10**309}, '"n" holds a number that is not finite or too large'),
        ({"text": "a", "n": [float("inf")]}, '"n" holds a number that is not finite or too large'),
        (
            {"text": "a", "n": {1, 2}},
            '"n" holds a set; use text, numbers, true/false, lists or objects',
        ),
    ],
)
def test_a_record_that_is_no_document_says_why_in_one_line(record, expected):
    assert reason(read_record(record, "docs.jsonl:17")) == expected


def test_a_rejected_record_is_named_by_its_id_when_that_is_sound():
    assert read_record({"id": 7, "text": ""}, "docs.jsonl:17") == RejectedItem("docs.jsonl:17", "7", NOTHING_SEARCHABLE)


@pytest.mark.parametrize(
    "given", [{"title": "Roof repair"}, {"text": "", "title": "Roof"}, {"text": " ", "metadata": {"open": False}}]
)
def test_a_title_or_metadata_make_a_document(given):
    assert document(read_record(given, "w")).text == ""


def test_documents_that_differ_in_their_metadata_alone_have_ids_of_their_own():
    first, second = (document(read_record({"text": "", "title": "Report", "year": year}, "w")) for year in (1, 2))
    assert first.id != second.id


def test_the_name_of_a_file_makes_no_document():
    given = {"text": " ", "title": "roof-repair"}
    assert build_document({}, "w", **given) == RejectedItem("w", None, "the text is empty")
    assert document(build_document({"title": "Roof repair"}, "w", **given)).title == "Roof repair"


def test_a_record_nested_too_deeply_or_with_too_many_values_is_rejected():
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]

    assert reason(read_record({"text": "a", "deep": deep}, "w")) == '"deep" is nested deeper than 50 levels'
    assert reason(read_record({"text": "a", "n": [0] * 100_001}, "w")) == "holds more than 100,000 values"


def test_a_text_of_two_million_characters_is_taken_and_one_more_is_too_many():
    assert len(document(read_record({"text": "x" * 2_000_000}, "w")).text) == 2_000_000
    assert reason(read_record({"text": "x" * 2_000_001}, "w")) == (
        "the text has 2,000,001 characters; the limit is 2,000,000: split the document"
    )


# Cleaning.


def test_what_cannot_be_stored_is_replaced_everywhere_and_counted():
    record = {"title": "a\x00b", "text": "one\r\ntwo\rthree\x85four\tfive\x1b", "k\x07": {"v": ["x\ud83d"]}}

    found = document(read_record(record, "w"))

    assert found.title == "a b"
    assert found.text == "one\ntwo\nthree\nfour\tfive"
    assert found.metadata == {"k ": {"v": ["x\ufffd"]}}
    assert found.notes == ("3 control characters and 1 lone surrogate replaced",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\n \n  indented\n", "  indented"),
        ("a  \n\n", "a"),
        ("e\u0301", "e\u0301"),
        ("\U0001f600", "\U0001f600"),
    ],
)
def test_a_text_loses_the_blanks_around_it_and_is_not_changed_otherwise(text, expected):
    found = document(read_record({"text": text}, "w"))

    assert (found.text, found.notes) == (expected, ())


def test_a_reason_is_cut_and_has_no_control_characters():
    found = read_record({"text": "a", "expires_at": "\x1b[31m\u202e\n" + "x" * 500}, "a\nb")

    assert isinstance(found, RejectedItem)
    assert found.where == "a b"
    assert "\x1b" not in found.reason
    assert "\n" not in found.reason
    assert len(read_record({"text": "a", "k" * 50: {1}}, "w").reason) <= 200


# JSON Lines.


def test_json_lines_give_one_item_per_line_and_a_bad_line_does_not_stop_the_others(tmp_path):
    path = write(
        tmp_path, "docs.jsonl", '\ufeff{"id": "a", "text": "one"}\r\n\n{"id": "b", "text"}\n{"id":"c","text":"3"}'
    )

    first, second, third = read_paths([path])

    assert (document(first).id, document(first).where) == ("a", f"{path}:1")
    assert second == RejectedItem(f"{path}:3", None, "malformed JSON at line 3, column 19: Expecting ':' delimiter")
    assert (document(third).id, document(third).where) == ("c", f"{path}:4")


def test_paths_are_named_as_they_were_given(tmp_path, monkeypatch):
    write(tmp_path, "docs.jsonl", '{"text": "one"}\n[]\n')
    monkeypatch.chdir(tmp_path)

    assert [item.where for item in read_paths([Path("docs.jsonl")])] == ["docs.jsonl:1", "docs.jsonl:2"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('["a"]', "a list where an object was expected"),
        ('{"text": "a", "n": NaN}', "malformed JSON: NaN is not a JSON number; use null"),
        ('{"text": "a", "n": -Infinity}', "malformed JSON: -Infinity is not a JSON number; use null"),
        ('{"text": "a", "n": 1e999}', '"n" holds a number that is not finite or too large'),
        ('{"text": "a", "n": ' + "9" * 400 + "}", '"n" holds a number that is not finite or too large'),
        ('{"text": "a", "n": ' + "9" * 5000 + "}", "a number in the JSON has too many digits"),
        ('{"text": "a", "d": ' + "[" * 100_000 + "]" * 100_000 + "}", "the JSON is nested too deeply"),
        ('{"text": "a"} {"text": "b"}', "malformed JSON at line 1, column 15: Extra data"),
        ('{"text": "a', "malformed JSON at line 1, column 10: Unterminated string starting at"),
    ],
)
def test_a_bad_json_line_says_what_is_wrong_with_it(tmp_path, line, expected):
    assert reason(only(write(tmp_path, "a.ndjson", line))) == expected


def test_the_last_of_two_equal_keys_wins(tmp_path):
    assert document(only(write(tmp_path, "a.jsonl", '{"text": "a", "text": "b"}'))).text == "b"


def test_a_line_over_the_limit_is_rejected_and_the_next_one_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(file_readers, "MAX_LINE_BYTES", 64)
    fits = json.dumps({"text": "x" * 52})
    path = write(tmp_path, "a.jsonl", f"{json.dumps({'text': 'x' * 1000})}\n{fits}\n{json.dumps({'text': 'x' * 53})}")

    assert len(fits) == 64
    first, second, third = read_here(path)
    assert reason(first) == "the line is longer than 0 MB"
    assert document(second).where == f"{path}:2"
    assert reason(third) == "the line is longer than 0 MB"


def test_a_line_limit_of_16_mb_lets_a_long_text_through_to_its_own_limit(tmp_path):
    path = write(tmp_path, "a.jsonl", '{"text": "' + "中" * 2_000_001 + '"}\n{"text": "' + "x" * (16 << 20) + '"}')

    first, second = read_paths([path])

    assert reason(first) == "the text has 2,000,001 characters; the limit is 2,000,000: split the document"
    assert reason(second) == "the line is longer than 16 MB"


def test_a_line_that_is_not_utf_8_is_read_as_gb18030_and_says_so(tmp_path):
    lines = '{"text": "数据库"}\n'.encode(), '{"text": "数据库"}\n'.encode("gb18030"), b'{"text": "\xff"}\n'

    first, second, third = read_paths([write(tmp_path, "a.jsonl", b"".join(lines))])

    assert (document(first).text, document(first).notes) == ("数据库", ())
    assert document(second).text == "数据库"
    assert document(second).notes == ("read as GB18030, because it is not UTF-8",)
    assert reason(third) == (
        "the byte at offset 10 of the line is not UTF-8, and GB18030 does not fit; save it as UTF-8"
    )


def test_json_lines_in_utf_16_are_read(tmp_path):
    # U+4E0A has a byte that looks like a line feed.
    path = write(tmp_path, "a.jsonl", '{"text": "上"}\r\n{"text": "b"}\r\n'.encode("utf-16"))

    assert [document(item).text for item in read_paths([path])] == ["上", "b"]


def test_a_dash_reads_json_lines_from_standard_input():
    consumed: list[int] = []

    first, second = read_paths(["-"], stdin=io.BytesIO(b'{"text": "a"}\n3\n'), progress=consumed.append)

    assert document(first).where == "stdin:1"
    assert second == RejectedItem("stdin:2", None, "a number where an object was expected")
    assert consumed == [14, 2]


def test_nothing_on_standard_input_is_said():
    assert list(read_paths(["-"], stdin=io.BytesIO())) == [RejectedItem("stdin", None, "the input is empty", cut=True)]


def test_json_lines_are_read_only_as_far_as_asked_for():
    class Endless(io.BytesIO):
        def readline(self, _size: int | None = -1) -> bytes:
            return b'{"text": "a"}\n'

    items = read_paths(["-"], stdin=Endless())

    assert [document(next(items)).where for _ in range(3)] == ["stdin:1", "stdin:2", "stdin:3"]


# JSON.


def test_a_json_file_holds_one_object_or_a_list_of_them(tmp_path):
    one = write(tmp_path, "one.json", '{"id": "a", "text": "1"}')
    many = write(tmp_path, "many.json", '[{"id": "b", "text": "2"}, 3, {"text": "4"}]')

    first, second, third, fourth = read_paths([one, many])

    assert (document(first).id, document(first).where) == ("a", str(one))
    assert (document(second).id, document(second).where) == ("b", f"{many}[0]")
    assert third == RejectedItem(f"{many}[1]", None, "a number where an object was expected")
    assert document(fourth).id.startswith("sha-")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        ("[]", "an empty list: no documents in it"),
        ('"a"', "text where an object or a list of objects was expected"),
        ('{\n"text": a}', "malformed JSON at line 2, column 9: Expecting value"),
        (
            '{"text": "a"}\n{"text": "b"}',
            "malformed JSON at line 2, column 1: Extra data; one object per line? Then name it .jsonl",
        ),
    ],
)
def test_a_json_file_without_documents_says_why(tmp_path, content, expected):
    assert reason(only(write(tmp_path, "a.json", content))) == expected


# CSV.


def test_csv_rows_become_documents_and_their_other_columns_metadata(tmp_path):
    path = write(
        tmp_path,
        "faq.csv",
        "id,title,text,public,price,stock,code,big,vip,empty,url\n"
        '1,First,"a, ""quoted""\ncell",yes,3.50,12,007,12345678901234567890,TRUE,,https://example.org\n'
        "2,1984,b,0,1e5,-4,+5,1.2.3,false,,\n",
    )

    first, second = (document(item) for item in read_paths([path]))

    assert (first.where, first.id, first.title, first.text) == (f"{path}:2", "1", "First", 'a, "quoted"\ncell')
    assert (first.public, first.url) == (True, "https://example.org")
    assert first.metadata == {"price": 3.5, "stock": 12, "code": "007", "big": "12345678901234567890", "vip": True}
    assert (second.where, second.id, second.title, second.public) == (f"{path}:4", "2", "1984", False)
    assert second.metadata == {"price": "1e5", "stock": -4, "code": "+5", "big": "1.2.3", "vip": False}
    assert [type(first.metadata[key]) for key in ("price", "stock")] == [float, int]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "id,text\n1,words\n"),
        ("a.csv", "id;text\r\n1;words\r\n"),
        ("a.csv", "id\ttext\n1\twords\n"),
        ("a.tsv", "id\ttext\n1\twords"),
        ("a.tsv", "id,text\n1,words\n"),
        ("a.csv", '"id";"a, b, c";"content"\n1;x;words\n'),
        ("a.csv", "\n id , body \n1,words\n"),
    ],
)
def test_the_delimiter_is_the_one_that_makes_sense_of_the_header(tmp_path, name, content):
    found = document(only(write(tmp_path, name, content)))

    assert (found.id, found.text) == ("1", "words")


def test_a_csv_with_one_column_needs_no_delimiter(tmp_path):
    assert document(only(write(tmp_path, "a.csv", "text\nwords\n"))).text == "words"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_a_csv_is_read_in_the_encodings_that_spreadsheets_write(tmp_path, encoding):
    found = document(only(write(tmp_path, "a.csv", "text,id\n数据库,1\n".encode(encoding))))

    assert (found.text, found.id) == ("数据库", "1")
    assert found.notes == (("read as GB18030, because it is not UTF-8",) if encoding == "gb18030" else ())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("text,id\n", "no rows below the header"),
        (
            "name,words\na,b\n",
            'no column "text" (nor "content" or "body") in the first row, the header: "name", "words"',
        ),
        (
            b"text\nab\xffcd\n",
            "the byte at offset 7 of the file is not UTF-8, and GB18030 does not fit; save it as UTF-8",
        ),
    ],
)
def test_a_csv_without_documents_is_rejected_once(tmp_path, content, expected):
    assert reason(only(write(tmp_path, "a.csv", content))) == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("a,1,x", "3 cells, but the header has 2 columns"),
        (",1", NO_TEXT),
        ("a\x00b,1", "a NUL character; if the file is UTF-16, save it as UTF-8"),
        ('"a"b,1', "malformed CSV: ',' expected after '\"'; check its quotes (\")"),
    ],
)
def test_a_bad_csv_row_is_rejected_and_the_next_one_is_read(tmp_path, row, expected):
    path = write(tmp_path, "a.csv", f"text,id\n{row}\ngood,2\n")

    bad, good = read_paths([path])

    assert (bad.where, reason(bad)) == (f"{path}:2", expected)
    assert document(good).where == f"{path}:3"


def test_a_quote_left_open_is_said_and_not_read_as_one_long_cell(tmp_path):
    path = write(tmp_path, "a.csv", 'text,id\na,1\n"b,2\nc,3\n')

    first, second = read_paths([path])

    assert document(first).text == "a"
    reason = 'malformed CSV: unexpected end of data; check its quotes (")'
    assert second == RejectedItem(f"{path}:3", None, reason, cut=True)


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("public", "maybe", '"public" is "maybe"; it must be true or false'),
        ("metadata", '"{""a"": }"', "malformed JSON at line 1, column 7: Expecting value"),
        ("metadata", "[1]", '"metadata" is a list; it must be an object'),
        ("expires_at", "never", '"expires_at" is "never"; it must be an ISO 8601 time like "2030-01-31T12:00:00Z"'),
    ],
)
def test_a_cell_of_a_known_column_must_fit_it(tmp_path, column, cell, expected):
    assert reason(only(write(tmp_path, "a.csv", f"text,{column}\na,{cell}\n"))) == expected


def test_a_metadata_column_holds_json_and_a_nameless_column_gets_its_number(tmp_path):
    found = document(only(write(tmp_path, "a.csv", ',text,metadata\n0,a,"{""k"": [1]}"\n')))

    assert found.metadata == {"column_1": 0, "k": [1]}


def test_csv_cells_of_two_million_characters_fit_and_the_limit_of_others_is_left_alone(tmp_path):
    path = write(tmp_path, "a.csv", f"text,id\n{'x' * 2_000_000},1\n{'x' * 2_000_001},2\nc,3\n")
    before = csv.field_size_limit()

    items = read_paths([path])
    first = next(items)

    assert csv.field_size_limit() == before
    assert len(document(first).text) == 2_000_000
    assert reason(next(items)) == 'a cell has over 2,000,000 characters; is a quote (") left open?'
    assert document(next(items)).id == "3"


def test_a_csv_line_without_end_stops_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(table_module, "MAX_LINE_BYTES", 64)
    path = write(tmp_path, "a.csv", f"text,id\na,1\n{'b' * 100},2\nc,3\n")

    first, second = read_here(path)

    assert document(first).id == "1"
    assert "the rest of the file was not read" in reason(second)


# Markdown.


def test_front_matter_describes_a_markdown_document(tmp_path):
    path = write(
        tmp_path,
        "note.md",
        "---\r\nid: n-1\r\ntitle: Backups\r\nurl: https://example.org/b\r\ntags: [backup, wal]\r\n"
        "date: 2024-05-01\r\nat: 2024-05-01 10:00:00\r\n3: x\r\n---\r\n\r\n# Heading\r\ntext\r\n",
    )

    found = document(only(path))

    assert (found.id, found.title, found.url) == ("n-1", "Backups", "https://example.org/b")
    assert found.text == "# Heading\ntext"
    assert found.important == ("backup", "wal")
    assert found.metadata == {
        "tags": ["backup", "wal"],
        "date": "2024-05-01",
        "at": "2024-05-01T10:00:00",
        "3": "x",
    }


@pytest.mark.parametrize(
    ("content", "title"),
    [
        ("intro\n\n# The *title* #\n\n# Second\n", "The *title*"),
        ("```sh\n# no heading\n```\n## lower\n# Real\n", "Real"),
        ("#hashtag\n## lower\n", "a.b"),
        ("---\ntags: x\n---\n# From text\n", "From text"),
        ("---\n---\n# Empty front matter\n", "Empty front matter"),
    ],
)
def test_a_markdown_title_is_the_first_heading_or_the_file_name(tmp_path, content, title):
    assert document(only(write(tmp_path, "a.b.markdown", content))).title == title


@pytest.mark.parametrize("content", ["---\ntitle: never closed\n\ntext", "text\n---\na: 1\n---", "----\na\n----"])
def test_what_is_no_front_matter_is_text(tmp_path, content):
    found = document(only(write(tmp_path, "a.md", content)))

    assert (found.text, found.metadata) == (content, {})


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("- a\n- b", 'the front matter is a list; it must be lines like "title: ..."'),
        ("just words", 'the front matter is text; it must be lines like "title: ..."'),
        ("a: [1", "the front matter is not valid YAML at line 3: did not find expected ',' or ']'"),
        ("a: b: c", "the front matter is not valid YAML at line 2: mapping values are not allowed in this context"),
        ("a: 2024-02-31", "the front matter is not valid YAML: day is out of range for month"),
        ("a: !!bool maybe", "the front matter is not valid YAML: 'maybe'"),
        ("a: &x [*x]", '"a" is nested deeper than 50 levels'),
        ("a: .nan", '"a" holds a number that is not finite or too large'),
        ("a: !!binary aGk=", '"a" holds a bytes; use text, numbers, true/false, lists or objects'),
        ("a: " + "[" * 3000, "the front matter is nested deeper than 100 levels"),
        ("- " * 3000, "the front matter is nested deeper than 100 levels"),
        (
            "a: &a {" + ", ".join(f"k{n}: 1" for n in range(600)) + "}\nb: &b {x: &x {<<: *a}, y: {<<: [*a, *a]}}",
            '"<<" in the front matter makes more than 1,000 keys',
        ),
        (
            "a: &a {x: 1}\n" + "".join(f"b{n}: {{<<: *a}}\n" for n in range(1001)),
            '"<<" in the front matter makes more than 1,000 keys',
        ),
        ("a: " + "x" * 65_536, "the front matter has more than 65,536 characters"),
    ],
)
def test_bad_front_matter_rejects_the_file(tmp_path, front, expected):
    found = reason(only(write(tmp_path, "a.md", f"---\n{front}\n---\ntext\n")))

    assert found == expected


def test_many_merges_of_a_large_mapping_are_given_up_early():
    front = "a: &a {" + ", ".join(f"k{n}: 1" for n in range(500)) + "}\nb: {<<: [" + ", ".join(["*a"] * 12_000) + "]}"
    began = time.thread_time()
    with pytest.raises(BadDocument, match="more than 1,000 keys"):
        read_front_matter(f"---\n{front}\n---\n")
    assert time.thread_time() - began < 1


def test_front_matter_may_merge_a_mapping_into_itself_and_hold_text_that_begins_with_a_tab():
    assert read_front_matter("---\na: &a {<<: *a, x: 1}\n---\n")[0] == {"a": {"x": 1}}
    assert read_front_matter("---\na: |\n  \tindented\nb: 1\n---\nc") == ({"a": "\tindented\n", "b": 1}, "c")


def test_yaml_aliases_that_stand_for_a_billion_values_are_rejected(tmp_path):
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for level in range(1, 10):
        bomb += f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n"

    assert reason(only(write(tmp_path, "a.md", f"---\n{bomb}---\ntext\n"))) == "holds more than 100,000 values"


def test_control_characters_in_front_matter_do_not_spoil_it(tmp_path):
    found = document(only(write(tmp_path, "a.md", "---\ntitle: a\x00b\n---\nte\x01xt\n")))

    assert (found.title, found.text) == ("a b", "te xt")
    assert found.notes == ("2 control characters replaced",)


# HTML.


def test_a_page_becomes_the_text_one_sees_with_its_structure(tmp_path):
    path = write(
        tmp_path,
        "page.html",
        """<!doctype html><html><head><title>Tea &amp; cake</title>
        <meta name="Author" content="Ann"><meta name="keywords" content="tea, cake">
        <meta name="viewport" content="width"><style>p {}</style></head>
        <body><nav><a>Home</a></nav><template>t</template><script>if (a < b) {}</script>
        <h1>All about <em>tea</em></h1><p>Black&nbsp;or
        green&hellip;<br>hot</p><div>loose</div>
        <ul><li>milk<ul><li>oat</ul><li><p>lemon</p></ul>
        <table><tr><th>kind</th><th>minutes</th></tr><tr><td>black<td><b>4</b></tr></table>
        <pre>
# steep
  wait
</pre><h3>End</h3></body></html>""",
    )

    found = document(only(path))

    assert (found.id, found.title) == ("page.html", "Tea & cake")
    assert found.metadata == {"author": "Ann", "keywords": "tea, cake"}
    assert found.text == (
        "# All about tea\n\nBlack or green…\nhot\n\nloose\n\n- milk\n  - oat\n- lemon\n\n"
        "kind | minutes\nblack | 4\n\n```\n# steep\n  wait\n```\n\n### End"
    )


@pytest.mark.parametrize(
    ("markup", "title", "text"),
    [
        ("<p>a<h1>Head</h1>", "Head", "a\n\n# Head"),
        ("<p>a", "page", "a"),
        ("<table><tr><td><h2>In</h2><p>b</td></tr></table>", "page", "## In\n\nb"),
        ("<!--[if IE]>x<![endif]--><p>a<![if !x]>b<![endif]>", "page", "ab"),
        ("<p>1 &lt; 2 &#x4e2d;", "page", "1 < 2 中"),
        ("<svg><title>icon</title></svg><title>T</title>a", "T", "a"),
        ("</p></li></ul></tr></h1>a<li>b", "page", "a\n\n- b"),
        ("<svg><svg></svg>a<nav>b</svg>c</nav>d", "page", "ad"),
        ("<svg/>a<script src=x />b<script>c</SCRIPT >d", "page", "abd"),
        ("<p>a<!-->b<!--->c<!-- > --!>d<!-- > -- > -->e<!-- <p>f", "page", "abcde"),
        ("a<![CDATA[ > ]]>b<?x y>c</>d</ p>e<![CDATA[ f>g", "page", "abcdeg"),
        ("a<script></ script>b</script>c<style></\nstyle>d</style >e", "page", "ace"),
        ("<p title='a>b' x=\"</p>\" y = c/>d<b z=it's>e", "page", "de"),
        ("1 < 2 <3 <a href='x", "page", "1 < 2 <3 <a href='x"),
        ('a<b c="d>e<i f=g>h', "page", "aeh"),
        ("<meta name='author' content = 'A &amp; B' content2><p>a", "page", "a"),
    ],
)
def test_untidy_markup_is_read_as_far_as_it_makes_sense(tmp_path, markup, title, text):
    found = document(only(write(tmp_path, "page.htm", markup)))

    assert (found.title, found.text) == (title, text)


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("", "the file is empty"),
        ("<script>x</script><nav>y</nav>", "no visible text in this page"),
        (f"<p>a&#{'9' * 5000};", "not readable as HTML: Exceeds the limit"),
    ],
)
def test_a_page_without_text_is_rejected(tmp_path, markup, expected):
    assert reason(only(write(tmp_path, "a.html", markup))).startswith(expected)


@pytest.mark.parametrize(
    ("charset", "encoding", "text"),
    [
        ('<meta charset="windows-1251">', "cp1251", "Привет"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=Shift_JIS">', "shift_jis", "データ"),
        ("<meta charset=gb2312>", "gb18030", "數據庫"),
        ("<meta charset=iso-8859-1>", "cp1252", "café “x”"),
        ("<meta charset=iso-8859-5>", "utf-16", "Привет"),
        ("<meta charset=unicode_escape>", "utf-8", "Привет"),
        ("<meta charset=nonsense>", "utf-8", "Привет"),
        ("<meta charset=ascii>", "utf-8", "Привет"),
    ],
)
def test_a_page_is_read_in_the_character_set_it_declares_when_that_fits(tmp_path, charset, encoding, text):
    found = document(only(write(tmp_path, "a.html", f"{charset}<p>{text}".encode(encoding))))

    assert (found.text, found.notes) == (text, ())


# Text, PDF and DOCX.


@pytest.mark.parametrize("name", ["notes.txt", "notes.text", "notes.LOG", "notes.rst"])
def test_a_text_file_is_titled_by_its_name(tmp_path, name):
    found = document(only(write(tmp_path, name, "\nhello\n")))

    assert (found.id, found.title, found.text, found.metadata) == (name, "notes", "hello", {})


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gbk"])
def test_a_text_file_is_read_in_the_usual_encodings(tmp_path, encoding):
    assert document(only(write(tmp_path, "a.txt", "数据库 café".encode(encoding)))).text == "数据库 café"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "the file is empty"),
        (b" \n", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (b"ab\xff\xff", "the byte at offset 2 of the file is not UTF-8, and GB18030 does not fit; save it as UTF-8"),
        (b"\xff\xfea\x00b", "the file starts as UTF-16, but the byte at offset 4 is not; save it as UTF-8"),
    ],
)
def test_a_text_file_that_cannot_be_read_says_why(tmp_path, content, expected):
    assert reason(only(write(tmp_path, "a.txt", content))) == expected


def test_a_wrong_byte_far_into_a_csv_is_named_by_its_offset(tmp_path, monkeypatch):
    monkeypatch.setattr(text_cleaning, "_CHUNK_BYTES", 4)

    assert reason(only(write(tmp_path, "a.csv", "text\n数据".encode() + b"\xff\n"))).startswith(
        "the byte at offset 11 "
    )


def test_a_file_too_large_for_one_piece_is_rejected_unread(tmp_path):
    for name, limit in (("a.txt", "it has more than 2,000,000 characters"), ("a.html", "larger than 256 MB")):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 30)

        assert reason(only(tmp_path / name)).startswith(limit)


@pytest.fixture
def convert(monkeypatch) -> Iterator[types.SimpleNamespace]:
    """A stand-in for the optional converter, whose answer the test sets."""

    def answer(source: SourceFile) -> object:
        if isinstance(stand_in.answer, Exception):
            raise stand_in.answer
        return stand_in.answer

    stand_in = types.SimpleNamespace(answer=None)
    monkeypatch.setattr(office_readers, "docx_converter", lambda: answer)
    return stand_in


def test_a_pdf_and_a_docx_are_converted(tmp_path):
    paragraph = "<w:p><w:r><w:t>Refunds take five days.</w:t></w:r></w:p>"
    write(tmp_path, "paper.pdf", DATA["pdf"](DATA["text_on_page"]("Refunds take five days.")))
    write(tmp_path, "paper.docx", DATA["word"](paragraph))

    found = [document(item) for item in read_paths([tmp_path])]

    assert [(one.id, one.title, one.text) for one in found] == [
        ("paper.docx", "paper", "Refunds take five days."),
        ("paper.pdf", "paper", "Refunds take five days."),
    ]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("  ", "no text in it; if its pages are pictures, run text recognition (OCR) first"),
        (None, "no text in it; if its pages are pictures, run text recognition (OCR) first"),
        (RuntimeError("bad\nxref"), "cannot be converted to text: bad xref"),
        (KeyError(), "cannot be converted to text: KeyError"),
    ],
)
def test_a_docx_that_cannot_be_converted_says_why(tmp_path, convert, answer, expected):
    convert.answer = answer

    (item,) = read_here(write(tmp_path, "a.docx", b"PK\x03\x04"))
    assert reason(item) == expected


def test_a_limit_is_told_whatever_a_parser_says_when_it_then_cleans_up(tmp_path, convert):
    convert.answer = ValueError("I/O operation on closed file.")
    convert.answer.__context__ = MemoryError()

    with pytest.raises(MemoryError):  # which ends the process that reads, and is told as its limit
        read_here(write(tmp_path, "a.docx", b"PK\x03\x04"))


def test_a_docx_that_unpacks_to_more_than_the_memory_holds_is_not_unpacked(tmp_path, convert, monkeypatch):
    convert.answer = "never asked"
    monkeypatch.setattr(office_readers, "MAX_WHOLE_FILE_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "a.docx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * ((1 << 20) + 1))

    (item,) = read_here(tmp_path / "a.docx")
    assert reason(item) == "it unpacks to more than 1 MB; split it"


def test_a_file_that_came_by_name_and_content_is_read_like_one_on_disk(tmp_path):
    for name, content in {
        "a.md": "---\nteam: red\n---\n# One\n\ntext",
        "a.csv": "text\none\ntwo\n",
        "a.JSON": "[",
    }.items():
        on_disk = list(read_paths([write(tmp_path, name, content)]))
        came = list(read_upload(name, content.encode()))

        assert came == [replace(item, where=item.where.removeprefix(f"{tmp_path.as_posix()}/")) for item in on_disk]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.pdf", b"words"), ("a.docx", b"words"), ("b.pdf", b"%PDF-1.7 junk"), ("b.docx", b"PK\x03\x04junk")],
)
def test_a_damaged_file_is_not_taken_for_plain_text(tmp_path, name, content):
    assert re.match(r"damaged|cannot be converted|no text in it", reason(only(write(tmp_path, name, content))))


def test_without_the_libraries_a_file_says_what_to_install(tmp_path, monkeypatch):
    for name in ("markitdown", "markitdown.converters._pdf_converter", "pptx", "openpyxl"):
        monkeypatch.setitem(sys.modules, name, None)
    office_readers.docx_converter.cache_clear()

    for ending in (".pdf", ".docx", ".pptx", ".xlsx"):
        (item,) = read_here(write(tmp_path, f"a{ending}", b"%PDF-1.7" if ending == ".pdf" else b"PK\x03\x04"))
        assert reason(item) == f"reading {ending} needs: {install_command('docs')}"
    (item,) = read_here(write(tmp_path, "b.docx", b""))
    assert reason(item) == "the file is empty"


# Folders and paths.


def test_a_folder_is_read_recursively_in_the_order_of_its_paths(tmp_path):
    for name in (
        "b/z.txt",
        "b/a/x.md",
        "b.txt",
        "a.txt",
        "B.txt",
        ".hidden.txt",
        ".git/c.txt",
        "b/.x.txt",
        "b/pic.png",
    ):
        write(tmp_path, name, "words")

    items = [document(item) for item in read_paths([tmp_path])]

    assert [item.id for item in items] == ["B.txt", "a.txt", "b.txt", "b/a/x.md", "b/z.txt"]
    assert items[3].where == f"{tmp_path}/b/a/x.md"


def test_a_file_named_directly_is_called_by_its_name_and_may_be_hidden(tmp_path):
    path = write(tmp_path, "deep/er/.notes.txt", "words")

    assert document(only(path)).id == ".notes.txt"


def test_an_unknown_ending_is_reported_only_when_the_file_was_named(tmp_path):
    picture = write(tmp_path, "pic.png", b"\x89PNG")
    write(tmp_path, "a.txt", "words")

    assert reason(only(picture)).startswith('the ending ".png" is unknown; known endings: .csv .docx .eml .htm')
    assert document(only(tmp_path)).id == "a.txt"


def test_a_folder_with_nothing_to_read_says_so(tmp_path):
    write(tmp_path, "pic.png", b"\x89PNG")

    assert reason(only(tmp_path)).startswith("no file to read in this folder")


def test_paths_that_cannot_be_read_are_rejected_one_by_one_and_the_others_go_on(tmp_path):
    good = write(tmp_path, "good.txt", "words")
    broken = tmp_path / "broken.txt"
    broken.symlink_to(tmp_path / "gone.txt")
    itself = tmp_path / "self.txt"
    itself.symlink_to(itself)
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)

    items = list(read_paths([tmp_path / "gone.txt", tmp_path / "gone", broken, itself, pipe, Path("a\0b.txt"), good]))

    assert [reason(item) for item in items[:6]] == [
        "does not exist",
        "does not exist",
        "a broken link: what it points to does not exist",
        "cannot be read: Too many levels of symbolic links",
        "not a regular file",
        "not a valid path",
    ]
    assert document(items[6]).text == "words"


def test_links_in_a_folder_are_followed_to_files_in_it_but_not_to_folders_nor_out_of_it(tmp_path):
    secret = write(tmp_path, "elsewhere/secret.txt", "secret")
    target = write(tmp_path, "folder/.data/target.txt", "words")
    folder = tmp_path / "folder"
    (folder / "a_loop").symlink_to(folder)
    (folder / "b_broken").symlink_to(tmp_path / "gone")
    (folder / "c_link.txt").symlink_to(target)
    (folder / "d_out.txt").symlink_to(secret)

    loop, broken, link, out = read_paths([folder])

    assert loop.where == f"{folder}/a_loop"
    assert reason(loop) == "a link to a folder, which is not followed; give that folder itself"
    assert reason(broken) == "a broken link: what it points to does not exist"
    assert (document(link).id, document(link).text) == ("c_link.txt", "words")
    assert reason(out) == "a link to a file outside this folder, which is not followed; give that file itself"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_one_may_not_read_is_rejected_and_the_rest_is_read(tmp_path):
    for name in ("a.jsonl", "b.pdf", "c/x.txt", "d.txt"):
        write(tmp_path, name, "words")
    for name in ("a.jsonl", "b.pdf", "c"):
        (tmp_path / name).chmod(0)

    try:
        items = list(read_paths([tmp_path]))
    finally:
        (tmp_path / "c").chmod(0o700)

    assert [reason(item) for item in items[:3]] == ["no permission to read it"] * 3
    assert document(items[3]).id == "d.txt"


def test_a_file_name_that_is_not_unicode_becomes_a_storable_id(tmp_path):
    name = b"caf\xe9.txt"
    with open(os.fsencode(tmp_path) + b"/" + name, "wb") as file:
        file.write(b"words")

    found = document(only(tmp_path))

    assert (found.id, found.where) == ("caf\ufffd.txt", f"{tmp_path}/caf\ufffd.txt")


# Progress.


def test_progress_adds_up_to_the_size_of_all_files_whatever_becomes_of_them(tmp_path):
    write(tmp_path, "a.jsonl", '{"text": "a"}\nbroken\n\n')
    write(tmp_path, "b.csv", "text\n" + "words\n" * 5000)
    write(tmp_path, "c.csv", "no,header\n1,2\n")
    write(tmp_path, "d.md", "# d")
    write(tmp_path, "e.json", "[")
    write(tmp_path, "f.png", b"not read")
    write(tmp_path, "g.jsonl", '{"text": "a"}\n'.encode("utf-16"))
    consumed: list[int] = []

    items = list(read_paths([tmp_path, "-", tmp_path / "gone.txt"], stdin=io.BytesIO(b"{}"), progress=consumed.append))

    assert len(items) == 2 + 5000 + 1 + 1 + 1 + 1 + 1 + 1
    assert input_bytes([tmp_path, "-", tmp_path / "gone.txt"]) == 22 + 30005 + 14 + 3 + 1 + 30
    assert sum(consumed) == 22 + 30005 + 14 + 3 + 1 + 30 + 2
    assert len([size for size in consumed if size]) > 7


def test_an_interrupt_is_not_taken_for_bad_input():
    class Interrupted(io.BytesIO):
        def readline(self, _size: int | None = -1) -> bytes:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(read_paths(["-"], stdin=Interrupted()))


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", " JavaScript:alert(1)", "java\nscript:x", "data:text/html,x", "vbscript:x"]
)
def test_a_url_that_is_code_is_left_out_and_said_to_be(url: str):
    read_one = document(read_record({"id": "a", "text": "body", "url": url}, "w"))
    assert (read_one.url, read_one.text) == (None, "body")
    assert "its url was left out: it is code, not an address" in read_one.notes


# Hostile files.


@pytest.fixture
def sandbox(monkeypatch) -> Iterator[Sandbox]:
    """One with limits that hostile files reach soon; how long is waited is not among them on a busy machine."""
    sandbox = Sandbox(1, ProcessLimits(memory_bytes=600 << 20, cpu_s=2, wait_s=200, output_bytes=2_000_000))
    monkeypatch.setattr("retrievers.ingest.readers.file_input.SANDBOX", sandbox)
    yield sandbox
    sandbox.close()


@pytest.mark.slow
def test_hostile_files_cost_no_others(tmp_path, sandbox):
    hostile = dict(DATA["hostile_files"](0.0005))
    for name, content in hostile.items():
        write(tmp_path, f"{name}/{name}", content)
        write(tmp_path, f"{name}/good.md", f"# Good\n\nBeside {name}.")

    items = list(read_paths([tmp_path]))

    lost = [item for item in items if isinstance(item, RejectedItem) and "good.md" in item.where]
    assert lost == []
    good = [item.text for item in items if isinstance(item, Document) and item.id.endswith("good.md")]
    assert good == [f"# Good\n\nBeside {name}." for name in sorted(hostile)]
    assert len(hostile) > 100
    assert {Path(re.split(r"[:#\[]", item.where)[0]).name for item in items} == {"good.md", *hostile}


@pytest.mark.parametrize(
    ("name", "content", "limit"),
    [
        (
            "memory.pdf",
            lambda: DATA["pdf"](DATA["deflated"](b" ", 300_000_000), filters="/Filter /FlateDecode"),
            "600 MiB of memory",
        ),
        ("words.pdf", lambda: DATA["pdf"](DATA["text_on_page"]("word") * 50_000), "2 s of processor time"),
        (
            "paragraphs.docx",
            lambda: DATA["word"]("<w:p><w:r><w:t>word</w:t></w:r></w:p>" * 100_000),
            "2 s of processor time",
        ),
    ],
)
def test_a_hostile_file_is_refused_by_the_limit_that_it_reaches(tmp_path, sandbox, name, content, limit):
    if "memory" in limit:
        sandbox._limits = replace(sandbox._limits, cpu_s=60)

    (item,) = read_paths([write(tmp_path, name, content())])

    assert reason(item) == f"reading it takes more than {limit}; split it"
