"""What tests of faults share: workers behind a proxy, or on a server of their own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import urlsplit

import pytest
from django.db import connection

from tests.clusters import PROJECT_DIR, Cluster, cluster
from tests.conftest import Connect
from tests.faults.roles import become, installed
from tests.proxy import Proxy
from tests.worker_fixtures import Database, Workers
from tests.worker_process import WorkerProcess

# Fixtures that two files share.
__all__ = ["become", "installed"]


class StartWorkerAt(Protocol):
    def __call__(
        self,
        url: str,
        *arguments: str,
        awa: dict[str, Any] | None = None,
        failpoints: str = "",
        env: dict[str, str] | None = None,
    ) -> WorkerProcess: ...


class VisitDoctor(Protocol):
    def __call__(self, url: str, env: dict[str, str] | None = None) -> None: ...


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """A proxy in front of the test database."""
    with Proxy(database_url) as proxy:
        yield proxy


@contextlib.contextmanager
def django_at(url: str) -> Iterator[None]:
    """Django's own connection in this process leads there, for producers and operators."""
    settings = connection.settings_dict
    before = dict(settings)
    parts = urlsplit(url)
    connection.close()
    settings.update(
        HOST=parts.hostname or "",
        PORT=str(parts.port or ""),
        USER=parts.username or "",
        PASSWORD=parts.password or "",
        NAME=parts.path[1:],
    )
    try:
        yield
    finally:
        connection.close()
        settings.update(before)


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A server that the test may stop, with an empty queue."""
    with cluster() as own:
        yield own


@pytest.fixture
def own_database(own_cluster: Cluster) -> Iterator[Database]:
    """Questions to that server, as long as it is not stopped."""
    with own_cluster.connect() as connection:
        yield Database(connection)


@pytest.fixture
def start_worker_at(workers: Workers) -> StartWorkerAt:
    """``start_worker_at(url, *arguments, awa={...})``; whatever is left of them at the end is killed."""

    def start(url: str, *arguments: str, env: dict[str, str] | None = None, **options: Any) -> WorkerProcess:
        return workers.start(*arguments, env={**(env or {}), "DATABASE_URL": url}, **options)

    return start


@pytest.fixture
def visit_doctor(worker_env: dict[str, str]) -> VisitDoctor:
    """``visit_doctor(url)``: on that server everything that must hold holds."""

    def visit(url: str, env: dict[str, str] | None = None) -> None:
        done = subprocess.run(
            [sys.executable, PROJECT_DIR / "manage.py", "awa_doctor"],
            env={**worker_env, **(env or {}), "DATABASE_URL": url},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return visit


@pytest.fixture
def plain(clean_queue: None, connect: Connect) -> Database:
    """An empty queue without the audit, whose triggers would be most of what is measured."""
    return Database(connect())
