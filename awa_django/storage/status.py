"""What an operator asks at a glance: bounded statements, however many jobs there are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from awa_django.storage._sql import Connection, fetch


class QueueStatus(NamedTuple):
    """A queue and what is in it. A count stops at the cap given: equal to it means as many or more.

    ``failed`` counts those among the newest failed jobs of all queues, as many as the cap. The seconds
    are None where no job waits; those of ``overdue`` are a promotion's delay.
    """

    queue: str
    paused: bool
    paused_by: str | None
    paused_until: datetime | None
    available: int
    available_seconds: float | None
    running: int
    deferred: int
    due_soon: int
    overdue: int
    overdue_seconds: float | None
    failed: int

    @property
    def waiting_seconds(self) -> float:
        """For how long the longest waiting job has been due, promoted or not; 0 when none waits."""
        return max(self.available_seconds or 0.0, self.overdue_seconds or 0.0, 0.0)


class WorkerStatus(NamedTuple):
    """A process that says it lives. ``supervisor`` is None for a supervisor itself."""

    name: str
    supervisor: str | None
    hostname: str
    pid: int
    version: str
    queues: list[str]
    concurrency: int
    running: int
    draining: bool
    started_at: datetime
    unseen_seconds: float


class LeaderStatus(NamedTuple):
    """A duty and who does it now: None when nobody does."""

    duty: str
    holder: str | None
    seconds_left: float | None


class Throughput(NamedTuple):
    """Ended runs of the last ``minutes`` whole minutes, as far as the leader has counted them."""

    minutes: int
    completed: int
    retried: int
    failed: int
    cancelled: int
    wait_seconds: float
    run_seconds: float

    @property
    def ended(self) -> int:
        return self.completed + self.retried + self.failed + self.cancelled


def limit_statement(connection: Connection, *, milliseconds: int) -> None:
    """Let each statement of the open transaction take at most so long; then it fails with QueryCanceled."""
    fetch(connection, "limit_statement", milliseconds=milliseconds)


def queue_status(
    connection: Connection, queues: Sequence[str], *, cap: int, soon: timedelta
) -> list[QueueStatus]:
    """What is in each of the queues, counting to ``cap`` at most."""
    rows = fetch(connection, "status_queues", queues=list(queues), cap=cap, soon=soon.total_seconds())
    return [QueueStatus._make(row) for row in rows]


def workers(connection: Connection, *, limit: int) -> list[WorkerStatus]:
    """The processes that say they live, each supervisor before its children."""
    return [WorkerStatus._make(row) for row in fetch(connection, "status_workers", limit=limit)]


def leaders(connection: Connection) -> list[LeaderStatus]:
    """The duties, each with its holder."""
    return [LeaderStatus._make(row) for row in fetch(connection, "status_leaders")]


def throughput(connection: Connection, spans: Sequence[int]) -> list[Throughput]:
    """Ended runs of each of these spans of whole minutes up to this one."""
    return [Throughput._make(row) for row in fetch(connection, "status_throughput", spans=list(spans))]


def promotion_lag(connection: Connection) -> float | None:
    """For how many seconds the first deferred job has been due; None when none is."""
    rows = fetch(connection, "status_lag")
    return rows[0][0] if rows else None
