"""AwaBackend: ``django.tasks`` on this queue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from inspect import iscoroutinefunction
from types import ModuleType
from typing import Any, cast

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.db import connections
from django.utils import timezone
from django.utils.module_loading import import_string

from awa_django import registry
from awa_django.conf import get_settings
from awa_django.enqueue import Enqueued, Item, Options, enqueue
from awa_django.enqueue.options import check_name
from awa_django.errors import ConfigurationError, InvalidJob, UniqueConflict
from awa_django.jobs.declare import exception_classes
from awa_django.retry import as_policy
from awa_django.storage.lookup import find_job
from awa_django.tasks_backend import results
from awa_django.tasks_backend.framework import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
)
from awa_django.tasks_backend.handler import TaskHandler, TaskSignature
from awa_django.tasks_backend.task import JOB_OPTIONS, AnyTask, AwaTask, option

# OPTIONS of the backend: what its tasks do not say themselves.
BACKEND_OPTIONS = ("max_attempts", "retry", "timeout")
_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


class AwaBackend(BaseTaskBackend):
    """Tasks as jobs. A task is registered for the workers where it is declared; its result is kept.

    Raises: ConfigurationError naming the key of ``OPTIONS`` that is wrong.
    """

    task_class = AwaTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        unknown = sorted(set(self.options) - set(BACKEND_OPTIONS))
        if unknown:
            raise ConfigurationError(
                f"TASKS[{alias!r}]['OPTIONS'] has no key {unknown[0]!r}: "
                f"the keys are {', '.join(BACKEND_OPTIONS)}"
            )
        try:
            _check_options(self.options)
        except ValueError as exc:
            raise ConfigurationError(f"TASKS[{alias!r}]['OPTIONS']: {exc}") from exc

    def validate_task(self, task: AnyTask) -> None:
        """Refuse a task that cannot run here, and make one known to the workers that can.

        The framework asks where a task is declared, so the registry is filled here.
        """
        super().validate_task(task)
        try:
            check_name(task.queue_name, "queue_name")
            _check_options({name: option(task, name) for name in JOB_OPTIONS})
            known = registry.find(task.module_path)
            if not isinstance(known, TaskHandler) or known.function is not task.func:
                registry.register(self._handler(task))
        except (InvalidJob, ValueError, ConfigurationError) as exc:
            raise InvalidTask(str(exc)) from exc

    def enqueue(self, task: AnyTask, args: Iterable[Any], kwargs: Mapping[str, Any]) -> TaskResult[Any, Any]:
        """Put the task into its queue, in the transaction that is open: it is there if that commits.

        A duplicate of a unique task answers with the result of the one that is there, and sends no signal.

        Raises: InvalidTask; TypeError or ValueError for arguments that are no JSON.
        """
        self.validate_task(task)
        declared = registry.find(task.module_path)
        assert isinstance(declared, TaskHandler)
        enqueued_at = timezone.now()
        run_after = task.run_after
        if run_after is not None and timezone.is_naive(run_after):  # allowed without USE_TZ
            run_after = timezone.make_aware(run_after)
        changed: dict[str, Any] = {
            name: value
            for name in JOB_OPTIONS
            if (value := option(task, name)) not in (None, option(declared.task, name))
        }
        handler = replace(
            declared, queue=task.queue_name, priority=results.MIDDLE_PRIORITY - int(task.priority)
        )
        enqueued = enqueue(
            Item(
                handler=handler,
                arguments=handler.bind(tuple(args), kwargs),
                options=Options(
                    run_at=run_after,
                    metadata=results.metadata_of(
                        backend=self.alias, enqueued_at=enqueued_at, run_after=task.run_after
                    ),
                    **changed,
                ),
            )
        )
        if not enqueued.created:
            return self._holder(enqueued)
        result = self._ready(task, enqueued.id, enqueued_at, args, kwargs)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult[Any, Any]:
        """The task with this id as it is now.

        Raises: TaskResultDoesNotExist when there is none of this backend (or it was deleted after its
        retention), and when it is a job that no task declares.
        """
        if _ID.fullmatch(str(result_id)) and int(result_id) < 2**63:
            row = find_job(connections[get_settings().database], int(result_id))
            if row is not None and results.backend_of(row.metadata) in (None, self.alias):
                handler = registry.find(row.kind)
                if isinstance(handler, TaskHandler):
                    return results.of_row(handler.task, row, backend=self.alias)
        raise TaskResultDoesNotExist(result_id)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """What is wrong with this entry of ``TASKS``."""
        return [*super().check(**kwargs), *self._messages()]

    def _messages(self) -> Iterator[CheckMessage]:
        if not apps.is_installed("awa_django"):
            yield Error(
                f"TASKS[{self.alias!r}] is {type(self).__name__}, but its app is not installed.",
                hint="Add 'awa_django' to INSTALLED_APPS and run `manage.py migrate`.",
                id="awa.E005",
            )
        for name in sorted(map(str, self.queues)):
            try:
                check_name(name, "a queue")
            except InvalidJob as exc:
                yield Error(f"TASKS[{self.alias!r}]['QUEUES']: {exc}", id="awa.E006")

    def _handler(self, task: AnyTask) -> TaskHandler:
        kind = task.module_path
        check_name(kind, "the module path")
        aliases = option(task, "aliases") or ()
        if isinstance(aliases, str):
            raise ValueError(f"aliases must be a list of module paths, not {aliases!r}")
        for alias in aliases:
            check_name(alias, "each of aliases")
        if option(task, "atomic") and iscoroutinefunction(task.func):
            raise ValueError("atomic=True needs a sync function, as transactions do")
        retry, retry_on = self._option(task, "retry"), option(task, "retry_on")
        return TaskHandler(
            kind=kind,
            function=task.func,
            signature=TaskSignature(task.func, kind=kind, takes_context=task.takes_context),
            is_async=iscoroutinefunction(task.func),
            queue=task.queue_name,
            priority=results.MIDDLE_PRIORITY - int(task.priority),
            declared_max_attempts=self._option(task, "max_attempts"),
            declared_retry=None if retry is None else as_policy(retry),
            declared_timeout=Options(timeout=self._option(task, "timeout")).timeout,  # type: ignore[arg-type]
            max_age=Options(max_age=option(task, "max_age")).max_age,  # type: ignore[arg-type]
            retry_on=None if retry_on is None else exception_classes(retry_on, "retry_on"),
            discard_on=exception_classes(option(task, "discard_on") or (), "discard_on"),
            unique=option(task, "unique"),
            tags=tuple(option(task, "tags") or ()),
            takes_context=True,  # of the job; whether the task takes its own is the task's
            atomic=bool(option(task, "atomic")),
            keep_result=True,
            aliases=tuple(aliases),
            task=task,
        )

    def _option(self, task: AnyTask, name: str) -> Any:
        own = option(task, name)
        return self.options.get(name) if own is None else own

    def _ready(
        self,
        task: AnyTask,
        job_id: int,
        enqueued_at: datetime,
        args: Iterable[Any],
        kwargs: Mapping[str, Any],
    ) -> TaskResult[Any, Any]:
        """The result of a task that was just enqueued."""
        return TaskResult(
            task=task,
            id=str(job_id),
            status=TaskResultStatus.READY,
            enqueued_at=enqueued_at,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    def _holder(self, enqueued: Enqueued) -> TaskResult[Any, Any]:
        try:
            return self.get_result(str(enqueued.id))
        except TaskResultDoesNotExist as exc:
            raise UniqueConflict(
                f"job {enqueued.id} held the unique key of this task and is gone: try again",
                holder_id=enqueued.id,
            ) from exc


def load(modules: Iterable[ModuleType]) -> None:
    """Tell the registry what workers need to know beyond the tasks declared for our backends.

    The backends' queues, and tasks in these modules that are declared for other backends: with
    ``using(backend=...)`` they come here all the same.
    """
    ours = [
        alias
        for alias, params in task_backends.settings.items()
        if isinstance(found := import_string(params["BACKEND"]), type) and issubclass(found, AwaBackend)
    ]
    for alias in ours:
        registry.add_queues(task_backends[alias].queues)
    for module in modules:
        for value in list(vars(module).values()):
            if ours and isinstance(value, Task) and registry.find(value.module_path) is None:
                backend = cast("AwaBackend", task_backends[ours[0]])
                registry.register(backend._handler(value))


def _check_options(options: Mapping[str, Any]) -> None:
    """Raises: ValueError (InvalidJob is one) naming the option."""
    retry = options.get("retry")
    if retry is not None:
        as_policy(retry)
    given = {name: value for name, value in options.items() if name != "retry" and value is not None}
    Options(**given)
