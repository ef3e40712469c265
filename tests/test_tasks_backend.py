"""The django.tasks backend: what is enqueued, and the job that comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import transaction
from django.utils import timezone

from awa_django import InvalidJob, Unique
from awa_django.states import JobState
from awa_django.testing import drain
from tests.factories import insert_job, reload_job
from tests.tasks_support import (
    BACKEND,
    AwaBackend,
    framework,
    needs_options,
    tasks,
    tasks_setting,
)

__all__ = ["tasks_setting"]
pytestmark = pytest.mark.django_db

READY = framework.TaskResultStatus.READY


@pytest.fixture
def enqueued() -> Iterator[list[tuple[type, Any]]]:
    """What ``task_enqueued`` told."""
    told: list[tuple[type, Any]] = []

    def hear(sender: type, task_result: Any, **_: object) -> None:
        told.append((sender, task_result))

    framework.task_enqueued.connect(hear)
    yield told
    framework.task_enqueued.disconnect(hear)


def backend(alias: str = "default") -> Any:
    return framework.task_backends[alias]


def test_backend_supports_everything() -> None:
    assert isinstance(backend(), AwaBackend)
    assert backend().supports_defer
    assert backend().supports_async_task
    assert backend().supports_get_result
    assert backend().supports_priority
    assert isinstance(tasks.add, framework.Task)
    assert backend().check() == []


def test_enqueue_makes_a_job_that_waits() -> None:
    before = timezone.now()
    result = tasks.add.enqueue(1, right=[2, {"a": None}])
    row = reload_job(int(result.id))
    assert (row.kind, row.queue, row.state) == ("tests.declared_tasks.add", "default", JobState.AVAILABLE)
    assert row.args == {"args": [1], "kwargs": {"right": [2, {"a": None}]}}
    assert (row.priority, row.max_attempts, row.tags) == (2, 25, [])
    assert isinstance(result.id, str)
    assert (result.task, result.status, result.backend) == (tasks.add, READY, "default")
    assert (result.args, result.kwargs) == ([1], {"right": [2, {"a": None}]})
    assert before <= result.enqueued_at <= timezone.now()
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
    assert (result.errors, result.worker_ids, result.attempts, result.is_finished) == ([], [], 0, False)
    with pytest.raises(ValueError, match="not finished"):
        result.return_value  # noqa: B018


def test_enqueue_async_and_get_result_async() -> None:
    async def work() -> tuple[Any, Any]:
        result = await tasks.add.aenqueue(1, 2)
        fresh = await tasks.add.aget_result(result.id)
        await result.arefresh()
        return result, fresh

    result, fresh = async_to_sync(work)()
    assert fresh == result
    assert fresh.status == READY


def test_enqueue_by_the_backend_itself() -> None:
    result = backend().enqueue(tasks.add, (1,), {"right": 2})
    assert backend().get_result(result.id) == result
    result = async_to_sync(backend().aenqueue)(tasks.add, [3], {})
    assert async_to_sync(backend().aget_result)(result.id).args == [3]


def test_enqueue_rolls_back_with_its_transaction() -> None:
    def enqueue_and_fail() -> None:
        with transaction.atomic():
            results.append(tasks.add.enqueue(1))
            assert tasks.add.get_result(results[0].id) == results[0]
            raise LookupError

    results: list[Any] = []
    with pytest.raises(LookupError):
        enqueue_and_fail()
    assert reload_job(int(results[0].id)) is None
    with pytest.raises(framework.TaskResultDoesNotExist):
        tasks.add.get_result(results[0].id)


def test_enqueue_tells_by_signal(enqueued: list[tuple[type, Any]]) -> None:
    result = tasks.add.enqueue(1)
    assert [(sender, told.id, told.status) for sender, told in enqueued] == [(AwaBackend, result.id, READY)]


@pytest.mark.parametrize(
    ("given", "stored"), [((1, 2), [1, 2]), (b"text", "text"), ({"a": (1,)}, {"a": [1]})]
)
def test_arguments_are_normalized_as_the_framework_does(given: Any, stored: Any) -> None:
    result = tasks.give_back.enqueue(given, named=given)
    assert (result.args, result.kwargs) == ([stored], {"named": stored})
    assert reload_job(int(result.id)).args == {"args": [stored], "kwargs": {"named": stored}}
    assert tasks.give_back.get_result(result.id) == result


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (object(), TypeError),
        (timezone, TypeError),
        (datetime(2026, 1, 1, tzinfo=UTC), TypeError),
        ({1, 2}, TypeError),
        (b"\xff", ValueError),
        ({1: "a key that would come back as text"}, InvalidJob),
        ("a NUL \x00", InvalidJob),
        (float("nan"), InvalidJob),
        (2**64, InvalidJob),
    ],
)
def test_arguments_that_would_not_come_back_are_refused(
    given: Any, error: type[Exception], enqueued: list[tuple[type, Any]]
) -> None:
    with pytest.raises(error):
        tasks.give_back.enqueue(given)
    with pytest.raises(error):
        async_to_sync(tasks.give_back.aenqueue)(named=given)
    assert enqueued == []
    assert drain() == []


@pytest.mark.parametrize(("priority", "stored"), [(-100, 102), (-1, 3), (0, 2), (1, 1), (100, -98)])
def test_priority_is_turned_round(priority: int, stored: int) -> None:
    result = tasks.add.using(priority=priority).enqueue(1)
    assert reload_job(int(result.id)).priority == stored
    assert backend().get_result(result.id).task.priority == priority


def test_higher_priority_runs_first() -> None:
    ids = [int(tasks.add.using(priority=each).enqueue(1, 1).id) for each in (0, -100, 100, 5)]
    assert [run.id for run in drain()] == [ids[2], ids[3], ids[0], ids[1]]


def test_queue_and_options_of_the_declaration() -> None:
    row = reload_job(int(tasks.mail.enqueue("ann").id))
    assert (row.queue, row.priority) == ("mail", -5)
    row = reload_job(int(tasks.mail.using(queue_name="default", priority=0).enqueue("ann").id))
    assert (row.queue, row.priority) == ("default", 2)


def test_queue_gone_from_the_settings_is_refused_at_enqueue(settings: Any) -> None:
    task = tasks.add.using(queue_name="mail")
    result = task.enqueue(1)
    settings.TASKS = {"default": {"BACKEND": BACKEND}}
    with pytest.raises(framework.InvalidTask, match="mail"):
        task.enqueue(1)
    assert backend().get_result(result.id).task.queue_name == "mail"


def test_backend_without_queues_takes_any_queue_that_can_be_stored() -> None:
    assert reload_job(int(tasks.elsewhere.enqueue().id)).queue == "anything"
    with pytest.raises(framework.InvalidTask, match="queue_name must be a string of 1 to 200"):
        tasks.elsewhere.using(queue_name="x" * 201)


def test_run_after_defers() -> None:
    later = timezone.now() + timedelta(hours=1)
    result = tasks.add.using(run_after=later).enqueue(1)
    row = reload_job(int(result.id))
    assert (row.state, row.run_at) == (JobState.SCHEDULED, later)
    assert (result.status, result.task.run_after) == (READY, later)
    assert backend().get_result(result.id) == result


def test_run_after_that_has_passed_is_due() -> None:
    result = tasks.add.using(run_after=timezone.now() - timedelta(hours=1)).enqueue(1, 1)
    assert [run.id for run in drain()] == [int(result.id)]


def test_naive_run_after_without_time_zones_is_local(settings: Any) -> None:
    settings.USE_TZ = False
    settings.TIME_ZONE = "Europe/Madrid"
    later = datetime(2100, 1, 1, 12)
    result = tasks.add.using(run_after=later).enqueue(1)
    fresh = backend().get_result(result.id)
    settings.USE_TZ = True
    assert reload_job(int(result.id)).run_at == datetime(2100, 1, 1, 11, tzinfo=UTC)
    assert (fresh.task.run_after, fresh.enqueued_at) == (later, result.enqueued_at)
    assert result.enqueued_at.tzinfo is None


def test_result_of_an_unknown_id() -> None:
    for result_id in ("0", "1", "-1", "abc", "", "1.0", " 1", "\u0661", "9" * 18, "9" * 19, "9" * 40):
        with pytest.raises(framework.TaskResultDoesNotExist):
            backend().get_result(result_id)
        with pytest.raises(framework.TaskResultDoesNotExist):
            async_to_sync(backend().aget_result)(result_id)


def test_result_of_a_job_that_is_no_task() -> None:
    job_id = insert_job(kind="tests.handlers.nothing")
    with pytest.raises(framework.TaskResultDoesNotExist):
        backend().get_result(str(job_id))


def test_result_of_another_backend_and_another_task() -> None:
    result = tasks.elsewhere.enqueue()
    assert (result.backend, backend("other").get_result(result.id)) == ("other", result)
    with pytest.raises(framework.TaskResultDoesNotExist):
        backend().get_result(result.id)
    result = tasks.add.enqueue(1)
    with pytest.raises(Exception, match="Task does not match") as caught:
        tasks.mail.get_result(result.id)
    assert type(caught.value).__name__ == "TaskResultMismatch"


def test_row_of_another_client_is_a_task_too() -> None:
    job_id = insert_job(kind="tests.declared_tasks.add", args={"args": [1, 2]})
    drain()
    result = backend().get_result(str(job_id))
    assert (result.return_value, result.args, result.kwargs) == (3, [1, 2], {})
    assert result.enqueued_at is not None


@pytest.mark.parametrize("args", [{"left": 1}, {"args": {}, "kwargs": {}}, {"args": [], "kwargs": []}])
def test_row_of_other_arguments_fails_alone(args: dict[str, Any]) -> None:
    insert_job(kind="tests.declared_tasks.add", args=args, max_attempts=1)
    [run] = drain()
    assert run.outcome == "failed"
    assert "must be" in str(run.error)


def test_options_of_one_enqueue() -> None:
    task = tasks.add.using(max_attempts=3, timeout=7, retry=tasks.AGAIN, tags=["spring"])
    row = reload_job(int(task.enqueue(1).id))
    assert (row.max_attempts, row.tags, row.metadata["awa:timeout"]) == (3, ["spring"], 7.0)
    assert "awa:retry" in row.metadata
    for wrong in ({"max_attempts": 0}, {"tags": "spring"}, {"unique": True}, {"retry": 1}, {"timeout": 0}):
        with pytest.raises(framework.InvalidTask, match=next(iter(wrong))):
            tasks.add.using(**wrong)


@needs_options
def test_unique_task_answers_with_the_one_that_is_there(enqueued: list[tuple[type, Any]]) -> None:
    first = tasks.with_options.enqueue(1)
    assert tasks.with_options.enqueue(number=1, other="y") == first
    assert tasks.with_options.enqueue(2).id != first.id
    assert len(enqueued) == 2
    drain()
    assert tasks.with_options.enqueue(1).id != first.id


def test_unique_counts_defaults_and_positions_as_names() -> None:
    task = tasks.add.using(unique=Unique(args=True))
    first = task.enqueue(1)
    assert task.enqueue(left=1, right=0).id == first.id
    assert task.enqueue(1, 1).id != first.id
    free = tasks.give_back.using(unique=Unique(args=True))
    assert free.enqueue(1, a=1).id == free.enqueue(1, a=1).id != free.enqueue(1, a=2).id
    with pytest.raises(InvalidJob, match="missing a required argument"):
        task.enqueue()


def test_enqueue_inside_of_an_async_view() -> None:
    async def view() -> Any:
        return await sync_to_async(tasks.add.enqueue)(1)

    assert reload_job(int(async_to_sync(view)().id)).state == JobState.AVAILABLE
