"""What each passage carries of its document: enough to be found by it, never so much that long documents multiply."""

import pytest

from retrievers.core.errors import BadDocument
from retrievers.ingest.documents import MAX_TITLE_CHARACTERS, Document
from retrievers.ingest.preparation import MAX_DOCUMENT_BYTES, PreparedDocument, check_document, prepare
from retrievers.ingest.readers.record import read_record
from retrievers.text import bm25


def prepared(**record: object) -> PreparedDocument:
    document = read_record({"id": "x", **record}, "here")
    assert isinstance(document, Document)
    check_document(document)
    return prepare(document, {}, b"")


TEXT = "The harbour crane is repaired on Tuesday. " * 500


def test_a_long_title_and_a_long_heading_leave_room_for_the_passage_in_what_is_embedded():
    made = prepared(title="title " * 1000, text="# " + "heading " * 60_000 + "\n\n" + TEXT)

    cranes = [passage for passage in made.passages if "crane" in passage.text]
    assert len(cranes) > 5
    assert max(len(passage.embedded) - len(passage.text) for passage in cranes) <= 2 * 513
    assert all(passage.embedded.startswith("title title") for passage in cranes)
    assert max(len(passage.heading) for passage in made.passages) <= 512


def test_a_title_without_a_text_is_embedded_whole():
    title = "title " * 1000

    assert [passage.embedded for passage in prepared(title=title).passages] == [title.strip()]


def test_a_title_over_the_limit_is_refused_with_the_limit():
    with pytest.raises(BadDocument, match="the title has 8,001 characters; the limit is 8,000"):
        prepared(title="t" * (MAX_TITLE_CHARACTERS + 1), text=TEXT)


def field_terms(made: PreparedDocument) -> list[int]:
    """How many terms each passage has of the fields beside its text."""
    return [sum(all(label != "D" for _, label in places) for places in one.lexemes.values()) for one in made.passages]


def test_the_fields_of_a_document_add_a_limited_number_of_terms_to_all_its_passages_together(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(bm25, "MOST_FIELD_TERMS", 1000)
    fields = {"important": [f"word{n}" for n in range(900)], "questions": [f"ask{n}" for n in range(900)]}

    short, long = prepared(text="The harbour crane.", **fields), prepared(text=TEXT * 5, **fields)

    assert field_terms(short) == [1000]
    assert len(long.passages) > 20
    assert min(field_terms(long)) > 0
    assert sum(field_terms(long)) <= 1000


@pytest.mark.parametrize("name", ["important", "questions"])
def test_a_document_over_the_limit_is_refused_with_the_limit(name: str):
    room = MAX_DOCUMENT_BYTES - len("xA{}")

    assert prepared(text="A", **{name: ["p" * room]})
    with pytest.raises(BadDocument, match="it has 8,388,609 bytes; the limit of a document is 8 MiB: split it"):
        prepared(text="A", **{name: ["p" * (room - 2), "中"]})
