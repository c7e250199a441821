"""What the documents of a collection are called, by their ids and titles."""

import pytest

from retrievers.text.document_ids import infer_document_nouns


def numbered(titles: list[str], beginning: str = "x") -> list[tuple[str, str]]:
    return [(f"{beginning}{place}", title) for place, title in enumerate(titles)]


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ([("pep-1", "Purpose"), ("pep-2", "Style"), ("pep-3", "Names")], ("pep",)),
        (numbered([f"Rope supply {n} contract {n}" for n in range(6)] + ["Paint contract"] * 6, "ctr-"), ("ctr",)),
        (
            numbered(
                [f"{maker} contract {n}" for n, maker in enumerate("Acorn Blue Coal Delta Elm".split() * 3)], "c-"
            ),
            ("contract",),
        ),
        (numbered([f"Annual report {n}: pump sales" for n in range(20)]), ("report",)),
        (numbered([f"The recipe for soup {n} without milk" for n in range(20)]), ("recipe",)),
        (numbered([f"Acme follow-up incident: failure {n}" for n in range(20)]), ("incident",)),
        (numbered([f"Minutes of the board, {n}" for n in range(20)]), ("minutes",)),
        (numbered([f"Café {n}" for n in range(20)]), ()),
        (numbered([f"Report {n}" for n in range(30)] + ["Annex"]), ("report",)),  # nearly all
        (numbered([f"Report {n}" for n in range(15)] + [f"Annex {n}" for n in range(15)]), ()),
        ([], ()),
    ],
)
def test_documents_are_called_what_most_ids_begin_with_and_nearly_all_titles_name(
    named: list[tuple[str, str]], words: tuple[str, ...]
):
    assert infer_document_nouns(named) == words
