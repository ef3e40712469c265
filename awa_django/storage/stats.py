"""Stats: ended runs per minute, queue and kind.

Each finish inserts what it adds (a delta) in its own statement; here the deltas become rollups.
"""

from __future__ import annotations

from datetime import timedelta

from awa_django.storage._sql import Connection, fetch, run


def fold_stats(connection: Connection, *, batch: int) -> int:
    """Fold up to ``batch`` deltas into ``awa.queue_stats``; how many there were."""
    count: int = fetch(connection, "fold_stats", batch=batch)[0][0]
    return count


def prune_stats(connection: Connection, *, kept: timedelta) -> int:
    """Delete the rollups of minutes longer ago than ``kept``; how many there were."""
    return run(connection, "prune_stats", kept=kept.total_seconds())
