"""The django.tasks backend: what a task's result says at every moment of its life, and the signals."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from awa_django import TerminalError, operations, registry
from awa_django.context import JobContext
from awa_django.storage.rows import Attempt, Completion
from awa_django.testing import drain, run_job
from tests.factories import insert_job, reload_job, update_job
from tests.tasks_support import AwaBackend, framework, needs_options, tasks, tasks_setting

__all__ = ["tasks_setting"]
pytestmark = pytest.mark.django_db

Status = framework.TaskResultStatus
WORKER = "testing"


class Told(list[tuple[str, Any]]):
    """The signals of started and finished tasks, in their order."""

    def names(self) -> list[str]:
        return [name for name, _ in self]


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()

    def started(sender: type, task_result: Any, **_: object) -> None:
        assert sender is AwaBackend
        told.append(("started", task_result))

    def finished(sender: type, task_result: Any, **_: object) -> None:
        assert sender is AwaBackend
        told.append(("finished", task_result))

    framework.task_started.connect(started)
    framework.task_finished.connect(finished)
    yield told
    framework.task_started.disconnect(started)
    framework.task_finished.disconnect(finished)


def get(result: Any) -> Any:
    return result.task.get_backend().get_result(result.id)


def test_result_of_a_task_that_succeeded(told: Told) -> None:
    result = tasks.add.enqueue(1, right=2)
    before = timezone.now()
    drain()
    assert result.status == Status.READY  # as it was when it was read
    result.refresh()
    assert (result.status, result.return_value, result.is_finished) == (Status.SUCCESSFUL, 3, True)
    assert (result.errors, result.worker_ids, result.attempts) == ([], [WORKER], 1)
    assert result.enqueued_at <= before
    assert result.started_at == result.last_attempted_at is not None
    assert result.finished_at is not None
    assert result == get(result)

    assert told.names() == ["started", "finished"]
    started, finished = (each for _, each in told)
    assert (started.id, started.status, started.worker_ids) == (result.id, Status.RUNNING, [WORKER])
    assert (started.task, started.args, started.kwargs) == (result.task, [1], {"right": 2})
    assert (started.enqueued_at, started.finished_at, started.errors) == (result.enqueued_at, None, [])
    assert before <= started.started_at == started.last_attempted_at <= finished.finished_at
    assert (finished.id, finished.status, finished.return_value) == (result.id, Status.SUCCESSFUL, 3)
    assert finished.attempts == 1


def test_result_of_an_async_task(told: Told) -> None:
    result = tasks.add_async.enqueue(1, 2)
    drain()
    result.refresh()
    assert (result.return_value, result.worker_ids) == (3, [WORKER])
    assert told.names() == ["started", "finished"]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, "a"), {}), ((), {"a": None}), (([1, {"b": 2}],), {"args": 1, "kwargs": 2})],
)
def test_task_gets_the_arguments_that_were_passed(args: Any, kwargs: Any) -> None:
    result = tasks.give_back.enqueue(*args, **kwargs)
    drain()
    assert get(result).return_value == [list(args), kwargs]


def test_result_of_a_task_that_failed_for_good(told: Told) -> None:
    result = tasks.fail_for_good.enqueue()
    drain()
    result.refresh()
    assert (result.status, result.is_finished, result.attempts) == (Status.FAILED, True, 1)
    [error] = result.errors
    assert error.exception_class_path == "awa_django.errors.TerminalError"
    assert error.exception_class.__name__ == "TerminalError"
    assert error.traceback.startswith("Traceback (most recent call last):\n")
    assert error.traceback.endswith("awa_django.errors.TerminalError: no use\n")
    assert "in fail_for_good" in error.traceback
    assert result.finished_at is not None
    with pytest.raises(ValueError, match="Task failed"):
        result.return_value  # noqa: B018
    assert told.names() == ["started", "finished"]
    finished = told[1][1]
    assert (finished.status, finished.errors) == (Status.FAILED, result.errors)
    assert finished.finished_at is not None


@pytest.mark.parametrize(("task", "error"), [("fail", ValueError), ("fail_async", KeyError)])
def test_result_says_each_attempt(task: str, error: type[Exception], told: Told) -> None:
    declared = getattr(tasks, task).using(max_attempts=2, retry=tasks.AGAIN)
    result = declared.enqueue(*(["oh"] if task == "fail" else []))
    run_job(int(result.id))
    result.refresh()
    assert (result.status, result.is_finished, result.attempts) == (Status.READY, False, 1)
    assert [each.exception_class for each in result.errors] == [error]
    assert result.errors[0].exception_class_path == f"builtins.{error.__name__}"
    assert result.finished_at is None
    first_started = result.started_at
    assert told.names() == ["started"]  # it is not finished: it will be run again

    update_job(int(result.id), attempted_at="attempted_at - interval '1 minute'")  # a clock that goes
    run_job(int(result.id))
    result.refresh()
    assert (result.status, result.attempts, result.worker_ids) == (Status.FAILED, 2, [WORKER, WORKER])
    assert [each.exception_class for each in result.errors] == [error, error]
    assert result.started_at == first_started
    assert told.names() == ["started", "started", "finished"]
    assert (told[1][1].attempts, told[1][1].errors) == (2, result.errors[:1])
    assert told[1][1].started_at == first_started
    assert (told[2][1].attempts, told[2][1].errors) == (2, result.errors)


def test_first_start_and_last_attempt_are_told_apart() -> None:
    result = tasks.fail_once.using(retry=tasks.AGAIN).enqueue()
    run_job(int(result.id))
    started = get(result).started_at
    entry = reload_job(int(result.id)).errors[0]
    assert datetime.fromisoformat(entry["attempted_at"]) == started
    run_job(int(result.id))
    update_job(int(result.id), attempted_at="attempted_at + interval '1 minute'")
    result.refresh()
    assert (result.return_value, result.started_at) == (2, started)
    assert result.last_attempted_at == started + timedelta(minutes=1)


def test_instants_are_naive_without_time_zones(settings: Any) -> None:
    result = tasks.fail_once.using(retry=tasks.AGAIN).enqueue()
    run_job(int(result.id))
    aware = get(result).started_at
    settings.USE_TZ = False
    naive = get(result)
    settings.USE_TZ = True
    assert naive.started_at == timezone.make_naive(aware)
    assert naive.enqueued_at == timezone.make_naive(result.enqueued_at)


def test_context_tells_of_its_own_run() -> None:
    result = tasks.tell.enqueue("what")
    drain()
    assert get(result).return_value == [1, result.id, "RUNNING", 0, [WORKER], "what"]
    result = tasks.tell_async.enqueue()
    drain()
    assert get(result).return_value == [1, result.id]


def test_context_tells_of_earlier_attempts() -> None:
    job_id = insert_job(
        kind="tests.declared_tasks.tell",
        args={"args": ["again"], "kwargs": {}},
        attempt=1,
        run_lease=1,
        errors=[{"error": "no", "attempt": 1, "run_lease": 1, "worker": "w1", "outcome": "rescued"}],
    )
    drain()
    [row] = [reload_job(job_id)]
    assert row.result == [2, str(job_id), "RUNNING", 1, ["w1", WORKER], "again"]


def test_context_has_the_job() -> None:
    result = tasks.report.enqueue()
    drain()
    assert get(result).return_value is False


def test_task_can_read_its_own_result() -> None:
    result = tasks.look_at_itself.enqueue()
    drain()
    assert get(result).return_value == ["RUNNING", WORKER, "True"]


@pytest.mark.parametrize(
    ("state", "status", "finished"),
    [
        ("available", Status.READY, False),
        ("scheduled", Status.READY, False),
        ("retryable", Status.READY, False),
        ("running", Status.RUNNING, False),
        ("waiting_external", Status.RUNNING, False),
        ("completed", Status.SUCCESSFUL, True),
        ("failed", Status.FAILED, True),
        ("cancelled", Status.FAILED, True),
    ],
)
def test_status_of_each_state(state: str, status: str, finished: bool) -> None:
    job_id = insert_job(state, kind="tests.declared_tasks.add", args={"args": [1]})
    result = tasks.add.get_result(str(job_id))
    assert (result.status, result.is_finished) == (status, finished)
    assert (result.finished_at is not None) is finished
    assert (result.attempts, result.started_at is not None) == (
        (1, True) if state == "running" else (0, False)
    )


def test_result_of_a_run_whose_worker_died() -> None:
    entry = {"error": "process died (signal 9)", "attempt": 1, "run_lease": 1, "worker": "w1", "outcome": "x"}
    job_id = insert_job("retryable", kind="tests.declared_tasks.add", attempt=1, errors=[entry])
    result = tasks.add.get_result(str(job_id))
    assert (result.status, result.worker_ids) == (Status.READY, ["w1"])
    assert result.errors[0].exception_class_path == "awa_django.errors.AwaError"
    assert issubclass(result.errors[0].exception_class, Exception)
    assert result.errors[0].traceback == "process died (signal 9)"


def test_result_of_a_cancelled_task() -> None:
    result = tasks.add.enqueue(1)
    operations.cancel([int(result.id)], by="ann", reason="ordered twice")
    result.refresh()
    assert (result.status, result.attempts) == (Status.FAILED, 0)


def test_task_that_an_operator_ran_again_keeps_its_past(told: Told) -> None:
    result = tasks.fail_for_good.enqueue()
    drain()
    operations.retry([int(result.id)])
    assert get(result).status == Status.READY
    drain()
    result.refresh()
    assert (result.attempts, len(result.errors)) == (2, 2)
    assert told.names() == ["started", "finished", "started", "finished"]


def test_outcomes_are_the_engines_own(told: Told) -> None:
    snoozed, cancelled = tasks.snooze.enqueue(), tasks.cancel.enqueue()
    drain()
    snoozed.refresh()
    assert (snoozed.status, snoozed.attempts, snoozed.started_at) == (Status.READY, 0, None)
    cancelled.refresh()
    assert (cancelled.status, cancelled.errors[0].traceback) == (Status.FAILED, "not wanted")
    assert told.names() == ["started", "started", "finished"]


def test_result_is_normalized_and_one_that_is_no_json_fails_at_once(told: Told) -> None:
    result = tasks.give_bytes.enqueue("text")
    drain()
    assert get(result).return_value == "text"
    result = tasks.give_unstorable.enqueue()
    drain()
    result.refresh()
    assert (result.status, result.attempts) == (Status.FAILED, 1)
    assert issubclass(result.errors[0].exception_class, TypeError)
    assert "Unsupported type" in result.errors[0].traceback


def test_arguments_that_do_not_fit_fail_as_the_call_does() -> None:
    result = tasks.mail.using(max_attempts=1).enqueue("ann", nobody="knows")
    drain()
    [error] = get(result).errors
    assert (error.exception_class, "unexpected keyword argument" in error.traceback) == (TypeError, True)


def test_receiver_that_raises_changes_nothing(told: Told) -> None:
    heard: list[str] = []

    def raises(**_: object) -> None:
        raise RuntimeError("a broken receiver")

    def hears(task_result: Any, **_: object) -> None:
        heard.append(task_result.id)

    def exits(**_: object) -> None:
        raise SystemExit(3)

    framework.task_started.connect(raises)
    framework.task_finished.connect(raises)
    framework.task_finished.connect(hears)
    framework.task_finished.connect(exits)
    try:
        results = [tasks.add.enqueue(1, 2), tasks.add_async.enqueue(1, 2)]
        drain()
    finally:
        framework.task_started.disconnect(raises)
        for receiver in (raises, hears, exits):
            framework.task_finished.disconnect(receiver)
    assert [get(result).return_value for result in results] == [3, 3]
    assert told.names() == ["started", "finished"] * 2
    assert heard == [result.id for result in results]


def test_frameworks_log_has_the_exception(caplog: pytest.LogCaptureFixture) -> None:
    name = framework.BaseTaskBackend.__module__.split(".backends")[0]
    with caplog.at_level(logging.DEBUG, logger=name):
        tasks.fail_for_good.enqueue()
        drain()
        tasks.fail_async.using(max_attempts=1).enqueue()
        drain()
    errors = [record for record in caplog.records if record.levelno == logging.ERROR and record.name == name]
    assert [record.exc_info[0] for record in errors if record.exc_info] == [TerminalError, KeyError]


@pytest.mark.django_db(transaction=True)
def test_run_without_a_query_tells_the_same_as_the_row(clean_queue: None) -> None:
    result = tasks.add.using(priority=3).enqueue(1, right=2)
    row = reload_job(int(result.id))
    context = JobContext(
        job_id=row.id, kind=row.kind, queue=row.queue, attempt=1, max_attempts=25, run_lease=1,
        metadata=row.metadata, worker="w",
    )  # fmt: skip
    handler = registry.get(row.kind)
    seen: list[Any] = []

    def hear(task_result: Any, **_: object) -> None:
        seen.append(task_result)

    framework.task_finished.connect(hear)
    try:
        handler.ended(context, {"args": [1], "kwargs": {"right": 2}}, Completion(Attempt(row.id, 1), "3"))
    finally:
        framework.task_finished.disconnect(hear)
    [told] = seen
    update_job(
        row.id,
        state="'completed'",
        finalized_at="now()",
        attempt="1",
        worker="'w'",
        result="'3'",
        run_lease="1",
    )
    fresh = get(result)
    for name in ("id", "status", "enqueued_at", "args", "kwargs", "backend", "errors", "worker_ids"):
        assert getattr(told, name) == getattr(fresh, name), name
    assert told.return_value == fresh.return_value == 3


@needs_options
def test_atomic_task_is_finished_when_that_is_stored(told: Told) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE effects (name text, number bigint, pid integer)")
    result = tasks.atomically.enqueue(1)
    seen: list[str] = []

    def look(task_result: Any, **_: object) -> None:
        seen.append(str(tasks.atomically.get_result(task_result.id).status))

    framework.task_finished.connect(look)
    try:
        drain()
    finally:
        framework.task_finished.disconnect(look)
    assert (seen, told.names()) == (["SUCCESSFUL"], ["started", "finished"])
    assert get(result).return_value == 1
