"""Store the newest figures of each evaluation under a name. A name belongs to one tenant of the database."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import psycopg

from retrievers.core.errors import BadRequest
from retrievers.postgres.connections.database import Database


@dataclass(frozen=True, slots=True)
class EvaluationFigures:
    """The figures of one run of an evaluation over a dataset.

    Attributes:
        collections: names of the stored collections that were searched.
        measures: name of a measure to its average over the questions.
        answered: number of questions that got an answer.
        failed: number of questions that got none; the averages count them as misses.
        every_s: seconds from the start of one run to the start of the next; None if the evaluation is not repeated.
    """

    dataset: str
    collections: tuple[str, ...]
    measures: Mapping[str, float]
    answered: int
    failed: int
    every_s: float | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The newest figures of the evaluation `name`.

    Attributes:
        failures: number of runs without figures since figures were first stored under the name.
    """

    name: str
    tenant: str
    figures: EvaluationFigures
    measured_at: datetime
    failures: int


async def publish_figures(
    database: Database, tenant: str, name: str, figures: EvaluationFigures, *, failures: int = 0
) -> None:
    """Store figures under a name, in place of earlier figures.

    Args:
        failures: number of runs without figures, added to the number stored under the name.
    Raises:
        BadRequest: the name belongs to another tenant.
        Unavailable: the database cannot be reached.
    """
    values = {
        "name": name, "tenant": tenant, "dataset": figures.dataset, "collections": list(figures.collections),
        "measures": json.dumps(figures.measures), "answered": figures.answered, "failed": figures.failed,
        "every_s": figures.every_s, "failures": failures,
    }  # fmt: skip
    try:
        await database.fetch(tenant, _PUBLISH, values)
    except psycopg.errors.InsufficientPrivilege as error:  # row security hides the row that has the name
        raise name_taken_error(name) from error


def name_taken_error(name: str) -> BadRequest:
    """Return the error for a name that belongs to another tenant."""
    return BadRequest(f'another tenant publishes figures as "{name}": choose another name', where="--publish")


async def add_failures(database: Database, tenant: str, name: str, failures: int) -> None:
    """Add to the number of failed runs of a name that has figures. Raises like `publish_figures`."""
    await database.fetch(tenant, _ADD_FAILURES, {"name": name, "failures": failures})


async def remove_evaluation(database: Database, tenant: str, name: str) -> None:
    """Remove a name of the tenant and its figures, if there are any. Raises Unavailable like `publish_figures`."""
    await database.fetch(tenant, _REMOVE, {"name": name})


async def list_evaluations(database: Database) -> list[Evaluation]:
    """Return the evaluations of all tenants. Only the operator may see them, never a tenant.

    Raises:
        Unavailable: the database cannot be reached.
    """
    found = []
    for row in await database.fetch_autocommit(_ALL, {"pass": database.worker_scope()}):
        name, tenant, dataset, collections, measures, answered, failed, every_s, measured_at, failures = row
        figures = EvaluationFigures(dataset, tuple(collections), measures, answered, failed, every_s)
        found.append(Evaluation(name, tenant, figures, measured_at, failures))
    return found


_PUBLISH = """
    INSERT INTO signalbox.evaluation AS e
        (name, tenant, dataset, collections, measures, answered, failed, every_s, failures)
    VALUES (%(name)s, %(tenant)s, %(dataset)s, %(collections)s, %(measures)s::json, %(answered)s, %(failed)s,
            %(every_s)s, %(failures)s)
    ON CONFLICT (name) DO UPDATE SET dataset = excluded.dataset, collections = excluded.collections,
        measures = excluded.measures, answered = excluded.answered, failed = excluded.failed,
        every_s = excluded.every_s, measured_at = now(), failures = e.failures + excluded.failures
    RETURNING name
"""
_ADD_FAILURES = """
    UPDATE signalbox.evaluation SET failures = failures + %(failures)s WHERE name = %(name)s RETURNING name
"""
_REMOVE = "DELETE FROM signalbox.evaluation WHERE name = %(name)s RETURNING name"
_ALL = """
    SELECT name, tenant, dataset, collections, measures, answered, failed, every_s, measured_at, failures
    FROM signalbox.evaluations(%(pass)s)
"""
