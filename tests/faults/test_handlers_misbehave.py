"""Handlers that hurt their process: the job ends in a named way, its neighbours go on."""

from __future__ import annotations

import time

import pytest

from tests import handlers, misbehaving
from tests.cgroups import memory_group
from tests.fault_report import Observe
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

pytestmark = [pytest.mark.acceptance, pytest.mark.django_db(transaction=True)]


@pytest.mark.fault(
    "F6", injected="a handler that kills its process each time, max_attempts 3, 50 jobs beside"
)
def test_poison_pill_is_failed_after_its_attempts(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    pill = misbehaving.poison.enqueue().id
    handlers.record.enqueue_many([{"number": number} for number in range(50)])
    began = time.monotonic()
    worker = start_worker()
    wait_until(lambda: database.states() == {"completed": 50, "failed": 1}, message=worker.text)
    took = time.monotonic() - began
    assert worker.stop() == 0
    assert len(database.effects("poison")) == 3
    job = database.job(pill)
    assert [entry["error"] for entry in job["errors"]] == 3 * ["process died (signal 9)"]
    assert [entry["attempt"] for entry in job["errors"]] == [1, 2, 3]
    # Those that had started when the process died may have run twice; each completed once.
    assert sorted(set(database.effects("record"))) == list(range(50))
    again = len(database.effects("record")) - 50
    observe(f"3 starts, then failed; the 50 others completed ({again} ran again); all after {took:.1f} s")


@pytest.mark.fault("F11", injected="segmentation fault, abort and os._exit(0) in a handler beside 20 jobs")
def test_crashing_handlers_fail_alone(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    crashes = {how: misbehaving.crash.enqueue(how=how).id for how in ("segfault", "abort", "exit")}
    handlers.record.enqueue_many([{"number": number} for number in range(20)])
    worker = start_worker("--concurrency", "1")
    wait_until(lambda: database.states() == {"completed": 20, "failed": 3}, message=worker.text)
    assert worker.stop() == 0
    errors = {how: database.job(job_id)["errors"][0]["error"] for how, job_id in crashes.items()}
    assert errors == {
        "segfault": "process died (signal 11)",
        "abort": "process died (signal 6)",
        "exit": "process died (exit code 0)",
    }
    assert database.effects("record") == list(range(20))
    observe("each failed alone, by name of its signal; 20 neighbours ran once")


@pytest.mark.fault("F13", injected="async handlers that stop the event loop, or leave it by SystemExit")
def test_loop_that_a_handler_ends_goes_on(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    misbehaving.end_the_loop.enqueue(how="exit")
    misbehaving.end_the_loop.enqueue(how="stop")
    handlers.record_async.enqueue_many([{"number": number} for number in range(20)])
    worker = start_worker()
    wait_until(lambda: len(database.effects("record_async")) == 20, message=worker.text)
    wait_until(lambda: database.states() == {"completed": 21, "failed": 1}, message=worker.text)
    assert worker.stop() == 0
    observe("20 async jobs beside ran in the same process")


@pytest.mark.fault(
    "F13", injected="an async handler that blocks the loop for 60 s, past its timeout of 0.3 s"
)
def test_blocked_loop_loses_its_process(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    blocking = misbehaving.block_the_loop.enqueue(seconds=60).id
    worker = start_worker("--concurrency", "2", "--shutdown-timeout", "1")
    wait_until(lambda: database.effects("started"), message=worker.text)
    began = time.monotonic()
    handlers.record_async.enqueue(number=1)
    wait_until(lambda: database.states() == {"completed": 1, "failed": 1}, message=worker.text)
    took = time.monotonic() - began
    worker.stop()  # a slow machine may need more than the second that it has
    assert database.job(blocking)["errors"][0]["outcome"] == "timed_out"
    assert database.effects("record_async") == [1]
    observe(f"timed out and its process replaced after {took:.1f} s; the async job behind it ran")


@pytest.mark.fault("F13", injected="handlers that leave threads which raise, exit, or never end")
def test_threads_of_handlers_hold_up_nothing(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    misbehaving.leave_threads.enqueue_many([{"number": number} for number in range(5)])
    assert start_worker("--drain").wait() == 0
    assert database.states() == {"completed": 5}
    observe("5 jobs completed, the worker ended in order")


@pytest.mark.fault("F15", injected="def and async handlers past a timeout of 0.3-0.4 s that honour it")
def test_overdue_handlers_that_listen_are_retried(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    listens = misbehaving.obedient.enqueue().id
    handlers.overdue_async.enqueue()
    worker = start_worker("--concurrency", "1")
    wait_until(lambda: database.states() == {"failed": 2}, message=worker.text)
    (child,) = worker.child_pids()
    assert worker.stop() == 0
    assert database.effects("obedient") == [1, 2]
    assert [entry["outcome"] for entry in database.job(listens)["errors"]] == ["retried", "failed"]
    # Its process lived on: the slot was given back, and used for the next.
    assert database.value("SELECT array_agg(DISTINCT pid) FROM effects") == [child]
    observe("retried with backoff, then failed; the one slot was free again each time, the process lived")


@pytest.mark.fault("F16", injected="MemoryError at the limit of the address space (RLIMIT_AS), twice")
def test_memory_error_is_an_ordinary_failure(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    hungry = misbehaving.use_up_memory.enqueue().id
    handlers.record.enqueue_many([{"number": number} for number in range(10)])
    worker = start_worker()
    wait_until(lambda: database.states() == {"completed": 10, "failed": 1}, message=worker.text)
    assert worker.stop() == 0
    assert [entry["class"] for entry in database.job(hungry)["errors"]] == 2 * ["MemoryError"]
    assert "died" not in worker.text()
    observe("retried, then failed like any error; the process lived")


@pytest.mark.fault("F16", injected="the kernel's OOM killer, by a memory cgroup of 64 MB round the child")
def test_a_kill_for_memory_is_charged_to_the_job_that_ran(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    worker = start_worker("--concurrency", "4")
    worker.wait_ready(database.connection)
    (child,) = worker.child_pids()
    with memory_group(64 * 2**20) as group:
        group.add(child)
        hungry = misbehaving.hoard_at_first.enqueue(most=2**29).id
        handlers.record.enqueue_many([{"number": number} for number in range(20)])
        wait_until(lambda: database.states() == {"completed": 21}, message=worker.text)
        assert group.kills() == 1
    assert worker.stop() == 0
    row = database.job(hungry)
    assert row["attempt"] == 2
    assert [entry["outcome"] for entry in row["errors"]] == ["rescued"]
    assert "signal 9" in row["errors"][0]["error"]
    assert set(database.effects("record")) == set(range(20))
    observe("the job that took it: an attempt charged (signal 9), run again; 20 others ran, in a new process")


@pytest.mark.fault(
    "F17", injected="handlers that fork (exit, sys.exit, return, use the database), run programs, use pools"
)
def test_forks_of_handlers_are_none_of_the_workers(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    ways = list(misbehaving.FORKS)
    jobs = {how: misbehaving.fork.enqueue(how=how).id for how in ways}
    worker = start_worker("--concurrency", "1", awa={"HEARTBEAT_INTERVAL": 0.5})
    wait_until(
        lambda: sum(database.states().get(state, 0) for state in ("completed", "failed")) == len(ways),
        message=worker.text,
    )
    assert worker.stop() == 0
    ended = {
        how: (database.job(job_id)["state"], database.job(job_id)["errors"]) for how, job_id in jobs.items()
    }
    assert ended == dict.fromkeys(ways, ("completed", []))
    assert len(database.effects("after fork")) == len(ways)
    assert len(database.effects("in fork")) == 1
    # All that the worker itself did, it did in one process that outlived them.
    assert database.value("SELECT count(DISTINCT pid) FROM effects WHERE name = 'after fork'") == 1
    assert "died" not in worker.text()
    observe(
        f"{len(ways)} ways, each completed once; forked processes ended by themselves, on no socket of ours"
    )


@pytest.mark.fault(
    "F19",
    injected="RecursionError, 100 MB of text, 2,000 causes, a group of 10,000, ANSI and NUL, no __str__",
)
def test_odd_errors_are_stored_cut_and_clean(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    ways = ("recursion", "huge", "chain", "group", "ansi", "no text", "no class")
    jobs = {what: misbehaving.raise_odd.enqueue(what=what).id for what in ways}
    began = time.monotonic()
    worker = start_worker()
    wait_until(lambda: database.states() == {"failed": len(ways)}, message=worker.text)
    took = time.monotonic() - began
    assert worker.stop() == 0
    sizes = []
    for what, job_id in jobs.items():
        (entry,) = database.job(job_id)["errors"]
        assert entry["outcome"] == "failed", what
        assert 0 < len(entry["error"]) <= 2_000, what
        assert 0 < len(entry["traceback"]) <= 8_000, what
        assert len(entry["class"]) <= 2_000, what
        sizes.append(sum(len(str(value)) for value in entry.values()))
    assert all(entry["run_lease"] == 1 for entry in database.job(jobs["huge"])["errors"])
    # One record a line: what an error says forges none, and no escape reaches a terminal.
    assert "\x1b[31m" not in worker.text()
    assert "\nforged" not in worker.text()
    observe(f"each stored with at most {max(sizes):,} characters, cleaned; all over after {took:.1f} s")
