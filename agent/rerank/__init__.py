"""Rerankers: one file each, behind the protocol in `base`; `open_reranker` builds the one a setting names."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import BadSetting

if TYPE_CHECKING:
    from agent.llm import Model
    from agent.rerank.base import Reranker

FORMS = "none, hybrid, onnx:DIR, fastembed:NAME, http:URL, llm, or a litellm rerank string such as cohere/rerank-v3.5"

_ALONE = ("none", "hybrid", "llm")
_WITH_MORE = ("onnx", "fastembed", "http")
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


def open_reranker(
    name: str,
    *,
    model_name: str | None = None,
    api_key: str | None = None,
    llm: "Model | None" = None,
    minimum: float | None = None,
) -> "Reranker | None":
    """The reranker that a setting names; None for "none". Nothing is loaded or called before it is used.

    Args:
        name: one of `FORMS`.
        model_name: what a server at an address is asked for; other kinds name their model themselves.
        api_key: of a server; litellm looks for it where it looks for that provider's when None.
        llm: the service's model, for "llm".
        minimum: the score below which hits are to be left out, which not every kind allows.
    Raises:
        BadSetting: no reranker can have that name, or it cannot be used as it is set.
    """
    try:
        kind, rest = kind_of(name)
    except ValueError as error:
        raise BadSetting(f"RERANKER: {error}", where="reranker") from None
    if api_key and not (api_key.isascii() and api_key.isprintable()):
        raise BadSetting("RERANKER_API_KEY holds a character that no key has", where="reranker_api_key")
    if minimum is not None and kind in ("none", "llm"):
        raise BadSetting(
            f"RERANK_MIN_SCORE: {name} gives no scores that could be compared with it", where="rerank_min_score"
        )
    if model_name and kind != "http":
        raise BadSetting(
            f"RERANKER_MODEL is for a server at http:URL; {name} names its model itself", where="reranker_model"
        )
    # Each kind is imported by those who use it.
    match kind:
        case "hybrid":
            from agent.rerank.hybrid import Hybrid

            return Hybrid()
        case "onnx":
            from agent.rerank.onnx import OnnxReranker

            return OnnxReranker(Path(rest).expanduser(), name)
        case "fastembed":
            from agent.rerank.fastembed import FastEmbedReranker

            return FastEmbedReranker(rest)
        case "http":
            from agent.rerank.http import HttpReranker

            return HttpReranker(rest, name=shown(name), model=model_name, api_key=api_key)
        case "litellm":
            from agent.rerank.litellm import LiteLLMReranker

            return LiteLLMReranker(name, api_key=api_key)
        case "llm":
            from agent.rerank.llm import ListwiseReranker

            if llm is None:
                raise BadSetting("RERANKER=llm needs a model: set LLM", where="reranker")
            return ListwiseReranker(llm)
    return None
