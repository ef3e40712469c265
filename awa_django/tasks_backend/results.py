"""TaskResult of a job: from its stored row, or from the run that is under way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple, cast

from django.conf import settings
from django.db import connections
from django.utils import timezone

from awa_django.codec import JSON
from awa_django.conf import get_settings
from awa_django.context import JobContext
from awa_django.states import JobState
from awa_django.storage.lookup import StoredJob, find_job
from awa_django.storage.rows import Completion, Ending
from awa_django.tasks_backend.framework import TaskError, TaskResult, TaskResultStatus
from awa_django.tasks_backend.task import AnyTask, variant

# Where a job's metadata keep what only the framework knows of it.
METADATA = "django.tasks"
# The priority of a job whose task has priority 0: the lower the job's, the sooner it runs.
MIDDLE_PRIORITY = 2
# An attempt that no exception ended (its worker died, an operator cancelled it) still needs a class.
NO_EXCEPTION = "awa_django.errors.AwaError"

_STATUS = {
    JobState.SCHEDULED: TaskResultStatus.READY,
    JobState.AVAILABLE: TaskResultStatus.READY,
    JobState.RETRYABLE: TaskResultStatus.READY,
    JobState.RUNNING: TaskResultStatus.RUNNING,
    JobState.WAITING_EXTERNAL: TaskResultStatus.RUNNING,
    JobState.COMPLETED: TaskResultStatus.SUCCESSFUL,
    JobState.FAILED: TaskResultStatus.FAILED,
    JobState.CANCELLED: TaskResultStatus.FAILED,
}
# In these the newest run has no entry among the errors.
_WITHOUT_ENTRY = {JobState.RUNNING, JobState.WAITING_EXTERNAL, JobState.COMPLETED}


class _Run(NamedTuple):
    worker: str
    started_at: datetime | None


def metadata_of(*, backend: str, enqueued_at: datetime, run_after: datetime | None) -> dict[str, JSON]:
    """What is stored with a task's job, beside the job."""
    facts: dict[str, JSON] = {"backend": backend, "enqueued_at": enqueued_at.isoformat()}
    if run_after is not None:
        facts["run_after"] = run_after.isoformat()
    return {METADATA: facts}


def backend_of(metadata: str | None) -> str | None:
    """The alias that the job was enqueued by; None of one that something else inserted."""
    alias = _facts(json.loads(metadata or "{}")).get("backend")
    return alias if isinstance(alias, str) else None


def of_row(task: AnyTask, row: StoredJob, *, backend: str) -> TaskResult[Any, Any]:
    """The result as the row says it."""
    state = JobState(row.state)
    facts = _facts(json.loads(row.metadata))
    stored = json.loads(row.args)
    entries = [entry for entry in json.loads(row.errors) if isinstance(entry, dict)]
    runs = _runs(row, state, entries)
    result: TaskResult[Any, Any] = TaskResult(
        task=variant(
            task,
            backend=backend,
            queue_name=row.queue,
            priority=MIDDLE_PRIORITY - row.priority,
            run_after=_instant(facts.get("run_after")),
        ),
        id=str(row.id),
        status=_STATUS[state],
        enqueued_at=_instant(facts.get("enqueued_at")) or row.created_at,
        started_at=runs[0].started_at if runs else None,
        last_attempted_at=runs[-1].started_at if runs else None,
        finished_at=row.finalized_at,
        args=stored.get("args", []),
        kwargs=stored.get("kwargs", {}),
        backend=backend,
        errors=[_error(entry) for entry in entries],
        worker_ids=[run.worker for run in runs],
    )
    if row.result is not None:
        _set(result, _return_value=json.loads(row.result))
    return result


def of_run(task: AnyTask, context: JobContext, arguments: Mapping[str, object]) -> TaskResult[Any, Any]:
    """The result of the run under way. Asks the database only for what earlier runs left there."""
    facts = _facts(context.metadata)
    backend = str(facts.get("backend", task.backend))
    if context.run_lease > 1:
        row = find_job(connections[get_settings().database], context.job_id)
        if row is not None:
            return of_row(task, row, backend=backend)
    started_at = _as_django(context.started_at)
    return TaskResult(
        task=variant(
            task, backend=backend, queue_name=context.queue, run_after=_instant(facts.get("run_after"))
        ),
        id=str(context.job_id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=_instant(facts.get("enqueued_at")),
        started_at=started_at,
        last_attempted_at=started_at,
        finished_at=None,
        args=cast("list[Any]", arguments["args"]),
        kwargs=cast("dict[str, Any]", arguments["kwargs"]),
        backend=backend,
        errors=[],
        worker_ids=[context.worker],
    )


def of_end(
    task: AnyTask, context: JobContext, arguments: Mapping[str, object], outcome: Completion | Ending
) -> TaskResult[Any, Any]:
    """The result of a run that has ended so, as the row will say it when that is written."""
    result = of_run(task, context, arguments)
    _set(result, finished_at=timezone.now())
    if isinstance(outcome, Completion):
        value = None if outcome.result is None else json.loads(outcome.result)
        _set(result, status=TaskResultStatus.SUCCESSFUL, _return_value=value)
        return result
    _set(result, status=TaskResultStatus.FAILED)
    if outcome.entry is not None:
        result.errors.append(_error(json.loads(outcome.entry)))
    return result


def _runs(row: StoredJob, state: JobState, entries: list[dict[str, Any]]) -> list[_Run]:
    """Every run that counted: those that left an entry, and the newest one where it has none."""
    runs = [
        _Run(str(entry["worker"]), _instant(entry.get("attempted_at")) or row.attempted_at)
        for entry in entries
        if "run_lease" in entry and entry.get("worker")
    ]
    if state in _WITHOUT_ENTRY and row.worker:
        runs.append(_Run(row.worker, row.attempted_at))
    return runs


def _error(entry: Mapping[str, Any]) -> TaskError:
    path = str(entry.get("class") or NO_EXCEPTION)
    return TaskError(
        exception_class_path=path if "." in path else f"builtins.{path}",
        traceback=str(entry.get("traceback") or entry.get("error") or ""),
    )


def _facts(metadata: Mapping[str, JSON]) -> Mapping[str, JSON]:
    facts = metadata.get(METADATA)
    return facts if isinstance(facts, dict) else {}


def _instant(text: object) -> datetime | None:
    try:
        return _as_django(datetime.fromisoformat(text)) if isinstance(text, str) else None
    except ValueError:
        return None


def _as_django(instant: datetime) -> datetime:
    """As the settings want their instants: naive without ``USE_TZ``."""
    if settings.USE_TZ or timezone.is_naive(instant):
        return instant
    return timezone.make_naive(instant)


def _set(result: TaskResult[Any, Any], **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)
