"""Rerankers: score how well hits answer a question. `open_reranker` builds the reranker that the settings name."""

from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import BadSetting
from agent.options.rerankers import parse_reranker, reranker_label

if TYPE_CHECKING:
    from agent.llm.model import Model
    from agent.retrieval.rerank.reranker import Reranker
    from agent.settings import Settings


def open_reranker(settings: "Settings", llm: "Model | None" = None, *, cores: int | None = None) -> "Reranker | None":
    """Return the reranker of the settings; None for "none". Nothing is loaded or called before its first use.

    Args:
        llm: the service's model, for "llm".
        cores: maximum CPU cores for a model that runs in this process; None means all.
    Raises:
        BadSetting: the settings of the reranker cannot work.
    """
    kind, rest = parse_reranker(settings.reranker)
    if settings.reranker_model and kind != "http":
        reason = (
            f"RERANKER_MODEL works only with RERANKER=http:URL, not with {reranker_label(settings.reranker)}: unset it"
        )
        raise BadSetting(reason, where="reranker_model")
    reranker = _built(kind, rest, settings, llm, cores)
    if settings.rerank_min_score is not None and (reranker is None or not reranker.is_comparable):
        name = reranker_label(settings.reranker)
        reason = f"RERANK_MIN_SCORE cannot be used with RERANKER={name}, which gives no scores on a fixed scale"
        raise BadSetting(reason, where="rerank_min_score")
    if settings.rerank_blend and kind in ("none", "hybrid"):
        reason = f"RERANK_BLEND needs a reranker with a model; RERANKER={kind} has none"
        raise BadSetting(reason, where="rerank_blend")
    return reranker


def _built(kind: str, rest: str, settings: "Settings", llm: "Model | None", cores: int | None) -> "Reranker | None":
    # Each kind is imported only when it is used.
    match kind:
        case "hybrid":
            from agent.retrieval.rerank.hybrid import HybridReranker

            return HybridReranker()
        case "onnx":
            from agent.retrieval.rerank.onnx import OnnxReranker

            return OnnxReranker(Path(rest).expanduser(), settings.reranker, cores=cores)
        case "fastembed":
            from agent.retrieval.rerank.fastembed import FastEmbedReranker

            return FastEmbedReranker(rest)
        case "http":
            from agent.retrieval.rerank.http import HttpReranker

            name, key = reranker_label(settings.reranker), settings.reranker_api_key
            return HttpReranker(rest, name=name, model=settings.reranker_model, api_key=key)
        case "litellm":
            from agent.retrieval.rerank.litellm import LiteLLMReranker

            return LiteLLMReranker(settings.reranker, api_key=settings.reranker_api_key)
        case "ltr":
            from agent.retrieval.rerank.ltr import open_ltr_reranker

            return open_ltr_reranker(settings.reranker, settings.home)
        case "llm":
            from agent.retrieval.rerank.llm import ListwiseReranker

            if llm is None:
                raise BadSetting("RERANKER=llm needs a model: set LLM", where="reranker")
            return ListwiseReranker(llm)
    return None
