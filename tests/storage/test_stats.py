"""Stats: every finish counts what it changed, in its own statement, and folding loses and doubles nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from awa_django.histogram import bucket
from awa_django.models import QueueStats
from awa_django.states import JobState
from awa_django.storage import finalize
from awa_django.storage._sql import statement
from awa_django.storage.rows import Attempt, Completion, Deferral, Ending
from awa_django.storage.stats import count_totals, fold_stats, prune_stats, prune_totals, totals
from tests.conftest import Connect
from tests.factories import insert_job, update_job
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db

ENTRY = json.dumps({"error": "no", "attempt": 1, "run_lease": 4, "worker": "w/1"})
COUNTS = ("completed_count", "retried_count", "failed_count", "cancelled_count")


def running(**columns: Any) -> Attempt:
    return Attempt(insert_job("running", run_lease=4, **columns), 4)


def rows(table: str = "queue_stats") -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT queue, kind, {', '.join(COUNTS)} FROM awa.{table} ORDER BY minute, queue, kind"
        )
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def blocked_by(holder: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))",
            [holder.info.backend_pid],
        )
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def end(state: JobState) -> Callable[[Attempt], set[int]]:
    return lambda attempt: finalize.finish(connection, [Ending(attempt, state, ENTRY)])


def put_off(state: JobState) -> Callable[[Attempt], set[int]]:
    return lambda attempt: finalize.defer(connection, [Deferral(attempt, state, 60.0, ENTRY)])


WAYS: dict[str, tuple[Callable[[Attempt], set[int]], tuple[int, ...]]] = {
    "complete": (lambda attempt: finalize.complete(connection, [Completion(attempt, None)]), (1, 0, 0, 0)),
    "delete": (lambda attempt: finalize.complete_and_delete(connection, [attempt]), (1, 0, 0, 0)),
    "retry": (put_off(JobState.RETRYABLE), (0, 1, 0, 0)),
    "fail": (end(JobState.FAILED), (0, 0, 1, 0)),
    "cancel": (end(JobState.CANCELLED), (0, 0, 0, 1)),
    "surrender": (
        lambda attempt: finalize.surrender(connection, Ending(attempt, JobState.FAILED, ENTRY)),
        (0, 0, 1, 0),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_ended_run_is_counted_where_it_belongs(way: str) -> None:
    verb, expected = WAYS[way]
    attempt = running(queue="mail", kind="a.kind")
    assert verb(attempt) == {attempt.job_id}
    assert rows("queue_stats_deltas") == [("mail", "a.kind", *expected)]
    assert fold_stats(connection, batch=10) == 1
    assert rows() == [("mail", "a.kind", *expected)]
    assert rows("queue_stats_deltas") == []


@pytest.mark.parametrize("way", WAYS)
def test_stale_lease_counts_nothing(way: str) -> None:
    attempt = running()
    assert WAYS[way][0](Attempt(attempt.job_id, 3)) == set()
    assert rows("queue_stats_deltas") == []


@pytest.mark.parametrize(
    "way", [put_off(JobState.SCHEDULED), lambda attempt: set(finalize.release(connection, [attempt]))]
)
def test_run_that_goes_on_later_is_not_an_ended_one(way: Callable[[Attempt], set[int]]) -> None:
    attempt = running()
    assert way(attempt) == {attempt.job_id}
    assert rows("queue_stats_deltas") == []


def test_finish_that_is_rolled_back_counts_nothing() -> None:
    with transaction.atomic():
        finalize.complete(connection, [Completion(running(), None)])
        transaction.set_rollback(True)
    assert rows("queue_stats_deltas") == []


def test_waits_and_runs_are_summed() -> None:
    attempts = [running(), running(), running()]
    for attempt, due, began in zip(attempts, (-9, -5, -5), (-7, -4, 60), strict=True):
        # The last: a clock that was set back. No time is below zero.
        update_job(
            attempt.job_id, run_at=f"now() + interval '{due} s'", attempted_at=f"now() + interval '{began} s'"
        )
    finalize.complete(connection, [Completion(attempt, None) for attempt in attempts])
    fold_stats(connection, batch=10)
    with connection.cursor() as cursor:
        cursor.execute("SELECT completed_count, wait_seconds, run_seconds FROM awa.queue_stats")
        assert cursor.fetchall() == [(3, pytest.approx(2 + 1 + 65, abs=0.1), pytest.approx(7 + 4, abs=0.1))]


@pytest.mark.parametrize("way", WAYS)
def test_wait_and_run_of_each_way_are_in_their_buckets(way: str) -> None:
    attempt = running()
    update_job(attempt.job_id, run_at="now() - interval '2000 s'", attempted_at="now() - interval '100 s'")
    WAYS[way][0](attempt)
    fold_stats(connection, batch=10)
    found = QueueStats.objects.get()
    assert found.wait_histogram == [0] * bucket(1900) + [1]
    assert found.run_histogram == [0] * bucket(100) + [1]


def test_histograms_of_a_minute_add_up_over_folds() -> None:
    def ran(*seconds: float) -> None:
        attempts = [running() for _ in seconds]
        for attempt, each in zip(attempts, seconds, strict=True):
            began = f"now() - interval '{each} s'"
            update_job(attempt.job_id, run_at=f"{began} - interval '5 s'", attempted_at=began)
        finalize.complete(connection, [Completion(attempt, None) for attempt in attempts])

    ran(3, 70, 3)
    ran(3)
    with connection.cursor() as cursor:
        # Of a batch and kind, one for each pair of buckets.
        cursor.execute("SELECT wait_bucket, run_bucket, completed_count FROM awa.queue_stats_deltas")
        places = [(bucket(5), bucket(3), 1), (bucket(5), bucket(3), 2), (bucket(5), bucket(70), 1)]
        assert sorted(cursor.fetchall()) == places
        cursor.execute("UPDATE awa.queue_stats_deltas SET minute = '2020-01-01 00:00Z'")
        fold_stats(connection, batch=10)
        ran(3, 5000)
        cursor.execute("UPDATE awa.queue_stats_deltas SET minute = '2020-01-01 00:00Z'")
        fold_stats(connection, batch=10)
    found = QueueStats.objects.get()
    expected = [0] * 24
    expected[bucket(3)], expected[bucket(70)], expected[bucket(5000)] = 4, 1, 1
    assert found.run_histogram == expected
    assert found.wait_histogram == [0] * bucket(5) + [6]
    assert found.completed_count == 6


def test_totals_outlive_the_rollups_of_their_minutes() -> None:
    def ended(minute: str, kind: str, wait: int, run: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO awa.queue_stats_deltas (minute, queue, kind, completed_count, failed_count, "
                "wait_seconds, run_seconds, wait_bucket, run_bucket) "
                "VALUES (%s, 'q', %s, 2, 1, 3, 6, %s, %s)",
                [minute, kind, wait, run],
            )

    ended("2020-01-01 00:00Z", "a", 2, 0)
    ended("2020-01-01 00:01Z", "a", 1, 0)
    ended("2020-01-01 00:01Z", "b", 0, 3)
    assert fold_stats(connection, batch=10) == 3
    ended("2020-01-01 00:02Z", "a", 1, 2)
    assert fold_stats(connection, batch=10) == 1
    assert prune_stats(connection, kept=timedelta(days=7)) == 4
    assert totals(connection, limit=10) == [
        ("q", "a", 6, 0, 3, 0, 9.0, 18.0, [0, 6, 3], [6, 0, 3]),
        ("q", "b", 2, 0, 1, 0, 3.0, 6.0, [3], [0, 0, 0, 3]),
    ]
    assert [each.kind for each in totals(connection, limit=1)] == ["a"]


def test_histogram_leaves_out_what_workers_of_before_counted() -> None:
    finalize.complete(connection, [Completion(running(), None)])
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO awa.queue_stats (minute, queue, kind) VALUES ('2020-01-01', 'q', 'k')")
        cursor.execute(
            "INSERT INTO awa.queue_stats_deltas (minute, queue, kind, completed_count) "
            "SELECT '2020-01-01', 'q', 'k', 2 FROM generate_series(1, 2)"
        )
        fold_stats(connection, batch=10)
        assert QueueStats.objects.get(queue="q").wait_histogram == []
        cursor.execute(
            "INSERT INTO awa.queue_stats_deltas "
            "(minute, queue, kind, completed_count, wait_bucket, run_bucket) "
            "VALUES ('2020-01-01', 'q', 'k', 2, NULL, NULL), ('2020-01-01', 'q', 'k', 3, 1, 0)"
        )
        fold_stats(connection, batch=10)
    found = QueueStats.objects.get(queue="q")
    assert (found.completed_count, found.wait_histogram, found.run_histogram) == (9, [0, 3], [3])


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_two_that_fold_at_once_share_the_deltas(connect: Connect) -> None:
    for _ in range(6):
        finalize.complete(connection, [Completion(running(), None)])
    connection.cursor().execute("UPDATE awa.queue_stats_deltas SET minute = '2020-01-01 00:00Z'")
    one, other = connect(autocommit=False), connect(autocommit=False)
    assert fold_stats(one, batch=4) == 4
    with ThreadPoolExecutor() as pool:
        # It takes the other two at once; their rollup is the same row, for which it waits.
        second = pool.submit(fold_stats, other, batch=10)
        wait_until(lambda: blocked_by(one))
        one.commit()
        assert second.result(timeout=30) == 2
    other.commit()
    assert [row[2] for row in rows()] == [6]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_fold_that_dies_is_done_by_the_next(connect: Connect) -> None:
    finalize.complete(connection, [Completion(running(), None)])
    dying = connect(autocommit=False)
    assert fold_stats(dying, batch=10) == 1
    connection.cursor().execute("SELECT pg_terminate_backend(%s)", [dying.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        dying.commit()
    assert fold_stats(connection, batch=10) == 1
    assert [row[2] for row in rows()] == [1]


def test_old_rollups_go() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.queue_stats (minute, queue, kind) "
            "VALUES (now() - interval '8 days', 'q', 'old'), (now() - interval '6 days', 'q', 'new')"
        )
    assert prune_stats(connection, kept=timedelta(days=7)) == 1
    assert [row[1] for row in rows()] == ["new"]


def test_totals_of_pairs_long_unused_go_down_to_what_may_stay() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.queue_totals (queue, kind, completed_count) "
            "SELECT 'q', 'k' || n, 1 FROM generate_series(1, 20) AS n"
        )
        cursor.execute(
            "INSERT INTO awa.queue_stats (minute, queue, kind) "
            "SELECT date_trunc('minute', now()), 'q', 'k' || n FROM generate_series(1, 12) AS n"
        )
    assert prune_totals(connection, keep=20, batch=100) == 0
    assert prune_totals(connection, keep=18, batch=1) == 1
    assert prune_totals(connection, keep=18, batch=100) == 1
    # Those in use stay, however many there are.
    assert prune_totals(connection, keep=5, batch=100) == 6
    assert sorted(each.kind for each in totals(connection, limit=100)) == sorted(
        f"k{n}" for n in range(1, 13)
    )
    assert count_totals(connection, limit=100) == 12
    assert count_totals(connection, limit=10) == 10


def test_rollups_are_not_read_where_no_total_is_to_go() -> None:
    text = statement("prune_totals")
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {text}", {"keep": 500, "batch": 100})
        plan = [line for (line,) in cursor.fetchall()]
    assert any("queue_stats" in line and "never executed" in line for line in plan), plan
