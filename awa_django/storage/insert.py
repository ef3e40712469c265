"""Put one job in, a unique one after its claim, or change the job that holds its key.

All run on Django's connection, in the transaction that is open there, and raise Django's errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from awa_django.storage._sql import Connection, fetch
from awa_django.storage.prepared import fetch_prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """What the jobs of one handler with the same options have in common: all but args and unique key.

    Due at ``run_at``, or ``delay`` from the database's now, or now. ``metadata`` is the text of a JSON
    object. ``unique_states`` is a ``bit(8)`` literal for unique jobs, whose rows have a key each.
    """

    kind: str
    queue: str
    priority: int
    max_attempts: int
    metadata: str = "{}"
    tags: tuple[str, ...] = ()
    run_at: datetime | None = None
    delay: timedelta | None = None
    unique_states: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is due now, and all else than the handler's own are the columns' defaults."""
        return (
            self.unique_states is None
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


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job to insert. ``args`` is the text of a JSON object, without control characters.

    ``unique_key`` (16 bytes) comes with a shape that has ``unique_states``. A struct, as a batch makes
    many of them: a frozen dataclass takes six times as long.
    """

    shape: JobShape
    args: str
    unique_key: bytes | None = None


class Inserted(NamedTuple):
    """A new job: whether it may run now, and whether somebody waits to be woken for it then."""

    job_id: int
    is_due: bool
    is_awaited: bool


class Holder(NamedTuple):
    """The job that holds a key: its state when it was looked at, and what came of the change.

    ``has_moved_on``: it was waiting and is not any more, so it was not changed: look again. The state
    is None when the claim is of no job.
    """

    job_id: int
    state: str | None
    is_changed: bool
    has_moved_on: bool


def insert_job(connection: Connection, job: NewJob) -> Inserted:
    """Insert a job whose shape ``is_plain``."""
    shape = job.shape
    assert shape.is_plain
    [(job_id, is_awaited)] = fetch_prepared(
        connection,
        "insert_job",
        kind=shape.kind,
        queue=shape.queue,
        args=job.args,
        priority=shape.priority,
        max_attempts=shape.max_attempts,
    )
    return Inserted(job_id, True, is_awaited)


def insert_job_at(connection: Connection, job: NewJob) -> Inserted:
    """Insert a job that is not unique where it belongs by the database's clock."""
    [row] = fetch_prepared(connection, "insert_job_at", **_columns(job))
    return Inserted(*row)


def insert_unique_job(connection: Connection, job: NewJob) -> Inserted | None:
    """Insert a unique job if its key is free; None if it is held.

    Waits for a rival's open transaction. Under READ COMMITTED it never fails on the key.
    """
    rows = fetch_prepared(
        connection,
        "insert_unique_job",
        **_columns(job),
        unique_key=job.unique_key,
        unique_states=job.shape.unique_states,
    )
    return Inserted(*rows[0]) if rows else None


def find_unique_holders(connection: Connection, unique_keys: Iterable[bytes]) -> dict[bytes, int]:
    """The ids of the jobs that hold these keys now; a free key is absent."""
    rows = fetch(connection, "find_unique_holders", unique_keys=list(unique_keys))
    return {bytes(unique_key): job_id for unique_key, job_id in rows}


def change_holder(
    connection: Connection, job: NewJob, *, replaces_args: bool, reschedules: bool
) -> Holder | None:
    """Give the waiting holder of the job's key its args, or its due instant; None when the key is free.

    Waits for whoever has the holder's row locked, and locks it until the open transaction ends.
    """
    rows = fetch(
        connection,
        "change_holder",
        unique_key=job.unique_key,
        args=job.args if replaces_args else None,
        reschedules=reschedules,
        run_at=job.shape.run_at,
        delay=job.shape.delay,
    )
    return Holder._make(rows[0]) if rows else None


def database_now(connection: Connection) -> datetime:
    """The database's clock: the start of the open transaction, or of this statement without one."""
    [(now,)] = fetch(connection, "database_now")
    return now  # type: ignore[no-any-return]


def _columns(job: NewJob) -> Mapping[str, object]:
    shape = job.shape
    return {
        "kind": shape.kind,
        "queue": shape.queue,
        "args": job.args,
        "priority": shape.priority,
        "max_attempts": shape.max_attempts,
        "metadata": shape.metadata,
        # Most jobs have none, and a literal is cheaper to adapt than a list.
        "tags": list(shape.tags) if shape.tags else "{}",
        "run_at": shape.run_at,
        "delay": shape.delay,
    }
