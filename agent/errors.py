"""Errors of the service itself; those of sources and storage are in `retrievers.core.errors`."""

from pydantic import ValidationError

from retrievers.core.errors import BadRequest


class BadSetting(BadRequest):
    """A setting that cannot be used, with where it came from."""


def readable(error: ValidationError) -> BadRequest:
    """A pydantic error as one line that names the field and never echoes the input."""
    first = error.errors(include_input=False, include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    where = ".".join(str(part) for part in first["loc"]) or "request"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return BadRequest(f"{where}: {message[:1].lower()}{message[1:]}{more}", where=where)
