"""Claimer: asks for what there is room for, and one row that refuses its claim stops nobody."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import override_settings

from awa_django import registry
from awa_django.jobs import job
from awa_django.storage.rows import Deferral, Outcome, Release
from awa_django.worker import claimer as module
from awa_django.worker.claimer import Claimer
from awa_django.worker.database import Session
from awa_django.worker.executor import Executor
from awa_django.worker.holdings import LONGEST_HOLD, HeldJob, Holdings, slot_count
from awa_django.worker.options import WorkerOptions
from awa_django.worker.slots import Counter, SlotTable
from tests.factories import insert_job, reload_job
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

KEY = bytes(range(16))


class Desk:
    """A claimer with an executor that has no threads: what it claims is held."""

    def __init__(
        self,
        session: Session,
        queues: Mapping[str, int] | None = None,
        concurrency: int = 4,
        budget: int | None = None,
    ) -> None:
        queues = queues or {"default": concurrency}
        table = SlotTable.create(slot_count(concurrency))
        self.reader = table.reader()
        writer = table.writer()
        options = WorkerOptions(queues=queues, concurrency=concurrency)
        self.holdings = Holdings(queues, concurrency, writer)
        self.executor = Executor(options=options, worker="w/1", slots=writer, sink=self)
        self.outcomes: dict[int, Outcome | None] = {}
        self.claimer = Claimer(
            session=session,
            scout_session=Session(f"awa-test-{os.getpid()}-scout"),
            worker="w/1",
            options=options,
            slots=writer,
            holdings=self.holdings,
            executor=self.executor,
            budget=budget,
        )
        # As if handlers were slow: nothing is claimed ahead.
        self.executor._mean_seconds = 1000.0

    def put(self, held: HeldJob, outcome: Outcome | None) -> None:
        self.outcomes[held.job.id] = outcome

    def report(self, held: HeldJob, progress: object) -> None: ...

    def held_ids(self) -> list[int]:
        return sorted(held.job.id for held in self.holdings.jobs())


@pytest.fixture(autouse=True)
def kinds() -> Iterator[None]:
    @job(kind="tests.job")
    def known() -> None: ...

    @job(kind="tests.timed", aliases=["tests.older"], timeout=60)
    def timed() -> None: ...

    yield
    registry.unregister(known.handler)
    registry.unregister(timed.handler)


def test_claims_no_more_than_there_is_room_for(session: Session) -> None:
    ids = [insert_job() for _ in range(6)]
    desk = Desk(session)
    assert desk.claimer.tick() == 0.0
    assert desk.held_ids() == ids[:4]
    assert (desk.reader[Counter.CLAIMED], desk.reader[Counter.HELD]) == (4, 4)
    assert all(reload_job(job_id).worker == "w/1" for job_id in ids[:4])
    desk.holdings.give_back(desk.holdings.jobs()[:1])
    desk.claimer.tick()
    assert desk.held_ids() == ids[1:5]


def test_full_hands_wait_for_room(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    insert_job()
    desk = Desk(session, concurrency=1)
    desk.claimer.tick()
    waited: list[float] = []
    monkeypatch.setattr(desk.holdings, "wait_for_room", waited.append)
    assert desk.claimer.tick() == 0.0
    assert waited == [1.0]


def test_fast_handlers_are_claimed_ahead_for(session: Session) -> None:
    ids = [insert_job() for _ in range(40)]
    desk = Desk(session)
    desk.executor._mean_seconds = 0.02
    desk.claimer.tick()
    assert desk.held_ids() == ids[:24]


def test_limit_of_a_queue_bounds_its_claim(session: Session) -> None:
    mail = [insert_job(queue="mail") for _ in range(4)]
    default = [insert_job() for _ in range(4)]
    desk = Desk(session, {"mail": 1, "default": 4}, concurrency=5)
    desk.claimer.tick()
    assert desk.held_ids() == [mail[0], *default]


def test_empty_queue_is_looked_at_less_and_less(session: Session) -> None:
    desk = Desk(session)
    waits = [desk.claimer.tick() for _ in range(9)]
    assert 0.8 * module.FIRST_POLL <= waits[0] <= module.FIRST_POLL
    assert 0.8 <= waits[-1] <= 1.0
    assert desk.reader[Counter.IDLE_SINCE_NS] > 0
    insert_job()
    assert desk.claimer.tick() == module.FIRST_POLL
    assert desk.reader[Counter.IDLE_SINCE_NS] == 0


def test_deadline_is_timeout_and_hold_for_a_kind_and_its_alias(session: Session) -> None:
    ids = [insert_job(kind=kind) for kind in ("tests.timed", "tests.older", "tests.job")]
    Desk(session).claimer.tick()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, extract(epoch FROM deadline_at - attempted_at)::float8 FROM awa.jobs_hot ORDER BY id"
        )
        deadline = 60.0 + LONGEST_HOLD + module.DEADLINE_SLACK
        assert cursor.fetchall() == [(ids[0], deadline), (ids[1], deadline), (ids[2], None)]


@pytest.mark.parametrize("mask", ["00100000", "10111110"])
def test_row_that_refuses_its_claim_is_put_aside_and_the_others_run(session: Session, mask: str) -> None:
    """A mask with ``running`` and not ``available``: its twin runs already."""
    insert_job("running", unique_key=KEY, unique_states="00100000", queue="elsewhere")
    mates = [insert_job(), insert_job()]
    bad = insert_job(unique_key=KEY, unique_states=mask, priority=1)
    desk = Desk(session)
    desk.claimer.tick()
    assert desk.held_ids() == mates
    row = reload_job(bad)
    assert (row.state, row.attempt, row.run_lease) == ("cancelled", 0, 0)
    assert row.errors[0]["outcome"] == "superseded"


def test_row_whose_lease_cannot_grow_is_put_aside_by_that_name(session: Session) -> None:
    bad, mate = insert_job(run_lease=2**63 - 1), insert_job()
    desk = Desk(session)
    desk.claimer.tick()
    assert desk.held_ids() == [mate]
    [entry] = reload_job(bad).errors
    assert (entry["outcome"], "out of range" in entry["error"]) == ("unwritable", True)


def test_paused_queue_is_not_claimed_from_one_by_one_either(session: Session) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO awa.queue_meta (queue, paused) VALUES ('still', true)")
    insert_job(run_lease=2**63 - 1)
    paused, mate = insert_job(queue="still"), insert_job()
    desk = Desk(session, {"default": 4, "still": 4})
    desk.claimer.tick()
    assert desk.held_ids() == [mate]
    assert reload_job(paused).state == "available"


def test_unknown_kinds_are_put_back_and_left_out_when_they_are_most(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = [insert_job(kind="tests.nobody") for _ in range(6)]
    known = insert_job()
    desk = Desk(session)
    with caplog.at_level(logging.WARNING, logger="awa_django"):
        desk.claimer.tick()
        assert all(isinstance(desk.outcomes[job_id], Deferral) for job_id in unknown[:4])
        desk.holdings.give_back(desk.holdings.jobs())
        desk.claimer.tick()
    assert desk.held_ids() == [known]
    assert [reload_job(job_id).state for job_id in unknown[4:]] == ["available"] * 2
    assert len(caplog.records) == 1


def test_single_unknown_job_leaves_its_kind_in(session: Session) -> None:
    insert_job(kind="tests.nobody")
    for _ in range(3):
        insert_job()
    desk = Desk(session)
    desk.claimer.tick()
    assert desk.claimer._excluded == set()


def test_budget_bounds_the_claims_of_a_life(session: Session) -> None:
    ids = [insert_job() for _ in range(5)]
    desk = Desk(session, budget=3)
    desk.claimer.tick()
    assert desk.held_ids() == ids[:3]
    assert desk.reader[Counter.BUDGET_SPENT] == 1
    desk.claimer.tick()
    assert desk.reader[Counter.CLAIMED] == 3
    desk.claimer.refund(1)
    assert desk.reader[Counter.BUDGET_SPENT] == 0
    desk.claimer.tick()
    assert desk.held_ids() == ids[:4]


def test_claim_whose_answer_took_too_long_is_given_back(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [insert_job() for _ in range(8)]
    desk = Desk(session, concurrency=4)
    real = desk.claimer._cursor.claim
    asked = []

    def slow(*args: Any) -> Any:
        asked.append(args[1].total)
        jobs = real(*args)
        late = time.monotonic() + LONGEST_HOLD + 1
        monkeypatch.setattr("awa_django.worker.claimer.time.monotonic", lambda: late)
        return jobs

    monkeypatch.setattr(desk.claimer._cursor, "claim", slow)
    desk.claimer.tick()
    assert list(desk.outcomes) == ids[:4]
    assert all(isinstance(outcome, Release) for outcome in desk.outcomes.values())

    # It asks for half of that, and for more again once an answer is in time.
    desk.holdings.give_back(desk.holdings.jobs())
    desk.claimer.tick()
    monkeypatch.undo()
    for _ in range(3):
        desk.holdings.give_back(desk.holdings.jobs())
        insert_job()
        desk.claimer.tick()
    assert asked == [4, 2]
    assert desk.claimer._largest == 8


def test_loop_outlives_its_errors_and_claims_nothing_after_its_stop(session: Session) -> None:
    desk = Desk(session)
    desk.claimer.start()
    wait_until(lambda: desk.reader[Counter.IDLE_SINCE_NS])
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
            [session.application_name],
        )
    first = insert_job()
    desk.claimer.wake()
    wait_until(lambda: desk.held_ids() == [first])
    desk.claimer.stop()
    second = insert_job()
    desk.claimer.wake()
    time.sleep(0.1)
    assert reload_job(second).state == "available"


def test_timeouts_are_those_of_the_kinds(session: Session) -> None:
    with override_settings(AWA={"TIMEOUT": timedelta(seconds=9)}):
        timeouts = json.loads(Desk(session).claimer._request.timeouts)
    assert (timeouts["tests.job"], timeouts["tests.timed"], timeouts["tests.older"]) == (9.0, 60.0, 60.0)


def test_claimer_that_fails_says_that_an_answer_may_be_lost(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With jobs in it: the reconciler must look again."""
    desk = Desk(session)
    desk.claimer.tick()
    assert not desk.reader[Counter.ANSWER_LOST_NS]
    since = time.monotonic_ns()

    def fail() -> float:
        raise psycopg.OperationalError("away")

    monkeypatch.setattr(desk.claimer, "tick", fail)
    desk.claimer.start()
    wait_until(lambda: desk.reader[Counter.ANSWER_LOST_NS] > since)
    desk.claimer.stop()


def test_scout_is_sent_when_claims_leave_something_out(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(session)
    looked = threading.Event()

    def look() -> float:
        looked.set()
        return 60.0

    monkeypatch.setattr(desk.claimer._scout, "look", look)
    desk.claimer.tick()
    assert not looked.is_set()
    desk.claimer._cursor._places["default"] = {}
    desk.claimer._cursor._whole_at["default"] = float("inf")
    desk.claimer.tick()
    assert looked.wait(60)
    desk.claimer._scout.stop()
