"""Supervisor: a database that does not answer at the start, and a stop in the midst of it."""

from __future__ import annotations

import logging
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from awa_django.errors import AwaError
from awa_django.worker import database, supervisor
from awa_django.worker.children import Children
from awa_django.worker.options import make_options
from awa_django.worker.supervisor import EXIT_CANNOT_START, EXIT_OK, Supervisor


def test_database_that_does_not_answer_is_said_once_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = iter(["no route"] * 3 + ["it starts up"] * 2)

    def connect(*_: object, **__: object) -> None:
        raise psycopg.OperationalError(next(errors, "it starts up"))

    def clock() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += supervisor.START_PATIENCE / 6

    monkeypatch.setattr(database, "connect", connect)
    worker = Supervisor(make_options(queues="default", known_queues=[]))
    monkeypatch.setattr("multiprocessing.connection.wait", lambda *_, **__: [])
    monkeypatch.setattr("time.monotonic", clock().__next__)
    with worker._poke, worker._poked:
        assert worker.run() == EXIT_CANNOT_START
    assert [message.rpartition(": ")[2] for message in caplog.messages] == [
        "no route",
        "it starts up",
        "it starts up",
    ]


def test_role_without_the_grants_of_a_worker_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: object) -> None:
        raise psycopg.errors.InsufficientPrivilege("permission denied for table schema_version")

    worker = Supervisor(make_options(queues="default", known_queues=[]))
    monkeypatch.setattr(supervisor, "check_schema", refuse)
    with worker._poke, worker._poked:
        assert worker.run() == EXIT_CANNOT_START
    [record] = caplog.records
    assert record.getMessage() == (
        "this database role may not do what a worker does (docs/roles.md): "
        "permission denied for table schema_version"
    )
    assert record.exc_info is None


@pytest.mark.parametrize("is_signalled", [True, False], ids=["signalled", "forkserver alone"])
def test_signal_to_the_whole_group_while_children_start_is_a_stop(
    monkeypatch: pytest.MonkeyPatch, is_signalled: bool
) -> None:
    """The forkserver is of the group too, and the start of a child then finds it gone."""
    worker = Supervisor(make_options(queues="default", known_queues=[]))

    def start() -> None:
        if is_signalled:
            os.kill(os.getpid(), signal.SIGTERM)
        raise EOFError("unexpected EOF")

    monkeypatch.setattr(worker.children, "start", start)
    monkeypatch.setattr(worker, "_services", [])
    for step in ("_prepare", "_say_goodbye"):
        monkeypatch.setattr(worker, step, lambda: None)
    if is_signalled:
        assert worker.run() == EXIT_OK
    else:
        # A signal is waited for in vain, and here not at all.
        monkeypatch.setattr("multiprocessing.connection.wait", lambda *_, **__: [])
        with pytest.raises(AwaError, match=r"gave no worker process \(EOFError\(.*\): look at"):
            worker.run()


@pytest.mark.parametrize(("is_signalled", "code"), [(False, EXIT_CANNOT_START), (True, EXIT_OK)])
def test_worker_none_of_whose_processes_ever_began_has_not_ended_as_asked(
    monkeypatch: pytest.MonkeyPatch, is_signalled: bool, code: int
) -> None:
    """A drain from cron that never ran anything ended with 0, each time."""
    worker = Supervisor(make_options(queues="default", known_queues=[], max_time=timedelta(seconds=0.001)))
    monkeypatch.setattr(Children, "none_began", True)
    monkeypatch.setattr(worker.children, "start", lambda: None)
    monkeypatch.setattr(worker, "_services", [])
    for step in ("_prepare", "_say_goodbye"):
        monkeypatch.setattr(worker, step, lambda: None)
    worker._signals = int(is_signalled)
    assert worker.run() == code


def test_second_signal_counts_from_the_word_that_it_stops(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who reads in the log that it stops, and signals again at once, has signalled twice."""
    worker = Supervisor(make_options(queues="default", known_queues=[]))
    killed: list[bool] = []
    monkeypatch.setattr(worker.children, "stop", lambda: None)
    monkeypatch.setattr(worker.children, "kill", lambda: killed.append(True))
    monkeypatch.setattr(worker.children, "living", lambda: [] if killed else [defaultdict(int)])

    def signal_again(record: logging.LogRecord) -> bool:
        if "stopping: signalled" in record.getMessage():
            worker._on_signal(signal.SIGTERM, None)
        return True

    worker._on_signal(signal.SIGTERM, None)
    worker._stop_reason = worker._reason_to_stop()
    monkeypatch.setattr(supervisor.logger, "filter", signal_again)
    with worker._poke, worker._poked, caplog.at_level(logging.INFO):
        assert worker._stop_step()
    assert killed
