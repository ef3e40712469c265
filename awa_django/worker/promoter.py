"""Promoter: moves due jobs to the hot table at the instant they fall due."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import psycopg

from awa_django import failpoints
from awa_django.logs import get_logger
from awa_django.storage import promote as storage
from awa_django.storage.wake import wake
from awa_django.worker import error_entry
from awa_django.worker.cursor import DueCursor
from awa_django.worker.database import PsycopgConnection, Session, transaction
from awa_django.worker.duty import Duty
from awa_django.worker.leader import Leader

logger = get_logger(__name__)

BATCH = 2_000
# The first batch of a burst is on its way to the workers sooner: 17 ms after the instant, and not 44.
FIRST_BATCH = 500
# Due rows that somebody else has locked are looked at again after this.
LOCKED_WAIT = 0.05
SHORTEST_WAIT = 0.001
# So many looks in a row that saw nothing due within the interval, and the next ones come half as often.
QUIET_LOOKS = 20


class Promoter(Duty):
    """Sleeps until the next due instant, at most ``interval``: a sooner job may come in at any time."""

    name = "promoter"
    duty = "promote"

    def __init__(
        self,
        session: Session,
        leader: Leader,
        *,
        interval: timedelta,
        worker: str,
        on_promoted: Callable[[], None] = lambda: None,
        always: bool = False,
        may_rest: Callable[[], bool] = lambda: False,
    ) -> None:
        self.interval = interval
        super().__init__(session, leader)
        self._worker = worker
        self._on_promoted = on_promoted
        self._always = always
        self._may_rest = may_rest
        self._quiet_looks = 0
        # A little less than the interval: a look after an idle one then begins at the head.
        self._cursor = DueCursor(longest_rest=interval * 0.8)

    @property
    def is_leading(self) -> bool:
        """``always`` promotes without the lease, which is safe: a draining worker needs its due jobs now."""
        return not self.is_stopping and (self._always or super().is_leading)

    def perform(self) -> float | None:
        batch = FIRST_BATCH
        while self.is_leading:
            with self.session.use() as connection:
                wait = self._cursor.next_due(connection)
                if wait is None or wait > 0:
                    return self._until_next_look(float("inf") if wait is None else wait)
                self._quiet_looks = 0
                promoted = self._promote(connection, batch)
                if promoted:
                    wake(connection, sorted(promoted))
            if promoted:
                self._on_promoted()
            if sum(promoted.values()) < batch:
                return SHORTEST_WAIT if promoted else LOCKED_WAIT
            batch = BATCH
        return None

    def _until_next_look(self, due_in: float) -> float:
        """Until the next job is due; but one that is due sooner may come in and must not be late by much.

        When nothing was due for a while and what is promoted wakes its worker, twice the interval will
        do: a job then starts no later than with the interval and a worker that has to poll for it.
        What the cursor left out, it looks at as soon as it may.
        """
        longest = self.interval.total_seconds()
        self._quiet_looks = self._quiet_looks + 1 if due_in > longest else 0
        if self._quiet_looks > QUIET_LOOKS and self._may_rest():
            longest *= 2
        if self._cursor.complete_in is not None:
            due_in = min(due_in, self._cursor.complete_in)
        return min(max(due_in, SHORTEST_WAIT), longest)

    def _promote(self, connection: PsycopgConnection, batch: int) -> dict[str, int]:
        try:
            with transaction(connection):
                promoted = storage.promote(connection, batch=batch, since=self._cursor.since)
                failpoints.hit("in_promotion")
                return promoted
        except (psycopg.IntegrityError, psycopg.DataError) as exc:
            logger.warning("a promotion failed, promoting one by one: %s", exc)
            return self._promote_singly(connection, batch)

    def _promote_singly(self, connection: PsycopgConnection, batch: int) -> dict[str, int]:
        """Some row refuses to move: move the others, and end that one in a named way."""
        promoted: dict[str, int] = {}
        for job_id in storage.due_ids(connection, batch=batch):
            try:
                with transaction(connection):
                    queue = storage.promote_one(connection, job_id)
            except (psycopg.IntegrityError, psycopg.DataError) as exc:
                logger.warning("job %s cannot become available: %s", job_id, exc, extra={"job_id": job_id})
                note = error_entry.refused(exc, worker=self._worker, what="it was due")
                with transaction(connection):
                    ended = storage.supersede(connection, job_id, note)
                self.superseded_count += ended and isinstance(exc, psycopg.errors.UniqueViolation)
            else:
                if queue is not None:
                    promoted[queue] = promoted.get(queue, 0) + 1
        return promoted
