"""Errors of the service itself; errors of sources and storage are in `retrievers.core.errors`."""

from pydantic import ValidationError

from retrievers.core.errors import BadRequest


class BadSetting(BadRequest):
    """A setting has an unusable value; the error says where the value came from."""


def plain(message: str) -> str:
    """Rewrite a pydantic message in terms of JSON: "Tuple should ..." becomes "list should ..."."""
    message = message.removeprefix("Value error, ").replace("Tuple should", "List should")
    message = message.replace(" after validation", "").replace("Extra inputs are not permitted", "There is no such key")
    message = message.replace(" for <class 'pathlib.Path'>", "")
    return message[:1].lower() + message[1:]


def readable(error: ValidationError) -> BadRequest:
    """Turn a pydantic error into a one-line `BadRequest` that names the field and never echoes the input."""
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "request"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return BadRequest(f"{where}: {plain(first['msg'])}{more}", where=where)
