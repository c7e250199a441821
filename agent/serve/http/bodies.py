"""Reading a JSON body into a pydantic shape: what is no JSON, or no text, is a problem that names the field."""

import asyncio
import json
import math
import re
from collections.abc import Mapping
from email.message import Message
from typing import Any, Generic, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers

from agent.serve.http.problems import Problem, field_problem, printable, validation_problem

MAX_DEPTH = 64
_LARGEST_WHOLE_NUMBER = 2**63 - 1
_MOST_DIGITS = 310
_LARGE_BODY_BYTES = 64 << 10
"""From here on a body is parsed beside the event loop."""

_NO_TEXT = re.compile("[\0\ud800-\udfff]")

Shaped = TypeVar("Shaped", bound=BaseModel)


class JsonBody(Generic[Shaped]):
    """A dependency that reads the body: `body: Annotated[Shape, Depends(JsonBody(Shape))]`.

    The OpenAPI document shows the shape as the operation's request body. JSON's types are taken as they are: "5" is
    no number, and 1 is not true.

    Args:
        shape: what the body must be.
        items: a key that holds a list whose items are not looked into, because what they are given to judges each
            by itself; they reach the shape as they were sent.
        optional: no body at all is the shape without any key.
        example: a body that works, for the OpenAPI document.
    """

    def __init__(
        self,
        shape: type[Shaped],
        *,
        items: str | None = None,
        optional: bool = False,
        example: Mapping[str, Any] | None = None,
    ) -> None:
        self.shape, self.optional, self.example = shape, optional, example
        self._items = items

    async def __call__(self, request: Request) -> Shaped:
        raw = await request.body()
        if self.optional and not raw:
            return self.read(b"{}")
        check_content_type(request.headers)
        if len(raw) > _LARGE_BODY_BYTES:
            return await asyncio.to_thread(self.read, raw)
        return self.read(raw)

    def read(self, raw: bytes) -> Shaped:
        """The shape in the bytes of a body.

        Raises:
            Problem: 400 where it is no JSON, 422 where it is not this shape.
        """
        value = parse(raw)
        key, items = self._items, None
        if key is not None and isinstance(value, dict) and isinstance(value.get(key), list):
            items = value[key]
            value[key] = [None] * len(items)
            raw = json.dumps(value).encode()
        check(value)
        try:
            shaped = self.shape.model_validate_json(raw, strict=True)
        except ValidationError as error:
            raise validation_problem(error, self.shape) from None
        return shaped if key is None else shaped.model_copy(update={key: items})


def check_content_type(headers: Headers, *, suffixed: bool = True) -> None:
    """A page of another origin may send other types without asking; and nothing else is read anywhere.

    Args:
        suffixed: whether types that end in "+json" are JSON as well.
    Raises:
        Problem: 415, the body is not said to be plain JSON in UTF-8.
    """
    given = Message()
    given["content-type"] = headers.get("content-type", "")
    kind, charset = given.get_content_type(), given.get_content_charset("utf-8")
    is_json = kind == "application/json" or (suffixed and kind.endswith("+json"))
    plain = headers.get("content-encoding", "identity").lower() == "identity"
    if not headers.get("content-type") or not is_json or charset not in ("utf-8", "utf8") or not plain:
        detail = "send the body as Content-Type: application/json, in UTF-8 and not compressed"
        raise Problem(415, "unsupported-media-type", detail)


def parse(raw: bytes) -> Any:
    """The value of a JSON text in UTF-8, in which numbers out of range are infinite.

    Raises:
        Problem: it is no JSON, or an object says the same key twice.
    """
    try:
        return _JSON.decode(raw.decode())
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not UTF-8"
    except json.JSONDecodeError as error:
        reason = f"line {error.lineno}, column {error.colno}: {error.msg}"
    except RecursionError:
        reason = f"it is nested deeper than {MAX_DEPTH} levels"
    raise Problem(400, "malformed-json", f"the body is not valid JSON in UTF-8: {reason}")


def check(value: Any, where: tuple[str, ...] = ()) -> None:
    """Refuse numbers and texts that nothing behind could store or compare, and what is nested too deeply.

    Raises:
        Problem: naming the field.
    """
    if isinstance(value, str):
        if found := _NO_TEXT.search(value):
            what = "a NUL character" if found[0] == "\0" else "half of a surrogate pair"
            raise field_problem(".".join(where) or "body", f"it holds {what}, which is no text")
    elif isinstance(value, int | float):
        if not math.isfinite(value) or (isinstance(value, int) and abs(value) > _LARGEST_WHOLE_NUMBER):
            raise field_problem(".".join(where) or "body", "it is no finite number of at most 64 bits")
    elif isinstance(value, dict | list):
        if len(where) >= MAX_DEPTH:
            raise field_problem(".".join(where[:4]), f"it is nested deeper than {MAX_DEPTH} levels")
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            inner = (*where, printable(key))
            if isinstance(key, str) and _NO_TEXT.search(key):
                raise field_problem(".".join(inner), "its name holds a NUL character or half of a surrogate pair")
            check(part, inner)


def _whole(digits: str) -> float:
    """A whole number; infinite where it has more digits than any number anybody computes with."""
    return int(digits) if len(digits) <= _MOST_DIGITS else math.inf


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = printable(next(key for key in keys if keys.count(key) > 1))
        raise field_problem(twice, "an object has this key twice")
    return value


_JSON = json.JSONDecoder(parse_int=_whole, object_pairs_hook=_object)
