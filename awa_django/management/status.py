"""The state of the queue at one glance, as a value: what ``awa_status`` and ``awa_queues`` print."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from awa_django.reading import bounded
from awa_django.storage import inspect, status
from awa_django.storage.dashboard import SOON
from awa_django.storage.insert import database_now
from awa_django.storage.queues import known_queues

QUEUES_SHOWN = 200
WORKERS_SHOWN = 500
SPANS = (1, 5, 15)
# Of a statement: a glance that takes longer is none, and must not add to the load.
PATIENCE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """All that ``awa_status`` shows. Counts of queues stop at ``cap`` and one."""

    now: datetime
    schema_version: int | None
    cap: int
    queues: list[status.QueueStatus]
    workers: list[status.WorkerStatus]
    leaders: list[status.LeaderStatus]
    throughput: list[status.Throughput]
    promotion_lag: float | None

    def longest_wait(self, queue: str | None = None) -> float:
        """The longest wait of a due job in a queue that is not paused, or in this one; seconds."""
        waits = [
            each.waiting_seconds
            for each in self.queues
            if not each.paused and (queue is None or each.queue == queue)
        ]
        return max(waits, default=0.0)


def ask(alias: str) -> Status:
    """The state now, by some short statements in one transaction."""
    with bounded(alias, longest=PATIENCE) as connection:
        cap, queues = ask_queues(connection)
        found = status.processes(connection, limit=WORKERS_SHOWN)
        return Status(
            now=database_now(connection),
            schema_version=inspect.schema_version(connection),
            cap=cap,
            queues=queues,
            workers=found.workers,
            leaders=found.leaders,
            throughput=status.throughput(connection, SPANS),
            promotion_lag=status.promotion_lag(connection),
        )


def ask_queues(connection: BaseDatabaseWrapper) -> tuple[int, list[status.QueueStatus]]:
    """The highest number that is shown as one, and all queues that are known from somewhere."""
    names = known_queues(connection, limit=QUEUES_SHOWN)
    cap = status.cap_for(len(names))
    return cap, status.queue_status(connection, names, cap=cap + 1, soon=SOON, with_others=True)


def queue_document(queue: status.QueueStatus, *, cap: int) -> dict[str, Any]:
    """A queue as JSON: the documented keys. ``capped`` names the counts that are ``cap`` or more."""
    counts = ("available", "deferred", "due_soon", "overdue")
    return {
        "queue": queue.queue,
        "paused": queue.paused,
        "paused_by": queue.paused_by if queue.paused else None,
        "paused_until": queue.paused_until if queue.paused else None,
        "available": min(queue.available, cap),
        "oldest_available_seconds": queue.available_seconds,
        "running": queue.running,
        "deferred": min(queue.deferred, cap),
        "due_soon": min(queue.due_soon, cap),
        "overdue": min(queue.overdue, cap),
        "oldest_overdue_seconds": queue.overdue_seconds,
        "failed": queue.failed,
        "capped": [name for name in counts if getattr(queue, name) > cap],
    }
