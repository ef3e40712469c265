"""Leader: takes and renews the row leases of the duties that are done once for the installation."""

from __future__ import annotations

import time
from datetime import timedelta

from awa_django import failpoints
from awa_django.storage import leader as leases
from awa_django.worker.database import Session
from awa_django.worker.service import Service

DUTIES = ("promote", "rescue", "cron", "prune", "stats", "vacuum")
# A duty is without a holder for at most this after its holder died: promotion then runs late by it.
LEASE = timedelta(seconds=6)
RENEW = timedelta(seconds=2)
# The holder stops this much before the row says so: a statement under way ends within it.
MARGIN = 1.0


class Leader(Service):
    """Nothing is unsafe with two leaders, so a lease needs no more than an expiry."""

    name = "leader"
    interval = RENEW

    def __init__(self, session: Session, holder: str, duties: tuple[str, ...] = DUTIES) -> None:
        super().__init__()
        self._session = session
        self._holder = holder
        self._duties = duties
        self._until: dict[str, float] = {}

    def holds(self, duty: str) -> bool:
        """Whether the lease of the duty is surely still ours."""
        return time.monotonic() < self._until.get(duty, 0.0)

    def duties(self) -> list[str]:
        """The duties held now."""
        return [duty for duty in self._duties if self.holds(duty)]

    def tick(self) -> float | None:
        failpoints.hit("in_leader")
        asked_at = time.monotonic()  # the row's lease runs from later than this
        with self._session.use() as connection:
            held = leases.lead(connection, self._duties, holder=self._holder, ttl=LEASE)
        until = asked_at + LEASE.total_seconds() - MARGIN
        self._until = {duty: until if duty in held else self._until.get(duty, 0.0) for duty in self._duties}
        return None

    def resign(self) -> None:
        """Hold nothing any more, so that a successor need not wait; after the last tick."""
        self._until = {}
        try:
            with self._session.use() as connection:
                leases.resign(connection, holder=self._holder)
        finally:
            self._session.close()

    def close(self) -> None:
        """The session stays open for ``resign``."""
        self._until = {}
