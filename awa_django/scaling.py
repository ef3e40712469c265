"""Scaling: how many workers each queue wants, from what waits and how long runs take. docs/autoscaling.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from awa_django.conf import get_settings
from awa_django.reading import bounded
from awa_django.storage import stats, status
from awa_django.storage.queues import known_queues

# The mean of this long: jobs of an hour ago say more than none, and those of a week ago less.
MEAN_MINUTES = 60
# Where nothing ever ran; a guess that one run corrects.
UNKNOWN_MEAN = 1.0
# Of a worker that is yet to start: the default of --concurrency.
DEFAULT_SLOTS = 8
QUEUES, PROCESSES = 200, 2_000
# Of a statement: an answer that takes longer comes too late to scale by.
PATIENCE = timedelta(seconds=5)
# Each count stops here, that of all queues together; a queue's share is at least 1,000. Three such counts of
# 200,000 rows take 0.6 s on a machine that has other things to do.
CAP = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What one queue wants. ``jobs`` run, could run, or fall due within the target; a paused queue's run.

    ``load`` is in slots, not yet rounded: those of several queues may be added.
    """

    queue: str
    waiting: int
    running: int
    mean_seconds: float
    load: float
    slots_per_worker: int

    @property
    def slots(self) -> int:
        return rounded(self.load)

    @property
    def workers(self) -> int:
        return math.ceil(self.slots / self.slots_per_worker)


def wanted(
    queues: Iterable[status.QueueStatus],
    workers: Sequence[status.WorkerStatus],
    means: Mapping[str, float],
    *,
    target: timedelta,
    slots_per_worker: int | None = None,
) -> list[Wanted]:
    """What each of the queues wants, so that all that is known of it ends within ``target``.

    ``due_soon`` of the queues is of that time. ``slots_per_worker`` is measured at the workers that live
    and serve the queue, unless it is given.
    """
    found = []
    for each in queues:
        waiting = 0 if each.paused else each.available + each.overdue + each.due_soon
        mean = means.get(each.queue, UNKNOWN_MEAN)
        # One slot runs so many of its jobs within the target, and no job takes more than one slot.
        share = min(mean / target.total_seconds(), 1.0)
        found.append(
            Wanted(
                queue=each.queue,
                waiting=waiting,
                running=each.running,
                mean_seconds=mean,
                load=(waiting + each.running) * share,
                slots_per_worker=slots_per_worker or _measured(each.queue, workers),
            )
        )
    return found


def ask(
    alias: str, *, queues: Sequence[str] | None, target: timedelta, slots_per_worker: int | None = None
) -> list[Wanted]:
    """What these queues want now, or all; a few bounded statements in one transaction."""
    with bounded(alias, longest=PATIENCE) as connection:
        names = known_queues(connection, limit=QUEUES) if queues is None else queues
        cap = max(CAP // max(len(names), 1), 1_000)
        counts = status.queue_status(connection, names, cap=cap, soon=target)
        workers = status.workers(connection, limit=PROCESSES)
        means = stats.mean_runs(connection, minutes=MEAN_MINUTES)
    return wanted(counts, workers, means, target=target, slots_per_worker=slots_per_worker)


def rounded(load: float) -> int:
    """Whole slots for a load: never none for some, and no more for the last digit of a float."""
    return math.ceil(round(load, 6)) or int(load > 0)


def _measured(queue: str, workers: Sequence[status.WorkerStatus]) -> int:
    """The slots that a worker of the queue has, in the mean."""
    stale_after = get_settings().stale_after
    alive = [each for each in workers if not each.is_silent(stale_after) and not each.draining]
    serving = {each.name for each in alive if each.supervisor is None and queue in each.queues}
    slots = [each.concurrency for each in alive if each.supervisor in serving]
    if not slots:
        return DEFAULT_SLOTS
    return max(round(sum(slots) / len({each.supervisor for each in alive if each.supervisor in serving})), 1)
