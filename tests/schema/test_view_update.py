"""UPDATE and DELETE on awa.jobs: in place, moves, refusals and the shape of each state."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from tests.factories import insert_job, reload_job

pytestmark = pytest.mark.django_db

KEY = b"u" * 16
UNFINISHED = "11101001"
STATES = (
    "scheduled",
    "available",
    "running",
    "completed",
    "retryable",
    "failed",
    "cancelled",
    "waiting_external",
)
LEGAL = {
    "scheduled": {"available", "cancelled"},
    "available": {"scheduled", "cancelled"},
    "running": {"scheduled", "available", "completed", "retryable", "failed", "cancelled"},
    "completed": set(),
    "retryable": {"available", "cancelled"},
    "failed": {"available"},
    "cancelled": {"available"},
    "waiting_external": {"available", "completed", "retryable", "failed", "cancelled"},
}


def execute(statement: str, *params: int) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, params)
        count: int = cursor.rowcount
        return count


def update(job_id: int, assignments: str) -> dict[str, Any]:
    """The row after an UPDATE through the view that says it changed one row."""
    assert execute(f"UPDATE awa.jobs SET {assignments} WHERE id = %s", job_id) == 1
    return now(job_id)


def now(job_id: int) -> dict[str, Any]:
    job = reload_job(job_id)
    assert job is not None
    found: dict[str, Any] = vars(job)
    return found


def claims() -> list[tuple[bytes, int]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT unique_key, job_id FROM awa.job_unique_claims")
        return [(bytes(key), job_id) for key, job_id in cursor.fetchall()]


@pytest.mark.parametrize("state", STATES)
def test_update_in_place_changes_that_column_only(state: str) -> None:
    job_id = insert_job(state, progress={"percent": 5}, metadata={"a": 1}, tags=["t"])
    before = now(job_id)
    after = update(job_id, "priority = 1")
    assert after == before | {"priority": 1}


@pytest.mark.parametrize("old", STATES)
@pytest.mark.parametrize("new", STATES)
def test_only_legal_edges_are_taken(old: str, new: str) -> None:
    job_id = insert_job(old)
    run_at = ", run_at = now()" if new == "available" else ""
    if new == old or new in LEGAL[old]:
        job = update(job_id, f"state = '{new}'{run_at}")
        assert job["state"] == new
        assert (job["finalized_at"] is not None) == (new in ("completed", "failed", "cancelled"))
        assert (job["heartbeat_at"] is not None) == (new == "running")
        assert job["deadline_at"] is None
    else:
        with pytest.raises(IntegrityError, match=f"cannot change job {job_id} from {old} to {new}"):
            update(job_id, f"state = '{new}'{run_at}")


def test_used_up_job_may_be_failed() -> None:
    job_id = insert_job(attempt=3, max_attempts=3)
    assert update(job_id, "state = 'failed'")["state"] == "failed"


@pytest.mark.parametrize(
    ("state", "assignments"),
    [
        ("available", "run_at = now() + interval '1 hour'"),
        ("running", "state = 'retryable', run_at = now() + interval '1 hour'"),
        ("scheduled", "state = 'available', run_at = now()"),
        ("retryable", "state = 'cancelled'"),
    ],
)
def test_move_keeps_every_other_column(state: str, assignments: str) -> None:
    job_id = insert_job(
        state,
        kind="k",
        queue="q",
        args={"a": [1, 2.5, "x"]},
        priority=-7,
        attempt=3,
        max_attempts=9,
        run_lease=4,
        attempted_at="2020-01-01 00:00+00",
        created_at="2019-01-01 00:00+00",
        errors=[{"error": "boom", "attempt": 2}],
        metadata={"trace": "t"},
        tags=["a", "b"],
        progress={"percent": 50},
        result={"x": 1},
        worker="w",
        unique_key=KEY,
        unique_states=UNFINISHED,
    )
    before = now(job_id)
    after = update(job_id, assignments)
    assert after["table"] != before["table"]
    changed = {"table", "state", "run_at", "heartbeat_at", "finalized_at"}
    assert {k: v for k, v in after.items() if k not in changed} == {
        k: v for k, v in before.items() if k not in changed
    }
    assert claims() == ([] if after["state"] == "cancelled" else [(KEY, job_id)])


def test_due_scheduled_job_stays_deferred_until_promotion() -> None:
    job_id = insert_job("scheduled")
    job = update(job_id, "run_at = now() - interval '1 hour'")
    assert (job["table"], job["state"]) == ("awa.scheduled_jobs", "scheduled")


@pytest.mark.parametrize("state", ["available", "running", "failed", "cancelled", "waiting_external"])
def test_available_in_the_future_becomes_scheduled(state: str) -> None:
    job_id = insert_job(state)
    assert update(job_id, "state = 'available', run_at = now() + interval '1 hour'")["state"] == "scheduled"


def test_job_that_waits_for_a_retry_goes_on_waiting_when_it_is_not_due() -> None:
    job_id = insert_job("retryable")
    assert update(job_id, "state = 'available'")["state"] == "retryable"
    assert update(job_id, "state = 'available', run_at = now()")["state"] == "available"


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_retry_gives_all_attempts_again(state: str) -> None:
    job_id = insert_job(state, attempt=5, max_attempts=5, run_lease=5)
    job = update(job_id, "state = 'available'")
    assert (job["attempt"], job["run_lease"], job["finalized_at"]) == (0, 5, None)


def test_retry_may_set_the_attempt_itself() -> None:
    job_id = insert_job("failed", attempt=5, max_attempts=5)
    assert update(job_id, "state = 'available', attempt = 4")["attempt"] == 4


def test_completion_clears_the_progress() -> None:
    job_id = insert_job("running", progress={"percent": 99})
    assert update(job_id, "state = 'completed'")["progress"] is None


def test_running_job_keeps_its_heartbeat() -> None:
    job_id = insert_job("running")
    assert update(job_id, "heartbeat_at = NULL")["heartbeat_at"] is not None


@pytest.mark.parametrize(
    ("state", "assignments", "message"),
    [
        ("available", "id = id + 1000", "cannot change id of job"),
        ("available", "kind = 'other'", "cannot change kind of job"),
        ("available", "unique_key = decode(repeat('ab', 16), 'hex')", "cannot change unique_key of job"),
        ("available", "unique_states = B'11101001'", "cannot change unique_states of job"),
        ("running", "run_lease = run_lease + 1", "cannot change run_lease of job"),
        ("available", "created_at = now() - interval '1 day'", "cannot change created_at of job"),
        ("available", "state = NULL", "cannot set the state"),
        ("running", "args = '{\"a\": 2}'", "it is running"),
        ("running", "queue = 'other'", "it is running"),
        ("completed", "args = '{\"a\": 2}'", "it is completed"),
        ("available", "args = '[]'", "jobs_args_object"),
        ("available", "queue = NULL", '"queue"'),
        ("scheduled", "priority = 200", "jobs_priority_range"),
    ],
)
def test_what_may_not_change_is_refused(state: str, assignments: str, message: str) -> None:
    job_id = insert_job(state)
    before = now(job_id)
    with pytest.raises(IntegrityError, match=message):
        update(job_id, assignments)
    assert now(job_id) == before


@pytest.mark.parametrize("assignment", ["args = '{\"a\": 2}'", "queue = 'other'"])
@pytest.mark.parametrize("state", ["available", "scheduled"])
def test_edit_that_would_falsify_the_unique_key_is_refused(state: str, assignment: str) -> None:
    job_id = insert_job(state, unique_key=KEY, unique_states=UNFINISHED)
    with pytest.raises(IntegrityError, match="its unique key was made from them"):
        update(job_id, assignment)


@pytest.mark.parametrize("state", ["available", "scheduled", "retryable", "failed", "cancelled"])
def test_args_and_queue_of_a_waiting_job_may_change(state: str) -> None:
    job_id = insert_job(state)
    job = update(job_id, "args = '{\"fixed\": true}', queue = 'other'")
    assert (job["args"], job["queue"]) == ({"fixed": True}, "other")


def test_key_held_by_another_job_refuses_the_retry() -> None:
    failed = insert_job("failed", unique_key=KEY, unique_states=UNFINISHED)
    insert_job("scheduled", unique_key=KEY, unique_states=UNFINISHED)
    with pytest.raises(IntegrityError) as raised:
        update(failed, "state = 'available'")
    assert raised.value.__cause__.diag.constraint_name == "idx_awa_jobs_unique"  # type: ignore[union-attr]


def test_returning_tells_the_row_as_it_is_now() -> None:
    job_id = insert_job("failed", attempt=3)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE awa.jobs SET state = 'available', run_at = now() + interval '1 hour' WHERE id = %s "
            "RETURNING state::text, attempt, finalized_at",
            [job_id],
        )
        assert cursor.fetchone() == ("scheduled", 0, None)


def test_row_met_twice_by_one_statement_changes_once() -> None:
    job_id = insert_job(attempt=0)
    count = execute(
        "UPDATE awa.jobs SET attempt = attempt + 1 FROM generate_series(1, 3) WHERE id = %s", job_id
    )
    assert count == 1
    assert now(job_id)["attempt"] == 1


def test_moved_rows_are_not_met_again_by_their_statement() -> None:
    for _ in range(3):
        insert_job()
        insert_job("scheduled", run_at="2020-01-01 00:00+00")
    assert execute("UPDATE awa.jobs SET state = 'scheduled' WHERE state = 'available'") == 3
    assert execute("UPDATE awa.jobs SET state = 'available', run_at = now()") == 6


@pytest.mark.parametrize("state", STATES)
def test_delete_removes_row_and_claim(state: str) -> None:
    job_id = insert_job(state, unique_key=KEY, unique_states="11111111")
    other = insert_job()
    assert claims() == [(KEY, job_id)]
    assert execute("DELETE FROM awa.jobs WHERE id = %s", job_id) == 1
    assert reload_job(job_id) is None
    assert claims() == []
    assert execute("DELETE FROM awa.jobs") == 1
    assert reload_job(other) is None


@pytest.mark.parametrize("size", [10, 3_000, 300_000])
@pytest.mark.parametrize("state", ["running", "scheduled"])
def test_values_stored_compressed_or_out_of_line_compare_as_equal(state: str, size: int) -> None:
    text = "x" * size
    job_id = insert_job(
        state, args={"t": text}, metadata={"t": text}, progress={"t": text}, result={"t": text},
        tags=[text[:2_000]], errors=[{"error": text}, {"error": text}], worker=text,
    )  # fmt: skip
    before = now(job_id)
    assert update(job_id, "priority = 1") == before | {"priority": 1}
    assert execute("DELETE FROM awa.jobs WHERE id = %s", job_id) == 1


def test_large_value_that_stands_is_not_written_again() -> None:
    job_id = insert_job("scheduled")
    noise = "SELECT string_agg(md5(n::text), '') FROM generate_series(1, 5000) AS n"
    update(job_id, f"args = jsonb_build_object('noise', ({noise}))")

    def wal_bytes(assignments: str) -> int:
        """What this UPDATE and its triggers wrote; the server's position counts other sessions as well."""
        with connection.cursor() as cursor:
            cursor.execute(
                f"EXPLAIN (ANALYZE, WAL, FORMAT JSON) UPDATE awa.jobs SET {assignments} WHERE id = %s",
                [job_id],
            )
            [plan] = cursor.fetchone()[0]
        return int(plan["Plan"]["WAL Bytes"])

    # The least: the first change of a page after a checkpoint writes the page. The argument has 160,000.
    assert min(wal_bytes(f"priority = {priority}") for priority in (1, 3, 1)) < 50_000
    assert wal_bytes(f"args = jsonb_build_object('noise', ({noise}), 'n', 1)") > 150_000
