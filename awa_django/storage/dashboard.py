"""What the dashboard shows: small statements, each bounded however many jobs there are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from awa_django.storage._sql import Connection, fetch
from awa_django.storage.cron_jobs import ListedSchedule, list_cron_jobs
from awa_django.storage.promote import next_due
from awa_django.storage.queues import known_queues

# A statement that takes longer is ended, and no further one is begun when all have taken that long: a
# look at the database takes twice this at most.
STATEMENT_TIMEOUT = timedelta(seconds=2)
QUEUES_CAP = 100
# Entries of indexes read to count what is in the queues: four counts each, 0.1 s at most.
COUNTED_IN_QUEUES = 160_000
LOWEST_CAP, HIGHEST_CAP = 1_000, 10_000
RUNNING_CAP = 2_000
# Read by their rows: the index of failed jobs does not know their queue.
FAILED_CAP = 2_000
WORKERS_CAP = 500
MINUTES = 60
# Rollups have a row for each minute, queue and kind in which something ended.
ROLLUPS_CAP = 5_000
SOON = timedelta(hours=1)
MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
# The bounds of the spans in which deferred jobs are counted, in seconds from now.
SPANS: tuple[float, ...] = (
    0.0, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, DAY, 3 * DAY, 7 * DAY, 30 * DAY
)  # fmt: skip


class TooSlow(Exception):
    """The statements took too long together; no further one was begun."""


class QueueRow(NamedTuple):
    """What waits in a queue; each count stops at the cap of the snapshot."""

    queue: str
    paused: bool
    paused_by: str | None
    runnable: int
    oldest_run_at: datetime | None
    deferred: int
    due_soon: int
    overdue: int


class RunningRow(NamedTuple):
    job_id: int
    kind: str
    queue: str
    worker: str | None
    started_at: datetime | None


class StatsRow(NamedTuple):
    """Ended runs of one minute, one queue or one kind: the other two are None."""

    minute: datetime | None
    queue: str | None
    kind: str | None
    completed: int
    retried: int
    failed: int
    cancelled: int
    waits: list[int] | None
    runs: list[int] | None
    rollups_read: int

    @property
    def ended(self) -> int:
        """Runs that ended, in whatever way."""
        return self.completed + self.retried + self.failed + self.cancelled


class SpanRow(NamedTuple):
    """Jobs of a span, counted to HIGHEST_CAP; ``estimate`` says how many there are beyond it, if known."""

    counted: int
    estimate: int | None = None


class WorkerRow(NamedTuple):
    name: str
    supervisor: str | None
    hostname: str
    pid: int
    queues: list[str]
    concurrency: int
    running_count: int
    draining: bool
    started_at: datetime
    last_seen_at: datetime
    silent: bool


class DutyRow(NamedTuple):
    """A duty, and who does it: None when nobody does."""

    duty: str
    holder: str | None
    epoch: int


class TableRow(NamedTuple):
    """Sizes in bytes; ``live`` and ``dead`` rows are estimates of the server."""

    table: str
    size: int
    index_size: int
    live: int
    dead: int
    vacuumed_at: datetime | None
    analyzed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that the dashboard shows, at one instant of the database's clock."""

    now: datetime
    next_due_at: datetime | None
    queues: list[QueueRow]
    queue_cap: int
    """Where the counts of ``queues`` stop: that many means as many or more."""
    running: list[RunningRow]
    failed: dict[str, int]
    """By queue, among the newest FAILED_CAP."""
    stats: list[StatsRow]
    frontier: list[SpanRow]
    """Deferred jobs in the spans between SPANS; the first are overdue."""
    workers: list[WorkerRow]
    duties: list[DutyRow]
    schedules: list[ListedSchedule]
    tables: list[TableRow]


def take_snapshot(connection: Connection, *, stale_after: timedelta) -> Snapshot:
    """Ask for everything in the transaction that is open; roll it back, some of its settings were changed.

    Raises: TooSlow; or the driver's error for a statement that was ended because it took too long.
    """
    hurried = _Hurried(connection)
    fetch(hurried, "dashboard/bounds", milliseconds=int(STATEMENT_TIMEOUT / timedelta(milliseconds=1)))
    due = next_due(hurried)
    names = known_queues(hurried, limit=QUEUES_CAP)
    share = COUNTED_IN_QUEUES // (4 * max(len(names), 1))
    cap = max(LOWEST_CAP, min(HIGHEST_CAP, share // 1_000 * 1_000))
    return Snapshot(
        now=due.now,
        next_due_at=due.run_at,
        queues=_queues(hurried, names, cap),
        queue_cap=cap,
        running=_running(hurried),
        failed=_failed(hurried),
        stats=_stats(hurried),
        frontier=_frontier(hurried),
        workers=_workers(hurried, stale_after),
        duties=[DutyRow._make(row) for row in fetch(hurried, "dashboard/duties")],
        schedules=list_cron_jobs(hurried),
        tables=[TableRow._make(row) for row in fetch(hurried, "dashboard/tables")],
    )


class _Hurried:
    """A connection that begins no further statement once time is up."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._ends_at = time.monotonic() + STATEMENT_TIMEOUT.total_seconds()

    def cursor(self) -> AbstractContextManager[Any]:
        if time.monotonic() > self._ends_at:
            raise TooSlow
        return self._connection.cursor()


def _queues(connection: Connection, names: Sequence[str], cap: int) -> list[QueueRow]:
    soon = SOON.total_seconds()
    rows = fetch(connection, "dashboard/queues", queues=list(names), cap=cap, soon=soon)
    return sorted(QueueRow._make(row) for row in rows)


def _running(connection: Connection) -> list[RunningRow]:
    return sorted(RunningRow._make(row) for row in fetch(connection, "dashboard/running", cap=RUNNING_CAP))


def _failed(connection: Connection) -> dict[str, int]:
    return dict(fetch(connection, "dashboard/failed", cap=FAILED_CAP))


def _stats(connection: Connection) -> list[StatsRow]:
    rows = fetch(connection, "dashboard/stats", minutes=MINUTES, cap=ROLLUPS_CAP)
    return [StatsRow._make(row) for row in rows]


def _frontier(connection: Connection) -> list[SpanRow]:
    starts, ends = [None, *SPANS], [*SPANS, None]
    rows = fetch(connection, "dashboard/frontier", starts=starts, ends=ends, cap=HIGHEST_CAP)
    return [SpanRow._make(row) for row in rows]


def _workers(connection: Connection, stale_after: timedelta) -> list[WorkerRow]:
    rows = fetch(connection, "dashboard/workers", cap=WORKERS_CAP, stale_after=stale_after.total_seconds())
    return [WorkerRow._make(row) for row in rows]
