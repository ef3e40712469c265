"""A database whose roles have the documented rights and no more."""

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
from django.db import connections
from psycopg.errors import InsufficientPrivilege

from awa_django import Unique
from tests import handlers
from tests.conftest import PROJECT_DIR
from tests.schema.test_migrations import manage
from tests.test_docs import blocks
from tests.waiting import wait_until
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
            server.execute(documented(0, name).encode())
            for role in ROLES:
                server.execute(f"ALTER ROLE {role}{SUFFIX} PASSWORD '{PASSWORD}'".encode())
            target.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
            target.execute(documented(1, name))
            manage(target.url_of("awa_migrator"), "migrate")
            with target.session("awa_migrator") as migrator:
                migrator.execute(documented(2, name).encode())
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
        environment, tmp_path / "worker.log", awa={"PROMOTE_INTERVAL": 0.05, "SWEEP_INTERVAL": 0.5}
    )
    # Everything has ended, and every duty has begun.
    done = (
        "SELECT (SELECT bool_and(state IN ('completed', 'failed', 'cancelled')) FROM awa.jobs) "
        "AND (SELECT bool_and(expires_at > pg_catalog.now()) FROM awa.leaders)"
    )
    try:
        with installed.session() as session:
            wait_until(lambda: session.execute(done).fetchone() == (True,), message=worker.text)
        assert worker.stop() == 0
    finally:
        worker.end()
    assert "permission denied" not in worker.text()
    assert "failed, trying again" not in worker.text()
    with installed.session() as session:
        states = dict(session.execute("SELECT state::text, count(*) FROM awa.jobs GROUP BY 1").fetchall())
        effects = session.execute("SELECT count(*) FROM public.effects").fetchone()
        session.execute("DROP TABLE public.effects")  # it is not the migrator's, who grants all of public
    assert states == {"completed": 9, "failed": 1, "cancelled": 1}, worker.text()
    assert effects == (12,)
    return sum(states.values())
