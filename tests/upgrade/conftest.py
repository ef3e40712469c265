"""A throw-away server, databases on it, and the earlier releases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.clusters import Cluster, cluster
from tests.producer_process import Producer
from tests.upgrade.releases import Release, history, release
from tests.worker_fixtures import Database
from tests.worker_process import WorkerProcess

_numbers = itertools.count(1)
Process = TypeVar("Process", WorkerProcess, Producer)


class Site(Database):
    """A database of a server, and its URL for processes."""

    def __init__(self, server: Cluster, name: str) -> None:
        self.name = name
        self.url = urlunsplit(urlsplit(server.url)._replace(path=f"/{name}"))
        with server.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        super().__init__(server.connect(dbname=name))


class MakeSite(Protocol):
    def __call__(self) -> Site: ...


Started = Callable[[Process], Process]


@pytest.fixture(scope="session")
def server() -> Iterator[Cluster]:
    with cluster() as server:
        yield server


@pytest.fixture
def make_site(server: Cluster) -> Iterator[MakeSite]:
    """``make_site()`` is a new and empty database."""
    made: list[Site] = []

    def make() -> Site:
        made.append(Site(server, f"upgrade_{next(_numbers)}"))
        return made[-1]

    yield make
    for site in made:
        site.connection.close()
        with server.connect() as connection:
            connection.execute(f"DROP DATABASE {site.name} WITH (FORCE)".encode())


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    """A database with the table that jobs leave their effects in, and no schema."""
    site = make_site()
    site.connection.execute(
        "CREATE TABLE effects "
        "(name text, number bigint, pid integer, at timestamptz DEFAULT clock_timestamp())"
    )
    return site


@pytest.fixture
def started() -> Iterator[Started[Any]]:
    """``started(process)``: the worker or producer is killed at the end if it still runs."""
    processes: list[Any] = []

    def note(process: Any) -> Any:
        processes.append(process)
        return process

    yield note
    for process in processes:
        process.end()
        print(process.log.read_text(errors="replace")[-5_000:])


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Release]:
    """``releases(schema)``: the release that worked on that version of the schema."""
    made: dict[int, Release] = {}

    def get(schema: int) -> Release:
        if schema not in made:
            made[schema] = release(schema, tmp_path_factory.mktemp(f"schema_{schema}"))
        return made[schema]

    return get


@pytest.fixture
def previous(releases: Callable[[int], Release]) -> Release:
    """The release before this one, as far as the schema goes."""
    return releases(next(iter(history())))


@pytest.fixture
def logs(tmp_path: Path) -> Callable[[], Path]:
    """``logs()``: a file for the next process."""
    numbers = itertools.count(1)
    return lambda: tmp_path / f"process-{next(numbers)}.log"
