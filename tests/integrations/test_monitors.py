"""Sentry's cron monitors: one check-in for each fire of a schedule, which ends as its job does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sentry_sdk
from django.db import connection

from awa_django import periodic, registry, schedules
from awa_django.errors import ConfigurationError, TerminalError
from awa_django.integrations.monitors import FLUSH_WITHIN, LONGEST_SLUG, slug
from awa_django.integrations.sentry import monitors
from awa_django.jobs import job
from awa_django.outcomes import Cancel, RetryAfter, Snooze
from awa_django.storage.cron_jobs import fire_cron_job
from awa_django.storage.rows import ClaimedJob
from awa_django.testing import drain
from awa_django.worker import middleware
from awa_django.worker.attempt import run_attempt
from awa_django.worker.cron_scheduler import declare_schedule
from tests.integrations.conftest import Collector, Start

pytestmark = pytest.mark.django_db

MONITORS = "awa_django.integrations.sentry.monitor_schedules"
EVERY = "awa_django.integrations.sentry.report_failures"
NIGHTLY = "tests.monitors.nightly"

strict = monitors(
    {"month": {"max_runtime": 600}, "left out": None}, checkin_margin=5, failure_issue_threshold=2
)


@pytest.fixture(autouse=True)
def fresh(settings: Any) -> Iterator[None]:
    settings.AWA = {"MIDDLEWARE": [MONITORS]}
    with sentry_sdk.isolation_scope():
        yield
    for kind in registry.kinds():
        if kind.startswith("tests.monitors."):
            registry.unregister(registry.get(kind))


def fire(
    function: Callable[..., Any],
    cron_expr: str = "30 3 * * *",
    *,
    name: str = NIGHTLY,
    timezone: str = "UTC",
    hours: int = 1,
    **options: Any,
) -> None:
    """Declare the schedule and have it fire for so many hours, as the worker that leads does."""
    declared = job(kind=f"tests.monitors.{function.__name__}", **options)(function)
    periodic(cron_expr, name=name, timezone=timezone)(declared)
    driver: Any = connection  # the worker's is psycopg's own
    declare_schedule(driver, next(each for each in registry.periodic_jobs() if each.name == name))
    now = datetime.now(UTC)
    fires = [now + timedelta(hours=number + 1) for number in range(hours)]
    assert len(fire_cron_job(connection, name, fires, until=fires[-1], since=now, skipped_count=0)) == hours


def statuses(sentry: Collector) -> list[str]:
    return [each["status"] for each in sentry.check_ins]


def ran(**options: Any) -> list[str]:
    return [run.outcome for run in drain(**options)]


def nothing() -> None: ...


async def nothing_async() -> None: ...


def stumble() -> None:
    raise ValueError("no luck")


@pytest.mark.parametrize("function", [nothing, nothing_async], ids=["def", "async"])
def test_fire_checks_in_with_the_schedule_and_then_is_ok(start: Start, function: Callable[..., Any]) -> None:
    sentry = start(environment="staging", release="7")
    fire(function, timezone="Europe/Madrid")
    assert ran() == ["completed"]
    begun, ended = sentry.check_ins
    assert (begun["status"], ended["status"]) == ("in_progress", "ok")
    assert begun["check_in_id"] == ended["check_in_id"]
    assert begun["monitor_slug"] == "tests-monitors-nightly"
    assert begun["environment"] == "staging"
    assert begun["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "30 3 * * *"},
        "timezone": "Europe/Madrid",
    }
    assert ended["monitor_config"] == begun["monitor_config"]


def test_retries_are_of_one_check_in_which_ends_with_the_job(start: Start) -> None:
    sentry = start()
    tries: list[int] = []

    def improve() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")

    fire(improve, max_attempts=3)
    assert ran(include_deferred=True) == ["retried", "retried", "completed"]
    assert statuses(sentry) == ["in_progress", "ok"]
    assert len({each["check_in_id"] for each in sentry.check_ins}) == 1


@pytest.mark.parametrize("raised", ["last attempt", "terminal", "not retried on"])
def test_job_that_fails_for_good_is_an_error(start: Start, raised: str) -> None:
    sentry = start()

    def give_up() -> None:
        raise TerminalError("never")

    match raised:
        case "last attempt":
            fire(stumble, max_attempts=2)
        case "terminal":
            fire(give_up)
        case _:
            fire(stumble, retry_on=OSError)
    assert ran(include_deferred=True)[-1] == "failed"
    assert statuses(sentry) == ["in_progress", "error"]


@pytest.mark.parametrize(
    ("returned", "options", "outcome", "told"),
    [
        (Cancel("a holiday"), {}, "cancelled", ["in_progress", "ok"]),
        (Snooze(60), {}, "snoozed", ["in_progress"]),
        (RetryAfter(60), {}, "retried", ["in_progress"]),
        (RetryAfter(60), {"max_attempts": 1}, "failed", ["in_progress", "error"]),
    ],
    ids=["cancel", "snooze", "retry", "last"],
)
def test_what_a_handler_returns_decides(
    start: Start, returned: object, options: dict[str, Any], outcome: str, told: list[str]
) -> None:
    sentry = start()

    def decide() -> object:
        return returned

    fire(decide, **options)
    assert ran() == [outcome]
    assert statuses(sentry) == told


def test_exception_that_discards_the_job_is_no_error(start: Start) -> None:
    sentry = start()
    fire(stumble, discard_on=ValueError)
    assert ran() == ["cancelled"]
    assert statuses(sentry) == ["in_progress", "ok"]


def test_each_fire_has_a_check_in_of_its_own(start: Start) -> None:
    sentry = start()
    fire(nothing, hours=2)
    assert ran() == ["completed", "completed"]
    assert statuses(sentry) == ["in_progress", "ok"] * 2
    assert len({each["check_in_id"] for each in sentry.check_ins}) == 2


def test_run_by_hand_and_job_of_no_schedule_do_not_stand_for_a_fire(start: Start) -> None:
    sentry = start()
    fire(nothing)
    drain()
    sentry.sent.clear()
    schedules.run_now(NIGHTLY)
    job(kind="tests.monitors.plain")(nothing).enqueue()
    assert ran() == ["completed", "completed"]
    assert sentry.sent == []


def test_schedule_of_other_code_checks_in_without_saying_how_it_is(start: Start) -> None:
    sentry = start()
    fire(nothing)
    registry._periodic.pop(NIGHTLY)
    drain()
    assert statuses(sentry) == ["in_progress", "ok"]
    assert "monitor_config" not in sentry.check_ins[0]


@pytest.mark.parametrize(
    ("function", "timeout", "told"),
    [(nothing, None, []), (stumble, None, []), (nothing, 1e-6, ["ok"]), (stumble, 1e-6, ["error"])],
    ids=["returns", "raises", "late", "late and raises"],
)
def test_job_that_is_cancelled_or_lost_tells_no_end_and_one_that_is_late_does(
    start: Start, function: Callable[..., Any], timeout: float | None, told: list[str]
) -> None:
    sentry = start()
    declared = job(kind="tests.monitors.lost", max_attempts=1)(function)
    metadata = {"awa:cron": {"name": NIGHTLY, "fire_at": "2026-01-01T03:30:00+00:00"}, "awa:timeout": timeout}
    claimed = ClaimedJob(1, 1, "tests.monitors.lost", "default", 1, 1, "{}", json.dumps(metadata), None)
    run_attempt(claimed, declared.handler, worker="w", cancelled=lambda: True)
    assert statuses(sentry) == ["in_progress", *told]


@pytest.mark.parametrize(
    ("expr", "told"),
    [
        ("@Midnight", "0 0 * * *"),
        ("0 6 * * mon#2", "0 6 * * mon#2"),
        ("30 0 4 * * *", "0 4 * * *"),
        ("*/10 * * * * *", None),
    ],
)
def test_expression_is_told_in_five_fields_or_not_at_all(start: Start, expr: str, told: str | None) -> None:
    sentry = start()
    fire(nothing, expr)
    assert ran() == ["completed"]
    values = [each["monitor_config"]["schedule"]["value"] for each in sentry.check_ins]
    assert values == ([] if told is None else [told, told])


def test_options_are_of_all_or_of_one_schedule(start: Start, settings: Any) -> None:
    settings.AWA = {"MIDDLEWARE": [__name__ + ".strict"]}
    sentry = start()
    fire(nothing)
    fire(nothing_async, name="month")
    fire(stumble, name="left out", max_attempts=1)
    assert sorted(ran()) == ["completed", "completed", "failed"]
    told = {each["monitor_slug"]: each["monitor_config"] for each in sentry.check_ins}
    for config in told.values():
        del config["schedule"], config["timezone"]
    common = {"checkin_margin": 5, "failure_issue_threshold": 2}
    assert told == {"tests-monitors-nightly": common, "month": {**common, "max_runtime": 600}}


def test_option_that_sentry_does_not_know_is_refused() -> None:
    wrong: Any = {"margin": 5}
    with pytest.raises(ConfigurationError, match="no option 'margin': there are checkin_margin, "):
        monitors(**wrong)
    with pytest.raises(ConfigurationError, match="'margin'"):
        monitors({"month": wrong})


def test_failure_is_an_event_of_the_check_ins_trace(start: Start, settings: Any) -> None:
    settings.AWA = {"MIDDLEWARE": [EVERY, MONITORS]}
    sentry = start()
    fire(stumble, max_attempts=1)
    drain()
    assert statuses(sentry) == ["in_progress", "error"]
    [event] = sentry.events
    traces = {each["contexts"]["trace"]["trace_id"] for each in (*sentry.check_ins, event)}
    assert len(traces) == 1


def test_without_a_client_nothing_is_looked_for() -> None:
    fire(nothing)
    assert ran() == ["completed"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shop.tasks.Sync stock", "shop-tasks-sync-stock"),
        ("keeps_these-two", "keeps_these-two"),
        ("2024", "2024-"),
        ("\u591c", "schedule-"),
        ("x" * 60, "x" * 41 + "-"),
    ],
)
def test_slug_is_one_that_sentry_takes(name: str, expected: str) -> None:
    made = slug(name)
    assert made.startswith(expected)
    assert len(made) == (len(expected) + 8 if expected.endswith("-") else len(expected)) <= LONGEST_SLUG


def test_end_of_a_workers_process_sends_what_is_left(start: Start) -> None:
    sentry = start()
    flushed: list[float] = []
    sentry.flush = lambda timeout, callback=None: flushed.append(timeout)  # type: ignore[method-assign]
    middleware.stop()
    assert flushed == [FLUSH_WITHIN]
