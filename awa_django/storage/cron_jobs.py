"""Schedules: what the code declares, what is due, and one job per fire time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from awa_django.storage._sql import Connection, fetch, run


class Schedule(NamedTuple):
    """A live schedule. ``since`` is the last fire time done; ``now`` the database's clock."""

    name: str
    cron_expr: str
    timezone: str
    since: datetime
    now: datetime


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
) -> bool:
    """Write one declared schedule; whether anything changed. ``args`` and ``metadata`` are JSON text."""
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
        )
    )


def cron_jobs(connection: Connection) -> list[Schedule]:
    """The schedules that are not paused."""
    return [Schedule._make(row) for row in fetch(connection, "cron_jobs")]


def fire_cron_job(connection: Connection, name: str, fire_at: datetime) -> tuple[int, str] | None:
    """Enqueue the job of one fire time; its id and queue, or None when that fire is done already."""
    rows = fetch(connection, "fire_cron_job", name=name, fire_at=fire_at)
    return (rows[0][0], rows[0][1]) if rows else None
