"""Install, reverse, install again; by two processes, over an interrupted run, and where we must not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from awa_django.migrations._run_sql import MIGRATION_LOCK
from tests.conftest import PROJECT_DIR
from tests.schema.conftest import Query
from tests.waiting import wait_until

MANAGE = [sys.executable, str(PROJECT_DIR / "manage.py")]


def environment(url: str, **others: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(PROJECT_DIR), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "DATABASE_URL": url, "PYTHONPATH": path, **others}


def manage(url: str, *arguments: str, **others: str) -> str:
    done = subprocess.run(
        [*MANAGE, *arguments], env=environment(url, **others), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def migrating(url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A ``migrate`` that runs beside the test; it has ended, or is killed, when the block is left."""
    process = subprocess.Popen(
        [*MANAGE, "migrate", "awa", *arguments],
        env=environment(url),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
        process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()


def catalogue(scratch: Query) -> list[tuple[object, ...]]:
    """Every object of the schema, by kind and name, with its definition where it has one."""
    return scratch(
        """
        SELECT 'class', relname, relkind::text FROM pg_class WHERE relnamespace = 'awa'::regnamespace
        UNION ALL
        SELECT 'function', proname, pg_get_functiondef(oid)
        FROM pg_proc WHERE pronamespace = 'awa'::regnamespace
        UNION ALL
        SELECT 'trigger', tgname, pg_get_triggerdef(pg_trigger.oid)
        FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
        WHERE relnamespace = 'awa'::regnamespace AND NOT tgisinternal
        UNION ALL
        SELECT 'constraint', conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'awa'::regnamespace
        UNION ALL
        SELECT 'type', typname, typtype::text FROM pg_type WHERE typnamespace = 'awa'::regnamespace
        ORDER BY 1, 2, 3
        """
    )


def exists(scratch: Query) -> bool:
    return bool(scratch("SELECT FROM pg_namespace WHERE nspname = 'awa'"))


def test_migrations_reverse_to_nothing_and_apply_again(scratch_url: str, scratch: Query) -> None:
    manage(scratch_url, "migrate", "awa")
    installed = catalogue(scratch)
    manage(scratch_url, "migrate", "awa")
    assert catalogue(scratch) == installed

    manage(scratch_url, "migrate", "awa", "zero")
    assert not exists(scratch)
    manage(scratch_url, "migrate", "awa")
    assert catalogue(scratch) == installed


def test_schema_version_follows_each_migration(scratch_url: str, scratch: Query) -> None:
    manage(scratch_url, "migrate", "awa", "0003")
    assert scratch("SELECT array_agg(version ORDER BY version) FROM awa.schema_version") == [([1, 2, 3],)]
    manage(scratch_url, "migrate", "awa", "0004")
    assert scratch("SELECT max(version) FROM awa.schema_version") == [(4,)]
    manage(scratch_url, "migrate", "awa", "0002")
    assert scratch("SELECT max(version) FROM awa.schema_version") == [(2,)]


def test_two_processes_migrate_at_the_same_time(scratch_url: str, scratch: Query) -> None:
    # Django's own table is made first: two processes that both make it do collide, which is not ours.
    manage(scratch_url, "migrate", "contenttypes")
    with migrating(scratch_url) as one, migrating(scratch_url) as other:
        pass
    assert [one.returncode, other.returncode] == [0, 0]
    versions = scratch("SELECT version, count(*) FROM awa.schema_version GROUP BY 1 ORDER BY 1")
    assert [count for _, count in versions] == [1] * len(versions)
    assert versions


def test_a_second_process_waits_for_the_first_and_skips_its_work(scratch_url: str, scratch: Query) -> None:
    manage(scratch_url, "migrate", "awa", "0003")
    with psycopg.connect(scratch_url) as first, migrating(scratch_url, "0004") as second:
        first.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
        wait_until(
            lambda: scratch("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"), timeout=30
        )
        sql = (PROJECT_DIR / "awa_django/migrations/sql/0004_view.sql").read_text()
        first.execute(sql.encode())
        first.execute("INSERT INTO awa.schema_version (version, name) VALUES (4, '0004_view')")
        first.commit()
    assert second.returncode == 0
    assert scratch("SELECT count(*) FROM awa.schema_version WHERE version = 4") == [(1,)]


def test_an_interrupted_migration_is_completed_by_the_next(scratch_url: str, scratch: Query) -> None:
    manage(scratch_url, "migrate", "awa", "0001")
    with psycopg.connect(scratch_url) as blocker, migrating(scratch_url) as interrupted:
        # The triggers of 0002 need this table: the migration stands still in its middle.
        blocker.execute("LOCK TABLE awa.jobs_hot IN ROW EXCLUSIVE MODE")
        [(pid,)] = wait_until(
            lambda: scratch(
                "SELECT pid FROM pg_locks WHERE NOT granted AND relation = 'awa.jobs_hot'::regclass "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            ),
            timeout=30,
        )
        scratch("SELECT pg_terminate_backend(%s)", pid)
    assert interrupted.returncode != 0
    assert scratch("SELECT max(version) FROM awa.schema_version") == [(1,)]

    manage(scratch_url, "migrate", "awa")
    assert scratch(
        "SELECT to_regclass('awa.jobs') IS NOT NULL, to_regclass('awa.idx_awa_jobs_unique') IS NOT NULL"
    ) == [(True, True)]


@pytest.fixture
def settings_dir(tmp_path: Path) -> Path:
    """Settings with two aliases on the scratch database, and one on SQLite."""
    (tmp_path / "two_databases.py").write_text(
        "from example_project.settings import *\n"
        "DATABASES['queue'] = dict(DATABASES['default'])\n"
        "DATABASES['lite'] = {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}\n"
        "AWA = {'DATABASE': 'queue'}\n"
    )
    return tmp_path


def test_only_the_configured_alias_gets_the_schema(
    scratch_url: str, scratch: Query, settings_dir: Path
) -> None:
    others = {
        "DJANGO_SETTINGS_MODULE": "two_databases",
        "PYTHONPATH": os.pathsep.join([str(settings_dir), str(PROJECT_DIR)]),
    }
    manage(scratch_url, "migrate", "awa", **others)
    assert not exists(scratch)
    assert scratch("SELECT count(*) > 0 FROM django_migrations WHERE app = 'awa'") == [(True,)]

    scratch("DROP TABLE django_migrations")  # both aliases are the same database here
    manage(scratch_url, "migrate", "awa", "--database", "queue", **others)
    assert exists(scratch)


@pytest.mark.parametrize("alias", ["default", "lite"])
def test_sqlite_is_left_alone(scratch_url: str, settings_dir: Path, alias: str) -> None:
    (settings_dir / "lite.py").write_text(
        "from two_databases import *\n"
        f"DATABASES = {{'default': DATABASES['{alias}'], 'lite': DATABASES['lite']}}\n"
        f"AWA = {{'DATABASE': '{alias}'}}\n"
    )
    others = {
        "DJANGO_SETTINGS_MODULE": "lite",
        "PYTHONPATH": os.pathsep.join([str(settings_dir), str(PROJECT_DIR)]),
    }
    # The system check refuses such a setting before it comes to this.
    output = manage(scratch_url, "migrate", "--database", "lite", "--skip-checks", **others)
    assert "Applying awa.0004_view... OK" in output


def test_models_and_migrations_agree(scratch_url: str) -> None:
    assert "No changes detected" in manage(scratch_url, "makemigrations", "--check", "--dry-run")
