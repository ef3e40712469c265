"""Prune: only ended jobs past the retention of their state in their queue, all of them, in batches."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

import pytest
from django.db import connection

from awa_django.storage.prune import PruneBatch, RetentionRule, prune
from tests.conftest import Connect
from tests.factories import insert_job, reload_job, update_job
from tests.storage.test_finalize import FULL, claims
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db

HOUR = 3600.0
RULES = [
    RetentionRule("completed", None, 24 * HOUR),
    RetentionRule("failed", None, 7 * 24 * HOUR),
    RetentionRule("cancelled", None, 7 * 24 * HOUR),
    RetentionRule("completed", "mail", HOUR),
]


def ended(state: str = "completed", hours: float = 0, **columns: Any) -> int:
    job_id = insert_job(state, **columns)
    update_job(job_id, finalized_at=f"now() - interval '{hours} hours'")
    return job_id


def run(rules: list[RetentionRule] = RULES, cursor: datetime | None = None, batch: int = 100) -> PruneBatch:
    return prune(connection, rules, cursor=cursor, batch=batch)


@pytest.mark.parametrize(
    ("state", "queue", "hours", "is_pruned"),
    [
        ("completed", "default", 23.9, False),
        ("completed", "default", 24.1, True),
        ("failed", "default", 24.1, False),
        ("failed", "default", 24 * 7.1, True),
        ("cancelled", "default", 24 * 6.9, False),
        ("cancelled", "default", 24 * 7.1, True),
        ("completed", "mail", 0.9, False),
        ("completed", "mail", 1.1, True),
        ("failed", "mail", 24 * 6.9, False),
        ("failed", "mail", 24 * 7.1, True),
    ],
)
@pytest.mark.fault("F95", injected="retention by state and by queue")
def test_retention_is_that_of_the_state_in_the_queue(
    state: str, queue: str, hours: float, is_pruned: bool
) -> None:
    job_id = ended(state, hours, queue=queue)
    assert run().pruned_count == int(is_pruned)
    assert (reload_job(job_id) is None) == is_pruned


@pytest.mark.parametrize("state", ["available", "running", "waiting_external", "scheduled", "retryable"])
def test_unfinished_jobs_are_never_pruned(state: str) -> None:
    job_id = insert_job(state, created_at="2001-01-01T00:00Z", run_at="2001-01-01T00:00Z")
    assert run([RetentionRule("completed", None, 0.0)]) == PruneBatch(None, 0, 0)
    assert reload_job(job_id).state == state


def test_state_without_a_rule_is_kept() -> None:
    job_id = ended("failed", 1000)
    assert run([RetentionRule("completed", None, HOUR)]).pruned_count == 0
    assert reload_job(job_id) is not None


def test_pass_goes_on_where_the_last_batch_ended() -> None:
    kept = [ended("failed", hours) for hours in (60, 50, 40)]
    gone = [ended("completed", hours) for hours in (55, 45, 35)]
    cursor, passes, pruned_count = None, 0, 0
    while True:
        batch = run(cursor=cursor, batch=2)
        if batch.cursor is None:
            break
        assert batch.examined_count == 2
        assert cursor is None or batch.cursor > cursor
        cursor, passes, pruned_count = batch.cursor, passes + 1, pruned_count + batch.pruned_count
    assert (passes, pruned_count) == (3, 3)
    assert all(reload_job(job_id) is not None for job_id in kept)
    assert all(reload_job(job_id) is None for job_id in gone)


def test_jobs_that_ended_at_the_same_instant_are_in_one_batch() -> None:
    """A batch that ended within them would leave the others behind its cursor for ever."""
    for _ in range(7):
        ended("completed", 30)
    last = ended("completed", 29)
    first = run(batch=3)
    assert (first.examined_count, first.pruned_count) == (7, 7)
    assert run(cursor=first.cursor, batch=3).pruned_count == 1
    assert reload_job(last) is None


def test_pruning_gives_up_the_unique_key() -> None:
    job_id = ended("completed", 30, unique_key=FULL["unique_key"], unique_states="00010000")
    assert claims() == [job_id]
    assert run().pruned_count == 1
    assert claims() == []


@pytest.mark.fault("F95", injected="retention of 0")
def test_retention_of_zero_deletes_what_has_ended_before() -> None:
    ended("completed", 0.001, queue="mail")
    rules = [RetentionRule("completed", None, HOUR), RetentionRule("completed", "mail", 0.0)]
    assert run(rules).pruned_count == 1


def test_a_kind_may_be_kept_longer_than_its_retention() -> None:
    rules = [RetentionRule("completed", None, 0.0)]
    young, old = ended("completed", 0.9, kind="kept"), ended("completed", 1.1, kind="kept")
    other, without_rule = ended("completed", 0.9), ended("failed", 30, kind="kept")
    assert prune(connection, rules, cursor=None, batch=10, kept={"kept": HOUR}).pruned_count == 2
    assert [reload_job(job_id) is None for job_id in (young, old, other, without_rule)] == [
        False, True, True, False,
    ]  # fmt: skip


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
@pytest.mark.parametrize("ended_again", [False, True])
@pytest.mark.fault("F95", injected="an operator retries a job that is being pruned")
def test_job_that_an_operator_retries_meanwhile_is_kept(connect: Connect, ended_again: bool) -> None:
    job_id = ended("failed", 1000)
    operator, pruner = connect(autocommit=False), connect()
    operator.execute("UPDATE awa.jobs_hot SET state = 'available', finalized_at = NULL")
    counts: list[int] = []
    pruning = threading.Thread(
        target=lambda: counts.append(prune(pruner, RULES, cursor=None, batch=10).pruned_count)
    )
    pruning.start()
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %s"
    wait_until(lambda: operator.execute(waiting, [pruner.info.backend_pid]).fetchone() == (1,))
    if ended_again:
        operator.execute("UPDATE awa.jobs_hot SET state = 'failed', finalized_at = now()")
    operator.commit()
    pruning.join(60)
    assert counts == [0]
    assert reload_job(job_id) is not None
