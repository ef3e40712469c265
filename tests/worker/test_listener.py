"""Listener: producers are asked to tell it of jobs while a child is idle, and no longer."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connection

from awa_django.storage.wake import wake
from awa_django.worker.listener import Listener
from awa_django.worker.slots import Counter
from tests.waiting import wait_until
from tests.worker.children import FakeChild
from tests.worker.conftest import Sessions

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]


@pytest.fixture
def waiting(make_session: Sessions) -> Listener:
    """A listener with an idle child, which has told producers so."""
    child = FakeChild()
    child.writer.set(Counter.IDLE_SINCE_NS, 1)
    child.wake = lambda: None  # type: ignore[attr-defined]
    listener = Listener(
        make_session(), make_session(), lambda: [child.as_child()], worker="w", queues=["default"]
    )
    listener.start()
    wait_until(lambda: wake(connection, ["default"]))
    return listener


def test_worker_that_ends_waits_no_longer(waiting: Listener) -> None:
    waiting.stop(60)
    assert not wake(connection, ["default"])


def test_worker_ends_though_its_wait_cannot_be_taken_back(
    waiting: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise psycopg.OperationalError("the server is gone")

    monkeypatch.setattr("awa_django.storage.waiters.stop_waiting", fail)
    waiting.stop(60)
    assert not waiting._thread.is_alive()
    sessions = (waiting._listen_session, waiting._session)
    assert [session._connection for session in sessions] == [None, None]
    assert wake(connection, ["default"])  # until it runs out
