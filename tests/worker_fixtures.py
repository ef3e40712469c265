"""Fixtures of the tests of whole workers: an empty queue with its questions, and workers to kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest

from awa_django import doctor
from awa_django.failpoints import VARIABLE
from tests import audit
from tests.conftest import Connect
from tests.worker_process import WorkerProcess

Row = tuple[Any, ...]


class StartWorker(Protocol):
    def __call__(
        self,
        *arguments: str,
        awa: dict[str, Any] | None = None,
        failpoints: str = "",
        env: dict[str, str] | None = None,
    ) -> WorkerProcess: ...


class Database:
    """Questions that tests ask of committed data, on a connection of their own."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def rows(self, query: str, *values: object) -> list[Row]:
        return self.connection.execute(query, values).fetchall()

    def value(self, query: str, *values: object) -> Any:
        return self.rows(query, *values)[0][0]

    def states(self) -> dict[str, int]:
        """How many jobs in each state, in both tables."""
        return dict(self.rows("SELECT state::text, count(*) FROM awa.jobs GROUP BY state"))

    def job(self, job_id: int) -> dict[str, Any]:
        cursor = self.connection.execute("SELECT * FROM awa.jobs WHERE id = %s", [job_id])
        assert cursor.description is not None
        row = cursor.fetchone()
        assert row is not None, f"job {job_id} is gone"
        return dict(zip([column.name for column in cursor.description], row, strict=True))

    def let_leases_run_out(self) -> None:
        """As if all who now run jobs or lead had been silent for an hour: for when they are dead."""
        self.connection.execute(
            "UPDATE awa.jobs_hot SET heartbeat_at = now() - interval '1 hour' WHERE state = 'running'"
        )
        self.connection.execute("UPDATE awa.leaders SET expires_at = now()")

    def effects(self, name: str) -> list[int]:
        """The numbers of the effects of this name, sorted."""
        return [
            number for (number,) in self.rows("SELECT number FROM effects WHERE name = %s ORDER BY 1", name)
        ]


@pytest.fixture
def audited(clean_queue: None, database_url: str) -> Iterator[None]:
    """Each step of each job is written down; it goes after the sessions of ``connect``."""
    with psycopg.connect(database_url, autocommit=True, application_name=audit.BY_HAND) as connection:
        connection.execute("SET lock_timeout = '15s'")
        audit.install(connection)
        yield
        audit.remove(connection)


@pytest.fixture
def database(clean_queue: None, audited: None, connect: Connect) -> Iterator[Database]:
    """An empty queue, a table for effects; at the end a doctor's visit, and the audit's judgement.

    What its own connection does to jobs is done by hand, and not judged.
    """
    database = Database(connect(application_name=audit.BY_HAND))
    database.connection.execute("DROP TABLE IF EXISTS effects")
    database.connection.execute(
        "CREATE TABLE effects "
        "(name text, number bigint, pid integer, at timestamptz DEFAULT clock_timestamp())"
    )
    yield database
    database.connection.execute("DROP TABLE effects")
    assert [str(finding) for finding in doctor.diagnose() if not finding.is_warning] == []
    assert audit.judge(audit.steps(database.connection)) == []


class Workers:
    """Workers with their logs in a directory; ``end`` kills what is left of them, and shows the logs."""

    def __init__(self, env: dict[str, str], directory: Path) -> None:
        self._env = env
        self._directory = directory
        self._started: list[WorkerProcess] = []

    def start(
        self,
        *arguments: str,
        awa: dict[str, Any] | None = None,
        failpoints: str = "",
        env: dict[str, str] | None = None,
    ) -> WorkerProcess:
        worker = WorkerProcess(
            {**self._env, **(env or {}), VARIABLE: failpoints},
            self._directory / f"worker-{len(self._started)}.log",
            *arguments,
            awa={"PROMOTE_INTERVAL": 0.05, **(awa or {})},
        )
        self._started.append(worker)
        return worker

    def end(self) -> None:
        for worker in self._started:
            worker.end()
            print(worker.text())


@pytest.fixture
def workers(worker_env: dict[str, str], tmp_path: Path) -> Iterator[Workers]:
    """Workers to start, wherever their queue is."""
    workers = Workers(worker_env, tmp_path)
    yield workers
    workers.end()


@pytest.fixture
def start_worker(database: Database, workers: Workers) -> StartWorker:
    """``start_worker(*arguments, awa={...}, failpoints="...")``, on the queue of ``database``."""
    return workers.start
