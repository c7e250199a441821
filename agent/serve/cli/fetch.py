"""`signalbox fetch`: print a web page as text, or check whether it may be fetched."""

from dataclasses import asdict

from agent.serve.cli import output
from retrievers.core.errors import BadRequest
from retrievers.http.page_fetcher import Fetcher


async def run(url: str, *, check: bool, as_json: bool) -> int:
    """Print the page's text and metadata, or with `check` the addresses it would be fetched from.

    Returns:
        The exit code.
    Raises:
        BadRequest: the URL is refused.
        Unavailable: the page cannot be fetched now.
    """
    fetcher = Fetcher()
    try:
        if check:
            site = await fetcher.check(url)
        else:
            page = await fetcher.fetch(url)
    except BadRequest as error:
        if as_json:
            output.write_json({"ok": False, "reason": str(error), "url": url})
        raise
    if check:
        shown = {"url": site.target.url, "addresses": site.addresses}
        text = f"{site.target.url} ({', '.join(site.addresses)})"
    else:
        shown, text = asdict(page), page.text
    if as_json:
        output.write_json({"ok": True, "reason": "", **shown})
        return 0
    if not check:
        output.print_note(", ".join(filter(None, (page.title, page.published, page.url))))
    print(output.terminal_text(text))
    return 0
