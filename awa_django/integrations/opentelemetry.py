"""OpenTelemetry: a span for each enqueue and each run, of one trace, and metrics of runs and queues.

``tracing`` goes into ``AWA["MIDDLEWARE"]``; with "traceparent" in ``AWA["CARRY"]`` the run's span is a child
of the enqueue's. Only the API of OpenTelemetry is used here: exporters and sampling are the project's.
What is told of a job is its kind, its queue, its id and numbers; never its arguments. docs/tracing.md.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.utils.decorators import sync_and_async_middleware

from awa_django import carry
from awa_django.context import JobContext
from awa_django.enqueue.around import Enqueuing
from awa_django.logs import shown
from awa_django.outcomes import Cancel, RetryAfter, Snooze

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    from awa_django.integrations.gauges import observe_queue, observe_while_leading
except ImportError as exc:
    raise ImportError(
        "awa_django.integrations.opentelemetry needs OpenTelemetry: pip install 'awa-django[opentelemetry]'"
    ) from exc

__all__ = ["enqueue_span", "flush", "observe_queue", "tracing"]

SYSTEM = "awa"
# What the child process waits for at its end, in milliseconds: until spans and metrics are exported.
FLUSH_WITHIN = 5_000
# Seconds: the bounds that OpenTelemetry advises for durations of messages, and longer ones, as jobs are.
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)

# Its proxies find the provider whenever the project sets it.
_tracer = trace.get_tracer("awa_django")
_meter = metrics.get_meter("awa_django")
_durations = _meter.create_histogram(
    "messaging.process.duration",
    unit="s",
    description="Duration of runs of jobs.",
    explicit_bucket_boundaries_advisory=_BOUNDS,
)
_sent = _meter.create_counter(
    "messaging.client.sent.messages", unit="{message}", description="Jobs that were enqueued."
)
_w3c = TraceContextTextMapPropagator()


@sync_and_async_middleware
def tracing(run: Callable[[JobContext], Any]) -> Callable[[JobContext], Any]:
    """For ``AWA["MIDDLEWARE"]``: a span for each run, and one for each enqueue."""
    if iscoroutinefunction(run):

        async def traced_async(context: JobContext) -> Any:
            with _run_span(context) as ends:
                ends.value = await run(context)
            return ends.value

        return traced_async

    def traced(context: JobContext) -> Any:
        with _run_span(context) as ends:
            ends.value = run(context)
        return ends.value

    return traced


@contextmanager
def enqueue_span(enqueuing: Enqueuing) -> Iterator[None]:
    """The span of one call that enqueues; its jobs carry it, where ``AWA["CARRY"]`` has "traceparent"."""
    attributes: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
    }
    if enqueuing.queue is not None:
        attributes["messaging.destination.name"] = enqueuing.queue
    if enqueuing.kind is not None:
        attributes["awa.job.kind"] = enqueuing.kind
    name = f"enqueue {enqueuing.kind or 'jobs'}"
    # What the request brought counts where nothing of this process traces it; another tracer's hook may
    # have set one since (Sentry's, of a trace that it does not sample: its child would not be recorded).
    is_traced = trace.get_current_span().get_span_context().is_valid
    parent = None if is_traced else _remote(enqueuing.traceparent)
    with _span(name, parent, trace.SpanKind.PRODUCER, attributes) as span:
        carrier: dict[str, str] = {}
        _w3c.inject(carrier)
        # Without an SDK there is no span: what the request brought goes on.
        token = carry.traceparent.set(carrier.get("traceparent") or carry.traceparent.get())
        try:
            yield
        finally:
            carry.traceparent.reset(token)
        created = sum(answer.created for answer in enqueuing.answers)
        if enqueuing.is_batch:
            span.set_attribute("messaging.batch.message_count", created)
        else:
            span.set_attribute("messaging.message.id", str(enqueuing.answers[0].id))
            span.set_attribute("awa.job.created", bool(created))
    _sent.add(created, attributes)


def flush() -> None:
    """Export what is not yet exported: ``atexit`` knows nothing of before a worker's process was forked."""
    for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
        force_flush = getattr(provider, "force_flush", None)
        if force_flush is not None:
            force_flush(FLUSH_WITHIN)


# The other ends of the middleware: round each enqueue, in the worker's own process, and at its child's end.
tracing.enqueuing = enqueue_span  # type: ignore[attr-defined]
tracing.supervising = observe_while_leading  # type: ignore[attr-defined]
tracing.stopping = flush  # type: ignore[attr-defined]


class _Ends:
    """How a run ends: what its handler returned."""

    value: Any = None


@contextmanager
def _run_span(context: JobContext) -> Iterator[_Ends]:
    labels: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "run",
        "messaging.destination.name": context.queue,
        "awa.job.kind": context.kind,
    }
    attributes = {
        **labels,
        "messaging.operation.type": "process",
        "messaging.message.id": str(context.job_id),
        "awa.job.attempt": context.attempt,
        "awa.job.max_attempts": context.max_attempts,
        "awa.job.run_lease": context.run_lease,
        "awa.worker": context.worker,
    }
    ends = _Ends()
    began = time.perf_counter()
    try:
        with _span(
            f"run {context.kind}", _remote(carry.traceparent.get()), trace.SpanKind.CONSUMER, attributes
        ) as span:
            yield ends
            span.set_attribute("awa.job.outcome", _outcome(ends.value))
    except BaseException as exc:
        labels["error.type"] = _type(exc)
        raise
    finally:
        _durations.record(time.perf_counter() - began, labels)


@contextmanager
def _span(
    name: str, parent: Context | None, kind: trace.SpanKind, attributes: dict[str, str | int]
) -> Iterator[trace.Span]:
    """A span that is current in the block; without a ``parent`` child of what is current."""
    with _tracer.start_as_current_span(
        name, parent, kind, attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as exc:
            span.set_status(trace.StatusCode.ERROR, _type(exc))
            span.set_attribute("error.type", _type(exc))
            # Not record_exception: the text of a database's error quotes the row it is about.
            span.add_event(
                "exception",
                {
                    "exception.type": _type(exc),
                    "exception.message": str(shown(exc)),
                    "exception.stacktrace": "".join(traceback.format_tb(exc.__traceback__)),
                },
            )
            raise


def _remote(parent: str | None) -> Context | None:
    """The span that the job, or else the request, names as its parent."""
    return None if parent is None else _w3c.extract({"traceparent": parent})


def _outcome(value: object) -> str:
    match value:
        case Snooze():
            return "snoozed"
        case RetryAfter():
            return "retried"
        case Cancel():
            return "cancelled"
        case _:
            return "completed"


def _type(exc: BaseException) -> str:
    cls = type(exc)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
