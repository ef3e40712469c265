"""What the dashboard shows: small statements, each bounded however many jobs there are."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from awa_django.storage._sql import Connection, fetch
from awa_django.storage.cron_jobs import ListedSchedule, list_cron_jobs
from awa_django.storage.queues import known_queues
from awa_django.storage.status import Processes, QueueStatus, cap_for, processes, queue_status

# A statement that takes longer is ended, and no further one is begun when all have taken that long: a
# look at the database takes twice this at most.
STATEMENT_TIMEOUT = timedelta(seconds=2)
QUEUES_CAP = 100
RUNNING_CAP = 2_000
WORKERS_CAP = 500
MINUTES = 60
# Rollups have a row for each minute, queue and kind in which something ended.
ROLLUPS_CAP = 5_000
# Deferred jobs of each span are counted so far.
SPAN_CAP = 10_000
SOON = timedelta(hours=1)
MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
# The bounds of the spans in which deferred jobs are counted, in seconds from now.
SPANS: tuple[float, ...] = (
    0.0, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, DAY, 3 * DAY, 7 * DAY, 30 * DAY
)  # fmt: skip


class TooSlow(Exception):
    """The statements took too long together; no further one was begun."""


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
    """Jobs of a span, counted to SPAN_CAP; ``estimate`` says how many there are beyond it, if known."""

    counted: int
    first_at: datetime | None = None
    """When the first of them is due."""
    estimate: int | None = None


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
    queues: list[QueueStatus]
    queue_cap: int
    """Where the counts of ``queues`` stop: that many means as many or more."""
    is_cut: bool
    """Whether there may be more queues."""
    processes: Processes
    stats: list[StatsRow]
    frontier: list[SpanRow]
    """Deferred jobs in the spans between SPANS; the first are overdue."""
    schedules: list[ListedSchedule]
    tables: list[TableRow]

    @property
    def overdue_seconds(self) -> float | None:
        """For how long the first deferred job has been due; None while none is."""
        since = self.frontier[0].first_at
        return None if since is None else (self.now - since).total_seconds()


def take_snapshot(connection: Connection) -> Snapshot:
    """Ask for everything in the transaction that is open; roll it back, some of its settings were changed.

    Eight statements. Raises: TooSlow; or the driver's error for a statement that was ended because it took
    too long.
    """
    hurried = _Hurried(connection)
    milliseconds = int(STATEMENT_TIMEOUT / timedelta(milliseconds=1))
    [(now, *_)] = fetch(hurried, "dashboard/bounds", milliseconds=milliseconds)
    names = known_queues(hurried, limit=QUEUES_CAP)
    cap = cap_for(len(names))
    return Snapshot(
        now=now,
        queues=queue_status(hurried, names, cap=cap, soon=SOON, with_others=True),
        queue_cap=cap,
        is_cut=len(names) == QUEUES_CAP,
        processes=processes(hurried, limit=WORKERS_CAP, running_limit=RUNNING_CAP),
        stats=_stats(hurried),
        frontier=_frontier(hurried),
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


def _stats(connection: Connection) -> list[StatsRow]:
    rows = fetch(connection, "dashboard/stats", minutes=MINUTES, cap=ROLLUPS_CAP)
    return [StatsRow._make(row) for row in rows]


def _frontier(connection: Connection) -> list[SpanRow]:
    starts, ends = [None, *SPANS], [*SPANS, None]
    rows = fetch(connection, "dashboard/frontier", starts=starts, ends=ends, cap=SPAN_CAP)
    return [SpanRow._make(row) for row in rows]
