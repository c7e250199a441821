"""Read PDF, Office files and e-mail into documents with the positions of pages, slides or rows in their text."""

import functools
import io
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from retrievers.core.errors import BadDocument
from retrievers.core.file_positions import FilePositions, Unit
from retrievers.core.optional_dependencies import install_command
from retrievers.ingest.documents import RejectedItem
from retrievers.ingest.readers.csv_table import Item, Progress, typed_cell
from retrievers.ingest.readers.mail import read_mail
from retrievers.ingest.readers.pdf import PdfText, read_pdf
from retrievers.ingest.readers.record import build_document, read_record, rejected_item
from retrievers.ingest.readers.sheets import SheetRow, Workbook, json_value
from retrievers.ingest.readers.slides import read_slides
from retrievers.ingest.readers.source_file import SourceFile
from retrievers.ingest.readers.text_cleaning import Cleaner
from retrievers.text.prompt_sanitising import is_blank

MAX_WHOLE_FILE_BYTES = 256 << 20
"""Maximum size in bytes of a file that is read in one piece; JSONL and CSV may have any size."""

_ARCHIVE, _OLD_OFFICE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
_SIGNATURES = {".pdf": b"%PDF-", ".docx": _ARCHIVE, ".pptx": _ARCHIVE, ".xlsx": _ARCHIVE}
_SIGNATURE_WITHIN_BYTES = 1024
_MOST_NAMED = 10
_DEEPEST_MAIL = 3
"""Maximum nesting of e-mails attached to e-mails."""
_MOST_ATTACHED_BYTES = 64 << 20

Readers = Mapping[str, Callable[[SourceFile, Progress], Iterator[Item]]]


def read_whole_file(source: SourceFile) -> bytes:
    """Return the content of a file.

    Raises:
        BadDocument: it is too large to be read in one piece.
    """
    data = source.file.read(MAX_WHOLE_FILE_BYTES + 1) if source.size_bytes <= MAX_WHOLE_FILE_BYTES else None
    if data is None or len(data) > MAX_WHOLE_FILE_BYTES:
        raise BadDocument(f"larger than {MAX_WHOLE_FILE_BYTES >> 20} MB; split it, or use JSON Lines (.jsonl) or CSV")
    return data


def read_pdf_document(source: SourceFile, _count: Progress) -> Iterator[Item]:
    """Yield the document of a PDF, or a `RejectedItem` if it contains pictures and no text."""
    with _checked_conversion(source):
        found = extract_pdf_text(source)
    if is_blank(found.text):
        if found.pictures:
            reason = f"a scan: {_pages(found.pages)} without text, pictures only; {_RECOGNISE}"
            yield replace(rejected_item(source.where, None, reason, cut=True), scanned=len(found.pictures))
            return
        raise BadDocument(f"no text in it; if its pages are pictures, {_RECOGNISE}")
    made = _build_with_positions(source, {}, found.text, "page", found.marks, notes=_scan_notes(found))
    yield replace(made, scanned=len(found.pictures))


_RECOGNISE = "run text recognition (OCR) first"


def extract_pdf_text(source: SourceFile) -> PdfText:
    """Return the text of a PDF, with the position at which each page begins in it."""
    return read_pdf(source.file)


def _scan_notes(found: PdfText) -> tuple[str, ...]:
    if not found.pictures:
        return ()
    listed = ", ".join(map(str, found.pictures[:_MOST_NAMED])) + (", …" if len(found.pictures) > _MOST_NAMED else "")
    which = f"page {listed} is a picture" if len(found.pictures) == 1 else f"pages {listed} are pictures"
    return (f"{which} without text, like a scan; {_RECOGNISE} to make them searchable",)


def _pages(count: int) -> str:
    return "a page" if count == 1 else f"{count:,} pages"


def read_word_document(source: SourceFile, _count: Progress) -> Iterator[Item]:
    """Yield the document of a DOCX."""
    with _checked_conversion(source):
        text = docx_converter()(source)
    if not isinstance(text, str) or is_blank(text):
        raise BadDocument(f"no text in it; if its pages are pictures, {_RECOGNISE}")
    yield build_document({}, source.where, text=text, id=source.id, title=source.title)


def read_slides_document(source: SourceFile, _count: Progress) -> Iterator[Item]:
    """Yield the document of a PPTX."""
    with _checked_conversion(source):
        found = read_slides(source.file)
    text, marks = "", []
    for number, said in found.texts:
        if not is_blank(said):
            text += "\n\n" * bool(text)
            marks.append((len(text), number))
            text += said
    if not text:
        raise BadDocument("no text on its slides")
    given = {**found.properties.metadata, "title": found.properties.title}
    yield _build_with_positions(source, given, text, "slide", tuple(marks), notes=_hidden_note(found.hidden, "slide"))


def read_workbook_documents(source: SourceFile, _count: Progress) -> Iterator[Item]:
    """Yield the documents of an XLSX: one per sheet, or one per row of a sheet that has a text column."""
    count = 0
    with _checked_conversion(source), closing(Workbook(source.file)) as book:
        said = book.properties
        notes = _hidden_note(book.hidden, "sheet")
        for part in book.read():
            count += 1
            if isinstance(part, SheetRow):
                yield _row_document(part, source, notes)
                continue
            title = said.title or source.title
            title = f"{title}: {part.sheet}" if len(book.names) > 1 else title
            id = f"{source.id}#{part.sheet}" + (f"#{part.first_row}" if part.first_row else "")
            where = replace(source, where=f"{source.where}#{part.sheet}", id=id)
            text = "\n".join(part.lines)
            given = {**said.metadata, "title": title}
            yield _build_with_positions(where, given, text, "row", tuple(part.marks), sheet=part.sheet, notes=notes)
    if not count:
        raise BadDocument("no row with a value in its sheets")


def read_mail_documents(source: SourceFile, readers: Readers, depth: int = 0) -> Iterator[Item]:
    """Yield the document of an e-mail, then the documents of its attachments of known formats.

    Args:
        readers: file name ending to the reader of that format.
        depth: number of e-mails that this one is attached to, one inside the other.
    """
    data = read_whole_file(source)
    if not data:
        raise BadDocument("the file is empty")
    mail = read_mail(data)
    given = {**mail.metadata, "title": mail.subject}
    yield build_document(given, source.where, text=mail.text, id=source.id, title=source.title, notes=mail.notes)
    names: Counter[str] = Counter()
    for attachment in mail.attachments:
        name = PurePosixPath(attachment.name)
        names[str(name)] += 1
        if (nth := names[str(name)]) > 1:
            name = name.with_name(f"{name.stem} ({nth}){name.suffix}")
        ending = name.suffix.lower()
        if ending not in readers:
            continue
        content, where = attachment.data, f"{source.where}#{name}"
        if content is None or len(content) > _MOST_ATTACHED_BYTES:
            yield rejected_item(where, None, "damaged" if content is None else "an attachment of more than 64 MB")
            continue
        inner = SourceFile(io.BytesIO(content), where, f"{source.id}#{name}", name.stem, ending, len(content))
        if ending != ".eml":
            yield from _attachment_items(readers[ending](inner, lambda _size: None), where)
        elif depth < _DEEPEST_MAIL:
            yield from _attachment_items(read_mail_documents(inner, readers, depth + 1), where)


def _attachment_items(items: Iterator[Item], where: str) -> Iterator[Item]:
    """Yield the documents of an attachment. An error ends this attachment only, as a `RejectedItem`."""
    try:
        for item in items:
            yield replace(item, cut=False) if isinstance(item, RejectedItem) else item
    except (BadDocument, UnicodeDecodeError) as error:
        yield rejected_item(where, None, str(error))


def _build_with_positions(
    source: SourceFile, given: Mapping[str, Any], text: str, unit: Unit, marks: tuple[tuple[int, int], ...], *,
    sheet: str = "", notes: tuple[str, ...] = (),
) -> Item:  # fmt: skip
    """Build a document from the text of a file, with the positions of its pages, slides or rows.

    The text is cleaned, which changes lengths, so the positions are converted to offsets in the cleaned text.

    Args:
        given: metadata that the file states, such as title and author.
        unit: what `marks` counts: pages, slides or rows.
        marks: (offset, number from 1) of the start of each page, slide or row in `text`.
        sheet: name of the sheet; "" for pages and slides.
    """
    cleaner = Cleaner()
    edges = [0, *(at for at, _ in marks), len(text)]
    pieces = [cleaner.clean_text(text[start:end]) for start, end in pairwise(edges)]
    moved, at = [], len(pieces[0])
    for (_, number), piece in zip(marks, pieces[1:], strict=True):
        moved.append((at, number))
        at += len(piece)
    return build_document(
        given, source.where, text="".join(pieces), id=source.id, title=source.title, notes=notes, cleaner=cleaner,
        places=FilePositions(unit, tuple(moved), Cleaner().clean_text(sheet)) if moved else None,
    )  # fmt: skip


def _row_document(part: SheetRow, source: SourceFile, notes: tuple[str, ...]) -> Item:
    """Build a document from a row of a sheet, in the same way as from a row of a CSV file."""
    where = f"{source.where}#{part.sheet}:{part.row}"
    try:
        record = {name: typed_cell(name, json_value(cell)) for name, cell in part.cells.items()}
    except BadDocument as error:
        return rejected_item(where, None, str(error))
    return read_record(
        record, where, notes=notes, places=FilePositions("row", ((0, part.row),), Cleaner().clean_text(part.sheet))
    )


def _hidden_note(count: int, unit: str) -> tuple[str, ...]:
    return (f"{count:,} hidden {unit}{'' if count == 1 else 's'} left out",) if count else ()


@contextmanager
def _checked_conversion(source: SourceFile) -> Iterator[None]:
    """Check the file's format; inside the block, turn any error of a library into a `BadDocument` with its cause."""
    if not source.size_bytes:
        raise BadDocument("the file is empty")
    head = source.file.read(_SIGNATURE_WITHIN_BYTES)
    if _SIGNATURES[source.ending] not in head:
        if _SIGNATURES[source.ending] == _ARCHIVE and head.startswith(_OLD_OFFICE):
            raise BadDocument("protected by a password, or in a format from before 2007; save it again without")
        raise BadDocument(f"damaged, or not a {source.ending} file")
    source.file.seek(0)
    if _SIGNATURES[source.ending] == _ARCHIVE:
        _check_unpacked_size(source)
        source.file.seek(0)
    try:
        yield
    except BadDocument:
        raise
    except ImportError as error:
        raise BadDocument(f"reading {source.ending} needs: {install_command('docs')}") from error
    # Damaged and protected files make the parsers raise almost anything.
    except Exception as error:
        causes = [attempt.exc_info[1] for attempt in getattr(error, "attempts", ())] or [error]
        for cause in causes:
            if (limit := _limit_error(cause)) is not None:
                raise limit from None
        raise BadDocument(f"cannot be converted to text: {str(causes[0]) or type(causes[0]).__name__}") from error


def _limit_error(error: BaseException | None) -> BaseException | None:
    """Return the memory or recursion error that caused an error, None if there is none.

    A parser's clean-up after a memory or recursion error can raise another error ("closed file"). `error` is then that.
    """
    while error is not None and not isinstance(error, MemoryError | RecursionError):
        error = error.__cause__ or error.__context__
    return error


def _check_unpacked_size(source: SourceFile) -> None:
    """Refuse an archive that unpacks to more than MAX_WHOLE_FILE_BYTES: a few kilobytes could fill the memory.

    The sizes that the archive states are enough, because no part of it is unpacked beyond its stated size.
    """
    try:
        with zipfile.ZipFile(source.file) as archive:
            size = sum(part.file_size for part in archive.infolist())
    # Damaged archives raise almost anything here; the converter reports them.
    except Exception:
        return
    if size > MAX_WHOLE_FILE_BYTES:
        raise BadDocument(f"it unpacks to more than {MAX_WHOLE_FILE_BYTES >> 20} MB; split it")


@functools.cache
def docx_converter() -> Callable[[SourceFile], Any]:
    """Return the function that converts a DOCX to Markdown."""
    from markitdown import MarkItDown, StreamInfo
    from markitdown.converters import DocxConverter

    # The other converters would read a damaged file as plain text.
    converting = MarkItDown(enable_builtins=False)
    converting.register_converter(DocxConverter())

    def convert(source: SourceFile) -> Any:
        source.file.seek(0)
        stated = StreamInfo(extension=source.ending, filename=f"{source.title}{source.ending}")
        text = converting.convert_stream(source.file, stream_info=stated).text_content
        return text.replace("\f", "\n\n") if text else text

    return convert
