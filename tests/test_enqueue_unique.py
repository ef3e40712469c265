"""Uniqueness: one holder of a key at a time, and a transaction that stays usable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from awa_django import Enqueued, InvalidJob, Unique, UniqueConflict, operations
from awa_django.enqueue import many, single
from awa_django.operations import verbs
from tests.factories import insert_job, reload_job
from tests.unique_jobs import (
    assert_claims_match,
    by_account,
    by_mail,
    debounced,
    hourly,
    job_count,
    latest,
    per_queue,
    plain,
    run,
    strict,
    sync,
)

pytestmark = pytest.mark.django_db
UNFINISHED = "11101001"


def key_of_sync(account: int) -> bytes:
    unique = sync.handler.unique
    assert unique is not None
    return unique.key(sync.handler.kind, queue="default", args={"account": account, "full": False}, at=None)


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


def test_key_function_decides_what_is_a_duplicate() -> None:
    first = by_mail.enqueue("Ann@X.org")
    assert by_mail.enqueue("ann@x.org", subject="again").holder_id == first.id
    assert by_mail.enqueue("bob@x.org").created
    assert by_mail.holder_id(to="ANN@x.org") == first.id
    answers = by_mail.enqueue_many([{"to": "ANN@X.ORG"}, {"to": "eve@x.org"}, {"to": "EVE@x.org"}])
    assert [answer.holder_id for answer in answers] == [first.id, None, answers[1].id]
    assert_claims_match()


def test_key_function_that_fails_refuses_the_job_and_its_place_in_a_batch() -> None:
    by_nothing = by_mail.using(unique=Unique(args=lambda args: args["nope"]))
    with pytest.raises(InvalidJob, match=r"key function of .* failed with KeyError"):
        by_nothing.enqueue("a")
    with pytest.raises(InvalidJob, match="item 1 of the batch: the key function"):
        by_mail.enqueue_many([{"to": "a"}, by_nothing.item("b")])
    assert job_count() == 0


def test_look_up_needs_only_the_arguments_that_count() -> None:
    first = debounced.enqueue(1, page=5)
    assert debounced.holder_id(1) == debounced.holder_id(account=1) == first.id
    assert latest.enqueue(1).created  # a default counts for one that is left out
    with pytest.raises(InvalidJob, match="argument 'account' is missing"):
        debounced.holder_id(page=5)
    with pytest.raises(InvalidJob, match="acount"):
        debounced.holder_id(acount=1)
    with pytest.raises(InvalidJob, match="account"):
        sync.holder_id()
    with pytest.raises(InvalidJob, match="key function"):
        by_mail.holder_id()


@pytest.mark.parametrize("state", ["available", "scheduled", "retryable", "running", "waiting_external"])
def test_job_is_cancelled_by_what_its_key_is_made_of(state: str) -> None:
    job_id = insert_job(state, kind="tests.unique.sync", unique_key=key_of_sync(1), unique_states=UNFINISHED)
    other = sync.enqueue(2).id
    assert sync.cancel_holder(1) == job_id
    assert (reload_job(job_id).state, reload_job(other).state) == ("cancelled", "available")
    assert sync.cancel_holder(1) is None
    assert sync.enqueue(1).created
    assert_claims_match()


def test_cancel_by_components_takes_queue_and_period_from_the_options() -> None:
    at = datetime(2100, 1, 1, 12, 30, tzinfo=UTC)
    first, second = hourly.using(run_at=at).enqueue(), hourly.using(run_at=at + timedelta(hours=1)).enqueue()
    assert hourly.cancel_holder() is None
    assert hourly.using(run_at=at - timedelta(minutes=30)).cancel_holder() == first.id
    there = per_queue.using(queue="there").enqueue()
    assert per_queue.cancel_holder() is None
    assert per_queue.using(queue="there").cancel_holder() == there.id
    assert reload_job(second.id).state == "scheduled"


def test_ended_holder_is_no_holder_to_cancel() -> None:
    kept = sync.using(unique=Unique(args=True, states="kept"))
    first = kept.enqueue(1)
    run("UPDATE awa.jobs_hot SET state = 'completed', finalized_at = now()")
    assert kept.holder_id(1) == first.id
    assert kept.cancel_holder(1) is None
    assert reload_job(first.id).state == "completed"


def test_cancel_says_by_whom_and_takes_who_came_after_the_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    first = insert_job("running", unique_key=key_of_sync(1), unique_states=UNFINISHED)
    cancel = operations.cancel
    came: list[int] = []

    def end_it_just_before(job_id: int, **options: Any) -> operations.OperationResult:
        if not came:
            run("UPDATE awa.jobs_hot SET state = 'completed', finalized_at = now() WHERE id = %s", job_id)
            came.append(insert_job("running", unique_key=key_of_sync(1), unique_states=UNFINISHED))
        return cancel(job_id, **options)

    monkeypatch.setattr(verbs, "cancel", end_it_just_before)
    assert operations.cancel_holder(sync.item(1), by="ann", reason="no more") == came[0]
    assert reload_job(first).state == "completed"
    [entry] = reload_job(came[0]).errors
    assert (entry["by"], entry["error"]) == ("ann", "cancelled: no more")


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
    for module in (single, many):
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

    monkeypatch.setattr(many, "find_unique_holders", gone)
    answers = sync.enqueue_many([{"account": 1}, {"account": 2}])
    assert [answer.created for answer in answers] == [True, True]
    assert_claims_match()
