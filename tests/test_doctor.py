"""A checker that cannot fail proves nothing: each question is shown a hand-made violation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from awa_django import doctor
from awa_django.doctor import QUESTIONS, SCHEMA_OBJECTS, Finding, diagnose
from awa_django.storage import inspect
from tests.conftest import Connect
from tests.factories import insert_job
from tests.waiting import wait_until

KEY, OTHER_KEY = b"d" * 16, b"e" * 16
UNFINISHED = "11101001"
STATES = ("scheduled", "available", "running", "completed", "retryable", "failed", "cancelled")


@pytest.fixture(autouse=True)
def others_dead_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests before have left in the tables is no finding here."""
    monkeypatch.setattr(doctor, "DEAD_AT_LEAST", 10**12)


def execute(statement: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)


def without(constraint: str, *, table: str = "jobs_hot") -> None:
    execute(f"ALTER TABLE awa.{table} DROP CONSTRAINT {constraint}")


def without_claims() -> None:
    for table in ("jobs_hot", "scheduled_jobs"):
        execute(f"ALTER TABLE awa.{table} DISABLE TRIGGER USER")


def found(name: str) -> Finding:
    """The finding of that question, which must be there."""
    return {finding.name: finding for finding in diagnose()}[name]


def in_both_tables() -> list[int]:
    job_id = insert_job()
    insert_job("scheduled", id=job_id)
    return [job_id]


def beyond_sequence() -> list[int]:
    newest = insert_job()
    return [insert_job(id=newest + 1_000), insert_job("scheduled", id=newest + 1_001)]


def wrong_home() -> list[int]:
    without("jobs_hot_states")
    without("scheduled_jobs_states", table="scheduled_jobs")
    job_id = insert_job()
    execute("UPDATE awa.jobs_hot SET state = 'retryable' WHERE id = %s", job_id)
    other_id = insert_job("scheduled")
    execute("UPDATE awa.scheduled_jobs SET state = 'running' WHERE id = %s", other_id)
    return [job_id, other_id]


def terminal_shape() -> list[int]:
    without("jobs_terminal_finalized")
    without("jobs_terminal_finalized", table="scheduled_jobs")
    return [
        insert_job("completed", finalized_at=None),
        insert_job("available", finalized_at="2020-01-01"),
        insert_job("retryable", finalized_at="2020-01-01"),
    ]


def stray_lease_times() -> list[int]:
    return [
        insert_job("completed", heartbeat_at="2020-01-01"),
        insert_job("available", deadline_at="2020-01-01"),
        insert_job("retryable", heartbeat_at="2020-01-01"),
    ]


def running_shape() -> list[int]:
    return [
        insert_job("running", attempt=0),
        insert_job("running", run_lease=0),
        insert_job("running", heartbeat_at=None),
        insert_job("running", attempted_at=None),
        insert_job("running", worker=None),
    ]


def available_early() -> list[int]:
    job_id = insert_job()
    execute("UPDATE awa.jobs_hot SET run_at = now() + interval '1 hour' WHERE id = %s", job_id)
    return [job_id]


def error_entries() -> list[int]:
    same_lease = [{"error": "a", "run_lease": 1}, {"error": "b", "run_lease": 1}]
    twice = insert_job("retryable", run_lease=2, errors=same_lease)
    ahead = insert_job("failed", run_lease=1, errors=[{"error": "a", "run_lease": 2}])
    scalar = insert_job("failed")
    execute("UPDATE awa.jobs_hot SET errors = ARRAY['\"text\"'::jsonb] WHERE id = %s", scalar)
    return [twice, ahead, scalar]


def attempts_exceeded() -> list[int]:
    without("jobs_attempt_range")
    return [insert_job("completed", attempt=4, max_attempts=3), insert_job(attempt=-1)]


def stale_running() -> list[int]:
    job_id = insert_job("running")
    execute("UPDATE awa.jobs_hot SET heartbeat_at = now() - interval '121 s' WHERE id = %s", job_id)
    insert_job("running")
    return [job_id]


def overdue_running() -> list[int]:
    job_id = insert_job("running")
    execute("UPDATE awa.jobs_hot SET deadline_at = now() - interval '31 s' WHERE id = %s", job_id)
    return [job_id]


def claims_without_job() -> list[int]:
    execute("INSERT INTO awa.job_unique_claims VALUES (%s, 77)", KEY)
    return [77]


def claims_not_held() -> list[int]:
    keyless = insert_job()
    execute("INSERT INTO awa.job_unique_claims VALUES (%s, %s)", KEY, keyless)
    ended = insert_job("completed", unique_key=OTHER_KEY, unique_states=UNFINISHED)
    execute("INSERT INTO awa.job_unique_claims VALUES (%s, %s)", OTHER_KEY, ended)
    return [keyless, ended]


def keys_not_claimed() -> list[int]:
    hot = insert_job(unique_key=KEY, unique_states=UNFINISHED)
    deferred = insert_job("scheduled", unique_key=OTHER_KEY, unique_states=UNFINISHED)
    execute("DELETE FROM awa.job_unique_claims")
    return [hot, deferred]


def keys_claimed_twice() -> list[int]:
    without_claims()
    execute("DROP INDEX awa.idx_awa_jobs_unique")
    ids = [insert_job("scheduled", unique_key=KEY, unique_states=UNFINISHED) for _ in range(2)]
    execute("INSERT INTO awa.job_unique_claims SELECT unique_key, id FROM awa.scheduled_jobs")
    return ids


def double_holders() -> list[int]:
    without_claims()
    return [
        insert_job("scheduled", unique_key=KEY, unique_states=UNFINISHED),
        insert_job("running", unique_key=KEY, unique_states=UNFINISHED),
    ]


def missing_duties() -> list[str]:
    execute("DELETE FROM awa.leaders WHERE duty IN ('cron', 'promote')")
    return ["cron", "promote"]


def cron_twice() -> list[int]:
    fire = {"awa:cron": {"name": "nightly", "fire_at": "2026-01-01T00:00:00+00:00"}}
    other = {"awa:cron": {"name": "nightly", "fire_at": "2026-01-02T00:00:00+00:00"}}
    insert_job(metadata=other)
    return [insert_job(metadata=fire), insert_job("scheduled", metadata=fire)]


def broken_rows() -> list[int]:
    without("jobs_args_object")
    without("jobs_priority_range", table="scheduled_jobs")
    without("jobs_timestamps_range")
    array = insert_job()
    execute("UPDATE awa.jobs_hot SET args = '[]' WHERE id = %s", array)
    return [array, insert_job("scheduled", priority=500), insert_job("completed", run_at="infinity")]


def negative_stats() -> list[str]:
    execute(
        "INSERT INTO awa.queue_stats (minute, queue, kind, failed_count) VALUES ('2020-01-01', 'q', 'k', -1)"
    )
    execute(
        "INSERT INTO awa.queue_stats (minute, queue, kind, run_histogram) "
        "VALUES ('2020-01-01', 'q', 'l', '{2,-1}')"
    )
    return ["2020-01-01 00:00:00+00 q k", "2020-01-01 00:00:00+00 q l"]


def overdue_deferred() -> list[int]:
    return [insert_job("retryable", run_at="2020-01-01")]


def not_vacuumable() -> list[str]:
    execute("CREATE ROLE awa_doctor_test")
    execute("GRANT USAGE ON SCHEMA awa TO awa_doctor_test")
    execute("GRANT SELECT ON ALL TABLES IN SCHEMA awa TO awa_doctor_test")
    execute("GRANT SELECT ON SEQUENCE awa.jobs_id_seq TO awa_doctor_test")
    execute("SET LOCAL ROLE awa_doctor_test")
    return ["awa.jobs_hot", "awa.scheduled_jobs"]


def unused_indexes() -> list[str]:
    execute("CREATE INDEX of_our_own ON awa.jobs_hot (kind)")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_size_pretty(pg_relation_size('awa.of_our_own'))")
        return [f"awa.of_our_own on awa.jobs_hot, {cursor.fetchone()[0]}"]


VIOLATIONS: list[Callable[[], list[Any]]] = [
    in_both_tables,
    beyond_sequence,
    wrong_home,
    terminal_shape,
    stray_lease_times,
    running_shape,
    available_early,
    error_entries,
    attempts_exceeded,
    stale_running,
    overdue_running,
    claims_without_job,
    claims_not_held,
    keys_not_claimed,
    keys_claimed_twice,
    double_holders,
    missing_duties,
    cron_twice,
    broken_rows,
    negative_stats,
    overdue_deferred,
    not_vacuumable,
    unused_indexes,
]


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


SQL = Path(inspect.__file__).parent / "sql" / "doctor"


def removals() -> list[str]:
    """What to execute so that one object of the schema is gone or out of order."""
    text = SQL.joinpath("missing_objects.sql").read_text()

    def names(section: str) -> list[str]:
        body = re.search(rf"^(?:WITH )?{section} \([\w, ]+\) AS \((.*?)^\)", text, re.DOTALL | re.MULTILINE)
        assert body is not None
        return re.findall(r"'(\w+)'", body[1])

    kinds = {"jobs": "VIEW", "jobs_id_seq": "SEQUENCE"}
    triggers = names("triggers")
    return [
        *(f"DROP {kinds.get(name, 'TABLE')} awa.{name} CASCADE" for name in names("relations")),
        *(f"DROP FUNCTION awa.{name} CASCADE" for name in names("functions")),
        *(
            f"DROP TRIGGER {name} ON awa.{relation}"
            for relation, name in zip(triggers[::2], triggers[1::2], strict=True)
        ),
        *(
            f"ALTER TABLE awa.{relation} DISABLE TRIGGER {name}"
            for relation, name in zip(triggers[::2], triggers[1::2], strict=True)
            if relation != "jobs"
        ),
        *(f"DROP INDEX awa.{name}" for name in names("indexes") if not name.endswith("_pkey")),
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("statement", removals())
def test_missing_or_disabled_object_is_reported(statement: str) -> None:
    execute(statement)
    assert SCHEMA_OBJECTS.name in {finding.name for finding in diagnose()}


@pytest.mark.django_db
def test_missing_objects_knows_every_object() -> None:
    text = SQL.joinpath("missing_objects.sql").read_text()
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT relname FROM pg_class WHERE relnamespace = 'awa'::regnamespace
            UNION SELECT proname FROM pg_proc WHERE pronamespace = 'awa'::regnamespace
            UNION SELECT tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
                WHERE relnamespace = 'awa'::regnamespace AND NOT tgisinternal
            UNION SELECT conname FROM pg_constraint
                WHERE conrelid IN ('awa.jobs_hot'::regclass, 'awa.scheduled_jobs'::regclass)
            """
        )
        names = {name for (name,) in cursor.fetchall() if not name.endswith("_not_null")}
    assert names <= set(re.findall(r"'(\w+)'", text))


@pytest.mark.django_db
def test_dropped_check_is_reported() -> None:
    without("jobs_args_object", table="scheduled_jobs")
    assert found("missing_objects").examples == ("check jobs_args_object of awa.scheduled_jobs",)


@pytest.mark.django_db
def test_schema_of_another_release_is_reported() -> None:
    execute("INSERT INTO awa.schema_version (version, name) VALUES (9999, 'future')")
    assert found("schema_version").examples == ("9999",)


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
        cursor.execute("SET statement_timeout = '15s'")
    try:
        assert diagnose() == []
    finally:
        connection.close()


@pytest.mark.django_db
def test_command_is_content_with_a_sound_queue() -> None:
    output = StringIO()
    call_command("awa_doctor", stdout=output)
    assert "all invariants hold" in output.getvalue()


@pytest.mark.django_db
def test_command_names_the_violation_and_exits_with_1() -> None:
    [job_id] = in_both_tables()
    output = StringIO()
    with pytest.raises(SystemExit) as raised:
        call_command("awa_doctor", stdout=output)
    assert raised.value.code == 1
    assert f"I1: jobs are in both tables (1): {job_id}" in output.getvalue()


@pytest.mark.django_db
def test_command_prints_json() -> None:
    [job_id] = in_both_tables()
    output = StringIO()
    with pytest.raises(SystemExit):
        call_command("awa_doctor", "--json", stdout=output)
    [finding] = [each for each in json.loads(output.getvalue())["findings"] if not each["is_warning"]]
    assert (finding["invariant"], finding["examples"], finding["is_warning"]) == ("I1", [str(job_id)], False)


@pytest.mark.django_db
def test_warning_alone_is_no_failure() -> None:
    overdue_deferred()
    output = StringIO()
    call_command("awa_doctor", stdout=output)
    assert "W3" in output.getvalue()
