"""Stats: keeps the catalogue of kinds, from which the admin takes its choices."""

from __future__ import annotations

from datetime import timedelta

from awa_django.storage.catalogue import catalogue_recent_kinds
from awa_django.worker.duty import Duty

# A kind that comes in by raw SQL is in the catalogue after a minute, if it is among the newest rows.
WINDOW = 5_000


class Stats(Duty):
    """Looks at the newest hot rows and at each kind of the deferred ones."""

    name = "stats"
    duty = "stats"
    interval = timedelta(seconds=60)

    def perform(self) -> float | None:
        with self.session.use() as connection:
            catalogue_recent_kinds(connection, window=WINDOW)
        return None
