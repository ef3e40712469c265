"""An operator's verbs: cancel, retry, run now, reschedule, set priority, move, delete; pause and resume.

They work on Django's connection, inside whatever transaction is open there. One job that cannot be
changed never stops the others: the answer says which were changed, and why each other one was not.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
from django.db import IntegrityError, connections, transaction

from awa_django.codec import clean_text
from awa_django.conf import get_settings
from awa_django.enqueue import Item, find_holder
from awa_django.states import TERMINAL_STATES, JobState
from awa_django.storage import operate, queues
from awa_django.storage.operate import Located, Rows
from awa_django.storage.wake import wake

# Ids per statement: bounds how many rows one statement locks (about 20 ms of work).
BATCH = 1000
# Rows looked through per statement for those that match: some 10 ms, however few they are.
LOOK = 10_000
# A job may move between the tables just between our two statements; that often in a row is a storm.
ROUNDS = 3
LARGEST_ID = 2**63 - 1
LOWEST_PRIORITY, HIGHEST_PRIORITY = -98, 102
# The range of the tables' CHECK.
EARLIEST, LATEST = datetime(1, 2, 1, tzinfo=UTC), datetime(9999, 12, 1, tzinfo=UTC)
LONGEST_NAME = 200

Step = Callable[[Any, Sequence[int]], Rows]
Explain = Callable[[Located], str | None]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A job that was left as it is. ``state`` is None when there is no such job."""

    job_id: int
    state: JobState | None
    reason: str


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The ids that were changed, and those that were not, each in ascending order."""

    changed: tuple[int, ...]
    refused: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class QueueResult:
    """A queue after pause or resume. ``changed`` is False when it was so already."""

    queue: str
    paused: bool
    changed: bool


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
    return _operate(
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


def cancel_matching(
    *,
    kind: str | None = None,
    queue: str | None = None,
    tags: Iterable[str] = (),
    by: str | None = None,
    reason: str = "",
    on_batch: Callable[[int], object] | None = None,
    using: str | None = None,
) -> int:
    """Cancel all jobs that match and have not ended, as ``cancel`` does; how many.

    ``tags``: jobs that have all of them. Jobs that were enqueued since it began are left. It goes in
    batches of ``BATCH``, each its own transaction unless one is open, and tells ``on_batch`` how many
    are cancelled so far. No statement locks or reads more than a batch, or some thousands of rows that
    may not match. Where it broke off (or ``on_batch`` raised) the next call goes on: what is cancelled
    matches no more.

    Raises:
        ValueError: nothing is given to match, or the tags are a string.
    """
    if isinstance(tags, str):  # its letters would be looked for
        raise ValueError(f"tags must be a list of strings, not {tags!r}")
    wanted = [clean_text(tag, LONGEST_NAME) for tag in tags]
    if kind is None and queue is None and not wanted:
        raise ValueError("cancel_matching needs a kind, a queue or tags: it does not cancel everything")
    connection = connections[using or get_settings().database]
    match = operate.Match(kind, queue, wanted or None, operate.highest_id(connection))
    cancelled_count = 0
    # A job may move to the table that was looked through already: until a pass finds none, or a storm.
    for _ in range(ROUNDS):
        found_count = 0
        for find in (operate.matching_hot, operate.matching_deferred):
            after_id: int | None = 0
            while after_id is not None:
                after_id, job_ids = find(connection, match, after_id=after_id, row_count=LOOK)
                found_count += len(job_ids)
                for start in range(0, len(job_ids), BATCH):
                    some = job_ids[start : start + BATCH]
                    cancelled_count += len(cancel(some, by=by, reason=reason, using=using).changed)
                    if on_batch is not None:
                        on_batch(cancelled_count)
        if not found_count:
            break
    return cancelled_count


def retry(job_ids: int | Iterable[int], *, using: str | None = None) -> OperationResult:
    """Make failed and cancelled jobs available again, with all their attempts.

    A job whose unique key another job holds by now is refused.
    """
    return _operate(
        job_ids,
        using,
        operate.retry_ended,
        explain=lambda job: None if job.state in (JobState.FAILED, JobState.CANCELLED) else _is(job),
        wakes=True,
    )


def run_now(job_ids: int | Iterable[int], *, using: str | None = None) -> OperationResult:
    """Make scheduled and retryable jobs available at once."""
    return _operate(job_ids, using, operate.run_now, explain=_unless_deferred, wakes=True)


def reschedule(
    job_ids: int | Iterable[int], run_at: datetime, *, using: str | None = None
) -> OperationResult:
    """Change when jobs that have not started are due.

    A deferred job given an instant that has come is promoted at once; an available job is refused
    then, as it can run already.

    Raises:
        ValueError: ``run_at`` is naive, or outside the years 1 to 9999.
    """
    _check_instant("run_at", run_at)

    def explain(job: Located) -> str | None:
        return None if job.state == JobState.AVAILABLE else _unless_deferred(job)

    return _operate(
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
    if not LOWEST_PRIORITY <= operator.index(priority) <= HIGHEST_PRIORITY:
        raise ValueError(
            f"priority must be between {LOWEST_PRIORITY} and {HIGHEST_PRIORITY}, not {priority!r}"
        )
    return _operate(
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
    _check_queue(queue)

    def explain(job: Located) -> str | None:
        if job.state != JobState.AVAILABLE and (reason := _unless_deferred(job)):
            return reason
        return "has a unique key, which may cover its queue" if job.has_unique_key else None

    result = _operate(
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
    return _operate(
        job_ids,
        using,
        operate.delete_hot,
        operate.delete_deferred,
        explain=lambda job: _is(job) if job.state in (JobState.RUNNING, JobState.WAITING_EXTERNAL) else None,
    )


def pause_queue(
    queue: str, *, by: str | None = None, until: datetime | None = None, using: str | None = None
) -> QueueResult:
    """Stop claims from the queue, until ``until`` or until it is resumed; jobs that run go on.

    Raises:
        ValueError: the name of the queue is empty, too long or has a NUL, or ``until`` is naive.
    """
    _check_queue(queue)
    if until is not None:
        _check_instant("until", until)
    changed = queues.pause_queue(
        connections[using or get_settings().database],
        queue,
        paused_by=None if by is None else clean_text(by, LONGEST_NAME),
        paused_until=until,
    )
    return QueueResult(queue, paused=True, changed=changed)


def resume_queue(queue: str, *, using: str | None = None) -> QueueResult:
    """Let claims from the queue go on, and wake its workers."""
    _check_queue(queue)
    alias = using or get_settings().database
    with transaction.atomic(using=alias):
        changed = queues.resume_queue(connections[alias], queue)
        if changed:
            wake(connections[alias], [queue])
    return QueueResult(queue, paused=False, changed=changed)


def _operate(
    job_ids: int | Iterable[int],
    using: str | None,
    *steps: Step,
    explain: Explain,
    wakes: bool = False,
    at_last: str = "kept moving on: try again",
) -> OperationResult:
    """Apply the steps, a statement for each table, to the jobs in batches.

    ``explain`` says why the steps left a job alone, or None when they should not have: then it
    moved on between them, and is tried again. ``at_last`` is the reason when that goes on.
    """
    alias = using or get_settings().database
    changed: list[int] = []
    refused: list[Refusal] = []
    for batch in _batches(job_ids, refused):
        _operate_batch(alias, batch, steps, explain, wakes, at_last, changed, refused)
    return OperationResult(tuple(sorted(changed)), tuple(sorted(refused, key=lambda job: job.job_id)))


def _operate_batch(
    alias: str,
    batch: list[int],
    steps: Sequence[Step],
    explain: Explain,
    wakes: bool,
    at_last: str,
    changed: list[int],
    refused: list[Refusal],
) -> None:
    connection = connections[alias]
    waiting = batch
    conflicts: dict[int, str] = {}
    located: dict[int, Located] = {}
    for _ in range(ROUNDS):
        for step in steps:
            with transaction.atomic(using=alias):
                rows, step_conflicts = _run_step(alias, step, waiting)
                if rows and wakes:
                    wake(connection, sorted({queue for _, queue in rows}))
            conflicts.update(step_conflicts)
            changed += (job_id for job_id, _ in rows)
            done = {job_id for job_id, _ in rows} | step_conflicts.keys()
            waiting = [job_id for job_id in waiting if job_id not in done]
            if not waiting:
                break
        located = operate.locate(connection, [*waiting, *conflicts]) if waiting or conflicts else {}
        if not any(job_id in located and explain(located[job_id]) is None for job_id in waiting):
            break
    for job_id in waiting:
        job = located.get(job_id)
        if job is None:
            refused.append(Refusal(job_id, None, "does not exist"))
        else:
            refused.append(Refusal(job_id, JobState(job.state), explain(job) or at_last))
    for job_id, reason in conflicts.items():
        job = located.get(job_id)
        refused.append(Refusal(job_id, JobState(job.state) if job else None, reason))


def _run_step(alias: str, step: Step, job_ids: Sequence[int]) -> tuple[Rows, dict[int, str]]:
    """The rows that the step changed, and the jobs whose unique key is held by another job.

    All at once first; when one job conflicts, one by one, so that it stops no other.
    """
    connection = connections[alias]
    try:
        with transaction.atomic(using=alias):
            return step(connection, job_ids), {}
    except IntegrityError as exc:
        if not _is_unique_conflict(exc):
            raise
    rows: Rows = []
    conflicts: dict[int, str] = {}
    for job_id in job_ids:
        try:
            with transaction.atomic(using=alias):
                rows += step(connection, [job_id])
        except IntegrityError as exc:
            if not _is_unique_conflict(exc):
                raise
            holder_id = operate.key_holder(connection, job_id)
            holder = "another job" if holder_id is None else f"job {holder_id}"
            conflicts[job_id] = f"its unique key is held by {holder}"
    return rows, conflicts


def _is_unique_conflict(exc: IntegrityError) -> bool:
    cause = exc.__cause__
    return (
        isinstance(cause, psycopg.errors.UniqueViolation)
        and cause.diag.constraint_name == "idx_awa_jobs_unique"
    )


def _batches(job_ids: int | Iterable[int], refused: list[Refusal]) -> Iterator[list[int]]:
    """The ids in ascending batches, each once; those that no job can have are refused."""
    given = {_job_id(job_id) for job_id in ([job_ids] if isinstance(job_ids, int) else job_ids)}
    possible = sorted(job_id for job_id in given if 0 < job_id <= LARGEST_ID)
    refused += (Refusal(job_id, None, "does not exist") for job_id in given.difference(possible))
    for start in range(0, len(possible), BATCH):
        yield possible[start : start + BATCH]


def _job_id(given: object) -> int:
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"the id of a job is an integer, not {given!r}") from None


def _is(job: Located) -> str:
    return f"is {job.state}"


def _unless_deferred(job: Located) -> str | None:
    return None if job.state in (JobState.SCHEDULED, JobState.RETRYABLE) else _is(job)


def _check_queue(queue: str) -> None:
    if not 1 <= len(queue) <= LONGEST_NAME or "\x00" in queue:
        raise ValueError(f"a queue's name has 1 to {LONGEST_NAME} characters and no NUL, unlike {queue!r}")


def _check_instant(name: str, instant: datetime) -> None:
    if instant.utcoffset() is None:
        raise ValueError(f"{name} must be an aware datetime, not {instant!r}")
    if not EARLIEST <= instant <= LATEST:
        raise ValueError(f"{name} must be in the years 1 to 9999, not {instant!r}")
