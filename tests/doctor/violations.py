"""Violations made by hand, one for each question: each makes it and says what is to be found."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from django.db import connection

from tests.factories import insert_job

KEY, OTHER_KEY = b"d" * 16, b"e" * 16
UNFINISHED = "11101001"


def execute(statement: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)


def without(constraint: str, *, table: str = "jobs_hot") -> None:
    execute(f"ALTER TABLE awa.{table} DROP CONSTRAINT {constraint}")


def without_claims() -> None:
    for table in ("jobs_hot", "scheduled_jobs"):
        execute(f"ALTER TABLE awa.{table} DISABLE TRIGGER USER")


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
    role = f"awa_doctor_test_{os.getpid()}"  # the whole server's
    execute(f"CREATE ROLE {role}")
    execute(f"GRANT USAGE ON SCHEMA awa TO {role}")
    execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA awa TO {role}")
    execute(f"GRANT SELECT ON SEQUENCE awa.jobs_id_seq TO {role}")
    execute(f"GRANT UPDATE ON awa.leaders TO {role}")
    execute(f"SET LOCAL ROLE {role}")
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
