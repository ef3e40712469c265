"""Whole workers that are killed: what they held runs again, soon, and is blamed only if it ran."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from awa_django import Fixed, operations
from tests import handlers
from tests.fault_report import Observe
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

pytestmark = [pytest.mark.acceptance, pytest.mark.django_db(transaction=True)]

# Heartbeats and sweeps are quick; staleness is made by hand, as a machine that stands still has its own.
QUICK = {"HEARTBEAT_INTERVAL": 0.5, "SWEEP_INTERVAL": 0.5}


@pytest.mark.fault("F1", injected="kill -9 of the only child with 20 jobs running")
@pytest.mark.fault("U09", injected="kill -9 inside a handler")
def test_killed_child_runs_its_twenty_jobs_again(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    handlers.sleep_first.enqueue_many([{"seconds": 600, "number": number} for number in range(20)])
    worker = start_worker("--concurrency", "20")
    wait_until(lambda: len(database.effects("started")) == 20, message=worker.text)
    (child,) = worker.child_pids()
    killed_at = time.monotonic()
    os.kill(child, signal.SIGKILL)
    # Long before their heartbeats would be stale, after 90 s.
    wait_until(lambda: database.states() == {"completed": 20}, message=worker.text)
    took = time.monotonic() - killed_at
    assert worker.stop() == 0
    assert database.effects("ended") == list(range(20))
    assert sorted(database.effects("started")) == sorted(2 * list(range(20)))
    rows = database.rows(
        "SELECT DISTINCT attempt, errors[1] ->> 'error', cardinality(errors) FROM awa.jobs_hot"
    )
    assert rows == [(2, "process died (signal 9)", 1)]
    observe(f"all 20 had run again and completed {took:.1f} s after the kill, one error entry each")


@pytest.mark.fault("F2", injected="kill -9 with 50 jobs held and not started")
@pytest.mark.fault("F6", injected="a handler that kills its process in both of its attempts")
def test_killed_child_gives_back_what_it_never_started(database: Database, start_worker: StartWorker) -> None:
    """Prefetched behind a quick job: they are held, and not started, when the child dies."""
    handlers.nothing.enqueue_many([{"number": number} for number in range(300)])
    worker = start_worker("--concurrency", "1")
    wait_until(lambda: database.states() == {"completed": 300}, message=worker.text)
    # Its second attempt comes when all else has ended: what ran just before it might not be confirmed yet.
    poison_id = handlers.kill_own_process.using(retry=Fixed(wait=3600)).enqueue().id
    handlers.record.enqueue_many([{"number": number} for number in range(50)])
    wait_until(
        lambda: database.states() == {"completed": 350, "retryable": 1},
        message=lambda: str(database.states()),
    )
    operations.run_now(poison_id)
    wait_until(
        lambda: database.states() == {"completed": 350, "failed": 1},
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
    beside = handlers.record.using(retry=Fixed(wait=0.05))  # those that had started are tried again
    beside.enqueue_many([{"number": number} for number in range(20)])
    worker = start_worker()
    wait_until(lambda: database.states() == {"completed": 20, "failed": 1}, message=worker.text)
    assert worker.stop() == 0
    assert database.job(doomed.id)["errors"][0]["error"] == "process died (exit code 7)"


@pytest.mark.fault("F1", injected="kill -9 of the supervisor alone, its child lives on")
def test_killed_supervisor_is_rescued_by_another_worker(
    database: Database, start_worker: StartWorker, tmp_path: Path
) -> None:
    """Children finish what ends in time and go; what they cannot finish is rescued once it is stale."""
    go_on = tmp_path / "go on"
    handlers.until_first.enqueue(path=str(go_on), number=1)
    handlers.sleep_first.enqueue(seconds=600, number=2)
    # Orphans end five seconds before what they hold is stale.
    awa = {"HEARTBEAT_INTERVAL": 1.0, "STALE_AFTER": 12.0, "SWEEP_INTERVAL": 0.5}
    first = start_worker(awa=awa)
    wait_until(lambda: len(database.effects("started")) == 2, message=first.text)
    children = first.child_pids()
    first.signal(signal.SIGKILL)
    go_on.touch()
    second = start_worker(awa=awa)
    wait_until(lambda: not any(_exists(pid) for pid in children), message=first.text)
    assert database.effects("ended")[0] == 1
    _age_heartbeats(database)
    wait_until(lambda: database.states() == {"completed": 2}, message=second.text)
    assert second.stop() == 0
    assert database.effects("ended") == [1, 2]
    # The first one ended in its first run, in its orphaned child.
    by_number = database.rows("SELECT (args ->> 'number')::int, attempt FROM awa.jobs_hot")
    assert dict(by_number) == {1: 1, 2: 2}
    rescued = database.value("SELECT errors[1] ->> 'error' FROM awa.jobs_hot WHERE attempt = 2")
    assert "stopped sending heartbeats" in rescued


@pytest.mark.fault("F5", injected="SIGSTOP of a child until its lease is stale, then SIGCONT")
def test_frozen_child_loses_its_lease_and_its_late_finish(
    database: Database, start_worker: StartWorker, tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"
    handlers.until_first.enqueue(path=str(go_on), number=1)
    first = start_worker("--concurrency", "1", awa=QUICK)
    wait_until(lambda: database.effects("started"), message=first.text)
    (child,) = first.child_pids()
    os.kill(child, signal.SIGSTOP)
    try:
        second = start_worker(awa=QUICK)
        # Its supervisor lives, and beats twice a second for those that are not frozen.
        wait_until(
            lambda: database.value("SELECT clock_timestamp() - heartbeat_at > '2 s' FROM awa.jobs_hot"),
            message=first.text,
        )
        _age_heartbeats(database)
        wait_until(lambda: database.states() == {"completed": 1}, message=second.text)
    finally:
        go_on.touch()
        os.kill(child, signal.SIGCONT)
    wait_until(lambda: "its run was over" in first.text(), message=first.text)
    assert first.stop() == 0
    assert second.stop() == 0
    assert database.rows("SELECT attempt, cardinality(errors) FROM awa.jobs_hot") == [(2, 1)]


@pytest.mark.fault("F13", injected="a handler that holds the GIL for eight heartbeats")
def test_handler_that_holds_the_gil_is_not_taken_for_dead(
    database: Database, start_worker: StartWorker, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = handlers.hold_gil.enqueue(pipe=str(pipe))
    worker = start_worker(awa=QUICK)
    wait_until(lambda: database.effects("started"), message=worker.text)
    lease = database.job(held.id)["run_lease"]
    beats = set()

    def is_beaten() -> bool:
        beats.add(database.job(held.id)["heartbeat_at"])
        return len(beats) > 8

    wait_until(is_beaten, message=worker.text)
    os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))  # which the handler waits for
    wait_until(lambda: database.states() == {"completed": 1}, message=worker.text)
    assert worker.stop() == 0
    assert database.effects("ended") == [0]
    assert database.job(held.id)["run_lease"] == lease


@pytest.mark.fault("F13", injected="a def handler that goes on for 60 s past its timeout of 0.3 s")
def test_overdue_handler_that_ignores_its_deadline_loses_its_process(
    database: Database, start_worker: StartWorker
) -> None:
    overdue = handlers.overdue_stubborn.enqueue(seconds=60)
    worker = start_worker("--concurrency", "2")
    wait_until(lambda: database.effects("started"), message=worker.text)
    handlers.record.enqueue(number=1)
    wait_until(lambda: database.effects("record") == [1], message=worker.text)
    wait_until(lambda: database.job(overdue.id)["state"] == "failed", message=worker.text)
    assert database.job(overdue.id)["errors"][0]["outcome"] == "timed_out"
    handlers.record.enqueue(number=2)
    wait_until(lambda: database.effects("record") == [1, 2], message=worker.text)
    assert worker.stop() == 0


def _age_heartbeats(database: Database) -> None:
    """As if whoever runs jobs now had been silent for long."""
    database.connection.execute(
        "UPDATE awa.jobs_hot SET heartbeat_at = now() - interval '1 hour' WHERE state = 'running'"
    )


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
    wait_until(lambda: database.effects("record") == list(range(10)), message=worker.text)
    assert worker.stop() == 0
    assert database.states() == {"completed": 10}
