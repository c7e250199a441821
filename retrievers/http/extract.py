"""The text of a web page, read in a process of its own.

Markup can be made to keep any HTML reader busy for hours, and no thread can be stopped; nor is a parser in C fed
with pages of strangers inside the service. The process gets the markup and nothing else: no environment, no sockets.
"""

import asyncio
import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from datetime import date

from retrievers.core.errors import BadDocument
from retrievers.ingest.html import read_page

_MOST_CPU_S = 60
"""In case the service is gone and nobody ends the process at the deadline."""
# In meta elements, JSON-LD and microdata: a name, and not far behind it a day.
_PUBLISHED = re.compile(
    r"""(?:article:published_time|datepublished|publish(?:ed)?[_-]?date|pubdate|citation_(?:publication_|online_)?date
    |dc(?:terms)?\.(?:date|issued|created)(?:\.issued)?|name=["']?date)["']?[^<>{}]{0,100}?([0-9]{4}-[0-9]{2}-[0-9]{2})(?![0-9])""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Extract:
    """What a page says.

    Attributes:
        text: without what surrounds it on every page of the site; headings and lists as Markdown.
        published: the day that the page states, in ISO form.
    """

    title: str
    text: str
    published: str | None


async def extract(markup: str) -> Extract:
    """The page behind some markup. Cancelling ends the process.

    Raises:
        BadDocument: the markup cannot be read.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        # The code is found where this process finds it, and not in a folder that somebody works in.
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUTF8": "1"},
    )
    try:
        answer, _ = await process.communicate(markup.encode(errors="replace"))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise BadDocument(f"reading it ended with {process.returncode}")
    found = json.loads(answer)
    if isinstance(found, str):
        raise BadDocument(found)
    return Extract(**found)


def read(markup: str) -> Extract:
    """As `extract`, in this process.

    Raises:
        BadDocument: the markup cannot be read.
    """
    from trafilatura import bare_extraction

    published = _published(markup)
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
    """The day the page states; the library would take one from the text as well, and that would be a wrong fact."""
    stated = _PUBLISHED.search(markup)
    try:
        return date.fromisoformat(stated[1]).isoformat() if stated else None
    except ValueError:
        return None


def _forbid_sockets(event: str, arguments: object) -> None:
    if event.startswith("socket."):
        raise PermissionError(event)


def _main() -> None:
    """Markup in, JSON out: an `Extract`, or the reason why there is none."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S))
    sys.addaudithook(_forbid_sockets)
    try:
        json.dump(asdict(read(sys.stdin.read())), sys.stdout)
    except BadDocument as error:
        json.dump(str(error), sys.stdout)
    except Exception as error:  # of a library, which may raise anything over markup of strangers
        json.dump(f"{type(error).__name__}: {error}", sys.stdout)


if __name__ == "__main__":
    _main()
