"""RunSQLFile: the migration operation over a pair of files in ``migrations/sql/``."""

from __future__ import annotations

import contextlib
import time
from importlib.resources import files
from typing import Any

from django.core.management.base import CommandError
from django.db import OperationalError, router, transaction
from django.db.migrations.operations.base import Operation

from awa_django.migrations._queue_alias import leads_to_queue

# Milliseconds that a migration waits for a lock on a table: behind one that waits, all others queue up.
# A lock_timeout of the role's own counts instead.
LOCK_TIMEOUT = 2_000
# So often it tries, and lets go of all its locks in between; then the migration is rolled back.
TRIES = 5
# lock_not_available, deadlock_detected
_BLOCKED = {"55P03", "40P01"}
# Who has open transactions with locks on the queue's tables: the oldest first.
_HOLDERS = """
    SELECT DISTINCT activity.pid, activity.application_name, activity.xact_start
    FROM pg_catalog.pg_locks AS held
    JOIN pg_catalog.pg_class AS class ON class.oid = held.relation
    JOIN pg_catalog.pg_stat_activity AS activity ON activity.pid = held.pid
    WHERE held.granted
        AND held.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
        AND class.relnamespace = to_regnamespace('awa')
        AND held.pid <> pg_backend_pid()
    ORDER BY activity.xact_start, activity.pid
    LIMIT 3
"""

# Any constant that nobody else is likely to lock; "awa" and "migr" in ASCII.
MIGRATION_LOCK = 0x6177616D696772


class RunSQLFile(Operation):
    """Run ``sql/<name>.sql`` forwards and ``sql/<name>.reverse.sql`` backwards.

    Only on PostgreSQL and only where the alias of ``AWA["DATABASE"]`` leads; elsewhere it does nothing.
    ``awa.schema_version`` has a row for each file applied: under a transaction advisory lock it
    makes a second process that migrates at the same time find the work done and skip it.
    """

    reduces_to_sql = True
    reversible = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = int(name.split("_", 1)[0])

    def state_forwards(self, app_label: str, state: Any) -> None:
        pass

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if not self._applies_to(schema_editor.connection) or self._is_applied(schema_editor):
            return
        statements = [
            self._text(f"{self.name}.sql"),
            f"INSERT INTO awa.schema_version (version, name) VALUES ({self.version}, '{self.name}')",
        ]
        if self.version == 1 and not self._has_schema(schema_editor):
            statements.insert(0, "CREATE SCHEMA awa")
        self._execute(schema_editor, statements)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if not self._applies_to(schema_editor.connection):
            return
        # Forwards a second run finds the work done. Backwards it would undo it: django-tenants runs the
        # migrations of each tenant on one alias, and its router says which tenant an app is none of.
        if not router.allow_migrate(schema_editor.connection.alias, app_label):
            return
        if not self._is_applied(schema_editor, default=True):
            return
        statements = [
            f"DELETE FROM awa.schema_version WHERE version = {self.version}",
            self._text(f"{self.name}.reverse.sql"),
        ]
        if self.version == 1:
            statements.append("DROP SCHEMA awa")
        self._execute(schema_editor, statements)

    def describe(self) -> str:
        return f"Run {self.name}.sql"

    @property
    def migration_name_fragment(self) -> str:
        return self.name

    def _execute(self, schema_editor: Any, statements: list[str]) -> None:
        """All of them, or none of them, as soon as nobody is in the way.

        Raises:
            CommandError: somebody was, each time; it says who.
        """
        connection = schema_editor.connection
        collects = schema_editor.collect_sql
        for try_number in range(1, TRIES + 1):
            began = time.monotonic()
            try:
                # Only the end of a savepoint gives back locks before the migration ends.
                with contextlib.nullcontext() if collects else transaction.atomic(using=connection.alias):
                    for statement in statements:
                        schema_editor.execute(statement, params=None)
            except OperationalError as exc:
                if getattr(exc.__cause__, "sqlstate", None) not in _BLOCKED:
                    raise
                if try_number == TRIES:
                    raise CommandError(self._blocked(connection)) from exc
            else:
                return
            # As long as it was in the way itself, so that who queued up behind it comes through.
            time.sleep(time.monotonic() - began)

    def _blocked(self, connection: Any) -> str:
        with connection.cursor() as cursor:
            cursor.execute(_HOLDERS)
            holders = [f"pid {pid} {name!r}, since {since}" for pid, name, since in cursor.fetchall()]
        return (
            f"{self.name} got no lock on a table of the queue in {TRIES} tries, and has changed nothing: run "
            "this again when the transactions that are open on them have ended"
            f" ({'; '.join(holders) or 'none is left now'})"
        )

    def _applies_to(self, connection: Any) -> bool:
        return leads_to_queue(connection)

    def _is_applied(self, schema_editor: Any, default: bool = False) -> bool:
        """Whether the file's row is there; takes the lock, so the answer holds until the commit."""
        if schema_editor.collect_sql:
            return default
        with schema_editor.connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
            cursor.execute(
                "SELECT set_config('lock_timeout', %s, true) WHERE current_setting('lock_timeout') = '0'",
                [f"{LOCK_TIMEOUT}ms"],
            )
            cursor.execute("SELECT to_regclass('awa.schema_version') IS NOT NULL")
            if not cursor.fetchone()[0]:
                return False
            cursor.execute("SELECT FROM awa.schema_version WHERE version = %s", [self.version])
            return cursor.fetchone() is not None

    @staticmethod
    def _has_schema(schema_editor: Any) -> bool:
        """Somebody has made it for a role that may make none: IF NOT EXISTS would be refused to it."""
        if schema_editor.collect_sql:
            return False
        with schema_editor.connection.cursor() as cursor:
            cursor.execute("SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'awa'")
            return cursor.fetchone() is not None

    @staticmethod
    def _text(file_name: str) -> str:
        return files(__package__).joinpath("sql", file_name).read_text(encoding="utf-8")
