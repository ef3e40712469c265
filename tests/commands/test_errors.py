"""What goes wrong is one line on stderr and an exit code, of the whole process too; no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from django.db import connection

from tests.commands.conftest import Manage
from tests.conftest import PROJECT_DIR

COMMANDS = ["awa_status", "awa_jobs list", "awa_queues list", "awa_cron list", "awa_doctor"]


def manage_py(env: dict[str, str], arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROJECT_DIR / "manage.py", *arguments.split()],
        env=env,
        capture_output=True,
        text=True,
        timeout=110,
    )


@pytest.mark.django_db
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_command_without_trouble_says_nothing_on_stderr(
    manage: Manage, command: str, options: tuple[str, ...]
) -> None:
    ended = manage(*command.split(), *options)
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout
    if options:
        assert ended.document is not None


@pytest.mark.parametrize("command", COMMANDS)
def test_database_that_is_down_is_one_line(manage: Manage, dead_alias: str, command: str) -> None:
    ended = manage(*command.split(), "--json", "--database", dead_alias)
    assert (ended.code, ended.stdout) == (3, "")
    assert "\n" not in ended.error


@pytest.mark.django_db
@pytest.mark.parametrize("command", COMMANDS)
def test_alias_that_is_none_is_one_line(manage: Manage, command: str) -> None:
    ended = manage(*command.split(), "--database", "nowhere")
    assert (ended.code, ended.error) == (2, "there is no database alias 'nowhere', only 'default'")


@pytest.mark.django_db
@pytest.mark.parametrize("command", COMMANDS)
def test_role_that_may_not_is_told(manage: Manage, command: str) -> None:
    role = f"awa_command_test_{os.getpid()}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {role}")
        cursor.execute(f"SET LOCAL ROLE {role}")
    ended = manage(*command.split())
    assert ended.code == 3
    assert ended.error.startswith("this database role may not do that (docs/roles.md): ")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        ("next nothing", 1, "no schedule 'nothing'"),
        ("run nothing", 1, "no schedule 'nothing'"),
        ("pause nothing", 1, "no schedule 'nothing'"),
        ("resume nothing", 1, "no schedule 'nothing'"),
        ("next nothing --count x", 1, "no number of 1 or more"),
    ],
)
def test_awa_cron_says_what_is_wrong(manage: Manage, arguments: str, code: int, error: str) -> None:
    ended = manage("awa_cron", "--json", *arguments.split())
    assert (ended.code, ended.stdout) == (code, "")
    assert error in ended.error


def test_processes_end_with_their_codes(worker_env: dict[str, str], clean_queue: None) -> None:
    dead = {**worker_env, "DATABASE_URL": "postgres://nobody@127.0.0.1:1/nothing"}
    cases: list[tuple[dict[str, str], str, int, Any]] = [
        (dead, "awa_status --json", 3, "CommandError: the database could not be asked: "),
        (worker_env, "awa_queues pause mail --for soon", 2, "'soon' is no duration"),
    ]
    for env, arguments, code, error in cases:
        done = manage_py(env, arguments)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert error in done.stderr
        assert "Traceback" not in done.stderr


def test_reader_that_has_seen_enough_is_no_error(worker_env: dict[str, str], clean_queue: None) -> None:
    """``awa_cron list | head``: the pipe is closed before anything is written."""
    for unbuffered in ("", "1"):
        command = [sys.executable, str(PROJECT_DIR / "manage.py"), "awa_cron", "list"]
        reading, writing = os.pipe()
        os.close(reading)
        try:
            done = subprocess.run(
                command,
                env={**worker_env, "PYTHONUNBUFFERED": unbuffered},
                stdout=writing,
                stderr=subprocess.PIPE,
                text=True,
                timeout=110,
            )
        finally:
            os.close(writing)
        assert (done.returncode, done.stderr) == (141, "")
