"""The database the tests run on, and the fixtures that every directory of tests shares."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import django
import psycopg
import pytest
from django.db import Error, connections
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests.param_ids import is_unlike

pytest_plugins = [
    "tests.fault_report",
    "tests.quick_flush",
    "tests.registries",
    "tests.scratch_database",
    "tests.worker_fixtures",
]

PROJECT_DIR = Path(__file__).resolve().parent.parent

# Before Django reads its settings, and in the environment: pytest-xdist's workers and the
# processes that tests start inherit it.
if not os.environ.get("DATABASE_URL"):
    from example_project.embedded_postgres import ensure_running

    os.environ["DATABASE_URL"] = ensure_running("test")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
django.setup()  # now, so that the conftest.py of a directory can import models

# A loaded machine is no reason for an example to fail.
hypothesis_settings.register_profile(
    "tests", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
hypothesis_settings.load_profile("tests")

Connect = Callable[..., psycopg.Connection[Any]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the test database made for the tests that only ask for its URL."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if is_unlike(item.nodeid, callspec.params.values() if callspec else ()):
            raise pytest.UsageError(f"{item.nodeid} is named otherwise in each process: use tests.param_ids")
        names = set(getattr(item, "fixturenames", ()))
        marked = item.get_closest_marker("django_db") or names & {"db", "transactional_db"}
        if "database_url" in names and not marked:
            item.add_marker(pytest.mark.django_db)


@pytest.fixture(scope="session")
def database_url(django_db_setup: None) -> str:
    """The URL of the *test* database (each xdist worker has its own): for other processes."""
    settings = connections["default"].settings_dict
    user = quote(settings["USER"], safe="")
    if settings["PASSWORD"]:
        user += ":" + quote(settings["PASSWORD"], safe="")
    options = {key: value for key, value in settings["OPTIONS"].items() if isinstance(value, str | int)}
    host = settings["HOST"]
    if host.startswith("/"):  # a socket's directory cannot stand before the slash
        options["host"] = host
        host = ""
    port = f":{settings['PORT']}" if settings["PORT"] else ""
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return f"postgres://{user}@{host}{port}/{quote(settings['NAME'], safe='')}{query}"


@pytest.fixture
def connect(database_url: str) -> Iterator[Connect]:
    """``connect(**options)`` opens a psycopg connection of its own to the test database.

    Autocommit unless ``autocommit=False``. All are closed when the test ends, also in the middle of
    a transaction. They see only what is committed: use it with ``django_db(transaction=True)``.
    """
    opened: list[psycopg.Connection[Any]] = []

    def open_connection(**options: Any) -> psycopg.Connection[Any]:
        connection = psycopg.connect(database_url, **{"autocommit": True, **options})
        opened.append(connection)
        return connection

    yield open_connection
    for connection in opened:
        connection.close()


@pytest.fixture
def worker_env(database_url: str) -> dict[str, str]:
    """The environment for a process that shall work on the test database."""
    path = os.pathsep.join(filter(None, [str(PROJECT_DIR), os.environ.get("PYTHONPATH")]))
    return {
        **os.environ,
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
    }


@pytest.fixture
def fresh_tables(database_url: str) -> None:
    """Queue tables as new: for tests that look at plans, pages or dead rows."""
    empty_queue_tables(database_url)


@pytest.fixture
def clean_queue(transactional_db: None, fresh_tables: None, database_url: str) -> Iterator[None]:
    """Queue tables as new before a test that commits, and empty after it, whatever Django's flush does."""
    yield
    empty_queue_tables(database_url)


def empty_queue_tables(database_url: str) -> None:
    """Truncate every table of the schema but its version and the seeded leases, which are given back."""
    for own in connections.all(initialized_only=True):
        # What it has done counts now, and not after the tables have begun anew.
        if own.connection is not None and not own.in_atomic_block:
            with contextlib.suppress(Error):  # a test may have broken it
                own.cursor().execute("SELECT pg_stat_force_next_flush()")
    with psycopg.connect(database_url) as connection:
        # A session that a test left open in a transaction is an error, not a wait for ever.
        connection.execute("SET LOCAL lock_timeout = '15s'")
        tables = [
            name
            for (name,) in connection.execute(
                """
                SELECT format('%I.%I', schemaname, tablename)
                FROM pg_tables
                WHERE schemaname = 'awa' AND tablename NOT IN ('schema_version', 'leaders')
                """
            )
        ]
        # By their files, not their rows: deleted rows are what some tests count.
        used = connection.execute(
            "SELECT bool_or(pg_relation_size(oid) > 0 OR pg_stat_get_dead_tuples(oid) > 0) "
            "FROM unnest(%s::regclass[]) AS oid",
            [tables],
        ).fetchone()
        if used == (True,):
            connection.execute(f"TRUNCATE {', '.join(tables)}")
        connection.execute("UPDATE awa.leaders SET holder = NULL, epoch = DEFAULT, expires_at = DEFAULT")
