"""Clean the messages of a model call before they are sent: remove invisible characters and control tokens."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from agent.llm.model import Messages
from retrievers.text.visible import prompt_text, prompt_value

_MOST_AT_ONCE = 20_000
"""Maximum number of characters cleaned on the event loop (about 1 ms); more go to a thread."""


async def cleaned(messages: Messages) -> list[dict[str, Any]]:
    """Return copies of the messages with every string cleaned by `prompt_text`."""
    if sum(len(str(message.get(key))) for message in messages for key in ("content", "tool_calls")) <= _MOST_AT_ONCE:
        return [_cleaned(message) for message in messages]
    return await asyncio.to_thread(lambda: [_cleaned(message) for message in messages])


def _cleaned(message: Mapping[str, Any]) -> dict[str, Any]:
    sent: dict[str, Any] = prompt_value(message)
    for call, given in zip(sent.get("tool_calls") or (), message.get("tool_calls") or (), strict=True):
        function = call.get("function") or {}
        if isinstance(function.get("arguments"), str):
            function["arguments"] = _cleaned_json(given["function"]["arguments"])
    return sent


def _cleaned_json(text: str) -> str:
    """Clean the strings inside a JSON text, where characters may be escaped.

    Return the text unchanged if nothing changes.
    """
    try:
        given = json.loads(text)
        shown = prompt_value(given)
    except (ValueError, RecursionError):
        return prompt_text(text)
    return text if shown == given and prompt_text(text) == text else json.dumps(shown, ensure_ascii=False)
