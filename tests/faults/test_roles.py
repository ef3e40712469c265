"""Roles with no more than the documented rights, and look-alikes in front of the search path."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from django.db import ProgrammingError, connections, transaction
from django.test import Client
from psycopg.errors import InsufficientPrivilege

from awa_django import Unique, doctor, operations
from awa_django.models import Job
from tests import handlers
from tests.conftest import PROJECT_DIR
from tests.fault_report import Observe
from tests.schema.test_migrations import manage
from tests.test_docs import blocks
from tests.worker_process import WorkerProcess

ROLES = ("awa_migrator", "awa_producer", "awa_worker", "awa_operator", "awa_reader")
SUFFIX = f"_{os.getpid()}"
PASSWORD = secrets.token_hex(8)
UNIQUE = "'\\x000102030405060708090a0b0c0d0e0f', B'11101001'"


class Installed:
    """A scratch database with the schema, and the roles of docs/roles.md."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = urlsplit(url).path[1:]

    def url_of(self, role: str) -> str:
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{quote(role + SUFFIX)}:{PASSWORD}@{host}"))

    @contextmanager
    def session(self, role: str | None = None, path: str | None = None) -> Iterator[psycopg.Connection[Any]]:
        """A session in autocommit: of the role, or of the superuser."""
        url = self.url if role is None else self.url_of(role)
        with psycopg.connect(url, autocommit=True) as connection:
            if path is not None:
                connection.execute("SELECT set_config('search_path', %s, false)", [path])
            yield connection

    def execute(self, statement: str) -> None:
        with self.session() as connection:
            connection.execute(statement.encode())


def documented(number: int, database: str) -> str:
    """A block of SQL of the page, for the roles and the database of this test."""
    text = blocks("docs/roles.md", "sql")[number].replace("mysite", database)
    return re.sub(r"\bawa_(?:migrator|producer|worker|operator|reader)\b", rf"\g<0>{SUFFIX}", text)


@pytest.fixture(scope="module")
def installed(database_url: str) -> Iterator[Installed]:
    """Migrated and granted as the page says, by the migrator."""
    name = f"awa_roles{SUFFIX}"
    target = Installed(urlunsplit(urlsplit(database_url)._replace(path=f"/{name}")))
    with psycopg.connect(database_url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}".encode())
        try:
            for role in ROLES:
                server.execute(f"CREATE ROLE {role}{SUFFIX} LOGIN PASSWORD '{PASSWORD}'".encode())
            target.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
            target.execute(documented(0, name))
            manage(target.url_of("awa_migrator"), "migrate")
            with target.session("awa_migrator") as migrator:
                migrator.execute(documented(1, name).encode())
            yield target
        finally:
            server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
            for role in ROLES:
                server.execute(f"DROP ROLE IF EXISTS {role}{SUFFIX}".encode())


Become = Callable[[str], None]


@pytest.fixture
def become(installed: Installed, settings: Any) -> Iterator[Become]:
    """``become("awa_reader")``: the queue's alias is a connection of this role from now on."""
    installed.execute(
        "TRUNCATE awa.jobs_hot, awa.scheduled_jobs, awa.job_unique_claims, awa.queue_meta, awa.waiters"
    )
    aliases = []

    def be(role: str) -> None:
        alias = f"as-{role}"
        connections.databases[alias] = {
            **connections.databases["default"],
            "NAME": installed.name,
            "USER": role + SUFFIX,
            "PASSWORD": PASSWORD,
        }
        aliases.append(alias)
        _allow(connections[alias])
        settings.AWA = {"DATABASE": alias}

    yield be
    for alias in aliases:
        connections[alias].close()
        del connections[alias]
        del connections.databases[alias]


def _allow(connection: Any) -> None:
    """Let it connect: Django's tests refuse an alias that was not there when they began."""

    def ensure_connection() -> None:
        if connection.connection is None:
            with connection.wrap_database_errors:
                connection.connect()

    connection.ensure_connection = ensure_connection


def refused(installed: Installed, role: str, *statements: str) -> int:
    """Each of them is forbidden to the role; how many."""
    with installed.session(role) as session:
        for statement in statements:
            with pytest.raises(InsufficientPrivilege):
                session.execute(statement.encode())
    return len(statements)


F89 = "a role with the documented grants only; "
FOR_NO_ONE = (
    "DROP TABLE awa.jobs_hot",
    "CREATE TABLE awa.more (x integer)",
    "TRUNCATE awa.jobs_hot",
    "ALTER FUNCTION awa.wake(text[]) RESET search_path",
    "CREATE OR REPLACE FUNCTION awa.wake(text[]) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    "DELETE FROM awa.schema_version",
)


@pytest.mark.fault("F89", injected=F89 + "a producer enqueues in every way, then tries what it may not")
def test_producer_enqueues_and_does_nothing_else(
    installed: Installed, become: Become, observe: Observe
) -> None:
    become("awa_producer")
    first = handlers.record.enqueue(number=1)
    handlers.record.using(delay=60).enqueue(number=2)
    handlers.record.enqueue_many({"number": number} for number in range(10))
    unique = handlers.record.using(unique=Unique(args=True))
    held = unique.enqueue(number=3)
    assert unique.enqueue(number=3).holder_id == held.id
    assert not unique.enqueue_many([{"number": 3}])[0].created
    with installed.session("awa_producer") as session:
        session.execute("INSERT INTO awa.jobs (kind) VALUES ('k') RETURNING id")
        session.execute("INSERT INTO awa.jobs (kind, run_at) VALUES ('k', now() + interval '1 day')")
        session.execute(
            f"INSERT INTO awa.jobs (kind, unique_key, unique_states) VALUES ('k', {UNIQUE})".encode()
        )
    count = refused(
        installed,
        "awa_producer",
        *FOR_NO_ONE,
        "SELECT args FROM awa.jobs",
        "SELECT args FROM awa.jobs_hot",
        f"UPDATE awa.jobs SET state = 'cancelled' WHERE id = {first.id}",
        "UPDATE awa.jobs_hot SET priority = 1",
        "DELETE FROM awa.jobs",
        "DELETE FROM awa.jobs_hot",
        "DELETE FROM awa.job_unique_claims",
        "INSERT INTO awa.queue_meta (queue, paused) VALUES ('default', true)",
        "UPDATE awa.leaders SET holder = 'me'",
        "SELECT * FROM awa.cron_jobs",
        "SELECT setval('awa.jobs_id_seq', 1)",
    )
    with (
        pytest.raises(ProgrammingError, match="permission denied"),
        transaction.atomic(using="as-awa_producer"),
    ):
        operations.cancel(first.id)
    observe(f"enqueue, for later, in bulk, unique and by SQL work; {count + 1} other statements are refused")


@pytest.mark.acceptance
@pytest.mark.fault("F89", injected=F89 + "a worker runs jobs of every outcome, then tries what it may not")
def test_worker_runs_everything_and_owns_nothing(
    installed: Installed, become: Become, tmp_path: Path, observe: Observe
) -> None:
    ran = drain_as_worker(installed, become, tmp_path)
    count = refused(
        installed,
        "awa_worker",
        *FOR_NO_ONE,
        "INSERT INTO awa.queue_meta (queue, paused) VALUES ('default', true)",
        "DELETE FROM awa.leaders",
        "DELETE FROM awa.cron_jobs",
        "SELECT setval('awa.jobs_id_seq', 1)",
    )
    observe(f"{ran} jobs ended as they should; {count} other statements are refused")


def drain_as_worker(installed: Installed, become: Become, tmp_path: Path, role: str = "awa_worker") -> int:
    """Jobs of every outcome through a real worker; how many."""
    become("awa_producer")
    handlers.record.enqueue_many({"number": number} for number in range(5))
    handlers.fail_once.using(unique=Unique(args=True)).enqueue(number=1)
    handlers.always_fail.enqueue()
    handlers.snooze_once.enqueue()
    handlers.cancel_itself.enqueue()
    handlers.atomic_effect.enqueue(number=1)
    handlers.record.using(delay=0.1).enqueue(number=6)
    installed.execute("DROP TABLE IF EXISTS public.effects")
    installed.execute(
        "CREATE TABLE public.effects (name text, number bigint, pid integer, "
        "at timestamptz DEFAULT pg_catalog.clock_timestamp())"
    )
    installed.execute(f"GRANT INSERT ON public.effects TO awa_worker{SUFFIX}")
    environment = {
        **os.environ,
        "DATABASE_URL": installed.url_of(role),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PROJECT_DIR), os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
    }
    worker = WorkerProcess(
        environment,
        tmp_path / "worker.log",
        "--max-time",
        "4",
        awa={"PROMOTE_INTERVAL": 0.05, "SWEEP_INTERVAL": 0.5},
    )
    try:
        assert worker.wait() == 0, worker.text()
    finally:
        worker.end()
    assert "permission denied" not in worker.text()
    assert "failed, trying again" not in worker.text()
    with installed.session() as session:
        states = dict(session.execute("SELECT state::text, count(*) FROM awa.jobs GROUP BY 1").fetchall())
        effects = session.execute("SELECT count(*) FROM public.effects").fetchone()
    assert states == {"completed": 9, "failed": 1, "cancelled": 1}, worker.text()
    assert effects == (12,)
    return sum(states.values())


@pytest.mark.fault("F89", injected=F89 + "an operator uses each verb, then tries what it may not")
def test_operator_has_every_verb(installed: Installed, become: Become, observe: Observe) -> None:
    become("awa_producer")
    ids = [handlers.record.enqueue(number=number).id for number in range(4)]
    later = handlers.record.using(delay=60).enqueue(number=5).id
    unique = handlers.record.using(unique=Unique(args=True)).enqueue(number=6).id
    become("awa_operator")
    assert operations.cancel([ids[0], unique]).changed == (ids[0], unique)
    assert operations.retry([ids[0], unique]).changed == (ids[0], unique)
    assert operations.run_now(later).changed == (later,)
    assert operations.set_priority(ids, 1).changed == tuple(ids)
    assert operations.move_queue(ids[1], "other").changed == (ids[1],)
    assert operations.delete(ids[2]).changed == (ids[2],)
    assert operations.pause_queue("default", by="me").changed
    assert operations.resume_queue("default").changed
    assert Job.objects.filter(pk=ids[3]).update(priority=3) == 1
    count = refused(
        installed,
        "awa_operator",
        *FOR_NO_ONE,
        "UPDATE awa.leaders SET holder = 'me'",
        "INSERT INTO awa.cron_jobs (name, cron_expr, kind) VALUES ('n', '@daily', 'k')",
        "DELETE FROM awa.runtime_instances",
    )
    observe(f"9 verbs work; {count} other statements are refused")


@pytest.mark.fault(
    "F89", injected=F89 + "a reader opens every page of the admin and asks the doctor, then acts"
)
def test_reader_sees_everything_and_changes_nothing(
    installed: Installed, become: Become, admin_client: Client, observe: Observe
) -> None:
    become("awa_producer")
    job_id = handlers.record.enqueue(number=1).id
    become("awa_reader")
    pages = [
        "hotjob/",
        "deferredjob/",
        "queuemeta/",
        "cronjob/",
        "runtimeinstance/",
        f"hotjob/{job_id}/change/",
    ]
    for page in pages:
        assert admin_client.get(f"/admin/awa/{page}").status_code == 200, page
    assert [str(finding) for finding in doctor.diagnose() if not finding.is_warning] == []
    with pytest.raises(ProgrammingError, match="permission denied"):
        admin_client.post(
            "/admin/awa/hotjob/",
            {"action": "cancel_jobs", "_selected_action": [job_id], "confirmed": "yes"},
        )
    assert Job.objects.get(pk=job_id).state == "available"
    with installed.session() as session:
        tables = session.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'awa'::regnamespace AND relkind IN ('r', 'v')"
        ).fetchall()
    count = refused(
        installed,
        "awa_reader",
        *FOR_NO_ONE,
        *(f"DELETE FROM awa.{table}" for (table,) in tables),
        "INSERT INTO awa.jobs (kind) VALUES ('k')",
        "UPDATE awa.jobs SET priority = 1",
        "SELECT nextval('awa.jobs_id_seq')",
    )
    observe(f"{len(pages)} pages and the doctor work; {count + 1} statements that write are refused")


@pytest.mark.fault("F89", injected="a role without any grant")
def test_without_a_grant_nothing_is_to_be_had(installed: Installed, observe: Observe) -> None:
    with installed.session() as server:
        server.execute(f"CREATE ROLE awa_nobody{SUFFIX}".encode())
        try:
            server.execute(f"SET ROLE awa_nobody{SUFFIX}".encode())
            for statement in ("SELECT FROM awa.jobs", "SELECT awa.wake('{default}')"):
                with pytest.raises(InsufficientPrivilege):
                    server.execute(statement.encode())
        finally:
            server.execute("RESET ROLE")
            server.execute(f"DROP ROLE awa_nobody{SUFFIX}".encode())
    observe("neither table nor function can be reached")


# Each raises when it is called. The signatures are those of what our functions call.
LOOK_ALIKES = """
CREATE SCHEMA hostile;
GRANT USAGE ON SCHEMA hostile TO PUBLIC;
CREATE FUNCTION hostile.trap() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'hijacked'; END $$;
"""
FUNCTIONS = {
    "now()": "timestamptz",
    "pg_notify(text, text)": "void",
    "power(double precision, double precision)": "double precision",
    "make_interval(secs double precision)": "interval",
    "nextval(regclass)": "bigint",
}
# Only behind the functions' pinned path: our statements, as any application's, use PostgreSQL's names.
POLYMORPHIC = {
    "get_bit(bit, integer)": "integer",
    "format(text, text, bigint)": "text",
    "format(text, bigint, bigint)": "text",
    "unnest(text[])": "SETOF text",
    "jsonb_build_object(text, timestamptz)": "jsonb",
}
OPERATORS = ("bigint", "timestamptz", "text", "smallint")


def trap(signature: str, returns: str) -> str:
    return (
        f"CREATE FUNCTION hostile.{signature} RETURNS {returns} LANGUAGE plpgsql "
        "AS $$ BEGIN RAISE 'hijacked'; END $$;"
    )


def trapped_operators(type_name: str) -> str:
    name = re.sub(r"\W", "_", type_name)
    return trap(f"compare_{name}({type_name}, {type_name})", "boolean") + "".join(
        f"CREATE OPERATOR hostile.{sign} "
        f"(LEFTARG = {type_name}, RIGHTARG = {type_name}, FUNCTION = hostile.compare_{name});"
        for sign in ("=", "<>", "<", ">", "<=", ">=")
    )


@pytest.fixture
def hostile(installed: Installed) -> Iterator[Installed]:
    """A schema with look-alikes, and temporary tables named like ours in each session that asks."""
    installed.execute("DROP SCHEMA IF EXISTS hostile CASCADE")
    installed.execute(LOOK_ALIKES)
    for signature, returns in FUNCTIONS.items():
        installed.execute(trap(signature, returns))
    for type_name in OPERATORS:
        installed.execute(trapped_operators(type_name))
    yield installed
    installed.execute("DROP SCHEMA hostile CASCADE")
    installed.execute(f"ALTER ROLE awa_worker{SUFFIX} RESET search_path")


@pytest.mark.fault(
    "F90", injected="now(), pg_notify, power, comparisons and temporary tables before pg_catalog"
)
@pytest.mark.parametrize("role", [None, "awa_operator"], ids=["superuser", "operator"])
def test_functions_take_nothing_from_the_callers_path(
    hostile: Installed, become: Become, role: str | None, observe: Observe
) -> None:
    for signature, returns in POLYMORPHIC.items():
        hostile.execute(trap(signature, returns))
    hostile.execute(trapped_operators("awa.job_state"))
    hostile.execute("INSERT INTO awa.waiters VALUES ('w', '{default}', now() + interval '1 hour')")
    with hostile.session() as server, hostile.session(role, "pg_temp, hostile, pg_catalog, awa") as session:
        if role is not None:
            server.execute(f"GRANT TEMPORARY ON DATABASE {hostile.name} TO {role}{SUFFIX}".encode())
        for table in ("jobs_hot", "scheduled_jobs", "job_unique_claims", "waiters", "jobs", "queue_meta"):
            session.execute(f"CREATE TEMP TABLE {table} (LIKE awa.{table} INCLUDING DEFAULTS)".encode())
        for called in ("now()", "pg_notify('a', 'b')", "power(1.0::float8, 2)", "1::bigint = 1::bigint"):
            with pytest.raises(psycopg.errors.RaiseException, match="hijacked"):
                session.execute(f"SELECT {called}".encode())

        def write(statement: str) -> int:
            return session.execute(statement.encode()).rowcount

        matches = "OPERATOR(pg_catalog.=)"
        where = f"WHERE queue {matches} 'default'"
        assert write(f"INSERT INTO awa.jobs (kind, unique_key, unique_states) VALUES ('k', {UNIQUE})") == 1
        assert write("INSERT INTO awa.jobs (kind, run_at) VALUES ('later', '2999-01-01')") == 1
        with pytest.raises(psycopg.errors.UniqueViolation, match="holds it"):
            write(f"INSERT INTO awa.jobs (kind, unique_key, unique_states) VALUES ('k', {UNIQUE})")
        assert write(f"UPDATE awa.jobs SET priority = 3 {where}") == 2
        assert write(f"UPDATE awa.jobs SET run_at = '2999-01-01' {where} AND kind {matches} 'k'") == 1
        assert write(f"UPDATE awa.jobs SET state = 'cancelled' {where}") == 2
        assert write(f"UPDATE awa.jobs SET state = 'available', run_at = '2000-01-01' {where}") == 2
        assert session.execute("SELECT awa.wake(ARRAY['default'])").fetchone() == (True,)
        assert write(f"DELETE FROM awa.jobs {where} AND kind {matches} 'k'") == 1
        rows = server.execute("SELECT kind, state::text FROM awa.jobs").fetchall()
        assert rows == [("later", "available")]
        assert server.execute("SELECT count(*) FROM awa.job_unique_claims").fetchone() == (0,)
        for table in ("jobs_hot", "scheduled_jobs", "job_unique_claims", "waiters"):
            count = session.execute(f"SELECT count(*) FROM pg_temp.{table}".encode()).fetchone()
            assert count == (0,), table
    observe("insert, update, move, delete, conflict and wake-up are right; no look-alike is called")


@pytest.mark.acceptance
@pytest.mark.fault("F90", injected="a worker whose role has a schema of look-alikes first in its search_path")
def test_worker_with_look_alikes_in_its_path(
    hostile: Installed, become: Become, tmp_path: Path, observe: Observe
) -> None:
    hostile.execute(f"ALTER ROLE awa_worker{SUFFIX} SET search_path = hostile, public")
    ran = drain_as_worker(hostile, become, tmp_path)
    observe(f"{ran} jobs ended as they should")


def test_doctor_needs_no_more_than_a_reader(installed: Installed, become: Become) -> None:
    """A violation is seen by a reader too: the test above could not tell."""
    become("awa_reader")
    installed.execute("INSERT INTO awa.job_unique_claims VALUES ('\\x00', 1)")
    assert [finding.name for finding in doctor.diagnose() if not finding.is_warning] == ["claims_without_job"]
