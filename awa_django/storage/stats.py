"""Stats: ended runs per minute, queue and kind.

Each finish inserts what it adds (a delta) in its own statement; here the deltas become rollups of a minute,
kept for a while, and totals, kept for as long as there are not too many.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from awa_django.storage._sql import Connection, fetch, run


def fold_stats(connection: Connection, *, batch: int) -> int:
    """Fold up to ``batch`` deltas into ``queue_stats`` and ``queue_totals``; how many there were."""
    count: int = fetch(connection, "fold_stats", batch=batch)[0][0]
    return count


class Totals(NamedTuple):
    """The ended runs of a queue and kind since the totals began, with histograms of waits and runs."""

    queue: str
    kind: str
    completed: int
    retried: int
    failed: int
    cancelled: int
    wait_seconds: float
    run_seconds: float
    waits: list[int]
    runs: list[int]


def totals(connection: Connection, *, limit: int) -> list[Totals]:
    """The first ``limit`` totals by queue and kind; as far as the leader has folded them."""
    return [Totals._make(row) for row in fetch(connection, "stats_totals", limit=limit)]


def count_totals(connection: Connection, *, limit: int) -> int:
    """How many totals there are, counting to ``limit`` at most."""
    count: int = fetch(connection, "count_totals", limit=limit)[0][0]
    return count


def prune_totals(connection: Connection, *, keep: int, batch: int) -> int:
    """Delete totals of pairs without a rollup left, down to ``keep`` and ``batch`` at most; how many."""
    return run(connection, "prune_totals", keep=keep, batch=batch)


def prune_stats(connection: Connection, *, kept: timedelta) -> int:
    """Delete the rollups of minutes longer ago than ``kept``; how many there were."""
    return run(connection, "prune_stats", kept=kept.total_seconds())


def mean_runs(connection: Connection, *, minutes: int) -> dict[str, float]:
    """Mean seconds of a run by queue: of the last ``minutes``, or of all that ever ran there."""
    return dict(fetch(connection, "mean_runs", minutes=minutes))
