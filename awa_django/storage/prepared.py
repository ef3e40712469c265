"""Prepare a producer's inserts: planning one costs as much as running it.

An insert reads no table, so its plan is right whatever the statistics say. Django itself prepares
nothing, because behind a transaction pooler the next statement may go to another session. There, the
process that answers is not the one that the session says it was opened with; where it is the same,
nobody is in between.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus

from awa_django.storage._sql import statement

# How often a session runs a statement before it prepares it (psycopg's own default): most sessions of
# a web server enqueue once or never.
THRESHOLD = 5

_direct: WeakSet[psycopg.Connection[Any]] = WeakSet()


def note_server(connection: Any, backend_pid: int) -> None:
    """Learn from the ``pg_backend_pid()`` of Django's connection whether a pooler is in between."""
    session = connection.connection
    if isinstance(session, psycopg.Connection) and session.info.backend_pid == backend_pid:
        _direct.add(session)


def fetch_prepared(connection: Any, name: str, /, **params: object) -> list[tuple[Any, ...]]:
    """Run the named insert on Django's connection, prepared where that is safe; its rows."""
    # What connection.cursor() does, but for the cursor, which could not prepare.
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    connection.validate_thread_sharing()
    session = connection.connection
    prepares = (
        session in _direct
        and session.prepare_threshold is None  # else OPTIONS have server-side binding, and say what they want
        and not connection.queries_logged  # the log shows the values only of Django's own cursors
    )
    with connection.make_cursor(_PreparingCursor(session)) if prepares else connection.cursor() as cursor:
        cursor.execute(statement(name), params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


class _PreparingCursor(psycopg.Cursor[Any]):
    def execute(self, query: Any, params: Any = None, **options: Any) -> _PreparingCursor:
        session = self.connection
        session.prepare_threshold = THRESHOLD
        try:
            return super().execute(query, params, **options)
        except psycopg.errors.InvalidSqlStatementName:
            # Somebody said DISCARD ALL or DEALLOCATE ALL.
            _direct.discard(session)
            if session.info.transaction_status is not TransactionStatus.IDLE:
                raise
            return super().execute(query, params, **options, prepare=False)
        finally:
            session.prepare_threshold = None
