"""Sentry: a failed attempt arrives once, says of which job, tells no argument, and has its own scope."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import sentry_sdk
from django.db import connection

from awa_django.enqueue.around import hooks
from awa_django.errors import ConfigurationError, TerminalError
from awa_django.jobs import Job, job
from awa_django.storage.rows import ClaimedJob
from awa_django.testing import drain, enqueued_jobs
from awa_django.worker import middleware
from awa_django.worker.attempt import run_attempt, run_attempt_async
from tests.integrations.conftest import Start

EVERY = "awa_django.integrations.sentry.report_failures"
LAST = "awa_django.integrations.sentry.report_last_failures"
SECRET = "4111-1111"


@pytest.fixture(autouse=True)
def fresh(settings: Any, registered: None) -> Iterator[None]:
    settings.AWA = {"MIDDLEWARE": [EVERY], "CARRY": ["traceparent"]}
    with sentry_sdk.isolation_scope():
        yield


def declare(function: Callable[..., Any], **options: Any) -> Job[..., Any]:
    declared: Job[..., Any] = job(kind=f"tests.sentry.{function.__name__}", queue="mail", **options)(function)
    return declared


def stumble(card: str = "") -> None:
    pan = card
    raise ValueError(f"no luck today with {len(pan)}")


async def stumble_async(card: str = "") -> None:
    stumble(card)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("function", "options"),
    [(stumble, {}), (stumble, {"atomic": True}), (stumble_async, {})],
    ids=["def", "atomic", "async"],
)
def test_failed_attempt_arrives_once_with_its_job(
    start: Start, function: Callable[..., Any], options: dict[str, Any]
) -> None:
    sentry = start()
    enqueued = declare(function, max_attempts=2, **options).enqueue(card=SECRET)
    kind = f"tests.sentry.{function.__name__}"
    assert [run.outcome for run in drain(include_deferred=True)] == ["retried", "failed"]
    first, second = sentry.events
    assert first["transaction"] == kind
    assert first["tags"] == {
        "awa.kind": kind,
        "awa.queue": "mail",
        "awa.job_id": str(enqueued.id),
        "awa.attempt": "1",
        "awa.last_attempt": "no",
    }
    assert second["tags"]["awa.attempt"] == "2"
    assert second["tags"]["awa.last_attempt"] == "yes"
    assert first["contexts"]["job"] == {
        "kind": kind, "queue": "mail", "job_id": enqueued.id, "attempt": 1, "max_attempts": 2,
        "run_lease": 1, "worker": "testing",
    }  # fmt: skip
    [raised] = first["exception"]["values"]
    assert (raised["type"], raised["value"]) == ("ValueError", f"no luck today with {len(SECRET)}")
    assert raised["mechanism"] == {"type": "awa", "handled": False}
    assert raised["stacktrace"]["frames"][-1]["function"] == "stumble"
    assert SECRET not in json.dumps(sentry.sent)
    assert "vars" not in json.dumps(first)


@pytest.mark.django_db
def test_error_of_the_database_is_sent_without_the_row(start: Start) -> None:
    def insert_twice() -> None:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE one (pan text PRIMARY KEY) ON COMMIT DROP")
            cursor.execute("INSERT INTO one VALUES (%s), (%s)", [SECRET, SECRET])

    sentry = start()
    declare(insert_twice, atomic=True).enqueue()
    drain()
    values = sentry.events[0]["exception"]["values"]
    assert {each["value"] for each in values} == {'duplicate key value violates unique constraint "one_pkey"'}
    assert SECRET not in json.dumps(sentry.sent)


@pytest.mark.django_db
def test_only_what_fails_for_good_is_reported_where_that_is_asked_for(start: Start, settings: Any) -> None:
    settings.AWA = {"MIDDLEWARE": [LAST]}

    def give_up() -> None:
        raise TerminalError("never")

    def wrong() -> None:
        raise KeyError("wrong")

    sentry = start()
    declare(stumble, max_attempts=3).enqueue()
    declare(give_up).enqueue()
    declare(wrong, retry_on=LookupError, max_attempts=2).enqueue()
    other = job(kind="tests.sentry.other", retry_on=OSError)(wrong)
    other.enqueue()
    drain(include_deferred=True)
    assert sorted((each["tags"]["awa.kind"], each["tags"]["awa.attempt"]) for each in sentry.events) == [
        ("tests.sentry.give_up", "1"),
        ("tests.sentry.other", "1"),
        ("tests.sentry.stumble", "3"),
        ("tests.sentry.wrong", "2"),
    ]


@pytest.mark.django_db
def test_what_is_discarded_or_completes_is_no_event(start: Start) -> None:
    sentry = start()
    declare(stumble, discard_on=ValueError).enqueue()

    def work() -> None: ...

    declare(work).enqueue()
    assert {run.outcome for run in drain()} == {"cancelled", "completed"}
    assert sentry.sent == []


@pytest.mark.django_db
def test_async_handler_that_times_out_is_an_event_and_one_that_is_cancelled_is_none(start: Start) -> None:
    sentry = start()

    async def linger(ends: str) -> None:
        if ends == "cancelled":
            raise asyncio.CancelledError
        await asyncio.sleep(60)

    declare(linger).enqueue(ends="cancelled")
    declare(linger).using(timeout=timedelta(milliseconds=50)).enqueue(ends="timeout")
    assert [run.outcome for run in drain()] == ["retried", "retried"]
    [event] = sentry.events
    assert event["exception"]["values"][-1]["type"] == "CancelledError"


def claimed(kind: str, number: int) -> ClaimedJob:
    return ClaimedJob(number, 1, kind, "default", 1, 1, json.dumps({"number": number}), None, None)


def crumbs(event: dict[str, Any]) -> list[str]:
    return [each["message"] for each in (event.get("breadcrumbs") or {}).get("values", [])]


def test_jobs_on_threads_at_once_and_after_each_other_share_no_breadcrumb_and_no_tag(start: Start) -> None:
    sentry = start()
    both = threading.Barrier(2, timeout=30)

    def work(number: int) -> None:
        sentry_sdk.add_breadcrumb(message=f"of {number}")
        sentry_sdk.set_tag(f"tag{number}", "set")
        both.wait()
        raise ValueError(number)

    handler = declare(work).handler

    def serve(numbers: list[int]) -> None:
        for number in numbers:
            sentry_sdk.add_breadcrumb(message="between jobs")
            run_attempt(claimed(handler.kind, number), handler, worker="w")

    threads = [threading.Thread(target=serve, args=([number, number + 2],)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(sentry.events) == 4
    for event in sentry.events:
        number = event["tags"]["awa.job_id"]
        assert crumbs(event) == [f"of {number}"]
        assert [name for name in event["tags"] if name.startswith("tag")] == [f"tag{number}"]


def test_jobs_on_one_event_loop_share_no_breadcrumb(start: Start) -> None:
    sentry = start()

    async def work(number: int) -> None:
        sentry_sdk.add_breadcrumb(message=f"of {number}")
        await asyncio.sleep(0.01)
        sentry_sdk.add_breadcrumb(message=f"more of {number}")
        raise ValueError(number)

    handler = declare(work).handler

    async def both() -> None:
        await asyncio.gather(
            *(run_attempt_async(claimed(handler.kind, number), handler, worker="w") for number in (1, 2))
        )

    asyncio.run(both())
    assert {event["tags"]["awa.job_id"]: crumbs(event) for event in sentry.events} == {
        "1": ["of 1", "more of 1"],
        "2": ["of 2", "more of 2"],
    }


def test_handlers_own_events_tell_no_argument_either(start: Start) -> None:
    sentry = start()

    def work(number: int) -> None:
        try:
            stumble(SECRET)
        except ValueError as exc:
            sentry_sdk.capture_exception(exc)
        sentry_sdk.capture_message("look")

    handler = declare(work).handler
    run_attempt(claimed(handler.kind, 1), handler, worker="w")
    assert len(sentry.events) == 2
    assert SECRET not in json.dumps(sentry.sent)
    assert "vars" not in json.dumps(sentry.sent)
    assert {each["tags"]["awa.job_id"] for each in sentry.events} == {"1"}


@pytest.mark.django_db
def test_run_goes_on_with_the_trace_of_the_request(start: Start) -> None:
    sentry = start(traces_sample_rate=1.0)
    with sentry_sdk.start_transaction(op="http.server", name="request") as request:
        job_id = declare(stumble).enqueue().id
    with sentry_sdk.isolation_scope():
        drain()
    [web, ran] = sentry.transactions
    [publish] = web["spans"]
    assert (publish["op"], ran["contexts"]["trace"]["op"]) == ("queue.publish", "queue.process")
    assert ran["contexts"]["trace"]["trace_id"] == request.trace_id
    assert ran["contexts"]["trace"]["parent_span_id"] == publish["span_id"]
    assert ran["transaction"] == "tests.sentry.stumble"
    assert ran["contexts"]["trace"]["status"] == "internal_error"
    assert ran["contexts"]["trace"]["data"]["messaging.message.id"] == str(job_id)
    assert publish["data"]["messaging.message.id"] == str(job_id)
    [event] = sentry.events
    assert event["contexts"]["trace"]["trace_id"] == request.trace_id


@pytest.mark.django_db
def test_event_is_of_the_requests_trace_without_performance_monitoring_too(start: Start) -> None:
    sentry = start()
    declare(stumble).enqueue()
    trace_id = sentry_sdk.get_traceparent().split("-")[0]  # type: ignore[union-attr]
    with sentry_sdk.isolation_scope():
        sentry_sdk.get_isolation_scope().set_new_propagation_context()
        drain()
    assert sentry.events[0]["contexts"]["trace"]["trace_id"] == trace_id
    assert sentry.transactions == []


@pytest.mark.django_db
def test_client_that_is_not_there_costs_no_run_and_carries_nothing_wrong() -> None:
    declare(stumble, max_attempts=1).enqueue()
    assert set(enqueued_jobs()[0].metadata) <= {"traceparent"}
    [run] = drain()
    assert (run.outcome, run.error) == ("failed", "no luck today with 0")


def test_package_that_is_missing_is_said_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "awa_django.integrations.sentry", raising=False)
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    hooks.cache_clear()
    middleware._chain.cache_clear()
    for load in (lambda: hooks((EVERY,)), lambda: middleware._chain((EVERY,), False)):
        with pytest.raises(ConfigurationError, match=r"pip install 'awa-django\[sentry\]'"):
            load()
