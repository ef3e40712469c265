"""Reconciler: rows in the name of children agree with what these hold; the dead are buried at once."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from awa_django.storage import status
from awa_django.storage.rows import Attempt
from awa_django.worker import reconciler as module
from awa_django.worker.child import session_names
from awa_django.worker.database import Session
from awa_django.worker.options import WorkerOptions
from awa_django.worker.reconciler import ANNOUNCE_EVERY, MIN_AGE, Reconciler
from awa_django.worker.slots import Counter, Phase
from tests.conftest import Connect
from tests.factories import insert_job, reload_job, update_job
from tests.waiting import wait_until
from tests.worker.children import FakeChild

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

OPTIONS = WorkerOptions(queues={"mail": 4, "default": 8})
# Seconds: the age of what happens just now, however long a test takes.
JUST_NOW = -60


def running(worker: str = "w/1", age: float = 10, **columns: Any) -> Attempt:
    job_id = insert_job("running", worker=worker, **columns)
    update_job(job_id, attempted_at=f"now() - interval '{age} seconds'")
    return Attempt(job_id, 1)


def state(attempt: Attempt) -> str:
    return str(reload_job(attempt.job_id).state)


@pytest.fixture
def child() -> FakeChild:
    return FakeChild()


@pytest.fixture
def living(child: FakeChild) -> list[FakeChild]:
    return [child]


@pytest.fixture
def reconciler(session: Session, living: list[FakeChild]) -> Reconciler:
    return Reconciler(
        session,
        lambda: [child.as_child() for child in living],
        worker="w",
        pid=10,
        options=OPTIONS,
    )


def test_dead_childs_started_runs_are_charged_and_the_others_given_back(
    reconciler: Reconciler, child: FakeChild, living: list[FakeChild]
) -> None:
    started, held, unknown = running(), running(), running(age=0)
    other = running(worker="w/2")
    child.hold(started)
    child.hold(held, phase=Phase.HELD)
    living.clear()
    reconciler.bury(child.as_child(), "process died (signal 9)", charged=[started])
    reconciler.tick()
    assert reconciler.is_settled
    row = reload_job(started.job_id)
    assert (row.state, row.attempt) == ("retryable", 1)
    [entry] = row.errors
    assert (entry["error"], entry["outcome"]) == ("process died (signal 9)", "rescued")
    assert (entry["worker"], entry["by"]) == ("w/1", "w")
    for attempt in (held, unknown):
        row = reload_job(attempt.job_id)
        assert (row.state, row.attempt, row.errors) == ("available", 0, [])
    assert state(other) == "running"


def test_last_attempt_of_a_dead_child_fails_the_job(
    reconciler: Reconciler, child: FakeChild, living: list[FakeChild]
) -> None:
    attempt = running(max_attempts=1)
    living.clear()
    reconciler.bury(child.as_child(), "process died (signal 11)", charged=[attempt])
    reconciler.tick()
    assert state(attempt) == "failed"


def test_sessions_of_the_dead_are_ended_before_its_rows_are_touched(
    reconciler: Reconciler, child: FakeChild, living: list[FakeChild], connect: Connect
) -> None:
    """Its claim may still be under way in the server: it would commit after the rescue."""
    attempt = running()
    living.clear()
    leftover = connect(application_name=session_names(child.application_name)[0])
    reconciler.bury(child.as_child(), "process died", charged=[attempt])
    assert reconciler.tick() == 0.05
    assert state(attempt) == "running"
    assert not reconciler.is_settled

    def is_settled() -> bool:
        reconciler.tick()
        return reconciler.is_settled

    wait_until(is_settled)
    assert state(attempt) == "retryable"
    assert leftover.info.backend_pid  # its client was told nothing


def test_row_under_a_last_heartbeat_is_settled_too(
    reconciler: Reconciler, child: FakeChild, living: list[FakeChild], connect: Connect
) -> None:
    attempt = running()
    living.clear()
    heartbeat = connect(autocommit=False)
    heartbeat.execute("UPDATE awa.jobs_hot SET heartbeat_at = now()")
    reconciler.bury(child.as_child(), "process died", charged=[attempt])
    thread = threading.Thread(target=reconciler.tick)
    thread.start()
    wait_until(
        lambda: (
            heartbeat.execute(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid))",
                [heartbeat.info.backend_pid],
            ).fetchone()
            != (0,)
        )
    )
    heartbeat.commit()
    thread.join(60)
    assert reconciler.is_settled
    assert state(attempt) == "retryable"


def test_run_that_its_living_child_does_not_know_is_given_back_at_the_second_look(
    reconciler: Reconciler, child: FakeChild
) -> None:
    lost, known = running(), running()
    child.hold(known)
    reconciler.tick()
    assert state(lost) == "running"
    reconciler.tick()
    row = reload_job(lost.job_id)
    assert (row.state, row.attempt, row.errors) == ("available", 0, [])
    assert state(known) == "running"


def test_run_that_was_claimed_just_now_is_not_suspected(reconciler: Reconciler) -> None:
    attempt = running(age=JUST_NOW)
    for _ in range(3):
        reconciler.tick()
    assert state(attempt) == "running"
    assert timedelta(0) < MIN_AGE


def test_suspect_that_is_known_at_the_second_look_is_left(reconciler: Reconciler, child: FakeChild) -> None:
    attempt = running()
    reconciler.tick()
    child.hold(attempt)
    reconciler.tick()
    reconciler.tick()
    assert state(attempt) == "running"


def claiming(child: FakeChild, *, lost: float | None = None, last: float = JUST_NOW) -> None:
    """The child's last claim came back so many seconds ago, and the last that did not was so long ago."""
    child.writer.set(Counter.ANSWER_LOST_NS, 0 if lost is None else time.monotonic_ns() - int(lost * 1e9))
    child.writer.set(Counter.CLAIMER_TICK_NS, time.monotonic_ns() - int(last * 1e9))


def test_children_that_lost_no_answer_are_seldom_looked_after(
    reconciler: Reconciler, child: FakeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REST", 0.0)
    claiming(child)
    reconciler.tick()
    lost = running()  # of a claim that the server ended long after its worker had given it up
    for _ in range(ANNOUNCE_EVERY - 1):
        reconciler.tick()
    reconciler.tick()
    assert state(lost) == "running"  # suspected
    reconciler.tick()
    assert state(lost) == "available"


@pytest.mark.parametrize(
    ("longest", "states"), [(60.0, "running"), (0.0, "available")], ids=["soon", "in the end"]
)
def test_long_look_is_not_made_again_soon_without_a_reason(
    reconciler: Reconciler, child: FakeChild, monkeypatch: pytest.MonkeyPatch, longest: float, states: str
) -> None:
    """It walks over dead entries while somebody's snapshot keeps them."""
    monkeypatch.setattr(reconciler, "_announce_every", 1)
    monkeypatch.setattr(module, "REST", 1e9)
    monkeypatch.setattr(module, "LONGEST_REST", longest)
    claiming(child)
    reconciler.tick()
    unknown = running()
    for _ in range(3):
        reconciler.tick()
    assert state(unknown) == states
    claiming(child, lost=0.0)
    for _ in range(2):
        reconciler.tick()
    assert state(unknown) == "available"


def test_worker_of_a_short_lease_says_more_often_that_it_lives(
    session: Session, child: FakeChild, settings: Any
) -> None:
    """Else it would count as silent between two announcements, and its queues as served by nobody."""
    settings.AWA = {"HEARTBEAT_INTERVAL": 2, "STALE_AFTER": 6}
    reconciler = Reconciler(session, lambda: [child.as_child()], worker="w", pid=10, options=OPTIONS)
    claiming(child)
    reconciler.tick()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE awa.runtime_instances SET last_seen_at = now() - interval '1 minute'")
    reconciler.tick()
    reconciler.tick()
    assert all(process.unseen_seconds < 30 for process in status.workers(connection, limit=9))


@pytest.mark.parametrize(("lost", "last"), [(0.5, JUST_NOW), (None, 5.0)], ids=["lost just now", "late"])
def test_children_that_may_have_lost_an_answer_are_looked_after_at_once(
    reconciler: Reconciler, child: FakeChild, lost: float | None, last: float
) -> None:
    claiming(child)
    reconciler.tick()
    unknown = running()
    claiming(child, lost=lost, last=last)
    reconciler.tick()
    reconciler.tick()
    assert state(unknown) == "available"


def instances() -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, supervisor, pid, queues, concurrency, running_count, draining "
            "FROM awa.runtime_instances ORDER BY name"
        )
        return list(cursor.fetchall())


def test_processes_are_announced_and_withdrawn(reconciler: Reconciler, child: FakeChild) -> None:
    child.writer.set(Counter.HELD, 3)
    reconciler.tick()
    queues = ["default", "mail"]
    assert instances() == [
        ("w", None, 10, queues, 0, 3, False),
        ("w/1", "w", 4711, queues, 8, 3, False),
    ]
    reconciler.withdraw()
    assert instances() == []
