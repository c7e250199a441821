"""Build the embedder that a setting names, and the embedders of other collections."""

from collections.abc import Mapping
from pathlib import Path

from retrievers.core.errors import BadRequest
from retrievers.embed import Embedder
from retrievers.embed.embedders import LANGUAGES, Embedders
from retrievers.embed.onnx_embedder import MINILM, OnnxEmbedder


def open_embedders(
    name: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    others: Mapping[str, str | None] | None = None,
    keys: Mapping[str, str] | None = None,
    cores: int | None = None,
) -> Embedders:
    """Build the service's embedder and a factory for all other embedders that collections may use.

    Texts are only sent where the settings allow it: another embedder must run in this process, be listed in `others`,
    or belong to the provider of the service's embedder, in which case it gets the same address and key.

    Args:
        name, base_url, api_key, cores: arguments of `open_embedder` for the service's embedder.
        others: addresses of the other allowed embedders, by embedder name; None for an embedder's default address.
        keys: API keys by embedder name.
    """
    addresses, keys = others or {}, keys or {}

    def of_own(other: str) -> bool:
        provider = other.partition("/")[0]
        return provider == name.partition("/")[0] or (base_url is not None and provider == "openai")

    def check(other: str) -> None:
        check_embedder_name(other)
        runs_here = other.startswith(("onnx:", "fastembed:")) or other == "minilm"
        if not (runs_here or other in addresses or of_own(other)):
            reason = f"the settings do not name the embedder {other}: add it to EMBEDDERS, as NAME or NAME=URL"
            raise BadRequest(reason, where="embedder")

    def opened(other: str) -> Embedder:
        address, key = addresses.get(other), keys.get(other)
        if address is None and key is None and of_own(other):
            address, key = base_url, api_key
        return open_embedder(other, base_url=address, api_key=key, cores=cores)

    return Embedders(open_embedder(name, base_url=base_url, api_key=api_key, cores=cores), opened, check)


def check_embedder_name(name: str) -> None:
    """Check the name of an embedder.

    Raises:
        BadRequest: the name has none of the known forms, or names a folder that does not exist.
    """
    kind, _, rest = name.partition(":")
    if kind == "onnx" and rest:
        folder = Path(rest).expanduser()
        if not folder.is_dir():
            raise BadRequest(f"the embedder {name}: {folder} is not a folder", where="embedder")
    elif name != "minilm" and not (kind == "fastembed" and rest) and "/" not in name:
        raise BadRequest(
            f'there is no embedder "{name}"; give minilm, onnx:DIR, fastembed:NAME, openai/MODEL or PROVIDER/MODEL',
            where="embedder",
        )


def parse_name_value_pairs(text: str) -> dict[str, str | None]:
    """Parse names with optional values: "minilm, openai/m3=http://x" -> {"minilm": None, "openai/m3": "http://x"}.

    Raises:
        ValueError: a name is missing or given twice.
    """
    found: dict[str, str | None] = {}
    for one in filter(None, map(str.strip, text.split(","))):
        name, _, value = (part.strip() for part in one.partition("="))
        if not name or name in found:
            raise ValueError("each entry must be NAME or NAME=VALUE, separated by commas, and each name may occur once")
        found[name] = value or None
    return found


def open_embedder(
    name: str, *, base_url: str | None = None, api_key: str | None = None, cores: int | None = None
) -> Embedder:
    """Build an embedder. Its model is loaded at the first use.

    Args:
        name: "minilm", "onnx:DIR", "fastembed:NAME", "openai/MODEL" (any OpenAI-compatible endpoint at `base_url`) or
            another litellm embedding string.
        cores: maximum number of cores for an ONNX model, which runs in this process; None for all.
    Raises:
        BadRequest: see `check_embedder_name`.
    """
    check_embedder_name(name)
    kind, _, rest = name.partition(":")
    if name == "minilm":
        return OnnxEmbedder(MINILM, name, languages=LANGUAGES[name], cores=cores)
    if kind == "onnx" and rest:
        return OnnxEmbedder(Path(rest).expanduser(), name, cores=cores)
    from retrievers.embed import remote

    if kind == "fastembed" and rest:
        return remote.FastEmbedEmbedder(rest)
    if name.startswith("openai/"):
        return remote.OpenAIEmbedder(name, base_url=base_url, api_key=api_key)
    return remote.LiteLLMEmbedder(name, base_url=base_url, api_key=api_key)
