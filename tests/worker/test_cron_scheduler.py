"""CronScheduler: due fires are made once, the newest of those missed; a bad schedule stops only itself."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from awa_django.storage.waiters import listen, wait
from awa_django.worker.cron_scheduler import LOG_EVERY, LONGEST_WAIT, CronScheduler
from awa_django.worker.database import Session
from tests.conftest import Connect
from tests.worker.conftest import AtWill, Sessions

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]


def schedule(
    name: str = "s", expr: str = "* * * * *", since: str = "now() - interval '1 hour'", **more: Any
) -> None:
    columns = {"name": name, "cron_expr": expr, "kind": "a.kind", "queue": "mail", **more}
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO awa.cron_jobs ({', '.join(columns)}, last_enqueued_at) "
            f"VALUES ({', '.join(['%s'] * len(columns))}, {since})",
            list(columns.values()),
        )


def fires(name: str = "s") -> list[datetime]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (metadata #>> '{awa:cron,fire_at}')::timestamptz FROM awa.jobs_hot "
            "WHERE metadata #>> '{awa:cron,name}' = %s ORDER BY id",
            [name],
        )
        return [row[0] for row in cursor.fetchall()]


@pytest.fixture
def scheduler(session: Session, leader: AtWill) -> CronScheduler:
    return CronScheduler(session, leader)


@pytest.mark.fault("U45", injected="an hour of missed fires")
def test_missed_fires_are_coalesced_into_the_newest(scheduler: CronScheduler) -> None:
    schedule()
    scheduler.tick()
    [fire] = fires()
    assert timedelta(0) <= datetime.now(UTC) - fire < timedelta(seconds=125)
    assert (fire.second, fire.microsecond) == (0, 0)


def test_fire_is_made_once_whoever_leads(
    scheduler: CronScheduler, make_session: Sessions, leader: AtWill
) -> None:
    schedule(expr="0 0 1 1 *", since="now() - interval '1 year 1 day'")
    other = CronScheduler(make_session(), leader)
    for each in (scheduler, other, scheduler):
        each.tick()
    assert len(fires()) == 1


def test_schedule_that_is_not_due_waits_for_its_instant(scheduler: CronScheduler) -> None:
    schedule(since="now()")
    wait_seconds = scheduler.tick()
    assert wait_seconds is not None
    assert 0.01 <= wait_seconds <= LONGEST_WAIT.total_seconds()


def test_worker_of_the_queue_is_woken(scheduler: CronScheduler, connect: Connect) -> None:
    listener = connect()
    listen(listener)
    wait(listener, "w", ["mail"], ttl=timedelta(seconds=60))
    schedule()
    scheduler.tick()
    assert [note.payload for note in listener.notifies(timeout=5, stop_after=1)] == ["mail"]


def test_nothing_fires_without_the_lease(scheduler: CronScheduler, leader: AtWill) -> None:
    schedule()
    leader.leads = False
    scheduler.tick()
    assert fires() == []


@pytest.mark.parametrize(
    "bad",
    [
        {"expr": "not cron"},
        {"expr": "61 * * * *"},
        {"expr": "* * * * *", "timezone": "Mars/Olympus"},
        {"expr": "* * * * *", "tags": [f"t{number}" for number in range(21)]},
        {"expr": "* * * * *", "since": "'infinity'"},
    ],
)
@pytest.mark.fault("F45", injected="schedules with a wrong expression, zone, tags or an infinite mark")
def test_bad_schedule_stops_only_itself(
    scheduler: CronScheduler, bad: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    schedule("a bad one", **bad)
    schedule("b good one")
    with caplog.at_level(logging.ERROR, logger="awa_django"):
        for _ in range(3):
            scheduler.tick()
    assert len(fires("b good one")) >= 1
    assert fires("a bad one") == []
    if "since" not in bad:
        assert [record.args[0] for record in caplog.records if record.args] == ["a bad one"]  # type: ignore[index]


def test_bad_schedule_is_logged_now_and_then(
    scheduler: CronScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    schedule(expr="not cron")
    with caplog.at_level(logging.ERROR, logger="awa_django"):
        for _ in range(LOG_EVERY + 1):
            scheduler.tick()
    assert len(caplog.records) == 2
