"""Rescue: which running rows nobody answers for, and in whose name rows run."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from awa_django.storage.rescue import lost_runs, runs_of_worker
from awa_django.storage.rows import LostRun
from tests.conftest import Connect
from tests.factories import insert_job, update_job

pytestmark = pytest.mark.django_db

STALE = timedelta(seconds=90)


def silent(seconds: int, **columns: object) -> int:
    job_id = insert_job("running", **columns)
    update_job(job_id, heartbeat_at=f"now() - interval '{seconds} seconds'")
    return job_id


def lost(batch: int = 10) -> dict[int, str]:
    return {run.id: run.reason for run in lost_runs(connection, stale_after=STALE, batch=batch)}


def test_lost_are_the_silent_the_overdue_and_those_without_a_heartbeat() -> None:
    silent_one, never_beat, overdue, live = silent(91), silent(0), silent(0), silent(89)
    update_job(never_beat, heartbeat_at="NULL")
    update_job(overdue, deadline_at="now() - interval '1 second'")
    update_job(live, deadline_at="now() + interval '1 second'")
    assert lost() == {silent_one: "heartbeat", never_beat: "heartbeat", overdue: "deadline"}


@pytest.mark.parametrize("state", ["available", "completed", "failed", "cancelled", "waiting_external"])
def test_only_running_rows_are_lost(state: str) -> None:
    job_id = insert_job(state)
    update_job(job_id, heartbeat_at="now() - interval '1 day'", deadline_at="now() - interval '1 day'")
    assert lost() == {}


def test_lost_runs_come_whole_in_id_order_up_to_the_batch() -> None:
    first = silent(100, queue="q", attempt=3, max_attempts=7, run_lease=9, metadata={"k": 1}, worker="w/2")
    second = silent(1000)
    silent(2000)
    runs = lost_runs(connection, stale_after=STALE, batch=2)
    assert runs[0] == LostRun(first, 9, "tests.job", "q", 3, 7, '{"k": 1}', "w/2", "heartbeat")
    assert (runs[1].id, runs[1].metadata) == (second, None)
    assert len(runs) == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_two_sweeps_never_share_a_run(connect: Connect) -> None:
    ids = [silent(100) for _ in range(3)]
    one, two = connect(autocommit=False), connect(autocommit=False)
    assert [run.id for run in lost_runs(one, stale_after=STALE, batch=2)] == ids[:2]
    assert [run.id for run in lost_runs(two, stale_after=STALE, batch=2)] == ids[2:]


def test_runs_of_worker_are_the_running_rows_in_its_name() -> None:
    ours = silent(0, worker="w/1")
    other = silent(0, worker="w/2")
    silent(0, worker="w/3")
    insert_job("completed", worker="w/1")
    runs = runs_of_worker(connection, ["w/1", "w/2"])
    assert [(run.id, run.worker, run.reason) for run in runs] == [
        (ours, "w/1", "worker"),
        (other, "w/2", "worker"),
    ]
    assert runs_of_worker(connection, []) == []


def test_runs_of_worker_leaves_out_the_newest_when_asked() -> None:
    young, old = silent(0, worker="w/1"), silent(0, worker="w/1")
    update_job(old, attempted_at="now() - interval '2 seconds'")
    assert [run.id for run in runs_of_worker(connection, ["w/1"], min_age=timedelta(seconds=2))] == [old]
    assert young in {run.id for run in runs_of_worker(connection, ["w/1"])}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_queue")
def test_runs_of_worker_sees_rows_that_are_locked(connect: Connect) -> None:
    """A dead child's row that a last heartbeat is writing was passed over, and left for staleness."""
    job_id = silent(0, worker="w/1")
    locker = connect(autocommit=False)
    locker.execute("SELECT FROM awa.jobs_hot WHERE id = %s FOR UPDATE", [job_id])
    assert [run.id for run in runs_of_worker(connect(), ["w/1"])] == [job_id]
