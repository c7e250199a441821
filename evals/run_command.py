"""The command `signalbox eval run`."""

import asyncio
import logging
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from evals.options import AsJson, Changes, Split, check_writable, settings_of, write_figures
from retrievers.core.errors import BadRequest

_log = logging.getLogger("signalbox.eval")


class Filters(StrEnum):
    none = "none"
    gold = "gold"


Questions = Annotated[
    Path, typer.Argument(metavar="DATASET", help="folder in BEIR or routed form, or a CSV or JSONL file of questions")
]
Out = Annotated[Path | None, typer.Option(metavar="RUN.json", help="write the run to this file")]
GivenFilters = Annotated[
    Filters, typer.Option(help="gold: send the gold filter of each question as the filter of the request")
]
Limit = Annotated[int | None, typer.Option(min=1, help="use only the first N questions")]
Replies = Annotated[
    Path | None, typer.Option(metavar="FILE", help="JSONL file of recorded model replies by question id; replaces LLM")
]
Stored = Annotated[str | None, typer.Option(help="ask this stored collection of TENANT and ingest nothing")]
Answers = Annotated[
    bool, typer.Option("--answers", help="ask for answers instead of hits and judge their text and citations")
]
Judge = Annotated[
    bool, typer.Option("--judge", help="with --answers: the model of LLM grades every answer (0, 0.5, 1)")
]
AtOnce = Annotated[
    int, typer.Option(min=1, max=64, help="number of questions under way at a time; latency is then under load")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="with --out: go on with a stopped run, whose rows are in RUN.json.partial")
]


Publish = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="show the averages in /metrics under this name; only for a stored collection"),
]
Every = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="with --publish: repeat the run until stopped, such as every 30m, 24h or 7d"),
]


def run(
    dataset: Questions,
    changes: Changes = None,
    out: Out = None,
    split: Split = "test",
    filters: GivenFilters = Filters.none,
    limit: Limit = None,
    replies: Replies = None,
    collection: Stored = None,
    answers: Answers = False,
    judge: Judge = False,
    at_once: AtOnce = 1,
    resume: Resume = False,
    publish: Publish = None,
    every: Every = None,
    as_json: AsJson = False,
) -> int:
    """Ask every question of a dataset and judge the hits or the answers.

    The corpus of a folder goes into a collection of its name under the tenant "eval"; the next run finds it there. A
    file has the columns question and document (ids, separated by ";") or answer, or answerable, and optionally filter
    or filters, history, collection, class, lang, now and id; its questions are sent to a stored collection.
    """
    from agent.observe import logs
    from agent.serve.cli.output import print_note, write_json
    from agent.settings import load_settings
    from evals.publishing import Publisher, check_stored, summary_line
    from evals.question_runner import QuestionRunOptions
    from evals.questions import load_questions
    from evals.repeated_run import repeat
    from evals.reply_recording import write_recording
    from evals.run import run as evaluate
    from evals.run_checkpoint import checkpoint_path
    from evals.run_display import show_run

    check_writable(out)
    if resume and out is None:
        raise BadRequest("--resume needs --out RUN.json of the run that was stopped", where="--resume")
    if judge and not answers:
        raise BadRequest("--judge judges answers: give --answers, too", where="--judge")
    every_s = _seconds(every, publish=publish, is_single=resume or as_json)
    options = QuestionRunOptions(filters.value, answers=answers, judge=judge, at_once=at_once)
    with ExitStack() as stack:
        recording, own = None, {}
        if replies is not None:
            recording = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "recording.jsonl"
            own = {"llm": f"replay:{recording}"}

        async def measure(said: Callable[[str], None], kept: Path | None = None) -> dict[str, Any]:
            loaded = load_questions(dataset, split, collection, said)
            if publish is not None:
                check_stored(loaded, collection)
            if replies is not None and recording is not None:
                write_recording(loaded, replies, recording, said)
            return await evaluate(
                loaded, given, said, options=options, limit=limit, collection=collection, out=kept, resume=resume
            )

        given = load_settings({**settings_of(changes), **own})
        publisher = Publisher(given, publish, every_s) if publish is not None else None
        if publisher is not None and every_s is not None:

            async def again() -> str:
                found = await publisher.run(partial(measure, _log.debug))
                if out is not None:
                    write_figures(out, found)
                return summary_line(found)

            logs.configure(given)
            asyncio.run(repeat(publisher.name, again, every_s))
            return 0
        once = partial(measure, print_note, out)
        found = asyncio.run(once() if publisher is None else publisher.run(once))
    if publish is not None:
        print_note(f"published as {publish}")
    if out is not None:
        write_figures(out, found)
        checkpoint_path(out).unlink(missing_ok=True)
        print_note(f"written to {out}")
    write_json(found) if as_json else show_run(found)
    return 0


def _seconds(every: str | None, *, publish: str | None, is_single: bool) -> float | None:
    """Return the seconds of --every; None without it.

    Args:
        is_single: whether another option is for a single run only.
    Raises:
        BadRequest: it is no duration, or does not go with the other options.
    """
    from agent.options.durations import read_duration

    if every is None:
        return None
    if publish is None or is_single:
        raise BadRequest("--every needs --publish NAME and no --resume or --json", where="--every")
    try:
        return read_duration(every)
    except ValueError as error:
        raise BadRequest(f"--every: {error}", where="--every") from error
