"""Promote: due rows, deferred -> hot."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from awa_django.storage._sql import Connection, fetch
from awa_django.storage.plan import plan_in_order


class NextDue(NamedTuple):
    """When the next deferred row is due (None without one); ``now`` is the database's clock.

    ``page_count`` is what was read of the index to find it.
    """

    now: datetime
    run_at: datetime | None
    page_count: int

    @property
    def seconds(self) -> float | None:
        """Until then; negative when it is overdue."""
        return None if self.run_at is None else (self.run_at - self.now).total_seconds()


def promote(connection: Connection, *, batch: int, since: datetime | None = None) -> dict[str, int]:
    """Move up to ``batch`` due rows, earliest first; queue -> how many became available.

    None that was due before ``since`` is looked for. In a transaction it takes the right index
    whatever the statistics say.
    """
    plan_in_order(connection)
    return dict(fetch(connection, "promote", batch=batch, since=since))


def due_ids(connection: Connection, *, batch: int) -> list[int]:
    """The ids that ``promote`` would move now."""
    return [job_id for (job_id,) in fetch(connection, "due_ids", batch=batch)]


def promote_one(connection: Connection, job_id: int) -> str | None:
    """Move one due row; its queue, or None if it has moved on.

    Raises:
        psycopg.errors.UniqueViolation: another job holds its key; see ``supersede``.
    """
    rows = fetch(connection, "promote_one", job_id=job_id)
    return rows[0][0] if rows else None


def supersede(connection: Connection, job_id: int, entry: str) -> bool:
    """Cancel a deferred job whose key another job holds; False if it has moved on."""
    return bool(fetch(connection, "supersede", job_id=job_id, entry=entry))


def next_due(connection: Connection, *, since: datetime | None = None) -> NextDue:
    """The first deferred row, or, in a transaction, the first one that is due no sooner than ``since``."""
    if since is not None:
        plan_in_order(connection)
    [row] = fetch(connection, "next_due", since=since)
    return NextDue._make(row)
