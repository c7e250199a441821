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

from retrievers.core.errors import BadDocument
from retrievers.ingest.html import read_page

_MOST_CPU_S = 60
"""In case the service is gone and nobody ends the process at the deadline."""
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


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

    found = bare_extraction(
        markup,
        include_comments=False,
        include_formatting=True,
        with_metadata=True,
        # Only what the page states: a guess from its text would be a wrong fact.
        date_extraction_params={"original_date": True, "extensive_search": False},
    )
    if found is not None and (found.text or "").strip():
        return Extract(found.title or "", found.text, _day(found.date))
    page = read_page(markup)
    return Extract(page.title, page.text, _day(page.metadata.get("date")))


def _day(stated: str | None) -> str | None:
    day = _DAY.match(stated or "")
    return day[0] if day else None


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
