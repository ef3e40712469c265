"""Read what decides whether a job runs: its own row, its queue's pause, the workers, who is before it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from awa_django.storage._sql import Connection, fetch


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job and its surroundings at the instant ``now`` of the database."""

    now: datetime
    id: int
    kind: str
    queue: str
    state: str
    priority: int
    attempt: int
    max_attempts: int
    run_at: datetime
    attempted_at: datetime | None
    heartbeat_at: datetime | None
    deadline_at: datetime | None
    finalized_at: datetime | None
    worker: str | None
    run_lease: int
    wants_key_when_available: bool
    holder_id: int | None
    """Who holds the unique key that is the job's, if it has one."""
    unknown_count: str | None
    max_age: str | None
    due_at: str | None
    """Of the metadata, as text: how often workers did not know the kind; seconds; epoch seconds."""
    outcome: str | None
    class_name: str | None
    error: str | None
    ended_by: str | None
    """Of the newest entry of ``errors``."""
    args: str | None
    masked: str | None
    """By which that is masked: the arguments as JSON text (cut), and which of them are secret."""
    is_declared: bool | None
    """Whether a worker has ever declared the kind; None: the catalogue does not have it."""
    is_paused: bool
    paused_at: datetime | None
    paused_by: str | None
    paused_until: datetime | None
    worker_seen_at: datetime | None
    """None: the worker that holds or held the job is no live process any more."""
    worker_drains: bool | None
    duties: list[str]
    """The duties that somebody does now."""
    locked_by_pid: int | None
    locked_by_name: str | None


class QueueWorkers(NamedTuple):
    """The worker processes that run jobs, as one queue sees them."""

    serving_count: int
    draining_count: int
    silent_count: int
    elsewhere_count: int
    supervisor_count: int
    last_seen_at: datetime | None
    slot_count: int
    free_count: int


@dataclass(frozen=True, slots=True)
class Overdue:
    """Deferred jobs that are due, as far as they were counted."""

    count: int
    since: datetime | None


def why_job(connection: Connection, job_id: int) -> JobFacts | None:
    """The job with its queue's pause, its key's holder and its worker; None when there is none."""
    rows = fetch(connection, "why_job", job_id=job_id)
    return JobFacts(*rows[0]) if rows else None


def why_workers(connection: Connection, queue: str, *, seen_within: timedelta) -> QueueWorkers:
    """Which processes serve the queue, by what they said last, and how many slots they have free."""
    [row] = fetch(connection, "why_workers", queue=queue, seen_within=seen_within.total_seconds())
    return QueueWorkers._make(row)


def why_ahead(connection: Connection, job: JobFacts, *, cap: int) -> int:
    """How many jobs of its queue are claimed before this available one, at most ``cap``."""
    count: int = fetch(
        connection,
        "why_ahead",
        queue=job.queue,
        priority=job.priority,
        run_at=job.run_at,
        job_id=job.id,
        cap=cap,
    )[0][0]
    return count


def why_overdue(connection: Connection, job: JobFacts, *, cap: int) -> Overdue:
    """How many deferred jobs are promoted before this one, at most ``cap``."""
    [row] = fetch(connection, "why_overdue", run_at=job.run_at, job_id=job.id, cap=cap)
    return Overdue(*row)
