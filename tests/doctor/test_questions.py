"""A checker that cannot fail proves nothing: each question is shown a hand-made violation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from awa_django import doctor
from awa_django.doctor import QUESTIONS, SCHEMA_OBJECTS, Finding, diagnose
from tests.conftest import Connect
from tests.doctor.test_schema_objects import SQL
from tests.doctor.violations import UNFINISHED, VIOLATIONS, execute
from tests.factories import insert_job
from tests.waiting import wait_until

STATES = ("scheduled", "available", "running", "completed", "retryable", "failed", "cancelled")


def found(name: str) -> Finding:
    """The finding of that question, which must be there."""
    return {finding.name: finding for finding in diagnose()}[name]


@pytest.mark.django_db
@pytest.mark.parametrize("violate", VIOLATIONS, ids=lambda violate: violate.__name__)
@pytest.mark.fault("F63", injected="each violation by hand, orphaned and missing claims among them")
def test_violation_is_reported_with_its_ids(violate: Callable[[], list[Any]]) -> None:
    execute("SET LOCAL timezone = 'UTC'")
    assert diagnose() == []
    expected = violate()
    finding = found(violate.__name__)
    assert finding.count == len(expected)
    assert sorted(finding.examples) == sorted(map(str, expected))
    assert str(expected[0]) in str(finding)


@pytest.mark.django_db
def test_pinned_snapshot_is_reported(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PINNED_AFTER", timedelta(seconds=-1))
    session = connect(autocommit=False, application_name="analyst")
    session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    session.execute("SELECT 1")
    finding = found("pinned_snapshots")
    assert finding.is_warning
    assert any(f"pid {session.info.backend_pid} " in example for example in finding.examples)
    assert "analyst" in str(finding)


def test_table_that_nothing_vacuums_is_reported(
    clean_queue: None, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "DEAD_AT_LEAST", 500)
    monkeypatch.setattr(doctor, "UNVACUUMED_FOR", timedelta(seconds=-60))
    writer = connect()
    writer.execute("INSERT INTO awa.scheduled_jobs (kind) SELECT 'k' FROM generate_series(1, 500)")
    writer.execute("DELETE FROM awa.scheduled_jobs")
    writer.execute("SELECT pg_stat_force_next_flush()")

    def names() -> list[str]:
        return [finding.name for finding in diagnose()]

    wait_until(lambda: names() == ["unvacuumed_tables"])
    assert "awa.scheduled_jobs: 500 dead rows beside 0 live ones" in str(found("unvacuumed_tables"))
    monkeypatch.setattr(doctor, "DEAD_AT_LEAST", 501)
    assert names() == []


@pytest.mark.django_db
def test_rows_in_every_state_are_sound() -> None:
    for state in STATES:
        insert_job(state, unique_key=state[:8].ljust(16).encode(), unique_states=UNFINISHED)
        insert_job(state, errors=[{"error": "boom", "attempt": 1}])
    assert diagnose() == []


def test_each_statement_has_its_question() -> None:
    names = [question.name for question in (SCHEMA_OBJECTS, *QUESTIONS)]
    assert sorted(names) == sorted(path.stem for path in SQL.glob("*.sql"))
    shown_apart = {"pinned_snapshots", "unvacuumed_tables"}
    assert {violate.__name__ for violate in VIOLATIONS} | shown_apart == {q.name for q in QUESTIONS}


@pytest.mark.django_db
def test_only_the_first_ids_of_many_are_named() -> None:
    ids = [insert_job("completed", heartbeat_at="2020-01-01") for _ in range(25)]
    finding = found("stray_lease_times")
    assert (finding.count, finding.examples) == (25, tuple(map(str, ids[:20])))
    assert str(finding).endswith(", ...")
