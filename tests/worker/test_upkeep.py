"""Stats and Vacuumer: the catalogue learns kinds from the tables, and dead rows go under load."""

from __future__ import annotations

import pytest
from django.db import connection

from awa_django.worker import vacuumer as module
from awa_django.worker.database import Session
from awa_django.worker.stats import Stats
from awa_django.worker.vacuumer import Vacuumer
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
