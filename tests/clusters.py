"""Throw-away PostgreSQL servers that tests stop, kill, fill up and fail over.

Made of the binaries that the embedded server uses (``EMBEDDED_POSTGRES`` names others), run as its
user, on free ports of 127.0.0.1 with a password. A server ends with the process that started it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import psycopg

from example_project import embedded_postgres
from tests.waiting import wait_until

PROJECT_DIR = Path(__file__).resolve().parent.parent
PATIENCE = 60.0
_PR_SET_PDEATHSIG = 1
_numbers = itertools.count(1)
_password = secrets.token_urlsafe(16)


class Cluster:
    """One server; ``start`` it, and ``remove`` it in the end."""

    def __init__(self, data: Path, **settings: object) -> None:
        self.data = data
        self.log = data.with_suffix(".log")
        self.port = free_port()
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return url_of(self.port)

    def start(self, *, wait: bool = True) -> None:
        """Start it; waits until it accepts connections."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": 100,
            "log_line_prefix": "%m [%p] %a ",
            "fsync": "off",
            **self.settings,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [_home().binaries / "postgres", "-D", self.data, *options],
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  (one call into libc)
                **run_as_owner(),
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Until it accepts connections."""
        wait_until(self._answers, timeout=PATIENCE, message=self.log_text)

    def stop(self, mode: signal.Signals = signal.SIGINT) -> None:
        """``SIGINT`` ends it cleanly, ``SIGQUIT`` at once as a crash would: it recovers at its start."""
        process = self._process
        if process is None:
            return
        process.send_signal(mode)
        process.wait(PATIENCE)
        self._process = None

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def crash(self) -> None:
        """End it at once, nothing written down."""
        self.stop(signal.SIGQUIT)

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, **{"autocommit": True, **options})

    def standby(self, name: str = "standby", **settings: object) -> Cluster:
        """A streaming standby of this server, which is started."""
        standby = Cluster(_free_directory(), **settings)
        _run(
            "pg_basebackup",
            f"--dbname={_conninfo(self.port)}",
            f"--pgdata={standby.data}",
            "--write-recovery-conf",  # makes standby.signal
            "--checkpoint=fast",
            "--no-sync",
        )
        standby.settings = {
            "primary_conninfo": f"{_conninfo(self.port)} application_name={name}",
            "hot_standby_feedback": "on",
            **settings,
        }
        standby.start()
        return standby

    def promote(self) -> None:
        """Make a standby the primary."""
        with self.connect() as connection:
            connection.execute("SELECT pg_promote(wait => true, wait_seconds => 30)")

    def log_text(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def remove(self) -> None:
        """End it, and take its files away."""
        self.crash()
        shutil.rmtree(self.data, ignore_errors=True)
        self.log.unlink(missing_ok=True)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the server ended: {self.log_text()}"
        try:
            self.connect(connect_timeout=10).close()
        except psycopg.OperationalError:
            return False
        return True


@contextlib.contextmanager
def cluster(directory: Path | None = None, **settings: object) -> Iterator[Cluster]:
    """A running server with the schema and the tests' table ``effects``; its data in ``directory``."""
    made = Cluster(_free_directory(directory), **settings)
    _run("/bin/cp", "-R", str(_template()), str(made.data))
    try:
        made.start()
        yield made
    finally:
        made.remove()


def server_version() -> int:
    """The major version of the servers."""
    told = subprocess.run([_home().binaries / "postgres", "--version"], capture_output=True, text=True)
    return int(re.findall(r"\d+", told.stdout)[0])


def binary(name: str) -> Path:
    """A program beside the server: ``pg_dump``, ``psql``."""
    return _home().binaries / name


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def url_of(port: int) -> str:
    return f"postgres://postgres:{_password}@127.0.0.1:{port}/postgres"


def own(path: Path) -> None:
    """Give a directory to the user that servers run as."""
    if (owner := _home().owner) is not None:
        os.chown(path, owner.pw_uid, owner.pw_gid)
    path.chmod(0o700)


@cache
def _template() -> Path:
    """The data directory of a stopped server with the schema, made once in this process."""
    template = Cluster(_free_directory())
    password = template.data.with_suffix(".password")
    password.write_text(_password + "\n")
    if (owner := _home().owner) is not None:
        os.chown(password, owner.pw_uid, owner.pw_gid)
    try:
        _run(
            "initdb",
            f"--pgdata={template.data}",
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--auth=scram-sha-256",
            f"--pwfile={password}",
            "--no-sync",
        )
    finally:
        password.unlink()
    template.start()
    subprocess.run(
        [sys.executable, PROJECT_DIR / "manage.py", "migrate", "awa", "--verbosity=0"],
        env={**os.environ, "DATABASE_URL": template.url, "DJANGO_SETTINGS_MODULE": "tests.worker_settings"},
        cwd=PROJECT_DIR,
        check=True,
    )
    with template.connect() as connection:
        connection.execute(
            "CREATE TABLE effects "
            "(name text, number bigint, pid integer, at timestamptz DEFAULT clock_timestamp())"
        )
    template.stop()
    template.log.unlink()
    atexit.register(template.remove)
    return template.data


@cache
def _home() -> embedded_postgres.Cluster:
    """Whose binaries, whose user, and where there is room."""
    home = embedded_postgres.prepare("throw-away", PROJECT_DIR)
    for entry in home.home.iterdir():
        if entry.is_dir() and not psutil.pid_exists(int(entry.name.split("-")[0])):
            shutil.rmtree(entry, ignore_errors=True)  # of a process that was killed
    return home


def _free_directory(parent: Path | None = None) -> Path:
    return (parent or _home().home) / f"{os.getpid()}-{next(_numbers)}"


def _conninfo(port: int) -> str:
    return f"host=127.0.0.1 port={port} user=postgres password={_password} dbname=postgres"


def run_as_owner() -> dict[str, Any]:
    """What ``subprocess`` needs to run something as the user that servers run as."""
    owner = _home().owner
    if owner is None:
        return {"umask": 0o077}
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": [], "umask": 0o077}


def _run(program: str, *arguments: str) -> None:
    words: Sequence[str | Path] = [_home().binaries / program, *arguments]
    done = subprocess.run(
        words,
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        **run_as_owner(),
    )
    assert not done.returncode, f"{program} failed: {done.stdout}{done.stderr}"


def _die_with_parent() -> None:
    """In the forked process: a test run that is killed leaves no server behind (Linux only)."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)
