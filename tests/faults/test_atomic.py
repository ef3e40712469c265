"""Atomic handlers and the death of their process: what they did in the database is there once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import handlers
from tests.fault_report import Observe
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

COUNT = 5


@pytest.mark.fault("F3", injected="kill -9 at each step of atomic handlers' path")
# Its completion is the handler's own, so it does not come by before_finish and after_finish.
@pytest.mark.parametrize("point", ["after_claim", "before_handler", "before_commit", "after_handler"])
def test_effects_of_an_atomic_handler_are_there_once(
    database: Database, start_worker: StartWorker, observe: Observe, tmp_path: Path, point: str
) -> None:
    handlers.atomic_effect.enqueue_many([{"number": number} for number in range(COUNT)])
    worker = start_worker("--concurrency", "2", failpoints=f"{point}=kill@{tmp_path}/killed")
    wait_until(lambda: database.states() == {"completed": COUNT}, message=worker.text)
    assert worker.stop() == 0
    assert (tmp_path / "killed").exists()
    assert sorted(database.effects("atomic")) == list(range(COUNT))
    observe(f"at {point}: {COUNT} jobs completed, each effect there once")


@pytest.mark.fault("F3", injected="kill -9 inside of atomic handlers, after their effect")
def test_effects_of_an_atomic_handler_that_dies_are_there_once(
    database: Database, start_worker: StartWorker, observe: Observe
) -> None:
    handlers.atomic_effect.enqueue_many([{"number": number, "die": number == 1} for number in range(COUNT)])
    worker = start_worker("--concurrency", "2")
    wait_until(lambda: database.states() == {"completed": COUNT}, message=worker.text)
    assert worker.stop() == 0
    assert sorted(database.effects("atomic")) == list(range(COUNT))
    observe(f"{COUNT} jobs completed, each effect there once")


@pytest.mark.fault(
    "F3", injected="the lease of an atomic handler is over before it commits: cancelled by hand"
)
def test_effects_of_an_atomic_handler_that_lost_its_lease_are_not_there(
    database: Database, start_worker: StartWorker, observe: Observe, tmp_path: Path
) -> None:
    job_id = handlers.atomic_effect.enqueue(number=1).id
    worker = start_worker(failpoints="before_handler=delay:6")
    wait_until(lambda: database.states() == {"running": 1}, message=worker.text)
    database.connection.execute("UPDATE awa.jobs SET state = 'cancelled' WHERE id = %s", [job_id])
    wait_until(lambda: "its run was over" in worker.text(), message=worker.text)
    assert worker.stop() == 0
    assert database.effects("atomic") == []
    assert database.states() == {"cancelled": 1}
    observe("rolled back: the job stays cancelled, no effect")
