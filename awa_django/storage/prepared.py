"""Prepare what is sent again and again: a producer's inserts, and the statements of a worker's own sessions.

Django itself prepares nothing, because behind a transaction pooler the next statement may go to another
session. There, the process that answers is not the one that the session says it was opened with; where
it is the same, nobody is in between.

An insert reads no more than the few rows of who waits, so its plan is right whatever the statistics say,
and is kept. A worker's statements are planned with their values each time: what is spared is reading
their text, a third of what an empty claim takes.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq import TransactionStatus

from awa_django.storage._sql import fetch, statement

# How often a session runs a statement before it prepares it (psycopg's own default): most sessions of
# a web server enqueue once or never.
THRESHOLD = 5

# Sessions, and whether to prepare in them.
_direct: WeakKeyDictionary[psycopg.Connection[Any], bool] = WeakKeyDictionary()


def prepare(session: psycopg.Connection[Any]) -> None:
    """Have a worker's session prepare what it runs for the second time; no plan is ever kept."""
    fetch(session, "own_session")
    session.prepare_threshold = 1


def has_lost_its_statements(exc: BaseException) -> bool:
    """Whether a session knows its statements no more (``DISCARD ALL``, a pooler after all), or they became
    others (a migration): the statement did nothing, and its session is to be opened anew, unprepared."""
    return isinstance(exc, psycopg.errors.InvalidSqlStatementName) or (
        isinstance(exc, psycopg.errors.FeatureNotSupported)
        and exc.diag.source_function == "RevalidateCachedQuery"
    )


def fetch_prepared(connection: Any, name: str, /, **params: object) -> list[tuple[Any, ...]]:
    """Run the named insert on Django's connection, prepared where that is safe; its rows.

    Its last column is ``pg_backend_pid()``, which tells whether a pooler is in between; the rows are
    without it.
    """
    # What connection.cursor() does, but for the cursor, which could not prepare.
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    connection.validate_thread_sharing()
    session = connection.connection
    prepares = (
        _direct.get(session, False)
        and session.prepare_threshold is None  # else OPTIONS have server-side binding, and say what they want
        and not connection.queries_logged  # the log shows the values only of Django's own cursors
    )
    with connection.make_cursor(_PreparingCursor(session)) if prepares else connection.cursor() as cursor:
        cursor.execute(statement(name), params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    if rows and session not in _direct:
        _direct[session] = session.info.backend_pid == rows[0][-1]
    return [row[:-1] for row in rows]


class _PreparingCursor(psycopg.Cursor[Any]):
    def execute(self, query: Any, params: Any = None, **options: Any) -> _PreparingCursor:
        session = self.connection
        session.prepare_threshold = THRESHOLD
        try:
            return super().execute(query, params, **options)
        except psycopg.errors.InvalidSqlStatementName:
            # Somebody said DISCARD ALL or DEALLOCATE ALL, and may say it again.
            _direct[session] = False
            if session.info.transaction_status is not TransactionStatus.IDLE:
                raise
            return super().execute(query, params, **options, prepare=False)
        finally:
            session.prepare_threshold = None
