"""Read a JSON body into a pydantic model; invalid JSON or text becomes a problem that names the field."""

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from email.message import Message
from typing import Any, Generic, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers

from agent.serve.http.problems import Problem, field_problem, printable_name, validation_problem
from agent.serve.request_limits import DOCUMENT_LIMITS, QUESTION_LIMITS, find_oversized_part
from retrievers.core.errors import BadRequest
from retrievers.core.json_limits import UNREADABLE, JsonLimits, json_refusal, whole_number
from retrievers.ingest.readers.oversized_records import replace_oversized_records

MAX_DEPTH = 64
_LARGEST_WHOLE_NUMBER = 2**63 - 1
LARGE_BODY_BYTES = 16 << 10
"""Bodies larger than this are parsed in a thread."""

_INVALID_TEXT = re.compile("[\0\ud800-\udfff]")
_INVALID_TEXT_ESCAPE = re.compile(rb"\\u(?:0000|d[89a-f])", re.IGNORECASE)
"""Matches the JSON escapes of what `_INVALID_TEXT` matches, and also the beginning of a valid surrogate pair."""

BodyModel = TypeVar("BodyModel", bound=BaseModel)


class JsonBody(Generic[BodyModel]):
    """FastAPI dependency that reads a JSON body into a model: `body: Annotated[Model, Depends(JsonBody(Model))]`.

    The OpenAPI document shows the model as the request body. JSON types are strict: "5" is not a number, 1 is not true.

    Args:
        body_model: model of the body.
        items: key of a list whose items are not validated here but passed on as sent; the handler checks each item. An
            item with too many values to be parsed is replaced, see `retrievers.ingest.readers.oversized_records`.
        optional: whether an empty body counts as an empty object.
        example: a valid body for the OpenAPI document.
    """

    def __init__(
        self,
        body_model: type[BodyModel],
        *,
        items: str | None = None,
        optional: bool = False,
        example: Mapping[str, Any] | None = None,
    ) -> None:
        self.body_model, self.optional, self.example = body_model, optional, example
        self._items = items

    async def __call__(self, request: Request) -> BodyModel:
        raw = await request.body()
        if self.optional and not raw:
            return self.read(b"{}")
        check_content_type(request.headers)
        if len(raw) > LARGE_BODY_BYTES:
            return await asyncio.to_thread(self.read, raw)
        return self.read(raw)

    def read(self, raw: bytes) -> BodyModel:
        """Parse and validate the bytes of a body.

        Raises:
            Problem: 400 if it is not JSON, 422 if it does not match the model.
        """
        key, items = self._items, None
        if key is not None:
            try:
                raw = replace_oversized_records(raw)
            except BadRequest as error:
                raise field_problem("body", str(error)) from None
        check_value_count(raw, QUESTION_LIMITS if key is None else DOCUMENT_LIMITS)
        value = parse_json(raw)
        may_hold_no_text = _INVALID_TEXT_ESCAPE.search(raw) is not None
        if key is not None and isinstance(value, dict) and isinstance(value.get(key), list):
            items = value[key]
            value[key] = [None] * len(items)
            raw = json.dumps(value).encode()
        if not isinstance(value, dict):
            raise field_problem("body", "input should be an object")
        if (oversized := find_oversized_part(value)) is not None:
            path, detail = oversized
            raise field_problem(".".join(map(printable_name, path)) or "body", detail)
        check_values(value, texts=may_hold_no_text)
        try:
            shaped = self.body_model.model_validate_json(raw, strict=True)
        except ValidationError as error:
            raise validation_problem(error, self.body_model, value) from None
        return shaped if key is None else shaped.model_copy(update={key: items})


def check_value_count(raw: bytes, most: JsonLimits) -> None:
    """Check how many values a body has, before it is parsed.

    Raises:
        Problem: 422 if it has too many, 400 if it is not JSON.
    """
    if (crowd := json_refusal(raw, most)) is not None:
        raise field_problem("body", crowd) if crowd != UNREADABLE else _malformed(crowd)


def check_content_type(headers: Headers, *, suffixed: bool = True) -> None:
    """Check that a body is declared as uncompressed JSON in UTF-8.

    Pages of other sites can send other types without a preflight request, which this server would reject.

    Args:
        suffixed: whether types that end in "+json" count as JSON.
    Raises:
        Problem: 415 for any other type.
    """
    given = Message()
    given["content-type"] = headers.get("content-type", "")
    kind, charset = given.get_content_type(), given.get_content_charset("utf-8")
    is_json = kind == "application/json" or (suffixed and kind.endswith("+json"))
    plain = headers.get("content-encoding", "identity").lower() == "identity"
    if not headers.get("content-type") or not is_json or charset not in ("utf-8", "utf8") or not plain:
        detail = "send the body as Content-Type: application/json, in UTF-8 and not compressed"
        raise Problem(415, "unsupported-media-type", detail)


def parse_json(raw: bytes) -> Any:
    """Parse JSON in UTF-8; numbers out of range become infinite.

    Raises:
        Problem: it is not valid JSON, or an object has a key twice.
    """
    try:
        return _JSON.decode(raw.decode())
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not UTF-8"
    except json.JSONDecodeError as error:
        reason = f"line {error.lineno}, column {error.colno}: {error.msg}"
    except RecursionError:
        reason = f"it is nested deeper than {MAX_DEPTH} levels"
    raise _malformed(reason)


def _malformed(reason: str) -> Problem:
    return Problem(400, "malformed-json", f"the body is not valid JSON in UTF-8: {reason}")


def check_values(value: Any, *, texts: bool = True) -> None:
    """Reject numbers and texts that cannot be stored or compared, and values nested too deeply.

    Args:
        texts: whether to check texts and keys; False if they are known to be valid.
    Raises:
        Problem: 422 that names the field.
    """
    left: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while left:
        path, within = left.pop()
        if len(path) >= MAX_DEPTH:
            raise field_problem(_field_path(path[:4]), f"it is nested deeper than {MAX_DEPTH} levels")
        inner: list[tuple[tuple[Any, ...], Any]] = []
        for key, part in within.items() if isinstance(within, dict) else enumerate(within):
            # Most bodies consist of these values, so they are checked without a function call each.
            if isinstance(part, str):
                if texts and (found := _INVALID_TEXT.search(part)):
                    what = "a NUL character" if found[0] == "\0" else "half of a surrogate pair"
                    raise field_problem(_field_path((*path, key)), f"it holds {what}, which is not valid text")
            elif isinstance(part, int | float):
                if not -_LARGEST_WHOLE_NUMBER <= part <= _LARGEST_WHOLE_NUMBER and (
                    isinstance(part, int) or not math.isfinite(part)
                ):
                    raise field_problem(_field_path((*path, key)), "it is not a finite number of at most 64 bits")
            elif part is not None:
                inner.append(((*path, key), part))
            if texts and isinstance(key, str) and _INVALID_TEXT.search(key):
                detail = "its name holds a NUL character or half of a surrogate pair"
                raise field_problem(_field_path((*path, key)), detail)
        left += reversed(inner)


def _field_path(path: tuple[Any, ...]) -> str:
    return ".".join(map(printable_name, path)) or "body"


def _real(digits: str) -> float:
    """Parse a number with a fraction. Without this Python function, the parser would block all threads meanwhile."""
    return float(digits)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise field_problem(printable_name(twice), "an object contains this key twice")
    return value


_JSON = json.JSONDecoder(parse_int=whole_number, parse_float=_real, object_pairs_hook=_object)
