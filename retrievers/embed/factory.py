"""The embedder that a setting names."""

from pathlib import Path

from retrievers.core.errors import BadRequest
from retrievers.embed import Embedder
from retrievers.embed.onnx import MINILM, OnnxEmbedder


def open_embedder(
    name: str, *, base_url: str | None = None, api_key: str | None = None, cores: int | None = None
) -> Embedder:
    """Build an embedder; nothing is loaded before it is used.

    Args:
        name: "minilm", "onnx:DIR", "fastembed:NAME", "openai/MODEL" (any OpenAI-compatible endpoint at
            `base_url`) or another litellm embedding string.
        cores: how many a model that runs here may keep busy; all of them when None.
    Raises:
        BadRequest: no embedder can have that name.
    """
    kind, _, rest = name.partition(":")
    if name == "minilm":
        return OnnxEmbedder(MINILM, name, languages=frozenset({"en"}), cores=cores)
    if kind == "onnx" and rest:
        folder = Path(rest).expanduser()
        if not folder.is_dir():
            raise BadRequest(f"the embedder {name}: {folder} is not a folder", where="embedder")
        return OnnxEmbedder(folder, name, cores=cores)
    from retrievers.embed import remote

    if kind == "fastembed" and rest:
        return remote.FastEmbedEmbedder(rest)
    if name.startswith("openai/"):
        return remote.OpenAIEmbedder(name, base_url=base_url, api_key=api_key)
    if "/" in name:
        return remote.LiteLLMEmbedder(name, base_url=base_url, api_key=api_key)
    raise BadRequest(
        f'there is no embedder "{name}"; give minilm, onnx:DIR, fastembed:NAME, openai/MODEL or PROVIDER/MODEL',
        where="embedder",
    )
