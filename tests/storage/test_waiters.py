"""Waiters and wake: who waits is notified, at the commit; when nobody does nothing is sent."""

from __future__ import annotations

from datetime import timedelta

import pytest

from awa_django.storage.waiters import listen, stop_waiting, wait
from awa_django.storage.wake import wake
from tests.conftest import Connect

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

TTL = timedelta(seconds=60)
LONG_NAME = "q" * 200


def test_waiter_hears_its_queues_only(connect: Connect) -> None:
    listener, producer = connect(), connect()
    listen(listener)
    wait(listener, "w", ["mail", LONG_NAME], ttl=TTL)
    assert not wake(producer, ["default"])
    assert wake(producer, ["default", LONG_NAME, "mail", "mail"])
    heard = sorted(note.payload for note in listener.notifies(timeout=60, stop_after=2))
    assert heard == ["mail", LONG_NAME]
    assert list(listener.notifies(timeout=0.1)) == []


def test_wake_is_heard_at_the_commit(connect: Connect) -> None:
    listener, producer = connect(), connect(autocommit=False)
    listen(listener)
    wait(listener, "w", ["mail"], ttl=TTL)
    assert wake(producer, ["mail"])
    assert list(listener.notifies(timeout=0.1)) == []
    producer.commit()
    assert [note.payload for note in listener.notifies(timeout=60, stop_after=1)] == ["mail"]


def test_nobody_is_woken_who_stopped_waiting_or_whose_wait_is_over(connect: Connect) -> None:
    database = connect()
    wait(database, "w", ["mail"], ttl=TTL)
    stop_waiting(database, "w")
    wait(database, "over", ["mail"], ttl=-TTL)
    assert not wake(database, ["mail"])
    assert not wake(database, [])
    wait(database, "over", ["mail"], ttl=TTL)
    assert wake(database, ["mail"])


def test_rows_of_the_dead_go_with_the_next_who_stops_waiting(connect: Connect) -> None:
    database = connect()
    wait(database, "dead", ["mail"], ttl=-2 * TTL)
    wait(database, "w", ["mail"], ttl=TTL)
    wait(database, "other", ["mail"], ttl=TTL)
    stop_waiting(database, "w")
    assert database.execute("SELECT worker FROM awa.waiters").fetchall() == [("other",)]
