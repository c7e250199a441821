"""`signalbox ask`: print the answer as it arrives, then its citations and unsupported sentences."""

import json
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from agent.errors import to_bad_request
from agent.serve.cli import output
from agent.serve.cli.output import terminal_text
from agent.types import Answer, Message
from retrievers.core.errors import BadRequest

if TYPE_CHECKING:
    from agent.service.service import Service

_LARGEST_HISTORY = 8 << 20
_TURNS = TypeAdapter(list[Message])
_DEGRADATION_TEXTS = {
    "no_model": "no model is set: {shown}; set LLM to get written answers",
    "model_unavailable": "the model gave no answer: {shown}",
    "answer_cut": "the answer broke off here",
    "judge_unavailable": "the model did not check the answer; the wording was compared with the passages instead",
}


async def answer_question(
    service: "Service", question: str, *, tenant: str | None, as_json: bool, **options: Any
) -> int:
    """Answer a question and return the exit code. `options` are those of `agent.types.AskRequest`."""
    if as_json:
        answer = await service.ask(question, tenant=tenant, **options)
        output.write_json(answer.model_dump(mode="json"))
        return 0
    ended = "\n"
    async with aclosing(service.ask_stream(question, tenant=tenant, **options)) as pieces:
        async for piece in pieces:
            if isinstance(piece, str):
                print(terminal_text(piece), end="", flush=True)
                ended = piece[-1:]
            else:
                print("" if ended == "\n" else "\n", end="")
                print_answer(piece, caller_filter=options.get("filter"))
                output.print_trace_hint(service.traces, piece.trace_id, tenant)
    return 0


def print_answer(answer: Answer, *, caller_filter: Mapping[str, Any] | None = None) -> None:
    """Print what follows an answer's text: the cited passages, and the sentences they do not support.

    Args:
        caller_filter: the caller's own filter. If the intent's filter equals it, it is not reported as read from the
            question.
    """
    if answer.refusal is not None:
        return
    cited = {n for sentence in answer.sentences for n in sentence.citations}
    listed = [one for one in answer.citations if one.n in cited or not answer.sentences]
    if listed:
        print()
    for one in listed:
        within = "".join(f", {terminal_text(part)}" for part in (one.heading, one.place) if part)
        title, address = terminal_text(one.title or one.document_id), terminal_text(one.url or one.document_id)
        print(f"[{one.n}] {title}{within} ({address})")
    doubtful = [sentence for sentence in answer.sentences if sentence.supported is False]
    if doubtful:
        print("\nNot supported by the cited passages:")
    for sentence in doubtful:
        text = " ".join(terminal_text(sentence.text).split())
        print(f"[?] {text}{'' if sentence.citations else '  (cites no passage)'}")
    output.print_interpretation(answer.intent, caller_filter)
    output.print_shortfalls(answer)
    for name in answer.degraded:
        output.print_note(_degradation_text(name, answer))
    support = f", {answer.faithfulness:.0%} of its claims supported" if answer.faithfulness is not None else ""
    tokens = answer.usage.prompt_tokens + answer.usage.completion_tokens
    output.print_note(f"{answer.model or 'no model'}, {tokens:,} tokens{support}")


def _degradation_text(name: str, answer: Answer) -> str:
    shown = "these are the passages" if answer.citations else "and no passages were found"
    return _DEGRADATION_TEXTS.get(name, f"degraded: {name}").format(shown=shown)


def _parse_turn(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise BadRequest(f"{where}, column {error.colno}: not JSON: {error.msg}", where="--history") from None
    except (ValueError, RecursionError) as error:  # a number with thousands of digits
        raise _not_json_error(where, error) from None


def _not_json_error(where: str, error: Exception) -> BadRequest:
    reason = str(error)[:200] if isinstance(error, ValueError) else "nested too deeply"
    return BadRequest(f"{where}: not JSON: {reason}", where="--history")


def read_history(path: Path) -> list[Message]:
    """Read the turns of a conversation from a file: a JSON list of {"role", "content"}, or one object per line.

    Raises:
        BadRequest: the file cannot be read, or an entry is not a turn; the message says where.
    """
    where = f"--history {path}"
    try:
        if path.stat().st_size > _LARGEST_HISTORY:
            raise BadRequest(f"{where}: it is larger than 8 MiB", where="--history")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadRequest(f"{where}: {reason}", where="--history") from None
    try:
        if text.lstrip().startswith("["):
            turns = json.loads(text)
        else:
            lines = enumerate(text.split("\n"), 1)
            turns = [_parse_turn(line, f"{where}, line {number}") for number, line in lines if line.strip()]
    except (ValueError, RecursionError) as error:
        raise _not_json_error(where, error) from None
    try:
        return _TURNS.validate_python(turns)
    except ValidationError as error:
        raise BadRequest(f"{where}: turn {to_bad_request(error)}", where="--history") from None
