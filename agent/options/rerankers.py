"""The option RERANKER: map a name to a kind of reranker."""

import re

FORMS = (
    "none, hybrid, onnx:DIR, fastembed:NAME, http:URL, llm, ltr, ltr:FILE, or a litellm rerank string such as "
    "cohere/rerank-v3.5"
)

_ALONE = ("none", "hybrid", "llm", "ltr")
_WITH_MORE = ("onnx", "fastembed", "http", "ltr")
_LITELLM = re.compile(r"[\w.-]+/[^\s/]\S*")


def parse_reranker(name: str) -> tuple[str, str]:
    """Return the kind of reranker and its argument, "" if it has none.

    "onnx:models/rank" -> ("onnx", "models/rank"), "none" -> ("none", ""), "http://host/rerank" ->
    ("http", "http://host/rerank"), "cohere/rerank-v3.5" -> ("litellm", "cohere/rerank-v3.5").

    Raises:
        ValueError: the name has no known form; the message lists the forms.
    """
    if name.startswith(("http://", "https://")):
        return "http", name
    kind, _, rest = name.partition(":")
    if (kind in _ALONE and name == kind) or (kind in _WITH_MORE and rest):
        return kind, rest
    if _LITELLM.fullmatch(name):
        return "litellm", name
    raise ValueError(f'there is no reranker "{reranker_label(name)[:80]}"; give {FORMS}')


def reranker_label(name: str) -> str:
    """Return the name for traces, errors and requests, without the query of a URL, which may hold a key."""
    return name.partition("?")[0]
