"""Schedules: what the code declares, what is due, and one job per fire time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from awa_django.storage._sql import Connection, fetch, run

# A schedule fires while a worker has said within this that its code declares it ...
DECLARED_WITHIN = timedelta(seconds=90)
# ... and workers say so no more often than this, together.
FRESH_FOR = timedelta(seconds=10)

Made = list[tuple[int, str]]
"""The id and queue of each job that was made."""


class Schedule(NamedTuple):
    """A schedule that may fire. ``since`` is the last fire time done; ``now`` the database's clock."""

    name: str
    cron_expr: str
    timezone: str
    missed: str
    catch_up_limit: int
    since: datetime
    now: datetime
    unique: str | None
    """JSON of the FireKey of its jobs."""


class Fired(NamedTuple):
    """A fire of a schedule whose jobs are unique; the job is None when another one held its key."""

    fire_at: datetime
    job_id: int | None
    queue: str
    holder_id: int | None


class ListedSchedule(NamedTuple):
    """A schedule as an operator sees it. ``undeclared``: no living worker's code has it any more.

    ``unique`` is the JSON of its jobs' FireKey, None where they have no unique key.
    """

    name: str
    cron_expr: str
    timezone: str
    kind: str
    queue: str
    missed: str
    catch_up_limit: int
    paused: bool
    paused_by: str | None
    undeclared: bool
    skipped_count: int
    last_fire_at: datetime | None
    now: datetime
    unique: str | None

    @property
    def state(self) -> str:
        """``active``, ``paused``, or ``undeclared``."""
        return "paused" if self.paused else "undeclared" if self.undeclared else "active"


def sync_cron_job(
    connection: Connection,
    *,
    name: str,
    cron_expr: str,
    timezone: str,
    kind: str,
    queue: str,
    args: str,
    priority: int,
    max_attempts: int,
    tags: Sequence[str],
    metadata: str,
    missed: str = "coalesce",
    catch_up_limit: int = 100,
) -> bool:
    """Write one declared schedule; whether anything was. ``args`` and ``metadata`` are JSON text."""
    return bool(
        run(
            connection,
            "sync_cron_job",
            name=name,
            cron_expr=cron_expr,
            timezone=timezone,
            kind=kind,
            queue=queue,
            args=args,
            priority=priority,
            max_attempts=max_attempts,
            tags=list(tags),
            metadata=metadata,
            missed=missed,
            catch_up_limit=catch_up_limit,
            fresh_for=FRESH_FOR,
        )
    )


def confirm_cron_jobs(connection: Connection, names: Sequence[str]) -> set[str]:
    """Say that a living worker declares these schedules; the names of those that have a row."""
    rows = fetch(connection, "confirm_cron_jobs", names=list(names), fresh_for=FRESH_FOR)
    return {name for (name,) in rows}


def remove_cron_jobs(connection: Connection, *, undeclared_for: timedelta) -> list[str]:
    """Delete the schedules that no worker has declared for so long, unless paused; their names."""
    return [name for (name,) in fetch(connection, "remove_cron_jobs", undeclared_for=undeclared_for)]


def cron_jobs(connection: Connection) -> list[Schedule]:
    """The schedules that may fire: not paused, and declared by a living worker or written by hand."""
    rows = fetch(connection, "cron_jobs", declared_within=DECLARED_WITHIN)
    return [Schedule._make(row) for row in rows]


def fire_cron_job(
    connection: Connection,
    name: str,
    fire_ats: Sequence[datetime],
    *,
    until: datetime,
    since: datetime,
    skipped_count: int,
) -> Made:
    """Enqueue a job for each of these fire times that is not done yet, and mark all until ``until`` as done.

    ``skipped_count`` of the fires since ``since`` get no job. Nothing is done while somebody else has
    the schedule's row locked.
    """
    return fetch(
        connection,
        "fire_cron_job",
        name=name,
        fire_ats=list(fire_ats),
        until=until,
        since=since,
        skipped_count=skipped_count,
    )


def fire_unique_cron_job(
    connection: Connection,
    name: str,
    fire_ats: Sequence[datetime],
    *,
    until: datetime,
    since: datetime,
    skipped_count: int,
    unique: str,
    unique_keys: Sequence[bytes],
    unique_states: str,
) -> list[Fired]:
    """``fire_cron_job`` for a schedule whose jobs hold these keys, one for each fire time.

    Raises the driver's LockNotAvailable, with nothing done, when an open transaction has taken a key.
    """
    rows = fetch(
        connection,
        "fire_unique_cron_job",
        name=name,
        fire_ats=list(fire_ats),
        until=until,
        since=since,
        skipped_count=skipped_count,
        unique=unique,
        unique_keys=list(unique_keys),
        unique_states=unique_states,
    )
    return [Fired._make(row) for row in rows]


def list_cron_jobs(connection: Connection, name: str | None = None) -> list[ListedSchedule]:
    """All schedules by name, or the one of that name."""
    rows = fetch(connection, "list_cron_jobs", name=name, declared_within=DECLARED_WITHIN)
    return [ListedSchedule._make(row) for row in rows]


def pause_cron_job(connection: Connection, name: str, *, paused_by: str | None) -> bool | None:
    """Stop the fires of a schedule; whether it fired before, None when there is none of this name."""
    rows = fetch(connection, "pause_cron_job", name=name, paused_by=paused_by)
    return bool(rows[0][0]) if rows else None


def resume_cron_job(connection: Connection, name: str) -> bool | None:
    """Let a schedule fire again, from now on; whether it was paused, None when there is none of this name."""
    rows = fetch(connection, "resume_cron_job", name=name)
    return bool(rows[0][0]) if rows else None


def run_cron_job(connection: Connection, name: str, *, asked_by: str | None) -> tuple[int, str] | None:
    """Enqueue one job of a schedule now; its id and queue, None when there is none of this name."""
    rows = fetch(connection, "run_cron_job", name=name, asked_by=asked_by)
    return (rows[0][0], rows[0][1]) if rows else None


def run_unique_cron_job(
    connection: Connection, name: str, *, asked_by: str | None, unique_key: bytes, unique_states: str
) -> tuple[int | None, str] | None:
    """``run_cron_job`` for a schedule whose job is to hold this key; the id is None when another one does."""
    rows = fetch(
        connection,
        "run_unique_cron_job",
        name=name,
        asked_by=asked_by,
        unique_key=unique_key,
        unique_states=unique_states,
    )
    return (rows[0][0], rows[0][1]) if rows else None
