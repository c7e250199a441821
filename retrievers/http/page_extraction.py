"""Extract the text of a web page, in a sandboxed process, because markup can keep any HTML parser busy for hours."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, BinaryIO

from retrievers.ingest.readers.hidden_text import remove_hidden_text
from retrievers.ingest.readers.html import read_page
from retrievers.sandbox import CancelCheck, Sandbox

SANDBOX = Sandbox(slots=2)
"""Two processes, each of which can keep a core busy. Ingestion has others, so questions do not wait for it."""
_TASK = "retrievers.http.page_extraction:extract_to_message"
# Matches the name of a date field in meta elements, JSON-LD and microdata, and the date after it.
_PUBLISHED = re.compile(
    r"""(?:article:published_time|datepublished|publish(?:ed)?[_-]?date|pubdate|citation_(?:publication_|online_)?date
    |dc(?:terms)?\.(?:date|issued|created)(?:\.issued)?|name=["']?date)["']?[^<>{}]{0,100}?([0-9]{4}-[0-9]{2}-[0-9]{2})(?![0-9])""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class ExtractedPage:
    """The content of a web page.

    Attributes:
        text: the page's own content, without menus and footers; headings and lists as Markdown.
        published: the publication date that the page states, in ISO form; None if it states none.
    """

    title: str
    text: str
    published: str | None


async def extract_page(markup: str) -> ExtractedPage:
    """Extract the content of a page from its markup. Cancelling the call ends the process that parses it.

    Raises:
        BadDocument: the markup cannot be parsed within the limits of `retrievers.sandbox`.
    """

    def read_aside(stopped: CancelCheck) -> ExtractedPage:
        with tempfile.TemporaryFile(prefix="signalbox-") as file:
            file.write(markup.encode(errors="replace"))
            file.seek(0)
            with closing(SANDBOX.run(_TASK, [(file, {})], is_cancelled=stopped)) as answers:
                (found,) = next(answers)
            return ExtractedPage(**found)

    return await SANDBOX.run_in_thread(read_aside)


def extract_to_message(file: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the result of `extract_in_process` for a file of UTF-8 markup as JSON. A task of `retrievers.sandbox`."""
    yield asdict(extract_in_process(file.read().decode()))


def extract_in_process(markup: str) -> ExtractedPage:
    """Extract the content of a page from its markup, in this process and without limits; see `extract_page`."""
    from trafilatura import bare_extraction

    published = _published(markup)
    markup = remove_hidden_text(markup)
    found = bare_extraction(
        markup,
        include_comments=False,
        include_formatting=True,
        with_metadata=True,
        date_extraction_params={"extensive_search": False},
    )
    if found is not None and (found.text or "").strip():
        return ExtractedPage(found.title or "", found.text, published)
    page = read_page(markup)
    return ExtractedPage(page.title, page.text, published)


def _published(markup: str) -> str | None:
    """Return the publication date that the markup states, in ISO form; None if it states none.

    The date that the extraction library reports is not used: the library may have guessed it from the text.
    """
    stated = _PUBLISHED.search(markup)
    try:
        return date.fromisoformat(stated[1]).isoformat() if stated else None
    except ValueError:
        return None
