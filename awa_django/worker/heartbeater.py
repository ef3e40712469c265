"""Heartbeater: refreshes the leases of all that the children hold, from the slots in shared memory.

It runs in the supervisor, so a handler that holds its process's GIL for minutes is not mistaken for
dead; and it beats only for slots that are in use, so a handler that is gone is not kept alive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta

import psycopg

from awa_django import failpoints
from awa_django.logs import get_logger
from awa_django.storage.heartbeat import heartbeat
from awa_django.storage.locked import locked_runs
from awa_django.storage.rows import Attempt
from awa_django.worker.child_process import ChildProcess
from awa_django.worker.database import Session, short_lock_wait
from awa_django.worker.service import Service
from awa_django.worker.slots import Slot

logger = get_logger(__name__)

BATCH = 1_000


class Heartbeater(Service):
    """A run whose lease is over, or has not been confirmed for too long, is told to stop."""

    name = "heartbeater"

    def __init__(
        self,
        session: Session,
        children: Callable[[], Iterable[ChildProcess]],
        *,
        heartbeat_interval: timedelta,
        stale_after: timedelta,
    ) -> None:
        self._every = heartbeat_interval.total_seconds()
        self.interval = heartbeat_interval / 3
        super().__init__()
        self._session = session
        self._children = children
        # After this without a confirmed beat the lease may be lost: one interval before it is.
        self._doubt_after = max(stale_after.total_seconds() - self._every, self._every)
        self._confirmed: dict[Attempt, float] = {}
        self._doubted: frozenset[Attempt] = frozenset()

    def tick(self) -> float | None:
        failpoints.hit("in_heartbeat")
        now = time.monotonic()
        held = {
            slot.attempt: (child, slot)
            for child in self._children()
            if not child.is_frozen()
            for slot in child.slots()
        }
        self._confirmed = {run: self._confirmed.get(run, slot.held_at) for run, (_, slot) in held.items()}
        due = [run for run in held if now - self._confirmed[run] >= self._every / 2]
        try:
            for start in range(0, len(due), BATCH):
                self._beat_or_split(due[start : start + BATCH], held)
        finally:
            self._doubt(held)
        return None

    def close(self) -> None:
        self._session.close()

    def _beat_or_split(
        self, runs: Sequence[Attempt], held: Mapping[Attempt, tuple[ChildProcess, Slot]]
    ) -> None:
        """One locked row must not cost the others their leases: it goes without, they do not."""
        try:
            self._beat(runs, held)
        except (
            psycopg.errors.QueryCanceled,
            psycopg.errors.LockNotAvailable,
            psycopg.errors.DeadlockDetected,
        ):
            self._beat(runs, held, is_patient=False)

    def _beat(
        self,
        runs: Sequence[Attempt],
        held: Mapping[Attempt, tuple[ChildProcess, Slot]],
        *,
        is_patient: bool = True,
    ) -> None:
        sent_at = time.monotonic()
        with self._session.use() as connection:
            if is_patient:
                locked: set[Attempt] = set()
                alive = heartbeat(connection, runs)
            else:
                with short_lock_wait(connection):
                    locked = locked_runs(connection, runs)
                    alive = heartbeat(connection, [run for run in runs if run not in locked])
        for run in runs:
            if run in alive:
                self._confirmed[run] = sent_at
            elif run not in locked:
                # Rescued, cancelled, or its finish was just written: only a run still going is told.
                child, slot = held[run]
                child.mark_cancelled(slot)

    def _doubt(self, held: Mapping[Attempt, tuple[ChildProcess, Slot]]) -> None:
        """Tell runs whose lease nobody has confirmed for so long that it may be another's now."""
        now = time.monotonic()
        doubted = frozenset(run for run in held if now - self._confirmed[run] > self._doubt_after)
        for run in doubted:
            child, slot = held[run]
            child.mark_cancelled(slot)
        for run in sorted(doubted - self._doubted):  # said once: an outage may be long
            logger.warning(
                "job %s: no confirmed heartbeat for %.0f s, its handler is asked to stop",
                run.job_id,
                now - self._confirmed[run],
                extra={"job_id": run.job_id, "run_lease": run.run_lease},
            )
        self._doubted = doubted
