"""Read one job, for a caller who has its id."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from awa_django.storage._sql import Connection, fetch
from awa_django.storage.rows import LARGEST_ID


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A row of either table of jobs; args, errors, metadata, progress and result are JSON text."""

    id: int
    kind: str
    queue: str
    state: str
    priority: int
    attempt: int
    max_attempts: int
    run_at: datetime
    created_at: datetime
    attempted_at: datetime | None
    finalized_at: datetime | None
    args: str
    errors: str
    metadata: str
    tags: list[str]
    progress: str | None
    result: str | None
    worker: str | None


def find_job(connection: Connection, job_id: int) -> StoredJob | None:
    """The job as it is now; None when there is none with this id."""
    if not 0 < int(job_id) <= LARGEST_ID:  # the database would refuse the number, and end a transaction
        return None
    rows = fetch(connection, "find_job", job_id=job_id)
    return StoredJob(*rows[0]) if rows else None
