"""Parse JSON in documents: refuses non-finite numbers, and reports errors with their line."""

import json
from typing import NoReturn

from retrievers.core.errors import BadDocument


def _refuse_constant(name: str) -> NoReturn:
    raise BadDocument(f"malformed JSON: {name} is not a JSON number; use null")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_json(text: str, first_line: int = 1) -> object:
    try:
        # Without the line end: otherwise an error in truncated JSON would be reported on the next line.
        return _JSON.decode(text.rstrip())
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise BadDocument(f"malformed JSON at line {line}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise BadDocument("the JSON is nested too deeply") from None
    except ValueError:
        raise BadDocument("a number in the JSON has too many digits") from None
