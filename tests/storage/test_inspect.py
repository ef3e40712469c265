"""Inspect: the schema's version, whether a drain is over, and ending a dead process's sessions."""

from __future__ import annotations

import os

import psycopg
import pytest
from django.db import connection

from awa_django.storage.inspect import (
    SCHEMA_VERSION,
    anything_due,
    schema_version,
    terminate_sessions,
)
from tests.conftest import Connect
from tests.factories import insert_job, update_job
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db


def is_due(*queues: str, kinds: tuple[str, ...] = ("tests.job",)) -> bool:
    return anything_due(connection, queues or ["default"], kinds)


def test_schema_version_is_the_newest_migrations() -> None:
    assert schema_version(connection) == SCHEMA_VERSION


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("available", True),
        ("scheduled", False),
        ("retryable", False),
        ("running", False),
        ("completed", False),
        ("failed", False),
        ("waiting_external", False),
    ],
)
def test_only_waiting_jobs_are_due(state: str, expected: bool) -> None:
    insert_job(state)
    assert is_due() == expected


def test_deferred_job_is_due_at_its_instant() -> None:
    job_id = insert_job("retryable")
    update_job(job_id, run_at="now()")
    assert is_due()


def test_available_job_is_not_due_before_its_instant() -> None:
    job_id = insert_job()
    update_job(job_id, run_at="now() + interval '1 hour'")
    assert not is_due()


def test_other_queues_and_kinds_do_not_count() -> None:
    insert_job(queue="mail")
    assert not is_due()
    assert is_due("mail")
    assert not is_due("mail", kinds=("other",))
    assert not is_due("mail", kinds=())


@pytest.mark.parametrize(
    ("until", "expected"),
    [("NULL", False), ("now() + interval '1 hour'", False), ("now() - interval '1 second'", True)],
)
def test_paused_queue_is_not_waited_for(until: str, expected: bool) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO awa.queue_meta (queue, paused, paused_until) VALUES ('default', true, {until})"
        )
    insert_job()
    insert_job(queue="mail")
    assert is_due() == expected
    assert is_due("default", "mail")


@pytest.mark.django_db(transaction=True)
def test_sessions_of_a_name_are_ended_until_none_is_left(connect: Connect) -> None:
    doomed = connect(application_name="awa-test/1-claim")
    other, ours = connect(application_name="awa-test/1-claimer"), connect(application_name="awa-test/1-claim")
    assert terminate_sessions(ours, ["awa-test/1-claim", "awa-test/1-complete"]) == 1
    wait_until(lambda: terminate_sessions(ours, ["awa-test/1-claim"]) == 0)
    with pytest.raises(psycopg.OperationalError):
        doomed.execute("SELECT 1")
    assert other.execute("SELECT 1").fetchone() == (1,)
    assert terminate_sessions(ours, []) == 0


@pytest.mark.django_db(transaction=True)
def test_sessions_of_the_name_in_another_database_are_let_live(connect: Connect) -> None:
    name = f"awa-test-elsewhere-{os.getpid()}"
    elsewhere, ours = connect(application_name=name, dbname="postgres"), connect()
    assert terminate_sessions(ours, [name]) == 0
    assert elsewhere.execute("SELECT 1").fetchone() == (1,)
