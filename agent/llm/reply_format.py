"""Forms of a request for a JSON reply, from a strict schema to plain text."""

import json
from enum import IntEnum
from typing import Any

from pydantic import BaseModel

from agent.llm.reply_json import strict_schema


class ReplyFormat(IntEnum):
    """Ways to request a JSON reply, in the order in which they are tried.

    SCHEMA and OBJECT ask for the response format "json_schema" or "json_object", TOOL for a tool call whose arguments
    are the reply. TEXT sets no parameter: only a sentence in the prompt asks for JSON.
    """

    SCHEMA = 0
    OBJECT = 1
    TOOL = 2
    TEXT = 3


def reply_format(form: ReplyFormat, schema: type[BaseModel] | None) -> dict[str, Any]:
    """Return the request parameters that ask for a reply in the form `form`; {} for plain text or without a schema."""
    if schema is None or form is ReplyFormat.TEXT:
        return {}
    if form is ReplyFormat.OBJECT:
        return {"response_format": {"type": "json_object"}}
    wanted = strict_schema(schema)
    if form is ReplyFormat.SCHEMA:
        named = {"name": "reply", "strict": True, "schema": wanted}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    function = {"name": "reply", "description": "Give the reply.", "parameters": wanted}
    return {
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "reply"}},
    }


def schema_text(schema: type[BaseModel]) -> str:
    """Return the sentence that asks the model for a JSON object of this schema."""
    shape = json.dumps(strict_schema(schema), ensure_ascii=False)
    return f"Reply with one JSON object of this JSON schema, and with nothing else:\n{shape}"
