"""Read what decides whether a job runs: its own row, its queue's pause, the workers, who is before it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from awa_django.storage._sql import Connection, fetch

# An entry of the history that is as old as the end of the job tells of that end.
SAME_MOMENT = timedelta(seconds=1)


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
    entered_at: str | None
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
    duties: list[str]
    """The duties that somebody does now."""
    locked_by_pid: int | None
    locked_by_name: str | None

    @property
    def outcome_of_end(self) -> str:
        """How the job ended, if the newest entry is about that.

        One that waits is cancelled without an entry: then the newest is of an earlier end, after which
        the job was retried.
        """
        try:
            entered_at = datetime.fromisoformat(self.entered_at or "")
        except ValueError:  # what somebody else wrote
            return self.outcome or ""
        if self.finalized_at is None or entered_at.utcoffset() is None:
            return self.outcome or ""
        is_of_end = abs(self.finalized_at - entered_at) <= SAME_MOMENT
        return self.outcome or "" if is_of_end else ""


class QueueFacts(NamedTuple):
    """What a waiting job has before it: jobs, as far as they were counted, and the worker processes."""

    ahead_count: int
    overdue_count: int
    serving_count: int
    draining_count: int
    silent_count: int
    elsewhere_count: int
    supervisor_count: int
    last_seen_at: datetime | None
    slot_count: int
    free_count: int


def why_job(connection: Connection, job_id: int) -> JobFacts | None:
    """The job with its queue's pause and its key's holder; None when there is none."""
    rows = fetch(connection, "why_job", job_id=job_id)
    return JobFacts(*rows[0]) if rows else None


def why_queue(
    connection: Connection, job: JobFacts, *, is_deferred: bool, seen_within: timedelta, cap: int
) -> QueueFacts:
    """Who serves the queue of a waiting job, and how many jobs go before it, at most ``cap``."""
    [row] = fetch(
        connection,
        "why_queue",
        queue=job.queue,
        priority=job.priority,
        run_at=job.run_at,
        job_id=job.id,
        is_deferred=is_deferred,
        seen_within=seen_within.total_seconds(),
        cap=cap,
    )
    return QueueFacts._make(row)
