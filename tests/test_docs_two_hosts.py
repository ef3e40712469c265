"""docs/two-hosts.md is done step by step: two workers, one of them killed, the other one stopped."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.test_docs_pages import blocks
from tests.test_docs_tutorial import database, environment_of, run, write
from tests.waiting import wait_until

__all__ = ["database"]  # a fixture
SETTINGS = """
INSTALLED_APPS += ["awa_django", "news"]
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "NAME_OF_IT", "CONN_MAX_AGE": 60}}
"""
# In place of a fixed time, which a busy machine may miss: until the first worker has been killed.
NAP = "    time.sleep(8)\n"
HELD = """    from pathlib import Path
    while not Path("killed").exists():
        time.sleep(0.05)
"""
PID = {"4711": 0, "4712": 1}
PATIENCE = 60.0


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in taken:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in taken]


@pytest.fixture
def project(tmp_path: Path, database: dict[str, str]) -> Path:
    """What the tutorial has made so far, as far as it matters here."""
    for command in ("django-admin startproject mysite .", "python manage.py startapp news"):
        code, output = run(command, tmp_path, environment_of(database))
        assert code == 0, output
    settings = tmp_path / "mysite/settings.py"
    settings.write_text(settings.read_text() + SETTINGS.replace("NAME_OF_IT", database["TUTORIAL"]))
    (tmp_path / "news/tasks.py").write_text("from awa_django import job\n")
    code, output = run("python manage.py migrate", tmp_path, environment_of(database))
    assert code == 0, output
    return tmp_path


@pytest.fixture
def workers() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.timeout(600)
def test_two_hosts_do_what_the_page_says(
    project: Path, database: dict[str, str], workers: list[subprocess.Popen[bytes]]
) -> None:
    environment = environment_of(database)
    ports = dict(zip(("8091", "8092"), map(str, free_ports(2)), strict=True))
    twice: list[str] = []

    def seen(command: str, expected: list[str]) -> bool:
        code, output = run(command, project, environment)
        if " 2/25" in output:
            twice[:] = [line.split()[0] for line in output.splitlines() if " 2/25" in line]
        return code == 0 and are_in_order(expected, output)

    for language, _, text in blocks("docs/two-hosts.md"):
        if language == "python":
            write(project, text.replace(NAP, HELD), database["TUTORIAL"])
        for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:] if language == "console" else ():
            command, *lines = step.splitlines()
            command = re.sub("|".join(ports), lambda match: ports[match[0]], command)
            if command.endswith("awa_worker"):
                workers.append(start(command, project, environment))
                continue
            if command.startswith("kill "):
                stop(command, workers)
                (project / "killed").touch()
                continue
            command = command.replace("show 17", f"show {' '.join(twice[:1])}")
            if "shell" in command:
                assert run(command, project, environment)[0] == 0, command
            else:
                wait_until(partial(seen, command, lines), timeout=PATIENCE, message=command)
    assert [worker.wait(timeout=PATIENCE) for worker in workers[:2]] == [-signal.SIGKILL, 0]
    wait_until(lambda: sum(attempts(database).values()) == 36, timeout=PATIENCE)
    assert attempts(database)[2]  # what the killed worker ran


def are_in_order(expected: list[str], output: str) -> bool:
    """Whether each line that the page shows is a line of the output, in this order; "..." is anything."""
    said = iter(output.splitlines())
    return all(
        any(re.search(".*".join(map(re.escape, map(str.strip, wanted.split("...")))), line) for line in said)
        for wanted in expected
    )


def start(command: str, project: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A worker in a terminal of its own: the leader of its process group."""
    name, value = command.split()[0].split("=")
    return subprocess.Popen(
        command.split()[1:], cwd=project, env={**environment, name: value}, start_new_session=True
    )


def stop(command: str, workers: list[Any]) -> None:
    _, option, *_, number = command.split()
    signals = {"-KILL": signal.SIGKILL, "-TERM": signal.SIGTERM}
    send = os.killpg if "--" in command.split() else os.kill
    send(workers[PID[number.strip("-")]].pid, signals[option])


def attempts(database: dict[str, str]) -> dict[int, int]:
    """How many jobs have completed after how many attempts."""
    given = {name[2:].lower(): value for name, value in database.items() if name.startswith("PG")}
    with psycopg.connect(dbname=database["TUTORIAL"], **given) as connection:  # type: ignore[arg-type]
        rows = connection.execute(
            "SELECT attempt, count(*) FROM awa.jobs WHERE state = 'completed' GROUP BY attempt"
        )
        return dict(rows.fetchall())
