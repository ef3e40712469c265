"""Heartbeater: beats for what is in hand, tells runs that are over, and doubts what nobody confirms."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from django.db import connection

from awa_django.storage.rows import Attempt
from awa_django.worker import heartbeater as module
from awa_django.worker.database import Session
from awa_django.worker.heartbeater import Heartbeater
from awa_django.worker.slots import Phase
from tests.factories import insert_job, update_job
from tests.worker.children import FakeChild

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]


def running(lease: int = 1) -> Attempt:
    job_id = insert_job("running", run_lease=lease)
    update_job(job_id, heartbeat_at="now() - interval '1 hour'")
    return Attempt(job_id, lease)


def is_beaten(attempt: Attempt) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT heartbeat_at > now() - interval '1 minute' FROM awa.jobs_hot WHERE id = %s",
            [attempt.job_id],
        )
        return bool(cursor.fetchone()[0])


@pytest.fixture
def child() -> FakeChild:
    return FakeChild()


@pytest.fixture
def heartbeater(session: Session, child: FakeChild) -> Heartbeater:
    return make(session, child)


def make(session: Session, *children: FakeChild) -> Heartbeater:
    return Heartbeater(
        session,
        lambda: [child.as_child() for child in children],
        heartbeat_interval=timedelta(seconds=30),
        stale_after=timedelta(seconds=90),
    )


@pytest.mark.parametrize("phase", [Phase.HELD, Phase.RUNNING, Phase.ENDED])
def test_run_in_hand_is_kept_alive_in_every_phase(
    heartbeater: Heartbeater, child: FakeChild, phase: Phase
) -> None:
    attempt = running()
    slot = child.hold(attempt, age=16, phase=phase)
    heartbeater.tick()
    assert is_beaten(attempt)
    assert not child.is_told_to_stop(slot, attempt)


def test_run_just_claimed_or_just_beaten_needs_no_beat(heartbeater: Heartbeater, child: FakeChild) -> None:
    young, old = running(), running()
    child.hold(young, age=1)
    child.hold(old, age=20)
    heartbeater.tick()
    assert not is_beaten(young)
    assert is_beaten(old)
    update_job(old.job_id, heartbeat_at="now() - interval '1 hour'")
    heartbeater.tick()
    assert not is_beaten(old)


def test_run_that_is_not_in_hand_gets_no_beat(heartbeater: Heartbeater, child: FakeChild) -> None:
    attempt = running()
    slot = child.hold(attempt)
    child.writer.clear(slot)
    heartbeater.tick()
    assert not is_beaten(attempt)


def test_frozen_child_gets_no_beats(heartbeater: Heartbeater, child: FakeChild) -> None:
    attempt = running()
    child.hold(attempt)
    child.frozen = True
    heartbeater.tick()
    assert not is_beaten(attempt)


def test_run_that_is_over_is_told_to_stop(heartbeater: Heartbeater, child: FakeChild) -> None:
    ended = Attempt(insert_job("cancelled", run_lease=1), 1)
    gone = Attempt(2**60, 1)
    alive = running()
    slots = {attempt: child.hold(attempt, age=20) for attempt in (ended, gone, alive)}
    heartbeater.tick()
    assert {attempt: child.is_told_to_stop(slot, attempt) for attempt, slot in slots.items()} == {
        ended: True,
        gone: True,
        alive: False,
    }


def test_old_run_is_told_when_the_job_runs_again_beside_it(session: Session) -> None:
    """The new run's beat was taken for the old one's, as answers came by job id."""
    new = running(lease=2)
    old = Attempt(new.job_id, 1)
    first, second = FakeChild("w/1"), FakeChild("w/2")
    old_slot, new_slot = first.hold(old, age=20), second.hold(new, age=20)
    make(session, first, second).tick()
    assert first.is_told_to_stop(old_slot, old)
    assert not second.is_told_to_stop(new_slot, new)


def test_all_are_beaten_in_batches(
    heartbeater: Heartbeater, child: FakeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 3)
    attempts = [running() for _ in range(8)]
    for attempt in attempts:
        child.hold(attempt, age=20)
    heartbeater.tick()
    assert all(is_beaten(attempt) for attempt in attempts)


def test_owner_doubts_itself_when_nobody_confirms(
    heartbeater: Heartbeater, child: FakeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I17: one interval before it is stale the run is told, though the database does not answer."""

    def lost(*_: object) -> set[Attempt]:
        raise psycopg.OperationalError("no answer")

    monkeypatch.setattr(module, "heartbeat", lost)
    sure, doubtful = running(), running()
    slots = {sure: child.hold(sure, age=31), doubtful: child.hold(doubtful, age=61)}
    with pytest.raises(psycopg.OperationalError):
        heartbeater.tick()
    assert not child.is_told_to_stop(slots[sure], sure)
    assert child.is_told_to_stop(slots[doubtful], doubtful)


def test_confirmed_beat_dispels_the_doubt(heartbeater: Heartbeater, child: FakeChild) -> None:
    attempt = running()
    slot = child.hold(attempt, age=3600)
    heartbeater.tick()
    assert not child.is_told_to_stop(slot, attempt)
