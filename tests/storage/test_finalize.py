"""Finalize: every way out of ``running`` is the lease's own, changes what it says, and copies the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from awa_django.states import JobState
from awa_django.storage import finalize
from awa_django.storage.rows import Attempt, Completion, Deferral, Ending
from tests.factories import insert_job, reload_job, update_job

pytestmark = pytest.mark.django_db

ENTRY = json.dumps({"error": "no", "attempt": 3, "run_lease": 4, "worker": "w/1"})
# Everything that a move has to carry, different from every default.
FULL: dict[str, Any] = {
    "kind": "a.full",
    "queue": "q",
    "args": {"n": 2**70, "é": [None, 1.5]},
    "priority": 3,
    "attempt": 3,
    "max_attempts": 7,
    "errors": [{"error": "earlier"}],
    "metadata": {"k": "v"},
    "tags": ["t", "u"],
    "unique_key": bytes(range(16)),
    "unique_states": "11101001",
    "run_lease": 4,
    "progress": {"percent": 5},
    "result": {"r": 1},
    "worker": "w/1",
}
MOVED = {"table", "state", "run_at", "heartbeat_at", "deadline_at", "errors", "attempt", "metadata"}


def running(**columns: Any) -> int:
    job_id = insert_job("running", **{"attempt": 3, "run_lease": 4, **columns})
    update_job(job_id, deadline_at="now() + interval '1 hour'", created_at="now() - interval '2 days'")
    return job_id


def complete(attempt: Attempt) -> set[int]:
    return finalize.complete(connection, [Completion(attempt, '{"r": 2}')])


def complete_and_delete(attempt: Attempt) -> set[int]:
    return finalize.complete_and_delete(connection, [attempt])


def fail(attempt: Attempt) -> set[int]:
    return finalize.finish(connection, [Ending(attempt, JobState.FAILED, ENTRY)])


def retry(attempt: Attempt) -> set[int]:
    return finalize.defer(connection, [Deferral(attempt, JobState.RETRYABLE, 60.0, ENTRY)])


def release(attempt: Attempt) -> set[int]:
    return set(finalize.release(connection, [attempt]))


def surrender(attempt: Attempt) -> set[int]:
    return finalize.surrender(connection, Ending(attempt, JobState.CANCELLED, ENTRY))


ALL = [complete, complete_and_delete, fail, retry, release, surrender]


@pytest.mark.parametrize("verb", ALL)
@pytest.mark.parametrize("lease", [3, 5])
def test_stale_lease_changes_nothing(verb: Callable[[Attempt], set[int]], lease: int) -> None:
    job_id = running(**FULL)
    before = reload_job(job_id)
    assert verb(Attempt(job_id, lease)) == set()
    assert reload_job(job_id) == before


@pytest.mark.parametrize("verb", ALL)
@pytest.mark.parametrize("state", ["available", "completed", "failed", "cancelled", "retryable", "scheduled"])
def test_job_that_does_not_run_is_left_as_it_is(verb: Callable[[Attempt], set[int]], state: str) -> None:
    job_id = insert_job(state, run_lease=4, attempt=3)
    before = reload_job(job_id)
    assert verb(Attempt(job_id, 4)) == set()
    assert reload_job(job_id) == before


@pytest.mark.parametrize("verb", ALL)
def test_second_finish_of_a_lease_is_stale(verb: Callable[[Attempt], set[int]]) -> None:
    job_id = running()
    assert verb(Attempt(job_id, 4)) == {job_id}
    for again in ALL:
        assert again(Attempt(job_id, 4)) == set()


def test_complete_clears_what_only_runs_have_and_keeps_the_result() -> None:
    job_id = running(progress={"percent": 50}, errors=[{"error": "earlier"}])
    assert complete(Attempt(job_id, 4)) == {job_id}
    row = reload_job(job_id)
    assert (row.state, row.attempt, row.run_lease, row.result) == ("completed", 3, 4, {"r": 2})
    assert row.finalized_at is not None
    assert (row.heartbeat_at, row.deadline_at, row.progress) == (None, None, None)
    assert row.errors == [{"error": "earlier"}]


def test_complete_takes_many_in_any_order_and_names_those_done() -> None:
    ids = [running() for _ in range(5)]
    stale = running(run_lease=9)
    completions = [Completion(Attempt(job_id, 4)) for job_id in reversed([*ids, stale])]
    assert finalize.complete(connection, completions) == set(ids)
    assert reload_job(stale).state == "running"
    assert finalize.complete(connection, []) == set()


def test_complete_and_delete_removes_the_row_and_its_claim() -> None:
    job_id = running(**FULL)
    assert complete_and_delete(Attempt(job_id, 4)) == {job_id}
    assert reload_job(job_id) is None
    assert claims() == []


def claims() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT job_id FROM awa.job_unique_claims")
        return [row[0] for row in cursor.fetchall()]


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_finish_ends_with_one_entry_more(state: JobState) -> None:
    job_id = running(errors=[{"error": "earlier"}], progress={"percent": 5})
    assert finalize.finish(connection, [Ending(Attempt(job_id, 4), state, ENTRY)]) == {job_id}
    row = reload_job(job_id)
    assert (row.state, row.attempt, row.run_lease) == (state, 3, 4)
    assert (row.heartbeat_at, row.deadline_at, row.progress) == (None, None, {"percent": 5})
    assert row.finalized_at is not None
    assert row.errors[0] == {"error": "earlier"}
    [entry] = row.errors[1:]
    assert {**json.loads(ENTRY), "at": entry["at"], "attempted_at": entry["attempted_at"]} == entry


@pytest.mark.parametrize("verb", [fail, retry])
def test_entry_says_when_its_attempt_began(verb: Any) -> None:
    job_id = running()
    update_job(job_id, attempted_at="now() - interval '1 hour'")
    assert verb(Attempt(job_id, 4)) == {job_id}
    row = reload_job(job_id)
    assert datetime.fromisoformat(row.errors[0]["attempted_at"]) == row.attempted_at
    assert datetime.fromisoformat(row.errors[0]["at"]) == row.attempted_at + timedelta(hours=1)


def test_finish_without_an_entry_adds_none() -> None:
    job_id = running()
    assert finalize.finish(connection, [Ending(Attempt(job_id, 4), JobState.CANCELLED)]) == {job_id}
    assert reload_job(job_id).errors == []


def test_finish_of_a_run_above_its_attempts_counts_only_those() -> None:
    job_id = running(attempt=4, max_attempts=3)
    assert fail(Attempt(job_id, 4)) == {job_id}
    row = reload_job(job_id)
    assert (row.attempt, row.errors[0]["attempt"]) == (3, 3)


def test_defer_moves_the_row_with_all_its_columns() -> None:
    job_id = running(**FULL)
    before = reload_job(job_id)
    assert retry(Attempt(job_id, 4)) == {job_id}
    row = reload_job(job_id)
    assert (row.table, row.state, row.attempt) == ("awa.scheduled_jobs", "retryable", 3)
    assert (row.heartbeat_at, row.deadline_at, row.finalized_at) == (None, None, None)
    for name, value in vars(before).items():
        if name not in MOVED:
            assert (name, getattr(row, name)) == (name, value)
    assert row.metadata == {"k": "v"}
    assert [entry["error"] for entry in row.errors] == ["earlier", "no"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT run_at - now() = interval '60 s' FROM awa.scheduled_jobs")
        assert cursor.fetchone()[0]
    assert claims() == [job_id]


@pytest.mark.parametrize(("attempt", "left"), [(3, 2), (1, 0), (0, 0)])
def test_defer_gives_the_attempt_back_but_never_below_zero(attempt: int, left: int) -> None:
    job_id = running(attempt=attempt)
    snooze = Deferral(Attempt(job_id, 4), JobState.SCHEDULED, 0.0, refund=True)
    assert finalize.defer(connection, [snooze]) == {job_id}
    row = reload_job(job_id)
    assert (row.state, row.attempt, row.run_lease, row.errors) == ("scheduled", left, 4, [])


@pytest.mark.parametrize(
    ("stored", "count"),
    [
        ("{}", 1),
        ('{"awa:unknown_kind": {"count": 4}}', 5),
        ('{"awa:unknown_kind": {"count": 1e400}}', 1_000_001),
        ('{"awa:unknown_kind": {"count": -1e400}}', 1),
        ('{"awa:unknown_kind": {"count": "x"}}', 1),
        ('{"awa:unknown_kind": 7}', 1),
    ],
)
def test_defer_counts_how_often_a_kind_was_unknown(stored: str, count: int) -> None:
    job_id = running()
    update_job(job_id, metadata=f"'{stored}'::jsonb || '{{\"k\": 1}}'")
    unknown = Deferral(Attempt(job_id, 4), JobState.SCHEDULED, 5.0, refund=True, unknown_kind=True)
    assert finalize.defer(connection, [unknown]) == {job_id}
    assert reload_job(job_id).metadata == {"k": 1, "awa:unknown_kind": {"count": count}}


def test_release_puts_the_job_back_in_its_place_uncharged() -> None:
    job_id = running(**FULL)
    before = reload_job(job_id)
    assert finalize.release(connection, [Attempt(job_id, 4)]) == {job_id: "q"}
    row = reload_job(job_id)
    assert (row.state, row.attempt, row.run_lease) == ("available", 2, 4)
    assert (row.heartbeat_at, row.deadline_at) == (None, None)
    assert (row.priority, row.run_at, row.errors) == (before.priority, before.run_at, before.errors)


@pytest.mark.parametrize("mask", ["11000000", "11011110"])
def test_outcome_that_needs_a_key_held_by_another_is_refused(mask: str) -> None:
    """The mask leaves out ``running``: a twin took the key meanwhile."""
    job_id = running(**{**FULL, "unique_states": mask})
    twin = insert_job(unique_key=FULL["unique_key"], unique_states="11101001")
    refused = [release] if mask == "11000000" else [complete, fail, retry, release]
    for verb in refused:
        with pytest.raises(IntegrityError), transaction.atomic():
            verb(Attempt(job_id, 4))
    assert surrender(Attempt(job_id, 4)) == {job_id}
    row = reload_job(job_id)
    assert (row.state, row.unique_key) == ("cancelled", FULL["unique_key"])
    assert row.unique_states == mask[:6] + "0" + mask[7:]
    assert claims() == [twin]


def test_errors_of_two_dimensions_refuse_an_entry_but_not_the_surrender() -> None:
    job_id = running()
    update_job(job_id, errors="""ARRAY[['{"error": "a"}', '{"error": "b"}']]::jsonb[]""")
    for verb in (fail, retry):
        with pytest.raises(DatabaseError, match="one-dimensional"), transaction.atomic():
            verb(Attempt(job_id, 4))
    assert surrender(Attempt(job_id, 4)) == {job_id}
    assert [entry["error"] for entry in reload_job(job_id).errors] == ["a", "b", "no"]


def settled(job_id: int, lease: int = 4, *, worker: str = "w/1", gone: bool = False) -> bool:
    found = finalize.settled(connection, [Attempt(job_id, lease)], worker=worker, gone_is_settled=[gone])
    return found == {job_id}


@pytest.mark.parametrize("verb", [complete, fail, retry, release])
def test_settled_knows_the_outcomes_of_this_run_of_this_worker(verb: Callable[[Attempt], set[int]]) -> None:
    job_id = running(worker="w/1")
    assert not settled(job_id)
    verb(Attempt(job_id, 4))
    assert settled(job_id)
    assert not settled(job_id, lease=5)


@pytest.mark.parametrize("verb", [fail, retry, release])
def test_settled_knows_the_outcomes_of_another_worker_as_not_ours(
    verb: Callable[[Attempt], set[int]],
) -> None:
    job_id = running(worker="w/2")
    verb(Attempt(job_id, 4))
    assert not settled(job_id, worker="w/3")


def test_settled_counts_a_missing_row_only_where_completion_deletes() -> None:
    assert settled(2**60, gone=True)
    assert not settled(2**60)


@pytest.mark.parametrize("by", ['"leader"', "null"])
def test_settled_is_false_for_a_run_that_somebody_else_ended(by: str) -> None:
    job_id = running(worker="w/1")
    entry = json.dumps({**json.loads(ENTRY), "by": json.loads(by)})
    finalize.defer(connection, [Deferral(Attempt(job_id, 4), JobState.RETRYABLE, 1.0, entry)])
    assert not settled(job_id)
