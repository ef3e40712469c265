"""Whole workers that are told to stop: by one signal, by two, by one to all of their processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests import handlers
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker

pytestmark = [pytest.mark.acceptance, pytest.mark.django_db(transaction=True)]


def test_term_lets_running_jobs_end_and_gives_back_the_rest(
    database: Database, start_worker: StartWorker, tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"
    handlers.until.enqueue_many([{"path": str(go_on), "number": number} for number in range(10)])
    worker = start_worker("--concurrency", "4", "--shutdown-timeout", "100")
    wait_until(lambda: len(database.effects("started")) == 4, message=worker.text)
    worker.signal(signal.SIGTERM)
    claimers = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE 'awa-%%-claim'"
    )
    wait_until(lambda: database.value(claimers) == 0, message=worker.text)
    go_on.touch()
    assert worker.wait() == 0
    assert len(database.effects("ended")) == 4
    assert database.states() == {"completed": 4, "available": 6}
    assert database.value("SELECT max(attempt) FROM awa.jobs_hot WHERE state = 'available'") == 0


def test_term_to_the_whole_process_group_is_an_ordinary_stop(
    database: Database, start_worker: StartWorker
) -> None:
    """It ends the forkserver as well, and with it what knows the children's exit codes."""
    handlers.sleep.enqueue(seconds=0.5)
    worker = start_worker()
    wait_until(lambda: database.effects("started"), message=worker.text)
    os.killpg(worker.pid, signal.SIGTERM)
    assert worker.wait() == 0
    assert database.states() == {"completed": 1}
    assert "died" not in worker.text()


@pytest.mark.fault("F8", injected="SIGTERM with two jobs of 60 s running, 0.5 s to end")
def test_term_gives_back_running_jobs_when_time_is_over(
    database: Database, start_worker: StartWorker
) -> None:
    handlers.sleep.enqueue_many([{"seconds": 60, "number": number} for number in range(4)])
    worker = start_worker("--concurrency", "2", "--shutdown-timeout", "0.5")
    wait_until(lambda: len(database.effects("started")) == 2, message=worker.text)
    assert worker.stop() == 3
    assert database.states() == {"available": 4}
    assert database.rows("SELECT DISTINCT attempt, cardinality(errors) FROM awa.jobs_hot") == [(0, 0)]


@pytest.mark.fault("F9", injected="a second TERM or INT while a job of 60 s runs")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_stops_at_once(database: Database, start_worker: StartWorker, number: int) -> None:
    handlers.sleep.enqueue(seconds=600)
    worker = start_worker("--shutdown-timeout", "600")
    wait_until(lambda: database.effects("started"), message=worker.text)
    worker.signal(number)
    wait_until(lambda: "stopping: signalled" in worker.text(), message=worker.text)
    worker.signal(number)
    assert worker.wait() == 3
    assert database.states() == {"available": 1}
    assert "Traceback" not in worker.text()
