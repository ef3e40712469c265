"""What the tests of the services share: sessions that are closed, and a leader that leads at will."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from awa_django.worker.cron_scheduler import CronScheduler
from awa_django.worker.database import Session
from awa_django.worker.leader import Leader
from tests.worker.completer_desk import CompleterDesk

Sessions = Callable[[], Session]


@pytest.fixture
def make_session(database_url: str) -> Iterator[Sessions]:
    """``make_session()`` is a worker's session on the test database."""
    made: list[Session] = []

    def make() -> Session:
        made.append(Session(f"awa-test-{os.getpid()}-{len(made)}"))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def session(make_session: Sessions) -> Session:
    return make_session()


class AtWill(Leader):
    """Holds every duty while ``leads`` says so, and asks nobody."""

    def __init__(self, session: Any) -> None:
        super().__init__(session, "at-will")
        self.leads = True

    def holds(self, duty: str) -> bool:
        return self.leads


@pytest.fixture
def leader(session: Session) -> AtWill:
    return AtWill(session)


def lead_at_once(schedulers: Sequence[CronScheduler], *, ticks: int) -> None:
    """Let each lead so many times, all beginning at the same moment."""
    begin = threading.Barrier(len(schedulers))

    def lead(scheduler: CronScheduler) -> None:
        begin.wait()
        for _ in range(ticks):
            scheduler.tick()

    threads = [threading.Thread(target=lead, args=[scheduler]) for scheduler in schedulers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


@pytest.fixture
def desk(session: Session) -> Iterator[CompleterDesk]:
    desk = CompleterDesk(session)
    yield desk
    if desk.completer._thread.ident is not None:
        assert desk.completer.stop(timeout=60)
