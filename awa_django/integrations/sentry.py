"""Sentry: a failed attempt is an event, with the job's facts, in a scope of its own.

``report_failures`` (or ``report_last_failures``) goes into ``AWA["MIDDLEWARE"]``, and after it
``monitor_schedules`` for monitors of periodic jobs; with "traceparent" in
``AWA["CARRY"]`` the event is part of the trace of who enqueued the job. docs/sentry.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.utils.decorators import sync_and_async_middleware

from awa_django import carry
from awa_django.context import JobContext
from awa_django.enqueue.around import Enqueuing
from awa_django.integrations.ends import is_timed_out, judged

try:
    import sentry_sdk
    from sentry_sdk.utils import event_from_exception
except ImportError as exc:
    raise ImportError(
        "awa_django.integrations.sentry needs Sentry's SDK: pip install 'awa-django[sentry]'"
    ) from exc

from awa_django.integrations.monitors import MonitorOptions, flush, monitor_schedules, monitors

__all__ = ["MonitorOptions", "monitor_schedules", "monitors", "report_failures", "report_last_failures"]

_ORIGIN = "auto.queue.awa"
_DATABASE_MODULES = ("django.db", "psycopg")


@sync_and_async_middleware
def report_failures(run: Callable[[JobContext], Any]) -> Callable[[JobContext], Any]:
    """For ``AWA["MIDDLEWARE"]``: an event for each attempt that fails, whether it is tried again or not."""
    return _reporting(run, only_last=False)


@sync_and_async_middleware
def report_last_failures(run: Callable[[JobContext], Any]) -> Callable[[JobContext], Any]:
    """For ``AWA["MIDDLEWARE"]``: an event for each job that fails for good, none for what is tried again."""
    return _reporting(run, only_last=True)


@contextmanager
def publish_span(enqueuing: Enqueuing) -> Iterator[None]:
    """Sentry's span of one call that enqueues; its jobs go on with its trace."""
    with sentry_sdk.start_span(op="queue.publish", name=enqueuing.kind or "jobs", origin=_ORIGIN) as span:
        if enqueuing.queue is not None:
            span.set_data("messaging.destination.name", enqueuing.queue)
        token = carry.traceparent.set(_as_w3c(sentry_sdk.get_traceparent()) or carry.traceparent.get())
        try:
            yield
        finally:
            carry.traceparent.reset(token)
        if not enqueuing.is_batch:
            span.set_data("messaging.message.id", str(enqueuing.answers[0].id))


# The other ends of the middleware: round each enqueue, and at the end of a worker's process.
for _factory in (report_failures, report_last_failures):
    _factory.enqueuing = publish_span  # type: ignore[attr-defined]
    _factory.stopping = flush  # type: ignore[attr-defined]


def _reporting(run: Callable[[JobContext], Any], *, only_last: bool) -> Callable[[JobContext], Any]:
    if iscoroutinefunction(run):

        async def reported_async(context: JobContext) -> Any:
            with _job(context, only_last=only_last):
                return await run(context)

        return reported_async

    def reported(context: JobContext) -> Any:
        with _job(context, only_last=only_last):
            return run(context)

    return reported


@contextmanager
def _job(context: JobContext, *, only_last: bool) -> Iterator[None]:
    """A scope of this run alone, with its transaction; an exception is reported and goes on."""
    if not sentry_sdk.get_client().is_active():
        yield
        return
    with sentry_sdk.isolation_scope() as scope:
        # Threads run one job after another, and each of them left its breadcrumbs.
        scope.clear_breadcrumbs()
        scope.add_event_processor(_without_arguments)
        scope.set_transaction_name(context.kind, source="task")
        scope.set_tag("awa.kind", context.kind)
        scope.set_tag("awa.queue", context.queue)
        scope.set_tag("awa.job_id", str(context.job_id))
        scope.set_tag("awa.attempt", str(context.attempt))
        scope.set_context("job", _facts(context))
        transaction = sentry_sdk.continue_trace(
            _as_sentry(carry.traceparent.get()),
            op="queue.process",
            name=context.kind,
            source="task",
            origin=_ORIGIN,
        )
        with sentry_sdk.start_transaction(
            transaction, custom_sampling_context={"awa": _facts(context)}
        ) as span:
            span.set_data("messaging.message.id", str(context.job_id))
            span.set_data("messaging.destination.name", context.queue)
            span.set_data("messaging.message.retry.count", context.attempt - 1)
            try:
                yield
            except BaseException as exc:
                span.set_status("internal_error")
                _report(context, exc, only_last=only_last)
                raise


def _report(context: JobContext, exc: BaseException, *, only_last: bool) -> None:
    end = judged(context, exc)
    if end == "discarded":
        return  # asked for, and no failure
    if isinstance(exc, asyncio.CancelledError) and not is_timed_out(context):
        return  # an operator's wish
    is_last = end == "failed"
    if only_last and not is_last:
        return
    sentry_sdk.set_tag("awa.last_attempt", "yes" if is_last else "no")
    event, hint = event_from_exception(
        exc,
        client_options=sentry_sdk.get_client().options,
        mechanism={"type": "awa", "handled": False},
    )
    sentry_sdk.capture_event(event, hint)


def _facts(context: JobContext) -> dict[str, object]:
    return {
        "kind": context.kind,
        "queue": context.queue,
        "job_id": context.job_id,
        "attempt": context.attempt,
        "max_attempts": context.max_attempts,
        "run_lease": context.run_lease,
        "worker": context.worker,
    }


def _without_arguments(event: Any, hint: Mapping[str, object]) -> Any:  # noqa: ARG001  (the SDK's order)
    """The event without what may hold arguments: local variables, and of a database's errors the lines
    behind the first, which quote the row."""
    for each in (event.get("exception") or {}).get("values") or ():
        for frame in (each.get("stacktrace") or {}).get("frames") or ():
            frame.pop("vars", None)
        if str(each.get("module")).startswith(_DATABASE_MODULES):
            each["value"] = str(each.get("value")).partition("\n")[0]
    return event


def _as_sentry(traceparent: str | None) -> dict[str, str]:
    """The W3C's trace parent as Sentry's header; without the sampled flag the worker decides itself."""
    if traceparent is None:
        return {}
    _, trace_id, span_id, flags = traceparent.split("-")[:4]
    sampled = "-1" if int(flags, 16) & 1 else ""
    return {"sentry-trace": f"{trace_id}-{span_id}{sampled}"}


def _as_w3c(sentry_trace: str | None) -> str | None:
    if not sentry_trace:
        return None
    trace_id, span_id, *sampled = sentry_trace.split("-")
    return f"00-{trace_id}-{span_id}-{'01' if sampled == ['1'] else '00'}"
