"""E-mails: what becomes of their text, their people and their attachments."""

import io
from email.message import EmailMessage

from openpyxl import Workbook

from retrievers.core.file_positions import FilePositions
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.readers import file_readers
from retrievers.ingest.readers.source_file import SourceFile


def read_mail(content: bytes) -> list[Document | RejectedItem]:
    """The items of a mail, read in this process."""
    source = SourceFile(io.BytesIO(content), "mail.eml", "mail.eml", "mail", ".eml", len(content))
    return [item for _, item in file_readers.read_source(source)]


def only(content: bytes) -> Document:
    (item,) = read_mail(content)
    assert isinstance(item, Document), item
    return item


def reason(content: bytes) -> str:
    (item,) = read_mail(content)
    assert isinstance(item, RejectedItem), item
    return item.reason


def prices() -> bytes:
    book, data = Workbook(), io.BytesIO()
    book.active.title = "Prices"
    for row in (["Part", "Price"], ["Bolt", 2], ["Nut", 3]):
        book.active.append(row)
    book.save(data)
    return data.getvalue()


def mail(subject: str = "Réponse: refunds", text: str = "Refunds take five days.\n") -> EmailMessage:
    message = EmailMessage()
    message["From"] = '"Ann Li" <ann@example.org>'
    message["To"] = "Bob <bob@example.org>, c@example.org"
    message["Subject"] = subject
    message["Date"] = "Wed, 01 May 2024 10:00:00 +0200"
    message.set_content(text)
    return message


def test_a_mail_is_its_subject_text_and_people():
    message = mail(text="Größe: 五天\n")
    message.add_alternative("<p>Not this one.</p>", subtype="html")

    found = only(bytes(message))

    assert (found.title, found.text) == ("Réponse: refunds", "Größe: 五天")
    assert found.metadata == {
        "author": "Ann Li",
        "sender": "ann@example.org",
        "to": ["Bob", "c@example.org"],
        "date": "2024-05-01T10:00:00+02:00",
    }


def test_a_mail_without_a_plain_part_is_the_visible_text_of_its_page():
    message = mail()
    message.set_content("<h1>Refunds</h1><p>Five <b>days</b>.</p><style>p {}</style>", subtype="html")

    assert only(bytes(message)).text == "# Refunds\n\nFive days."


def test_attachments_of_known_forms_are_documents_and_a_bad_one_costs_no_other():
    message = mail()
    message.add_attachment(prices(), maintype="application", subtype="x", filename="a/prices.xlsx")
    message.add_attachment(b"junk", maintype="application", subtype="pdf", filename="bad.pdf")
    message.add_attachment(b"\x89PNG", maintype="image", subtype="png", filename="pic.png")
    message.add_attachment(mail("An older mail", "Older.\n"))
    message.add_attachment("name,x\n", filename="no-text.csv")

    first, sheet, bad, older, table = read_mail(bytes(message))

    assert isinstance(first, Document)
    assert first.metadata["attachments"] == ["prices.xlsx", "bad.pdf", "pic.png", "An older mail.eml", "no-text.csv"]
    assert isinstance(sheet, Document)
    assert sheet.id == "mail.eml#prices.xlsx#Prices"
    assert sheet.places == FilePositions("row", ((0, 2), (21, 3)), "Prices")
    assert bad == RejectedItem("mail.eml#bad.pdf", None, "damaged, or not a .pdf file")
    assert isinstance(older, Document)
    assert (older.id, older.title, older.text) == ("mail.eml#An older mail.eml", "An older mail", "Older.")
    assert isinstance(table, RejectedItem)
    assert table.reason.startswith('no column "text"')
    assert not table.cut


def test_attachments_of_one_name_are_documents_of_their_own():
    message = mail()
    for text in ("Offer for boats.", "Offer for ropes."):
        message.add_attachment(f"{text}\n", filename="offer.txt")
    _, *offers = read_mail(bytes(message))
    assert [(one.id, one.text) for one in offers if isinstance(one, Document)] == [
        ("mail.eml#offer.txt", "Offer for boats."),
        ("mail.eml#offer (2).txt", "Offer for ropes."),
    ]


def test_mails_in_mails_are_read_three_deep():
    message = mail("0", "text 0\n")
    for depth in range(1, 7):
        outer = mail(str(depth), f"text {depth}\n")
        outer.add_attachment(message)
        message = outer

    items = read_mail(bytes(message))

    assert [one.text for one in items if isinstance(one, Document)] == ["text 6", "text 5", "text 4", "text 3"]


def test_what_is_no_mail_is_said_to_be_none():
    assert reason(b"just words\n") == "damaged, or not an e-mail: the usual headers are missing"
    assert reason(b"") == "the file is empty"


def test_headers_too_long_to_be_read_are_left_out():
    people = ", ".join(f"p{n} <p{n}@example.org>" for n in range(20_000))

    found = only(f"From: a@example.org\nTo: {people}\nSubject: Hello\n\nText.\n".encode())

    assert found.metadata == {"author": "a@example.org", "sender": "a@example.org"}
    assert found.text == "Text."


def test_a_mail_in_an_unknown_character_set_is_read_as_far_as_it_makes_sense():
    head = b"From: a@example.org\nSubject: =?nonsense?q?Hello?=\nContent-Type: text/plain; charset=nonsense\n\n"

    found = only(head + "Größe\n".encode())

    assert found.text == "Größe"
