"""Many rows due at one instant, several promoters, and retries that go the other way meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from typing import Any

import psycopg
import pytest

from awa_django.states import JobState
from awa_django.storage import finalize
from awa_django.storage.claim import ClaimRequest, claim
from awa_django.storage.promote import promote
from awa_django.storage.rows import Attempt, Completion, Deferral
from awa_django.worker.settle import settle
from tests.conftest import Connect
from tests.factories import insert_job, reload_job
from tests.fault_report import Observe
from tests.sessions import deadlocks, together
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

Database = psycopg.Connection[Any]
ROWS = 20_000


@pytest.mark.fault("U03", injected="20,000 rows due at once, 4 promoters, every second run retries with 0 s")
def test_promoters_and_retries_move_each_row_once_and_never_deadlock(
    connect: Connect, observe: Observe
) -> None:
    rows = connect()
    rows.execute(
        "INSERT INTO awa.scheduled_jobs (kind, run_at) "
        "SELECT 'tests.job', now() - interval '1 second' FROM generate_series(1, %s)",
        [ROWS],
    )
    before = deadlocks(rows)
    moves: list[int] = []
    retried: list[int] = []
    completed: list[int] = []
    ended = threading.Event()

    def move(database: Database) -> None:
        while not ended.wait(0.005):
            moves.append(sum(promote(database, batch=500).values()))

    def work(number: int, database: Database) -> None:
        request = ClaimRequest(limits={"default": 500}, total=500, worker=f"w/{number}")
        while not ended.is_set():
            jobs = claim(database, request)
            again = [job for job in jobs if job.attempt == 1 and job.id % 2]
            outcomes = [Deferral(job.key, JobState.RETRYABLE, 0.0) for job in again]
            retried.extend(finalize.defer(database, outcomes))
            done = [Completion(job.key) for job in jobs if job not in again]
            completed.extend(finalize.complete(database, done))
            if len(completed) >= ROWS:
                ended.set()

    timer = threading.Timer(60, ended.set)
    timer.start()
    together(
        *(partial(move, connect()) for _ in range(4)),
        *(partial(work, number, connect()) for number in range(4)),
    )
    timer.cancel()
    assert Counter(completed).most_common(1)[0][1] == 1
    assert len(completed) == ROWS
    assert len(retried) == len(set(retried)) == ROWS // 2
    assert sum(moves) == ROWS + len(retried)
    rows.execute("SELECT pg_stat_force_next_flush()")
    assert deadlocks(rows) == before
    assert rows.execute("SELECT count(*), max(attempt), max(run_lease) FROM awa.jobs_hot").fetchone() == (
        ROWS,
        2,
        2,
    )
    observe(f"{sum(moves)} moves by 4 promoters, {len(retried)} retries meanwhile: each once, 0 deadlocks")


@pytest.mark.fault("U03", injected="a deadlock forced upon a batch of completions")
def test_deadlock_is_not_charged_and_the_batch_is_written_afterwards(
    connect: Connect, observe: Observe
) -> None:
    ids = [insert_job("running") for _ in range(3)]
    rival, worker, observer = connect(autocommit=False), connect(), connect()
    # Who finds the deadlock is its victim, and each looks once: the worker when the rival surely waits.
    rival.execute("SET deadlock_timeout = '60s'")
    worker.execute("SET deadlock_timeout = '1s'")
    rival.execute("SELECT FROM awa.jobs_hot WHERE id = %s FOR UPDATE", [ids[2]])
    before = deadlocks(observer)
    blocked: list[int] = []
    outcomes = [Completion(Attempt(job_id, 1)) for job_id in ids]

    def complete() -> None:
        settlement = settle(worker, outcomes, worker="w/1")
        blocked.extend(outcome.attempt.job_id for outcome in settlement.blocked)

    def cross() -> None:
        wait_until(lambda: waits_for(observer, worker, rival), message="the batch does not wait")
        rival.execute("SELECT FROM awa.jobs_hot WHERE id = %s FOR UPDATE", [ids[0]])

    together(complete, cross)
    rival.rollback()
    assert settle(
        worker, [each for each in outcomes if each.attempt.job_id in blocked], worker="w/1"
    ).done == {*blocked}
    observer.execute("SELECT pg_stat_force_next_flush()")
    worker.execute("SELECT pg_stat_force_next_flush()")
    assert deadlocks(observer) == before + 1
    for job_id in ids:
        job = reload_job(job_id)
        assert (job.state, job.attempt, job.errors) == ("completed", 1, [])
    observe(f"1 deadlock, {len(blocked)} of 3 completions written in a second send, no attempt charged")


def waits_for(observer: Database, waiter: Database, holder: Database) -> bool:
    row = observer.execute("SELECT pg_blocking_pids(%s)", [waiter.info.backend_pid]).fetchone()
    return row is not None and holder.info.backend_pid in row[0]
