"""Vacuumer: vacuums the tables of jobs under load; PostgreSQL's own comes once a minute at best."""

from __future__ import annotations

from datetime import timedelta

from awa_django.storage import vacuum as storage
from awa_django.worker.duty import Duty

# Dead rows at the head of the claim index: 100,000 add 600 pages to every claim.
WORTH_IT = 10_000
LONGEST_VACUUM = 600.0


class Vacuumer(Duty):
    """Needs ownership of the tables or MAINTAIN; without it the server warns and nothing happens."""

    name = "vacuumer"
    duty = "vacuum"
    interval = timedelta(seconds=10)

    @property
    def longest_tick(self) -> float:
        """The first vacuum of a big table takes its time."""
        return LONGEST_VACUUM

    def perform(self) -> float | None:
        with self.session.use() as connection:
            if not connection.autocommit:
                return None  # its role's default isolation forces transactions on us: leave it to autovacuum
            hot, deferred = storage.dead_rows(connection)
            if hot >= WORTH_IT:
                storage.vacuum_hot(connection)
            if deferred >= WORTH_IT:
                storage.vacuum_deferred(connection)
        return None
