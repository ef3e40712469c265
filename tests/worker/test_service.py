"""Service: the loop outlives what its tick meets, is woken, and stops; a duty works only under its lease."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta

import psycopg
import pytest

from awa_django.worker import service as module
from awa_django.worker.database import Session
from awa_django.worker.duty import Duty
from awa_django.worker.leader import Leader
from awa_django.worker.service import Service
from tests.waiting import wait_until
from tests.worker.conftest import AtWill


class Counting(Service):
    """Ticks, and raises what it is told to."""

    name = "counting"
    interval = timedelta(seconds=60)

    def __init__(self, answer: float | None = None) -> None:
        super().__init__()
        self.ticks = 0
        self.answer = answer
        self.errors: list[Exception] = []
        self.closed_on: str | None = None

    def tick(self) -> float | None:
        self.ticks += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.answer

    def close(self) -> None:
        self.closed_on = threading.current_thread().name


def test_wake_ticks_at_once_and_stop_closes_on_the_loops_own_thread() -> None:
    service = Counting()
    service.start()
    wait_until(lambda: service.ticks == 1)
    time.sleep(0.05)
    service.wake()
    wait_until(lambda: service.ticks == 2)
    service.stop(timeout=60)
    assert service.ticks == 2
    assert (service.is_stopping, service.closed_on) == (True, "awa-counting")


def test_next_tick_is_when_the_last_one_said() -> None:
    service = Counting(answer=0.01)
    service.start()
    wait_until(lambda: service.ticks >= 5)
    service.stop(timeout=60)


def test_service_that_never_started_stops() -> None:
    Counting().stop()


def test_loop_outlives_errors_and_waits_longer_after_each(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Counting()
    service.errors = [ValueError(str(number)) for number in range(20)]
    waits = [service._tick_safely() for _ in range(20)]
    shortest, longest = module.RETRY_SECONDS
    for number, wait in enumerate(waits):
        expected = min(shortest * 2.0**number, longest)
        assert expected / 2 <= wait <= expected
    assert service._tick_safely() == 60.0
    service.errors = [ValueError()]
    assert service._tick_safely() <= 0.5


def test_failed_tick_does_not_count_as_a_good_one() -> None:
    """Health is made of the last good tick, so it must not be the last one."""
    service = Counting()
    service._tick_safely()
    good = service.last_good_tick
    service.errors = [ValueError()]
    service._tick_safely()
    assert good is not None
    assert service.last_good_tick == good


def test_failure_that_goes_on_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    service = Counting()
    service.errors = [psycopg.OperationalError("gone"), psycopg.OperationalError("gone")]
    with caplog.at_level(logging.INFO, logger="awa_django"):
        for _ in range(3):
            service._tick_safely()
        service.errors = [ValueError("a bug")]
        service._tick_safely()
    levels = [(record.levelname, record.exc_info is not None) for record in caplog.records]
    # A database that is away needs no traceback; a bug of ours does.
    assert levels == [("WARNING", False), ("INFO", False), ("ERROR", True)]


class Performing(Duty):
    name = "performing"
    duty = "prune"
    interval = timedelta(seconds=15)
    performed = 0

    def perform(self) -> float | None:
        self.performed += 1
        return None


def test_duty_works_only_under_its_lease_and_looks_for_it_each_second() -> None:
    leader = AtWill(None)
    duty = Performing(Session("awa-test-duty"), leader)
    assert duty.tick() is None
    leader.leads = False
    assert duty.tick() == 1.0
    leader.leads = True
    duty.stop()
    assert duty.tick() == 1.0
    assert duty.performed == 1


def test_duty_of_a_leader_that_never_asked_does_not_work() -> None:
    duty = Performing(Session("awa-test-duty"), Leader(Session("awa-test-leader"), "a"))
    duty.tick()
    assert duty.performed == 0


def test_jitter_only_shortens_a_wait() -> None:
    assert 0 < module.JITTER < 1
