"""Whole workers with the project's own code round their handlers: receivers and middleware."""

from __future__ import annotations

import pytest

from awa_django import Fixed
from tests import handlers
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

pytestmark = [pytest.mark.acceptance, pytest.mark.django_db(transaction=True)]


def test_worker_tells_of_each_end_before_it_ends(database: Database, start_worker: StartWorker) -> None:
    handlers.record.enqueue(number=1)
    handlers.record_async.enqueue(number=2)
    # Not one job for both: it would be promoted while somebody is told that it is retryable.
    handlers.always_fail.using(retry=Fixed(wait=3600)).enqueue()
    handlers.always_fail.using(max_attempts=1).enqueue()
    worker = start_worker(
        awa={"IMPORTS": ["tests.handlers", "tests.told"], "MIDDLEWARE": ["tests.told.noted"]}
    )
    wait_until(
        lambda: database.states() == {"completed": 2, "failed": 1, "retryable": 1},
        message=lambda: str(database.states()),
    )
    assert worker.stop() == 0  # with nothing left to tell
    assert dict(database.rows("SELECT name, count(*) FROM effects GROUP BY name")) == {
        "record": 1,
        "record_async": 1,
        "always_fail": 2,
        f"round {handlers.record.handler.kind}": 1,
        f"round {handlers.record_async.handler.kind}": 1,
        f"round {handlers.always_fail.handler.kind}": 2,
        "told completed of a job that is completed": 2,
        "told retried of a job that is retryable": 1,
        "told failed of a job that is failed": 1,
    }


def test_worker_with_middleware_that_cannot_be_does_not_start(
    database: Database, start_worker: StartWorker
) -> None:
    worker = start_worker(awa={"MIDDLEWARE": ["tests.told.missing"]})
    assert worker.process.wait(timeout=60) == 1
    assert "AWA['MIDDLEWARE']: cannot import 'tests.told.missing'" in worker.text()
