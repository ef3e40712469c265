"""Vacuum the two tables of jobs: PostgreSQL's own comes once a minute at best."""

from __future__ import annotations

from awa_django.storage._sql import Connection, fetch, run


def dead_rows(connection: Connection) -> tuple[int, int]:
    """The estimated dead rows of ``awa.jobs_hot`` and of ``awa.scheduled_jobs``."""
    hot, deferred = fetch(connection, "dead_rows")[0]
    return hot, deferred


def vacuum_hot(connection: Connection) -> None:
    """Vacuum ``awa.jobs_hot``; needs autocommit, and ownership or MAINTAIN."""
    run(connection, "vacuum_hot")


def vacuum_deferred(connection: Connection) -> None:
    """Vacuum ``awa.scheduled_jobs``; needs autocommit, and ownership or MAINTAIN."""
    run(connection, "vacuum_deferred")
