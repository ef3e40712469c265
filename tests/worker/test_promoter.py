"""Promoter: due jobs become available at their instant; one that cannot is put aside by name."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from awa_django.doctor import diagnose
from awa_django.models import HotJob
from awa_django.storage import promote
from awa_django.storage.waiters import listen, wait
from awa_django.worker import cursor
from awa_django.worker import promoter as module
from awa_django.worker.cursor import DueCursor
from awa_django.worker.database import Session
from awa_django.worker.promoter import Promoter
from tests.conftest import Connect
from tests.factories import insert_job, reload_job, update_job
from tests.waiting import wait_until
from tests.worker.conftest import AtWill

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]

KEY = bytes(range(16))


def due(state: str = "scheduled", **columns: Any) -> int:
    job_id = insert_job(state, **columns)
    update_job(job_id, run_at="now() - interval '1 second'")
    return job_id


@pytest.fixture
def promoter(session: Session, leader: AtWill) -> Promoter:
    return Promoter(session, leader, interval=timedelta(milliseconds=250), worker="w")


def test_due_jobs_are_promoted_and_those_who_wait_are_woken(
    session: Session, leader: AtWill, connect: Connect
) -> None:
    listener = connect()
    listen(listener)
    wait(listener, "w", ["mail"], ttl=timedelta(seconds=60))
    ids = [due(queue=queue) for queue in ("mail", "default", "mail")]
    later = insert_job("scheduled")
    told: list[bool] = []
    promoter = Promoter(
        session,
        leader,
        interval=timedelta(milliseconds=250),
        worker="w",
        on_promoted=lambda: told.append(True),
    )
    assert promoter.tick() == module.SHORTEST_WAIT  # more may have come due meanwhile
    assert [reload_job(job_id).state for job_id in ids] == ["available"] * 3
    assert reload_job(later).state == "scheduled"
    assert told == [True]
    assert [note.payload for note in listener.notifies(timeout=60, stop_after=1)] == ["mail"]


def test_wait_is_until_the_next_is_due_and_no_longer_than_the_interval(promoter: Promoter) -> None:
    assert promoter.tick() == 0.25
    job_id = insert_job("scheduled")
    assert promoter.tick() == 0.25
    update_job(job_id, run_at="clock_timestamp() + interval '100 milliseconds'")
    waiting = promoter.tick()
    assert waiting is not None
    assert 0 < waiting <= 0.1


def test_looks_half_as_often_when_nothing_was_due_for_long_and_promotion_wakes(
    session: Session, leader: AtWill
) -> None:
    hears = True
    promoter = Promoter(
        session, leader, interval=timedelta(milliseconds=250), worker="w", may_rest=lambda: hears
    )
    job_id = insert_job("scheduled")
    assert [promoter.tick() for _ in range(module.QUIET_LOOKS)] == [0.25] * module.QUIET_LOOKS
    assert promoter.tick() == 0.5
    hears = False
    assert promoter.tick() == 0.25
    hears = True
    assert promoter.tick() == 0.5
    update_job(job_id, run_at="clock_timestamp()")
    promoter.tick()
    assert promoter.tick() == 0.25


def test_looks_begin_where_the_last_one_ended_while_a_snapshot_keeps_dead_entries(
    promoter: Promoter, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"now": 1000.0}
    pages: list[int] = []
    next_due = promote.next_due

    def slow_next_due(*args: Any, since: datetime | None = None) -> Any:
        clock["now"] += 1.0 if since is None else 0.0
        found = next_due(*args, since=since)
        pages.append(found.page_count)
        return found

    monkeypatch.setattr(promote, "next_due", slow_next_due)
    monkeypatch.setattr(promoter, "_cursor", DueCursor(promoter.interval, clock=lambda: clock["now"]))
    reader, writer = connect(autocommit=False), connect()
    reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT FROM awa.scheduled_jobs")
    writer.execute(
        "INSERT INTO awa.scheduled_jobs (kind, run_at) "
        "SELECT 'k', now() - interval '1 h' + interval '1 ms' * n FROM generate_series(1, 40000) AS n"
    )
    writer.execute("ANALYZE awa.scheduled_jobs")  # what an earlier test left may lead to another index
    soonest = insert_job("scheduled")
    promoter.tick()
    # Once the walk is long, each batch begins where the one before it ended.
    assert cursor.SHORT_WALK < max(pages) < cursor.SHORT_WALK * 1.3
    assert sorted(pages)[-2] <= cursor.SHORT_WALK
    assert pages[-1] < 20
    assert reload_job(soonest).state == "scheduled"

    late, soon = due(), insert_job("scheduled")
    update_job(late, run_at="now() - interval '2 h'")
    update_job(soon, run_at="clock_timestamp() + interval '1 ms'")
    wait_until(lambda: (promoter.tick(), reload_job(soon).state)[1] == "available")
    assert reload_job(late).state == "scheduled"
    clock["now"] += 0.2
    assert promoter.tick() == pytest.approx(promoter.interval.total_seconds() - 0.2)
    clock["now"] += promoter.interval.total_seconds() - 0.2
    promoter.tick()
    assert reload_job(late).state == "available"


def test_all_that_is_due_is_promoted_in_batches_the_first_of_them_small(
    promoter: Promoter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    monkeypatch.setattr(module, "FIRST_BATCH", 1)
    promoted: list[int] = []
    monkeypatch.setattr(
        promoter, "_on_promoted", lambda: promoted.append(HotJob.objects.filter(state="available").count())
    )
    ids = [due() for _ in range(6)]
    promoter.tick()
    assert all(reload_job(job_id).state == "available" for job_id in ids)
    assert promoted == [1, 3, 5, 6]


def test_nothing_is_promoted_without_the_lease(promoter: Promoter, leader: AtWill) -> None:
    job_id = due()
    leader.leads = False
    promoter.tick()
    assert reload_job(job_id).state == "scheduled"


def test_draining_worker_promotes_without_the_lease(session: Session, leader: AtWill) -> None:
    job_id = due()
    leader.leads = False
    Promoter(session, leader, interval=timedelta(seconds=1), worker="w", always=True).tick()
    assert reload_job(job_id).state == "available"


def test_rows_that_are_locked_are_looked_at_again(promoter: Promoter, connect: Connect) -> None:
    job_id = due()
    locker = connect(autocommit=False)
    locker.execute("SELECT FROM awa.scheduled_jobs FOR UPDATE")
    assert promoter.tick() == module.LOCKED_WAIT
    locker.rollback()
    promoter.tick()
    assert reload_job(job_id).state == "available"


@pytest.mark.parametrize("mask", ["01100000", "01111110"])
@pytest.mark.fault("U01", injected="a deferred job falls due while a twin holds its key, among 50 others")
@pytest.mark.fault("F60", injected="a deferred job falls due while a twin holds its key, among 50 others")
def test_job_whose_key_was_taken_ends_by_name_and_the_others_go_on(promoter: Promoter, mask: str) -> None:
    """U01: the mask leaves out ``scheduled``, so a twin has the key when the job falls due."""
    loser = due(unique_key=KEY, unique_states=mask, attempt=1, run_lease=3)
    holder = insert_job(unique_key=KEY, unique_states="11101001")
    others = [due() for _ in range(50)]
    promoter.tick()
    assert all(reload_job(job_id).state == "available" for job_id in others)
    row = reload_job(loser)
    assert row.state == "cancelled"
    [entry] = row.errors
    assert entry["outcome"] == "superseded"
    assert promoter.superseded_count == 1
    assert entry["worker"] == "w"
    assert entry["attempt"] == 1
    assert "another job holds its unique key" in entry["error"]
    assert reload_job(holder).state == "available"


def test_history_of_a_superseded_retry_has_one_entry_a_run(promoter: Promoter) -> None:
    entry = {"error": "boom", "outcome": "retried", "attempt": 1, "run_lease": 3, "worker": "w/1"}
    loser = due(
        unique_key=KEY, unique_states="01000000", attempt=1, run_lease=3, state="retryable", errors=[entry]
    )
    insert_job(unique_key=KEY, unique_states="11101001")
    promoter.tick()
    assert [each["outcome"] for each in reload_job(loser).errors] == ["retried", "superseded"]
    assert [finding for finding in diagnose() if not finding.is_warning] == []


@pytest.mark.fault("F53", injected="a row that the hot table refuses, in a promotion")
def test_row_that_is_refused_for_another_reason_is_not_called_superseded(promoter: Promoter) -> None:
    refused, mate = due(kind="refused"), due()
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE awa.jobs_hot ADD CONSTRAINT odd CHECK (kind <> 'refused' OR state <> 'available')"
        )
    try:
        promoter.tick()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE awa.jobs_hot DROP CONSTRAINT odd")
    assert reload_job(mate).state == "available"
    row = reload_job(refused)
    assert (row.state, row.errors[0]["outcome"]) == ("cancelled", "unwritable")
    assert promoter.superseded_count == 0
    assert "odd" in row.errors[0]["error"]
