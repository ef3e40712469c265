"""The embedded server comes up for whoever needs it, whatever happened before, and goes with the last."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.pq import PGconn, Ping

from example_project.embedded_postgres import Cluster, EmbeddedPostgresError, prepare, server
from example_project.embedded_postgres.cluster import private_directory
from tests.conftest import PROJECT_DIR
from tests.waiting import wait_until

USE_IT = """
import sys
from pathlib import Path
from example_project.embedded_postgres import ensure_running
print(ensure_running(sys.argv[1], project=Path(sys.argv[2])), flush=True)
sys.stdin.read()
"""


class Users:
    """Processes that use a cluster until they are ended."""

    def __init__(self, cluster: Cluster, project: Path) -> None:
        self.cluster = cluster
        self.project = project
        self.processes: list[subprocess.Popen[str]] = []

    def spawn(self, **options: Any) -> subprocess.Popen[str]:
        environment = {key: value for key, value in os.environ.items() if key != "DATABASE_URL"}
        environment.pop("EMBEDDED_POSTGRES", None)
        process = subprocess.Popen(
            [sys.executable, "-c", USE_IT, self.cluster.home.name, self.project],
            env={**environment, "PYTHONPATH": str(PROJECT_DIR), **options.pop("env", {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )
        self.processes.append(process)
        return process

    @staticmethod
    def url(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("postgres://"), f"exit code {process.wait()}"
        return url

    def start(self, **options: Any) -> str:
        return self.url(self.spawn(**options))

    @staticmethod
    def end(process: subprocess.Popen[str]) -> None:
        process.kill()
        with process:  # closes its pipes and waits
            pass

    def end_all(self) -> None:
        for process in self.processes:
            self.end(process)

    def wait_for_stop(self) -> None:
        url = self.cluster.url.encode()
        wait_until(lambda: PGconn.ping(url) == Ping.NO_RESPONSE, message="the server to stop")
        wait_until(lambda: not (self.cluster.data / "postmaster.pid").exists())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project whose path has a space and whose parent only its owner can enter."""
    parent = tmp_path_factory.mktemp("home", numbered=True)
    parent.chmod(0o700)
    project = parent / "a project's"
    project.mkdir()
    yield project
    assert parent.stat().st_mode & 0o777 == 0o700
    remove(prepare("any", project))


def remove(cluster: Cluster) -> None:
    if cluster.owner is not None:  # root: all of the project's clusters and the copy are outside of it
        shutil.rmtree(cluster.home.parent)
    if cluster.socket_dir != cluster.home:
        shutil.rmtree(cluster.socket_dir)


@pytest.fixture
def users(project: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Users]:
    monkeypatch.delenv("EMBEDDED_POSTGRES", raising=False)
    users = Users(prepare(f"c{abs(hash(request.node.name)) % 10**8}", project), project)
    yield users
    users.end_all()
    users.wait_for_stop()


def query(url: str, statement: str) -> Any:
    with psycopg.connect(url) as connection:
        row = connection.execute(statement).fetchone()
        return row[0] if row else None


def server_pid(cluster: Cluster) -> int:
    return int((cluster.data / "postmaster.pid").read_text().split()[0])


def test_the_server_stops_with_its_last_user_and_keeps_the_data(users: Users) -> None:
    first, second = users.spawn(), users.spawn()
    url = users.url(first)
    assert users.url(second) == url
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS value")
    users.end(first)
    time.sleep(0.2)  # time enough for a guard that is wrong
    assert query(url, "SELECT value FROM kept") == 7
    assert second.stdin is not None
    second.stdin.close()  # ends by itself
    users.wait_for_stop()
    assert query(users.start(), "SELECT value FROM kept") == 7


def test_starts_at_the_same_time_share_one_server(users: Users) -> None:
    processes = [users.spawn() for _ in range(3)]
    urls = {users.url(process) for process in processes}
    assert len(urls) == 1
    assert query(urls.pop(), "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'checkpointer'") == 1


def test_a_new_user_during_the_stop_gets_a_running_server(users: Users) -> None:
    for _ in range(4):
        process = users.spawn()
        users.url(process)
        users.end(process)
        assert query(users.start(), "SELECT 1") == 1
        users.end(users.processes[-1])


def test_a_killed_server_recovers(users: Users) -> None:
    url = users.start()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS value")
    os.kill(server_pid(users.cluster), signal.SIGKILL)
    assert query(users.start(), "SELECT value FROM kept") == 7


def test_a_stale_pid_file_that_names_another_program_is_overcome(users: Users) -> None:
    users.end(users.spawn())
    users.wait_for_stop()
    users.start()
    users.end_all()
    users.wait_for_stop()
    stale = users.cluster.data / "postmaster.pid"
    stale.write_text(f"{os.getpid()}\n{users.cluster.data}\n0\n5432\n{users.cluster.socket_dir}\n\n0 0\n")
    assert query(users.start(), "SELECT 1") == 1


@pytest.mark.parametrize("after", [0.2, 0.6, 1.0])
def test_a_start_that_was_killed_is_made_good(users: Users, after: float) -> None:
    killed = users.spawn()
    time.sleep(after)
    users.end(killed)
    assert query(users.start(), "SELECT 1") == 1


def test_a_foreign_environment_does_not_matter(users: Users) -> None:
    foreign = {"LC_ALL": "xx_XX.none", "LANG": "yy_YY", "PGPORT": "1", "PGDATA": "/none", "PGUSER": "none"}
    url = users.start(env=foreign, umask=0o077)
    assert query(url, "SELECT datcollate FROM pg_database WHERE datname = 'postgres'") == "C.UTF-8"


def test_only_the_owner_can_enter_and_no_port_is_open(users: Users) -> None:
    url = users.start(umask=0)
    assert query(url, "SHOW listen_addresses") == ""
    for path in (users.cluster.home, users.cluster.data, users.cluster.socket_dir):
        assert path.stat().st_mode & 0o777 == 0o700
    assert query(url, "SHOW fsync") == "on"
    assert int(query(url, "SHOW max_connections")) == 200


def test_a_port_asks_for_the_password(users: Users) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert query(users.start(env={"EMBEDDED_POSTGRES_PORT": str(port)}), "SELECT 1") == 1
    password = (users.cluster.home / "password").read_text().strip()
    assert query(f"postgres://postgres:{password}@127.0.0.1:{port}/postgres", "SELECT 1") == 1
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        query(f"postgres://postgres:wrong@127.0.0.1:{port}/postgres", "SELECT 1")


def test_data_of_another_major_version_are_left_alone(users: Users) -> None:
    users.start()
    users.end_all()
    users.wait_for_stop()
    (users.cluster.data / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedPostgresError, match=r"made by PostgreSQL 9, .*delete that directory"):
        server.create(users.cluster, lock=-1)


def test_a_server_that_cannot_start_says_why(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    users.start()
    users.end_all()
    users.wait_for_stop()
    with (users.cluster.data / "postgresql.conf").open("a") as conf:
        conf.write("no_such_setting = 1\n")
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
        server.start(users.cluster)


def test_a_long_path_gets_its_socket_elsewhere(project: Path) -> None:
    deep = project / ("long" * 30)
    deep.mkdir()
    cluster = prepare("long" * 20, deep)
    try:
        assert cluster.socket_dir != cluster.home
        assert len(os.fsencode(cluster.socket_dir / ".s.PGSQL.5432")) <= 107
        users = Users(cluster, deep)
        assert query(users.start(), "SELECT 1") == 1
        users.end_all()
        users.wait_for_stop()
    finally:
        remove(cluster)


def test_a_new_clone_at_the_same_path_starts_with_no_data(tmp_path: Path) -> None:
    project = tmp_path / "clone"
    for round_number in (1, 2):
        project.mkdir()
        cluster = prepare("dev", project)
        assert list(cluster.home.iterdir()) == []
        (cluster.home / "left").touch()
        assert (prepare("dev", project).home / "left").exists()
        if round_number == 1:
            shutil.rmtree(project)
    remove(cluster)


def test_a_directory_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(EmbeddedPostgresError, match="is not a directory of user"):
        private_directory(link)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedPostgresError, match=r"/file'.*set DATABASE_URL"):
        private_directory(tmp_path / "file" / ".pg")
