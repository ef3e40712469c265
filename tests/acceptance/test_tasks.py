"""Tasks of django.tasks in whole workers, beside jobs."""

from __future__ import annotations

import json

import pytest

from tests import handlers
from tests.tasks_support import TASKS, framework, tasks, tasks_setting
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

__all__ = ["tasks_setting"]
pytestmark = [pytest.mark.acceptance, pytest.mark.django_db(transaction=True)]

Status = framework.TaskResultStatus
AWA = {"IMPORTS": ["tests.handlers", "tests.declared_tasks"], "RETRY": {"policy": "fixed", "wait": 0.05}}


@pytest.fixture
def worker_env(worker_env: dict[str, str]) -> dict[str, str]:
    return {**worker_env, "TEST_TASKS": json.dumps(TASKS)}


def test_worker_runs_tasks_and_jobs_from_the_same_queues(
    database: Database, start_worker: StartWorker
) -> None:
    job = handlers.record.enqueue(number=7)
    results = {
        "sync": tasks.add.enqueue(1, 2),
        "async": tasks.add_async.enqueue(1, 2),
        "of a queue of the backend": tasks.add.using(queue_name="no-task").enqueue("a", "b"),
        "of another backend's declaration": tasks.of_another_backend.using(backend="default").enqueue(),
        "fails once": tasks.fail_once.enqueue(),
        "fails": tasks.fail.using(max_attempts=2).enqueue("oh"),
        "fails async": tasks.fail_async.using(max_attempts=1).enqueue(),
        "itself": tasks.look_at_itself.enqueue(),
    }
    if tasks.PASSES_OPTIONS:
        results["atomic"] = tasks.atomically.enqueue(5)
    worker = start_worker("--processes", "2", awa=AWA)

    def finished() -> bool:
        assert worker.process.poll() is None, worker.text()
        for result in results.values():
            result.refresh()
        return all(result.is_finished for result in results.values())

    wait_until(finished, timeout=60, message=lambda: f"{results} {worker.text()}")
    assert worker.stop() == 0

    assert {
        name: result.return_value for name, result in results.items() if result.status == Status.SUCCESSFUL
    } == {
        "sync": 3,
        "async": 3,
        "of a queue of the backend": "ab",
        "of another backend's declaration": "done here",
        "fails once": 2,
        "itself": ["RUNNING", *results["itself"].worker_ids, "True"],
        **({"atomic": 1} if tasks.PASSES_OPTIONS else {}),
    }
    assert database.effects("record") == [7]
    assert database.job(job.id)["state"] == "completed"
    assert database.effects("atomically") == [5] * tasks.PASSES_OPTIONS
    assert [error.exception_class for error in results["fails"].errors] == [ValueError, ValueError]
    assert [error.exception_class for error in results["fails async"].errors] == [KeyError]
    for name, attempts in (("sync", 1), ("fails once", 2), ("fails", 2)):
        result = results[name]
        assert result.attempts == attempts
        assert result.enqueued_at <= result.started_at <= result.last_attempted_at <= result.finished_at
    assert results["fails once"].started_at < results["fails once"].last_attempted_at
