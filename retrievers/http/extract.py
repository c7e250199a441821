"""Extract the text of a web page, in a sandboxed process, because markup can keep any HTML parser busy for hours."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, BinaryIO

from retrievers.ingest.hidden import without_hidden
from retrievers.ingest.html import read_page
from retrievers.sandbox import Sandbox, Stopped

SANDBOX = Sandbox(places=2)
"""Two processes, each of which can keep a core busy. Ingestion has others, so questions do not wait for it."""
_TASK = "retrievers.http.extract:read_to_message"
# Matches the name of a date field in meta elements, JSON-LD and microdata, and the date after it.
_PUBLISHED = re.compile(
    r"""(?:article:published_time|datepublished|publish(?:ed)?[_-]?date|pubdate|citation_(?:publication_|online_)?date
    |dc(?:terms)?\.(?:date|issued|created)(?:\.issued)?|name=["']?date)["']?[^<>{}]{0,100}?([0-9]{4}-[0-9]{2}-[0-9]{2})(?![0-9])""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Extract:
    """The content of a web page.

    Attributes:
        text: the page's own content, without menus and footers; headings and lists as Markdown.
        published: the publication date that the page states, in ISO form; None if it states none.
    """

    title: str
    text: str
    published: str | None


async def extract(markup: str) -> Extract:
    """Extract the content of a page from its markup. Cancelling the call ends the process that parses it.

    Raises:
        BadDocument: the markup cannot be parsed within the limits of `retrievers.sandbox`.
    """

    def read_aside(stopped: Stopped) -> Extract:
        with tempfile.TemporaryFile(prefix="signalbox-") as file:
            file.write(markup.encode(errors="replace"))
            file.seek(0)
            with closing(SANDBOX.run(_TASK, [(file, {})], stopped=stopped)) as answers:
                (found,) = next(answers)
            return Extract(**found)

    return await SANDBOX.in_thread(read_aside)


def read_to_message(file: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield one JSON object: the result of `read` for a file of UTF-8 markup. Run as a task of `retrievers.sandbox`."""
    yield asdict(read(file.read().decode()))


def read(markup: str) -> Extract:
    """Extract the content of a page from its markup, in this process and without limits; see `extract`."""
    from trafilatura import bare_extraction

    published = _published(markup)
    markup = without_hidden(markup)
    found = bare_extraction(
        markup,
        include_comments=False,
        include_formatting=True,
        with_metadata=True,
        date_extraction_params={"extensive_search": False},
    )
    if found is not None and (found.text or "").strip():
        return Extract(found.title or "", found.text, published)
    page = read_page(markup)
    return Extract(page.title, page.text, published)


def _published(markup: str) -> str | None:
    """Return the publication date that the markup states, in ISO form; None if it states none.

    The date that the extraction library reports is not used: the library may have guessed it from the text.
    """
    stated = _PUBLISHED.search(markup)
    try:
        return date.fromisoformat(stated[1]).isoformat() if stated else None
    except ValueError:
        return None
