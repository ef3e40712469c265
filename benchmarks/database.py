"""The server, and the databases that the benchmarks make on it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from benchmarks import floor

PROJECT_DIR = Path(__file__).resolve().parent.parent
PREFIX = "awa_bench_"
NOTHING = "benchmarks.nothing"

# A job's whole row is the columns' defaults, but these.
FILL: LiteralString = """
INSERT INTO awa.jobs_hot (kind, queue, args)
SELECT %(kind)s, 'bench-' || n %% %(queues)s, jsonb_build_object('number', n)
FROM generate_series(1, %(count)s) AS n
"""
DEFER: LiteralString = """
INSERT INTO awa.scheduled_jobs (kind, queue, args, run_at)
SELECT %(kind)s, 'bench-0', jsonb_build_object('number', n), %(start)s + n * %(step)s * interval '1 second'
FROM generate_series(1, %(count)s) AS n
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A PostgreSQL server; ``log`` is its file where the benchmarks started it themselves."""

    url: str
    log: Path | None = None

    def create(self, name: str) -> Database:
        """A new database with the schema of the product and the table of the floor."""
        identifier = sql.Identifier(PREFIX + name)
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier))
            connection.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
        database = Database(urlunsplit(urlsplit(self.url)._replace(path="/" + PREFIX + name)), self)
        migrate = [sys.executable, str(PROJECT_DIR / "manage.py"), "migrate", "--verbosity=0"]
        subprocess.run(migrate, env=database.environment, cwd=PROJECT_DIR, check=True)
        database.connection.execute(floor.CREATE)
        return database

    def drop_all(self) -> None:
        """Remove every database that a run has made here."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            pattern = PREFIX.replace("_", r"\_") + "%"
            names = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", [pattern])
            for (name,) in names.fetchall():
                drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
                connection.execute(drop.format(sql.Identifier(name)))


def start_server() -> Server:
    """The server of DATABASE_URL; without one, a durable one of the benchmarks' own."""
    if url := os.environ.get("DATABASE_URL"):
        return Server(url)
    from example_project import embedded_postgres  # only where it is asked for

    url = embedded_postgres.ensure_running("bench")
    return Server(url, embedded_postgres.prepare("bench", embedded_postgres.PROJECT_DIR).log)


@dataclass(frozen=True)
class Database:
    """One database, with a connection of the benchmarks' own."""

    url: str
    server: Server

    @cached_property
    def connection(self) -> psycopg.Connection[Any]:
        # Unprepared: a plan made while a table was empty would be kept.
        return psycopg.connect(self.url, autocommit=True, prepare_threshold=None)

    @property
    def environment(self) -> dict[str, str]:
        """For processes that work on it."""
        path = os.pathsep.join(filter(None, [str(PROJECT_DIR), os.environ.get("PYTHONPATH")]))
        return {
            **os.environ,
            "DATABASE_URL": self.url,
            "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
        }

    def one(self, query: LiteralString, *params: Any) -> tuple[Any, ...]:
        row: tuple[Any, ...] | None = self.connection.execute(query, params or None).fetchone()
        assert row is not None
        return row

    def empty(self) -> None:
        """No job at all; and a checkpoint, so that one contender does not write what another left."""
        self.connection.execute(
            "TRUNCATE awa.jobs_hot, awa.scheduled_jobs, awa.job_unique_claims, bench_floor"
        )
        self.checkpoint()

    def checkpoint(self) -> None:
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege):  # a server that is not ours
            self.connection.execute("CHECKPOINT")

    def fill(self, count: int, *, kind: str = NOTHING, queues: int = 1) -> int:
        """So many jobs that may run now, in ``bench-0``, ``bench-1``, ...; an id before theirs."""
        (mark,) = self.one("SELECT nextval('awa.jobs_id_seq')")
        self.connection.execute(FILL, {"kind": kind, "count": count, "queues": queues})
        self.connection.execute("VACUUM ANALYZE awa.jobs_hot")
        return int(mark)

    def defer(self, count: int, *, kind: str = NOTHING, start: str = "tomorrow", step: float = 1.0) -> None:
        """So many jobs for later, ``step`` seconds apart."""
        params = {"kind": kind, "count": count, "start": start, "step": step}
        self.connection.execute(DEFER, params)
        self.connection.execute("VACUUM ANALYZE awa.scheduled_jobs")

    def drain_rate(self, mark: int, count: int) -> float:
        """Jobs a second from the first claim to the last finish, by the database's clock."""
        done, seconds = self.one(
            "SELECT count(*), extract(epoch FROM max(finalized_at) - min(attempted_at))::float8 "
            "FROM awa.jobs_hot WHERE id > %s AND state = 'completed'",
            mark,
        )
        assert done == count, f"{done} of {count} jobs completed"
        return float(done / seconds)
