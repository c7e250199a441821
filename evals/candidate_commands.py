"""The commands `signalbox eval collect` and `signalbox eval questions`: candidate questions for a person to accept."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.serve.cli.options import AsJson, Tenant
from evals.options import Changes, settings_of
from retrievers.core.errors import BadRequest

if TYPE_CHECKING:
    from agent.service.service import Service
    from agent.settings import Settings
    from evals.review import CandidateQuestion

Collection = Annotated[str | None, typer.Option(help="collection whose questions to collect")]
ReviewOut = Annotated[Path | None, typer.Option("--out", metavar="REVIEW.jsonl", help="write the candidates here")]


def collect(
    collection: Collection = None,
    out: ReviewOut = None,
    since: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], metavar="DAY", help="only questions from this day (UTC) on")
    ] = None,
    accept: Annotated[
        Path | None, typer.Option(metavar="REVIEW.jsonl", help="make a dataset of the accepted lines of this file")
    ] = None,
    dataset: Annotated[Path | None, typer.Option(metavar="FOLDER", help="dataset to write or to add to")] = None,
    changes: Changes = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> int:
    """Collect questions from feedback, opened documents and corrected filters; make a dataset of the accepted ones.

    First `--collection C --out REVIEW.jsonl`. Set "accept" of each line to true or false and correct "relevant" and
    "filter". Then `--accept REVIEW.jsonl --dataset FOLDER`, for `eval run` and `eval tune`.
    """
    if accept is not None:
        if dataset is None or out is not None or collection is not None or since is not None:
            raise BadRequest("--accept needs --dataset FOLDER and no --collection, --out or --since", where="--accept")
        return _accept(accept, dataset, changes, tenant, as_json)
    if collection is None or out is None or dataset is not None:
        raise BadRequest(
            "give --collection C --out REVIEW.jsonl, or --accept REVIEW.jsonl --dataset FOLDER", where="--collection"
        )
    return _collect(collection, out, since, changes, tenant, as_json)


def questions(
    collection: Annotated[str, typer.Argument(help="stored collection to make questions of")],
    out: Annotated[Path, typer.Option(metavar="REVIEW.jsonl", help="write the candidates here")],
    number: Annotated[int, typer.Option("--n", min=1, max=100_000, help="maximum number of questions")] = 100,
    seed: Annotated[int, typer.Option(help="another seed draws other documents")] = 1,
    known_items: Annotated[
        bool, typer.Option("--known-items", help="make known-item questions although a model is set")
    ] = False,
    changes: Changes = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> int:
    """Make labelled questions of a collection's documents, in the form of `eval collect`.

    With LLM set, a model drafts them and a person must accept them. Without a model they ask for documents by title,
    values or rarest sentence; their labels hold by construction, so "accept" is already true.
    """
    from agent.llm.model_factory import open_model
    from agent.serve.cli.output import print_note
    from evals.review import check_new

    check_new(out)
    given = _settings(changes)

    async def work(service: "Service") -> int:
        from evals.known_items import known_items as make_questions
        from evals.question_drafting import draft_questions
        from evals.sampling import DrawOptions

        options = DrawOptions(service.viewer(tenant), number, seed)
        model = open_model(given.llm, base_url=given.llm_base_url, api_key=given.llm_api_key)
        if model is None or known_items:
            return _finish(out, await make_questions(service, collection, print_note, options), collection, as_json)
        try:
            drafts = await draft_questions(service, model, collection, print_note, options)
        finally:
            await model.aclose()
        for reason, count in drafts.dropped.most_common():
            print_note(f"{count} drafts dropped: {reason}")
        return _finish(out, drafts.candidates, collection, as_json)

    return _with_service(given, work)


def _collect(
    collection: str, out: Path, since: datetime | None, changes: Sequence[str] | None, tenant: str | None, as_json: bool
) -> int:
    from agent.serve.cli.output import print_note
    from evals.review import check_new
    from evals.traffic_collection import collect

    check_new(out)
    start = since.replace(tzinfo=UTC) if since is not None else None

    async def work(service: "Service") -> int:
        found = await collect(service, collection, print_note, viewer=service.viewer(tenant), since=start)
        if found.unknown:
            print_note(f"{found.unknown} documents of the feedback are not stored any more and were left out")
        if not service.traces.days:
            print_note("no questions are kept while TRACE_DAYS is 0")
        return _finish(out, found.candidates, f"{found.questions:,} questions asked", as_json)

    return _with_service(_settings(changes), work)


def _finish(out: Path, candidates: Sequence["CandidateQuestion"], origin: str, as_json: bool) -> int:
    """Write the review file and say how many candidates of which kind it holds; write nothing if there are none."""
    from agent.serve.cli.output import write_json
    from evals.review import write_review

    if candidates:
        write_review(out, candidates)
    kinds = dict(sorted(Counter(one.question.klass or "" for one in candidates).items()))
    checks = sum(bool(one.check) for one in candidates)
    if as_json:
        write_json({"file": str(out) if candidates else None, "candidates": len(candidates), "by_class": kinds,
                    "to_correct": checks})  # fmt: skip
        return 0
    shown = ", ".join(f"{name} {count}" for name, count in kinds.items())
    print(f"{len(candidates)} candidates from {origin}" + (f": {shown}; {checks} need a correction" if shown else ""))
    if candidates:
        print(f"{out}: set accept to true or false, correct the labels, then\n"
              f"  signalbox eval collect --accept {out} --dataset FOLDER")  # fmt: skip
    return 0


def _accept(review: Path, folder: Path, changes: Sequence[str] | None, tenant: str | None, as_json: bool) -> int:
    from agent.serve.cli.output import print_note, write_json
    from evals.accepted_dataset import accept
    from evals.review import read_review

    candidates = read_review(review)

    async def work(service: "Service") -> int:
        done = await accept(service, candidates, folder, print_note, viewer=service.viewer(tenant))
        if as_json:
            write_json({"dataset": str(folder), **asdict(done)})
            return 0
        lines = f"accepted {done.accepted}, rejected {done.rejected}, undecided and left out {done.undecided}"
        print(lines + (f", merged {done.merged}" if done.merged else ""))
        if done.unlabelled:
            print(f"{done.unlabelled} accepted questions have no relevant document and no answer")
        parts = ", ".join(f"{name} {count}" for name, count in done.splits.items() if count)
        print(f"{folder}: {done.questions} questions ({parts}), {done.documents:,} documents")
        return 0

    return _with_service(_settings(changes), work)


def _settings(changes: Sequence[str] | None) -> "Settings":
    from agent.settings import load_settings

    return load_settings(settings_of(changes))


def _with_service(settings: "Settings", work: Callable[["Service"], Awaitable[int]]) -> int:
    from agent.service.factory import open_service

    async def run() -> int:
        async with open_service(settings) as service:
            return await work(service)

    return asyncio.run(run())
