"""OpenTelemetry: one trace from the enqueue to the run, what its spans say, and what they never say."""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import sentry_sdk
from django.db import connection
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from sentry_sdk.client import NonRecordingClient
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from awa_django import carry, enqueue_many
from awa_django.enqueue.around import hooks
from awa_django.errors import ConfigurationError, InvalidJob
from awa_django.integrations import opentelemetry
from awa_django.jobs import Job, job
from awa_django.outcomes import Cancel, RetryAfter, Snooze
from awa_django.testing import drain, enqueued_jobs
from awa_django.unique import Unique
from awa_django.worker import middleware
from tests import handlers

TRACING = "awa_django.integrations.opentelemetry.tracing"
AWA = {"MIDDLEWARE": [TRACING], "CARRY": ["traceparent"]}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "4111-1111"

exporter = InMemorySpanExporter()
reader = InMemoryMetricReader()


@cache
def set_providers() -> None:
    """They can be set once in a process; without the middleware nothing of ours uses them."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader]))


class Discarding(Transport):
    """Of a Sentry that sends nothing."""

    def capture_envelope(self, envelope: Envelope) -> None: ...


@pytest.fixture(autouse=True)
def fresh(settings: Any, registered: None) -> None:
    set_providers()
    settings.AWA = AWA
    exporter.clear()


def declare(function: Callable[..., Any], **options: Any) -> Job[..., Any]:
    declared: Job[..., Any] = job(kind=f"tests.otel.{function.__name__}", queue="mail", **options)(function)
    return declared


def spans() -> list[ReadableSpan]:
    return list(exporter.get_finished_spans())


def span(name: str) -> ReadableSpan:
    [found] = [each for each in spans() if each.name == name]
    return found


def is_child(child: ReadableSpan, parent: ReadableSpan) -> bool:
    return (
        child.parent is not None
        and child.parent.span_id == parent.context.span_id
        and child.context.trace_id == parent.context.trace_id
    )


def nothing(secret: str = "") -> None: ...


async def nothing_async(secret: str = "") -> None: ...


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("function", "options"),
    [(nothing, {}), (nothing, {"atomic": True}), (nothing_async, {})],
    ids=["def", "atomic", "async"],
)
def test_request_enqueue_and_run_are_one_trace(function: Callable[..., Any], options: dict[str, Any]) -> None:
    declared = declare(function, **options)
    with trace.get_tracer("web").start_as_current_span("request"):
        job_id = declared.enqueue(secret=SECRET).id
    [run] = drain()
    assert run.outcome == "completed"
    enqueued, ran = span(f"enqueue {run.kind}"), span(f"run {run.kind}")
    assert is_child(enqueued, span("request"))
    assert is_child(ran, enqueued)
    assert (enqueued.kind, ran.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert enqueued.attributes == {
        "messaging.system": "awa",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job_id),
        "awa.job.kind": run.kind,
        "awa.job.created": True,
    }
    assert ran.attributes == {
        "messaging.system": "awa",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job_id),
        "awa.job.kind": run.kind,
        "awa.job.attempt": 1,
        "awa.job.max_attempts": 25,
        "awa.job.run_lease": 1,
        "awa.worker": "testing",
        "awa.job.outcome": "completed",
    }
    assert ran.status.status_code is StatusCode.UNSET
    assert SECRET not in "".join(each.to_json() for each in spans())


@pytest.mark.django_db
def test_what_a_handler_does_and_enqueues_is_below_its_run() -> None:
    inner = declare(nothing)

    def work() -> None:
        with trace.get_tracer("app").start_as_current_span("query"):
            inner.enqueue()

    declare(work).enqueue()
    assert len(drain()) == 2
    assert is_child(span("query"), span("run tests.otel.work"))
    assert is_child(span("enqueue tests.otel.nothing"), span("query"))
    assert is_child(span("run tests.otel.nothing"), span("enqueue tests.otel.nothing"))
    assert len({each.context.trace_id for each in spans()}) == 1


@pytest.mark.django_db
def test_retries_share_the_trace_and_their_errors_are_told_without_the_row() -> None:
    def stumble() -> None:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE one (pan text PRIMARY KEY) ON COMMIT DROP")
            cursor.execute("INSERT INTO one VALUES (%s), (%s)", [SECRET, SECRET])

    declare(stumble, max_attempts=2, atomic=True).enqueue()
    assert [run.outcome for run in drain(include_deferred=True)] == ["retried", "failed"]
    first, second = [each for each in spans() if each.name == "run tests.otel.stumble"]
    enqueued = span("enqueue tests.otel.stumble")
    assert is_child(first, enqueued)
    assert is_child(second, enqueued)
    assert [each.attributes["awa.job.attempt"] for each in (first, second)] == [1, 2]  # type: ignore[index]
    for each in (first, second):
        assert each.status.status_code is StatusCode.ERROR
        assert each.status.description == "django.db.utils.IntegrityError"
        assert each.attributes
        assert each.attributes["error.type"] == "django.db.utils.IntegrityError"
        [event] = each.events
        assert event.attributes
        assert event.attributes["exception.message"] == (
            'duplicate key value violates unique constraint "one_pkey"'
        )
        assert "in stumble" in str(event.attributes["exception.stacktrace"])
        assert SECRET not in each.to_json()


@pytest.mark.django_db
def test_error_whose_text_cannot_be_had_is_told_by_its_class() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no")

    def stumble() -> None:
        raise Mute

    declare(stumble, max_attempts=1).enqueue()
    [run] = drain()
    assert run.outcome == "failed"
    [event] = span("run tests.otel.stumble").events
    assert event.attributes
    assert event.attributes["exception.message"] == "Mute"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("returned", "outcome"),
    [(Snooze(60), "snoozed"), (RetryAfter(60), "retried"), (Cancel("no"), "cancelled"), (None, "completed")],
)
def test_outcome_that_a_handler_returns_is_told(returned: object, outcome: str) -> None:
    def work() -> object:
        return returned

    declare(work).enqueue()
    [run] = drain()
    ran = span("run tests.otel.work")
    assert ran.attributes
    assert ran.attributes["awa.job.outcome"] == run.outcome == outcome


@pytest.mark.django_db
def test_batch_is_one_span_and_every_job_of_it_carries_it() -> None:
    declared = declare(nothing)
    declared.enqueue_many({"secret": SECRET} for _ in range(3))
    enqueue_many([declared.item(), handlers.nothing.item()])
    batch, mixed = spans()
    assert (batch.name, mixed.name) == ("enqueue tests.otel.nothing", "enqueue jobs")
    assert batch.attributes
    assert mixed.attributes
    assert batch.attributes["messaging.batch.message_count"] == 3
    assert mixed.attributes["messaging.batch.message_count"] == 2
    assert "messaging.destination.name" not in mixed.attributes
    assert len(drain()) == 5
    ran = [each for each in spans() if each.name.startswith("run ")]
    assert [is_child(each, batch) for each in ran].count(True) == 3
    assert [is_child(each, mixed) for each in ran].count(True) == 2


@pytest.mark.django_db
def test_duplicate_is_told_as_none_that_was_created() -> None:
    declared = declare(nothing, unique=Unique())
    first, second = declared.enqueue(), declared.enqueue()
    assert first.id == second.id
    made, held = spans()
    assert made.attributes
    assert held.attributes
    assert (made.attributes["awa.job.created"], held.attributes["awa.job.created"]) == (True, False)
    assert held.attributes["messaging.message.id"] == str(first.id)


@pytest.mark.django_db
def test_enqueue_that_is_refused_is_an_error() -> None:
    with pytest.raises(InvalidJob):
        declare(nothing).enqueue(secret=5)
    refused = span("enqueue tests.otel.nothing")
    assert refused.status.description == "awa_django.errors.InvalidJob"


@pytest.mark.django_db
def test_request_that_nothing_traces_here_goes_on_by_its_header() -> None:
    with carry._traced(PARENT):
        declare(nothing).enqueue()
    drain()
    trace_id = int(PARENT.split("-")[1], 16)
    assert {each.context.trace_id for each in spans()} == {trace_id}


@pytest.mark.django_db
def test_trace_parent_of_the_request_is_carried_where_no_sdk_is_set_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opentelemetry, "_tracer", trace.NoOpTracer())
    with carry._traced(PARENT):
        declare(nothing).enqueue()
    assert enqueued_jobs()[0].metadata == {"traceparent": PARENT}
    assert [run.outcome for run in drain()] == ["completed"]
    assert spans() == []


@pytest.mark.django_db
def test_metadata_that_is_given_comes_first() -> None:
    declare(nothing).using(metadata={"traceparent": PARENT}).enqueue()
    assert enqueued_jobs()[0].metadata == {"traceparent": PARENT}


@pytest.mark.django_db
def test_tasks_of_django_are_traced_too(settings: Any) -> None:
    from tests.tasks_support import TASKS, tasks

    settings.TASKS = TASKS
    result = tasks.mail.enqueue(to=SECRET)
    assert [run.outcome for run in drain()] == ["completed"]
    enqueued, ran = spans()
    assert is_child(ran, enqueued)
    assert enqueued.attributes
    assert enqueued.attributes["messaging.message.id"] == result.id
    assert SECRET not in enqueued.to_json() + ran.to_json()


@pytest.mark.django_db
def test_runs_are_measured_by_kind_and_error() -> None:
    def stumble() -> None:
        raise ValueError("no")

    declare(stumble, max_attempts=1).enqueue()
    drain()
    data = reader.get_metrics_data()
    assert data is not None
    points = {
        metric.name: [dict(point.attributes or {}) for point in metric.data.data_points]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    labels = {
        "messaging.system": "awa",
        "messaging.operation.name": "run",
        "messaging.destination.name": "mail",
        "awa.job.kind": "tests.otel.stumble",
        "error.type": "ValueError",
    }
    assert labels in points["messaging.process.duration"]
    assert any(
        each.get("awa.job.kind") == "tests.otel.stumble" for each in points["messaging.client.sent.messages"]
    )


@pytest.mark.django_db
def test_nothing_is_traced_or_stored_unless_it_is_asked_for(settings: Any) -> None:
    settings.AWA = {}
    declare(nothing).enqueue()
    assert enqueued_jobs()[0].metadata == {}
    drain()
    assert spans() == []


def test_package_that_is_missing_is_said_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "awa_django.integrations.opentelemetry", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    hooks.cache_clear()
    middleware._chain.cache_clear()
    try:
        for load in (lambda: hooks((TRACING,)), lambda: middleware._chain((TRACING,), False)):
            with pytest.raises(ConfigurationError, match=r"pip install 'awa-django\[opentelemetry\]'"):
                load()
    finally:
        monkeypatch.undo()
        importlib.import_module("awa_django.integrations.opentelemetry")


@pytest.mark.django_db
def test_sentrys_unsampled_trace_does_not_hide_the_spans(settings: Any) -> None:
    """Sentry's hook comes first, as docs/sentry.md says, and carries a trace that nobody samples."""
    settings.AWA = {**AWA, "MIDDLEWARE": ["awa_django.integrations.sentry.report_failures", TRACING]}

    def work() -> None: ...

    client = sentry_sdk.Client(dsn="http://key@127.0.0.1/1", transport=Discarding, default_integrations=False)
    with sentry_sdk.isolation_scope():
        sentry_sdk.get_global_scope().set_client(client)
        try:
            declare(work).enqueue()
            drain()
        finally:
            sentry_sdk.get_global_scope().set_client(NonRecordingClient())
    enqueue, run = spans()
    assert (enqueue.name, run.name) == ("enqueue tests.otel.work", "run tests.otel.work")
    assert enqueue.parent is None
    assert run.parent is not None
    assert run.parent.span_id == enqueue.context.span_id
