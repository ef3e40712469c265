"""All that match, by a real worker that is killed in the middle of it."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from awa_django.bulk_operation import bulk_operation
from awa_django.operations import Change
from awa_django.operations.walk import Selection
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
COUNT = 40_000


def test_a_walk_goes_on_after_the_death_of_its_process(database: Database, start_worker: StartWorker) -> None:
    database.connection.execute(
        "INSERT INTO awa.scheduled_jobs (kind, state, run_at) "
        "SELECT 'tests.many', 'scheduled', now() + interval '1 day' FROM generate_series(1, %s)",
        [COUNT],
    )
    highest_id = database.value("SELECT max(id) FROM awa.scheduled_jobs")
    job_id = bulk_operation.enqueue(
        Change(operation="cancel"), Selection(highest_id=highest_id, kind="tests.many"), "ann", None, "sent"
    ).id
    worker = start_worker("--queues", "default")

    def done() -> Any:
        progress = database.job(job_id)["progress"] or {}
        return progress.get("checkpoint", {}).get("changed", 0)

    wait_until(done, timeout=60, message=worker.text)
    [child] = worker.child_pids()
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: database.job(job_id)["state"] == "completed", timeout=120, message=worker.text)
    job = database.job(job_id)
    assert job["attempt"] == 2
    assert "process died" in job["errors"][0]["error"]
    assert job["result"] == {"operation": "cancel", "changed": COUNT, "left": 0, "first_left": []}
    assert database.states() == {"cancelled": COUNT, "completed": 1}
