"""Uniqueness: one holder of a key at a time, and a transaction that stays usable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from awa_django import Enqueued, InvalidJob, Unique, UniqueConflict
from awa_django.enqueue import bulk, single
from tests.unique_jobs import (
    assert_claims_match,
    by_account,
    hourly,
    job_count,
    per_queue,
    plain,
    run,
    strict,
    sync,
)

pytestmark = pytest.mark.django_db


def test_duplicate_is_answered_with_the_holder() -> None:
    first = sync.enqueue(1)
    assert first.created
    assert sync.enqueue(1) == Enqueued(first.id, False, first.id)
    assert sync.using(delay=60).enqueue(1, full=False) == Enqueued(first.id, False, first.id)
    assert sync.enqueue(1, full=True).created
    assert sync.enqueue(2).created
    assert job_count() == 3
    assert_claims_match()


def test_deferred_job_holds_its_key_too() -> None:
    first = sync.using(delay=60).enqueue(1)
    assert sync.enqueue(1).holder_id == first.id
    assert_claims_match()


def test_key_may_count_some_arguments() -> None:
    first = by_account.enqueue(1)
    assert by_account.enqueue(1, full=True).holder_id == first.id
    assert by_account.enqueue(2).created


def test_key_may_count_the_queue() -> None:
    first = per_queue.enqueue()
    assert per_queue.using(queue="other").enqueue().created
    assert per_queue.enqueue().holder_id == first.id


def test_uniqueness_may_be_set_for_one_enqueue() -> None:
    first = sync.enqueue(1)
    assert sync.using(unique=None).enqueue(1).created
    assert plain.using(unique=Unique(args=True)).enqueue(1).created
    assert not plain.using(unique=Unique(args=True)).enqueue(1).created
    assert sync.holder_id(1) == first.id


def test_holder_is_found_by_its_components() -> None:
    first = sync.enqueue(1)
    assert sync.holder_id(1) == first.id
    assert sync.holder_id(1, full=False) == first.id
    assert sync.holder_id(2) is None
    assert hourly.holder_id() is None
    assert hourly.enqueue().id == hourly.holder_id()
    with pytest.raises(ValueError, match="not unique"):
        plain.holder_id(1)


def test_ended_job_frees_its_key_and_a_completed_one_may_keep_it() -> None:
    keeping = sync.using(unique=Unique(args=True, states="unfinished_or_completed"))
    first, kept = sync.enqueue(1), keeping.enqueue(2)
    run("UPDATE awa.jobs_hot SET state = 'completed', finalized_at = now()")
    assert sync.enqueue(1).created
    assert keeping.enqueue(2).holder_id == kept.id
    assert sync.enqueue(2).holder_id == kept.id
    assert first.id != kept.id
    assert_claims_match()


def test_conflict_may_raise_and_the_transaction_stays_usable() -> None:
    first = strict.enqueue(1)
    with pytest.raises(UniqueConflict, match=f"job {first.id} holds the unique key") as caught:
        strict.enqueue(1)
    assert (caught.value.holder_id, caught.value.constraint) == (first.id, "idx_awa_jobs_unique")
    assert strict.enqueue(2).created


def test_period_is_that_of_run_at_or_of_the_database_clock() -> None:
    at = datetime(2100, 1, 1, 12, 0, tzinfo=UTC)
    first = hourly.using(run_at=at).enqueue()
    assert hourly.using(run_at=at + timedelta(minutes=59)).enqueue().holder_id == first.id
    assert hourly.using(run_at=at + timedelta(minutes=60)).enqueue().created
    now = hourly.enqueue()
    assert now.created
    assert hourly.enqueue().holder_id == now.id
    assert hourly.using(delay=timedelta(hours=1)).enqueue().created
    [(bucket,)] = run("SELECT floor(extract(epoch FROM now()) / 3600)::bigint")
    assert hourly.holder_id() == now.id
    assert bucket == Unique(period=timedelta(hours=1)).bucket(run("SELECT now()")[0][0])


def test_float_outside_the_domain_of_keys_is_refused() -> None:
    with pytest.raises(InvalidJob, match="unique key"):
        plain.using(unique=Unique(args=True)).enqueue(1e300)


def test_statements_of_a_unique_enqueue(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        sync.enqueue(1)
    with django_assert_num_queries(2):  # insert, look-up of the holder
        sync.enqueue(1)
    with django_assert_num_queries(2):  # clock, insert
        hourly.using(delay=60).enqueue()
    with django_assert_num_queries(1):  # run_at says the period
        hourly.using(run_at=datetime(2100, 1, 1, tzinfo=UTC)).enqueue()


def test_holder_that_is_gone_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = sync.enqueue(1)
    looks: list[int] = []

    def gone_once(*args: Any) -> dict[bytes, int]:
        looks.append(1)
        run("DELETE FROM awa.jobs_hot WHERE id = %s", first.id)
        return {}

    monkeypatch.setattr(single, "find_unique_holders", gone_once)
    again = sync.enqueue(1)
    assert again.created
    assert again.id != first.id
    assert looks == [1]


def test_holders_that_are_always_gone_end_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    sync.enqueue(1)
    for module in (single, bulk):
        monkeypatch.setattr(module, "find_unique_holders", lambda *args: {})
    with pytest.raises(UniqueConflict) as caught:
        sync.enqueue(1)
    assert caught.value.holder_id is None
    with pytest.raises(UniqueConflict):
        sync.enqueue_many([{"account": 1}])
    assert job_count() == 1


@pytest.mark.fault("F58", injected="a batch with duplicates of each other and of a job that exists")
def test_bulk_names_duplicates_in_the_table_and_in_the_batch() -> None:
    held = sync.enqueue(1)
    answers = sync.enqueue_many(
        [
            {"account": 2},
            {"account": 1},
            {"account": 2, "full": False},
            sync.using(delay=60).item(3),
            sync.item(3),
            sync.using(unique=None).item(1),
        ]
    )
    assert [answer.created for answer in answers] == [True, False, False, True, False, True]
    assert [answer.holder_id for answer in answers] == [
        None,
        held.id,
        answers[0].id,
        None,
        answers[3].id,
        None,
    ]
    assert job_count() == 4
    assert_claims_match()


@pytest.mark.fault("F58", injected="a batch of a kind whose duplicates raise")
def test_bulk_conflict_may_raise_and_then_nothing_is_written() -> None:
    first = strict.enqueue(1)
    with pytest.raises(UniqueConflict) as caught:
        strict.enqueue_many([{"account": 2}, {"account": 1}])
    assert caught.value.holder_id == first.id
    assert job_count() == 1
    assert_claims_match()


def test_bulk_tries_again_what_was_held_by_a_job_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    first = sync.enqueue(1)

    def gone(*args: Any) -> dict[bytes, int]:
        run("DELETE FROM awa.jobs_hot WHERE id = %s", first.id)
        return {}

    monkeypatch.setattr(bulk, "find_unique_holders", gone)
    answers = sync.enqueue_many([{"account": 1}, {"account": 2}])
    assert [answer.created for answer in answers] == [True, True]
    assert_claims_match()
