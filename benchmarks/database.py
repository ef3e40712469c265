"""The server, and the databases that the benchmarks make on it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from benchmarks import floor

PROJECT_DIR = Path(__file__).resolve().parent.parent
PREFIX = "awa_bench_"
TABLES = ("awa.jobs_hot", "awa.scheduled_jobs", "bench_floor")
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

    def create(self, name: str, *, with_schema: bool = True) -> Database:
        """A new database, with the schema of the product and the table of the floor."""
        identifier = sql.Identifier(PREFIX + name)
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier))
            connection.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
        database = Database(urlunsplit(urlsplit(self.url)._replace(path="/" + PREFIX + name)), self)
        if not with_schema:
            return database
        migrate = [sys.executable, str(PROJECT_DIR / "manage.py"), "migrate", "--verbosity=0"]
        subprocess.run(migrate, env=database.environment, cwd=PROJECT_DIR, check=True)
        database.connection.execute(floor.CREATE)
        return database

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """No other benchmark on this server meanwhile; nothing is left of a run, not even of a killed one."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            row = connection.execute("SELECT pg_try_advisory_lock(hashtext('awa bench'))").fetchone()
            if row != (True,):
                raise SystemExit("another benchmark runs on this server")
            self._drop_all()
            try:
                yield
            finally:
                self._drop_all()

    def _drop_all(self) -> None:
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


@dataclass
class Database:
    """One database, with a connection of the benchmarks' own; ``kept`` are tables that are never emptied."""

    url: str
    server: Server
    kept: tuple[str, ...] = ()

    @cached_property
    def connection(self) -> psycopg.Connection[Any]:
        # Unprepared: a plan made while a table was empty would be kept.
        return psycopg.connect(self.url, autocommit=True, prepare_threshold=None)

    @property
    def socket_url(self) -> str:
        """The URL with a socket's directory and all else as parameters, which every driver can read."""
        parts = conninfo_to_dict(self.url)
        if not str(parts.get("host") or "").startswith("/"):
            return self.url
        name = parts.pop("dbname")
        return f"postgres:///{name}?{urlencode(parts)}"

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

    def now(self) -> datetime:
        """By the server's clock."""
        (now,) = self.one("SELECT clock_timestamp()")
        return now  # type: ignore[no-any-return]

    def clock_offset(self) -> float:
        """Seconds that the server's clock is ahead of this machine's: near zero, unless it is elsewhere."""
        began = time.time()
        return self.now().timestamp() - (began + time.time()) / 2

    def set_for_new_sessions(self, name: str, value: str | None) -> None:
        """A setting of this database for sessions that begin from now on; None takes it back."""
        (database,) = self.one("SELECT current_database()")
        change = (
            sql.SQL("ALTER DATABASE {} RESET {}")
            if value is None
            else sql.SQL("ALTER DATABASE {} SET {} = {}")
        )
        parts = [sql.Identifier(database), sql.Identifier(name)] + (
            [] if value is None else [sql.Literal(value)]
        )
        self.connection.execute(change.format(*parts))

    def set_for_server(self, name: str, value: str | None) -> None:
        """A setting of the whole server, which must be ours; None takes it back."""
        if value is None:
            self.connection.execute(sql.SQL("ALTER SYSTEM RESET {}").format(sql.Identifier(name)))
        else:
            change = sql.SQL("ALTER SYSTEM SET {} = {}")
            self.connection.execute(change.format(sql.Identifier(name), sql.Literal(value)))
        self.connection.execute("SELECT pg_reload_conf()")

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

    def defer(self, count: int, *, start: datetime, kind: str = NOTHING, step: float = 1.0) -> None:
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
