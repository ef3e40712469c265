"""The schema where a database is made without migrations: ``pytest --nomigrations``, ``MIGRATION_MODULES``.

Django makes the tables of such apps from their models. Ours are unmanaged, and models know no triggers and
no view: the same files as ever are run.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from django.db import connections
from django.db.migrations.loader import MigrationLoader

from awa_django.conf import get_settings
from awa_django.migrations._run_sql import RunSQLFile


def install(*, using: str, **sent: Any) -> None:
    """At the end of ``migrate``: run what of the files has not been, if the app has no migrations here."""
    is_flush = "plan" not in sent  # it sends the same signal
    if is_flush or using != get_settings().database or connections[using].vendor != "postgresql":
        return
    module, _is_explicit = MigrationLoader.migrations_module("awa")
    if module is not None:
        return
    names = sorted(
        entry.name.removesuffix(".sql")
        for entry in files(__package__).joinpath("sql").iterdir()
        if entry.name.endswith(".sql") and not entry.name.endswith(".reverse.sql")
    )
    with connections[using].schema_editor() as schema_editor:
        for name in names:
            RunSQLFile(name).database_forwards("awa", schema_editor, None, None)
