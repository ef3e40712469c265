"""An operator's statements on jobs: guarded by state, one physical table each.

Each takes ids (sorted: the lock order), changes those jobs that are in its table and in a state it
may leave, and answers with the ids it changed and their queues. A job that has moved on is absent.
A unique key held by another job fails the whole statement with unique_violation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from awa_django.storage._sql import Connection, fetch

Rows = list[tuple[int, str]]
Table = Literal["hot", "deferred"]


class Match(NamedTuple):
    """Which jobs: None is any. ``tags`` are all there; ``highest_id`` bounds the ids.

    ``ended`` is the outcome of the newest error entry, if that tells of the end there was, and needs
    ``states``. What is ``except_`` is left out, and what ended after ``ended_by``.
    """

    highest_id: int
    states: list[str] | None = None
    kind: str | None = None
    queue: str | None = None
    tags: list[str] | None = None
    ended: str | None = None
    except_kind: str | None = None
    except_queue: str | None = None
    except_priority: int | None = None
    except_run_at: datetime | None = None
    ended_by: datetime | None = None


class Located(NamedTuple):
    """Where a job is now."""

    id: int
    state: str
    has_unique_key: bool


def cancel_hot(connection: Connection, job_ids: Sequence[int], *, entry: str) -> Rows:
    """available, running or waiting_external -> cancelled. ``entry`` is a run's error entry as JSON text."""
    return fetch(connection, "cancel_hot", job_ids=job_ids, entry=entry)


def cancel_deferred(connection: Connection, job_ids: Sequence[int]) -> Rows:
    """scheduled or retryable -> cancelled, in the hot table."""
    return fetch(connection, "cancel_deferred", job_ids=job_ids)


def retry_ended(connection: Connection, job_ids: Sequence[int]) -> Rows:
    """failed or cancelled -> available, due now, with all attempts again."""
    return fetch(connection, "retry_ended", job_ids=job_ids)


def run_now(connection: Connection, job_ids: Sequence[int]) -> Rows:
    """scheduled or retryable -> available, due now, in the hot table."""
    return fetch(connection, "run_now", job_ids=job_ids)


def reschedule_available(connection: Connection, job_ids: Sequence[int], *, run_at: datetime) -> Rows:
    """available -> scheduled, in the deferred table; nothing when ``run_at`` has come."""
    return fetch(connection, "reschedule_available", job_ids=job_ids, run_at=run_at)


def reschedule_deferred(connection: Connection, job_ids: Sequence[int], *, run_at: datetime) -> Rows:
    """Change when deferred jobs are due; they keep their state."""
    return fetch(connection, "reschedule_deferred", job_ids=job_ids, run_at=run_at)


def set_priority_hot(connection: Connection, job_ids: Sequence[int], *, priority: int) -> Rows:
    """Set the priority of hot jobs that have not ended."""
    return fetch(connection, "set_priority_hot", job_ids=job_ids, priority=priority)


def set_priority_deferred(connection: Connection, job_ids: Sequence[int], *, priority: int) -> Rows:
    """Set the priority of deferred jobs."""
    return fetch(connection, "set_priority_deferred", job_ids=job_ids, priority=priority)


def move_queue_hot(connection: Connection, job_ids: Sequence[int], *, queue: str) -> Rows:
    """Move available jobs without a unique key to another queue."""
    return fetch(connection, "move_queue_hot", job_ids=job_ids, queue=queue)


def move_queue_deferred(connection: Connection, job_ids: Sequence[int], *, queue: str) -> Rows:
    """Move deferred jobs without a unique key to another queue."""
    return fetch(connection, "move_queue_deferred", job_ids=job_ids, queue=queue)


def delete_hot(connection: Connection, job_ids: Sequence[int]) -> Rows:
    """Delete hot jobs that no worker runs and that wait for nothing outside."""
    return fetch(connection, "delete_hot", job_ids=job_ids)


def delete_deferred(connection: Connection, job_ids: Sequence[int]) -> Rows:
    """Delete deferred jobs."""
    return fetch(connection, "delete_deferred", job_ids=job_ids)


def locate(connection: Connection, job_ids: Sequence[int]) -> dict[int, Located]:
    """Where the jobs are now; an id that is nowhere is absent."""
    rows = map(Located._make, fetch(connection, "locate", job_ids=job_ids))
    return {row.id: row for row in rows}


class Look(NamedTuple):
    """What came of looking through some rows of a table: the last id, None at its end; the ids that match."""

    last_id: int | None
    job_ids: list[int]


def matching(connection: Connection, match: Match, *, table: Table, after_id: int, row_count: int) -> Look:
    """Look through the next jobs of a table for those that match."""
    [(last_id, job_ids)] = fetch(
        connection, "matching", **match._asdict(), table=table, after_id=after_id, row_count=row_count
    )
    return Look(last_id, job_ids or [])


def still_matching(connection: Connection, match: Match, job_ids: Sequence[int]) -> list[int]:
    """Those of the jobs that match now, locked for the rest of the transaction."""
    asked = {name: value for name, value in match._asdict().items() if name != "highest_id"}
    return [job_id for (job_id,) in fetch(connection, "still_matching", **asked, job_ids=job_ids)]


def highest_id(connection: Connection) -> int:
    """The highest id of all jobs, 0 when there are none."""
    return fetch(connection, "highest_id")[0][0] or 0


class Editable(NamedTuple):
    """A job whose arguments may be changed; ``args`` is JSON text.

    ``secret`` is the JSON text of the names that are masked beside those which its kind declares.
    """

    kind: str
    queue: str
    state: str
    args: str
    unique_key: bytes | None
    run_at: datetime
    created_at: datetime
    secret: str | None


def editable_args(connection: Connection, job_id: int) -> Editable | None:
    """The job as it is now; None when there is none with this id."""
    rows = fetch(connection, "editable_args", job_id=job_id)
    if not rows:
        return None
    job = Editable._make(rows[0])
    return job if job.unique_key is None else job._replace(unique_key=bytes(job.unique_key))


def edit_args(
    connection: Connection, job_id: int, *, args: str, seen_args: str, former: Sequence[str] = ()
) -> bool:
    """Replace the arguments, where they still are the seen ones; whether that was so.

    Not of a job that runs, waits for something outside or has completed. One that moves between the
    two statements is missed. ``former``: secret values that go, for the job to remember.
    """
    remembered = json.dumps([{"former": list(former)}] if former else [])
    params = {"job_id": job_id, "args": args, "seen_args": seen_args, "remembered": remembered}
    return bool(
        fetch(connection, "edit_args_hot", **params) or fetch(connection, "edit_args_deferred", **params)
    )


class Outlook(NamedTuple):
    """What a job would meet that is enqueued now."""

    now: datetime
    highest_id: int
    is_served: bool
    is_paused: bool


def outlook(connection: Connection, *, queue: str, seen_within: timedelta) -> Outlook:
    """The instant, the highest id of all jobs, and whether the queue is served and paused."""
    [row] = fetch(connection, "outlook", queue=queue, seen_within=seen_within.total_seconds())
    return Outlook._make(row)


def lowest_ids(connection: Connection) -> tuple[int | None, int | None]:
    """The lowest id of the hot and of the deferred jobs, None where there is none."""
    [(hot, deferred)] = fetch(connection, "lowest_ids")
    return hot, deferred


def key_holder(connection: Connection, job_id: int) -> int | None:
    """The other job that holds the unique key of this one."""
    rows = fetch(connection, "key_holder", job_id=job_id)
    return rows[0][0] if rows else None
