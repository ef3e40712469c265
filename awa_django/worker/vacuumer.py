"""Vacuumer: vacuums the tables of jobs under load; PostgreSQL's own comes once a minute at best."""

from __future__ import annotations

import time
from datetime import timedelta

from awa_django.storage import vacuum as storage
from awa_django.worker.database import PsycopgConnection, Session
from awa_django.worker.duty import Duty
from awa_django.worker.leader import Leader

# Dead rows at the head of the claim index: 100,000 add 600 pages to every claim.
WORTH_IT = 10_000
LONGEST_VACUUM = 600.0
# A vacuum that leaves most dead rows, since somebody's snapshot is older, has read them all in vain (1.5 s
# for 3 million). The next one of this table then waits for so many times as long, and not for more seconds.
REST = 40.0
LONGEST_REST = 300.0


class Vacuumer(Duty):
    """Needs ownership of the tables or MAINTAIN; without it the server warns and nothing happens."""

    name = "vacuumer"
    duty = "vacuum"
    interval = timedelta(seconds=10)

    def __init__(self, session: Session, leader: Leader) -> None:
        super().__init__(session, leader)
        self._rests_until: dict[str, float] = {}

    @property
    def longest_tick(self) -> float:
        """The first vacuum of a big table takes its time."""
        return LONGEST_VACUUM

    def perform(self) -> float | None:
        with self.session.use() as connection:
            if not connection.autocommit:
                return None  # its role's default isolation forces transactions on us: leave it to autovacuum
            for table, count in storage.dead_rows(connection).items():
                if count >= WORTH_IT and time.monotonic() >= self._rests_until.get(table, 0.0):
                    self._vacuum(connection, table, count)
        return None

    def _vacuum(self, connection: PsycopgConnection, table: str, count: int) -> None:
        began_at = time.monotonic()
        storage.vacuum(connection, table)
        ended_at = time.monotonic()
        if storage.dead_rows(connection)[table] > count / 2:
            self._rests_until[table] = ended_at + min((ended_at - began_at) * REST, LONGEST_REST)
