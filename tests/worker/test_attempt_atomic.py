"""``atomic=True``: what the handler does is committed together with its completion, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings

from awa_django.jobs import job
from awa_django.jobs.job import Job
from awa_django.outcomes import Cancel, Snooze
from awa_django.retry import Fixed
from awa_django.states import JobState
from awa_django.storage.rows import Attempt, Completion, Deferral, Ending, Release
from tests.factories import insert_job, reload_job, update_job
from tests.worker.attempts import claimed, run

pytestmark = pytest.mark.usefixtures("registered")


def audit(what: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO awa.job_kinds (kind) VALUES (%s)", [what])


def audited() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT kind FROM awa.job_kinds")
        return [row[0] for row in cursor.fetchall()]


@pytest.fixture
def atomic() -> Job[Any, Any]:
    @job(kind="t.atomic", atomic=True, keep_result=True, retry=Fixed(wait=1))
    def atomic(how: str) -> object:
        audit("effect")
        if how == "raise":
            raise ValueError("no")
        return {"snooze": Snooze(5), "cancel": Cancel()}.get(how, how)

    return atomic


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
class TestAtomic:
    def test_effects_and_completion_are_committed_together(self, atomic: Job[Any, Any]) -> None:
        job_id = insert_job("running", run_lease=9)
        assert run(atomic, claimed('{"how": "ok"}', id=job_id)) is None
        row = reload_job(job_id)
        assert (row.state, row.result, audited()) == ("completed", "ok", ["effect"])

    @pytest.mark.parametrize("how", ["raise", "snooze", "cancel"])
    def test_what_is_no_completion_rolls_the_effects_back(self, atomic: Job[Any, Any], how: str) -> None:
        job_id = insert_job("running", run_lease=9)
        outcome = run(atomic, claimed(json.dumps({"how": how}), id=job_id))
        assert isinstance(outcome, (Deferral, Ending))
        assert (reload_job(job_id).state, audited()) == ("running", [])

    def test_stale_run_leaves_no_effects_and_its_completion_is_found_stale(
        self, atomic: Job[Any, Any]
    ) -> None:
        """It was counted as completed."""
        job_id = insert_job("running", run_lease=9)
        update_job(job_id, run_lease="10")
        outcome = run(atomic, claimed('{"how": "ok"}', id=job_id))
        assert outcome == Completion(Attempt(job_id, 9), '"ok"')
        assert (reload_job(job_id).state, audited()) == ("running", [])

    @pytest.mark.parametrize("breaks", ["leaves a block open", "leaves two", "sets rollback"])
    def test_handler_that_breaks_its_transaction_ends_like_one_that_raises(self, breaks: str) -> None:
        """Nothing was committed, and nobody knew: it ran again and again, without end."""

        @job(kind="t.breaks", atomic=True)
        def breaking() -> None:
            audit("effect")
            if breaks == "sets rollback":
                transaction.set_rollback(True)
                return
            for _ in range(1 + (breaks == "leaves two")):
                transaction.atomic().__enter__()
            audit("another")

        job_id = insert_job("running", run_lease=9)
        outcome = run(breaking, claimed(id=job_id))
        assert isinstance(outcome, Deferral)
        assert outcome.state == JobState.RETRYABLE
        assert not connection.in_atomic_block
        assert (reload_job(job_id).state, audited()) == ("running", [])

    def test_what_is_raised_after_the_commit_is_logged_and_changes_no_outcome(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It was told, counted and logged as a retry of a run that was over, without a word of the error."""

        @job(kind="t.hooked", atomic=True)
        def hooked() -> None:
            transaction.on_commit(lambda: json.loads("not after all"))

        job_id = insert_job("running", run_lease=9)
        assert run(hooked, claimed(id=job_id)) is None
        assert reload_job(job_id).state == "completed"
        [record] = [each for each in caplog.records if each.name == "awa_django.worker.attempt"]
        assert record.getMessage() == f"job {job_id} is completed, but what it gave to on_commit failed"
        assert "JSONDecodeError" in str(record.exc_text)

    def test_retention_of_zero_deletes_the_row_with_the_effects(self, atomic: Job[Any, Any]) -> None:
        job_id = insert_job("running", run_lease=9)
        with override_settings(AWA={"RETENTION": {"completed": 0}}):
            assert run(atomic, claimed('{"how": "ok"}', id=job_id)) is None
        assert (reload_job(job_id), audited()) == (None, ["effect"])


@pytest.mark.django_db(transaction=True)
def test_atomic_handler_does_not_begin_when_its_transaction_took_too_long() -> None:
    """BEGIN hung on a dead connection, or the process was paused in it: the job was another's by then."""
    begun = []

    @job(kind="t.late", atomic=True)
    def late() -> None:
        begun.append(1)

    assert run(late, claimed(), begin_by=0.0) == Release(Attempt(5, 9))
    assert begun == []
