"""Wrong clocks; schedules across the year, missed, changed or broken."""

from __future__ import annotations

import os
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection

from awa_django.cron import due_fires, next_fires
from awa_django.storage.cron_jobs import sync_cron_job
from awa_django.worker.cron_scheduler import CronScheduler
from awa_django.worker.database import Session
from tests import handlers
from tests.factories import insert_job, update_job
from tests.fault_report import Observe
from tests.faults.schedules import execute, fires, schedule
from tests.waiting import wait_until
from tests.worker.conftest import AtWill
from tests.worker_fixtures import Database, StartWorker

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


# libfaketime 0.9 makes clock_nanosleep, which is Python's sleep, fail.
SLEEP_UNDER_FAKETIME = """
import select, time
time.sleep = lambda seconds: select.select((), (), (), seconds) and None
"""
SKEWS = {
    "1970": "@1970-01-02 00:00:00",
    "a day back": "-1d",
    "an hour back": "-1h",
    "5 minutes on": "+5m",
    "an hour on": "+1h",
    "a day on": "+1d",
    "2100": "@2100-01-01 00:00:00",
}


@pytest.mark.acceptance
@pytest.mark.system
@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.fault(
    "F41", injected="a worker's clock that is wrong: 1970, -1 day, -1 h, +5 min, +1 h, +1 day, 2100"
)
@pytest.mark.fault(
    "U46", injected="a worker's clock that is wrong: 1970, -1 day, -1 h, +5 min, +1 h, +1 day, 2100"
)
def test_clock_of_the_worker_decides_nothing(
    skew: str,
    database: Database,
    start_worker: StartWorker,
    worker_env: dict[str, str],
    tmp_path: Path,
    observe: Observe,
) -> None:
    if not FAKETIME.exists():
        pytest.skip("libfaketime is not installed")
    (tmp_path / "sitecustomize.py").write_text(SLEEP_UNDER_FAKETIME)
    worker_env |= {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), worker_env["PYTHONPATH"]]),
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME": SKEWS[skew],
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_RESET": "1",
    }
    now = handlers.record.enqueue(number=1).id
    later = handlers.record.using(delay=3600).enqueue(number=2).id
    retried = handlers.fail_once.enqueue(number=3).id
    snoozed = handlers.snooze_once.enqueue().id
    living = insert_job("running", worker="somebody-else")
    kept = insert_job("completed")
    schedule("each minute", since="now() - interval '10 minutes'")
    schedule("yearly", expr="0 0 1 1 *", since="now()")
    began = time.monotonic()
    # As long as a slow machine may need, and shorter than the least of the skews.
    worker = start_worker(awa={"SWEEP_INTERVAL": 0.5, "STALE_AFTER": 240})

    def ended() -> bool:
        return {database.job(job_id)["state"] for job_id in (now, retried, snoozed)} == {"completed"}

    wait_until(ended, message=worker.text)
    wait_until(lambda: fires("each minute") and "clock of this machine" in worker.text())
    assert worker.stop() == 0
    jobs = {job_id: database.job(job_id) for job_id in (now, later, retried, snoozed, living, kept)}
    assert [job["state"] for job in jobs.values()] == [
        "completed", "scheduled", "completed", "completed", "running", "completed"
    ]  # fmt: skip
    assert jobs[living]["errors"] == []
    # A minute may begin meanwhile, or several.
    assert 1 <= len(fires("each minute")) <= 2 + (time.monotonic() - began) // 60
    assert fires("yearly") == []
    [(lateness,)] = database.rows(
        "SELECT max(abs(extract(epoch FROM now() - finalized_at)))::float8 FROM awa.jobs_hot "
        "WHERE id = ANY (%s)",
        [now, retried, snoozed],
    )
    assert lateness < 200
    update_job(living, state="'cancelled'", finalized_at="now()", heartbeat_at="NULL")
    observe(
        f"{skew}: nothing early, no live run rescued, {len(fires('each minute'))} fire for 10 missed; "
        "the log says that the clock is wrong"
    )


ZONES = (
    "UTC", "America/New_York", "America/Sao_Paulo", "America/St_Johns", "America/Caracas", "America/Santiago",
    "Europe/London", "Europe/Madrid", "Europe/Moscow", "Africa/Casablanca", "Africa/Cairo", "Asia/Kolkata",
    "Asia/Kathmandu", "Asia/Tehran", "Asia/Tokyo", "Asia/Gaza", "Australia/Lord_Howe", "Australia/Sydney",
    "Pacific/Apia", "Pacific/Chatham",
)  # fmt: skip


@pytest.mark.parametrize(
    ("expr", "most"),
    [
        ("30 2 * * *", 1900),
        ("0 0 * * *", 1900),
        ("15 1 29 2 *", 2),
        ("59 23 31 12 *", 6),
        ("0 3 * * sun", 280),
    ],
)
@pytest.mark.fault(
    "F43", injected="changes of clocks, leap days and ends of years from 2024 to 2029 in 20 zones"
)
def test_fixed_times_fire_once_for_each_day_that_has_them(expr: str, most: int, observe: Observe) -> None:
    start, end = datetime(2024, 1, 1, tzinfo=UTC), datetime(2029, 1, 1, tzinfo=UTC)
    total = 0
    for zone in ZONES:
        fired = [fire for fire in next_fires(expr, zone, start, most) if fire < end]
        days = Counter(fire.astimezone(ZoneInfo(zone)).date() for fire in fired)
        assert max(days.values()) == 1, zone
        assert fired == sorted(set(fired))
        if expr.endswith("* * *"):  # daily: no day is left out
            gaps = {(later - earlier).days for earlier, later in zip(days, list(days)[1:], strict=False)}
            assert gaps == {1}, zone
        # Whoever takes over at any moment comes to the same fires.
        for fire in fired[:: max(1, len(fired) // 5)]:
            assert due_fires(expr, zone, fire - timedelta(days=400), fire, 1).fires == [fire]
            assert due_fires(expr, zone, fire, fire + timedelta(seconds=1), 1) == ([], 0)
        total += len(fired)
    observe(f"{expr}: {total} fires in {len(ZONES)} zones, once for each day")


@pytest.fixture
def scheduler() -> Any:
    session = Session("awa-test-cron")
    yield CronScheduler(session, AtWill(session))
    session.close()


@pytest.mark.fault("F44", injected="200 schedules of every minute, last seen a week ago")
@pytest.mark.fault("U47", injected="all workers stopped for 48 h and more, with `* * * * *`")
def test_week_of_missed_fires_is_one_job_each(
    scheduler: CronScheduler, database: Database, observe: Observe
) -> None:
    for number in range(200):
        schedule(f"s{number}", since="now() - interval '7 days'")
    started = time.monotonic()
    scheduler.tick()
    took = time.monotonic() - started
    made = database.value("SELECT count(*) FROM awa.jobs_hot")
    assert 200 <= made <= 400  # a minute may begin meanwhile
    assert database.value("SELECT count(DISTINCT metadata #>> '{awa:cron,name}') FROM awa.jobs_hot") == 200
    assert took < 30
    observe(f"{made} jobs for 200 schedules and 2 million missed fires, in {took:.2f} s")


@pytest.mark.fault("U47", injected="the zone of a schedule is changed after 48 h without a worker")
def test_changed_schedule_counts_from_now(
    scheduler: CronScheduler, database: Database, observe: Observe
) -> None:
    declared: dict[str, Any] = {
        "name": "s", "cron_expr": "*/5 * * * *", "kind": "k", "queue": "q", "args": "{}", "priority": 2,
        "max_attempts": 3, "tags": [], "metadata": "{}",
    }  # fmt: skip
    sync_cron_job(connection, **declared, timezone="UTC")
    execute("UPDATE awa.cron_jobs SET last_enqueued_at = now() - interval '48 hours'")
    changed_at = database.value("SELECT now()")
    sync_cron_job(connection, **declared, timezone="Asia/Tokyo")
    scheduler.tick()
    assert all(fire > changed_at for fire in fires("s"))  # one only if its instant came just now
    observe("no fire of the time before the change")


@pytest.mark.fault(
    "F45", injected="by SQL: a wrong expression, an unknown zone, a renamed schedule, one that never fires"
)
def test_broken_schedules_are_left_out_and_said(
    scheduler: CronScheduler, database: Database, caplog: pytest.LogCaptureFixture, observe: Observe
) -> None:
    schedule("wrong", expr="not cron")
    schedule("nowhere", timezone="Mars/Olympus")
    schedule("never", expr="0 0 31 2 *")
    schedule("good")
    schedule("old name")
    execute("UPDATE awa.cron_jobs SET name = 'new name' WHERE name = 'old name'")
    for _ in range(10):
        scheduler.tick()
    assert len(fires("good")) in (1, 2)
    assert len(fires("new name")) in (1, 2)
    assert fires("wrong") == fires("nowhere") == fires("never") == []
    said = Counter(record.args[0] for record in caplog.records if "is left out" in record.msg and record.args)  # type: ignore[index]
    assert said == {"wrong": 1, "nowhere": 1, "never": 1}
    observe("3 broken schedules left out, each said once in 10 looks; the others fire")
