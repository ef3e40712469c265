"""Completer: what has ended is written, in batches, whatever the database or one of the rows does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from awa_django.states import JobState
from awa_django.storage import finalize
from awa_django.storage.rows import Attempt, Completion, Deferral, Ending, Outcome, Release
from awa_django.storage.waiters import listen, wait
from awa_django.worker.slots import Counter, Phase
from tests.conftest import Connect
from tests.factories import insert_job, reload_job, update_job
from tests.waiting import wait_until
from tests.worker.completer_desk import CompleterDesk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

ENTRY = '{"error": "no", "run_lease": 1, "worker": "w/1"}'
KEY = bytes(range(16))


def test_outcomes_of_every_kind_are_written_counted_and_given_back(desk: CompleterDesk) -> None:
    held = [desk.run() for _ in range(7)]
    attempts = [each.attempt for each in held]
    outcomes: list[Outcome] = [
        Completion(attempts[0], '{"r": 1}'),
        Completion(attempts[1], delete=True),
        Deferral(attempts[2], JobState.RETRYABLE, 60.0, ENTRY),
        Deferral(attempts[3], JobState.SCHEDULED, 60.0, refund=True),
        Ending(attempts[4], JobState.FAILED, ENTRY),
        Ending(attempts[5], JobState.CANCELLED, ENTRY),
        Release(attempts[6]),
    ]
    for each, outcome in zip(held, outcomes, strict=True):
        desk.completer.put(each, outcome)
    desk.completer.start()
    desk.settle()
    rows = [reload_job(attempt.job_id) for attempt in attempts]
    assert [row and row.state for row in rows] == [
        "completed", None, "retryable", "scheduled", "failed", "cancelled", "available"
    ]  # fmt: skip
    assert rows[0].result == {"r": 1}
    assert desk.counts() == {
        Counter.COMPLETED: 2,
        Counter.RETRIED: 1,
        Counter.SNOOZED: 1,
        Counter.FAILED: 1,
        Counter.CANCELLED: 1,
        Counter.RELEASED: 1,
    }
    assert desk.released == [1]


def test_unknown_kind_is_counted_apart(desk: CompleterDesk) -> None:
    held = desk.run()
    desk.completer.put(held, Deferral(held.attempt, JobState.SCHEDULED, 5.0, refund=True, unknown_kind=True))
    desk.completer.start()
    desk.settle()
    assert desk.counts() == {Counter.UNKNOWN_KIND: 1}


def test_finish_that_is_committed_already_only_frees_its_slot(desk: CompleterDesk) -> None:
    held = desk.run()
    desk.completer.put(held, None)
    desk.completer.start()
    desk.settle()
    assert desk.counts() == {Counter.COMPLETED: 1}
    assert reload_job(held.job.id).state == "running"


def test_stale_outcome_is_dropped_counted_and_told(
    desk: CompleterDesk, caplog: pytest.LogCaptureFixture
) -> None:
    held = desk.run()
    update_job(held.job.id, run_lease="2")
    with caplog.at_level(logging.WARNING, logger="awa_django"):
        desk.complete(held)
        desk.completer.start()
        desk.settle()
    assert desk.counts() == {Counter.STALE: 1}
    row = reload_job(held.job.id)
    assert (row.state, row.errors) == ("running", [])
    [record] = caplog.records
    assert record.job_id == held.job.id  # type: ignore[attr-defined]


def test_two_runs_of_one_job_that_end_together_are_both_answered(desk: CompleterDesk) -> None:
    """The answer comes by job id: one of the two was held, and heart-beaten, for ever."""
    new = desk.run()
    update_job(new.job.id, run_lease="2")
    old, new = new, desk.hold(new.job.id, lease=2)
    mate = desk.run()
    for held in (old, new, mate):
        desk.complete(held)
    desk.completer.start()
    desk.settle()
    assert desk.counts() == {Counter.STALE: 1, Counter.COMPLETED: 2}
    assert [reload_job(each.job.id).state for each in (new, mate)] == ["completed"] * 2


def test_released_jobs_wake_who_waits_for_their_queue(desk: CompleterDesk, connect: Connect) -> None:
    listener = connect()
    listen(listener)
    wait(listener, "other", ["default"], ttl=timedelta(seconds=60))
    held = desk.run()
    desk.completer.put(held, Release(held.attempt))
    desk.completer.start()
    assert [note.payload for note in listener.notifies(timeout=60, stop_after=1)] == ["default"]
    desk.settle()


def lose_answers(monkeypatch: pytest.MonkeyPatch, name: str, *, before: bool = False) -> list[bool]:
    """The first call of the verb raises as a broken connection does: after its commit, or before it."""
    real: Callable[..., set[int]] = getattr(finalize, name)
    calls: list[bool] = []

    def losing(database: psycopg.Connection[Any], given: Any) -> set[int]:
        calls.append(True)
        if len(calls) > 1:
            return real(database, given)
        if not before:
            real(database, given)
        database.close()
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(finalize, name, losing)
    return calls


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("delete", [False, True])
def test_completion_whose_answer_is_lost_is_sent_again_and_counted_once(
    desk: CompleterDesk, monkeypatch: pytest.MonkeyPatch, before: bool, delete: bool
) -> None:
    calls = lose_answers(monkeypatch, "complete_and_delete" if delete else "complete", before=before)
    held = desk.run()
    desk.completer.put(held, Completion(held.attempt, delete=delete))
    desk.completer.start()
    desk.settle()
    assert len(calls) == 2
    assert desk.counts() == {Counter.COMPLETED: 1}
    row = reload_job(held.job.id)
    assert row is None if delete else row.state == "completed"


def test_retry_whose_answer_is_lost_adds_one_entry(
    desk: CompleterDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_answers(monkeypatch, "defer")
    held = desk.run()
    desk.completer.put(held, Deferral(held.attempt, JobState.RETRYABLE, 60.0, ENTRY))
    desk.completer.start()
    desk.settle()
    assert desk.counts() == {Counter.RETRIED: 1}
    assert len(reload_job(held.job.id).errors) == 1


def test_run_that_is_rescued_while_the_connection_was_lost_is_stale(
    desk: CompleterDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rescue's entry names the lease and the worker too; it was taken for the worker's own."""
    held = desk.run()
    entry = '{"error": "rescued", "run_lease": 1, "worker": "w/1", "by": "leader"}'
    finalize.defer(connection, [Deferral(held.attempt, JobState.RETRYABLE, 60.0, entry)])
    lose_answers(monkeypatch, "complete", before=True)
    desk.complete(held)
    desk.completer.start()
    desk.settle()
    assert desk.counts() == {Counter.STALE: 1}


def test_connections_that_the_server_ends_lose_nothing(desk: CompleterDesk) -> None:
    desk.completer.start()
    held = [desk.run() for _ in range(20)]
    for number, each in enumerate(held):
        if number % 5 == 0:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
                    [desk.session.application_name],
                )
        desk.complete(each)
    desk.settle()
    assert desk.counts() == {Counter.COMPLETED: 20}


def test_session_that_forgot_its_statements_ends_no_job_otherwise(desk: CompleterDesk) -> None:
    desk.completer.start()
    for _ in range(3):
        desk.complete(desk.run())
        desk.settle()
    with desk.session.use() as database:
        database.pgconn.exec_(b"DEALLOCATE ALL")
    held = desk.run()
    desk.complete(held)
    desk.settle()
    assert reload_job(held.job.id).state == "completed"
    assert desk.counts() == {Counter.COMPLETED: 4}


@pytest.mark.parametrize("mask", ["11001000", "11011110"])
def test_outcome_that_the_row_refuses_ends_it_by_name_and_stops_nobody(
    desk: CompleterDesk, mask: str
) -> None:
    bad = desk.run(unique_key=KEY, unique_states=mask)
    twin = insert_job(unique_key=KEY, unique_states="11101001")
    mates = [desk.run() for _ in range(10)]
    for held in (bad, *mates):
        desk.completer.put(held, Deferral(held.attempt, JobState.RETRYABLE, 60.0, ENTRY))
    desk.completer.start()
    desk.settle()
    assert all(reload_job(mate.job.id).state == "retryable" for mate in mates)
    row = reload_job(bad.job.id)
    assert (row.state, row.errors[-1]["outcome"]) == ("cancelled", "superseded")
    assert (desk.reader[Counter.SUPERSEDED], desk.reader[Counter.RETRIED]) == (1, 10)
    assert reload_job(twin).state == "available"


def test_row_that_is_locked_waits_apart(desk: CompleterDesk, connect: Connect) -> None:
    locked, mates = desk.run(), [desk.run() for _ in range(4)]
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        [database] = cursor.fetchone()
        cursor.execute(f"ALTER DATABASE {database} SET lock_timeout = '100ms'")
    try:
        locker = connect(autocommit=False)
        locker.execute("SELECT FROM awa.jobs_hot WHERE id = %s FOR UPDATE", [locked.job.id])
        for held in (locked, *mates):
            desk.complete(held)
        desk.completer.start()
        wait_until(lambda: desk.counts().get(Counter.COMPLETED) == 4)
        later = desk.run()
        desk.complete(later)
        wait_until(lambda: desk.counts().get(Counter.COMPLETED) == 5)
        wait_until(lambda: len(desk.holdings) == 1)  # a slot is given back once its end is counted
        locker.rollback()
        desk.settle()
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER DATABASE {database} RESET lock_timeout")
    assert desk.counts() == {Counter.COMPLETED: 6}


def test_progress_is_merged_and_stored_while_the_job_runs(desk: CompleterDesk) -> None:
    held = desk.hold(
        insert_job("running", worker="w/1"), progress='{"percent": 1, "checkpoint": {"page": 3}}'
    )
    desk.completer.start()
    desk.completer.report(held, {"percent": 50})
    desk.completer.report(held, {"message": "halfway"})
    expected = {"percent": 50, "checkpoint": {"page": 3}, "message": "halfway"}
    wait_until(lambda: reload_job(held.job.id).progress == expected)
    assert [slot.phase for slot in desk.reader.slots()] == [Phase.HELD]


def test_progress_that_the_database_refuses_stops_no_other(desk: CompleterDesk) -> None:
    # Stored by raw SQL: as Python's float it is infinite, which JSON does not have.
    odd = desk.hold(insert_job("running", worker="w/1"), progress='{"n": 1e400}')
    mate = desk.run()
    for held in (odd, mate):
        desk.completer.report(held, {"percent": 50})
    desk.completer.start()
    wait_until(lambda: reload_job(mate.job.id).progress == {"percent": 50})
    for held in (odd, mate):
        desk.complete(held)
    desk.settle()
    assert desk.counts() == {Counter.COMPLETED: 2}


def test_stop_writes_what_is_left(desk: CompleterDesk) -> None:
    held = [desk.run() for _ in range(50)]
    for each in held:
        desk.complete(each)
    desk.completer.start()
    assert desk.completer.stop(timeout=60)
    assert len(desk.holdings) == 0
    assert Attempt(held[0].job.id, 1) == held[0].attempt
    assert all(reload_job(each.job.id).state == "completed" for each in held)
