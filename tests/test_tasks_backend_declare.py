"""The django.tasks backend: what may be declared, and what workers know of it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.apps import apps

from awa_django import Unique, registry
from awa_django.checks import check_declarations
from awa_django.errors import ConfigurationError
from awa_django.handler import Handler
from awa_django.testing import drain
from tests.factories import insert_job, reload_job
from tests.tasks_support import (
    TASKS,
    AwaBackend,
    AwaTask,
    framework,
    load,
    needs_options,
    tasks,
    tasks_setting,
)

__all__ = ["tasks_setting"]
pytestmark = pytest.mark.django_db


def backend(alias: str = "default") -> Any:
    return framework.task_backends[alias]


def declare(function: Any, **options: Any) -> Any:
    given: dict[str, Any] = {"queue_name": "default", "backend": "default", "priority": 0, "run_after": None}
    return AwaTask(func=function, **given | options)


@pytest.mark.parametrize("priority", [-101, 101, 1.5])
def test_priority_out_of_range_is_refused(priority: Any) -> None:
    with pytest.raises(framework.InvalidTask, match="priority must be a whole number"):
        tasks.add.using(priority=priority)


def test_queue_that_the_backend_does_not_have_is_refused() -> None:
    with pytest.raises(framework.InvalidTask, match="Queue 'nowhere' is not valid for backend"):
        tasks.add.using(queue_name="nowhere")


def test_naive_run_after_is_refused() -> None:
    with pytest.raises(framework.InvalidTask, match="must be an aware datetime"):
        tasks.add.using(run_after=datetime(2100, 1, 1))


def test_function_inside_of_another_is_refused() -> None:
    def inner() -> None: ...

    for function in (inner, lambda: None, print, Unique):
        with pytest.raises(framework.InvalidTask, match="must be defined at a module level"):
            declare(function)


def test_function_without_the_context_is_refused() -> None:
    with pytest.raises(framework.InvalidTask, match="does not have a first argument of 'context'"):
        declare(tasks.not_declared, takes_context=True)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"aliases": "shop.old"}, "aliases must be a list"),
        ({"aliases": ["a" * 201]}, "each of aliases must be"),
        ({"atomic": True}, "needs a sync function"),
        ({"retry_on": "ValueError"}, "retry_on must be exception classes"),
        ({"discard_on": (BaseException,)}, "discard_on must be exception classes"),
        ({"max_age": 0}, "max_age must be"),
        ({"retry": 5}, "retry must be a policy"),
        ({"max_attempts": 0}, "max_attempts must be an integer between 1 and 1000"),
        ({"queue_name": ""}, "Queue '' is not valid"),
    ],
)
def test_wrong_option_of_a_declaration_is_named(options: dict[str, Any], error: str) -> None:
    with pytest.raises(framework.InvalidTask, match=error):
        declare(tasks.not_declared, **options)
    assert registry.find("tests.declared_tasks.not_declared") is None


def test_task_is_a_handler_from_its_declaration_on() -> None:
    handler = registry.get("tests.declared_tasks.mail")
    assert (handler.function, handler.queue, handler.priority) == (tasks.mail.func, "mail", -5)
    tasks.mail.using(queue_name="default", priority=0)
    assert registry.get("tests.declared_tasks.mail") is handler
    assert check_declarations() == []


def test_kind_of_a_job_is_refused_to_a_task() -> None:
    handler = registry.register(
        Handler(
            kind="tests.declared_tasks.Group.function",
            function=declare,
            signature=registry.get("tests.declared_tasks.mail").signature,
        )
    )
    try:
        with pytest.raises(framework.InvalidTask, match="declared twice"):
            declare(tasks.Group.function)
    finally:
        registry.unregister(handler)
    assert declare(tasks.Group.function).enqueue().status == "READY"
    registry.unregister(registry.get("tests.declared_tasks.Group.function"))


def test_task_of_another_backend_is_run_there() -> None:
    assert tasks.of_another_backend.enqueue().return_value == "done here"
    assert tasks.add.using(backend="immediate").enqueue(1, 2).return_value == 3
    assert drain() == []


def test_loading_finds_what_may_be_moved_here_and_the_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_handlers", {})
    monkeypatch.setattr(registry, "_queues", set())
    load([tasks])
    assert registry.find("tests.declared_tasks.of_another_backend") is not None
    assert {"default", "mail", "no-task"} <= set(registry.queues())
    result = tasks.of_another_backend.using(backend="default").enqueue()
    [run] = drain()
    assert (run.id, run.outcome) == (int(result.id), "completed")


def test_app_loads_the_backends_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_queues", set())
    apps.get_app_config("awa").ready()
    assert "no-task" in registry.queues()


def test_options_of_the_backend_are_those_of_its_tasks() -> None:
    row = reload_job(int(tasks.elsewhere.enqueue().id))
    assert row.max_attempts == 2
    assert registry.get(row.kind).timeout == timedelta(seconds=30)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_attempt": 1}, r"TASKS\['x'\]\['OPTIONS'\] has no key 'max_attempt'"),
        ({"max_attempts": 0}, "max_attempts must be an integer between 1 and 1000"),
        ({"retry": "linear"}, "retry must be a policy"),
        ({"timeout": -1}, "timeout"),
    ],
)
def test_wrong_option_of_the_backend_is_named(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        AwaBackend("x", {"OPTIONS": options})


def test_check_names_the_queue_that_cannot_be_and_the_missing_app(settings: Any) -> None:
    [message] = AwaBackend("x", {"QUEUES": ["a" * 201]}).check()
    assert (message.id, "TASKS['x']['QUEUES']" in message.msg) == ("awa.E006", True)
    settings.INSTALLED_APPS = [name for name in settings.INSTALLED_APPS if name != "awa_django"]
    assert [message.id for message in backend().check()] == ["awa.E005"]


@needs_options
def test_options_of_the_declaration() -> None:
    result = tasks.with_options.enqueue(1)
    row = reload_job(int(result.id))
    assert (row.max_attempts, row.tags) == (5, ["a"])
    assert set(row.metadata) == {"django.tasks"}
    handler = registry.get(row.kind)
    assert (handler.retry, handler.timeout) == (tasks.AGAIN, timedelta(seconds=20))


@needs_options
def test_task_runs_the_rows_of_its_older_name() -> None:
    job_id = insert_job(kind="shop.old_name", args={"args": [], "kwargs": {}})
    drain()
    assert backend().get_result(str(job_id)).return_value == "new"


def test_settings_are_json_that_a_worker_can_read() -> None:
    assert json.loads(json.dumps(TASKS)) == TASKS


def test_task_says_how_its_failures_end_as_a_job_does() -> None:
    declared = declare(
        tasks.not_declared,
        retry=lambda attempt: 7 * attempt,
        retry_on=(OSError, KeyError),
        discard_on=LookupError,
        max_age=60,
    )
    handler = registry.get("tests.declared_tasks.not_declared")
    try:
        assert handler.retry.delay(2) == timedelta(seconds=14)
        assert (handler.retry_on, handler.discard_on) == ((OSError, KeyError), (LookupError,))
        assert handler.max_age == timedelta(minutes=1)
        assert handler.sender is declared
    finally:
        registry.unregister(handler)
