"""What an operator asks at a glance: bounded statements, however many jobs there are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from awa_django.storage._sql import Connection, fetch
from awa_django.storage.promote import next_due

# Entries of indexes read to count what is in the queues, four counts each: a tenth of a second at most. With
# many queues each count stops sooner.
COUNTED = 160_000
LOWEST_CAP, HIGHEST_CAP = 1_000, 10_000
# Read by their rows: the index of failed jobs does not know their queue.
FAILED_CAP = 2_000
# A worker that fell silent is something to look at for so long, or twice STALE_AFTER; then there is nothing
# to do about it. Its row is removed after an hour.
GONE_AFTER = timedelta(minutes=10)
WorkerState: TypeAlias = Literal["alive", "draining", "silent", "gone"]


class QueueStatus(NamedTuple):
    """A queue and what is in it. A count stops at the cap given: equal to it means as many or more.

    ``running`` is exact; ``failed`` counts those among the newest FAILED_CAP failed jobs of all queues. The
    seconds are None where no job waits; those of ``overdue`` are a promotion's delay.
    """

    queue: str
    paused: bool
    paused_at: datetime | None
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

    def is_silent(self, stale_after: timedelta) -> bool:
        """Whether it has not been heard of for so long that its jobs are taken back (STALE_AFTER)."""
        return self.unseen_seconds > stale_after.total_seconds()

    def state(self, stale_after: timedelta) -> WorkerState:
        """What to call it."""
        unseen = timedelta(seconds=self.unseen_seconds)
        return worker_state(unseen, draining=self.draining, stale_after=stale_after)


class LeaderStatus(NamedTuple):
    """A duty and who does it now: None when nobody does."""

    duty: str
    holder: str | None
    epoch: int
    seconds_left: float | None


class RunningJob(NamedTuple):
    """A job that runs, and in which process."""

    job_id: int
    kind: str
    queue: str
    worker: str | None
    started_at: datetime | None


class Processes(NamedTuple):
    """Who does what."""

    workers: list[WorkerStatus]
    """Each supervisor before its children."""
    leaders: list[LeaderStatus]
    running: list[RunningJob]


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


def worker_state(unseen: timedelta, *, draining: bool, stale_after: timedelta) -> WorkerState:
    """What to call a process that was not heard of for so long: silent at first, later gone."""
    if unseen > max(GONE_AFTER, 2 * stale_after):
        return "gone"
    if unseen > stale_after:
        return "silent"
    return "draining" if draining else "alive"


def cap_for(queue_count: int) -> int:
    """Where to stop counting what is in each of so many queues, so that all counts take little together."""
    share = COUNTED // (4 * max(queue_count, 1))
    return max(LOWEST_CAP, min(HIGHEST_CAP, share // 1_000 * 1_000))


def queue_status(
    connection: Connection, queues: Sequence[str], *, cap: int, soon: timedelta, with_others: bool = False
) -> list[QueueStatus]:
    """What is in each of the queues, counting to ``cap`` at most.

    ``with_others``: and in queues that nobody named, and that have jobs which run or failed.
    """
    rows = fetch(
        connection,
        "queue_status",
        queues=list(queues),
        with_others=with_others,
        cap=cap,
        failed_cap=FAILED_CAP,
        soon=soon.total_seconds(),
    )
    return [QueueStatus._make(row) for row in rows]


def processes(connection: Connection, *, limit: int, running_limit: int = 0) -> Processes:
    """The processes that say they live, the duties, and the first jobs that run; in one statement."""
    [texts] = fetch(connection, "processes", processes_cap=limit, running_cap=running_limit)
    return Processes(
        msgspec.json.decode(texts[0], type=list[WorkerStatus]),
        msgspec.json.decode(texts[1], type=list[LeaderStatus]),
        msgspec.json.decode(texts[2], type=list[RunningJob]),
    )


def workers(connection: Connection, *, limit: int) -> list[WorkerStatus]:
    """The processes that say they live, each supervisor before its children."""
    return processes(connection, limit=limit).workers


def leaders(connection: Connection) -> list[LeaderStatus]:
    """The duties, each with its holder."""
    return processes(connection, limit=0).leaders


def throughput(connection: Connection, spans: Sequence[int]) -> list[Throughput]:
    """Ended runs of each of these spans of whole minutes up to this one."""
    return [Throughput._make(row) for row in fetch(connection, "status_throughput", spans=list(spans))]


def promotion_lag(connection: Connection) -> float | None:
    """For how many seconds the first deferred job has been due; None when none is."""
    seconds = next_due(connection).seconds
    return None if seconds is None or seconds > 0 else -seconds
