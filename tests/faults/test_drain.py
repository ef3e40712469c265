"""Workers that are told to end, at whatever moment: what runs may end, what does not is given back."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from awa_django import Fixed
from tests import handlers, misbehaving
from tests.fault_report import Observe
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

pytestmark = [pytest.mark.acceptance, pytest.mark.django_db(transaction=True)]

# Before its handlers for signals stand, a process ends as any does.
ENDS = (0, -signal.SIGTERM)


@pytest.mark.fault(
    "F10", injected="SIGTERM 0, 50, 200, 500, 1,000 and 1,500 ms after the start, jobs waiting"
)
@pytest.mark.fault(
    "U60", injected="SIGTERM 0, 50, 200, 500, 1,000 and 1,500 ms after the start, jobs waiting"
)
def test_a_stop_at_any_moment_of_the_start_ends(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    _stop_early(database, start_worker, observe, [0, 0.05, 0.2, 0.5, 1.0, 1.5])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault("F10", injected="SIGTERM at a random moment within the first 3 s, 200 times")
def test_two_hundred_stops_at_random_moments(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    _stop_early(database, start_worker, observe, [chosen.uniform(0, 3) for _ in range(200)])


def _stop_early(database: Database, start_worker: StartWorker, observe: Observe, delays: list[float]) -> None:
    handlers.record.enqueue_many([{"number": number} for number in range(500)])
    ends: list[int] = []
    longest = 0.0
    for delay in delays:
        worker = start_worker("--shutdown-timeout", "30")
        time.sleep(delay)
        told_at = time.monotonic()
        ends.append(worker.stop())
        longest = max(longest, time.monotonic() - told_at)
        assert ends[-1] in ENDS, worker.text()
        assert "Traceback" not in worker.text()
        assert set(database.states()) <= {"available", "completed"}, worker.text()
    assert sorted(set(database.effects("record"))) == database.effects("record")
    assert database.value("SELECT count(*) FROM awa.jobs_hot WHERE errors <> '{}' OR attempt > 1") == 0
    observe(
        f"{len(ends)} ends, each within {longest:.1f} s with code 0 or by the signal; no job left running"
    )


@pytest.mark.fault("F7", injected="SIGTERM with 8 jobs running for longer than staleness")
def test_draining_jobs_keep_their_leases(
    database: Database, start_worker: StartWorker, tmp_path: Path, observe: Observe
) -> None:
    """The other worker sweeps all the time, and must not take them for dead."""
    quick = {"HEARTBEAT_INTERVAL": 0.5, "STALE_AFTER": 5.0, "SWEEP_INTERVAL": 0.3}
    go_on = tmp_path / "go on"
    handlers.until.enqueue_many([{"path": str(go_on), "number": number} for number in range(8)])
    other = start_worker("--queues", "elsewhere", awa=quick)
    worker = start_worker("--concurrency", "8", "--shutdown-timeout", "60", awa=quick)
    wait_until(lambda: len(database.effects("started")) == 8, message=worker.text)
    wait_until(lambda: database.value("SELECT count(*) FROM awa.leaders WHERE expires_at > now()"))
    worker.signal(signal.SIGTERM)
    wait_until(lambda: "stopping: signalled" in worker.text(), message=worker.text)
    handlers.record.enqueue(number=1)
    told_at = database.value("SELECT clock_timestamp()")
    beaten = "SELECT min(heartbeat_at) > %s + interval '5 s' FROM awa.jobs_hot WHERE state = 'running'"
    wait_until(lambda: database.value(beaten, told_at), message=worker.text)
    go_on.touch()
    assert worker.wait() == 0
    assert database.states() == {"completed": 8, "available": 1}
    assert database.value("SELECT max(cardinality(errors)) FROM awa.jobs_hot") == 0
    assert other.stop() == 0
    observe("all 8 completed in their first run, exit code 0; nothing was claimed after the signal")


@pytest.mark.fault("F8", injected="SIGTERM, 0.5 s to end, then SIGKILL of everything while 4 jobs run")
def test_jobs_killed_in_a_drain_run_elsewhere(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    quick = {"HEARTBEAT_INTERVAL": 0.5, "SWEEP_INTERVAL": 0.5}
    handlers.sleep_first.enqueue_many([{"seconds": 60, "number": number} for number in range(4)])
    worker = start_worker("--concurrency", "4", awa=quick)
    wait_until(lambda: len(database.effects("started")) == 4, message=worker.text)
    worker.signal(signal.SIGTERM)
    wait_until(lambda: "stopping: signalled" in worker.text(), message=worker.text)
    worker.kill_all()
    database.let_leases_run_out()
    second = start_worker(awa=quick)
    wait_until(lambda: database.states() == {"completed": 4}, message=second.text)
    assert second.stop() == 0
    assert database.effects("ended") == list(range(4))
    observe("rescued once stale, all 4 completed by another worker, none failed")


@pytest.mark.fault("F8", injected="kill -9 of the child at the very start of its drain, 4 jobs running")
def test_child_that_dies_in_its_drain_is_settled(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    # Not promoted again before the supervisor ends, however long that takes.
    later = handlers.sleep_first.using(retry=Fixed(wait=600))
    later.enqueue_many([{"seconds": 60, "number": number} for number in range(4)])
    worker = start_worker("--concurrency", "4", failpoints="in_drain=kill")
    wait_until(lambda: len(database.effects("started")) == 4, message=worker.text)
    worker.stop()
    assert database.states() == {"retryable": 4}
    rows = database.rows("SELECT DISTINCT attempt, errors[1] ->> 'error' FROM awa.scheduled_jobs")
    assert rows == [(1, "process died (signal 9)")]
    observe("its jobs were retryable before the supervisor ended")


@pytest.mark.fault("U11", injected="50 jobs claimed with 4 threads, SIGTERM after the first 4 have started")
def test_claimed_jobs_that_never_started_are_given_back(
    database: Database, start_worker: StartWorker, tmp_path: Path, observe: Observe
) -> None:
    go_on = tmp_path / "go on"
    handlers.until.enqueue_many([{"path": str(go_on), "number": number} for number in range(50)])
    worker = start_worker("--concurrency", "50", "--threads", "4")
    wait_until(lambda: len(database.effects("started")) == 4, message=worker.text)
    claimed = database.value("SELECT count(*) FROM awa.jobs_hot WHERE run_lease > 0")
    worker.signal(signal.SIGTERM)
    wait_until(lambda: "stopping: signalled" in worker.text(), message=worker.text)
    wait_until(lambda: database.states() == {"running": 4, "available": 46}, message=worker.text)
    go_on.touch()
    assert worker.wait() == 0
    assert claimed == 50
    assert database.states() == {"completed": 4, "available": 46}
    assert database.rows("SELECT DISTINCT attempt FROM awa.jobs_hot WHERE state = 'available'") == [(0,)]
    observe("4 completed, 46 of the 50 claimed were available at attempt 0 when the worker had ended")


@pytest.mark.fault("U15", injected="SIGTERM with 8 jobs running and 24 held ahead")
def test_term_with_running_and_held_jobs(
    database: Database, start_worker: StartWorker, tmp_path: Path, observe: Observe
) -> None:
    go_on = tmp_path / "go on"
    handlers.until.enqueue_many([{"path": str(go_on), "number": number} for number in range(32)])
    worker = start_worker("--concurrency", "32", "--threads", "8", "--shutdown-timeout", "60")
    wait_until(lambda: len(database.effects("started")) == 8, message=worker.text)
    worker.signal(signal.SIGTERM)
    wait_until(lambda: "stopping: signalled" in worker.text(), message=worker.text)
    wait_until(lambda: database.states() == {"running": 8, "available": 24}, message=worker.text)
    go_on.touch()
    assert worker.wait() == 0
    assert len(database.effects("ended")) == 8
    assert database.states() == {"completed": 8, "available": 24}
    assert database.rows("SELECT DISTINCT attempt FROM awa.jobs_hot WHERE state = 'available'") == [(0,)]
    observe("24 available at attempt 0 while the 8 ran on; they completed once, exit code 0")


@pytest.mark.fault("U13", injected="a timeout of 0.8 s, jobs of 0.3 s that wait in the worker for up to 2 s")
def test_timeout_counts_from_the_start_of_the_run(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    misbehaving.within_timeout.enqueue_many([{"seconds": 0.3, "number": number} for number in range(8)])
    worker = start_worker("--concurrency", "8", "--threads", "1")
    wait_until(lambda: database.states() == {"completed": 8}, message=worker.text)
    assert worker.stop() == 0
    assert database.value("SELECT max(cardinality(errors)) FROM awa.jobs_hot") == 0
    waited = database.value(
        "SELECT extract(epoch FROM max(at) - min(at))::float FROM effects WHERE name = 'within'"
    )
    assert waited > 0.8
    observe(f"all 8 completed, the last started {waited:.1f} s after the first")


@pytest.mark.parametrize(("seconds", "options"), [(1.0, ()), (0.0, ("--max-jobs", "20"))])
@pytest.mark.fault("U07", injected="--drain of jobs that always snooze: for 1 s; for 0 s, with --max-jobs 20")
def test_drain_of_jobs_that_always_snooze_ends(
    seconds: float,
    options: tuple[str, ...],
    database: Database,
    start_worker: StartWorker,
    observe: Observe,
) -> None:
    for _ in range(3):
        handlers.snooze_always.enqueue(seconds=seconds)
    assert start_worker("--drain", *options).wait() == 0
    runs = len(database.effects("snooze_always"))
    assert 3 <= runs <= 20
    assert sum(database.states().values()) == 3
    assert database.value("SELECT max(attempt) FROM awa.jobs") == 0
    observe(f"snooze of {seconds:g} s: it ended after {runs} runs, the 3 jobs wait uncharged")
