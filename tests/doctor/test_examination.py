"""How the doctor goes through the tables: in one snapshot, or a range at a time within a bound."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from awa_django.doctor import QUESTIONS, diagnose, examination, examine
from awa_django.doctor.questions import Reads
from awa_django.storage import inspect
from tests.conftest import Connect
from tests.doctor.violations import VIOLATIONS, execute, overdue_running, wrong_home
from tests.factories import insert_job
from tests.waiting import wait_until

LONG = timedelta(minutes=5)


def names(reads: Reads) -> str:
    return ", ".join(question.name for question in QUESTIONS if question.reads is reads)


@pytest.mark.django_db
@pytest.mark.parametrize("longest", [None, LONG], ids=["one snapshot", "bounded"])
@pytest.mark.parametrize("violate", VIOLATIONS, ids=lambda violate: violate.__name__)
def test_violation_is_found_in_ranges_of_a_row(
    violate: Callable[[], list[Any]], longest: timedelta | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "ROWS_AT_ONCE", 1)
    execute("SET LOCAL timezone = 'UTC'")
    expected = violate()
    diagnosis = examine(longest=longest)
    [finding] = [each for each in diagnosis.findings if each.name == violate.__name__]
    assert finding.count == len(expected)
    assert sorted(finding.examples) == sorted(map(str, expected))
    assert diagnosis.left_out == []


@pytest.mark.django_db
def test_findings_of_all_ranges_are_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "ROWS_AT_ONCE", 4)
    ids = [insert_job("completed", heartbeat_at="2020-01-01") for _ in range(25)]
    [finding] = examine(longest=LONG).findings
    assert (finding.count, finding.examples) == (25, tuple(map(str, ids[:20])))


@pytest.mark.django_db
def test_quick_look_says_what_it_left_out() -> None:
    wrong_home()
    overdue_running()
    diagnosis = examine(longest=LONG, is_quick=True)
    assert [each.name for each in diagnosis.findings if each.invariant != "SCHEMA"] == ["overdue_running"]
    assert diagnosis.left_out == [
        f"each job by itself: {names(Reads.JOBS)}",
        f"each unique claim: {names(Reads.CLAIMS)}",
        f"jobs against each other: {names(Reads.EVERYTHING)}",
    ]


@pytest.mark.django_db
def test_examination_ends_when_its_time_is_up_and_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "ROWS_AT_ONCE", 1)
    first, second = insert_job("completed", heartbeat_at="2020-01-01"), insert_job()
    told: list[str] = []
    monkeypatch.setattr(examination.Examination, "_is_over", lambda _: bool(told))
    diagnosis = examine(longest=LONG, tell=told.append)
    assert [each.name for each in diagnosis.findings] == ["stray_lease_times"]
    assert told[0] == f"looked at the jobs up to id {first:,} of {second:,}"
    assert diagnosis.left_out[0] == (
        f"each job by itself above id {first:,} (the newest is {second:,}): {names(Reads.JOBS)}"
    )
    assert diagnosis.left_out[1] == f"each unique claim: {names(Reads.CLAIMS)}"
    assert len(diagnosis.left_out) == 2 + names(Reads.EVERYTHING).count(",") + 1


def test_question_that_takes_too_long_is_left_out_and_the_others_are_asked(
    clean_queue: None, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "LONGEST_STATEMENT", timedelta(seconds=0.2))
    insert_job("running", deadline_at="2020-01-01")
    migration = connect(autocommit=False)
    migration.execute("LOCK TABLE awa.leaders, awa.job_unique_claims")

    def looked() -> tuple[list[str], list[str]]:
        """What was found and what was left out: on a machine that stands still, more may take too long."""
        diagnosis = examine(longest=LONG)
        return (
            [finding.name for finding in diagnosis.findings],
            [text.partition(":")[0] for text in diagnosis.left_out],
        )

    left_out = ["missing_duties", "each job by itself", "each unique claim"]
    wait_until(lambda: looked() == (["overdue_running"], left_out))
    migration.rollback()
    wait_until(lambda: looked()[1] == [])


@pytest.mark.django_db
@pytest.mark.parametrize("longest", [None, LONG], ids=["one snapshot", "bounded"])
def test_examination_leaves_no_setting_behind(longest: timedelta | None) -> None:
    settings = "SELECT name, setting FROM pg_settings WHERE name LIKE 'enable_%' OR name ~ 'timeout|^jit$'"
    with connection.cursor() as cursor:
        cursor.execute(settings)
        before = cursor.fetchall()
        assert examine(longest=longest).findings == []
        cursor.execute(settings)
        assert cursor.fetchall() == before


def test_diagnosis_sees_one_snapshot(
    clean_queue: None, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = connect()
    version = inspect.schema_version

    def write_meanwhile(on: Any) -> int | None:
        writer.execute("INSERT INTO awa.jobs_hot (kind, state, finalized_at, heartbeat_at) "
                       "VALUES ('k', 'failed', now(), now())")  # fmt: skip
        return version(on)

    monkeypatch.setattr(inspect, "schema_version", write_meanwhile)
    assert diagnose() == []
    monkeypatch.undo()
    assert [finding.name for finding in diagnose()] == ["stray_lease_times"]


def test_diagnosis_is_quick_where_statistics_call_full_tables_empty(
    clean_queue: None, connect: Connect
) -> None:
    """As nested loops it takes the product of the rows: 40 s for these."""
    filler = connect()
    for table, run_at in (("jobs_hot", "now()"), ("scheduled_jobs", "now() + interval '1 day'")):
        fill = f"INSERT INTO awa.{table} (kind, run_at) SELECT 'k', {run_at} FROM generate_series(1, %s)"
        filler.execute(fill.encode(), [1_000])
        filler.execute(f"DELETE FROM awa.{table}".encode())
        filler.execute(f"ANALYZE awa.{table}".encode())
        filler.execute(fill.encode(), [20_000])
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '30s'")
    try:
        assert diagnose() == []
    finally:
        connection.close()
