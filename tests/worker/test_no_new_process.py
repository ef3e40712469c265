"""A machine that gives no new process for a while, or has lost what the next one is started by."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest

from awa_django.worker import children as module
from awa_django.worker.children import Children
from awa_django.worker.options import WorkerOptions
from tests import handlers
from tests.waiting import wait_until
from tests.worker_fixtures import Database, StartWorker


@pytest.mark.acceptance
@pytest.mark.django_db(transaction=True)
def test_child_is_replaced_when_the_socket_of_the_fork_server_is_gone(
    database: Database, start_worker: StartWorker
) -> None:
    """As when something tidies up /tmp."""
    worker = start_worker()
    worker.wait_ready(database.connection)
    [child] = worker.child_pids()
    forkserver = psutil.Process(child).parent()
    assert forkserver is not None
    [path] = {each.laddr for each in forkserver.net_connections("unix") if "pymp-" in str(each.laddr)}
    shutil.rmtree(Path(str(path)).parent)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: "could not be started" in worker.text(), message=worker.text)
    job_id = handlers.record.enqueue(number=1).id
    wait_until(lambda: database.job(job_id)["state"] == "completed", message=worker.text)
    assert worker.stop() == 0


class Refusals:
    """Stands for the processes of a machine that has none to give for so many tries."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.budgets: list[int | None] = []

    def __call__(self, *arguments: Any) -> mock.Mock:
        self.budgets.append(arguments[-1])
        if self.left:
            self.left -= 1
            raise BlockingIOError("Resource temporarily unavailable")
        return mock.Mock()


def test_refused_process_is_tried_for_again_ever_later_and_costs_no_budget(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = mock.Mock(return_value=1_000.0)
    monkeypatch.setattr("awa_django.worker.children.time.monotonic", clock)
    children = Children(WorkerOptions(queues={"default": 1}, max_jobs=7), worker="w", application_name="a")
    refusals = Refusals(3)
    monkeypatch.setattr(module, "ChildProcess", refusals)
    children._respawn_at.append(clock())
    children.respawn()
    for tries, seconds in ((1, 0.1), (2, 0.2), (3, 0.4)):
        clock.return_value += seconds - 0.001
        children.respawn()
        assert len(refusals.budgets) == tries
        clock.return_value += 0.002
        children.respawn()
    assert refusals.budgets == [7, 7, 7, 7]
    assert len(children.living()) == 1
    assert [f"again in {wait} s" in caplog.text for wait in (0.1, 0.2, 0.4)] == [True] * 3


def test_processes_are_spawned_where_a_fork_server_has_no_place_for_its_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a file system that is read-only a worker did not start."""
    monkeypatch.setattr("tempfile.gettempdir", mock.Mock(side_effect=FileNotFoundError))
    assert module._forkserver().get_start_method() == "spawn"
    monkeypatch.undo()
    assert module._forkserver().get_start_method() == "forkserver"
