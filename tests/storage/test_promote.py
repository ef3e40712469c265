"""Promote: due rows become available with all they had, earliest first; the rest stays."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from awa_django.storage.promote import due_ids, next_due, promote, promote_one, supersede
from tests.conftest import Connect
from tests.factories import insert_job, reload_job, update_job
from tests.storage.test_finalize import FULL, claims

pytestmark = pytest.mark.django_db

KEY = FULL["unique_key"]
ENTRY = '{"error": "superseded"}'


def due(state: str = "scheduled", ago: int = 1, **columns: Any) -> int:
    job_id = insert_job(state, **columns)
    update_job(job_id, run_at=f"now() - interval '{ago} seconds'")
    return job_id


@pytest.mark.parametrize("state", ["scheduled", "retryable"])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_promote_moves_a_due_row_with_all_its_columns(state: str, one_by_one: bool) -> None:
    job_id = due(state, **FULL)
    update_job(
        job_id,
        created_at="now() - interval '2 days'",
        attempted_at="now() - interval '1 day'",
    )
    before = reload_job(job_id)
    if one_by_one:
        assert promote_one(connection, job_id) == "q"
    else:
        assert promote(connection, batch=10) == {"q": 1}
    after = reload_job(job_id)
    assert (after.table, after.state) == ("awa.jobs_hot", "available")
    after.table, after.state = before.table, before.state
    assert after == before
    assert claims() == [job_id]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_promote_clears_what_only_runs_have(one_by_one: bool) -> None:
    """Raw SQL may leave anything in a deferred row."""
    job_id = due()
    update_job(job_id, heartbeat_at="now()", deadline_at="now()")
    assert promote_one(connection, job_id) if one_by_one else promote(connection, batch=1)
    row = reload_job(job_id)
    assert (row.heartbeat_at, row.deadline_at) == (None, None)


def test_promote_leaves_what_is_not_due() -> None:
    job_id = due()
    update_job(job_id, run_at="now() + interval '1 millisecond'")
    assert promote(connection, batch=10) == {}
    assert due_ids(connection, batch=10) == []
    assert promote_one(connection, job_id) is None
    assert reload_job(job_id).state == "scheduled"


def test_promote_takes_the_earliest_up_to_the_batch_and_counts_by_queue() -> None:
    late, early, middle, twin = (due(ago=ago, queue=q) for ago, q in ((1, "a"), (9, "b"), (5, "a"), (5, "a")))
    assert due_ids(connection, batch=3) == [early, middle, twin]
    assert promote(connection, batch=3) == {"b": 1, "a": 2}
    assert reload_job(late).state == "scheduled"
    assert promote(connection, batch=3) == {"a": 1}
    assert promote(connection, batch=3) == {}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_promote_passes_over_rows_that_another_mover_holds(connect: Connect) -> None:
    first, second = due(ago=9, queue="a"), due(ago=5, queue="b")
    one, two = connect(autocommit=False), connect()
    assert promote(one, batch=1) == {"a": 1}
    assert promote(two, batch=10) == {"b": 1}
    one.rollback()
    assert (reload_job(first).state, reload_job(second).state) == ("scheduled", "available")
    assert promote(two, batch=10) == {"a": 1}


def test_next_due_is_the_time_to_the_earliest() -> None:
    assert next_due(connection).seconds is None
    insert_job("scheduled")
    wait = next_due(connection).seconds
    assert wait is not None
    assert 3500 < wait <= 3600
    due("retryable", ago=50)
    found = next_due(connection)
    assert found.seconds is not None
    assert -110 < found.seconds <= -50
    assert next_due(connection, since=found.now).seconds == pytest.approx(wait, abs=30)


def test_promotion_does_not_look_before_its_beginning() -> None:
    due(ago=50)
    assert promote(connection, batch=10, since=next_due(connection).now) == {}
    assert promote(connection, batch=10, since=next_due(connection).run_at) == {"default": 1}


def blocked(mask: str) -> tuple[int, int]:
    """A due job that gave its key away while it was deferred, and the one that has it."""
    loser = due(unique_key=KEY, unique_states=mask)
    return loser, insert_job(unique_key=KEY, unique_states="11101001")


def test_promotion_of_a_job_whose_key_is_taken_fails_and_promote_one_moves_the_others() -> None:
    loser, _ = blocked("01100000")
    mate = due()
    with pytest.raises(IntegrityError), transaction.atomic():
        promote(connection, batch=10)
    with pytest.raises(IntegrityError), transaction.atomic():
        promote_one(connection, loser)
    assert promote_one(connection, mate) == "default"


@pytest.mark.parametrize("mask", ["01100000", "01110110"])
def test_supersede_cancels_whatever_the_mask_says(mask: str) -> None:
    loser, holder = blocked(mask)
    update_job(loser, errors="""ARRAY[['{"error": "a"}', '{"error": "b"}']]::jsonb[]""", attempt="2")
    assert supersede(connection, loser, ENTRY)
    row = reload_job(loser)
    assert (row.table, row.state, row.unique_key) == ("awa.jobs_hot", "cancelled", KEY)
    assert row.finalized_at is not None
    assert row.unique_states == mask[:6] + "0" + mask[7:]
    assert [entry["error"] for entry in row.errors] == ["a", "b", "superseded"]
    assert (row.errors[2]["attempt"], "run_lease" in row.errors[2]) == (2, False)
    assert claims() == [holder]
    assert not supersede(connection, loser, ENTRY)


def test_supersede_copies_all_other_columns() -> None:
    job_id = due(**{**FULL, "errors": []})
    before = reload_job(job_id)
    assert supersede(connection, job_id, ENTRY)
    after = reload_job(job_id)
    for name in set(vars(before)) - {"table", "state", "finalized_at", "errors"}:
        assert (name, getattr(after, name)) == (name, getattr(before, name))
    assert claims() == []
