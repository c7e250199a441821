"""Files that cost far more to read than their size suggests, for tests of file readers."""

import bz2
import io
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator

MB = 1_000_000
Count = Callable[[float], int]
File = tuple[str, bytes]

_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Override PartName="/word/document.xml" ContentType='
    '"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
_RELATIONS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
    'Target="word/document.xml"/></Relationships>'
)
_BODY = '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>{}</w:body></w:document>'
_PARAGRAPH = "<w:p><w:r><w:t>word</w:t></w:r></w:p>"


def word(body: str = _PARAGRAPH, *, head: str = "", parts: dict[str, str] | None = None) -> bytes:
    """Return a DOCX with this XML as its body."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", _TYPES)
        archive.writestr("_rels/.rels", _RELATIONS)
        archive.writestr("word/document.xml", head + _BODY.format(body))
        for name, content in (parts or {}).items():
            archive.writestr(name, content)
    return data.getvalue()


def pdf(content: bytes, *, filters: str = "", more: list[bytes] | None = None, kids: str = "3 0 R") -> bytes:
    """Return a PDF of one page with this content stream, and further objects."""
    page = (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 << /Type"
        b" /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>"
    )
    stream = b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), filters.encode(), content)
    pages = f"<< /Type /Pages /Kids [{kids}] /Count 1 >>".encode()
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", pages, page, stream, *(more or [])]
    data, places = bytearray(b"%PDF-1.4\n"), []
    for number, one in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    start = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    data += b"".join(b"%010d 00000 n \n" % place for place in places)
    data += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(data)


def text_on_page(text: str) -> bytes:
    """Return the content of a page with one line of text."""
    return f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET ".encode()


def deflated(pattern: bytes, size: int) -> bytes:
    """Return `pattern`, repeated up to about `size` bytes, as a zlib stream."""
    packer = zlib.compressobj(9)
    block = pattern * (MB // len(pattern))
    packed = b"".join(packer.compress(block) for _ in range(max(size // MB, 1)))
    return packed + packer.flush()


def hostile_files(scale: float = 1.0) -> Iterator[File]:
    """Yield names and contents of some 60 files.

    Args:
        scale: 1 makes them as large as a request may be; unpacked they then reach up to 1 GB.
    """

    def n(count: float) -> int:
        return max(int(count * scale), 1)

    yield from _documents(n)
    yield from _pdfs(n)
    yield from _pages(n)
    yield from _tables(n)
    yield from _records(n)


def _documents(n: Count) -> Iterator[File]:
    good = word()
    yield "paragraphs.docx", word(_PARAGRAPH * n(5_000_000))
    yield "runs.docx", word("<w:p>" + "<w:r><w:t>x</w:t></w:r>" * n(5_000_000) + "</w:p>")
    yield "spaces.docx", word("<w:p><w:r><w:t>" + " " * n(240 * MB) + "</w:t></w:r></w:p>")
    yield "nested.docx", word("<w:p>" * n(200_000) + "</w:p>" * n(200_000))
    yield "table.docx", word("<w:tbl><w:tr>" + f"<w:tc>{_PARAGRAPH}</w:tc>" * n(300_000) + "</w:tr></w:tbl>")
    inner, outer = "<w:tbl><w:tr><w:tc>", "</w:tc></w:tr></w:tbl>"
    yield "tables.docx", word(inner * n(2_000) + _PARAGRAPH + outer * n(2_000))
    laughs = (
        '<!DOCTYPE w [<!ENTITY a "aaaaaaaaaa">'
        + "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9))
        + "]>"
    )
    yield "entities.docx", word("<w:p><w:r><w:t>&j;</w:t></w:r></w:p>", head=laughs)
    outside = '<!DOCTYPE w [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    yield "outside.docx", word("<w:p><w:r><w:t>&x;</w:t></w:r></w:p>", head=outside)
    styles = "<w:styles>" + "<w:style/>" * n(10_000_000) + "</w:styles>"
    yield "styles.docx", word(parts={"word/styles.xml": styles})
    yield "cut.docx", good[: len(good) // 2]
    yield "no_end.docx", good[:-40]
    yield "empty_archive.docx", b"PK\x05\x06" + bytes(18)
    yield "many.docx", word(parts={f"word/{i}.xml": "x" for i in range(n(40_000))})
    lying = bytearray(word("<w:p><w:r><w:t>" + " " * n(500 * MB) + "</w:t></w:r></w:p>"))
    place = 0
    while (place := lying.find(b"PK\x01\x02", place)) >= 0:  # overwrite the sizes stated in the directory
        lying[place + 24 : place + 28] = struct.pack("<I", 10)
        place += 4
    yield "lying.docx", bytes(lying)
    yield "zeros.docx", b"PK\x03\x04" + bytes(n(8 * MB))


def _pdfs(n: Count) -> Iterator[File]:
    spaces = deflated(b" ", n(1000 * MB))
    yield "deflated.pdf", pdf(spaces, filters="/Filter /FlateDecode")
    yield "twice.pdf", pdf(zlib.compress(spaces, 9), filters="/Filter [/FlateDecode /FlateDecode]")
    runs = b"\x81 " * n(4 * MB) + b"\x80"
    both = "/Filter [/FlateDecode /RunLengthDecode]"
    yield "runs.pdf", pdf(deflated(runs[: 2 * MB], n(400 * MB)), filters=both)
    yield "runlength.pdf", pdf(runs, filters="/Filter /RunLengthDecode")
    yield "hex.pdf", pdf(deflated(b"20", n(600 * MB)), filters="/Filter [/FlateDecode /ASCIIHexDecode]")
    yield "words.pdf", pdf(deflated(text_on_page("word"), n(100 * MB)), filters="/Filter /FlateDecode")
    yield "numbers.pdf", pdf(deflated(b"1 2 3 ", n(300 * MB)), filters="/Filter /FlateDecode")
    yield "paths.pdf", pdf(deflated(b"1 1 m 9 9 l S ", n(100 * MB)), filters="/Filter /FlateDecode")
    yield "arrays.pdf", pdf(b"[" * n(7 * MB))
    yield "dictionaries.pdf", pdf(b"x", more=[b"<<" + b"/A <<" * n(1 * MB)])
    yield "brackets.pdf", pdf(b"BT (" + b"(" * n(7 * MB))
    yield "objects.pdf", pdf(text_on_page("word"), more=[b"<< /A 1 >>"] * n(200_000))
    yield "kids.pdf", pdf(text_on_page("word"), kids="3 0 R " * n(400_000))
    yield "loop.pdf", pdf(text_on_page("word"), kids="2 0 R " * 10)
    form = b"<< /Type /XObject /Subtype /Form /Length 6 >>\nstream\n/X Do \nendstream"
    yield "itself.pdf", pdf(b"/X Do ", more=[form])
    good = pdf(text_on_page("word"))
    yield "cut.pdf", good[: len(good) // 2]
    yield "no_table.pdf", good[: good.index(b"xref")] + b"%" * n(7 * MB)
    yield "zeros.pdf", b"%PDF-1.4\n" + bytes(n(8 * MB))
    yield "lines.pdf", b"%PDF-1.4\n" + b"\n" * n(8 * MB)
    endless = b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\ntrailer << /Root 1 0 R /Prev 9 >>\nstartxref\n9\n%%EOF"
    yield "previous.pdf", endless
    noise = random.Random(7).randbytes(n(2 * MB))
    yield "noise.pdf", b"%PDF-1.4\n" + noise


def _pages(n: Count) -> Iterator[File]:
    yield "cdata.html", b"<![CDATA[" * n(450_000)
    yield "comments.html", b"<!--" * n(1 * MB)
    yield "declarations.html", b"<!" * n(2 * MB)
    yield "tags.html", b"<a " * n(1.3 * MB)
    yield "entities.html", b"&#" + b"1" * n(4 * MB) + b";" + b"&" * n(2 * MB)
    yield "lists.html", b"<ul><li>" * n(110_000) + b"x"
    yield "items.html", b"<ul>" * n(200_000) + b"<li>x" * n(200_000)
    yield "tables.html", b"<table><tr><td>" * n(500_000)
    yield "skipped.html", b"<nav>" * n(1 * MB) + b"</svg>" * n(200_000)
    yield "attributes.html", b"<p " + b"a=b " * n(2 * MB) + b">x"
    yield "quotes.html", b"<p a='" * n(1 * MB)
    yield "zeros.html", bytes(n(8 * MB))
    yield "headings.html", b"<h1>x" * n(1.5 * MB)


def _tables(n: Count) -> Iterator[File]:
    yield "quote.csv", b'text\n"' + b"word,word\n" * n(800_000)
    yield "quotes.csv", b"text\n" + b'"a\n' * n(2.6 * MB)
    yield "doubled.csv", b'text\n"' + b'""' * n(4 * MB)
    columns = b",".join(b"c%d" % i for i in range(n(200_000)))
    yield "wide.csv", b"text," + columns + b"\n" + (b"a" + b",1" * n(200_000) + b"\n") * 15
    yield "commas.csv", b"text" + b"," * n(8 * MB) + b"\n"
    yield "rows.csv", b"text,a\n" + b"x\n" * n(4 * MB)
    yield "zeros.csv", b"text\n" + bytes(n(8 * MB))
    yield "lines.csv", b"text\n" + b"\n" * n(8 * MB)


def _records(n: Count) -> Iterator[File]:
    yield "keys.md", b"---\n" + b"".join(b"k%d: 1\n" % i for i in range(n(90_000))) + b"---\nx"
    yield "nested.md", b"---\na: " + b"[" * n(1 * MB) + b"\n---\nx"
    laughs = "---\na0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    yield "aliases.md", laughs.encode() + b"---\nx"
    yield "merges.md", b"---\na: &a {x: 1}\n" + b"b: {<<: [" + b"*a, " * n(300_000) + b"*a]}\n---\nx"
    yield "heading.md", b"# " + b" " * n(1.9 * MB) + b"x"
    yield "dashes.md", b"---\n" * n(2 * MB)
    yield "lists.json", b"[" + b"[]," * n(2.6 * MB) + b"[]]"
    yield "nested.json", b"[" * n(8 * MB)
    yield "number.json", b'{"text": ' + b"1" * n(8 * MB) + b"}"
    yield "numbers.json", b"[" + b"0," * n(4 * MB) + b"0]"
    yield "keys.json", b'{"text": "x", ' + b",".join(b'"k%d": 1' % i for i in range(n(400_000))) + b"}"
    yield "lines.jsonl", b"[]\n" * n(2.6 * MB)
    yield "deep.jsonl", b'{"text": "x", "a": ' + b'{"a": ' * n(1 * MB)
    yield "zeros.jsonl", bytes(n(8 * MB))
    yield "packed.json", bz2.compress(bytes(n(100 * MB)))
