"""Canceller: handlers whose run is over are told within a second, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from awa_django import operations
from awa_django.storage.rows import Attempt
from awa_django.worker.canceller import SHORTEST_RUN, Canceller
from awa_django.worker.child import HOUSEKEEPING
from awa_django.worker.database import Session
from awa_django.worker.slots import Phase
from tests.conftest import Connect
from tests.factories import insert_job
from tests.worker.children import FakeChild

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]


def running(lease: int = 1) -> Attempt:
    return Attempt(insert_job("running", run_lease=lease, worker="w/1"), lease)


@pytest.fixture
def child() -> FakeChild:
    return FakeChild()


@pytest.fixture
def canceller(session: Session, child: FakeChild) -> Canceller:
    return Canceller(session, lambda: [child.as_child()])


def test_cancelled_and_superseded_runs_are_told_and_the_others_are_not(
    canceller: Canceller, child: FakeChild
) -> None:
    alive, cancelled, held, deleted = running(), running(), running(), Attempt(2**60, 1)
    rescued = Attempt(running(lease=2).job_id, 1)  # another run of the job goes on elsewhere
    runs = (alive, cancelled, rescued, deleted)
    slots = {run: child.hold(run, age=1) for run in runs}
    slots[held] = child.hold(held, age=1, phase=Phase.HELD)
    operations.cancel([cancelled.job_id, held.job_id])
    canceller.tick()
    told = {run for run, slot in slots.items() if child.is_told_to_stop(slot, run)}
    assert told == {cancelled, held, rescued, deleted}


def test_locked_row_is_waited_for_by_nobody(canceller: Canceller, child: FakeChild, connect: Connect) -> None:
    locked, cancelled = running(), running()
    slots = [child.hold(run, age=1) for run in (locked, cancelled)]
    operations.cancel(cancelled.job_id)
    locker = connect(autocommit=False)
    locker.execute("SELECT FROM awa.jobs_hot WHERE id = %s FOR UPDATE", [locked.job_id])
    canceller.tick()
    told = [child.is_told_to_stop(*each) for each in zip(slots, (locked, cancelled), strict=True)]
    assert told == [False, True]


def test_short_and_ended_runs_cost_no_statement(child: FakeChild) -> None:
    class Closed:
        def use(self) -> Any:
            raise AssertionError("nothing is to be asked")

    child.hold(running(), age=-60)  # short, however long this test takes
    child.hold(running(), phase=Phase.ENDED)
    Canceller(Closed(), lambda: [child.as_child()]).tick()  # type: ignore[arg-type]


def test_all_waits_together_are_less_than_a_second() -> None:
    assert SHORTEST_RUN + Canceller.interval.total_seconds() + HOUSEKEEPING <= 1.0
