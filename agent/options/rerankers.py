"""The option RERANKER: the kind of reranker that a name means."""

import re

FORMS = (
    "none, hybrid, onnx:DIR, fastembed:NAME, http:URL, llm, ltr, ltr:FILE, or a litellm rerank string such as "
    "cohere/rerank-v3.5"
)

_ALONE = ("none", "hybrid", "llm", "ltr")
_WITH_MORE = ("onnx", "fastembed", "http", "ltr")
_LITELLM = re.compile(r"[\w.-]+/[^\s/]\S*")


def kind_of(name: str) -> tuple[str, str]:
    """The kind of reranker that a setting names, and what is said of it.

    Raises:
        ValueError: no reranker can have that name; the message lists the forms.
    """
    if name.startswith(("http://", "https://")):
        return "http", name
    kind, _, rest = name.partition(":")
    if (kind in _ALONE and name == kind) or (kind in _WITH_MORE and rest):
        return kind, rest
    if _LITELLM.fullmatch(name):
        return "litellm", name
    raise ValueError(f'there is no reranker "{shown(name)[:80]}"; give {FORMS}')


def shown(name: str) -> str:
    """The name as traces, errors and requests have it: the query of an address may hold a key."""
    return name.partition("?")[0]
