"""What is said of a job that runs or has ended."""

from __future__ import annotations

from typing import Any

import pytest

from awa_django import operations
from awa_django.why import explain
from tests.factories import insert_job, update_job
from tests.why.asked import PAST, codes, only, run_sql

pytestmark = pytest.mark.django_db


def test_a_job_that_completed() -> None:
    job_id = insert_job("completed", attempted_at=None, worker="w/1")
    update_job(job_id, attempted_at="finalized_at - interval '90 s'")
    reason = only(job_id)
    assert reason.code == "completed"
    assert reason.text.endswith("ago), after 1 min 30 s.")


@pytest.mark.parametrize(
    ("state", "columns", "entry", "code"),
    [
        ("failed", {"attempt": 3, "max_attempts": 3}, {"outcome": "failed"}, "attempts_used_up"),
        ("failed", {"attempt": 1, "max_attempts": 3}, {"outcome": "failed"}, "failed"),
        ("failed", {"attempt": 1, "max_attempts": 3}, {"outcome": "expired"}, "expired"),
        ("cancelled", {}, {"outcome": "superseded"}, "superseded"),
        ("cancelled", {}, {"outcome": "unwritable"}, "quarantined"),
        ("cancelled", {}, {"outcome": "discarded"}, "discarded"),
        ("cancelled", {}, {"outcome": "cancelled"}, "cancelled"),
        ("cancelled", {}, None, "cancelled"),
    ],
)
def test_a_job_that_ended_otherwise(state: str, columns: Any, entry: Any, code: str) -> None:
    errors = [] if entry is None else [{"error": "password=hunter2 is\nwrong", "class": "E", **entry}]
    reason = only(insert_job(state, errors=errors or "{}", **columns))
    assert reason.code == code
    assert "hunter2" not in reason.text
    assert "\n" not in reason.text


def test_secret_arguments_are_masked_in_the_error() -> None:
    job_id = insert_job(
        "failed",
        args={"card_number": "4000123412341234"},
        metadata={"awa:secret": ["card_number"]},
        errors=[{"error": "card 4000123412341234 is refused"}],
    )
    assert "card ******** is refused" in only(job_id).text


def test_a_secret_is_masked_before_the_error_is_cut() -> None:
    for length in range(470, 720, 10):
        error = "x" * length + " 4000123412341234"
        job_id = insert_job(
            "failed",
            args={"card_number": "4000123412341234"},
            metadata={"awa:secret": ["card_number"]},
            errors=[{"error": error}],
        )
        text = only(job_id).text
        assert "4000" not in text
        assert len(text) < 900


def test_a_cancelled_job_says_by_whom() -> None:
    job_id = insert_job("running")
    operations.cancel(job_id, by="ann")
    assert "by ann" in only(job_id).text


@pytest.mark.parametrize("outcome", ["superseded", "discarded", "cancelled", "unwritable", "expired"])
def test_an_entry_of_an_earlier_end_says_nothing_of_this_one(outcome: str) -> None:
    """Retried after that end, it was cancelled while it waited: that leaves no entry."""
    entry = {"outcome": outcome, "error": "of then", "by": "ann", "at": "2020-01-31T10:00:00.5+00:00"}
    reason = only(insert_job("cancelled", errors=[entry]))
    assert reason.code == "cancelled"
    assert "ann" not in reason.text
    assert "of then" not in reason.text


def test_entries_that_somebody_else_wrote_are_survived() -> None:
    job_id = insert_job("failed")
    for errors in (
        "ARRAY['3'::jsonb]",
        "ARRAY[ARRAY['{}'::jsonb], ARRAY['[]'::jsonb]]",
        "ARRAY['null'::jsonb]",
    ):
        update_job(job_id, errors=errors)
        assert only(job_id).code == "failed"


def test_a_job_that_runs_and_its_worker_is_alive(served: None) -> None:
    reason = only(insert_job("running", worker="w/1"))
    assert reason.code == "running"
    assert "w/1" in reason.text


def test_a_run_whose_heartbeat_is_stale(served: None) -> None:
    job_id = insert_job("running", worker="w/9")
    update_job(job_id, heartbeat_at=PAST)
    silent, running = explain(job_id)
    assert (silent.code, running.code) == ("silent", "running")
    assert "within a minute" in silent.advice
    run_sql("UPDATE awa.leaders SET expires_at = now()")
    assert "start one" in explain(job_id)[0].advice


def test_a_run_past_its_deadline(served: None) -> None:
    job_id = insert_job("running", worker="w/1")
    update_job(job_id, deadline_at=PAST)
    assert codes(job_id) == ["overdue", "running"]


def test_a_job_that_waits_for_something_else() -> None:
    assert codes(insert_job("waiting_external")) == ["waiting_external"]
