"""The operator's verbs: what each changes, and what it refuses and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from awa_django import operations
from awa_django.models import DeferredJob, HotJob, Job, UniqueClaim
from awa_django.operations import Refusal, batches, matching
from awa_django.storage import operate
from awa_django.storage._sql import statement
from awa_django.storage.operate import key_holder
from tests.factories import insert_job

pytestmark = pytest.mark.django_db

UNFINISHED = "11101001"
KEY = bytes(16)
STATES = (
    "scheduled", "available", "running", "completed", "retryable", "failed", "cancelled", "waiting_external"
)  # fmt: skip
# Everything a move has to carry, different from every default.
FULL: dict[str, Any] = {
    "kind": "a.full",
    "queue": "q",
    "args": {"n": 2**70, "é": [None, 1.5]},
    "priority": 3,
    "attempt": 2,
    "max_attempts": 7,
    "run_at": datetime(2024, 1, 3, tzinfo=UTC),
    "attempted_at": datetime(2024, 1, 2, tzinfo=UTC),
    "created_at": datetime(2024, 1, 1, tzinfo=UTC),
    "errors": [{"error": "first"}, {"error": "second"}],
    "metadata": {"m": 1},
    "tags": ["x", "y"],
    "unique_key": KEY,
    "unique_states": UNFINISHED,
    "run_lease": 5,
    "progress": {"percent": 10},
    "result": {"kept": True},
    "worker": "w",
}


def one_of_each() -> dict[str, int]:
    return {state: insert_job(state) for state in STATES}


def later(**by: float) -> datetime:
    return timezone.now() + timedelta(**(by or {"days": 1}))


def row(job_id: int) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_jsonb(job) FROM awa.jobs AS job WHERE id = %s", [job_id])
        value: dict[str, Any] = json.loads(cursor.fetchone()[0])
        return value


def differing(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name in before | after if before.get(name) != after.get(name)}


@pytest.mark.parametrize(
    ("verb", "allowed"),
    [
        (operations.cancel, {"scheduled", "available", "running", "retryable", "waiting_external"}),
        (operations.retry, {"failed", "cancelled"}),
        (operations.run_now, {"scheduled", "retryable"}),
        (lambda ids: operations.reschedule(ids, later()), {"scheduled", "available", "retryable"}),
        (
            lambda ids: operations.set_priority(ids, 4),
            {"scheduled", "available", "running", "retryable", "waiting_external"},
        ),
        (lambda ids: operations.move_queue(ids, "other"), {"scheduled", "available", "retryable"}),
        (operations.delete, set(STATES) - {"running", "waiting_external"}),
    ],
)
def test_each_verb_takes_its_states_and_says_why_not_the_others(
    verb: Callable[[Any], operations.OperationResult], allowed: set[str]
) -> None:
    jobs = one_of_each()
    before = {state: row(job_id) for state, job_id in jobs.items()}
    result = verb([*jobs.values(), 10**9, -1, 2**70])
    assert result.changed == tuple(sorted(jobs[state] for state in allowed))
    reasons = {refusal.job_id: (refusal.state, refusal.reason) for refusal in result.refused}
    nowhere = (None, "does not exist")
    assert reasons == {
        **{jobs[state]: (state, f"is {state}") for state in set(STATES) - allowed},
        10**9: nowhere,
        -1: nowhere,
        2**70: nowhere,
    }
    for state in set(STATES) - allowed:
        assert row(jobs[state]) == before[state]


def test_cancel_of_a_run_ends_it_with_an_error_entry() -> None:
    job_id = insert_job("running", **{**FULL, "unique_key": KEY, "deadline_at": later()})
    operations.cancel(job_id, by="ann", reason="not\x00 needed")
    job = HotJob.objects.get(pk=job_id)
    assert (job.state, job.heartbeat_at, job.deadline_at, job.run_lease) == ("cancelled", None, None, 5)
    assert job.finalized_at is not None
    assert job.errors[:2] == FULL["errors"]
    entry = job.errors[2]
    datetime.fromisoformat(entry.pop("at"))
    assert entry == {
        "error": "cancelled: not\ufffd needed",
        "class": "Cancelled",
        "outcome": "cancelled",
        "by": "ann",
        "attempt": 2,
        "run_lease": 5,
        "worker": "w",
    }
    assert not UniqueClaim.objects.exists()


def test_cancel_of_an_unstarted_job_adds_no_error_entry() -> None:
    hot, deferred = insert_job(), insert_job("scheduled")
    operations.cancel([hot, deferred])
    assert [job.errors for job in HotJob.objects.filter(pk__in=[hot, deferred], state="cancelled")] == [
        [],
        [],
    ]


def test_cancel_of_a_deferred_job_moves_every_column() -> None:
    job_id = insert_job("retryable", **FULL)
    before = row(job_id)
    assert operations.cancel(job_id).changed == (job_id,)
    assert differing(before, row(job_id)) == {"state", "finalized_at"}
    assert HotJob.objects.filter(pk=job_id).exists()
    assert not DeferredJob.objects.exists()
    assert not UniqueClaim.objects.exists()


def test_run_now_moves_every_column_and_keeps_the_key() -> None:
    job_id = insert_job("retryable", **FULL)
    before = row(job_id)
    assert operations.run_now(job_id).changed == (job_id,)
    after = row(job_id)
    assert differing(before, after) == {"state", "run_at"}
    assert after["state"] == "available"
    assert HotJob.objects.filter(pk=job_id, run_at__lte=timezone.now()).exists()
    assert UniqueClaim.objects.get().job_id == job_id


def test_reschedule_moves_an_available_job_with_every_column() -> None:
    job_id = insert_job(**FULL)
    before, run_at = row(job_id), later(days=3)
    assert operations.reschedule([job_id], run_at).changed == (job_id,)
    assert differing(before, row(job_id)) == {"state", "run_at"}
    assert DeferredJob.objects.get(pk=job_id, state="scheduled").run_at == run_at
    assert UniqueClaim.objects.get().job_id == job_id


def test_reschedule_keeps_the_state_of_a_deferred_job() -> None:
    job_id = insert_job("retryable")
    run_at = timezone.now() - timedelta(days=1)
    assert operations.reschedule([job_id], run_at).changed == (job_id,)
    assert DeferredJob.objects.get(pk=job_id, state="retryable").run_at == run_at


def test_reschedule_of_an_available_job_into_the_past_is_refused() -> None:
    job_id = insert_job()
    [refusal] = operations.reschedule([job_id], timezone.now() - timedelta(days=1)).refused
    assert refusal.state == "available"
    assert "run_at has come" in refusal.reason


@pytest.mark.parametrize(
    "run_at",
    [datetime(2030, 1, 1), datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)],
)
def test_reschedule_refuses_an_instant_that_the_tables_cannot_hold(run_at: datetime) -> None:
    with pytest.raises(ValueError, match="run_at must be"):
        operations.reschedule([1], run_at)


def test_retry_gives_all_attempts_again_and_touches_nothing_else() -> None:
    job_id = insert_job("failed", **FULL)
    before = row(job_id)
    assert operations.retry(job_id).changed == (job_id,)
    after = row(job_id)
    assert differing(before, after) == {"state", "attempt", "run_at", "finalized_at"}
    assert (after["state"], after["attempt"], after["finalized_at"]) == ("available", 0, None)
    assert UniqueClaim.objects.get().job_id == job_id


@pytest.mark.fault("F61", injected="retry of three jobs, the key of one is held by now")
def test_retry_refuses_only_the_job_whose_key_is_held() -> None:
    loser = insert_job("failed", unique_key=KEY, unique_states=UNFINISHED)
    others = [insert_job("cancelled"), insert_job("failed")]
    holder = insert_job("scheduled", unique_key=KEY, unique_states=UNFINISHED)
    result = operations.retry([others[0], loser, others[1]])
    assert result.changed == tuple(others)
    assert result.refused == (Refusal(loser, "failed", f"its unique key is held by job {holder}"),)  # type: ignore[arg-type]
    assert UniqueClaim.objects.get().job_id == holder
    assert HotJob.objects.count() == 3  # the caller's transaction is usable


@pytest.mark.fault("U34", injected="by SQL: a mask of available alone, and a twin")
def test_run_now_survives_a_mask_that_collides() -> None:
    mask = "01000000"  # from raw SQL: holds the key only while available
    first = insert_job(unique_key=KEY, unique_states=mask)
    second, third = insert_job("scheduled", unique_key=KEY, unique_states=mask), insert_job("scheduled")
    result = operations.run_now([second, third])
    assert result.changed == (third,)
    assert [(job.job_id, job.reason) for job in result.refused] == [
        (second, f"its unique key is held by job {first}")
    ]


def test_set_priority_takes_the_full_range_only() -> None:
    job_id = insert_job()
    for priority in (-98, 102):
        operations.set_priority([job_id], priority)
        assert Job.objects.get(pk=job_id).priority == priority
    for wrong in (-99, 103):
        with pytest.raises(ValueError, match="between -98 and 102"):
            operations.set_priority([job_id], wrong)


def test_move_queue_refuses_a_job_with_a_unique_key() -> None:
    keyed = [insert_job(unique_key=KEY), insert_job("scheduled", unique_key=bytes([1] * 16))]
    free = insert_job()
    result = operations.move_queue([*keyed, free], "other")
    assert result.changed == (free,)
    assert {job.reason for job in result.refused} == {"has a unique key, which may cover its queue"}
    assert Job.objects.get(pk=free).queue == "other"
    for wrong in ("", "x" * 201, "a\x00b"):
        with pytest.raises(ValueError, match="1 to 200"):
            operations.move_queue([free], wrong)


def test_delete_lets_go_of_the_key() -> None:
    job_id = insert_job("scheduled", unique_key=KEY, unique_states=UNFINISHED)
    operations.delete([job_id])
    assert not Job.objects.exists()
    assert not UniqueClaim.objects.exists()


@pytest.mark.parametrize("wrong", ["12", [1, "2"], [1.5], None])
def test_ids_must_be_integers(wrong: Any) -> None:
    with pytest.raises(TypeError):
        operations.cancel(wrong)


def test_many_ids_go_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH", 3)
    ids = [insert_job() for _ in range(8)]
    assert operations.cancel(reversed([*ids, *ids])).changed == tuple(ids)


def test_few_matches_among_many_jobs_are_found_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "LOOK", 3)
    wanted = []
    for number in range(20):
        chosen = {"queue": "rare"} if number % 7 == 3 else {}
        ids = [insert_job("completed", **chosen), insert_job(**chosen), insert_job("scheduled", **chosen)]
        wanted += ids[1:] if chosen else []
    seen: list[int] = []
    assert operations.cancel_matching(queue="rare", on_batch=seen.append) == len(wanted) == seen[-1]
    assert sorted(HotJob.objects.filter(state="cancelled").values_list("id", flat=True)) == sorted(wanted)


def test_no_statement_of_a_cancel_of_many_takes_more_than_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matching, "LOOK", 10)
    monkeypatch.setattr(batches, "BATCH", 4)
    for _ in range(11):
        insert_job()
    sizes: list[int] = []
    cancel_hot = operate.cancel_hot

    def count(on: Any, job_ids: Any, *, entry: str) -> operate.Rows:
        sizes.append(len(job_ids))
        return cancel_hot(on, job_ids, entry=entry)

    monkeypatch.setattr(operate, "cancel_hot", count)
    seen: list[int] = []
    assert operations.cancel_matching(kind="tests.job", on_batch=seen.append) == 11
    assert (sizes, seen) == ([4, 4, 2, 1], [4, 8, 10, 11])


def test_tags_given_as_one_string_are_refused() -> None:
    """Its letters were looked for, and nothing was cancelled."""
    with pytest.raises(ValueError, match="tags must be a list of strings, not 'monthly'"):
        operations.cancel_matching(tags="monthly")


def test_a_job_that_moves_between_the_statements_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """cancel looks in the hot table first; the job is promoted before it looks in the deferred one."""
    job_id = insert_job("scheduled")
    looked = operate.cancel_hot

    def promoted_meanwhile(*args: Any, **kwargs: Any) -> Any:
        rows = looked(*args, **kwargs)
        if DeferredJob.objects.exists():
            operations.run_now(job_id)
        return rows

    monkeypatch.setattr(operate, "cancel_hot", promoted_meanwhile)
    assert operations.cancel([job_id]).changed == (job_id,)


def test_operations_roll_back_with_the_caller() -> None:
    job_id = insert_job()
    with transaction.atomic():
        operations.cancel(job_id)
        transaction.set_rollback(True)
    assert HotJob.objects.get(pk=job_id).state == "available"


def test_moves_name_every_column_of_the_tables() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM awa.jobs_hot LIMIT 0")
        columns = [column.name for column in cursor.description]
    for name in ("cancel_deferred", "run_now", "reschedule_available"):
        inserted = statement(name).split("INSERT INTO")[1].split("(", 1)[1].split(")")[0]
        assert [column.strip() for column in inserted.split(",")] == columns, name


def test_key_holder_names_another_job_only() -> None:
    holder = insert_job(unique_key=KEY, unique_states=UNFINISHED)
    other = insert_job("failed", unique_key=KEY, unique_states=UNFINISHED)
    assert key_holder(connection, other) == holder
    assert key_holder(connection, holder) is None


@pytest.mark.parametrize("given", ["12", ["12"], [1.0], [None]])
def test_what_is_no_id_is_refused_by_name(given: Any) -> None:
    with pytest.raises(TypeError, match="the id of a job is an integer, not "):
        operations.retry(given)
