"""Rescuer: takes jobs back from workers that are silent, and from runs past their deadline."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from awa_django import failpoints
from awa_django.logs import get_logger
from awa_django.storage import rescue
from awa_django.storage.rows import LostRun
from awa_django.storage.wake import wake
from awa_django.worker import verdict
from awa_django.worker.database import PsycopgConnection, Session, transaction
from awa_django.worker.duty import Duty
from awa_django.worker.leader import Leader
from awa_django.worker.settle import Settlement, settle

logger = get_logger(__name__)

BATCH = 500
# Seconds for heartbeats to come first, when the jobs were out of reach: longer than any loop's wait after an
# error, which is how late a worker notices that they are back.
GRACE = 5.0


class Rescuer(Duty):
    """The leader's sweep, for when a whole worker is gone: dead children are their supervisor's."""

    name = "rescuer"
    duty = "rescue"

    def __init__(
        self, session: Session, leader: Leader, *, interval: timedelta, stale_after: timedelta, worker: str
    ) -> None:
        self.interval = interval
        super().__init__(session, leader)
        self._stale_after = stale_after
        self._worker = worker
        self._grace = min(GRACE, stale_after.total_seconds() / 2)
        self._looked_at = time.monotonic()
        self._has_waited = False

    def perform(self) -> float | None:
        while self.is_leading:
            with self.session.use() as connection, transaction(connection):
                runs = rescue.lost_runs(connection, stale_after=self._stale_after, batch=BATCH)
                if self._was_out_of_reach():
                    return self._grace
                failpoints.hit("in_rescue")
                settlement = end_lost_runs(connection, runs, worker=self._worker)
            self.superseded_count += len(settlement.superseded)
            if len(runs) < BATCH or not settlement.done:
                break
        return None

    def _was_out_of_reach(self) -> bool:
        """Whether the jobs may have been (an outage, a table that was locked) since the last look: then all
        that ran is silent, and those who live have to be able to say so before they are judged."""
        before, self._looked_at = self._looked_at, time.monotonic()
        is_late = self._looked_at - before > max(self.interval.total_seconds(), self._grace) + self._grace
        self._has_waited = is_late and not self._has_waited  # once: a slow machine is no outage
        return self._has_waited


def end_lost_runs(
    connection: PsycopgConnection,
    runs: Sequence[LostRun],
    *,
    worker: str,
    error: str | None = None,
    outcome: str = "rescued",
) -> Settlement:
    """Send lost runs through the attempt check: again after their backoff, or failed. In a transaction.

    ``worker`` is who ends them. ``error`` and ``outcome`` say what happened; by default the row
    itself does (silent, or overdue).
    """
    outcomes = []
    for run in runs:
        what, how = (error, outcome) if error is not None else _what_happened(run)
        logger.warning(
            "job %s (%s, attempt %s) is rescued: %s",
            run.id,
            run.kind,
            run.attempt,
            what,
            extra={"job_id": run.id, "run_lease": run.run_lease, "kind": run.kind, "queue": run.queue},
        )
        outcomes.append(verdict.failed(run, what, worker=run.worker or worker, outcome=how, by=worker))
    return settle(connection, outcomes, worker=worker)


def release_runs(connection: PsycopgConnection, runs: Sequence[LostRun], *, worker: str) -> Settlement:
    """Give back runs that never started, uncharged."""
    settlement = settle(connection, [verdict.release(run) for run in runs], worker=worker)
    if settlement.released_queues:
        wake(connection, sorted(settlement.released_queues))
    return settlement


def _what_happened(run: LostRun) -> tuple[str, str]:
    if run.reason == "deadline":
        return "its deadline passed and its worker did not end it", "timed_out"
    return f"its worker {run.worker or '(unnamed)'} stopped sending heartbeats", "rescued"
