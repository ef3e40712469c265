"""A database of the benchmarks' own, and Django on it. Import before anything that needs Django."""

from __future__ import annotations

import os
from urllib.parse import urlsplit, urlunsplit

import psycopg

DATABASE = "awa_bench"


def prepare() -> None:
    """Make the database anew on the server of DATABASE_URL (embedded when unset), and set Django up."""
    if not os.environ.get("DATABASE_URL"):
        from example_project.embedded_postgres import ensure_running  # only where it is asked for

        os.environ["DATABASE_URL"] = ensure_running("bench")
    server = os.environ["DATABASE_URL"]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {DATABASE}")
    os.environ["DATABASE_URL"] = urlunsplit(urlsplit(server)._replace(path=f"/{DATABASE}"))
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"

    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
