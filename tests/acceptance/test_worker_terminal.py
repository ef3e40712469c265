"""A worker that a person has started says what it does; under a process manager only what is wrong."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys

import pytest

from awa_django import Fixed
from tests import handlers
from tests.conftest import PROJECT_DIR

pytestmark = [pytest.mark.acceptance, pytest.mark.django_db(transaction=True)]


def drain(env: dict[str, str], stderr: int) -> int:
    command = [sys.executable, str(PROJECT_DIR / "manage.py"), "awa_worker", "--drain", "--max-time", "60"]
    env = {**env, "DJANGO_SETTINGS_MODULE": "tests.unlogged_settings"}
    return subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=stderr, timeout=110).returncode


def read(end: int) -> str:
    seen = b""
    with contextlib.suppress(OSError):  # a terminal that nobody has open is an error to read from
        while part := os.read(end, 4096):
            seen += part
    os.close(end)
    return seen.decode()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_worker_tells_a_person_what_it_does(
    worker_env: dict[str, str], clean_queue: None, is_terminal: bool
) -> None:
    handlers.raise_text.using(max_attempts=2, retry=Fixed(wait=3600)).enqueue("nul")
    reading, writing = pty.openpty() if is_terminal else os.pipe()
    code = drain(worker_env, writing)
    os.close(writing)
    said = read(reading)
    assert code == 0
    if is_terminal:
        assert " serves " in said
        assert "is tried again after attempt 1 of 2: ValueError" in said  # a child says it
        assert said.count("ended: 1 claimed, 0 completed, 1 retried") == 1
    else:
        assert said == ""
