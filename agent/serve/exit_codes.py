"""The exit codes of the programs, and the exit code and message for an error."""

from retrievers.core.errors import BadRequest, RetrievalError, Unavailable

DONE, FAILED, BAD_INPUT, UNAVAILABLE = 0, 1, 2, 3


def exit_code(error: Exception) -> int:
    """Return the exit code for an error: `BAD_INPUT`, `UNAVAILABLE`, or `FAILED` for any other error."""
    if isinstance(error, BadRequest):
        return BAD_INPUT
    return UNAVAILABLE if isinstance(error, Unavailable) else FAILED


def error_line(error: Exception) -> str:
    """Return an error as one line for the user of the command."""
    text = " ".join(str(error).split())[:600]
    if isinstance(error, RetrievalError) or exit_code(error) == BAD_INPUT:
        return text
    return f"unexpected {type(error).__name__}: {text} (run again with --debug for the traceback)"
