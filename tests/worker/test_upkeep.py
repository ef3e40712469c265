"""Stats and Vacuumer: deltas become rollups, the catalogue learns kinds, and dead rows go under load."""

from __future__ import annotations

import pytest
from django.db import connection

from awa_django.worker import stats
from awa_django.worker import vacuumer as module
from awa_django.worker.database import Session
from awa_django.worker.stats import Stats
from awa_django.worker.vacuumer import Vacuumer
from tests.conftest import Connect
from tests.factories import insert_job
from tests.worker.conftest import AtWill

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_queue")]


def dead_rows() -> tuple[int, int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            "SELECT pg_stat_get_dead_tuples('awa.jobs_hot'::regclass), "
            "pg_stat_get_dead_tuples('awa.scheduled_jobs'::regclass)"
        )
        hot, deferred = cursor.fetchone()
        return hot, deferred


def test_kinds_that_raw_sql_put_in_are_catalogued(session: Session, leader: AtWill) -> None:
    insert_job(kind="tests.hot")
    insert_job("scheduled", kind="tests.deferred")
    Stats(session, leader).tick()
    with connection.cursor() as cursor:
        cursor.execute("SELECT kind FROM awa.job_kinds ORDER BY kind")
        assert cursor.fetchall() == [("tests.deferred",), ("tests.hot",)]


def test_deltas_are_folded_in_batches_and_old_rollups_go(
    session: Session, leader: AtWill, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.queue_stats (minute, queue, kind) VALUES (now() - interval '8 days', 'q', 'k')"
        )
        cursor.execute(
            "INSERT INTO awa.queue_stats_deltas (minute, queue, kind, completed_count) "
            "SELECT '2999-01-01', 'q', 'k', 2 FROM generate_series(1, 7)"
        )
        monkeypatch.setattr(stats, "BATCH", 3)
        Stats(session, leader).tick()
        cursor.execute("SELECT completed_count FROM awa.queue_stats")
        assert cursor.fetchall() == [(14,)]


def test_totals_that_nothing_adds_to_go_where_there_are_too_many(
    session: Session, leader: AtWill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "MOST_TOTALS", 2)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO awa.queue_totals (queue, kind, completed_count) "
            "SELECT 'q', 'k' || n, 1 FROM generate_series(1, 4) AS n"
        )
        cursor.execute(
            "INSERT INTO awa.queue_stats_deltas (minute, queue, kind, completed_count) "
            "VALUES (date_trunc('minute', now()), 'q', 'k3', 1)"
        )
        duty = Stats(session, leader)
        duty.tick()
        cursor.execute("SELECT count(*), bool_or(kind = 'k3') FROM awa.queue_totals")
        assert cursor.fetchone() == (2, True)
        cursor.execute("INSERT INTO awa.queue_totals (queue, kind, completed_count) VALUES ('q', 'new', 1)")
        duty.tick()  # not again within the hour
        cursor.execute("SELECT count(*) FROM awa.queue_totals")
        assert cursor.fetchone() == (3,)


@pytest.mark.parametrize(("worth_it", "left"), [(2, (0, 0)), (3, (2, 0)), (4, (2, 3))])
def test_table_is_vacuumed_when_it_is_worth_it(
    session: Session, leader: AtWill, monkeypatch: pytest.MonkeyPatch, worth_it: int, left: tuple[int, int]
) -> None:
    for state, count in (("available", 2), ("scheduled", 3)):
        for _ in range(count):
            insert_job(state)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM awa.jobs_hot")
        cursor.execute("DELETE FROM awa.scheduled_jobs")
    assert dead_rows() == (2, 3)
    monkeypatch.setattr(module, "WORTH_IT", worth_it)
    Vacuumer(session, leader).tick()
    assert dead_rows() == left


@pytest.mark.parametrize(("longest", "left"), [(300.0, (3, 0)), (0.0, (0, 0))], ids=["soon", "in the end"])
def test_vacuum_in_vain_is_not_tried_again_soon_but_in_the_end(
    session: Session,
    leader: AtWill,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    longest: float,
    left: tuple[int, int],
) -> None:
    """While somebody's snapshot keeps the dead rows."""
    monkeypatch.setattr(module, "WORTH_IT", 2)
    monkeypatch.setattr(module, "LONGEST_REST", longest)
    vacuumer = Vacuumer(session, leader)
    reader = connect(autocommit=False)
    reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT count(*) FROM awa.jobs_hot")
    for _ in range(3):
        insert_job()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM awa.jobs_hot")
    assert dead_rows() == (3, 0)
    monkeypatch.setattr(module, "REST", 1e9)
    vacuumer.tick()
    reader.rollback()
    vacuumer.tick()
    assert dead_rows() == left
    Vacuumer(session, leader).tick()
    assert dead_rows() == (0, 0)
    insert_job("scheduled")
    insert_job("scheduled")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM awa.scheduled_jobs")
    assert dead_rows() == (0, 2)
    vacuumer.tick()  # the other table has no rest
    assert dead_rows() == (0, 0)
