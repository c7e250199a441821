"""Texts that are made to be slow: what reading them costs grows with their length, not with its square."""

from collections.abc import Callable
from io import BytesIO

import pytest

from retrievers.ingest.readers.file_readers import READERS, reject_on_error
from retrievers.ingest.readers.html import read_page
from retrievers.ingest.readers.source_file import SourceFile
from retrievers.testing import processor_s
from retrievers.text.analysis import analyse
from retrievers.text.languages import detect_language

SMALL, LARGE = 8_000, 64_000


def is_linear(work: Callable[[str], object], make: Callable[[int], str]) -> bool:
    """Return whether eight times the text costs at most 32 times as much. A square would take 64 times as long."""
    small, large = make(SMALL), make(LARGE)
    work(small)
    return processor_s(lambda: work(large)) < 32 * max(processor_s(lambda: work(small)), 0.005)


def times(piece: str, *, before: str = "", behind: str = "") -> Callable[[int], str]:
    return lambda length: before + piece * (length // len(piece)) + behind


UNFINISHED = ["<", "<a", "<a ", '<a b="', "<a b='c ", "<meta", "</", "</a", "</ ", "<!", "<!--", "<?", "<![CDATA["]


@pytest.mark.parametrize("behind", ["", ">", "'>", '">', "-->", '<a c="'])
@pytest.mark.parametrize(
    "piece",
    [*UNFINISHED, "<!-- --!>", "<!-->", "<![CDATA[>", "<a \" b=\">\"", "<a b=>", "<script>", "<script>x</script "],
)  # fmt: skip
def test_markup_that_does_not_end_is_read_in_linear_time(piece: str, behind: str):
    assert is_linear(read_page, times(piece, behind=behind))


def test_open_elements_are_closed_in_linear_time():
    assert is_linear(read_page, lambda length: "<svg><nav>" * (length // 20) + "</p></style>" * (length // 24))


@pytest.mark.parametrize(
    ("before", "piece", "behind"),
    [
        ("width:", "1", "!"),
        ("overflow:hidden;width:", ".1", "!"),
        ("position:absolute;left:", "1", "x1"),
        ("font-size:", "1px", "!"),
        ("color:a", " ", "b"),
        ("color:a", " !", "b"),
        ("clip-path:inset(50%", " ,", "x"),
        ("color:rgb(0,0,0,", "0", "x)"),
    ],
)
def test_styles_are_read_in_linear_time(before: str, piece: str, behind: str):
    style = times(piece, before=f'<p style="position:fixed;{before}', behind=f'{behind}">x</p>')
    assert is_linear(read_page, style)


@pytest.mark.parametrize(
    "make",
    [
        times(" ", before="# a", behind="b"),
        times("\t", before="# a", behind="b"),
        times(" #", before="# a", behind="b"),
        times("a, ", before="---\ntags: [", behind="]\n---\ntext"),
        times("[", before="---\na: ", behind="\n---\ntext"),
        times("- ", before="---\n", behind="\n---\ntext"),
    ],
    ids=["spaces", "tabs", "signs", "tags", "lists", "dashes"],
)
def test_markdown_is_read_in_linear_time(make: Callable[[int], str]):
    def read(text: str) -> None:
        file = BytesIO(text.encode())
        source = SourceFile(file, "a.md", "a", "a", ".md", len(text))
        list(reject_on_error("a.md", READERS[".md"](source, lambda size: None)))

    assert is_linear(read, make)


def test_a_language_is_detected_in_spite_of_many_marks():
    assert is_linear(
        lambda text: detect_language(text), lambda length: "the e" + "\u0316\u0301" * (length // 32) + " is of a"
    )
    assert detect_language("ça va" + "\u0316\u0301" * 500 + " est dans le jardin avec nous") == "fr"


@pytest.mark.parametrize(
    "text", ["PEP 703 and getUserName, utf8 of rtm-prod", "量子纠缠和机器学习的研究 PEP 703", "데이터"]
)
def test_terms_without_derived_ones_are_the_other_terms(text: str):
    assert analyse(text, "en", derived=False) == [term for term in analyse(text, "en") if not term.derived]
