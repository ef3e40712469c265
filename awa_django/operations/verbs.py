"""What an operator does to jobs: cancel, retry, run now, reschedule, set priority, move, delete."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from functools import partial

from django.db import connections

from awa_django.codec import clean_text
from awa_django.conf import get_settings
from awa_django.enqueue import Item, find_holder
from awa_django.operations.batches import operate_on
from awa_django.operations.limits import LONGEST_NAME, check_instant, check_priority, check_queue
from awa_django.operations.results import OperationResult
from awa_django.states import TERMINAL_STATES, JobState
from awa_django.storage import operate
from awa_django.storage.operate import Located
from awa_django.storage.wake import wake


def cancel(
    job_ids: int | Iterable[int], *, by: str | None = None, reason: str = "", using: str | None = None
) -> OperationResult:
    """Cancel jobs that have not ended.

    A running handler learns of it with its worker's next heartbeat, and its outcome is dropped; the
    error entry of its attempt says who cancelled it (``by``) and why.
    """
    entry = {
        "error": clean_text(f"cancelled: {reason}" if reason else "cancelled by an operator", 1000),
        "class": "Cancelled",
        "outcome": "cancelled",
        "by": clean_text(by, LONGEST_NAME) if by else None,
    }
    return operate_on(
        job_ids,
        using,
        partial(operate.cancel_hot, entry=json.dumps(entry)),
        operate.cancel_deferred,
        explain=lambda job: _is(job) if job.state in TERMINAL_STATES else None,
    )


def cancel_holder(item: Item, *, by: str | None = None, reason: str = "") -> int | None:
    """Cancel the job that holds the unique key which the item (``job.item(...)``) would take; its id.

    None when no job holds it, or one that has ended. Raises: as ``find_holder``.
    """
    left: int | None = None
    # A holder may end between the two statements, and another job take the key: that one is meant too.
    while (holder_id := find_holder(item)) not in (None, left):
        assert holder_id is not None
        if cancel(holder_id, by=by, reason=reason).changed:
            return holder_id
        left = holder_id
    return None


def retry(job_ids: int | Iterable[int], *, using: str | None = None) -> OperationResult:
    """Make failed and cancelled jobs available again, with all their attempts.

    A job whose unique key another job holds by now is refused.
    """
    return operate_on(
        job_ids,
        using,
        operate.retry_ended,
        explain=lambda job: None if job.state in (JobState.FAILED, JobState.CANCELLED) else _is(job),
        wakes=True,
    )


def run_now(job_ids: int | Iterable[int], *, using: str | None = None) -> OperationResult:
    """Make scheduled and retryable jobs available at once."""
    return operate_on(job_ids, using, operate.run_now, explain=_unless_deferred, wakes=True)


def reschedule(
    job_ids: int | Iterable[int], run_at: datetime, *, using: str | None = None
) -> OperationResult:
    """Change when jobs that have not started are due.

    A deferred job given an instant that has come is promoted at once; an available job is refused
    then, as it can run already.

    Raises:
        ValueError: ``run_at`` is naive, or outside 0001-02-01 to 9999-12-01.
    """
    check_instant("run_at", run_at)

    def explain(job: Located) -> str | None:
        return None if job.state == JobState.AVAILABLE else _unless_deferred(job)

    return operate_on(
        job_ids,
        using,
        partial(operate.reschedule_available, run_at=run_at),
        partial(operate.reschedule_deferred, run_at=run_at),
        explain=explain,
        at_last="is available, and run_at has come (or it kept moving on: try again)",
    )


def set_priority(job_ids: int | Iterable[int], priority: int, *, using: str | None = None) -> OperationResult:
    """Set the priority of jobs that have not ended; a lower one runs sooner.

    Raises:
        ValueError: the priority is not between -98 and 102.
    """
    check_priority(priority)
    return operate_on(
        job_ids,
        using,
        partial(operate.set_priority_hot, priority=priority),
        partial(operate.set_priority_deferred, priority=priority),
        explain=lambda job: _is(job) if job.state in TERMINAL_STATES else None,
    )


def move_queue(job_ids: int | Iterable[int], queue: str, *, using: str | None = None) -> OperationResult:
    """Move jobs that have not started to another queue.

    A job with a unique key is refused: the key may be made from the queue.

    Raises:
        ValueError: the name of the queue is empty, too long or has a NUL.
    """
    check_queue(queue)

    def explain(job: Located) -> str | None:
        if job.state != JobState.AVAILABLE and (reason := _unless_deferred(job)):
            return reason
        return "has a unique key, which may cover its queue" if job.has_unique_key else None

    result = operate_on(
        job_ids,
        using,
        partial(operate.move_queue_hot, queue=queue),
        partial(operate.move_queue_deferred, queue=queue),
        explain=explain,
    )
    if result.changed:
        wake(connections[using or get_settings().database], [queue])
    return result


def delete(job_ids: int | Iterable[int], *, using: str | None = None) -> OperationResult:
    """Delete jobs that do not run: ended, available, scheduled or retryable."""
    return operate_on(
        job_ids,
        using,
        operate.delete_hot,
        operate.delete_deferred,
        explain=lambda job: _is(job) if job.state in (JobState.RUNNING, JobState.WAITING_EXTERNAL) else None,
    )


def _is(job: Located) -> str:
    return f"is {job.state}"


def _unless_deferred(job: Located) -> str | None:
    return None if job.state in (JobState.SCHEDULED, JobState.RETRYABLE) else _is(job)
