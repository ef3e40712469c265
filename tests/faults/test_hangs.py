"""Loops that stumble, statements that hang, connections that go: the others go on, and jobs run."""

from __future__ import annotations

import json
import time
from functools import partial

import psutil
import pytest
from django.db import connection as django_connection

from awa_django import operations
from tests import handlers, misbehaving
from tests.conftest import Connect
from tests.fault_report import Observe
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker
from tests.worker_process import WorkerProcess

pytestmark = [pytest.mark.acceptance, pytest.mark.django_db(transaction=True)]

QUICK = {"HEARTBEAT_INTERVAL": 0.5, "SWEEP_INTERVAL": 0.5}
LOOPS = (
    "in_claimer",
    "in_completer",
    "in_heartbeat",
    "in_leader",
    "in_promotion",
    "in_rescue",
    "in_cron",
    "in_prune",
    "in_listener",
    "in_reconciler",
)


@pytest.mark.fault("F97", injected="an exception in each of the ten loops, twice in a row")
def test_every_loop_outlives_its_errors(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    handlers.record.enqueue_many([{"number": number} for number in range(20)])
    handlers.fail_once.enqueue_many([{"number": number} for number in range(20)])
    lost = database.value(
        """
        INSERT INTO awa.jobs_hot (kind, state, attempt, run_lease, worker, heartbeat_at, attempted_at, args)
        VALUES (%s, 'running', 1, 1, 'gone', now() - interval '1 hour', now(), '{"number": 99}')
        RETURNING id
        """,
        handlers.fail_once.handler.kind,
    )
    worker = start_worker(awa=QUICK, failpoints="; ".join(f"{loop}=raise*2" for loop in LOOPS))
    wait_until(lambda: database.states() == {"completed": 41}, message=worker.text)
    wait_until(
        lambda: [loop for loop in LOOPS if f"failpoint {loop}" not in worker.text()] == [],
        message=worker.text,
    )
    # They work again, not only the loops that these jobs needed.
    wait_until(lambda: worker.text().count(" works again") >= 7, message=worker.text)
    handlers.sleep.enqueue(seconds=1.5)
    wait_until(lambda: database.states() == {"completed": 42}, message=worker.text)
    assert worker.stop() == 0
    assert database.job(lost)["attempt"] == 2
    observe(
        "each loop logged its error and went on; 42 jobs completed, promoted, retried and rescued ones too"
    )


@pytest.mark.fault("F97", injected="cron, prune, listener and rescue loops that raise each time, for ever")
def test_loops_that_only_fail_do_not_stop_the_others(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    broken = "; ".join(f"{loop}=raise" for loop in ("in_cron", "in_prune", "in_listener", "in_rescue"))
    began = time.monotonic()
    worker = start_worker(awa=QUICK, failpoints=broken)
    worker.wait_ready(database.connection)
    handlers.fail_once.enqueue_many([{"number": number} for number in range(20)])
    wait_until(lambda: database.states() == {"completed": 20}, message=worker.text)
    assert worker.stop() == 0
    minutes = 1 + (time.monotonic() - began) // 60
    assert worker.text().count("failpoint in_cron") <= 2 * minutes, "the log is not filled"
    observe("20 jobs failed once, were promoted by polling alone and completed; each failure logged once")


@pytest.mark.fault("F97", injected="exceptions between the steps of a job: claim, handler, finish")
def test_errors_between_the_steps_of_a_job_lose_nothing(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    jobs = 30
    points = "after_claim=raise*1; before_handler=raise*3; before_finish=raise*2; after_finish=raise*2"
    handlers.record.using(retry=misbehaving.SOON).enqueue_many([{"number": number} for number in range(jobs)])
    worker = start_worker("--concurrency", "4", failpoints=points)
    wait_until(lambda: database.states() == {"completed": jobs}, message=worker.text)
    assert worker.stop() == 0
    assert database.effects("record") == list(range(jobs))
    assert database.value("SELECT count(*) FROM awa.jobs_hot WHERE cardinality(errors) = 1") == 3
    observe(f"{jobs} jobs each ran once; the lost claim was given back, 3 failed attempts were retried")


@pytest.mark.fault("F13", injected="an exception in the worker's own code round an ended handler")
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_broken_handler_thread_ends_its_process(
    database: Database, start_worker: StartWorker, observe: Observe, kind: str
) -> None:
    """Else the job would stay in its slot, heart-beaten, for ever."""
    chosen = (handlers.record if kind == "def" else handlers.record_async).using(retry=misbehaving.SOON)
    chosen.enqueue(number=1)
    # Each process breaks once: the attempts run out only after the job has completed in the end.
    worker = start_worker("--concurrency", "1", failpoints="after_handler=raise*1")
    wait_until(lambda: "died (exit code 70)" in worker.text(), message=worker.text)
    wait_until(lambda: database.value("SELECT max(cardinality(errors)) FROM awa.jobs") >= 1)
    error = database.value("SELECT errors[1] ->> 'error' FROM awa.jobs")
    assert error == "process died (exit code 70)"
    worker.stop()
    observe(f"{kind}: the process ended with code 70, its job was rescued at once")


@pytest.mark.slow
@pytest.mark.fault("U24", injected="the table of schedules locked for 25 s while the worker runs under load")
def test_hung_housekeeping_stops_nothing_else(
    database: Database, start_worker: StartWorker, connect: Connect, observe: Observe
) -> None:
    worker = start_worker(awa=QUICK)
    worker.wait_ready(database.connection)
    locker = connect(autocommit=False)
    locker.execute("LOCK TABLE awa.cron_jobs IN ACCESS EXCLUSIVE MODE")
    locked_at = time.monotonic()
    number, slowest = 0, 0.0
    while time.monotonic() - locked_at < 25:
        number += 1
        began = time.monotonic()
        handlers.fail_once.enqueue(number=number)
        wait_until(partial(_has_effect, database, "fail_once", number), message=worker.text)
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.2)
    assert "a statement took over 10 s and is cancelled" in worker.text()
    locker.rollback()
    wait_until(lambda: "cron scheduler works again" in worker.text(), message=worker.text)
    assert worker.stop() == 0
    assert database.states() == {"completed": number}
    observe(
        f"the statement was cancelled after 10 s and sent again; meanwhile {number} jobs failed once, were "
        f"promoted and completed, the slowest after {slowest:.1f} s"
    )


def _has_effect(database: Database, name: str, number: int) -> bool:
    return number in database.effects(name)


@pytest.mark.fault("U24", injected="worker processes forked under a supervisor that uses the database")
def test_no_connection_is_inherited(database: Database, start_worker: StartWorker, observe: Observe) -> None:
    worker = start_worker("--processes", "2")
    worker.wait_ready(database.connection, children=2)
    handlers.record.enqueue_many([{"number": number} for number in range(50)])
    wait_until(lambda: database.states() == {"completed": 50}, message=worker.text)
    children = worker.child_pids()
    (forkserver,) = {psutil.Process(child).ppid() for child in children}
    family = [worker.pid, forkserver, *children]
    inodes = {pid: _sockets(pid) for pid in family}
    assert worker.stop() == 0
    assert inodes[forkserver] == set(), "the forkserver has no connection"
    for pid in family:
        for other in family:
            assert pid == other or not inodes[pid] & inodes[other], "a connection in two processes"
    observe(f"{sum(map(len, inodes.values()))} connections, none in two processes, none in the forkserver")


def _sockets(pid: int) -> set[tuple[object, ...]]:
    """The connected sockets of a process, by their two ends."""
    return {
        (connection.laddr, connection.raddr)
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_ESTABLISHED
    }


KEPT = {"CONN_MAX_AGE": 600, "CONN_HEALTH_CHECKS": True}
POOLED = {"CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": True, "OPTIONS": {"pool": {"min_size": 1, "max_size": 4}}}


@pytest.mark.parametrize(
    ("given", "most_sessions"), [(KEPT, 8 + 1), (POOLED, 4)], ids=["kept", "out of a pool of 4"]
)
@pytest.mark.fault("U22", injected="all sessions of 8 handler threads terminated between two times 100 jobs")
def test_handlers_connections_are_cycled(
    database: Database,
    start_worker: StartWorker,
    worker_env: dict[str, str],
    observe: Observe,
    given: dict[str, object],
    most_sessions: int,
) -> None:
    worker_env["TEST_DATABASE"] = json.dumps(given)
    worker = start_worker("--concurrency", "8", "--threads", "8")
    _run_hundred(database, worker)
    _terminate_others(database)
    _run_hundred(database, worker)
    failed = database.value("SELECT count(*) FROM awa.jobs_hot WHERE attempt > 1")
    children = worker.child_pids()
    sessions = database.value(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name NOT IN ('by hand') AND pid <> pg_backend_pid() AND client_port IS NOT NULL "
        "AND application_name !~ '^awa-'"
    )
    assert len(children) == 1
    assert worker.stop() == 0
    assert failed <= 9, "at most one for each thread"
    # A kept one for each of 8 threads and for that of asgiref; and the test's own.
    assert sessions <= most_sessions + 3
    observe(f"{failed} failed attempts, {sessions} sessions of handlers at the end with 8 threads")


def _run_hundred(database: Database, worker: WorkerProcess) -> None:
    done = database.states().get("completed", 0) + 100
    handlers.record.using(retry=misbehaving.SOON).enqueue_many([{"number": n} for n in range(50)])
    asynchronous = handlers.record_async.using(retry=misbehaving.SOON)
    asynchronous.enqueue_many([{"number": number} for number in range(50)])
    wait_until(lambda: database.states() == {"completed": done}, message=worker.text)


def _terminate_others(database: Database) -> None:
    """Every session of the worker's, its handlers' included."""
    django_connection.close()
    database.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND application_name NOT IN ('by hand')"
    )


@pytest.mark.parametrize(
    ("batch", "rounds"),
    [(1_000, 3), pytest.param(10_000, 9, marks=[pytest.mark.slow, pytest.mark.timeout(1_500)])],
)
@pytest.mark.fault(
    "F18", injected="4,000 and 100,000 jobs: done, failed, timed out, cancelled, snoozed; def and async"
)
def test_nothing_leaks_over_thousands_of_jobs(
    database: Database, start_worker: StartWorker, observe: Observe, batch: int, rounds: int
) -> None:
    worker = start_worker("--concurrency", "16", "--threads", "8", awa={"HEARTBEAT_INTERVAL": 0.5})
    _mixed_load(database, worker, batch)
    before = _vitals(database, worker)
    for _ in range(rounds):
        _mixed_load(database, worker, batch)
    after = _vitals(database, worker)
    assert worker.stop() == 0
    for name, value in before.items():
        # One connection may just be opened anew; memory has its own rhythm.
        allowance = value * 0.25 if name.endswith("MB") else 2
        assert after[name] <= value + allowance, (before, after)
    told = ", ".join(f"{name} {before[name]:.0f} -> {after[name]:.0f}" for name in before)
    observe(f"after {batch:,} and after {batch * (rounds + 1):,} jobs: {told}")


def _mixed_load(database: Database, worker: WorkerProcess, count: int) -> None:
    """Run so many jobs of every kind to their end, and wait until they are gone."""
    handlers.nothing.enqueue_many([{"number": number} for number in range(count * 7 // 10)])
    handlers.record_async.enqueue_many([{"number": number} for number in range(count // 10)])
    handlers.raise_text.enqueue_many([{"what": "nul"} for _ in range(count // 10)])
    handlers.fail_for_good.enqueue_many([{} for _ in range(count // 20)])
    handlers.snooze_once.enqueue_many([{} for _ in range(count // 50)])
    handlers.overdue_async.enqueue_many([{} for _ in range(count // 50)])
    wait_until(
        lambda: database.states().keys() <= {"completed", "failed", "cancelled"},
        timeout=60 + count / 40,
        message=lambda: str(database.states()),
    )
    cancelled = [handlers.until_cancelled_async.enqueue().id for _ in range(8)]
    wait_until(lambda: database.states().get("running") == len(cancelled), message=worker.text)
    operations.cancel(cancelled)
    wait_until(lambda: "running" not in database.states())
    wait_until(lambda: _held(database) == 0, message=worker.text)


def _held(database: Database) -> int:
    """Jobs whose handlers have not ended, though their rows have."""
    told = database.value("SELECT count(*) FROM effects WHERE name = 'saw the cancel'")
    asked = database.value("SELECT count(*) FROM awa.jobs_hot WHERE state = 'cancelled'")
    return int(asked - told)


def _vitals(database: Database, worker: WorkerProcess) -> dict[str, float]:
    """Threads, descriptors, memory of both processes, and sessions."""
    (child,) = worker.child_pids()
    found: dict[str, float] = {}
    for name, pid in (("supervisor", worker.pid), ("child", child)):
        process = psutil.Process(pid)
        found[f"{name} threads"] = process.num_threads()
        found[f"{name} descriptors"] = process.num_fds()
        found[f"{name} MB"] = process.memory_info().rss / 2**20
    found["sessions"] = database.value(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND backend_type = 'client backend'"
    )
    return found
