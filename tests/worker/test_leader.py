"""Leader: duties are held as long as the lease surely is, renewed, taken over and resigned."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from awa_django.worker import leader as module
from awa_django.worker.leader import DUTIES, Leader
from tests.conftest import Connect
from tests.worker.conftest import Sessions

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]


def execute(statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


def test_first_to_ask_holds_every_duty(make_session: Sessions) -> None:
    first, second = Leader(make_session(), "a"), Leader(make_session(), "b")
    assert not first.holds("promote")
    first.tick()
    second.tick()
    assert first.duties() == list(DUTIES)
    assert second.duties() == []


def test_each_duty_of_the_schema_is_led(make_session: Sessions) -> None:
    leader = Leader(make_session(), "a")
    leader.tick()
    assert sorted(leader.duties()) == sorted(duty for (duty,) in execute("SELECT duty FROM awa.leaders"))


def test_lease_is_held_no_longer_than_the_row_says(
    make_session: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"now": 1000.0}
    monkeypatch.setattr("awa_django.worker.leader.time.monotonic", lambda: clock["now"])
    leader = Leader(make_session(), "a")
    began_at = time.perf_counter()
    leader.tick()
    [(left,)] = execute(
        "SELECT extract(epoch FROM expires_at - now())::float8 FROM awa.leaders WHERE duty = 'cron'"
    )
    lease = module.LEASE.total_seconds()
    # What the row said when it was asked; this machine may have stood still since.
    assert left <= lease <= left + (time.perf_counter() - began_at) + 0.01
    clock["now"] += lease - module.MARGIN - 0.1
    assert leader.holds("cron")
    clock["now"] += 0.2
    assert not leader.holds("cron")


@pytest.mark.fault("F39", injected="a leader that slept while another took its duties")
def test_lost_lease_is_not_prolonged(make_session: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder that slept finds another one in the row: what it held ends when it would have."""
    clock = {"now": 1000.0}
    monkeypatch.setattr("awa_django.worker.leader.time.monotonic", lambda: clock["now"])
    sleeper, other = Leader(make_session(), "a"), Leader(make_session(), "b")
    sleeper.tick()
    execute("UPDATE awa.leaders SET expires_at = now() - interval '1 ms'")
    other.tick()
    clock["now"] += module.LEASE.total_seconds()
    sleeper.tick()
    assert sleeper.duties() == []


def test_row_that_another_session_locks_costs_no_duty(make_session: Sessions, connect: Connect) -> None:
    leader = Leader(make_session(), "a")
    leader.tick()
    locker = connect(autocommit=False)
    locker.execute("SELECT FROM awa.leaders WHERE duty = 'cron' FOR UPDATE")
    leader.tick()
    assert leader.holds("cron")  # for what is left of the lease it has


@pytest.mark.fault("U48", injected="a worker that holds one duty only")
def test_duties_are_led_apart(make_session: Sessions) -> None:
    Leader(make_session(), "a", duties=("cron",)).tick()
    other = Leader(make_session(), "b")
    other.tick()
    assert other.duties() == [duty for duty in DUTIES if duty != "cron"]


def test_resigned_duties_are_free_at_once(make_session: Sessions) -> None:
    first, second = Leader(make_session(), "a"), Leader(make_session(), "b")
    first.tick()
    first.resign()
    assert first.duties() == []
    second.tick()
    assert second.duties() == list(DUTIES)


def test_lease_outlives_two_missed_renewals() -> None:
    assert 2 * module.RENEW + timedelta(seconds=module.MARGIN) < module.LEASE
