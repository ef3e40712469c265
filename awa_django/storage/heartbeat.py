"""Heartbeat and progress: a worker says that its runs live, and how far they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from awa_django.storage._sql import Connection, attempt_arrays, fetch
from awa_django.storage.rows import Attempt


def heartbeat(connection: Connection, attempts: Iterable[Attempt]) -> set[Attempt]:
    """Refresh ``heartbeat_at``; the runs that are still alive. An absent one was rescued, cancelled or ended.

    Two runs of one job may be asked for: the older one's handler may not know yet that it is over.
    """
    rows = fetch(connection, "heartbeat", **attempt_arrays(sorted(attempts)))
    return {Attempt._make(row) for row in rows}


def progress(connection: Connection, reports: Mapping[Attempt, str]) -> set[int]:
    """Store progress (JSON text by attempt); the ids still theirs."""
    ordered = sorted(reports)
    rows = fetch(
        connection,
        "progress",
        **attempt_arrays(ordered),
        progress=[reports[attempt] for attempt in ordered],
    )
    return {job_id for (job_id,) in rows}
