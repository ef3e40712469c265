"""Put jobs in: one row by INSERT, many by COPY, unique ones after their claims.

All run on Django's connection, in the transaction that is open there, and raise Django's errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from awa_django.storage._sql import Connection, fetch, statement


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to insert; ``args`` and ``metadata`` are the text of JSON objects.

    Due at ``run_at``, or ``delay`` from the database's now, or now. ``unique_key`` (16 bytes) and
    ``unique_states`` (a ``bit(8)`` literal) come together or not at all.
    """

    kind: str
    queue: str
    args: str
    priority: int
    max_attempts: int
    metadata: str = "{}"
    tags: tuple[str, ...] = ()
    run_at: datetime | None = None
    delay: timedelta | None = None
    unique_key: bytes | None = None
    unique_states: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is due now, and all else than the handler's own are the columns' defaults."""
        return (
            self.unique_key is None
            and self.run_at is None
            and self.delay is None
            and not self.tags
            and self.metadata == "{}"
        )

    def due_at(self, now: datetime) -> datetime:
        """When the job is due, if the database's clock says ``now``."""
        if self.run_at is not None:
            return self.run_at
        return now if self.delay is None else now + self.delay


def insert_job(connection: Connection, job: NewJob) -> int:
    """Insert a job that ``is_plain``; its id."""
    assert job.is_plain
    rows = fetch(
        connection,
        "insert_job",
        kind=job.kind,
        queue=job.queue,
        args=job.args,
        priority=job.priority,
        max_attempts=job.max_attempts,
    )
    return int(rows[0][0])


def insert_job_at(connection: Connection, job: NewJob) -> tuple[int, bool]:
    """Insert a job that is not unique where it belongs by the database's clock.

    Its id, and whether it may run now.
    """
    rows = fetch(connection, "insert_job_at", **_columns(job), run_at=job.run_at, delay=job.delay)
    return rows[0][0], rows[0][1]


def insert_unique_job(connection: Connection, job: NewJob) -> tuple[int, bool] | None:
    """Insert a unique job if its key is free; its id and whether it may run now, or None if it is held.

    Waits for a rival's open transaction. Under READ COMMITTED it never fails on the key.
    """
    rows = fetch(
        connection,
        "insert_unique_job",
        **_columns(job),
        run_at=job.run_at,
        delay=job.delay,
        unique_key=job.unique_key,
        unique_states=job.unique_states,
    )
    return (rows[0][0], rows[0][1]) if rows else None


def find_unique_holders(connection: Connection, unique_keys: Iterable[bytes]) -> dict[bytes, int]:
    """The ids of the jobs that hold these keys now; a free key is absent."""
    rows = fetch(connection, "find_unique_holders", unique_keys=list(unique_keys))
    return {bytes(unique_key): job_id for unique_key, job_id in rows}


def take_unique_keys(connection: Connection, wanted: Sequence[tuple[bytes, int]]) -> set[int]:
    """Take the free ones of (key, job id) pairs, which must be sorted; the ids that got their key.

    The jobs are to be inserted in the same transaction.
    """
    rows = fetch(
        connection,
        "take_unique_keys",
        unique_keys=[unique_key for unique_key, _ in wanted],
        job_ids=[job_id for _, job_id in wanted],
    )
    return {job_id for (job_id,) in rows}


def reserve_ids(connection: Connection, count: int) -> tuple[datetime, list[int]]:
    """The database's now, and ``count`` (at least 1) ids for jobs that are to be inserted."""
    [(now, ids)] = fetch(connection, "reserve_ids", count=count)
    return now, ids


def database_now(connection: Connection) -> datetime:
    """The database's clock: the start of the open transaction, or of this statement without one."""
    [(now,)] = fetch(connection, "database_now")
    return now  # type: ignore[no-any-return]


def copy_jobs(connection: Any, jobs: Iterable[tuple[int, NewJob]], *, now: datetime, deferred: bool) -> None:
    """COPY jobs under the ids of ``reserve_ids``, which told ``now``, into one of the tables.

    Only on Django's connection, whose errors it raises. Unique jobs must hold their keys already.
    """
    text = statement("copy_deferred_jobs" if deferred else "copy_hot_jobs")
    # COPY is not an execute(): without these two it would run in a broken atomic block, and raise
    # the driver's errors instead of Django's.
    connection.validate_no_broken_transaction()
    with connection.cursor() as cursor, connection.wrap_database_errors, cursor.copy(text) as copy:
        for job_id, job in jobs:
            copy.write_row(
                (
                    job_id,
                    job.kind,
                    job.queue,
                    job.args,
                    job.priority,
                    job.max_attempts,
                    job.metadata,
                    _tags(job),
                    job.due_at(now),
                    job.unique_key,
                    job.unique_states,
                )
            )


def _columns(job: NewJob) -> Mapping[str, object]:
    return {
        "kind": job.kind,
        "queue": job.queue,
        "args": job.args,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "metadata": job.metadata,
        "tags": _tags(job),
    }


def _tags(job: NewJob) -> list[str] | str:
    # Most jobs have none, and a literal is cheaper to adapt than a list.
    return list(job.tags) if job.tags else "{}"
