"""Read a server's answers to chat completions, whole or as events of a stream."""

import json
from typing import Any

from agent.llm.call_options import ToolCallAssembler
from agent.llm.chat_client import DONE
from agent.llm.model import CallUsage, ModelFailed
from agent.llm.retries import CallState

LONGEST_TEXT = 200_000
"""Maximum number of characters of an answer."""
CUT_REASONS = {
    "length": "its answer was cut at the token limit",
    "content_filter": "its provider's filter stopped the answer",
}
"""The reason of the failure for each finish reason of an incomplete answer."""


def parse_completion(data: Any, run: CallState, *, by_tool: bool) -> str:
    """Return the text of an answer, or the arguments of its tool call if `by_tool`; add its usage to `run`.

    Raises:
        ModelFailed: the answer has no message, is a refusal, or is cut or too long.
    """
    if not isinstance(data, dict):
        raise ModelFailed("its answer is not a JSON object")
    run.usage += CallUsage.from_json(data.get("usage"))
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise ModelFailed("its answer contains an error" if data.get("error") else "its answer contains no message")
    if message.get("refusal"):
        raise ModelFailed("it refused to answer")
    if choice.get("finish_reason") in CUT_REASONS:
        # A truncated answer cannot be repaired: the next answer would be truncated as well.
        raise ModelFailed(CUT_REASONS[choice["finish_reason"]])
    text = (_tool_arguments(message.get("tool_calls")) if by_tool else "") or _content_text(message.get("content"))
    if len(text) > LONGEST_TEXT:
        raise ModelFailed(f"its answer is longer than {LONGEST_TEXT:,} characters")
    return text


def parse_stream_event(event: dict[str, Any], finished: str | None, calls: ToolCallAssembler) -> tuple[str, str | None]:
    """Return (text that an event adds, finish reason or None while unknown); add the event's tool calls to `calls`.

    Args:
        finished: the finish reason of the earlier events; None if they have none.
    Raises:
        ModelFailed: the event reports an error or a refusal.
    """
    if event.get("error"):
        raise ModelFailed("its answer contains an error")
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return "", finished or ("stop" if event == DONE else None)
    # A server that does not stream answers with a whole message.
    delta = choice.get("delta") or choice.get("message")
    delta = delta if isinstance(delta, dict) else {}
    if delta.get("refusal"):
        raise ModelFailed("it refused to answer")
    calls.add(delta.get("tool_calls"))
    calls.add_legacy(delta.get("function_call"))
    reason = choice.get("finish_reason")
    return _content_text(delta.get("content")), str(reason) if reason else finished


def _tool_arguments(calls: object) -> str:
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(arguments, dict):
            return json.dumps(arguments, ensure_ascii=False)
        if isinstance(arguments, str) and arguments.strip():
            return arguments
    return ""


def _content_text(content: object) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
