"""The shared fixtures keep tests apart and point other processes to the test's database."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection

from tests.conftest import PROJECT_DIR, Connect, empty_queue_tables
from tests.param_ids import is_unlike, named


def count_jobs() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM awa.jobs_hot")
        return int(cursor.fetchone()[0])


def test_names_that_differ_by_process_are_found() -> None:
    """pytest-xdist refuses to run at all when two of its processes disagree on a name."""
    members, address = frozenset("ab"), object()
    for name in (f"test[{members}]", f"test[{address}]", "test[1:1vPq2a:" + "x" * 43 + "]"):
        assert is_unlike(name, [members, address])
    assert named({"a", "b", None}) == "{'a', 'b', None}"
    for value in (members, address, {1}, {1, 2}, {"a", "b", None}):
        assert not is_unlike(f"test[{named(value)}]", [value])


@pytest.mark.parametrize("turn", [1, 2])
def test_clean_queue_starts_each_test_with_empty_tables(
    turn: int, clean_queue: None, connect: Connect
) -> None:
    assert count_jobs() == 0
    connect().execute("INSERT INTO awa.jobs_hot (kind) VALUES ('a')")
    connect().execute("UPDATE awa.leaders SET holder = 'test', epoch = epoch + 1, expires_at = now()")
    assert count_jobs() == 1


@pytest.mark.django_db(transaction=True)
def test_emptying_keeps_the_seeded_leases_and_gives_them_back(connect: Connect, database_url: str) -> None:
    observer = connect()
    observer.execute("UPDATE awa.leaders SET holder = 'test', epoch = 5, expires_at = now()")
    empty_queue_tables(database_url)
    assert observer.execute("SELECT DISTINCT holder, epoch FROM awa.leaders").fetchall() == [(None, 0)]
    found = observer.execute("SELECT count(*) FROM awa.leaders").fetchone()
    assert found is not None
    assert found[0] >= 6


def test_connect_sees_the_test_database(connect: Connect, clean_queue: None) -> None:
    first, second = connect(), connect(autocommit=False)
    assert second.autocommit is False
    assert first.info.dbname == second.info.dbname == connection.settings_dict["NAME"]
    assert first.info.dbname.startswith("test_")


def test_worker_env_points_another_process_to_the_test_database(worker_env: dict[str, str]) -> None:
    code = "import django; django.setup(); from django.db import connection as c; c.ensure_connection(); "
    done = subprocess.run(
        [sys.executable, "-c", code + "print(c.connection.info.dbname)"],
        env=worker_env,
        cwd=PROJECT_DIR,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == connection.settings_dict["NAME"], done.stderr


def test_database_url_is_read_alike_by_libpq(database_url: str) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(database_url)
    assert parts["dbname"] == connection.settings_dict["NAME"]
    assert str(parts["dbname"]).startswith("test_")  # also when no test of the run uses the ORM
    assert (parts.get("host") or "") == connection.settings_dict["HOST"]


@pytest.mark.django_db(transaction=True)
def test_flush_leaves_what_migrations_wrote() -> None:
    """Whoever asked for content types and permissions once, remembers them for the whole process."""
    before = Permission.objects.count(), ContentType.objects.count()
    call_command("flush", interactive=False)
    assert (Permission.objects.count(), ContentType.objects.count()) == before != (0, 0)
