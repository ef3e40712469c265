"""RunSQLFile: the migration operation over a pair of files in ``migrations/sql/``."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from django.db.migrations.operations.base import Operation

from awa_django.conf import get_settings

# Milliseconds that a migration waits for a lock on a table: behind one that waits, all others queue up.
# It is then rolled back and can be run again. A lock_timeout of the role's own counts instead.
LOCK_TIMEOUT = 2_000

# Any constant that nobody else is likely to lock; "awa" and "migr" in ASCII.
MIGRATION_LOCK = 0x6177616D696772


class RunSQLFile(Operation):
    """Run ``sql/<name>.sql`` forwards and ``sql/<name>.reverse.sql`` backwards.

    Only on PostgreSQL and only on the alias of ``AWA["DATABASE"]``; elsewhere it does nothing.
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
        if self.version == 1 and not self._has_schema(schema_editor):
            schema_editor.execute("CREATE SCHEMA awa", params=None)
        schema_editor.execute(self._text(f"{self.name}.sql"), params=None)
        schema_editor.execute(
            f"INSERT INTO awa.schema_version (version, name) VALUES ({self.version}, '{self.name}')",
            params=None,
        )

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if not self._applies_to(schema_editor.connection):
            return
        if not self._is_applied(schema_editor, default=True):
            return
        schema_editor.execute(f"DELETE FROM awa.schema_version WHERE version = {self.version}", params=None)
        schema_editor.execute(self._text(f"{self.name}.reverse.sql"), params=None)
        if self.version == 1:
            schema_editor.execute("DROP SCHEMA awa", params=None)

    def describe(self) -> str:
        return f"Run {self.name}.sql"

    @property
    def migration_name_fragment(self) -> str:
        return self.name

    def _applies_to(self, connection: Any) -> bool:
        return bool(connection.vendor == "postgresql" and connection.alias == get_settings().database)

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
