"""Leaders that are two, frozen, killed or late; wrong clocks; schedules that are missed or broken."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from django.db import connection

from awa_django.conf import Retention
from awa_django.cron import latest_fire, next_fires
from awa_django.storage.cron_jobs import sync_cron_job
from awa_django.storage.promote import promote
from awa_django.worker import database as worker_database
from awa_django.worker.cron_scheduler import CronScheduler
from awa_django.worker.database import Session, transaction
from awa_django.worker.leader import LEASE, Leader
from awa_django.worker.promoter import Promoter
from awa_django.worker.pruner import Pruner
from awa_django.worker.rescuer import Rescuer
from awa_django.worker.service import Service
from tests import handlers
from tests.conftest import Connect
from tests.factories import insert_job, reload_job, update_job
from tests.fault_report import Observe
from tests.waiting import wait_until
from tests.worker.conftest import AtWill
from tests.worker_fixtures import Database, StartWorker

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
LEADERS = 4


def execute(statement: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall()) if cursor.description else []


def schedule(
    name: str, expr: str = "* * * * *", since: str = "now() - interval '1 hour'", **more: str
) -> None:
    columns = {"name": name, "cron_expr": expr, "kind": "tests.cron", "queue": "cron", **more}
    execute(
        f"INSERT INTO awa.cron_jobs ({', '.join(columns)}, last_enqueued_at) "
        f"VALUES ({', '.join(['%s'] * len(columns))}, {since})",
        *columns.values(),
    )


def fires(name: str) -> list[datetime]:
    return [
        fire
        for (fire,) in execute(
            "SELECT (metadata #>> '{awa:cron,fire_at}')::timestamptz FROM awa.jobs_hot "
            "WHERE metadata #>> '{awa:cron,name}' = %s ORDER BY id",
            name,
        )
    ]


def together(*actions: Callable[[], None]) -> None:
    """Run them at the same time; the first error of any."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(actions))

    def run(action: Callable[[], None]) -> None:
        try:
            barrier.wait(10)
            action()
        except BaseException as exc:  # noqa: BLE001
            errors.append(exc)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]


@pytest.mark.fault("F39", injected="the loops of 4 leaders at once, each believing that it leads alone")
def test_many_leaders_at_once_do_each_thing_once(database: Database, observe: Observe) -> None:
    execute(
        "INSERT INTO awa.scheduled_jobs (kind, run_at) "
        "SELECT 'tests.due', now() - interval '1 second' FROM generate_series(1, 1000)"
    )
    execute(
        "INSERT INTO awa.jobs_hot (kind, state, attempt, run_lease, attempted_at, heartbeat_at, worker) "
        "SELECT 'tests.lost', 'running', 1, 1, now(), now() - interval '1 hour', 'gone' "
        "FROM generate_series(1, 700)"
    )
    execute(
        "INSERT INTO awa.jobs_hot (kind, state, finalized_at) "
        "SELECT 'tests.old', 'completed', now() - interval '2 days' FROM generate_series(1, 1500)"
    )
    for number in range(5):
        schedule(f"s{number}")
    sessions = []

    def loops(number: int) -> list[Service]:
        session = Session(f"awa-test-{number}")
        sessions.append(session)
        leader = AtWill(session)
        second = timedelta(seconds=1)
        return [
            Promoter(session, leader, interval=second, worker=f"leader-{number}"),
            Rescuer(
                session, leader, interval=second, stale_after=timedelta(seconds=90), worker=f"leader-{number}"
            ),
            CronScheduler(session, leader),
            Pruner(session, leader, interval=second, retention=Retention()),
        ]

    def lead(services: list[Service]) -> None:
        for _ in range(3):
            for service in services:
                service.tick()

    try:
        together(*(partial(lead, loops(number)) for number in range(LEADERS)))
    finally:
        for session in sessions:
            session.close()
    assert execute("SELECT count(*), count(DISTINCT id) FROM awa.jobs_hot WHERE kind = 'tests.due'") == [
        (1000, 1000)
    ]
    assert execute(
        "SELECT count(*), min(cardinality(errors)), max(cardinality(errors)) FROM awa.scheduled_jobs "
        "WHERE kind = 'tests.lost' AND state = 'retryable'"
    ) == [(700, 1, 1)]
    assert execute("SELECT count(*) FROM awa.jobs_hot WHERE kind = 'tests.old'") == [(0,)]
    made = {name: fires(name) for name in (f"s{number}" for number in range(5))}
    assert all(len(set(times)) == len(times) for times in made.values())
    observe(
        "1000 promoted once, 700 rescued with one entry each, 1500 pruned, "
        f"{sum(map(len, made.values()))} fires of 5 schedules, none twice"
    )


@pytest.mark.acceptance
@pytest.mark.slow
@pytest.mark.parametrize("where", ["in_promotion", "in_rescue"])
@pytest.mark.fault(
    "F39", injected="SIGSTOP of the leader in the middle of a batch, SIGCONT after its successor leads"
)
def test_leader_frozen_in_a_batch_is_followed_and_does_no_harm(
    where: str, database: Database, start_worker: StartWorker, tmp_path: Path, observe: Observe
) -> None:
    # The session of the frozen one is the server's to end: its rows would stay locked for as long.
    fast = {"HEARTBEAT_INTERVAL": 0.5, "STALE_AFTER": 2, "SWEEP_INTERVAL": 0.5}
    frozen = start_worker("--queues", "nobody", awa=fast, failpoints=f"{where}=stop@{tmp_path / 'once'}")
    wait_until(lambda: len(leaders(database)) == 1, timeout=30)
    if where == "in_promotion":
        ids = [due(1) for _ in range(20)]
    else:
        ids = [insert_job("running", worker="gone", max_attempts=3) for _ in range(20)]
        for job_id in ids:
            update_job(job_id, heartbeat_at="now() - interval '1 hour'")
    wait_until((tmp_path / "once").exists, timeout=30)
    frozen_at = time.monotonic()
    start_worker("--queues", "nobody", awa=fast)

    def moved() -> bool:
        return all(reload_job(job_id).state in ("available", "retryable") for job_id in ids)

    wait_until(moved, timeout=60)
    took = time.monotonic() - frozen_at
    frozen.signal(18)  # SIGCONT
    time.sleep(2)
    jobs = [reload_job(job_id) for job_id in ids]
    assert all(len(job.errors) == (where == "in_rescue") for job in jobs)
    assert frozen.process.poll() is None
    observe(f"{where}: the successor did the batch {took:.1f} s later; the old leader changed nothing")


def due(seconds_ago: float, **columns: Any) -> int:
    job_id = insert_job("scheduled", **columns)
    update_job(job_id, run_at=f"now() - interval '{seconds_ago} seconds'")
    return job_id


def leaders(database: Database) -> list[str]:
    return [
        name for (name,) in database.rows("SELECT DISTINCT holder FROM awa.leaders WHERE expires_at > now()")
    ]


@pytest.mark.fault("F39", injected="a leader that stops for good inside a transaction, its connection open")
def test_rows_of_a_transaction_that_nobody_goes_on_with_are_freed(
    database: Database, connect: Connect, monkeypatch: pytest.MonkeyPatch, observe: Observe
) -> None:
    in_use = worker_database.IDLE_LIMIT
    monkeypatch.setattr(worker_database, "IDLE_LIMIT", 0.2)
    job_id = due(1)
    frozen = worker_database.connect("awa-test-frozen")
    try:
        with pytest.raises(psycopg.Error, match="idle-in-transaction"), transaction(frozen):  # noqa: PT012
            assert promote(frozen, batch=10) == {"default": 1}
            started = time.monotonic()
            wait_until(lambda: sum(promote(database.connection, batch=10).values()) == 1, timeout=10)
            took = time.monotonic() - started
    finally:
        frozen.close()
    assert reload_job(job_id).state == "available"
    assert took < 5
    observe(f"with a limit of 0.2 s its rows were free after {took:.1f} s (in use: {in_use:.0f} s)")


@pytest.mark.parametrize("where", ["promotion", "rescue"])
@pytest.mark.fault(
    "F40", injected="pg_terminate_backend of the leader's session while its batch is not committed"
)
def test_session_killed_in_a_batch_rolls_back_and_is_done_again(
    where: str, database: Database, monkeypatch: pytest.MonkeyPatch, observe: Observe
) -> None:
    if where == "promotion":
        ids = [due(1) for _ in range(300)]
    else:
        ids = [insert_job("running", worker="gone") for _ in range(300)]
        for job_id in ids:
            update_job(job_id, heartbeat_at="now() - interval '1 hour'")
    session = Session("awa-test-killed")
    leader = AtWill(session)
    second = timedelta(seconds=1)
    duty: Service = (
        Promoter(session, leader, interval=second, worker="w")
        if where == "promotion"
        else Rescuer(session, leader, interval=second, stale_after=timedelta(seconds=90), worker="w")
    )
    killed: list[int] = []

    def kill(name: str) -> None:
        if name == f"in_{where}" and not killed:
            killed.append(
                database.value(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                    "WHERE application_name = 'awa-test-killed'"
                )
            )

    monkeypatch.setattr("awa_django.failpoints.hit", kill)
    try:
        with pytest.raises(psycopg.OperationalError):
            duty.tick()
        assert killed == [1]
        state = "scheduled" if where == "promotion" else "running"
        wait_until(lambda: database.states() == {state: 300})
        duty.tick()
    finally:
        session.close()
    after = "available" if where == "promotion" else "retryable"
    assert database.states() == {after: 300}
    both = "SELECT id FROM awa.jobs_hot UNION ALL SELECT id FROM awa.scheduled_jobs"
    assert database.value(f"SELECT count(*) FROM ({both}) AS job") == 300
    observe(f"{where}: all 300 rolled back, then done by the next; each in one table")


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
    worker = start_worker(awa={"SWEEP_INTERVAL": 0.5})

    def ended() -> bool:
        return {database.job(job_id)["state"] for job_id in (now, retried, snoozed)} == {"completed"}

    wait_until(ended, timeout=30, message=worker.text)
    wait_until(lambda: fires("each minute") and "clock of this machine" in worker.text(), timeout=30)
    assert worker.stop() == 0
    jobs = {job_id: database.job(job_id) for job_id in (now, later, retried, snoozed, living, kept)}
    assert [job["state"] for job in jobs.values()] == [
        "completed", "scheduled", "completed", "completed", "running", "completed"
    ]  # fmt: skip
    assert jobs[living]["errors"] == []
    assert 1 <= len(fires("each minute")) <= 2  # a minute may begin meanwhile
    assert fires("yearly") == []
    [(lateness,)] = database.rows(
        "SELECT max(abs(extract(epoch FROM now() - finalized_at)))::float8 FROM awa.jobs_hot "
        "WHERE id = ANY (%s)",
        [now, retried, snoozed],
    )
    assert lateness < 20
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
            assert latest_fire(expr, zone, fire - timedelta(days=400), fire) == fire
            assert latest_fire(expr, zone, fire, fire + timedelta(seconds=1)) is None
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
    assert took < 5
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
    sync_cron_job(connection, **declared, timezone="Asia/Tokyo")
    scheduler.tick()
    assert len(fires("s")) <= 1  # one only if its instant came just now
    assert (
        database.value(
            "SELECT max(now() - (metadata #>> '{awa:cron,fire_at}')::timestamptz) FROM awa.jobs_hot"
        )
        is None
    )
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


@pytest.mark.fault(
    "U45", injected="the leader is killed before the tick; its successor's machine has another clock"
)
def test_tick_that_a_dead_leader_left_is_made_by_its_successor(
    make_leader: Callable[[str], tuple[Leader, CronScheduler]], database: Database, observe: Observe
) -> None:
    schedule("s", expr="0 0 1 1 *", since="now() - interval '1 year 1 day'")
    first, _ = make_leader("first")
    first.tick()  # leads, and is never heard of again
    second, successor = make_leader("second")
    second.tick()
    successor.tick()
    assert fires("s") == []
    execute("UPDATE awa.leaders SET expires_at = now() - interval '1 ms'")  # its lease runs out
    second.tick()
    successor.tick()
    successor.tick()
    assert len(fires("s")) == 1
    observe(
        f"one job for the fire, made when the lease of {LEASE.total_seconds():.0f} s was over; none twice"
    )


@pytest.fixture
def make_leader() -> Any:
    sessions = []

    def make(name: str) -> tuple[Leader, CronScheduler]:
        session = Session(f"awa-test-{name}")
        sessions.append(session)
        leader = Leader(session, name)
        return leader, CronScheduler(session, leader)

    yield make
    for session in sessions:
        session.close()


@pytest.mark.acceptance
@pytest.mark.fault(
    "U48", injected="the duty `cron` raises at each tick; another worker holds the other duties first"
)
def test_duty_that_fails_stops_no_other(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    schedule("s")
    late = due(0.5)
    lost = insert_job("running", worker="gone", max_attempts=1)
    update_job(lost, heartbeat_at="now() - interval '1 hour'")
    worker = start_worker("--queues", "nobody", awa={"SWEEP_INTERVAL": 0.5}, failpoints="in_cron=raise")
    wait_until(lambda: reload_job(late).state == "available", timeout=30, message=worker.text)
    wait_until(lambda: reload_job(lost).state == "failed", timeout=30, message=worker.text)
    wait_until(lambda: "cron scheduler failed" in worker.text(), timeout=30)
    assert fires("s") == []
    assert (
        len({duty for (duty,) in database.rows("SELECT duty FROM awa.leaders WHERE expires_at > now()")}) == 6
    )
    assert worker.stop() == 0
    assert worker.text().count("cron scheduler failed") == 1
    observe("promotion and rescue go on; the failure is logged once a minute and not at each tick")
