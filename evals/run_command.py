"""The command `signalbox eval run`."""

import asyncio
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from evals.options import AsJson, Changes, Split, check_writable, settings_of, write_figures
from retrievers.core.errors import BadRequest


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
    as_json: AsJson = False,
) -> int:
    """Ask every question of a dataset and judge the hits or the answers.

    The corpus of a folder goes into a collection of its name under the tenant "eval"; the next run finds it there. A
    file has the columns question and document (ids, separated by ";") or answer, or answerable, and optionally filter
    or filters, history, collection, class, lang, now and id; its questions are sent to a stored collection.
    """
    from agent.serve.cli.output import note, write_json
    from agent.settings import load_settings
    from evals.asking import AskingOptions
    from evals.partial import partial_path
    from evals.questions import load_questions
    from evals.replies import write_recording
    from evals.run import run as evaluate
    from evals.show import show_run

    check_writable(out)
    if resume and out is None:
        raise BadRequest("--resume needs --out RUN.json of the run that was stopped", where="--resume")
    if judge and not answers:
        raise BadRequest("--judge judges answers: give --answers, too", where="--judge")
    options = AskingOptions(filters.value, answers=answers, judge=judge, at_once=at_once)
    loaded = load_questions(dataset, split, collection, note)
    with tempfile.TemporaryDirectory() as folder:
        own = {}
        if replies is not None:
            recording = Path(folder) / "recording.jsonl"
            write_recording(loaded, replies, recording, note)
            own = {"llm": f"replay:{recording}"}
        given = load_settings({**settings_of(changes), **own})
        asked = evaluate(
            loaded, given, note, options=options, limit=limit, collection=collection, out=out, resume=resume
        )
        found = asyncio.run(asked)
    if out is not None:
        write_figures(out, found)
        partial_path(out).unlink(missing_ok=True)
        note(f"written to {out}")
    write_json(found) if as_json else show_run(found)
    return 0
