"""Whole workers that are killed: what they held runs again, soon, and is blamed only if it ran."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests import handlers
from tests.fault_report import Observe
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

pytestmark = [pytest.mark.acceptance, pytest.mark.django_db(transaction=True)]

# Staleness in a second or two, so that a test can wait for it.
QUICK = {"HEARTBEAT_INTERVAL": 0.5, "STALE_AFTER": 2.0, "SWEEP_INTERVAL": 0.5}


@pytest.mark.fault("F1", injected="kill -9 of the only child with 20 jobs running")
@pytest.mark.fault("U09", injected="kill -9 inside a handler")
def test_killed_child_runs_its_twenty_jobs_again(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    handlers.sleep_first.enqueue_many([{"seconds": 60, "number": number} for number in range(20)])
    worker = start_worker("--concurrency", "20")
    wait_until(lambda: len(database.effects("started")) == 20, timeout=30, message=worker.text)
    (child,) = worker.child_pids()
    killed_at = time.monotonic()
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: database.states() == {"completed": 20}, timeout=20, message=worker.text)
    took = time.monotonic() - killed_at
    assert worker.stop() == 0
    assert database.effects("ended") == list(range(20))
    assert sorted(database.effects("started")) == sorted(2 * list(range(20)))
    rows = database.rows(
        "SELECT DISTINCT attempt, run_lease, errors[1] ->> 'error', cardinality(errors) FROM awa.jobs_hot"
    )
    assert rows == [(2, 2, "process died (signal 9)", 1)]
    assert took < 15, f"the jobs ran again only after {took:.1f} s"
    observe(f"all 20 had run again and completed {took:.1f} s after the kill, one error entry each")


@pytest.mark.fault("F2", injected="kill -9 with 50 jobs held and not started")
@pytest.mark.fault("F6", injected="a handler that kills its process in both of its attempts")
def test_killed_child_gives_back_what_it_never_started(database: Database, start_worker: StartWorker) -> None:
    """Prefetched behind a quick job: they are held, and not started, when the child dies."""
    handlers.nothing.enqueue_many([{"number": number} for number in range(300)])
    worker = start_worker("--concurrency", "1")
    wait_until(lambda: database.states() == {"completed": 300}, timeout=30, message=worker.text)
    handlers.kill_own_process.enqueue()
    handlers.record.enqueue_many([{"number": number} for number in range(50)])
    wait_until(
        lambda: database.states() == {"completed": 350, "failed": 1},
        timeout=30,
        message=lambda: str(database.states()),
    )
    assert worker.stop() == 0
    assert database.effects("kill_own_process") == [0, 0]
    assert database.effects("record") == list(range(50))
    rows = database.rows(
        "SELECT max(attempt), max(cardinality(errors)) FROM awa.jobs_hot WHERE kind = %s",
        handlers.record.handler.kind,
    )
    assert rows == [(1, 0)]
    poison = database.rows("SELECT attempt, errors FROM awa.jobs_hot WHERE state = 'failed'")[0]
    assert poison[0] == 2
    assert [entry["error"] for entry in poison[1]] == 2 * ["process died (signal 9)"]


def test_handler_that_exits_the_process_fails_alone(database: Database, start_worker: StartWorker) -> None:
    doomed = handlers.exit_hard.enqueue()
    handlers.record.enqueue_many([{"number": number} for number in range(20)])
    worker = start_worker()
    wait_until(lambda: database.states() == {"completed": 20, "failed": 1}, timeout=30, message=worker.text)
    assert worker.stop() == 0
    assert database.job(doomed.id)["errors"][0]["error"] == "process died (exit code 7)"


@pytest.mark.fault("F1", injected="kill -9 of the supervisor alone, its child lives on")
def test_killed_supervisor_is_rescued_by_another_worker(
    database: Database, start_worker: StartWorker
) -> None:
    """Children finish what ends in time and go; what they cannot finish is rescued once it is stale."""
    handlers.sleep_first.enqueue(seconds=0.5, number=1)
    handlers.sleep_first.enqueue(seconds=60, number=2)
    awa = {"HEARTBEAT_INTERVAL": 1.0, "STALE_AFTER": 8.0, "SWEEP_INTERVAL": 0.5}
    first = start_worker(awa=awa)
    wait_until(lambda: len(database.effects("started")) == 2, timeout=30, message=first.text)
    children = first.child_pids()
    first.signal(signal.SIGKILL)
    second = start_worker(awa=awa)
    wait_until(lambda: database.states() == {"completed": 2}, timeout=40, message=second.text)
    wait_until(lambda: not any(_exists(pid) for pid in children), timeout=20, message=first.text)
    assert second.stop() == 0
    assert database.effects("ended") == [1, 2]
    # The first one ended under its own lease, in its orphaned child.
    by_number = database.rows("SELECT (args ->> 'number')::int, run_lease FROM awa.jobs_hot")
    assert dict(by_number) == {1: 1, 2: 2}
    rescued = database.value("SELECT errors[1] ->> 'error' FROM awa.jobs_hot WHERE run_lease = 2")
    assert "stopped sending heartbeats" in rescued


@pytest.mark.fault("F5", injected="SIGSTOP of a child for longer than staleness, then SIGCONT")
def test_frozen_child_loses_its_lease_and_its_late_finish(
    database: Database, start_worker: StartWorker
) -> None:
    handlers.sleep_first.enqueue(seconds=1.0, number=1)
    first = start_worker("--concurrency", "1", awa=QUICK)
    wait_until(lambda: database.effects("started"), timeout=30, message=first.text)
    (child,) = first.child_pids()
    os.kill(child, signal.SIGSTOP)
    try:
        second = start_worker(awa=QUICK)
        wait_until(lambda: database.states() == {"completed": 1}, timeout=30, message=second.text)
    finally:
        os.kill(child, signal.SIGCONT)
    wait_until(lambda: "its run was over" in first.text(), message=first.text)
    assert first.stop() == 0
    assert second.stop() == 0
    assert database.rows("SELECT run_lease, cardinality(errors) FROM awa.jobs_hot") == [(2, 1)]


@pytest.mark.fault("F13", injected="a handler that holds the GIL for 5 s, staleness 2 s")
def test_handler_that_holds_the_gil_is_not_taken_for_dead(
    database: Database, start_worker: StartWorker
) -> None:
    held = handlers.hold_gil.enqueue(milliseconds=5_000)
    worker = start_worker(awa=QUICK)
    wait_until(lambda: database.states() == {"completed": 1}, timeout=30, message=worker.text)
    assert worker.stop() == 0
    assert database.job(held.id)["run_lease"] == 1


@pytest.mark.fault("F13", injected="a def handler that goes on for 60 s past its timeout of 0.3 s")
def test_overdue_handler_that_ignores_its_deadline_loses_its_process(
    database: Database, start_worker: StartWorker
) -> None:
    overdue = handlers.overdue_stubborn.enqueue(seconds=60)
    worker = start_worker("--concurrency", "2", "--shutdown-timeout", "1")
    wait_until(lambda: database.effects("started"), timeout=30, message=worker.text)
    handlers.record.enqueue(number=1)
    wait_until(lambda: database.effects("record") == [1], message=worker.text)
    wait_until(lambda: database.job(overdue.id)["state"] == "failed", timeout=30, message=worker.text)
    assert database.job(overdue.id)["errors"][0]["outcome"] == "timed_out"
    handlers.record.enqueue(number=2)
    wait_until(lambda: database.effects("record") == [1, 2], message=worker.text)
    assert worker.stop() == 0


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_terminated_sessions_are_opened_anew(database: Database, start_worker: StartWorker) -> None:
    worker = start_worker("--processes", "2")
    worker.wait_ready(database.connection, children=2)
    for number in range(10):
        handlers.record.enqueue(number=number)
        database.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name LIKE 'awa-%' AND datname = current_database()"
        )
    wait_until(lambda: database.effects("record") == list(range(10)), timeout=30, message=worker.text)
    assert worker.stop() == 0
    assert database.states() == {"completed": 10}
