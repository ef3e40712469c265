"""Empty the queue's tables, for tests: Django's flush leaves unmanaged tables alone."""

from __future__ import annotations

from awa_django.storage._sql import Connection, run


def flush(connection: Connection) -> None:
    """Delete all jobs, claims, pauses, schedules and what is known of workers; vacate the duties."""
    run(connection, "flush_queue")
    run(connection, "vacate_duties")
