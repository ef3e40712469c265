"""Promote: due rows, deferred -> hot."""

from __future__ import annotations

from awa_django.storage._sql import Connection, fetch


def promote(connection: Connection, *, batch: int) -> dict[str, int]:
    """Move up to ``batch`` due rows, earliest first; queue -> how many became available.

    In a transaction it takes the right index whatever the statistics say.
    """
    fetch(connection, "plan_in_order")
    return dict(fetch(connection, "promote", batch=batch))


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


def next_due(connection: Connection) -> float | None:
    """Seconds until the next deferred row is due, negative when overdue; None when there is none."""
    rows = fetch(connection, "next_due")
    return rows[0][0] if rows else None
