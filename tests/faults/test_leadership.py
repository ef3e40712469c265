"""Leaders that are two, frozen, killed or late: what they share is done once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from awa_django.conf import Retention
from awa_django.storage.promote import promote
from awa_django.worker import database as worker_database
from awa_django.worker.cron_scheduler import CronScheduler
from awa_django.worker.database import Session, transaction
from awa_django.worker.leader import LEASE, Leader
from awa_django.worker.promoter import Promoter
from awa_django.worker.pruner import Pruner
from awa_django.worker.rescuer import Rescuer
from awa_django.worker.service import Service
from tests.conftest import Connect
from tests.factories import insert_job, reload_job, update_job
from tests.fault_report import Observe
from tests.faults.schedules import execute, fires, schedule
from tests.waiting import wait_until
from tests.worker.conftest import AtWill
from tests.worker_fixtures import Database, StartWorker

LEADERS = 4


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
        "INSERT INTO awa.jobs_hot "
        "(kind, state, attempt, run_lease, attempted_at, heartbeat_at, worker, metadata) "
        "SELECT 'tests.lost', 'running', 1, 1, now(), now() - interval '1 hour', 'gone', "
        '\'{"awa:retry": {"policy": "fixed", "wait": 3600}}\' FROM generate_series(1, 700)'
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
    wait_until(lambda: len(leaders(database)) == 1)
    if where == "in_promotion":
        ids = [due(1) for _ in range(20)]
    else:
        ids = [insert_job("running", worker="gone", max_attempts=3) for _ in range(20)]
        for job_id in ids:
            update_job(job_id, heartbeat_at="now() - interval '1 hour'")
    wait_until((tmp_path / "once").exists)
    frozen_at = time.monotonic()
    start_worker("--queues", "nobody", awa=fast)

    def moved() -> bool:
        return all(reload_job(job_id).state in ("available", "retryable") for job_id in ids)

    wait_until(moved)
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
    monkeypatch.setattr(worker_database, "IDLE_LIMIT", 3600.0)
    job_id = due(1)
    frozen = worker_database.connect("awa-test-frozen")
    try:
        with pytest.raises(psycopg.Error, match="idle-in-transaction"), transaction(frozen):  # noqa: PT012
            assert promote(frozen, batch=10) == {"default": 1}
            limit = "idle_in_transaction_session_timeout"
            assert frozen.execute(f"SHOW {limit}").fetchone() == ("1h",)
            frozen.execute(f"SET LOCAL {limit} = '200ms'")  # now that nothing more comes, however slowly
            started = time.monotonic()
            wait_until(lambda: sum(promote(database.connection, batch=10).values()) == 1)
            took = time.monotonic() - started
    finally:
        frozen.close()
    assert reload_job(job_id).state == "available"
    assert took < 20
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
    session = Session(f"awa-test-killed-{os.getpid()}")
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
                    "WHERE application_name = %s",
                    session.application_name,
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


@pytest.mark.fault(
    "U45", injected="the leader is killed before the tick; its successor's machine has another clock"
)
def test_tick_that_a_dead_leader_left_is_made_by_its_successor(
    make_leader: Callable[[str], tuple[Leader, CronScheduler]],
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    observe: Observe,
) -> None:
    monkeypatch.setattr("awa_django.worker.leader.LEASE", timedelta(hours=1))  # it ends when the test says so
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
    began = time.monotonic()
    worker = start_worker("--queues", "nobody", awa={"SWEEP_INTERVAL": 0.5}, failpoints="in_cron=raise")
    wait_until(lambda: reload_job(late).state == "available", message=worker.text)
    wait_until(lambda: reload_job(lost).state == "failed", message=worker.text)
    wait_until(lambda: "cron scheduler failed" in worker.text())
    assert fires("s") == []
    held = "SELECT count(*) FROM awa.leaders WHERE expires_at > now()"
    wait_until(lambda: database.value(held) == 6, message=worker.text)
    assert worker.stop() == 0
    assert worker.text().count("cron scheduler failed") <= 1 + (time.monotonic() - began) // 60
    observe("promotion and rescue go on; the failure is logged once a minute and not at each tick")
