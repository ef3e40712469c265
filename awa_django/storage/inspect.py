"""Questions a worker asks about the database itself."""

from __future__ import annotations

from collections.abc import Sequence

from awa_django.storage._sql import Connection, fetch

# The number of the newest migration file that this code works on.
SCHEMA_VERSION = 10


def session(connection: Connection) -> tuple[str, int]:
    """The isolation level that its transactions begin with, and the id of the process that answers."""
    [(level, answered_by)] = fetch(connection, "session")
    return level, answered_by


def schema_version(connection: Connection) -> int | None:
    """The installed version of the schema; None when no migration has run.

    Raises:
        psycopg.errors.UndefinedTable: the schema is not installed at all.
    """
    version: int | None = fetch(connection, "schema_version")[0][0]
    return version


def anything_due(connection: Connection, queues: Sequence[str], kinds: Sequence[str]) -> bool:
    """Whether one of the queues, unless paused, has a job of these kinds that is available or due."""
    return bool(fetch(connection, "anything_due", queues=list(queues), kinds=list(kinds))[0][0])


def limit_lock_wait(connection: Connection, *, milliseconds: int) -> None:
    """Let the open transaction wait at most so long for a lock; then it fails with LockNotAvailable."""
    fetch(connection, "limit_lock_wait", milliseconds=milliseconds)


def limit_idling(connection: Connection, *, milliseconds: int) -> None:
    """Have the server end the session when the open transaction hears nothing for so long."""
    fetch(connection, "limit_idling", milliseconds=milliseconds)


def terminate_sessions(connection: Connection, application_names: Sequence[str]) -> int:
    """End the sessions of these application names; how many there still were."""
    count: int = fetch(connection, "terminate_sessions", application_names=list(application_names))[0][0]
    return count
