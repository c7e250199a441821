"""Metrics of the evaluations that `signalbox eval run --publish` stores in the database."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from agent.observe.metrics import gauge, labelled_counter, prometheus_text
from retrievers.core.errors import Unavailable
from retrievers.core.timeouts import wait_within
from retrievers.postgres.accounts.evaluations import Evaluation, list_evaluations
from retrievers.postgres.connections.database import Database

_TIMEOUT_S = 1.0
# Seconds for which figures are reused: otherwise frequent requests would each query the database.
_FRESH_S = 5.0
_LABEL = "evaluation"


class EvaluationMetrics:
    """The newest figures of each evaluation (a measurement over labelled questions) in one database, as metrics.

    While the database does not answer, the figures that were read last are returned. The metric
    `signalbox_evaluation_timestamp_seconds` has the time when they were measured.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: Sequence[Evaluation] = ()
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def render(self) -> bytes:
        """Return the metrics in Prometheus' text format; b"" without evaluations. Takes at most one second."""
        if time.monotonic() - self._read_at >= _FRESH_S:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.ensure_future(self._read())
            await asyncio.shield(self._reading)  # concurrent requests share it, so a cancelled one must not stop it
        return prometheus_text(_families(self._known)) if self._known else b""

    async def _read(self) -> None:
        with suppress(TimeoutError, Unavailable, OSError):  # /readyz and `signalbox_part_up` report it
            self._known = await wait_within(list_evaluations(self._database), _TIMEOUT_S)
        self._read_at = time.monotonic()


def _families(known: Sequence[Evaluation]) -> Iterator[Metric]:
    measures = GaugeMetricFamily(
        "signalbox_evaluation",
        "Average of a measure in the newest run of a published evaluation, 0 to 1.",
        labels=[_LABEL, "measure"],
    )
    questions = GaugeMetricFamily(
        "signalbox_evaluation_questions",
        "Number of questions of the newest run, answered or failed; those that failed count as missed.",
        labels=[_LABEL, "status"],
    )
    for one in known:
        for measure, value in one.figures.measures.items():
            measures.add_metric([one.name, measure], value)
        questions.add_metric([one.name, "answered"], one.figures.answered)
        questions.add_metric([one.name, "failed"], one.figures.failed)
    yield measures
    yield questions
    times = {one.name: one.measured_at.timestamp() for one in known}
    yield gauge(
        "signalbox_evaluation_timestamp_seconds", "Unix time of the newest run that gave figures.", times, label=_LABEL
    )
    intervals = {one.name: one.figures.every_s for one in known if one.figures.every_s is not None}
    yield gauge(
        "signalbox_evaluation_interval_seconds", "Seconds between two runs, where --every repeats them.", intervals,
        label=_LABEL,
    )  # fmt: skip
    failures = {one.name: float(one.failures) for one in known}
    yield labelled_counter(
        "signalbox_evaluation_failures", "Number of runs that gave no figures.", failures, label=_LABEL
    )
