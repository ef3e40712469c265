"""The schema where migrations are not what makes it, or did so elsewhere.

- A database made without migrations (``pytest --nomigrations``, ``MIGRATION_MODULES``): Django makes the
  tables of such apps from their models. Ours are unmanaged, and models know no triggers and no view.
- A database whose migrations are applied as Django knows, by an alias that was not the queue's: through a
  pooler, or before ``AWA["DATABASE"]`` named this one. They would never be run again.

The same files as ever are run.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from django.db import connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from awa_django.migrations._queue_alias import leads_to_queue
from awa_django.migrations._run_sql import RunSQLFile


def install(*, using: str, **sent: Any) -> None:
    """At the end of ``migrate``: run what of the files should have been, and has not."""
    is_flush = "plan" not in sent  # it sends the same signal
    connection = connections[using]
    if is_flush or not leads_to_queue(connection):
        return
    names = sorted(
        entry.name.removesuffix(".sql")
        for entry in files(__package__).joinpath("sql").iterdir()
        if entry.name.endswith(".sql") and not entry.name.endswith(".reverse.sql")
    )
    module, _is_explicit = MigrationLoader.migrations_module("awa")
    if module is not None:
        applied = {name for app, name in MigrationRecorder(connection).applied_migrations() if app == "awa"}
        names = [name for name in names if name in applied - _installed(connection)]
    if names:
        with connection.schema_editor() as schema_editor:
            for name in names:
                RunSQLFile(name).database_forwards("awa", schema_editor, None, None)


def _installed(connection: Any) -> set[str]:
    """The files that have been run, as the schema itself tells."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('awa.schema_version') IS NOT NULL")
        if not cursor.fetchone()[0]:
            return set()
        cursor.execute("SELECT name FROM awa.schema_version")
        return {name for (name,) in cursor.fetchall()}
