"""Rescuer: what nobody answers for goes through the attempt check; one bad row stops nobody."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from awa_django.storage import finalize
from awa_django.storage.rows import Attempt, Completion
from awa_django.worker import rescuer as module
from awa_django.worker.database import Session
from awa_django.worker.rescuer import Rescuer
from tests.factories import insert_job, reload_job, update_job
from tests.worker.conftest import AtWill

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

KEY = bytes(range(16))


@pytest.fixture
def rescuer(session: Session, leader: AtWill) -> Rescuer:
    return Rescuer(
        session,
        leader,
        interval=timedelta(seconds=15),
        stale_after=timedelta(seconds=90),
        worker="leader",
    )


def silent(**columns: Any) -> int:
    job_id = insert_job("running", **columns)
    update_job(job_id, heartbeat_at="now() - interval '91 seconds'")
    return job_id


def test_silent_run_is_tried_again_after_a_backoff(rescuer: Rescuer) -> None:
    job_id = silent(attempt=2, run_lease=7, worker="w/1", queue="q")
    rescuer.tick()
    row = reload_job(job_id)
    assert (row.state, row.attempt, row.run_lease) == ("retryable", 2, 7)
    [entry] = row.errors
    assert entry["outcome"] == "rescued"
    assert (entry["attempt"], entry["run_lease"]) == (2, 7)
    assert (entry["worker"], entry["by"]) == ("w/1", "leader")
    with connection.cursor() as cursor:
        cursor.execute("SELECT run_at > now() FROM awa.scheduled_jobs")
        assert cursor.fetchone()[0]


def test_overdue_run_is_timed_out(rescuer: Rescuer) -> None:
    job_id = insert_job("running")
    update_job(job_id, deadline_at="now() - interval '1 second'")
    rescuer.tick()
    row = reload_job(job_id)
    assert (row.state, row.errors[0]["outcome"]) == ("retryable", "timed_out")


@pytest.mark.parametrize("attempt", [3, 4])
@pytest.mark.parametrize("overdue", [False, True])
@pytest.mark.fault("F46", injected="rescue by heartbeat and by deadline at and above the last attempt")
def test_rescue_of_the_last_attempt_fails_the_job(rescuer: Rescuer, attempt: int, overdue: bool) -> None:
    job_id = insert_job("running", attempt=attempt, max_attempts=3)
    column = "deadline_at" if overdue else "heartbeat_at"
    update_job(job_id, **{column: "now() - interval '91 seconds'"})
    rescuer.tick()
    row = reload_job(job_id)
    assert (row.state, row.attempt) == ("failed", 3)


def test_live_runs_and_other_states_are_left(rescuer: Rescuer) -> None:
    ids = [insert_job(state) for state in ("running", "available", "completed", "waiting_external")]
    before = [reload_job(job_id) for job_id in ids]
    rescuer.tick()
    assert [reload_job(job_id) for job_id in ids] == before


def test_late_finish_of_a_rescued_run_is_stale(rescuer: Rescuer, session: Session) -> None:
    job_id = silent(worker="w/1")
    rescuer.tick()
    with session.use() as database:
        assert finalize.complete(database, [Completion(Attempt(job_id, 1))]) == set()
        assert not finalize.settled(database, [Attempt(job_id, 1)], worker="w/1", gone_is_settled=[False])
    assert reload_job(job_id).state == "retryable"


def test_nothing_is_rescued_without_the_lease(rescuer: Rescuer, leader: AtWill) -> None:
    job_id = silent()
    leader.leads = False
    rescuer.tick()
    assert reload_job(job_id).state == "running"


def test_all_are_rescued_in_batches(rescuer: Rescuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 3)
    ids = [silent() for _ in range(8)]
    rescuer.tick()
    assert all(reload_job(job_id).state == "retryable" for job_id in ids)


@pytest.mark.parametrize("mask", ["11001000", "11011110"])
@pytest.mark.parametrize("column", ["heartbeat_at", "deadline_at"])
@pytest.mark.fault(
    "U01",
    injected="a lost run whose key a twin took, among 50 others",
)
@pytest.mark.fault(
    "F60",
    injected="a lost run whose key a twin took, among 50 others",
)
def test_run_whose_key_was_taken_ends_by_name_and_the_others_go_on(
    rescuer: Rescuer, mask: str, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U01: the mask leaves out ``running``, a twin took the key, and retryable would need it."""
    loser = insert_job("running", unique_key=KEY, unique_states=mask, worker="w/1")
    twin = insert_job(unique_key=KEY, unique_states="11101001")
    update_job(loser, **{column: "now() - interval '1 hour'"})
    stuck = [silent(queue=f"q{number}") for number in range(50)]
    sent: list[int] = []
    defer = finalize.defer

    def counted(database: Any, deferrals: Any) -> set[int]:
        sent.append(len(deferrals))
        return defer(database, deferrals)

    monkeypatch.setattr(finalize, "defer", counted)
    rescuer.tick()
    assert sent[0] == 51
    assert len(sent) < 20  # by halves, not one by one
    assert all(reload_job(job_id).state == "retryable" for job_id in stuck)
    row = reload_job(loser)
    assert row.state == "cancelled"
    [entry] = row.errors
    assert (entry["outcome"], entry["attempt"], entry["run_lease"]) == ("superseded", 1, 1)
    assert rescuer.superseded_count == 1
    assert reload_job(twin).state == "available"


@pytest.mark.parametrize(
    "metadata",
    [
        '{"awa:retry": {"policy": "fixed", "wait": 1e400}}',
        '{"awa:retry": {"policy": "fixed", "wait": -1e400}}',
        '{"awa:retry": {"policy": "exponential", "cap": 1e300}}',
        '{"awa:retry": {"policy": "os.system", "wait": 1}}',
        '{"awa:retry": {"policy": ["fixed"]}}',
        '{"awa:retry": {"policy": "fixed", "wait": null, "x": 1}}',
        '{"awa:retry": [1]}',
        '{"awa:retry": ' + "[" * 900 + "]" * 900 + "}",
        '{"n": 1' + "0" * 5000 + "}",
    ],
)
@pytest.mark.fault(
    "F53",
    injected="a rescue with metadata of 1e400, 900 levels, 5,000 digits",
)
def test_odd_metadata_of_one_run_stops_nobody(rescuer: Rescuer, metadata: str) -> None:
    odd, mate = silent(), silent()
    update_job(odd, metadata=f"'{metadata}'")
    rescuer.tick()
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, state FROM awa.scheduled_jobs ORDER BY id")
        assert cursor.fetchall() == [(odd, "retryable"), (mate, "retryable")]


def test_errors_that_take_no_entry_stop_nobody(rescuer: Rescuer) -> None:
    odd, mate = silent(), silent()
    update_job(odd, errors="""ARRAY[['{"error": "a"}', '{"error": "b"}']]::jsonb[]""")
    rescuer.tick()
    assert reload_job(mate).state == "retryable"
    row = reload_job(odd)
    assert row.state == "failed"
    assert [entry.get("outcome") for entry in row.errors] == [None, None, "unwritable"]
