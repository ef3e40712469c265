"""SIGHUP, when the worker's terminal closes: a stop like any other, and nothing under nohup."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from awa_django.worker.forks import stop_signals
from tests import handlers
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker


@pytest.fixture
def hangup(request: pytest.FixtureRequest) -> Iterator[None]:
    """What this process does with SIGHUP, as its own terminal or CI may have it; others inherit that."""
    before = signal.signal(signal.SIGHUP, request.param)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("hangup", [signal.SIG_IGN], indirect=True)
def test_nohup_is_heeded(hangup: None) -> None:
    assert stop_signals() == [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("hangup", [signal.SIG_DFL], indirect=True)
@pytest.mark.acceptance
@pytest.mark.django_db(transaction=True)
def test_hangup_of_the_whole_group_ends_what_runs_and_stops(
    hangup: None, database: Database, start_worker: StartWorker, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    job_id = handlers.until.enqueue(path=str(go)).id
    worker = start_worker("--shutdown-timeout", "100")
    wait_until(lambda: database.effects("started"), message=worker.text)
    os.killpg(worker.pid, signal.SIGHUP)
    wait_until(lambda: "stopping: signalled" in worker.text(), message=worker.text)
    go.touch()
    assert worker.wait() == 0
    job = database.job(job_id)
    assert (job["state"], job["attempt"], job["errors"]) == ("completed", 1, [])
