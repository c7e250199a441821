"""Open the language model that a setting names: a server, a provider, or a recording.

A stage then calls the model through `CallLog`, which records the call:

    model = open_model("openai/gpt-5-mini", api_key=...)
    calls = CallLog()
    reply = await calls.logged_model(model).complete(messages, stage="intent", key=key, deadline=deadline, schema=Form)
"""

from pathlib import Path

from agent.errors import BadSetting
from agent.llm.model import Model
from agent.llm.recording import RecordingModel, ReplayModel

_OPENAI_MODELS = ("gpt-", "chatgpt-", "o1", "o3", "o4")
# Prefixes that name a server. Other prefixes are part of a model's name, such as "anthropic/..." at a gateway.
_SERVERS = ("openai/", "aiohttp_openai/", "ollama/", "ollama_chat/", "hosted_vllm/", "lm_studio/", "litellm_proxy/")
# Not sent with litellm: for the second, it uses aiohttp, which unpacks an answer of any size in memory.
_OPENAI = ("openai/", "aiohttp_openai/")


def open_model(name: str | None, *, base_url: str | None = None, api_key: str | None = None) -> Model | None:
    """Open the model that a setting names; return None if the name is empty. No request is sent.

    Args:
        name: "openai/MODEL", any model name with `base_url`, a litellm model string ("anthropic/...", "ollama/..."),
            "replay:FILE" or "record:FILE=MODEL".
        base_url: an OpenAI-compatible endpoint, including "/v1".
    Raises:
        BadSetting: the name or address is invalid, or the recording cannot be opened.
    """
    if not name:
        return None
    kind, _, rest = name.partition(":")
    if kind == "replay" and rest:
        return ReplayModel.read(Path(rest).expanduser())
    if kind == "record" and rest:
        path, _, recorded = rest.rpartition("=")
        if not path or not recorded or recorded.startswith(("record:", "replay:")):
            raise BadSetting("LLM: a recording needs the form record:FILE=MODEL", where="llm")
        model = open_model(recorded, base_url=base_url, api_key=api_key)
        assert model is not None  # rpartition left a name
        return RecordingModel(model, Path(path).expanduser())
    if base_url and not base_url.startswith(("http://", "https://")):
        raise BadSetting("LLM_BASE_URL must begin with http:// or https://", where="llm_base_url")
    return _open_chat(name, base_url=base_url, api_key=api_key)


def _open_chat(name: str, *, base_url: str | None, api_key: str | None) -> Model:
    """Open "openai/MODEL", any model name at a `base_url`, or a model of litellm."""
    # Imported here, because these modules load an HTTP client, which most commands do not need.
    from agent.llm.chat_client import LiteLLMChatClient, OpenAIChatClient
    from agent.llm.chat_model import ChatModel

    if base_url or name.startswith((*_OPENAI, *_OPENAI_MODELS)):
        model = next((name.removeprefix(server) for server in _SERVERS if name.startswith(server)), name)
        return ChatModel(name, model, OpenAIChatClient(base_url, api_key))
    return ChatModel(name, name, LiteLLMChatClient(api_key))
