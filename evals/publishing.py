"""Publish the figures of runs over stored collections: in the database, from which /metrics shows the newest."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from agent.service.factory import database_addresses
from agent.settings import Settings
from evals.datasets import Dataset
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.postgres.accounts import evaluations
from retrievers.postgres.accounts.evaluations import Evaluation, EvaluationFigures
from retrievers.postgres.connections.database import Database

Json = dict[str, Any]

MOST_NAMES = 200
"""Maximum number of evaluations in a database, because each is a label of several metrics."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


def check_stored(dataset: Dataset, collection: str | None) -> None:
    """Raise BadRequest for a run that would store the dataset's own corpus."""
    if dataset.form != "file" and collection is None:
        what = "--publish measures a stored collection: give --collection NAME, or a CSV or JSONL file of questions"
        raise BadRequest(what, where="--publish")


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """Open the database alone, without a model or an embedder."""
    with database_addresses(settings) as (owner, service):
        async with Database(owner, service, size=1) as database:
            yield database


class Publisher:
    """Publishes the runs of one evaluation: stores the figures of each in the database, in place of those before.

    /metrics shows the stored figures, and the number of failed runs, which is counted in the database too.

    Args:
        settings: have the address of the database, and the tenant to whom the evaluation belongs.
        name: of the evaluation; a plain label, because /metrics shows it to anyone.
        every_s: seconds between the starts of two runs; None if nothing repeats them.
    Raises:
        BadRequest: the name has another form.
    """

    def __init__(self, settings: Settings, name: str, every_s: float | None) -> None:
        if not _NAME.fullmatch(name):
            what = "a name is a small letter, then at most 63 small letters, digits, _ and -"
            raise BadRequest(f'--publish "{name[:80]}": {what}', where="--publish")
        self.name = name
        self._settings, self._every_s = settings, every_s
        self._failures = 0  # failed runs that are not yet counted in the database

    async def run(self, measure: Callable[[], Awaitable[Json]]) -> Json:
        """Make a run, store its figures in place of the earlier ones and return them; count the run if it fails.

        Args:
            measure: makes the run; see `evals.run.run`.
        Raises:
            BadRequest: the name belongs to another tenant, or there are `MOST_NAMES` others.
            Unavailable: the database cannot be reached.
        """
        try:
            await self._check_name()
            found = await measure()
            await self._publish(found)
        except Exception:
            await self._failed()
            raise
        return found

    async def _check_name(self) -> None:
        async with open_database(self._settings) as database:
            owners = {one.name: one.tenant for one in await evaluations.list_evaluations(database)}
        if owners.get(self.name, self._settings.tenant) != self._settings.tenant:
            raise evaluations.name_taken_error(self.name)
        if self.name not in owners and len(owners) >= MOST_NAMES:
            what = f"{len(owners)} evaluations are published; remove one: signalbox eval published --remove NAME"
            raise BadRequest(what, where="--publish")

    async def _publish(self, found: Json) -> None:
        failed = _failed_questions(found)
        figures = EvaluationFigures(
            dataset=found["dataset"],
            collections=tuple(found["collections"]),
            measures=_measured(found),
            answered=len(found["questions"]) - failed,
            failed=failed,
            every_s=self._every_s,
        )
        async with open_database(self._settings) as database:
            await evaluations.publish_figures(
                database, self._settings.tenant, self.name, figures, failures=self._failures
            )
        self._failures = 0

    async def _failed(self) -> None:
        """Count a failed run: at once, or with the next run if the database does not answer now."""
        self._failures += 1
        with suppress(Unavailable):
            async with open_database(self._settings) as database:
                await evaluations.add_failures(database, self._settings.tenant, self.name, self._failures)
            self._failures = 0


def summary_line(found: Json) -> str:
    """Return the main figures of a run in one line."""
    failed = _failed_questions(found)
    counts = f"{len(found['questions']):,} questions" + (f", {failed:,} failed" if failed else "")
    return f"{counts}; " + ", ".join(f"{key} {value:.3f}" for key, value in _measured(found).items())


def _measured(found: Json) -> dict[str, float]:
    """Return the averages over the questions, without the measures that apply to none."""
    return {name: value for name, value in found["metrics"].items() if value is not None}


def _failed_questions(found: Json) -> int:
    return sum(row["status"] == "error" for row in found["questions"])


async def published(settings: Settings, remove: str | None = None) -> list[Evaluation]:
    """Return all published evaluations, by name.

    Args:
        remove: a name to remove first.
    Raises:
        BadRequest: nothing is published under the name to remove.
        Unavailable: the database cannot be reached.
    """
    async with open_database(settings) as database:
        if remove is not None:
            owners = {one.name: one.tenant for one in await evaluations.list_evaluations(database)}
            if remove not in owners:
                raise BadRequest(f'nothing is published as "{remove[:80]}"', where="--remove")
            await evaluations.remove_evaluation(database, owners[remove], remove)
        return await evaluations.list_evaluations(database)
