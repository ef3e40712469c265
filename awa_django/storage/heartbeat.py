"""Heartbeat and progress: a worker says that its runs live, and how far they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from awa_django.storage._sql import Connection, fetch, integers
from awa_django.storage.rows import Attempt


def heartbeat(connection: Connection, attempts: Iterable[Attempt]) -> set[Attempt]:
    """Refresh ``heartbeat_at``; the runs that are still alive. An absent one was rescued, cancelled or ended.

    Two runs of one job may be asked for: the older one's handler may not know yet that it is over.
    """
    ordered = sorted(attempts)
    rows = fetch(
        connection,
        "heartbeat",
        job_ids=integers(job_id for job_id, _ in ordered),
        run_leases=integers(run_lease for _, run_lease in ordered),
    )
    return {Attempt._make(row) for row in rows}


def progress(connection: Connection, reports: Mapping[Attempt, str]) -> set[int]:
    """Store progress (JSON text by attempt); the ids still theirs."""
    ordered = sorted(reports)
    rows = fetch(
        connection,
        "progress",
        job_ids=integers(job_id for job_id, _ in ordered),
        run_leases=integers(run_lease for _, run_lease in ordered),
        progress=[reports[attempt] for attempt in ordered],
    )
    return {job_id for (job_id,) in rows}
