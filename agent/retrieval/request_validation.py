"""Reject questions that are empty or too long, and sources that do not exist."""

from collections.abc import Mapping

from agent.types import Request
from retrievers.core.errors import BadRequest, join_names
from retrievers.core.types import Retriever

# Sources that exist only with a setting, and the name of that setting.
_SETTINGS = {"web": "WEB_PROVIDER", "cloud": "CLOUD", "local": "LOCAL"}


def validate_request(request: Request, sources: Mapping[str, Retriever], withheld: frozenset[str]) -> None:
    """Check a request's question and sources.

    Args:
        withheld: names of sources that the tenant may not use; they are not in `sources`.
    Raises:
        BadRequest: the question is empty or too long, or a source does not exist.
    """
    if not request.question.strip():
        raise BadRequest("the question is empty: give `query`, or `messages` with a message of the user", where="query")
    if len(request.question) > 8000:
        raise BadRequest("the question has more than 8,000 characters", where="query")
    unknown = [name for name in request.sources or () if name not in sources]
    if refused := [name for name in unknown if name in withheld]:
        what = f"this tenant may not use the source {join_names(refused)}; it may use: {join_names(sources)}"
        raise BadRequest(what, where="sources", valid=tuple(sources))
    if unknown:
        setting = _SETTINGS.get(unknown[0])
        mend = f"; to add it, set {setting} or define [sources.{unknown[0]}]" if setting else ""
        raise BadRequest(
            f'there is no source "{unknown[0]}"; there are: {join_names(sources)}{mend}',
            where="sources",
            valid=tuple(sources),
        )
