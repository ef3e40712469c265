"""Heartbeat and progress: by lease, for running rows only, and only those columns."""

from __future__ import annotations

import pytest
from django.db import connection

from awa_django.storage.heartbeat import heartbeat, progress
from awa_django.storage.rows import Attempt
from tests.conftest import Connect
from tests.factories import insert_job, reload_job, update_job

pytestmark = pytest.mark.django_db


def age_heartbeat(job_id: int) -> None:
    update_job(job_id, heartbeat_at="now() - interval '1 hour'")


def is_fresh(job_id: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT heartbeat_at = now() FROM awa.jobs_hot WHERE id = %s", [job_id])
        return bool(cursor.fetchone()[0])


def test_heartbeat_refreshes_the_runs_that_are_alive_and_names_them() -> None:
    ours, another = (insert_job("running", run_lease=4) for _ in range(2))
    for job_id in (ours, another):
        age_heartbeat(job_id)
    before = reload_job(ours)
    assert heartbeat(connection, [Attempt(ours, 4), Attempt(another, 3)]) == {Attempt(ours, 4)}
    after = reload_job(ours)
    after.heartbeat_at = before.heartbeat_at
    assert after == before
    assert is_fresh(ours)
    assert not is_fresh(another)
    assert heartbeat(connection, []) == set()


def test_heartbeat_tells_an_old_run_from_the_new_one_of_the_same_job() -> None:
    job_id = insert_job("running", run_lease=5)
    assert heartbeat(connection, [Attempt(job_id, 5), Attempt(job_id, 4)]) == {Attempt(job_id, 5)}


def test_heartbeat_revives_a_null_one() -> None:
    job_id = insert_job("running")
    update_job(job_id, heartbeat_at="NULL")
    assert heartbeat(connection, [Attempt(job_id, 1)]) == {Attempt(job_id, 1)}
    assert is_fresh(job_id)


@pytest.mark.parametrize("state", ["available", "completed", "failed", "cancelled", "retryable"])
def test_heartbeat_and_progress_leave_what_does_not_run(state: str) -> None:
    job_id = insert_job(state, run_lease=4)
    before = reload_job(job_id)
    assert heartbeat(connection, [Attempt(job_id, 4)]) == set()
    assert progress(connection, {Attempt(job_id, 4): "{}"}) == set()
    assert reload_job(job_id) == before


def test_progress_is_stored_for_the_lease_that_holds_the_job() -> None:
    ours, stale = (insert_job("running", run_lease=4) for _ in range(2))
    reports = {Attempt(stale, 3): '{"percent": 1}', Attempt(ours, 4): '{"percent": 2}'}
    assert progress(connection, reports) == {ours}
    assert (reload_job(ours).progress, reload_job(stale).progress) == ({"percent": 2}, None)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_heartbeats_are_hot_updates(connect: Connect) -> None:
    """``heartbeat_at`` is in no index: a beat writes one row version and no index entry.

    One beat only: half of each page is free for it, whatever a snapshot elsewhere keeps from being pruned.
    Counted in its own transaction: what other sessions have done is added to the table's late.
    """
    attempts = [Attempt(insert_job("running"), 1) for _ in range(50)]
    database = connect(autocommit=False)
    before = update_counts(database)
    assert heartbeat(database, attempts) == set(attempts)
    updated, hot = update_counts(database)
    assert (updated - before[0], hot - before[1]) == (50, 50)


def update_counts(database: object) -> tuple[int, int]:
    row = database.execute(  # type: ignore[attr-defined]
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relid = 'awa.jobs_hot'::regclass"
    ).fetchone()
    return row[0], row[1]
