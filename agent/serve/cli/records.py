"""The `records` command: list past questions or erase them."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from agent.serve.cli import output
from agent.serve.cli.output import terminal_text
from retrievers.core.errors import BadRequest

if TYPE_CHECKING:
    from agent.chat.exchanges import Exchange
    from agent.service.service import Service
    from retrievers.core.types import Viewer


async def run(
    service: "Service",
    *,
    viewer: "Viewer",
    user: str | None,
    conversation: str | None,
    limit: int,
    erase: bool,
    as_json: bool,
) -> int:
    """List past questions or erase them; return the exit code."""
    if erase:
        erased = asdict(await service.erase(user=user, conversation=conversation, tenant=viewer))
        if as_json:
            output.write_json({"user": user, "conversation": conversation, "erased": erased})
        else:
            print("erased: " + ", ".join(f"{name} {count:,}" for name, count in erased.items()))
        return 0
    found = await service.recorded_questions(user=user, conversation=conversation, limit=limit, tenant=viewer)
    if as_json:
        output.write_json([asdict(one) for one in found])
        return 0
    for one in found:
        _show(one)
    if not found:
        kept = service.settings.chat_days
        print("no questions" if kept else "no questions: none are kept while CHAT_DAYS is 0")
    return 0


def check_arguments(*, user: str | None, conversation: str | None, erase: bool) -> None:
    """Check the arguments of the command.

    Raises:
        BadRequest: `erase` without exactly one of user and conversation.
    """
    if erase and (user is None) == (conversation is None):
        raise BadRequest("--erase needs either --user NAME or --conversation ID", where="--erase")


def _show(one: "Exchange") -> None:
    who = terminal_text(one.user) if one.user else "-"
    print(f"{one.created_at:%Y-%m-%d %H:%M:%S}  {one.kind:<8} {one.status:<10} {who}")
    print(f"    {_line(one.question)}")
    if one.answer:
        print(f"    -> {_line(one.answer)}")
    said = {"conversation": one.conversation, **one.metadata, "score": one.score, "trace": one.trace_id}
    facts = ", ".join(f"{name}: {terminal_text(str(value))}" for name, value in said.items() if value is not None)
    if facts:
        print(f"    {_line(facts)}")


def _line(text: str) -> str:
    line = " ".join(terminal_text(text).split())
    return line if len(line) <= 200 else f"{line[:199]}…"
