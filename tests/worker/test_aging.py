"""max_age: a job that was due too long ago is not begun, and not tried again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from awa_django import operations
from awa_django.jobs import Job, job
from awa_django.outcomes import Snooze
from awa_django.retry import Fixed
from awa_django.states import JobState
from awa_django.storage import finalize
from awa_django.storage.claim import BEGINNING, ClaimRequest, claim, claim_behind, claim_one
from awa_django.storage.rows import Attempt, ClaimedJob, Deferral, Ending
from awa_django.testing import drain
from awa_django.unique import Unique
from awa_django.worker import verdict
from awa_django.worker.aging import age, aging_kinds, max_age
from tests.factories import insert_job, reload_job, update_job

pytestmark = pytest.mark.django_db

KIND = "tests.aging"
ran: list[int] = []


@pytest.fixture(autouse=True)
def nothing_ran(registered: None) -> None:
    ran.clear()


def declared(**options: Any) -> Job[Any, Any]:
    def fail(number: int) -> None:
        ran.append(number)
        raise ValueError("no")

    options = {"max_age": timedelta(hours=1), "retry": Fixed(wait=60), **options}
    made: Job[Any, Any] = job(kind=KIND, **options)(fail)
    return made


def ago(job_id: int, hours: float) -> None:
    update_job(job_id, run_at=f"now() - interval '{hours} hours'")


CLAIMS: dict[str, Callable[[int, ClaimRequest], ClaimedJob | None]] = {
    "claim": lambda job_id, request: claim(connection, request)[0],
    "claim_behind": lambda job_id, request: claim_behind(connection, request, {"default": [BEGINNING]}).jobs[
        0
    ],
    "claim_one": lambda job_id, request: claim_one(connection, job_id, request),
}


@pytest.mark.parametrize("way", CLAIMS)
@pytest.mark.parametrize(
    ("attempt", "metadata", "kinds", "expected"),
    [
        (0, {}, [], None),
        (0, {"k": 1}, ["other"], None),
        (0, {}, [KIND], 7200),
        (0, {"awa:max_age": 60}, [], 7200),
        (0, {"awa:due_at": 5}, [KIND], 7200),  # of a life before an operator's retry
        (1, {}, [KIND], 7200),
        (1, {"awa:due_at": "soon"}, [KIND], 7200),
        (1, {"awa:age": 99}, [KIND], 7200),
        (1, {"awa:due_at": True}, [KIND], 7200),
    ],
)
def test_claim_brings_the_age_of_jobs_that_have_a_max_age(
    way: str, attempt: int, metadata: dict[str, Any], kinds: list[str], expected: float | None
) -> None:
    job_id = insert_job(kind=KIND, metadata=metadata, attempt=attempt)
    ago(job_id, 2)
    request = ClaimRequest(limits={"default": 5}, total=5, worker="w/1", aging_kinds=kinds)
    claimed = CLAIMS[way](job_id, request)
    assert claimed is not None
    brought = json.loads(claimed.metadata or "{}")
    assert brought.pop("awa:age", None) == expected
    assert brought == {key: value for key, value in metadata.items() if key != "awa:age" or not expected}
    assert reload_job(job_id).metadata == metadata  # it is told, and not stored


@pytest.mark.parametrize("way", CLAIMS)
def test_age_of_a_retried_job_counts_from_when_it_was_due_first(way: str) -> None:
    job_id = insert_job(kind=KIND, attempt=1)
    update_job(
        job_id, metadata="jsonb_build_object('awa:due_at', extract(epoch FROM now() - interval '3 hours'))"
    )
    request = ClaimRequest(limits={"default": 5}, total=5, worker="w/1", aging_kinds=[KIND])
    claimed = CLAIMS[way](job_id, request)
    assert claimed is not None
    assert age(claimed) == pytest.approx(10_800)


@pytest.mark.parametrize("way", CLAIMS)
@pytest.mark.parametrize("number", ["repeat('9', 131072)", "'-' || repeat('9', 131072)"])
def test_due_instant_beyond_all_arithmetic_stops_no_claim(way: str, number: str) -> None:
    job_id = insert_job(kind=KIND, attempt=1)
    update_job(job_id, metadata=f"jsonb_build_object('awa:due_at', ({number})::numeric)")
    request = ClaimRequest(limits={"default": 5}, total=5, worker="w/1", aging_kinds=[KIND])
    assert CLAIMS[way](job_id, request) is not None


NEW_INSTANTS: dict[str, Callable[[Job[Any, Any], int, datetime], bool]] = {
    "operation": lambda made, job_id, at: operations.reschedule(job_id, at).changed == (job_id,),
    "enqueue": lambda made, job_id, at: made.using(run_at=at).enqueue(number=1).updated,
}


@pytest.mark.parametrize("way", NEW_INSTANTS)
@pytest.mark.parametrize("state", ["available", "retryable"])
def test_age_of_a_job_that_is_rescheduled_counts_from_the_new_instant(way: str, state: str) -> None:
    """It was put off until tomorrow, and failed then unstarted: too old."""
    made = declared(unique=Unique(on_conflict="reschedule"))
    job_id = made.enqueue(number=1).id
    assert [run.outcome for run in drain()] == ["retried"]
    if state == "available":
        assert operations.run_now(job_id).changed
    update_job(job_id, metadata="jsonb_build_object('awa:due_at', 5)")
    assert NEW_INSTANTS[way](made, job_id, timezone.now() + timedelta(seconds=30))
    assert [run.outcome for run in drain(until=timedelta(minutes=1))] == ["retried"]
    assert ran == [1, 1]


def defer(job_id: int, state: JobState, *, aging: bool = True, **options: Any) -> dict[str, Any]:
    deferral = Deferral(Attempt(job_id, 1), state, 60.0, aging=aging, **options)
    assert finalize.defer(connection, [deferral]) == {job_id}
    found: dict[str, Any] = reload_job(job_id).metadata
    return found


def test_retry_keeps_the_instant_at_which_the_job_was_due_first() -> None:
    first = insert_job("running", metadata={"k": 1})
    due_at = reload_job(first).run_at.timestamp()
    kept = defer(first, JobState.RETRYABLE)
    assert kept == {"k": 1, "awa:due_at": pytest.approx(due_at)}
    again = insert_job("running", attempt=2, metadata={"awa:due_at": 5})
    assert defer(again, JobState.RETRYABLE) == {"awa:due_at": 5}
    # The first attempt after an operator's retry: what is there is of the job's life before.
    anew = insert_job("running", attempt=1, metadata={"awa:due_at": 5})
    assert defer(anew, JobState.RETRYABLE)["awa:due_at"] != 5


def test_snooze_begins_anew_and_jobs_without_a_max_age_keep_their_metadata() -> None:
    snoozed = insert_job("running", attempt=2, metadata={"awa:due_at": 5, "k": 1})
    assert defer(snoozed, JobState.SCHEDULED, refund=True) == {"k": 1}
    other = insert_job("running", metadata={"k": 1})
    assert defer(other, JobState.RETRYABLE, aging=False) == {"k": 1}
    unknown = insert_job("running", attempt=2, metadata={"awa:due_at": 5})
    put_back = defer(unknown, JobState.SCHEDULED, refund=True, unknown_kind=True)
    assert put_back == {"awa:due_at": 5, "awa:unknown_kind": {"count": 1}}


def run(metadata: dict[str, Any] | None, attempt: int = 1) -> ClaimedJob:
    text = None if metadata is None else json.dumps(metadata)
    return ClaimedJob(5, 9, KIND, "q", attempt, 3, "{}", text, None)


def test_max_age_is_the_jobs_own_or_its_kinds() -> None:
    assert max_age(run(None)) is None
    declared(aliases=["tests.aging.old"])
    assert max_age(run(None)) == 3600
    assert max_age(run({"awa:max_age": 1.5})) == 1.5
    assert set(aging_kinds()) == {KIND, "tests.aging.old"}
    nonsense: Any
    for nonsense in (0, -1, True, "5", [], None, 10**400):
        assert max_age(run({"awa:max_age": nonsense})) == 3600
    assert max_age(run({"awa:max_age": 1e300})) is not None


def test_failed_attempt_is_the_last_when_the_next_would_come_too_late() -> None:
    declared()
    near = verdict.failed(run({"awa:age": 3500}), "no", worker="w/1")
    assert (type(near), getattr(near, "aging", None)) == (Deferral, True)
    late = verdict.failed(run({"awa:age": 3599}), "no", worker="w/1")
    assert isinstance(late, Ending)
    assert late.entry is not None
    assert (
        json.loads(late.entry)["error"] == "no (not tried again: older than its max_age of 1:00:00 by then)"
    )
    lost = verdict.failed(run({"k": 1}), "gone", worker="w/1", outcome="rescued")
    assert (type(lost), getattr(lost, "aging", None)) == (Deferral, True)  # its next claim tells


def test_job_that_was_due_too_long_ago_is_failed_and_never_begun() -> None:
    late = declared()
    too_late, in_time = late.enqueue(1).id, late.enqueue(2).id
    ago(too_late, 1.5)
    ago(in_time, 0.5)
    assert {each.id: each.outcome for each in drain()} == {too_late: "failed", in_time: "retried"}
    assert ran == [2]
    row = reload_job(too_late)
    assert row.state == "failed"
    assert row.errors[-1]["outcome"] == "expired"
    assert row.errors[-1]["error"] == "not started: it was due 1:30:00 ago, and its max_age is 1:00:00"


def test_job_of_ones_own_max_age_and_of_none() -> None:
    kind = declared(max_age=None)
    own, none = kind.using(max_age=60).enqueue(1).id, kind.enqueue(2).id
    for job_id in (own, none):
        ago(job_id, 1)
    assert {each.id: each.outcome for each in drain()} == {own: "failed", none: "retried"}


def test_age_counts_from_when_a_job_for_later_is_due() -> None:
    job_id = declared(max_attempts=1).using(delay=timedelta(days=7)).enqueue(1).id
    update_job(job_id, created_at="now() - interval '7 days'")
    [ended] = drain(include_deferred=True)
    assert (ran, ended.error) == ([1], "no")


def test_operators_retry_gives_a_job_that_expired_another_run() -> None:
    job_id = declared().enqueue(1).id
    ago(job_id, 2)
    drain()
    operations.retry([job_id])
    drain()
    assert ran == [1]
    assert reload_job(job_id).state == "retryable"


def test_snoozed_job_is_as_old_as_its_new_run_at() -> None:
    def snooze(number: int) -> Snooze | None:
        ran.append(number)
        return Snooze(7200) if len(ran) == 1 else None

    job_id = job(kind=KIND, max_age=3600)(snooze).enqueue(1).id
    assert [each.outcome for each in drain(include_deferred=True)] == ["snoozed", "completed"]
    assert reload_job(job_id).state == "completed"
