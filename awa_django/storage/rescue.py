"""Rescue: find running rows that nobody answers for. ``finalize`` then decides their fate."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from awa_django.storage._sql import Connection, fetch
from awa_django.storage.rows import LostRun


def lost_runs(connection: Connection, *, stale_after: timedelta, batch: int) -> list[LostRun]:
    """Running rows without a heartbeat for ``stale_after``, or past their deadline.

    They are locked: call it in a transaction that ends with the outcome, so that no heartbeat comes
    between.
    """
    rows = fetch(connection, "lost_runs", stale_after=stale_after.total_seconds(), batch=batch)
    return [LostRun._make(row) for row in rows]


def runs_of_worker(
    connection: Connection, workers: Sequence[str], *, min_age: timedelta = timedelta()
) -> list[LostRun]:
    """Running rows in the name of these workers, claimed at least ``min_age`` ago."""
    rows = fetch(connection, "runs_of_worker", workers=list(workers), min_age=min_age.total_seconds())
    return [LostRun._make(row) for row in rows]
