"""What each passage carries of its document: enough to be found by it, never so much that long documents multiply."""

import pytest

from retrievers.core.errors import BadDocument
from retrievers.ingest.documents import MAX_TITLE_CHARACTERS, Document
from retrievers.ingest.preparation import PreparedDocument, check_document, prepare
from retrievers.ingest.readers.record import read_record


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
