"""The command `signalbox eval published`."""

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from evals.options import AsJson, Changes, settings_of

if TYPE_CHECKING:
    from retrievers.postgres.accounts.evaluations import Evaluation

_COLUMNS = ("name", "tenant", "collections", "dataset", "questions", "failed runs", "measured (UTC)", "measures")


def published(
    remove: Annotated[
        str | None, typer.Option(metavar="NAME", help="remove this name first; /metrics shows it no more")
    ] = None,
    changes: Changes = None,
    as_json: AsJson = False,
) -> int:
    """List the figures that `eval run --publish NAME` shows in /metrics, of all tenants."""
    from agent.serve.cli.output import write_json
    from agent.settings import load_settings
    from evals.publishing import published as read
    from evals.tables import show_table

    found = asyncio.run(read(load_settings(settings_of(changes)), remove))
    if as_json:
        write_json([_json(one) for one in found])
    elif found:
        show_table("published evaluations", _COLUMNS, [_row(one) for one in found])
    else:
        print("nothing is published: eval run DATASET --collection C --publish NAME does")
    return 0


def _json(one: "Evaluation") -> dict[str, object]:
    return {
        "name": one.name,
        "tenant": one.tenant,
        **asdict(one.figures),
        "measured_at": one.measured_at.isoformat(timespec="seconds"),
        "failures": one.failures,
    }


def _row(one: "Evaluation") -> tuple[str, ...]:
    figures = one.figures
    questions = str(figures.answered + figures.failed) + (f", {figures.failed} failed" if figures.failed else "")
    measures = ", ".join(f"{name} {value:.3f}" for name, value in figures.measures.items())
    return (
        one.name, one.tenant, ", ".join(figures.collections), figures.dataset, questions, str(one.failures),
        f"{one.measured_at:%Y-%m-%d %H:%M}", measures,
    )  # fmt: skip
