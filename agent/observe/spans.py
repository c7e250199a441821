"""OpenTelemetry spans: one per HTTP request, below it one per question with its stages and model calls.

The SDK reads its own environment variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, ...). This module is
imported only if they ask for spans. No span holds a question or the text of a document.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

from agent.observe.metrics import METHODS, request_kind

if TYPE_CHECKING:
    from agent.records.trace import Trace
    from retrievers.core.errors import Unavailable

_MOST_DOCUMENTS = 20
_CLOSE_S = 3.0


class SpanRecorder:
    """Create spans for requests and questions; an observer, see `agent.records.observers`.

    Args:
        exporter: destination of the spans; None means OTLP over HTTP to the address in the environment.
    """

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
        resource = Resource.create()
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "signalbox"}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("signalbox")

    @contextmanager
    def request_span(self, method: str, headers: Mapping[str, str]) -> Iterator[Span]:
        """Open the span of an HTTP request, as a child of the span in its `traceparent` header, if it has one."""
        attributes = {"http.request.method": _known_method(method)}
        span = self._tracer.start_span(_span_name(method), extract(headers), SpanKind.SERVER, attributes)
        token = contexts.attach(set_span_in_context(span))
        try:
            yield span
        finally:
            contexts.detach(token)
            span.end()

    def set_response(self, span: Span, method: str, route: str, status: int) -> None:
        """Set the status and route of a request's span; `route` is a template ("/v1/traces/{trace_id}")."""
        span.update_name(f"{_span_name(method)} {route}")
        span.set_attributes({"http.route": route, "http.response.status_code": status})
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))

    def on_answer(self, trace: "Trace") -> None:
        """See `Observer.on_answer`. The spans are created afterwards from the measured times."""
        decision, result, ended = trace.decision, trace.result, time.time_ns()
        started = ended - _ns(result.took_ms)
        collection = decision.request.collection
        question = self._tracer.start_span(
            f"retrieval {collection}" if collection else "retrieval",
            start_time=started,
            attributes={
                "gen_ai.operation.name": "retrieval",
                "gen_ai.request.top_k": decision.request.top_k,
                "gen_ai.retrieval.documents": [
                    json.dumps({"id": hit.id, "score": hit.score}) for hit in result.hits[:_MOST_DOCUMENTS]
                ],
                "signalbox.trace_id": trace.id,
                "signalbox.kind": request_kind(decision.request),
                "signalbox.status": result.status,
                "signalbox.degraded": result.degraded,
                **({"gen_ai.data_source.id": collection} if collection else {}),
            },
        )
        within, begins = set_span_in_context(question), started
        for stage, elapsed_ms in decision.elapsed_ms.items():
            attributes = _searches(trace) if stage == "search" else {}
            span = self._tracer.start_span(stage, within, start_time=begins, attributes=attributes)
            begins += _ns(elapsed_ms)
            span.end(begins)
        for call in () if trace.replay_of is not None else decision.calls.records:
            # The start of a call is not recorded: show the call as if it had ended with the question.
            span = self._tracer.start_span(
                f"chat {call.model}",
                within,
                SpanKind.CLIENT,
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": call.model,
                    "gen_ai.usage.input_tokens": call.usage.prompt_tokens,
                    "gen_ai.usage.output_tokens": call.usage.completion_tokens,
                    "signalbox.stage": call.stage,
                },
                start_time=ended - _ns(call.elapsed_ms),
            )
            if call.error is not None:
                span.set_status(Status(StatusCode.ERROR, call.error))
            span.end(ended)
        question.end(ended)

    def on_failure(self, error: "Unavailable") -> None:
        """See `Observer.on_failure`."""
        span = self._tracer.start_span("retrieval", attributes={"gen_ai.operation.name": "retrieval"})
        span.set_status(Status(StatusCode.ERROR, f"{error.source} is unavailable"))
        span.end()

    def close(self) -> None:
        """Export the remaining spans, for 3 s at most: an unreachable collector must not block the shutdown."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_CLOSE_S)


def _known_method(method: str) -> str:
    """Return the method as OpenTelemetry's conventions require: any unknown method becomes "_OTHER"."""
    return method if method in METHODS else "_OTHER"


def _span_name(method: str) -> str:
    """Return the method part of a span name; any unknown method becomes "HTTP"."""
    return method if method in METHODS else "HTTP"


def _searches(trace: "Trace") -> dict[str, Any]:
    """Return status, number of hits and time of each source's last search, as {span attribute: value}."""
    said: dict[str, Any] = {}
    for outcome in trace.result.outcomes:
        said[f"signalbox.source.{outcome.source}.status"] = outcome.status
        said[f"signalbox.source.{outcome.source}.hits"] = outcome.hits
        said[f"signalbox.source.{outcome.source}.elapsed_ms"] = outcome.elapsed_ms
    return said


def _ns(elapsed_ms: float) -> int:
    return int(elapsed_ms * 1_000_000)
