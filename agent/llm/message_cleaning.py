"""Clean a model call before it is sent: remove invisible characters and control tokens."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from agent.llm.model import Messages
from retrievers.text.prompt_sanitising import sanitise_prompt_text, sanitise_prompt_value

_MOST_AT_ONCE = 20_000
"""Maximum number of characters cleaned on the event loop (about 1 ms); more go to a thread."""

_DESCRIBED = ("tools", "response_format")
"""Options that a model reads as text."""
_AS_GIVEN = frozenset(
    "name type enum const default examples pattern format required dependentRequired $schema $id $ref $anchor "
    "$dynamicRef $dynamicAnchor contentEncoding contentMediaType syntax definition".split()
)
"""Keys of a tool or a schema whose values are names, patterns and data, which a program compares."""
_BY_NAME = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"))
"""Keys of a schema whose value holds schemas by name; `dependencies` may hold lists of names too."""


async def clean_messages(messages: Messages) -> list[dict[str, Any]]:
    """Return copies of the messages with every string cleaned by `sanitise_prompt_text`."""
    if sum(len(str(message.get(key))) for message in messages for key in ("content", "tool_calls")) <= _MOST_AT_ONCE:
        return [_cleaned(message) for message in messages]
    return await asyncio.to_thread(lambda: [_cleaned(message) for message in messages])


async def clean_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call; texts in tools and response format, such as descriptions, are cleaned.

    Names, keys, patterns and values of enumerations stay as the caller wrote them.
    """
    described = {name: options[name] for name in _DESCRIBED if options.get(name)}
    if not described:
        return dict(options)
    if len(str(described)) <= _MOST_AT_ONCE:
        return {**options, **_cleaned_schemas(described)}
    return {**options, **await asyncio.to_thread(_cleaned_schemas, described)}


def _cleaned_schemas(by_name: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _cleaned_schema(one) for name, one in by_name.items()}


def _cleaned_schema(value: Any) -> Any:
    if isinstance(value, str):
        return sanitise_prompt_text(value)
    if isinstance(value, Mapping):
        return {key: _cleaned_part(key, one) for key, one in value.items()}
    return [_cleaned_schema(one) for one in value] if isinstance(value, list | tuple) else value


def _cleaned_part(key: str, value: Any) -> Any:
    if key in _BY_NAME and isinstance(value, Mapping):
        kept = {name: one for name, one in value.items() if key == "dependencies" and isinstance(one, list | tuple)}
        return {**_cleaned_schemas(value), **kept}
    return value if key in _AS_GIVEN else _cleaned_schema(value)


def _cleaned(message: Mapping[str, Any]) -> dict[str, Any]:
    sent: dict[str, Any] = sanitise_prompt_value(message)
    for call, given in zip(sent.get("tool_calls") or (), message.get("tool_calls") or (), strict=True):
        if given.get("extra_content") is not None:
            call["extra_content"] = given["extra_content"]
        function = call.get("function") or {}
        if isinstance(function.get("arguments"), str):
            function["arguments"] = _cleaned_json(given["function"]["arguments"])
    return sent


def _cleaned_json(text: str) -> str:
    """Return a JSON text with the strings inside it cleaned, even if their characters are escaped.

    The text keeps its form if there is nothing to clean.
    """
    try:
        given = json.loads(text)
        shown = sanitise_prompt_value(given)
    except (ValueError, RecursionError):
        return sanitise_prompt_text(text)
    return text if shown == given and sanitise_prompt_text(text) == text else json.dumps(shown, ensure_ascii=False)
