"""What jobs have left to the end of their process, when a worker stops."""

from __future__ import annotations

import re
import subprocess
import sys

import psutil
import pytest

from tests import leaving
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

pytestmark = [pytest.mark.acceptance, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def worker_env(worker_env: dict[str, str]) -> dict[str, str]:
    """Where what is printed is buffered, as it is without a terminal."""
    return {name: value for name, value in worker_env.items() if name != "PYTHONUNBUFFERED"}


def test_process_ends_as_an_interpreter_does_but_for_its_threads(
    database: Database, start_worker: StartWorker
) -> None:
    leaving.leave_behind.enqueue()
    worker = start_worker("--drain", awa={"IMPORTS": ["tests.leaving"]})
    assert worker.wait() == 0
    said = worker.text()
    assert said.count("printed\n") == said.count("told to say goodbye\n") == 1
    daemonic = re.search(r"daemonic (\d+);", said)
    assert daemonic is not None
    wait_until(lambda: not psutil.pid_exists(int(daemonic[1])), message="it outlives the worker")


def test_process_whose_exit_functions_hang_ends_all_the_same(worker_env: dict[str, str]) -> None:
    code = """
import atexit, django, time
django.setup()
from awa_django.worker import child
child.EXIT_PATIENCE = 0.2
atexit.register(time.sleep, 600)
child._leave()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=worker_env, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
