"""Migrations over jobs, beside workers, by other roles, and between releases.

Install, reverse, two at once and interrupted ones are in tests/schema/test_migrations.py.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest

from awa_django.migrations._run_sql import LOCK_TIMEOUT, TRIES
from awa_django.storage.inspect import SCHEMA_VERSION
from tests.fault_report import Observe
from tests.schema.test_migrations import MANAGE, catalogue, environment, exists, manage, migrating
from tests.scratch_database import Query
from tests.waiting import wait_until
from tests.worker_process import WorkerProcess

# Whole processes one after the other: each takes ten seconds and more on a slow machine.
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(400)]

# What `migrate zero` must leave of the whole database: nothing that has to do with us.
STRAY = """
SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND relname NOT LIKE 'django_%'
    AND relname NOT LIKE 'auth_%'
UNION ALL
SELECT proname FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace
WHERE nspname NOT IN ('pg_catalog', 'information_schema')
UNION ALL
SELECT typname FROM pg_type JOIN pg_namespace ON pg_namespace.oid = typnamespace
WHERE nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND typname NOT LIKE '%django_%'
    AND typname NOT LIKE '%auth_%'
UNION ALL
SELECT nspname FROM pg_namespace WHERE nspname = 'awa'
"""


@pytest.mark.fault(
    "F75", injected="migrate awa zero with jobs, claims and schedules present, and forward again"
)
@pytest.mark.fault("U31", injected="migrate awa zero over jobs: view, triggers, functions, types")
def test_reverse_over_jobs_leaves_nothing_stray(scratch_url: str, scratch: Query, observe: Observe) -> None:
    manage(scratch_url, "migrate", "awa")
    installed = catalogue(scratch)
    scratch(
        "INSERT INTO awa.jobs (kind, run_at, unique_key, unique_states) "
        "SELECT 'k', now() + make_interval(days => n - 5), decode(lpad(to_hex(n), 32, '0'), 'hex'), "
        "B'11101001' "
        "FROM generate_series(1, 10) AS n"
    )
    scratch("INSERT INTO awa.cron_jobs (name, cron_expr, kind) VALUES ('n', '@daily', 'k')")
    manage(scratch_url, "migrate", "awa", "zero")
    assert scratch(STRAY) == []
    manage(scratch_url, "migrate", "awa")
    assert catalogue(scratch) == installed
    assert scratch("SELECT count(*) FROM awa.jobs") == [(0,)]
    observe("the jobs are gone with it; no table, function, type or schema is left")


@pytest.fixture
def scratch_worker(scratch_url: str, tmp_path: Path) -> Iterator[WorkerProcess]:
    """A worker on the scratch database."""
    manage(scratch_url, "migrate", "awa")
    worker = WorkerProcess({**environment(scratch_url), "PYTHONUNBUFFERED": "1"}, tmp_path / "worker.log")
    yield worker
    worker.end()


@pytest.mark.parametrize("found", [None, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
@pytest.mark.fault("F76", injected="a worker on a schema that is older, newer or not there")
def test_worker_of_another_release_refuses_to_start(
    found: int | None,
    scratch_url: str,
    scratch: Query,
    tmp_path: Path,
    observe: Observe,
) -> None:
    if found is not None:
        manage(scratch_url, "migrate", "awa")
        scratch("INSERT INTO awa.jobs (kind) VALUES ('k')")
        scratch("DELETE FROM awa.schema_version WHERE version > %s", found)
        if found > SCHEMA_VERSION:
            scratch("INSERT INTO awa.schema_version (version, name) VALUES (%s, 'to_come')", found)
    worker = WorkerProcess({**environment(scratch_url), "PYTHONUNBUFFERED": "1"}, tmp_path / "worker.log")
    try:
        assert worker.wait() == 1
    finally:
        worker.end()
    assert "Traceback" not in worker.text()
    said = "upgrade" if found is not None and found > SCHEMA_VERSION else "manage.py migrate"
    assert said in worker.text()
    if found is not None:
        assert scratch("SELECT state::text, attempt FROM awa.jobs") == [("available", 0)]
    observe(f"schema {found}, code {SCHEMA_VERSION}: exit code 1, `{said}`; no job touched")


PASSWORD = secrets.token_hex(8)


@pytest.fixture
def owner_url(scratch_url: str) -> Iterator[str]:
    """The scratch database as a role that is no superuser and may create in `public` only."""
    role = f"awa_owner_{os.getpid()}"
    with psycopg.connect(scratch_url, autocommit=True) as server:
        server.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'".encode())
        server.execute(f"GRANT USAGE, CREATE ON SCHEMA public TO {role}".encode())
        parts = urlsplit(scratch_url)
        host = parts.netloc.rpartition("@")[2]
        try:
            yield urlunsplit(parts._replace(netloc=f"{quote(role)}:{PASSWORD}@{host}"))
        finally:
            server.execute(f"DROP OWNED BY {role} CASCADE".encode())
            server.execute(f"DROP ROLE {role}".encode())


def role_of(url: str) -> str:
    return urlsplit(url).username or ""


@pytest.mark.fault(
    "F77", injected="migrations by a role that is no superuser, in a schema that somebody else made"
)
def test_role_that_may_not_make_a_schema_migrates_in_one_made_for_it(
    owner_url: str,
    scratch: Query,
    observe: Observe,
) -> None:
    refused = subprocess.run(
        [*MANAGE, "migrate", "awa"], env=environment(owner_url), capture_output=True, text=True, timeout=60
    )
    assert refused.returncode != 0
    assert "permission denied for database" in refused.stderr
    assert not exists(scratch)
    scratch(f"CREATE SCHEMA awa AUTHORIZATION {role_of(owner_url)}")
    manage(owner_url, "migrate", "awa")
    with psycopg.connect(owner_url) as owner:
        owner.execute("INSERT INTO awa.jobs (kind) VALUES ('k')")
    manage(owner_url, "migrate", "awa", "zero")
    assert not exists(scratch)
    observe(
        "without the schema: `permission denied for database`, nothing made; with it all is made and reversed"
    )


@pytest.mark.fault(
    "F77", injected="search_path of the role and of the database set to other schemas, with look-alikes"
)
def test_search_path_of_role_and_database_change_nothing(
    owner_url: str,
    scratch: Query,
    observe: Observe,
) -> None:
    role = role_of(owner_url)
    [(name,)] = scratch("SELECT current_database()")
    scratch(f"CREATE SCHEMA awa AUTHORIZATION {role}; CREATE SCHEMA other AUTHORIZATION {role}")
    scratch("CREATE TABLE other.jobs_hot (x integer); CREATE TABLE other.schema_version (version integer)")
    scratch(f"ALTER ROLE {role} SET search_path = other; ALTER DATABASE {name} SET search_path = awa, other")
    manage(owner_url, "migrate", "awa")
    manage(owner_url, "migrate", "awa")
    assert scratch(
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'other'::regnamespace AND relname ~ 'jobs'"
    ) == [(1,)]
    assert scratch("SELECT max(version) FROM awa.schema_version") == [(SCHEMA_VERSION,)]
    manage(owner_url, "migrate", "awa", "zero")
    assert scratch("SELECT to_regclass('other.jobs_hot') IS NOT NULL") == [(True,)]
    observe("made in awa, reversed from awa; the look-alikes are untouched")


@pytest.mark.fault(
    "F78", injected="a migration while a worker runs and a job's row is locked, with lock_timeout"
)
def test_migration_that_waits_for_a_lock_gives_up_and_can_be_repeated(
    scratch_url: str,
    scratch: Query,
    scratch_worker: WorkerProcess,
    observe: Observe,
) -> None:
    with psycopg.connect(scratch_url, autocommit=True) as connection:
        scratch_worker.wait_ready(connection)
    scratch("INSERT INTO awa.jobs (kind, queue) SELECT 'k', 'nobody' FROM generate_series(1, 10)")
    # With the time that migrations have: a slow worker's own locks are not what is in the way here.
    manage(scratch_url, "migrate", "awa", "0004")
    slowest = 0.0
    stop = threading.Event()

    def traffic() -> None:
        nonlocal slowest
        with psycopg.connect(scratch_url, autocommit=True) as connection:
            while not stop.is_set():
                started = time.monotonic()
                connection.execute("INSERT INTO awa.jobs (kind, queue) VALUES ('k', 'nobody')")
                slowest = max(slowest, time.monotonic() - started)
                time.sleep(0.005)

    producer = threading.Thread(target=traffic)
    producer.start()
    try:
        with psycopg.connect(scratch_url) as holder:
            pid = holder.info.backend_pid
            holder.execute("SELECT FROM awa.jobs")  # an open transaction that has read the view
            started = time.monotonic()
            refused = subprocess.run(
                [*MANAGE, "migrate", "awa", "0003"],
                # A limit of the role's own, so that the tries are short.
                env=environment(scratch_url, PGOPTIONS="-c lock_timeout=300ms"),
                capture_output=True,
                text=True,
            )
            took = time.monotonic() - started
        assert refused.returncode == 1
        assert "Traceback" not in refused.stderr
        assert f"0004_view got no lock on a table of the queue in {TRIES} tries" in refused.stderr
        assert f"(pid {pid} " in refused.stderr
    finally:
        stop.set()
        producer.join(30)
    # Nothing of it was reversed.
    assert scratch("SELECT max(version) FROM awa.schema_version") == [(4,)]
    assert scratch("SELECT to_regclass('awa.jobs') IS NOT NULL") == [(True,)]
    assert scratch_worker.process.poll() is None
    assert slowest < LOCK_TIMEOUT / 1000 + 10
    assert scratch_worker.stop() == 0
    manage(scratch_url, "migrate", "awa", "0003")
    manage(scratch_url, "migrate", "awa")
    assert scratch("SELECT max(version) FROM awa.schema_version") == [(SCHEMA_VERSION,)]
    observe(
        f"given up after {TRIES} tries in {took:.1f} s, with the pid of who holds the lock; nothing changed; "
        f"enqueues beside it: {slowest * 1000:.0f} ms at most; run again, it succeeds"
    )


@pytest.mark.fault("F78", injected="a lock that a migration needs comes free between two of its tries")
def test_migration_lets_others_pass_and_tries_again(
    scratch_url: str, scratch: Query, observe: Observe
) -> None:
    manage(scratch_url, "migrate", "awa", "0007")
    with psycopg.connect(scratch_url) as holder:
        holder.execute("SELECT FROM awa.job_unique_claims")
        with migrating(scratch_url, "0008", PGOPTIONS="-c lock_timeout=600ms") as migration:
            wait_until(lambda: waits_for_lock(scratch))
            wait_until(lambda: not waits_for_lock(scratch))
            # Between two tries nobody waits behind it, and it holds what is no table.
            scratch("INSERT INTO awa.jobs (kind) VALUES ('k')")
            holder.rollback()
    assert migration.returncode == 0
    assert scratch("SELECT max(version) FROM awa.schema_version") == [(8,)]
    observe("the transaction with the lock ends after the first try; a later one succeeds")


def waits_for_lock(scratch: Query) -> bool:
    return bool(
        scratch(
            "SELECT FROM pg_locks WHERE NOT granted AND relation = 'awa.job_unique_claims'::regclass "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
    )


@pytest.mark.fault(
    "F79", injected="a project's tests in two processes at once, on a new database and on a kept one"
)
def test_users_tests_run_in_parallel_and_on_a_kept_database(
    scratch_url: str,
    tmp_path: Path,
    observe: Observe,
) -> None:
    (tmp_path / "test_orders.py").write_text(USERS_TESTS)
    (tmp_path / "conftest.py").write_text("")
    runs = [("--create-db", "-n", "2"), ("--reuse-db", "-n", "2")]
    for arguments in runs:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path),
             "-c", os.devnull, str(tmp_path), *arguments],
            env=environment(scratch_url, DJANGO_SETTINGS_MODULE="example_project.settings"),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=180,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    with psycopg.connect(scratch_url, autocommit=True) as server:
        for name in ("", "_gw0", "_gw1"):
            database = f"test_{urlsplit(scratch_url).path[1:]}{name}"
            server.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)".encode())
    observe(
        f"{len(runs)} runs: TestCase and TransactionTestCase, two processes, a database kept between runs"
    )


USERS_TESTS = """
from django.test import TestCase, TransactionTestCase

from awa_django.models import Job, UniqueClaim
from awa_django.testing import assert_enqueued, drain, flush_queue
from example_project.shop.tasks import send_receipt


class WithinATransaction(TestCase):
    def test_enqueued_job_is_seen(self):
        send_receipt.enqueue(order_id=1)
        assert_enqueued(send_receipt, {"order_id": 1})
        self.assertEqual(Job.objects.count(), 1)

    def test_each_test_begins_empty(self):
        self.assertEqual(Job.objects.count(), 0)


class Committed(TransactionTestCase):
    def tearDown(self):
        flush_queue()

    def test_one(self):
        self.assertEqual((Job.objects.count(), UniqueClaim.objects.count()), (0, 0))
        send_receipt.enqueue(order_id=1)

    test_two = test_one
"""
