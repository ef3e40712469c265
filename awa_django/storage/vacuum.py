"""Vacuum the two tables of jobs: PostgreSQL's own comes once a minute at best."""

from __future__ import annotations

from awa_django.storage._sql import Connection, fetch, run

HOT, DEFERRED = TABLES = ("awa.jobs_hot", "awa.scheduled_jobs")


def dead_rows(connection: Connection) -> dict[str, int]:
    """The estimated dead rows of each of the two tables."""
    return dict(zip(TABLES, fetch(connection, "dead_rows")[0], strict=True))


def vacuum(connection: Connection, table: str) -> None:
    """Vacuum one of the two tables; needs autocommit, and ownership or MAINTAIN."""
    if table == HOT:
        run(connection, "vacuum_hot")
    else:
        run(connection, "vacuum_deferred")
