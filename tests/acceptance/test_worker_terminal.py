"""A worker that a person has started in a terminal says what it does."""

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


def read(end: int) -> str:
    seen = b""
    with contextlib.suppress(OSError):  # a terminal that nobody has open is an error to read from
        while part := os.read(end, 4096):
            seen += part
    os.close(end)
    return seen.decode()


@pytest.mark.acceptance
@pytest.mark.django_db(transaction=True)
def test_worker_tells_a_person_what_it_does(worker_env: dict[str, str], clean_queue: None) -> None:
    handlers.raise_text.using(max_attempts=2, retry=Fixed(wait=3600)).enqueue("nul")
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, str(PROJECT_DIR / "manage.py"), "awa_worker", "--drain", "--max-time", "60"],
        env={**worker_env, "DJANGO_SETTINGS_MODULE": "tests.unlogged_settings"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        timeout=110,
    )
    os.close(theirs)
    said = read(ours)
    assert done.returncode == 0, said
    assert " serves " in said
    assert "is tried again after attempt 1 of 2: ValueError" in said  # a child says it
    assert said.count("ended: 1 claimed, 0 completed, 1 retried") == 1
