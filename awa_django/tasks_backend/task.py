"""AwaTask: the framework's Task with the options of a job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from awa_django.jobs.declare import Exceptions
from awa_django.retry import Retry, RetryPolicy
from awa_django.tasks_backend.framework import Task
from awa_django.unique import Unique

# What a task may ask for beyond the framework's own options, for one enqueue too.
JOB_OPTIONS = ("max_attempts", "retry", "timeout", "max_age", "unique", "tags")


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaTask(Task):  # type: ignore[type-arg]
    """A task whose jobs may be declared as ``@job`` declares them: ``@task(max_attempts=5, ...)``.

    ``aliases`` are module paths that it had before; ``atomic`` completes it in the transaction that it
    runs in. What is None is the backend's (``OPTIONS``), else the setting's (``AWA``).
    """

    max_attempts: int | None = None
    retry: Retry | None = None
    timeout: timedelta | float | None = None
    max_age: timedelta | float | None = None
    unique: Unique | None = None
    tags: tuple[str, ...] = ()
    retry_on: Exceptions | None = None
    discard_on: Exceptions = ()
    atomic: bool = False
    aliases: tuple[str, ...] = ()

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        max_attempts: int | None = None,
        retry: RetryPolicy | None = None,
        timeout: timedelta | float | None = None,
        max_age: timedelta | float | None = None,
        unique: Unique | None = None,
        tags: Iterable[str] | None = None,
    ) -> AwaTask:
        """This task with other options; what is None stays as it is."""
        given = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
            "max_attempts": max_attempts,
            "retry": retry,
            "timeout": timeout,
            "max_age": max_age,
            "unique": unique,
            "tags": tags,
        }
        return replace(self, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


AnyTask: TypeAlias = "Task[Any, Any]"


def option(task: AnyTask, name: str) -> Any:
    """An option of AwaTask; None on a task that another backend declared."""
    return getattr(task, name, None)


def variant(task: AnyTask, **changes: object) -> AnyTask:
    """The task as a stored row has it: not validated again, as a queue may be gone from the settings."""
    made = object.__new__(type(task))
    for each in fields(task):
        object.__setattr__(made, each.name, changes.get(each.name, getattr(task, each.name)))
    return made
