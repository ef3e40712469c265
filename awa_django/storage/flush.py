"""Empty the queue's tables: Django's flush leaves unmanaged tables alone."""

from __future__ import annotations

from awa_django.storage._sql import Connection, fetch, run


def flush(connection: Connection) -> None:
    """Delete all jobs, claims, pauses, schedules and what is known of workers; vacate the duties."""
    run(connection, "flush_queue")
    run(connection, "vacate_duties")


def anything_to_flush(connection: Connection) -> bool:
    """Whether any of that is there. Not where the schema is not installed."""
    [(is_installed,)] = fetch(connection, "is_installed")
    if not is_installed:
        return False
    [(found,)] = fetch(connection, "anything_to_flush")
    return bool(found)
