"""CronScheduler: due fires are made once, the newest of those missed; a bad schedule stops only itself."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection

from awa_django import job, registry
from awa_django.handler import PeriodicJob
from awa_django.models import CronJob
from awa_django.storage.waiters import listen, wait
from awa_django.worker.cron_scheduler import (
    CONFIRM_EVERY,
    LOG_EVERY,
    LONGEST_WAIT,
    CronScheduler,
    declare_schedule,
)
from awa_django.worker.database import Session
from tests.conftest import Connect
from tests.worker.conftest import AtWill, Sessions, lead_at_once

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


def change(name: str, **columns: str) -> None:
    """Set columns of a schedule to SQL expressions."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE awa.cron_jobs SET {', '.join(f'{k} = {v}' for k, v in columns.items())} WHERE name = %s",
            [name],
        )


def skipped(name: str = "s") -> int:
    return CronJob.objects.get(name=name).skipped_count


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
    assert [note.payload for note in listener.notifies(timeout=60, stop_after=1)] == ["mail"]


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


@pytest.mark.fault("U47", injected="48 h without a worker, `* * * * *`, coalesced")
def test_fires_that_are_coalesced_are_counted(scheduler: CronScheduler) -> None:
    schedule(since="now() - interval '48 hours'")
    scheduler.tick()
    assert len(fires()) == 1
    assert skipped() in (2_879, 2_880)  # a minute may begin meanwhile


@pytest.mark.fault("U45", injected="fires missed by a schedule that skips them")
def test_skip_makes_no_job_for_what_was_missed(scheduler: CronScheduler) -> None:
    missed = datetime.now(UTC) - timedelta(minutes=10)
    schedule(expr=f"{missed:%M %H} * * *", missed="skip")
    scheduler.tick()
    assert (fires(), skipped()) == ([], 1)
    scheduler.tick()
    assert (fires(), skipped()) == ([], 1)


def test_skip_makes_a_job_for_what_is_only_just_due(scheduler: CronScheduler) -> None:
    schedule(expr="* * * * * *", since="now() - interval '30 seconds'", missed="skip")
    scheduler.tick()
    assert len(fires()) == 1
    assert skipped() >= 29


@pytest.mark.fault("U45", injected="an hour of missed fires, caught up with a limit of 10")
@pytest.mark.fault("U47", injected="an hour of missed fires, caught up with a limit of 10")
def test_catching_up_makes_the_newest_up_to_the_limit(scheduler: CronScheduler) -> None:
    schedule(missed="catch_up", catch_up_limit=10)
    scheduler.tick()
    made = fires()
    assert len(made) == 10
    assert {later - earlier for earlier, later in pairwise(made)} == {timedelta(minutes=1)}
    assert datetime.now(UTC) - made[-1] < timedelta(seconds=125)
    assert skipped() in (50, 51)  # a minute may begin meanwhile


@pytest.mark.fault("U45", injected="six leaders at once, over schedules that catch up and that coalesce")
def test_many_leaders_at_once_make_each_fire_once(make_session: Sessions, leader: AtWill) -> None:
    for number in range(8):
        policy = {"missed": "catch_up", "catch_up_limit": 20} if number % 2 else {}
        schedule(f"s{number}", expr="0 0 * * *", since="now() - interval '60 days'", **policy)
    schedulers = [CronScheduler(make_session(), leader) for _ in range(6)]
    lead_at_once(schedulers, ticks=5)
    for number in range(8):
        made = fires(f"s{number}")
        assert len(made) == len(set(made))
        assert len(made) in ((20, 21) if number % 2 else (1, 2))  # a day may begin meanwhile
        assert len(made) + skipped(f"s{number}") in (60, 61)


@pytest.mark.fault("U45", injected="leaders die and take over at any moment between fires 1 s apart")
def test_no_fire_is_lost_or_doubled_where_leaders_change(make_session: Sessions, leader: AtWill) -> None:
    schedule(expr="* * * * * *", since="now()", missed="catch_up")
    chance = random.Random(7)
    until = time.monotonic() + 3.5
    scheduler = CronScheduler(make_session(), leader)
    while time.monotonic() < until:
        if chance.random() < 0.4:  # it died; the next one knows nothing but the table
            scheduler = CronScheduler(scheduler.session, leader)
        wait_seconds = scheduler.tick()
        assert wait_seconds is not None
        time.sleep(min(wait_seconds, chance.random()))
    made = fires()
    assert len(made) >= 3
    assert {later - earlier for earlier, later in pairwise(made)} == {timedelta(seconds=1)}


def test_schedule_in_an_open_transaction_holds_up_no_other(
    scheduler: CronScheduler, connect: Connect
) -> None:
    schedule("a")
    schedule("b")
    rival = connect(autocommit=False)
    rival.execute("SELECT FROM awa.cron_jobs WHERE name = 'a' FOR UPDATE")
    scheduler.tick()
    assert (len(fires("a")), len(fires("b"))) == (0, 1)
    rival.rollback()
    scheduler.tick()
    assert len(fires("a")) == 1


def test_changed_row_is_seen_at_the_next_look(scheduler: CronScheduler) -> None:
    schedule(expr="0 0 29 2 *", since="now()")
    scheduler.tick()
    assert fires() == []
    change("s", cron_expr="'* * * * *'", last_enqueued_at="now() - interval '1 hour'")
    scheduler.tick()
    assert len(fires()) == 1


def tidy() -> None: ...


Code = Callable[..., None]


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> Iterator[Code]:
    """``code("a", "b")``: the code declares these schedules now."""
    handler = job(tidy).handler

    def declare(*names: str) -> None:
        declared = [
            PeriodicJob(name=name, cron_expr="@yearly", timezone="UTC", handler=handler) for name in names
        ]
        monkeypatch.setattr(registry, "periodic_jobs", lambda: declared)

    yield declare
    registry.unregister(handler)


def start(*names: str, code: Code, session: Session) -> None:
    """What a worker with these schedules does at its start."""
    code(*names)
    with session.use() as on:
        for periodic in registry.periodic_jobs():
            declare_schedule(on, periodic)


def names() -> set[str]:
    return set(CronJob.objects.values_list("name", flat=True))


def look(scheduler: CronScheduler) -> None:
    """A tick as if the last confirmation, and the last removal, were long ago."""
    scheduler._confirmed_at -= CONFIRM_EVERY
    scheduler._leading_since = time.monotonic() - 600
    scheduler.tick()


def test_schedule_of_no_living_worker_does_not_fire(scheduler: CronScheduler) -> None:
    schedule("gone", declared_at=datetime.now(UTC) - timedelta(minutes=2))
    schedule("declared", declared_at=datetime.now(UTC))
    schedule("by hand")
    scheduler.tick()
    assert [len(fires(name)) for name in ("gone", "declared", "by hand")] == [0, 1, 1]


def test_every_worker_confirms_its_schedules_and_writes_those_that_are_gone(
    scheduler: CronScheduler, session: Session, leader: AtWill, code: Code
) -> None:
    leader.leads = False
    start("a", "b", "c", code=code, session=session)
    change("a", declared_at="now() - interval '80 seconds'", last_enqueued_at="now() - interval '1 hour'")
    change("b", declared_at="now()")
    before = {row.name: row for row in CronJob.objects.all()}
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM awa.cron_jobs WHERE name = 'c'")
    look(scheduler)
    after = {row.name: row for row in CronJob.objects.all()}
    assert after.keys() == {"a", "b", "c"}
    assert after["a"].declared_at != before["a"].declared_at
    assert after["a"].last_enqueued_at == before["a"].last_enqueued_at
    assert after["b"].declared_at == before["b"].declared_at  # another worker has just done so


@pytest.mark.fault("U57", injected="two versions of the code, with other schedules, during a deploy")
def test_schedules_of_both_versions_live_until_the_old_one_ends(
    scheduler: CronScheduler, make_session: Sessions, leader: AtWill, session: Session, code: Code
) -> None:
    old, new = scheduler, CronScheduler(make_session(), leader)
    start("old", "both", code=code, session=session)
    start("both", "new", code=code, session=session)
    for name in names():
        change(name, declared_at="now() - interval '1 hour'")
    code("old", "both")
    old._confirmed_at -= CONFIRM_EVERY
    old.tick()
    code("both", "new")
    look(new)
    assert names() == {"old", "both", "new"}

    for name in names():  # the old version has ended an hour ago
        change(name, declared_at="now() - interval '1 hour'")
    look(new)
    assert names() == {"both", "new"}


def test_leader_removes_nothing_before_the_others_could_confirm(scheduler: CronScheduler, code: Code) -> None:
    code()
    schedule("away", declared_at=datetime.now(UTC) - timedelta(days=2))
    scheduler.tick()
    assert names() == {"away"}


def test_paused_schedule_and_one_by_hand_are_not_removed(
    scheduler: CronScheduler, connect: Connect, code: Code
) -> None:
    code()
    for name in ("paused", "gone", "locked"):
        schedule(name, declared_at=datetime.now(UTC) - timedelta(minutes=11))
    schedule("recent", declared_at=datetime.now(UTC) - timedelta(minutes=9))
    schedule("by hand")
    change("paused", paused="true")
    rival = connect(autocommit=False)
    rival.execute("SELECT FROM awa.cron_jobs WHERE name = 'locked' FOR UPDATE")
    look(scheduler)
    assert names() == {"paused", "locked", "recent", "by hand"}
