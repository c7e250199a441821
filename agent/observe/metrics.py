"""Metrics in Prometheus' text format. Labels are fixed names, never text of a tenant or a user."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from agent.types import AskRequest, AugmentRequest, Request
from retrievers.core.errors import Unavailable
from retrievers.postgres.connections.standbys import StandbyStatus

if TYPE_CHECKING:
    from agent.observe.health import Health
    from agent.records.trace import Trace
    from agent.service.service import Service

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""HTTP methods used as a label value; any other method is counted as "other"."""


class GateCounts(Protocol):
    """Counts of a gate, which limits the number of concurrent requests; see `agent.serve.http.middleware.admission`.

    Attributes:
        at_work: number of admitted requests in progress.
        waiting: number of requests that wait for admission.
    """

    @property
    def at_work(self) -> int: ...

    @property
    def waiting(self) -> int: ...


class Metrics:
    """The metrics of one service since it started; an observer of its questions, see `agent.records.observers`.

    Args:
        health: the state of each part, also exported as metrics.
        gates: the gates whose counts are exported, by name.
    """

    def __init__(self, service: "Service", health: "Health", gates: Mapping[str, GateCounts]) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_StateCollector(service, health, gates))
        build = Gauge(
            "signalbox_build_info",
            "Versions of signalbox and Python, as labels; the value is always 1.",
            ["version", "python"],
            registry=registry,
        )
        build.labels(_version(), ".".join(map(str, sys.version_info[:3]))).set(1)
        counter = partial(Counter, registry=registry)
        duration = partial(Histogram, buckets=_SECONDS, registry=registry)
        self._requests = counter("signalbox_http_requests", "Number of HTTP requests.", ["method", "route", "status"])
        self._request_s = duration(
            "signalbox_http_request_seconds", "Duration of HTTP requests, to the last byte of the response.", ["route"]
        )
        self.at_work = Gauge(
            "signalbox_http_requests_at_work", "Number of HTTP requests in progress.", registry=registry
        )
        self._questions = counter(
            "signalbox_questions", "Number of answered questions, by kind of request and status.", ["kind", "status"]
        )
        self._failures = counter("signalbox_questions_failed", "Number of questions that failed.")
        self._question_s = duration(
            "signalbox_question_seconds", "Duration of questions, without the time for HTTP.", ["kind"]
        )
        self._stage_s = duration("signalbox_stage_seconds", "Duration of one stage of a question.", ["stage"])
        self._searches = counter(
            "signalbox_source_searches", "Number of searches, by source and status.", ["source", "status"]
        )
        self._source_s = duration("signalbox_source_seconds", "Duration of one search of a source.", ["source"])
        self._spent = counter(
            "signalbox_source_cost_dollars", "Cost of searches in US dollars, as stated in the settings.", ["source"]
        )
        self._costs = {name: source.card.cost for name, source in service.pipeline.sources.items() if source.card.cost}
        self._degraded = counter(
            "signalbox_degraded_answers", "Number of degraded answers, by the unavailable part.", ["what"]
        )
        self._calls = counter(
            "signalbox_model_calls", "Number of model calls, by stage and status.", ["stage", "status"]
        )
        self._call_s = duration("signalbox_model_call_seconds", "Duration of one model call.", ["stage"])
        self._tokens = counter(
            "signalbox_model_tokens", "Number of tokens that the model read and wrote.", ["stage", "kind"]
        )
        self._dollars = counter(
            "signalbox_model_cost_dollars",
            "Cost of model calls in US dollars, as far as the provider reports it.",
            ["stage"],
        )

    def on_answer(self, trace: "Trace") -> None:
        """See `Observer.on_answer`."""
        result, decision = trace.result, trace.decision
        kind = "replay" if trace.replay_of is not None else request_kind(decision.request)
        self._questions.labels(kind, result.status).inc()
        self._question_s.labels(kind).observe(result.took_ms / 1000)
        for stage, elapsed_ms in decision.elapsed_ms.items():
            self._stage_s.labels(stage).observe(elapsed_ms / 1000)
        for outcome in result.outcomes:
            self._searches.labels(outcome.source, outcome.status).inc()
            if outcome.status != "skipped":
                self._source_s.labels(outcome.source).observe(outcome.elapsed_ms / 1000)
                if cost := self._costs.get(outcome.source):
                    self._spent.labels(outcome.source).inc(cost)
        for what in result.degraded:
            self._degraded.labels(what).inc()
        if trace.replay_of is not None:
            return  # the model calls of a replay come from a recording
        for call in decision.calls.records:
            self._calls.labels(call.stage, "error" if call.error else "ok").inc()
            self._call_s.labels(call.stage).observe(call.elapsed_ms / 1000)
            self._tokens.labels(call.stage, "prompt").inc(call.usage.prompt_tokens)
            self._tokens.labels(call.stage, "completion").inc(call.usage.completion_tokens)
            if call.usage.cost is not None:
                self._dollars.labels(call.stage).inc(call.usage.cost)

    def on_failure(self, error: Unavailable) -> None:
        """See `Observer.on_failure`."""
        self._failures.inc()

    def record_request(self, method: str, route: str, status: int, elapsed_s: float) -> None:
        """Count one HTTP request and its duration in seconds.

        Args:
            route: the path template ("/v1/traces/{trace_id}"), or a common name for paths without one.
        """
        self._requests.labels(method if method in METHODS else "other", route, str(status)).inc()
        self._request_s.labels(route).observe(elapsed_s)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


def merge_processes(texts: Mapping[int, bytes]) -> bytes:
    """Merge the metrics of several processes into one text, with a label `process`.

    The figures are not added up: after a restart a process counts from 0, and only a separate series shows that as a
    reset.

    Args:
        texts: results of `Metrics.render`, by process number.
    """
    families: dict[str, Metric] = {}
    for process, text in sorted(texts.items()):
        for one in text_string_to_metric_families(text.decode()):
            family = families.setdefault(one.name, Metric(one.name, one.documentation, one.type))
            for sample in one.samples:
                family.add_sample(sample.name, sample.labels | {"process": str(process)}, sample.value)
    return prometheus_text(families.values())


def prometheus_text(families: Iterable[Metric]) -> bytes:
    """Return metrics in Prometheus' text format."""
    return generate_latest(_FixedCollector(families))


class _FixedCollector(Collector):
    """A collector that returns fixed metrics."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def request_kind(request: Request) -> str:
    """Return the kind of a request: "retrieve", "augment" or "ask"."""
    if isinstance(request, AskRequest):
        return "ask"
    return "augment" if isinstance(request, AugmentRequest) else "retrieve"


class _StateCollector(Collector):
    """Reads metrics from the state of the service (caches, connections, gates, health) whenever they are requested."""

    def __init__(self, service: "Service", health: "Health", gates: Mapping[str, GateCounts]) -> None:
        self._service, self._health, self._gates = service, health, gates

    def collect(self) -> Iterable[Metric]:
        service, recent = self._service, self._service.embedder.query_cache
        yield from (
            _counter("signalbox_embedding_cache_hits", "Number of questions whose vector was cached.", recent.hits),
            _counter("signalbox_embedding_cache_misses", "Number of questions that were embedded.", recent.misses),
            _counter("signalbox_traces_lost", "Number of traces that could not be stored.", service.traces.lost),
            gauge("signalbox_traces_waiting", "Number of traces that wait to be stored.", {"": service.traces.waiting}),
        )
        pool = service.database.usage()
        yield gauge(
            "signalbox_pool_connections",
            "Number of database connections, by state.",
            {"in_use": pool.in_use, "idle": pool.idle, "most": pool.most},
            label="state",
        )
        yield gauge(
            "signalbox_pool_waiting", "Number of callers that wait for a database connection.", {"": pool.waiting}
        )
        yield from _standbys(service.database.reads.standbys())
        at_work = {name: gate.at_work for name, gate in self._gates.items()}
        waiting = {name: gate.waiting for name, gate in self._gates.items()}
        yield gauge("signalbox_gate_at_work", "Number of admitted requests in progress.", at_work, label="gate")
        yield gauge("signalbox_gate_waiting", "Number of requests that wait for admission.", waiting, label="gate")
        parts = self._health.parts()
        working = {name: float(part.works) for name, part in parts.items()}
        failures = {name: float(part.failures) for name, part in parts.items()}
        yield gauge(
            "signalbox_part_up", "1 if the last use of a part succeeded, 0 if it failed.", working, label="part"
        )
        yield labelled_counter("signalbox_part_failures", "Number of failures of a part.", failures, label="part")
        resting = {name: float(state != "closed") for name, state in self._health.breakers().items()}
        yield gauge(
            "signalbox_breaker_open",
            "1 while the circuit breaker of a part is open or half-open.",
            resting,
            label="part",
        )

    def describe(self) -> Iterator[Metric]:
        yield from ()  # the names are only known at collection time


def _standbys(standbys: Sequence[StandbyStatus]) -> Iterator[Metric]:
    if standbys:
        in_use = {one.name: float(one.fault is None) for one in standbys}
        lags = {one.name: one.lag_s for one in standbys if one.lag_s is not None}
        reads = {one.name: float(one.reads) for one in standbys}
        yield gauge("signalbox_standby_in_use", "1 while queries may use the standby.", in_use, label="standby")
        yield gauge("signalbox_standby_lag_seconds", "Maximum replication lag of a standby.", lags, label="standby")
        yield labelled_counter(
            "signalbox_standby_reads", "Number of statements that a standby answered.", reads, label="standby"
        )


def gauge(name: str, about: str, values: Mapping[str, float], *, label: str = "") -> Metric:
    """Return a gauge metric.

    Args:
        about: the help text.
        values: figures by value of the label; {"": figure} for a gauge without a label.
        label: name of the label; "" for none.
    """
    family = GaugeMetricFamily(name, about, labels=[label] if label else [])
    for key, value in values.items():
        family.add_metric([key] if label else [], value)
    return family


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(name, about, value=value)


def labelled_counter(name: str, about: str, values: Mapping[str, float], *, label: str) -> Metric:
    """Return a counter metric with one figure per value of its label. Arguments as for `gauge`."""
    family = CounterMetricFamily(name, about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _version() -> str:
    try:
        return version("signalbox-retrieval")
    except PackageNotFoundError:  # run from a source folder
        return "unknown"
