"""Files that libraries read: what becomes of their pages, slides and sheets, and where each passage stands."""

import io
import re
import runpy
from datetime import date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from markitdown import StreamInfo
from markitdown.converters import PdfConverter
from openpyxl import Workbook
from pptx import Presentation
from pptx.util import Inches

from retrievers.core.file_positions import FilePositions, describe_positions, first_page, positions_from_json
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.preparation import prepare
from retrievers.ingest.readers import file_readers
from retrievers.ingest.readers.source_file import SourceFile

DATA: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("data_files.py")))


def read_bytes(name: str, content: bytes) -> list[Document | RejectedItem]:
    """The items of a file, read in this process."""
    path = Path(name)
    source = SourceFile(io.BytesIO(content), name, name, path.stem, path.suffix, len(content))
    return [item for _, item in file_readers.read_source(source)]


def only(name: str, content: bytes) -> Document:
    (item,) = read_bytes(name, content)
    assert isinstance(item, Document), item
    return item


def reason(name: str, content: bytes) -> str:
    (item,) = read_bytes(name, content)
    assert isinstance(item, RejectedItem), item
    return item.reason


def page(*lines: str) -> bytes:
    """The content of a page with these lines."""
    shown = " 0 -20 Td ".join(f"({line}) Tj" for line in lines)
    return f"BT /F1 12 Tf 72 720 Td {shown} ET ".encode()


def table_page(*rows: tuple[str, ...]) -> bytes:
    """The content of a page with columns that stand apart, which is read as a table."""
    cells = [
        f"BT /F1 10 Tf {72 + 150 * column} {720 - 20 * row} Td ({cell}) Tj ET "
        for row, line in enumerate(rows)
        for column, cell in enumerate(line)
    ]
    return "".join(cells).encode()


ROWS = [(f"item{n}", f"{n}", f"{n * 2}") for n in range(12)]


# Places.


def test_a_passage_has_the_places_it_touches_and_at_least_that_of_its_start():
    places = FilePositions("page", ((0, 1), (10, 2), (25, 4)))

    assert places.covering(0, 5) == FilePositions("page", ((0, 1),))
    assert places.covering(12, 25) == FilePositions("page", ((10, 2),))
    assert places.covering(12, 26) == FilePositions("page", ((10, 2), (25, 4)))
    assert places.covering(30, 30) == FilePositions("page", ((25, 4),))


def test_what_stands_before_the_first_mark_belongs_to_it():
    assert FilePositions("page", ((7, 3), (9, 4))).covering(0, 8) == FilePositions("page", ((7, 3),))


def test_marks_move_with_the_text_and_a_part_without_text_has_none():
    assert FilePositions("slide", ((2, 1), (4, 2), (9, 3))).shifted(-4) == FilePositions("slide", ((0, 2), (5, 3)))


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([FilePositions("page", ((0, 3),))], "page 3"),
        ([FilePositions("page", ((0, 3),)), None, FilePositions("page", ((90, 3), (120, 5)))], "pages 3-5"),
        ([FilePositions("slide", ((0, 2), (9, 4)))], "slides 2-4"),
        ([FilePositions("row", ((0, 7),), "Prices")], "sheet Prices, row 7"),
        ([FilePositions("row", ((0, 7), (5, 12)), "Q1, net")], "sheet Q1, net, rows 7-12"),
        ([None], ""),
        ([], ""),
    ],
)
def test_places_are_said_in_words(places: list[FilePositions | None], said: str):
    assert describe_positions(places) == said


def test_only_pages_have_a_page_number():
    assert first_page([None, FilePositions("page", ((0, 3), (9, 4)))]) == 3
    assert first_page([FilePositions("slide", ((0, 3),))]) is None
    assert first_page([]) is None


def test_places_come_back_as_they_were_stored():
    for places in (FilePositions("page", ((0, 1), (10, 2))), FilePositions("row", ((0, 7),), "Prices")):
        assert positions_from_json(places.to_json()) == places
    assert positions_from_json(None) is None


# PDF.


@pytest.mark.parametrize(
    ("pages", "begin", "is_table"),
    [
        ([page("One."), page("Two.", "and more."), page("Three.")], [1, 2, 3], False),
        # A number alone on a line is joined with the next line, which may be on the next page.
        ([page(".1"), page("The first.", ".2", "The second."), page(".3"), page("The third.")], [2, 4], False),
        (
            [table_page(*ROWS), page("Between tables."), b"", table_page(*ROWS), page("The end.")],
            [1, 2, 4, 5],
            True,
        ),
        ([b"", page(".1"), table_page(*ROWS), b"", page("The end."), b""], [3, 5], True),
        ([b"", page("After an empty page.")], [2], False),
        ([page("Ends in space.  ", " ", "  ", "More. "), page(" ", "The second. ", " ")], [1, 2], False),
    ],
)
def test_a_pdf_reads_as_markitdown_reads_it_and_its_pages_are_known(
    pages: list[bytes], begin: list[int], is_table: bool
):
    content = DATA["pdf_pages"](*pages)
    whole = PdfConverter().convert(io.BytesIO(content), StreamInfo(extension=".pdf")).markdown

    found = only("paper.pdf", content)

    tidied = re.sub(r"\n{3,}", "\n\n", "\n".join(map(str.rstrip, whole.split("\n"))))
    assert found.text == tidied.replace("\f", "\n\n").rstrip().lstrip("\n")
    assert ("| item" in found.text) == is_table
    assert found.places is not None
    assert [number for _, number in found.places.marks] == begin


def test_lines_of_a_pdf_end_without_space_and_one_empty_line_stays_of_several():
    found = only("paper.pdf", DATA["pdf_pages"](page("One. ", " ", "  ", " ", "Two. ")))

    assert found.text == "One.\n\nTwo."


def test_the_words_of_a_page_stand_behind_its_mark():
    found = only("paper.pdf", DATA["pdf_pages"](page("alpha"), b"", page("beta", "gamma"), page("delta")))

    assert found.places is not None
    assert found.places.unit == "page"
    edges = [*found.places.marks, (len(found.text), 0)]
    texts = {number: found.text[at:after].split() for (at, number), (after, _) in pairwise(edges)}
    assert texts == {1: ["alpha"], 3: ["beta", "gamma"], 4: ["delta"]}


def test_a_number_that_is_joined_with_the_next_page_stays_on_a_page():
    found = only("paper.pdf", DATA["pdf_pages"](page("alpha", ".1"), page("beta"), page("gamma")))

    assert found.places is not None
    assert ".1 beta" in found.text
    at = found.text.index("gamma")
    assert describe_positions([found.places.covering(at, at + 5)]) == "page 3"


def test_a_scan_is_said_to_be_one():
    picture = DATA["PICTURE"]

    assert reason("scan.pdf", DATA["pdf_pages"](picture, picture)) == (
        "a scan: 2 pages without text, pictures only; run text recognition (OCR) first"
    )
    assert reason("empty.pdf", DATA["pdf_pages"](b"")) == (
        "no text in it; if its pages are pictures, run text recognition (OCR) first"
    )


def test_scanned_pages_among_others_are_noted():
    found = only("mixed.pdf", DATA["pdf_pages"](page("alpha"), DATA["PICTURE"], b"", DATA["PICTURE"]))

    assert found.text == "alpha"
    assert found.notes == (
        "pages 2, 4 are pictures without text, like a scan; run text recognition (OCR) first to make them searchable",
    )


def test_the_passages_of_a_document_know_their_pages():
    sentence = "The quick brown fox jumps over the lazy dog again and again. "

    def said(lines: int) -> list[str]:
        """The places of the passages, of up to 1,800 characters, of three pages with so many lines each."""
        found = only("long.pdf", DATA["pdf_pages"](*[page(*[sentence] * lines)] * 3))
        return [describe_positions([one.places]) for one in prepare(found, {}, b"").passages]

    assert said(6) == ["pages 1-3"]
    assert said(18) == ["page 1", "page 2", "page 3"]


# Slides.


def presentation() -> Any:
    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Refunds"
    slide.placeholders[1].text = "Refunds take five days.\nCards take longer."
    slide.placeholders[1].text_frame.paragraphs[1].level = 1
    slide.notes_slide.notes_text_frame.text = "Say it slowly."
    deck.slides.add_slide(deck.slide_layouts[6])
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Prices"
    table = slide.shapes.add_table(3, 2, Inches(1), Inches(2), Inches(4), Inches(1)).table
    for row, cells in enumerate([("Part", "Price"), ("Bolt", "2"), ("Nut", "")]):
        for column, cell in enumerate(cells):
            table.cell(row, column).text = cell
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, 10, 10).text_frame.text = "In a group"
    return deck


def saved(file: Any) -> bytes:
    data = io.BytesIO()
    file.save(data)
    return data.getvalue()


def test_a_shape_with_the_same_id_as_the_title_is_read():
    deck = presentation()
    shapes = deck.slides[0].shapes
    shapes[1]._element.nvSpPr.cNvPr.set("id", str(shapes.title.shape_id))

    found = only("talk.pptx", saved(deck))

    assert found.text.startswith("# Refunds\n\nRefunds take five days.\n  - Cards take longer.\n")


def test_slides_are_read_with_their_tables_notes_and_numbers():
    found = only("talk.pptx", saved(presentation()))

    first = "# Refunds\n\nRefunds take five days.\n  - Cards take longer.\n\nNotes:\nSay it slowly."
    assert found.text == f"{first}\n\n# Prices\n\nPart: Bolt; Price: 2\nPart: Nut\n\nIn a group"
    assert found.places == FilePositions("slide", ((0, 1), (len(first) + 2, 3)))
    assert (found.id, found.title, found.notes) == ("talk.pptx", "talk", ())


def test_the_properties_of_an_office_file_are_title_and_metadata():
    deck = presentation()
    deck.core_properties.title, deck.core_properties.author = "Handbook", "Ann Li"
    deck.core_properties.modified = datetime(2024, 5, 1, 12, 30)

    found = only("talk.pptx", saved(deck))

    assert (found.title, found.metadata) == ("Handbook", {"author": "Ann Li", "date": "2024-05-01"})


def test_a_hidden_slide_is_left_out_and_said_to_be():
    deck = presentation()
    deck.slides[0]._element.set("show", "0")

    found = only("talk.pptx", saved(deck))

    assert "Refunds" not in found.text
    assert found.notes == ("1 hidden slide left out",)


def test_a_presentation_without_text_says_so():
    deck = Presentation()
    deck.slides.add_slide(deck.slide_layouts[6])

    assert reason("talk.pptx", saved(deck)) == "no text on its slides"


# Sheets.


def workbook(**sheets: list[list[Any]]) -> bytes:
    book = Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    return saved(book)


PRICES = [
    ["Price list"],
    [],
    ["Part", "Price", "Since"],
    ["Bolt", 2.5, date(2024, 1, 31)],
    ["Nut", 3.0, None],
    [None, True],
]


def test_each_row_of_a_sheet_says_what_its_cells_are_and_knows_its_number():
    found = only("prices.xlsx", workbook(Prices=PRICES))

    lines = ["Price list", "Part: Bolt; Price: 2.5; Since: 2024-01-31", "Part: Nut; Price: 3", "Price: true"]
    assert found.text == "\n".join(lines)
    assert found.places == FilePositions("row", ((0, 1), (11, 4), (53, 5), (73, 6)), "Prices")
    assert (found.id, found.title) == ("prices.xlsx#Prices", "prices")


def test_a_workbook_of_several_sheets_is_a_document_for_each():
    items = read_bytes("book.xlsx", workbook(One=[["a", "b"], [1, 2]], Empty=[], Two=[["c", "d"], [3, 4]]))

    assert [(one.id, one.title, one.text) for one in items if isinstance(one, Document)] == [
        ("book.xlsx#One", "book: One", "a: 1; b: 2"),
        ("book.xlsx#Two", "book: Two", "c: 3; d: 4"),
    ]


def test_a_sheet_with_a_column_for_the_text_is_read_as_the_same_csv_is():
    rows = [["text", "id", "team", "priority", "public"], ["Refunds.", 7, "red", 2, "yes"], [None, 8, "blue", 3, None]]
    table = "text,id,team,priority,public\nRefunds.,7,red,2,yes\n,8,blue,3,\n"

    good, bad = read_bytes("faq.xlsx", workbook(Faq=rows))
    same, same_bad = read_bytes("faq.csv", table.encode())

    assert isinstance(good, Document)
    assert isinstance(same, Document)
    assert (good.id, good.text, good.metadata, good.public) == (same.id, same.text, same.metadata, same.public)
    assert good.metadata == {"team": "red", "priority": 2}
    assert good.places == FilePositions("row", ((0, 2),), "Faq")
    assert isinstance(bad, RejectedItem)
    assert isinstance(same_bad, RejectedItem)
    assert bad.reason == same_bad.reason
    assert bad.where == "faq.xlsx#Faq:3"


def test_a_sheet_without_a_header_is_read_as_it_is():
    found = only("numbers.xlsx", workbook(Data=[[1, 2], [3, None]]))

    assert found.text == "1; 2\n3"


def test_a_hidden_sheet_is_left_out_and_said_to_be():
    book = Workbook()
    book.active.append(["a", "b"])
    book.active.append([1, 2])
    hidden = book.create_sheet("Salaries")
    hidden.append(["secret", "more"])
    hidden.sheet_state = "veryHidden"

    found = only("book.xlsx", saved(book))

    assert found.id == "book.xlsx#Sheet"
    assert found.notes == ("1 hidden sheet left out",)


def test_a_sheet_with_much_text_becomes_parts_that_begin_at_a_row(monkeypatch):
    monkeypatch.setattr("retrievers.ingest.readers.sheets._PART_CHARACTERS", 20)

    items = read_bytes("book.xlsx", workbook(S=[["name", "of"], ["alpha", "one"], ["beta", "two"], ["gamma", "three"]]))

    assert [(one.id, one.text, one.places) for one in items if isinstance(one, Document)] == [
        ("book.xlsx#S", "name: alpha; of: one", FilePositions("row", ((0, 2),), "S")),
        ("book.xlsx#S#3", "name: beta; of: two", FilePositions("row", ((0, 3),), "S")),
        ("book.xlsx#S#4", "name: gamma; of: three", FilePositions("row", ((0, 4),), "S")),
    ]


def test_a_workbook_without_values_or_behind_a_password_says_so():
    assert reason("empty.xlsx", workbook(S=[])) == "no row with a value in its sheets"
    assert reason("locked.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)) == (
        "protected by a password, or in a format from before 2007; save it again without"
    )
