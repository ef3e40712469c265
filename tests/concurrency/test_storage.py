"""Several connections at once on the same rows: no job is claimed twice, and nothing deadlocks."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from awa_django.states import JobState
from awa_django.storage import finalize, operate
from awa_django.storage.claim import ClaimRequest, claim
from awa_django.storage.heartbeat import heartbeat, progress
from awa_django.storage.plan import always_plan_by_index
from awa_django.storage.promote import promote
from awa_django.storage.rescue import lost_runs, runs_of_worker
from awa_django.storage.rows import Attempt, Completion, Deferral, Ending
from tests.conftest import Connect
from tests.factories import reload_job
from tests.sessions import deadlocks, together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

Database = psycopg.Connection[Any]
SECONDS = 2.0


def insert_many(database: Database, count: int, queue: str = "default") -> list[int]:
    rows = database.execute(
        "INSERT INTO awa.jobs_hot (kind, queue) SELECT 'tests.job', %s FROM generate_series(1, %s) "
        "RETURNING id",
        [queue, count],
    ).fetchall()
    return [row[0] for row in rows]


def test_claimers_share_no_job_and_leave_none(connect: Connect) -> None:
    ids = [job_id for queue in ("a", "b") for job_id in insert_many(connect(), 600, queue)]
    claimed: list[Attempt] = []

    def take(number: int, database: Database) -> None:
        queues = ["a", "b"] if number % 2 else ["b", "a"]
        request = ClaimRequest(limits=dict.fromkeys(queues, 15), total=20, worker=f"w/{number}")
        misses = 0
        while misses < 3:
            jobs = claim(database, request)
            claimed.extend(job.key for job in jobs)
            misses = 0 if jobs else misses + 1

    together(*(partial(take, number, connect()) for number in range(4)))
    assert Counter(claimed) == Counter(Attempt(job_id, 1) for job_id in ids)


def test_one_outcome_of_a_run_is_written(connect: Connect) -> None:
    """Completion, failure, retry, release and an operator's cancel of each run, all at once."""
    ids = insert_many(connect(), 200)
    request = ClaimRequest(limits={"default": 200}, total=200, worker="w/1")
    attempts = [job.key for job in claim(connect(), request)]
    won: list[int] = []

    def complete(database: Database, attempt: Attempt) -> set[int]:
        return finalize.complete(database, [Completion(attempt)])

    def fail(database: Database, attempt: Attempt) -> set[int]:
        return finalize.finish(database, [Ending(attempt, JobState.FAILED, "{}")])

    def retry(database: Database, attempt: Attempt) -> set[int]:
        return finalize.defer(database, [Deferral(attempt, JobState.RETRYABLE, 60.0, "{}")])

    def cancel(database: Database, attempt: Attempt) -> set[int]:
        return {row[0] for row in operate.cancel_hot(database, [attempt.job_id], entry="{}")}

    def race(verb: Callable[[Database, Attempt], set[int]], database: Database) -> None:
        for attempt in attempts:
            won.extend(verb(database, attempt))

    verbs = (complete, fail, retry, cancel)
    together(*(partial(race, verb, connect()) for verb in verbs))
    assert Counter(won) == Counter(ids)


def test_batches_on_the_same_runs_in_any_order_never_deadlock(connect: Connect) -> None:
    """Each of them gets its runs in another order, and locks them by id."""
    rows = connect()
    insert_many(rows, 400)
    request = ClaimRequest(limits={"default": 400}, total=400, worker="w/1")
    attempts = [job.key for job in claim(rows, request)]
    before = deadlocks(rows)
    until = time.monotonic() + SECONDS

    def shuffled(count: int) -> list[Attempt]:
        return random.sample(attempts, count)

    def beat(database: Database) -> None:
        heartbeat(database, shuffled(400))

    def report(database: Database) -> None:
        progress(database, dict.fromkeys(shuffled(200), '{"percent": 1}'))

    def finish(database: Database) -> None:
        finalize.complete(database, [Completion(attempt) for attempt in shuffled(50)])

    def delete(database: Database) -> None:
        finalize.complete_and_delete(database, shuffled(50))

    def defer(database: Database) -> None:
        finalize.defer(database, [Deferral(attempt, JobState.RETRYABLE, 0.0) for attempt in shuffled(50)])

    def cancel(database: Database) -> None:
        operate.cancel_hot(database, [attempt.job_id for attempt in shuffled(50)], entry="{}")

    def sweep(database: Database) -> None:
        runs_of_worker(database, ["w/1"])
        lost_runs(database, stale_after=timedelta(seconds=-5), batch=50)

    def again_and_again(action: Callable[[Database], None], database: Database) -> None:
        while time.monotonic() < until:
            with database.transaction(force_rollback=True):
                action(database)

    own = connect()
    always_plan_by_index(own)  # as a child's completer does
    together(
        partial(again_and_again, finish, own),
        *(
            partial(again_and_again, action, connect())
            for action in (beat, beat, report, finish, delete, defer, cancel, sweep)
        ),
    )
    rows.execute("SELECT pg_stat_force_next_flush()")
    assert deadlocks(rows) == before
    assert all(reload_job(attempt.job_id).state == "running" for attempt in attempts[:5])


def test_promoters_move_each_row_once(connect: Connect) -> None:
    database = connect()
    database.execute(
        "INSERT INTO awa.scheduled_jobs (kind, run_at) "
        "SELECT 'tests.job', now() - interval '1 second' FROM generate_series(1, 3000)"
    )
    moved: list[int] = []

    def move(mover: Database) -> None:
        misses = 0
        while misses < 3:
            count = sum(promote(mover, batch=200).values())
            moved.append(count)
            misses = 0 if count else misses + 1

    together(*(partial(move, connect()) for _ in range(3)))
    assert sum(moved) == 3000
    assert database.execute("SELECT count(*), count(DISTINCT id) FROM awa.jobs_hot").fetchone() == (
        3000,
        3000,
    )
