"""Stats: folds what finishes counted into rollups, and keeps the catalogue of kinds for the admin."""

from __future__ import annotations

import time
from datetime import timedelta

from awa_django.storage.catalogue import catalogue_recent_kinds
from awa_django.storage.stats import fold_stats, prune_stats, prune_totals
from awa_django.worker.database import Session
from awa_django.worker.duty import Duty
from awa_django.worker.leader import Leader

# Deltas folded in one statement; each finish of a batch makes one for each kind in it.
BATCH = 5_000
# A rollup is one row a minute, queue and kind: a week of 100 kinds is a million rows.
KEPT = timedelta(days=7)
# The metrics tell so many pairs of queue and kind. Beyond, totals that nothing was added to for a week go.
MOST_TOTALS = 500
PRUNE_TOTALS_EVERY = 3600.0
# A kind that comes in by raw SQL is in the catalogue after a minute, if it is among the newest rows.
CATALOGUE_EVERY = 60.0
WINDOW = 5_000


class Stats(Duty):
    """Looks at the newest hot rows and at each kind of the deferred ones for the catalogue."""

    name = "stats"
    duty = "stats"
    interval = timedelta(seconds=10)

    def __init__(self, session: Session, leader: Leader) -> None:
        super().__init__(session, leader)
        self._catalogued_at = float("-inf")
        self._totals_pruned_at = float("-inf")

    def perform(self) -> float | None:
        while self.is_leading:
            with self.session.use() as connection:
                if fold_stats(connection, batch=BATCH) < BATCH:
                    break
        if time.monotonic() - self._catalogued_at >= CATALOGUE_EVERY:
            with self.session.use() as connection:
                prune_stats(connection, kept=KEPT)
                catalogue_recent_kinds(connection, window=WINDOW)
            self._catalogued_at = time.monotonic()
        if time.monotonic() - self._totals_pruned_at >= PRUNE_TOTALS_EVERY:
            self._totals_pruned_at = time.monotonic()  # before: it is tried once in that time
            with self.session.use() as connection:
                prune_totals(connection, keep=MOST_TOTALS, batch=BATCH)
        return None
