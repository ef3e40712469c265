"""The audit itself: real moves pass, and each kind of step that must not be is reported."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from awa_django import operations
from awa_django.states import JobState
from awa_django.storage import claim, finalize, promote
from awa_django.storage.rows import Attempt, Completion, Deferral, Ending
from tests import audit, handlers
from tests.audit import Step
from tests.conftest import Connect
from tests.worker_fixtures import Database

pytestmark = pytest.mark.django_db(transaction=True)

ENTRY = '{"error": "no luck"}'


def test_a_whole_life_is_written_down_and_legal(database: Database, connect: Connect) -> None:
    connection = connect()
    job_id = handlers.record.using(delay=3600).enqueue(number=1).id
    operations.run_now([job_id])
    assert claimed(connection) == Attempt(job_id, 1)
    finalize.defer(connection, [Deferral(Attempt(job_id, 1), JobState.RETRYABLE, 0.0, ENTRY)])
    assert promote.promote(connection, batch=10) == {"default": 1}
    assert claimed(connection) == Attempt(job_id, 2)
    finalize.release(connection, [Attempt(job_id, 2)])
    assert claimed(connection) == Attempt(job_id, 3)
    finalize.defer(connection, [Deferral(Attempt(job_id, 3), JobState.SCHEDULED, 0.0, refund=True)])
    assert promote.promote(connection, batch=10) == {"default": 1}
    assert claimed(connection) == Attempt(job_id, 4)
    finalize.finish(connection, [Ending(Attempt(job_id, 4), JobState.FAILED, ENTRY)])
    operations.retry([job_id])
    assert claimed(connection) == Attempt(job_id, 5)
    finalize.complete(connection, [Completion(Attempt(job_id, 5), None, False)])

    found = audit.steps(connection)
    assert [step.new_state for step in found] == [
        "scheduled", "available", "running", "retryable", "available", "running", "available", "running",
        "scheduled", "available", "running", "failed", "available", "running", "completed",
    ]  # fmt: skip
    assert [step.new_attempt for step in found] == [0, 0, 1, 1, 1, 2, 1, 2, 1, 1, 2, 2, 0, 1, 1]
    assert audit.judge(found) == []


def claimed(connection: Any) -> Attempt:
    """Claim the one job there is."""
    request = claim.ClaimRequest(
        limits={"default": 1},
        total=1,
        worker="tests",
        timeouts="{}",
        hold=timedelta(seconds=7).total_seconds(),
    )
    (job,) = claim.claim(connection, request)
    return Attempt(job.id, job.run_lease)


FREE = "heartbeat_at = NULL, deadline_at = NULL"
ENDED = f"{FREE}, finalized_at = now()"
HOT = "UPDATE awa.jobs_hot SET"
ILLEGAL = {
    "a second claim": (f"{HOT} run_lease = run_lease + 1", "lease or attempt changed without a change"),
    "an attempt from nowhere": (f"{HOT} attempt = 2", "lease or attempt changed without a change"),
    "a release with an error": (
        f"{HOT} state = 'available', attempt = 0, errors = errors || '{{}}'::jsonb, {FREE}",
        "an entry of the history that nobody may write",
    ),
    "a release that is charged": (f"{HOT} state = 'available', {FREE}", "wrong arithmetic of attempts"),
    "a failure without a word": (f"{HOT} state = 'failed', {ENDED}", "an ended run adds one entry"),
    "an end after the end": (
        f"{HOT} state = 'completed', {ENDED}; {HOT} state = 'cancelled'",
        "an edge that must not be",
    ),
    "a claim without a new lease": (
        (
            f"{HOT} state = 'available', attempt = 0, {FREE}; "
            f"{HOT} state = 'running', attempt = 1, heartbeat_at = now()"
        ),
        "the lease grows by one with each claim",
    ),
    "a hidden change": (
        (
            f"ALTER TABLE awa.jobs_hot DISABLE TRIGGER USER; {HOT} run_lease = 5; "
            f"ALTER TABLE awa.jobs_hot ENABLE TRIGGER USER; {HOT} state = 'cancelled', {ENDED}"
        ),
        "a change that left no trace",
    ),
}


@pytest.mark.parametrize(("statement", "complaint"), ILLEGAL.values(), ids=ILLEGAL.keys())
def test_each_illegal_step_is_reported(
    database: Database, connect: Connect, statement: str, complaint: str
) -> None:
    connection = connect(application_name="a rogue")
    handlers.record.enqueue(number=1)
    claimed(connection)
    connection.execute(statement)
    judged = audit.judge(audit.steps(connection))
    assert len(judged) == 1, judged
    assert judged[0].startswith(complaint), judged
    assert "(by a rogue)" in judged[0]
    connection.execute("TRUNCATE audit.step")  # or this test's own end would report it too


def test_what_is_done_by_hand_is_not_judged(database: Database) -> None:
    handlers.record.enqueue(number=1)
    database.connection.execute("UPDATE awa.jobs_hot SET attempt = 3")
    assert len(audit.steps(database.connection)) == 2


def test_every_pair_of_states_is_judged() -> None:
    """No move out of the table of edges passes, whatever else is right about it."""
    for old in audit.STATES:
        for new in audit.STATES:
            if old != new and new not in audit.EDGES[old]:
                steps = [_step(None, old), _step(old, new)]
                assert audit.judge(steps)[0].startswith("an edge that must not be"), (old, new)


def test_two_claims_of_one_availability_are_reported() -> None:
    second = Step(
        tx=2, session="", id=1, old_state="running", new_state="running",
        old_lease=1, new_lease=2, old_attempt=1, new_attempt=2, old_errors=0, new_errors=0,
    )  # fmt: skip
    assert audit.judge([_step(None, "running"), second])[0].startswith("lease or attempt changed without")


def _step(old: str | None, new: str) -> Step:
    return Step(
        tx=1,
        session="",
        id=1,
        old_state=old,
        new_state=new,
        old_lease=None if old is None else 1,
        new_lease=1,
        old_attempt=None if old is None else 1,
        new_attempt=1,
        old_errors=None if old is None else 0,
        new_errors=0,
    )
